package gate

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Figures are what the gate has about an item, for people and for checks. Times are on Redis's clock.
type Figures struct {
	Known       bool // false: nothing, and the rest is empty
	Epoch       uint32
	Version     int64
	Available   stock.Quantity // of the base: what the ledger said at Version
	ConfirmedAt time.Time      // when the ledger said so
	Outstanding stock.Quantity // of the tickets that count: what requests since then hold
	Count       int64          // of the tickets that are there, as the gate counts them
	Earliest    time.Time      // no ticket has its deadline before this; zero: there is none
	Tickets     []HeldTicket   // all that are there, those that no longer count too; at most some thousands
	Now         time.Time      // when this was read
}

// HeldTicket is a ticket on an item.
type HeldTicket struct {
	Ticket   Ticket
	Quantity stock.Quantity
	Deadline time.Time
	Epoch    uint32 // of the base it was taken from; it counts while the base is this one
	Version  int64
}

// Peek reads what the gate has about an item. It changes nothing. [ErrUnreadable] when that is not of its form.
func (g *Gate) Peek(ctx context.Context, item stock.Item) (Figures, error) {
	f, err := g.peek(ctx, item)
	if err != nil {
		return Figures{}, fmt.Errorf("peek at %s: %w", item, err)
	}
	return f, nil
}

func (g *Gate) peek(ctx context.Context, item stock.Item) (Figures, error) {
	node, err := g.laneOf(item).node(ctx)
	if err != nil {
		return Figures{}, err
	}
	both := node.Pipeline()
	hash, clock := both.HGetAll(ctx, g.key(item)), both.Time(ctx) // the clock last: nothing read is later
	if _, err = both.Exec(ctx); redis.HasErrorPrefix(err, "WRONGTYPE") {
		return Figures{}, fmt.Errorf("%w: %w", ErrUnreadable, err)
	}
	if err != nil {
		return Figures{}, err
	}
	f, err := parseFigures(hash.Val())
	f.Now = clock.Val()
	return f, err
}

// ErrUnreadable says that the gate's key for an item is not of the form that gate.lua writes. The script replaces it when it is
// next asked for the item.
var ErrUnreadable = errors.New("the gate's figures cannot be read")

// Forget an item: the next request for it asks the ledger. News that wait in this process are told all the same.
func (g *Gate) Forget(ctx context.Context, item stock.Item) error {
	node, err := g.laneOf(item).node(ctx)
	if err == nil {
		err = node.Unlink(ctx, g.key(item)).Err()
	}
	if err != nil && !errors.Is(err, redis.Nil) {
		return fmt.Errorf("forget %s: %w", item, err)
	}
	return nil
}

func (g *Gate) key(item stock.Item) string {
	return string(appendItemKey(nil, g.cfg.Prefix, item))
}

// parseFigures reads what gate.lua wrote.
func parseFigures(fields map[string]string) (Figures, error) {
	base, ok := fields["b"]
	if !ok && len(fields) == 0 {
		return Figures{}, nil
	}
	if len(base) < 44 { // longer when gate.lua filled it up
		return Figures{}, fmt.Errorf("%w: base %x", ErrUnreadable, base)
	}
	f := Figures{
		Known: true, Epoch: uint32(number(base[:4])), Version: number(base[4:12]),
		Available: stock.Quantity(number(base[12:20])), ConfirmedAt: time.UnixMilli(number(base[20:26])),
		Outstanding: stock.Quantity(number(base[26:34])), Count: number(base[34:38]),
	}
	if earliest := number(base[38:44]); earliest > 0 {
		f.Earliest = time.UnixMilli(earliest)
	}
	for ticket, text := range fields {
		if ticket == "b" {
			continue
		}
		if len(ticket) != len(Ticket{}) || len(text) != 24 {
			return Figures{}, fmt.Errorf("%w: ticket %x %x", ErrUnreadable, ticket, text)
		}
		f.Tickets = append(f.Tickets, HeldTicket{
			Ticket: Ticket([]byte(ticket)), Quantity: stock.Quantity(number(text[:6])),
			Deadline: time.UnixMilli(number(text[6:12])), Epoch: uint32(number(text[12:16])), Version: number(text[16:24]),
		})
	}
	return f, nil
}

// number reads a big-endian integer.
func number(b string) int64 {
	var n int64
	for i := range len(b) {
		n = n<<8 | int64(b[i])
	}
	return n
}
