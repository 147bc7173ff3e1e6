package gate

import (
	"bytes"
	_ "embed"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

//go:embed gate.lua
var source string

var script = defect.Lua(source)

var scriptHash = redis.NewScript(script).Hash()

// Limits of a script call, so that it never keeps Redis from others for long: some milliseconds at most.
const (
	maxRequests = 256
	maxItems    = 512 // of all requests; but a request alone may have stock.MaxLines
	maxRiders   = 128 // other items with news
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
	gate    *Gate
	asks    []*ask
	several []*ask // of asks, those for more than one item
	items   []batchItem
	index   map[stock.Item]int // into items
	lines   int                // items of all asks together
	drops   int
	sent    time.Time

	text  []byte   // all arguments, one after the other
	ends  []int    // where each ends in text
	parts []string // the arguments
	args  []any    // pointers to parts, which cost no allocation
}

type batchItem struct {
	item        stock.Item
	pending     *pending // nil: no news
	first, last *ask     // for this item alone, linked by next
	figures              // what the reply says
}

func newBatch(g *Gate) *batch {
	return &batch{gate: g, index: make(map[stock.Item]int)}
}

func (b *batch) reset() {
	if len(b.index) > maxRequests {
		b.index = make(map[stock.Item]int) // clearing a map takes as long as it was ever large
	}
	clear(b.index)
	clear(b.asks)
	clear(b.several)
	clear(b.items)
	b.asks, b.several, b.items, b.lines, b.drops = b.asks[:0], b.several[:0], b.items[:0], 0, 0
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
	a.sent, a.next = b.sent, nil
	b.lines += len(a.wants)
	b.asks = append(b.asks, a)
	if len(a.wants) > 1 || a.wants[0].form != whole || a.wants[0].room > 0 {
		b.several = append(b.several, a)
		return
	}
	it := &b.items[a.wants[0].key]
	if it.first == nil {
		it.first = a
	} else {
		it.last.next = a
	}
	it.last = a
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

// timeout of the call. An order of a thousand items takes Redis many times as long as one of a single item: it must not
// open the breaker for everybody.
func (b *batch) timeout() time.Duration {
	limit := b.gate.cfg.CallTimeout
	return limit + limit*time.Duration(len(b.items)/maxItems)
}

// encode the call; the head of gate.lua says what goes where.
func (b *batch) encode() {
	cfg := &b.gate.cfg
	b.text, b.ends = b.text[:0], b.ends[:0]
	for i := range b.items {
		b.text = appendItemKey(b.text, cfg.Prefix, b.items[i].item)
		b.end()
	}
	b.number(cfg.TicketLife.Milliseconds(), 6)
	b.number(cfg.KeyLife.Milliseconds(), 6)
	b.number((Freshness - remembered).Milliseconds(), 6)
	b.number(maxTickets, 4)
	b.end()
	for _, a := range b.several {
		b.text = append(b.text, a.ticket[:]...)
		b.number(int64(len(a.wants)), 2)
		for i := range a.wants {
			b.number(int64(a.wants[i].key)+1, 2)
			b.number(int64(a.wants[i].quantity), 6)
			b.number(int64(a.wants[i].room), 6)
			b.number(int64(a.wants[i].form), 1)
		}
	}
	b.end()
	for i := range b.items {
		it := &b.items[i]
		b.encodePending(it.pending)
		for a := it.first; a != nil; a = a.next {
			b.text = append(b.text, a.ticket[:]...)
			b.number(int64(a.wants[0].quantity), 6)
		}
		b.end()
	}
	b.assemble()
}

func (b *batch) encodePending(p *pending) {
	if p != nil && p.news {
		b.number(int64(p.levels.Epoch), 4)
		b.number(p.levels.Version, 8)
		b.number(int64(p.levels.Available()), 8)
		b.number(max(0, b.sent.Sub(p.at).Milliseconds()), 6)
	}
	b.end()
	if p != nil {
		slices.SortFunc(p.tickets, func(a, b Ticket) int { return bytes.Compare(a[:], b[:]) })
		p.tickets = slices.Compact(p.tickets) // a call that failed may have added one twice
		for i := range p.tickets {
			b.text = append(b.text, p.tickets[i][:]...)
		}
	}
	b.end()
}

// number appends the lowest size bytes of n, big-endian.
func (b *batch) number(n int64, size int) {
	for size--; size >= 0; size-- {
		b.text = append(b.text, byte(n>>(8*size)))
	}
}

func (b *batch) end() { b.ends = append(b.ends, len(b.text)) }

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
	n := 0
	for i := range b.items {
		for a := b.items[i].first; a != nil; a = a.next {
			a.letter = letter(letters[n])
			n++
		}
	}
	for _, a := range b.several {
		a.letter = letter(letters[n])
		n++
	}
	for _, a := range b.asks {
		switch a.letter {
		case granted, shared:
		case crowded:
			a.reason = Crowded
		case short:
			for j := range a.wants {
				a.wants[j].figures = b.items[a.wants[j].key].figures
			}
		default:
			return fmt.Errorf("%w: letter %q", errBadReply, byte(a.letter))
		}
	}
	return nil
}

// decodeItem reads "key:available:version:state", or "key" of an item that is not known.
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
	version, state, _ := strings.Cut(rest, ":")
	f := figures{known: true, fresh: state != "0", bare: state == "2"}
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
