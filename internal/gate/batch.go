package gate

import (
	_ "embed"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

//go:embed gate.lua
var script string

var scriptHash = redis.NewScript(script).Hash()

// Limits of a script call, so that it never keeps Redis from others for long: some milliseconds at most.
const (
	maxRequests = 256
	maxItems    = 1024 // but one request may have stock.MaxLines
	maxDrops    = 1024
	maxTickets  = 4096 // of one item; a request beyond it is Crowded
)

// letter is how the script answers a request.
type letter byte

const (
	none    letter = 0
	granted letter = 'G'
	shared  letter = 'S'
	short   letter = 'R'
	crowded letter = 'C'
)

var errBadReply = errors.New("the script's reply makes no sense")

// batch is one script call. It is used again and again by one worker.
type batch struct {
	gate  *Gate
	asks  []*ask
	items []batchItem
	index map[stock.Item]int // into items
	lines int                // items of all asks together
	drops int
	sent  time.Time

	text  []byte   // all arguments, one after the other
	ends  []int    // where each ends in text
	parts []string // the arguments
	args  []any    // pointers to parts, which cost no allocation
}

type batchItem struct {
	item    stock.Item
	pending *pending // nil: no news
	figures          // what the reply says
}

func newBatch(g *Gate) *batch {
	return &batch{gate: g, index: make(map[stock.Item]int)}
}

func (b *batch) reset() {
	clear(b.asks)
	clear(b.items)
	clear(b.index)
	b.asks, b.items, b.lines, b.drops = b.asks[:0], b.items[:0], 0, 0
	b.sent = time.Now()
}

// fits reports whether a may join the call: the first one always may.
func (b *batch) fits(a *ask) bool {
	return len(b.asks) == 0 || len(b.asks) < maxRequests && b.lines+len(a.wants) <= maxItems
}

func (b *batch) add(a *ask) {
	for i := range a.wants {
		a.wants[i].key = b.key(a.wants[i].item)
	}
	a.sent = b.sent
	b.lines += len(a.wants)
	b.asks = append(b.asks, a)
}

// key returns the number of an item in the call, and gives it one when it has none.
func (b *batch) key(item stock.Item) int {
	i, ok := b.index[item]
	if !ok {
		i = len(b.items)
		b.index[item] = i
		b.items = append(b.items, batchItem{item: item})
	}
	return i
}

// encode the call; the head of gate.lua says what goes where.
func (b *batch) encode() {
	cfg := &b.gate.cfg
	b.text, b.ends = b.text[:0], b.ends[:0]
	for i := range b.items {
		b.text = appendItemKey(b.text, cfg.Prefix, b.items[i].item)
		b.end()
	}
	for _, n := range [...]int64{cfg.TicketLife.Milliseconds(), cfg.KeyLife.Milliseconds(), Freshness.Milliseconds(), maxTickets} {
		b.number(n)
		b.end()
	}
	for i := range b.items {
		b.encodePending(b.items[i].pending)
	}
	for _, a := range b.asks {
		b.text = append(b.text, a.ticket[:]...)
		b.end()
		for i := range a.wants {
			if i > 0 {
				b.text = append(b.text, ',')
			}
			b.number(int64(a.wants[i].key) + 1)
			b.text = append(b.text, ':')
			b.number(int64(a.wants[i].quantity))
		}
		b.end()
	}
	b.assemble()
}

func (b *batch) encodePending(p *pending) {
	if p == nil {
		b.end()
		b.end()
		return
	}
	if p.news {
		b.number(int64(p.levels.Epoch))
		b.text = append(b.text, ':')
		b.number(p.levels.Version)
		b.text = append(b.text, ':')
		b.number(int64(p.levels.Available()))
		b.text = append(b.text, ':')
		b.number(max(0, b.sent.Sub(p.at).Milliseconds()))
	}
	b.end()
	for i := range p.tickets {
		b.text = append(b.text, p.tickets[i][:]...)
	}
	b.end()
}

func (b *batch) number(n int64) { b.text = strconv.AppendInt(b.text, n, 10) }
func (b *batch) end()           { b.ends = append(b.ends, len(b.text)) }

// assemble cuts the text into the command's arguments.
func (b *batch) assemble() {
	text, start := string(b.text), 0
	if cap(b.parts) < len(b.ends) {
		b.parts = make([]string, 2*len(b.ends))
	}
	b.parts = b.parts[:len(b.ends)]
	b.args = append(b.args[:0], "evalsha", scriptHash, len(b.items))
	for i, end := range b.ends {
		b.parts[i] = text[start:end]
		b.args = append(b.args, &b.parts[i])
		start = end
	}
}

// decode the reply into the asks.
func (b *batch) decode(reply string) error {
	letters, rest, _ := strings.Cut(reply, " ")
	if len(letters) != len(b.asks) {
		return fmt.Errorf("%w: %d letters for %d requests", errBadReply, len(letters), len(b.asks))
	}
	for rest != "" {
		var entry string
		entry, rest, _ = strings.Cut(rest, " ")
		if err := b.decodeItem(entry); err != nil {
			return err
		}
	}
	for i, a := range b.asks {
		a.letter = letter(letters[i])
		switch a.letter {
		case granted, shared:
		case crowded:
			a.reason = Crowded
		case short:
			for j := range a.wants {
				a.wants[j].figures = b.items[a.wants[j].key].figures
			}
		default:
			return fmt.Errorf("%w: letter %q", errBadReply, letters[i])
		}
	}
	return nil
}

// decodeItem reads "key:available:version:fresh", or "key" of an item that is not known.
func (b *batch) decodeItem(entry string) error {
	key, rest, known := strings.Cut(entry, ":")
	i, err := strconv.Atoi(key)
	if err != nil || i < 1 || i > len(b.items) {
		return fmt.Errorf("%w: item %q", errBadReply, entry)
	}
	if !known {
		return nil
	}
	available, rest, _ := strings.Cut(rest, ":")
	version, fresh, _ := strings.Cut(rest, ":")
	f := figures{known: true, fresh: fresh == "1"}
	a, err := strconv.ParseInt(available, 10, 64)
	if err == nil {
		f.available = stock.Quantity(a)
		f.version, err = strconv.ParseInt(version, 10, 64)
	}
	if err != nil {
		return fmt.Errorf("%w: item %q", errBadReply, entry)
	}
	b.items[i-1].figures = f
	return nil
}
