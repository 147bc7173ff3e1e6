package ledger

import (
	"sync"
	"time"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	// maxRemembered bounds the rows kept in memory, about 200 bytes each.
	maxRemembered = 200_000
	// contention is how long an item is read FOR UPDATE after another process changed it under us: two busy
	// instances then take turns instead of starving each other.
	contention = time.Second
	// suspicion is how long keys are looked up before a batch is written after one was found used: retries
	// come in storms, and a look costs less than a statement that a duplicate aborts.
	suspicion = time.Second
)

// memory is the last known row of each item. It may be wrong at any time: the write's version check decides.
type memory struct {
	mu        sync.Mutex
	rows      map[stock.Item]remembered
	suspectTo time.Time // until when duplicates are expected
}

type remembered struct {
	id          int64
	levels      stock.Levels
	lowAt       stock.Quantity
	contendedTo time.Time
}

func newMemory() *memory { return &memory{rows: make(map[stock.Item]remembered)} }

// fill puts the remembered rows of a batch's items into v. It reports what the batch should first rest on.
func (m *memory) fill(v *view, batch []*request, now time.Time) (on basis) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if now.Before(m.suspectTo) {
		on = basis{justRead, true}
	}
	for _, req := range batch {
		for _, d := range req.about {
			v.deductions[d.ID] = d.clone()
		}
		for _, item := range req.items {
			if _, ok := v.items[item]; ok {
				continue
			}
			row, ok := m.rows[item]
			if !ok {
				on.rows = max(on.rows, justRead)
				continue
			}
			if now.Before(row.contendedTo) {
				on.rows = locked
			}
			v.items[item] = &itemRow{id: row.id, seen: row.levels.Version, levels: row.levels, lowAt: row.lowAt}
		}
	}
	return on
}

// knows reports whether an item was ever seen.
func (m *memory) knows(item stock.Item) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	_, ok := m.rows[item]
	return ok
}

// learn keeps what was read or written.
func (m *memory) learn(rows []*itemRow) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, row := range rows {
		if old, ok := m.rows[row.levels.Item]; ok {
			if old.levels.Epoch == row.levels.Epoch && old.levels.Version > row.levels.Version {
				continue
			}
			m.rows[row.levels.Item] = remembered{row.id, row.levels, row.lowAt, old.contendedTo}
			continue
		}
		if len(m.rows) >= maxRemembered {
			m.forgetOneLocked()
		}
		m.rows[row.levels.Item] = remembered{id: row.id, levels: row.levels, lowAt: row.lowAt}
	}
}

// forgetOneLocked drops any row: the map's order is as good as random, and a miss costs one read.
func (m *memory) forgetOneLocked() {
	for item := range m.rows {
		delete(m.rows, item)
		return
	}
}

// contended notes which of the items somebody else changed between a decision and the reading after it.
func (m *memory) contended(decided, read map[stock.Item]*itemRow, now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for item, before := range decided {
		after, ok := read[item]
		if !ok || after.seen == before.seen {
			continue
		}
		row := m.rows[item]
		row.id, row.levels, row.lowAt, row.contendedTo = after.id, after.levels, after.lowAt, now.Add(contention)
		m.rows[item] = row
	}
}

// stale are the figures of a row as they were seen last; only a defect asks for them.
func (m *memory) stale(now stock.Levels) stock.Levels {
	m.mu.Lock()
	defer m.mu.Unlock()
	if row, ok := m.rows[now.Item]; ok {
		return row.levels
	}
	return now
}

// suspect notes that a key was found used.
func (m *memory) suspect(now time.Time) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.suspectTo = now.Add(suspicion)
}
