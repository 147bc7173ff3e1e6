package gate

import (
	"time"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// remembered is how long a process goes on saying short after the script did. It is part of Freshness.
	remembered = 10 * time.Millisecond
	// maxRemembered bounds each half of a memory. What is forgotten costs a call.
	maxRemembered = 1 << 15
)

// memory is what a process needs no call for: items with so much left that nothing would be refused, and items
// that were sold out a moment ago. It is guarded by its lane's mutex.
type memory struct {
	young, old map[stock.Item]recollection // young becomes old when it is full
}

type recollection struct {
	levels stock.Levels // the last news
	at     time.Time    // when the ledger said so, zero without
	heard  time.Time    // when they came
	short  figures      // what a refusal said, until the time below or the next news
	until  time.Time
}

func (m *memory) get(item stock.Item) (recollection, bool) {
	r, ok := m.young[item]
	if !ok {
		r, ok = m.old[item]
	}
	return r, ok
}

func (m *memory) put(item stock.Item, r recollection) {
	if m.young == nil || len(m.young) >= maxRemembered {
		m.old, m.young = m.young, make(map[stock.Item]recollection)
	}
	m.young[item] = r
}

// settle takes news in: whatever was refused before is open again.
func (m *memory) settle(levels stock.Levels, at time.Time) {
	if r, ok := m.get(levels.Item); ok && !r.at.IsZero() && older(levels, at, r.levels, r.at) {
		return
	}
	m.put(levels.Item, recollection{levels: levels, at: at, heard: time.Now()})
}

// refused takes in what a call that began at sent said of an item, unless there are news since.
func (m *memory) refused(item stock.Item, f figures, sent time.Time) {
	r, _ := m.get(item)
	if r.heard.After(sent) {
		return
	}
	r.short, r.until = f, sent.Add(remembered)
	m.put(item, r)
}

// ample reports whether factor requests like this one could be served as of the last news. There is no limit to
// their age: who relies on old ones is refused by the ledger, and that is news.
func (r *recollection) ample(line *stock.WantedLine, factor int) bool {
	return factor > 0 && !r.at.IsZero() && line.Quantity > 0 && r.levels.Available()/stock.Quantity(factor) >= line.Quantity
}

// refuses reports whether a refusal a moment ago said that too little is left.
func (r *recollection) refuses(line *stock.WantedLine) bool {
	return !r.until.IsZero() && line.Quantity > r.short.available && line.Quantity <= stock.MaxLineQuantity && time.Now().Before(r.until)
}
