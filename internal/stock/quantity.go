package stock

import "time"

const (
	// MaxLineQuantity bounds what one line of a request may ask for, in units.
	MaxLineQuantity Quantity = 1_000_000_000
	// MaxOnHand bounds a stock figure, in units: the largest integer that a JSON client, Lua and
	// JavaScript all keep exactly (2^53 − 1).
	MaxOnHand Quantity = 1<<53 - 1
	// MaxLines bounds the lines of one request, so that one order is always one batch.
	MaxLines = 1000
	// MaxBatchLines bounds the lines of the deductions of one call together.
	MaxBatchLines = 10_000
	// MaxOrderLines bounds the lines of the deductions that are changed as one.
	MaxOrderLines = 2 * MaxLines
	// MaxLocations bounds the locations one line may be taken from; all lines of a request have MaxLines in all.
	MaxLocations = 16
	// MaxHold bounds how far ahead a hold may expire at each step.
	MaxHold = 24 * time.Hour
	// MaxHoldLife bounds a hold's whole life, extensions included.
	MaxHoldLife = 7 * 24 * time.Hour
)

// Quantity counts whole units. A difference between two figures is a Quantity too and may be negative.
type Quantity int64

// Levels are the figures of one item as of one version.
type Levels struct {
	Item
	OnHand      Quantity // physically there
	Held        Quantity // promised by open holds
	SafetyStock Quantity // never sold automatically
	Version     int64    // how many movements the item has had
	Epoch       uint32   // WAL timeline the figures were read on: a version may go back only when this goes up
}

// Available is what may be deducted: on hand, neither held nor safety stock. It is negative when the
// safety stock was raised above what is free.
func (l Levels) Available() Quantity { return l.OnHand - l.Held - l.SafetyStock }

// Stock is an item with everything a reader may see.
type Stock struct {
	Levels
	Label      string
	LowStockAt *Quantity // nil: no low stock mark
	CreatedAt  time.Time
	UpdatedAt  time.Time
}
