package stock

import "time"

// EventKind says what others hear of.
type EventKind string

// LowStock is told when what is available of an item falls to its low stock mark or below, and again only after it
// was above it. A new item begins low: it must have been above its mark once.
const LowStock EventKind = "low-stock"

// Event is something others want to hear of. Item and version name it: it belongs to one movement.
type Event struct {
	Kind       EventKind
	Levels     Levels // after the movement
	LowStockAt Quantity
	At         time.Time
	Place      EventPlace
}

// EventPlace is where an event is in the order in which events appear to a reader. Places are compared member by
// member; the zero place is before all.
type EventPlace struct {
	Epoch int32 // WAL timeline
	Tx    int64 // that wrote it
	Item  int64 // number of the item's row
	// Version of the item, its own order: of two events of an item the one with the higher version is the later one.
	Version int64
}

// EventQuery asks for one page of events.
type EventQuery struct {
	Location *Location // nil: all
	After    EventPlace
	Limit    int // 1 … MaxPage
}
