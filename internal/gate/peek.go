package gate

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
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
	Tickets     []HeldTicket   // all that are there, those that no longer count too; at most some thousands
}

// HeldTicket is a ticket on an item.
type HeldTicket struct {
	Ticket   Ticket
	Quantity stock.Quantity
	Deadline time.Time
	Epoch    uint32 // of the base it was taken from; it counts while the base is this one
	Version  int64
}

// Peek reads what the gate has about an item. It changes nothing.
func (g *Gate) Peek(ctx context.Context, item stock.Item) (Figures, error) {
	node, err := g.laneOf(item).node(ctx)
	if err != nil {
		return Figures{}, fmt.Errorf("peek at %s: %w", item, err)
	}
	fields, err := node.HGetAll(ctx, g.key(item)).Result()
	if err != nil {
		return Figures{}, fmt.Errorf("peek at %s: %w", item, err)
	}
	f, err := parseFigures(fields)
	if err != nil {
		return Figures{}, fmt.Errorf("peek at %s: %w", item, err)
	}
	return f, nil
}

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

func parseFigures(fields map[string]string) (Figures, error) {
	base, ok := fields["b"]
	if !ok {
		return Figures{}, nil
	}
	n, err := parseNumbers(base, 7)
	if err != nil {
		return Figures{}, fmt.Errorf("base %q: %w", base, err)
	}
	f := Figures{
		Known: true, Epoch: uint32(n[0]), Version: n[1], Available: stock.Quantity(n[2]),
		ConfirmedAt: time.UnixMilli(n[3]), Outstanding: stock.Quantity(n[4]),
	}
	for ticket, text := range fields {
		if ticket == "b" {
			continue
		}
		n, err := parseNumbers(text, 4)
		if err != nil || len(ticket) != len(Ticket{}) {
			return Figures{}, fmt.Errorf("ticket %x %q: %w", ticket, text, errors.Join(err, errBadReply))
		}
		f.Tickets = append(f.Tickets, HeldTicket{
			Ticket: Ticket([]byte(ticket)), Quantity: stock.Quantity(n[0]), Deadline: time.UnixMilli(n[1]),
			Epoch: uint32(n[2]), Version: n[3],
		})
	}
	return f, nil
}

// parseNumbers reads count integers with colons between them.
func parseNumbers(text string, count int) ([]int64, error) {
	parts := strings.Split(text, ":")
	if len(parts) != count {
		return nil, fmt.Errorf("%d numbers, not %d", len(parts), count)
	}
	numbers := make([]int64, count)
	for i, part := range parts {
		n, err := strconv.ParseInt(part, 10, 64)
		if err != nil {
			return nil, err
		}
		numbers[i] = n
	}
	return numbers, nil
}
