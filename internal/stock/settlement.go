package stock

import "time"

// Settlement is what moved on an item in a day: Opening + Received − Deducted + Returned + Adjusted = Closing. There is
// one for each day on which something moved, and what one closes with is what the next one opens with.
type Settlement struct {
	Item
	Version int64 // of the item at the end of the day
	Opening Quantity
	Moved   Moved
	Closing Quantity
}

// Moved sums up movements by what they were for.
type Moved struct {
	Received Quantity
	Deducted Quantity // what left, as a positive figure
	Returned Quantity
	Adjusted Quantity // by adjustments and counts; may be negative
}

// SettlementQuery asks for one page of a day's settlements, in the order in which their items were created.
type SettlementQuery struct {
	Day      time.Time // a date: midnight UTC
	Location *Location // nil: all
	After    int64     // [SettlementPage.Next] of the page before; 0: from the start
	Limit    int       // 1 … MaxPage
}

// SettlementPage is a part of a day that is settled.
type SettlementPage struct {
	Day         time.Time
	SettledAt   time.Time
	Settlements []Settlement
	Next        int64 // where the next page begins; 0: there is none
}

// StocktakeState is where a count stands.
type StocktakeState string

// The states of a count. One that is over may not be completed any more: its time ended, or it was completed with
// another figure.
const (
	StocktakeOpen      StocktakeState = "open"
	StocktakeCompleted StocktakeState = "completed"
	StocktakeOver      StocktakeState = "over"
)

// MaxStocktake bounds how long an item may be counted.
const MaxStocktake = 7 * 24 * time.Hour

// Stocktake is an exclusive count of an item.
type Stocktake struct {
	ID        DeductionID
	Item      Item
	State     StocktakeState
	Fence     Fence // that its write is made under
	Client    string
	Reference string
	OpenedAt  time.Time
	ExpiresAt time.Time
	// Version and OnHand of the item when the count was opened: what is counted is compared with them.
	Version int64
	OnHand  Quantity
	// Counted is nil until the count is completed, and so is what follows.
	Counted  *Counted
	Replayed bool
}

// Counted is what a completed stocktake found and wrote.
type Counted struct {
	Quantity  Quantity // counted
	Movement  Movement // which corrects the figure
	Moved     Moved    // between opening and completion
	Movements int64    // how many of them
}

// OpenStocktakeRequest opens a count of an item.
type OpenStocktakeRequest struct {
	Keyed
	Item      Item
	Lease     time.Duration // how long it may take
	Reference string
}

// CompleteStocktakeRequest writes a count.
type CompleteStocktakeRequest struct {
	Client  string
	ID      DeductionID
	Item    Item
	Counted Quantity
}
