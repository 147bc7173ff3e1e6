package gate

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"slices"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Freshness is how long after a look into the ledger its figures may be called short. Older ones are confirmed
// with the ledger first.
const Freshness = time.Second

// maxAsks bounds how often a request is put to the script: once, and again after a look into the ledger. The third
// time is for an item that grew stale, or was forgotten, between the look and the second time.
const maxAsks = 3

// Config of a gate. Zero values are replaced by the defaults named.
type Config struct {
	// Confirm reads the figures of items from the ledger, after releasing what has expired on them. Items that
	// are missing in the result do not exist. Required. It is called from one goroutine at a time.
	Confirm func(ctx context.Context, items []stock.Item) ([]stock.Levels, error)
	// Count reads what customers have, of items as named: those that are missing in the result do not exist. Required if
	// any request has a limit. It is called like Confirm.
	Count func(ctx context.Context, of []stock.CustomerUnits) ([]stock.CustomerUnits, error)
	// Prefix of every key; a Redis that several installations share needs one each. Default "holdfast".
	Prefix string
	// CallTimeout bounds one script call; one that carries many items has as much again for each 512. Default 100 ms.
	CallTimeout time.Duration
	// ConfirmTimeout bounds one call of Confirm. Default 1 s.
	ConfirmTimeout time.Duration
	// TicketLife is how long units are refused to others for a request that never comes back. A request that
	// takes longer loses nothing but the protection from others. Default 1 s.
	TicketLife time.Duration
	// KeyLife is how long Redis keeps an item after its last news. Default 1 h.
	KeyLife time.Duration
	// QueueLimit bounds the requests that wait for a call; on Cluster, for each slot group. Default 4,096.
	QueueLimit int
	// Ample is how many requests like one must fit into what is left, as of the last news in this process, for it
	// to need no ticket. Larger than the requests that may be under way in all processes together. Default 1,000;
	// negative: every request needs one.
	Ample int
	// Registerer takes the gate's metrics. Default: none.
	Registerer prometheus.Registerer
	// Logger hears when the gate is bypassed and when it is back. Default: none.
	Logger *slog.Logger
}

func (c *Config) setDefaults() {
	set(&c.Prefix, "holdfast")
	set(&c.CallTimeout, 100*time.Millisecond)
	set(&c.ConfirmTimeout, time.Second)
	set(&c.TicketLife, time.Second)
	set(&c.KeyLife, time.Hour)
	set(&c.QueueLimit, 4096)
	set(&c.Ample, 1000)
	set(&c.Logger, slog.New(slog.DiscardHandler))
}

func set[T comparable](field *T, value T) {
	var zero T
	if *field == zero {
		*field = value
	}
}

// Gate tells requests that cannot succeed so, before they reach the ledger.
type Gate struct {
	cfg     Config
	single  *redis.Client // one of the two is set
	cluster *redis.ClusterClient
	lanes   []*lane // one, or on Cluster one for each slot group
	confirm *confirmer
	metrics *metrics
	workers sync.WaitGroup
	spare   sync.Pool // of *request
}

// New makes a gate that runs until [Gate.Close]. The client must be one of [Dial], or have the same options, and
// stays the caller's to close. Any other kind than *redis.Client and *redis.ClusterClient panics.
func New(client redis.UniversalClient, cfg Config) *Gate {
	cfg.setDefaults()
	g := &Gate{cfg: cfg}
	lanes := 1
	switch c := client.(type) {
	case *redis.Client:
		g.single = c
	case *redis.ClusterClient:
		g.cluster = c
		lanes = slotGroups
	default:
		panic(fmt.Sprintf("gate: a client of type %T is not supported", client))
	}
	g.spare.New = func() any { return newRequest(g) }
	for group := range lanes {
		g.lanes = append(g.lanes, newLane(g, group))
	}
	g.confirm = newConfirmer(g)
	g.metrics = newMetrics(cfg.Registerer, g.pendingItems)
	for _, l := range g.lanes {
		g.workers.Go(l.run)
	}
	return g
}

// Close ends the gate after what waits was sent, which a Redis that does not answer cannot delay by more than a
// call's time. Requests after it are bypassed.
func (g *Gate) Close() {
	g.confirm.close()
	for _, l := range g.lanes {
		l.close()
	}
	g.workers.Wait()
}

// Take asks for a ticket for all lines of an order part, all or none; lines of one item count together. The lines
// may be those of up to [stock.MaxLines]. It ends when ctx does, or after at most three calls and two looks into
// the ledger.
func (g *Gate) Take(ctx context.Context, ticket Ticket, lines []stock.WantedLine) Answer {
	return g.TakeAll(ctx, []Wish{{Ticket: ticket, Lines: lines}})[0]
}

// Wish is what one order part wants to take.
//
// Lines that may be taken from several locations take no ticket, because nobody knows from which. They are short only if no
// line insists on a location and nothing is left anywhere.
type Wish struct {
	Ticket Ticket
	Lines  []stock.WantedLine
	Terms
}

// TakeAll is [Gate.Take] for many order parts, each for itself, in their order, with as few calls as can carry them.
func (g *Gate) TakeAll(ctx context.Context, wishes []Wish) []Answer {
	answers := make([]Answer, len(wishes))
	var asked []*request
	for i := range wishes {
		w := &wishes[i]
		if answer, ok := g.recall(w.Lines, &w.Terms); ok {
			answers[i] = answer
			continue
		}
		r := g.spare.Get().(*request)
		r.place = i
		r.split(w)
		asked = append(asked, r)
	}
	g.ask(ctx, asked)
	for _, r := range asked {
		answers[r.place] = r.verdict
		r.reset()
		g.spare.Put(r)
	}
	for i := range answers {
		g.metrics.answered(&answers[i])
	}
	return answers
}

// recall answers from memory, where it is enough.
func (g *Gate) recall(lines []stock.WantedLine, terms *Terms) (Answer, bool) {
	if terms.Limit > 0 {
		return Answer{}, false
	}
	for i := range lines {
		line := &lines[i]
		if line.Sourcing != nil {
			return Answer{}, false
		}
		ample, short, figures := g.laneOf(line.Item).recall(line)
		if short && len(lines) == 1 && !terms.Partial { // of several lines every short one is to be told, not the first one found
			return Answer{Verdict: Short, Short: []stock.ShortLine{{
				Item: line.Item, Requested: line.Quantity, Available: figures.available, Version: figures.version,
			}}}, true
		}
		if !ample {
			return Answer{}, false
		}
	}
	return Answer{Verdict: Ample}, len(lines) > 0
}

// Settle tells the gate what the ledger has just said about items: figures, not changes, so that news may be lost,
// repeated or come late. It never waits.
func (g *Gate) Settle(levels []stock.Levels) {
	now := time.Now()
	g.settle(levels, now)
	if defect.LateNews() {
		again := slices.Clone(levels)
		time.AfterFunc(rand.N(maxLateness), func() { g.settle(again, now) })
	}
}

// maxLateness is how late news come once more, see [defect.LateNews].
const maxLateness = 3 * time.Second

func (g *Gate) settle(levels []stock.Levels, told time.Time) {
	for i := range levels {
		g.laneOf(levels[i].Item).settle(levels[i], told)
	}
}

// Drop removes the ticket of a request that was [Granted], once the ledger has answered it. It never waits.
// Call [Gate.Settle] with what the ledger said before, not after.
func (g *Gate) Drop(w Wish) {
	for i := range w.Lines {
		item := w.Lines[i].Item
		if w.Lines[i].Sourcing != nil {
			continue
		}
		g.laneOf(item).drop(w.Ticket, item)
		if w.Limit > 0 {
			g.laneOf(item).drop(w.Ticket, allowance(item, w.Customer))
		}
	}
}

// Count is [Gate.Settle] for what customers have.
func (g *Gate) Count(units []stock.CustomerUnits) {
	now := time.Now()
	for i := range units {
		g.laneOf(units[i].Item).settle(owed(&units[i]), now)
	}
}

// owed is what a customer has as the figures of his allowance: available is as much below zero.
func owed(u *stock.CustomerUnits) stock.Levels {
	return stock.Levels{Item: allowance(u.Item, u.Customer), Held: u.Units, Version: u.Version, Epoch: u.Epoch}
}

// lane is the number of the lane of an item.
func (g *Gate) lane(item stock.Item) int {
	if len(g.lanes) == 1 {
		return 0
	}
	return groupOf(item)
}

func (g *Gate) laneOf(item stock.Item) *lane { return g.lanes[g.lane(item)] }

func (g *Gate) pendingItems() float64 {
	n := 0
	for _, l := range g.lanes {
		n += l.pendingItems()
	}
	return float64(n)
}
