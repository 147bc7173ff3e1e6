package stock

import "time"

// Holder is an open hold on an item.
type Holder struct {
	Deduction DeductionID
	Client    string
	OrderID   string
	Part      string
	Line      int
	Held      Quantity
	ExpiresAt time.Time
}

// CustomerShare is what a customer has of an item: held or committed, and not returned.
type CustomerShare struct {
	Customer
	Units Quantity
}

// Explanation is what an item's figures come from, as of one moment.
type Explanation struct {
	Levels    Levels
	ReadAt    time.Time       // by the ledger's clock
	Holds     int64           // open ones
	Held      Quantity        // by them
	Overdue   Quantity        // of Held, by holds whose time is over
	Holders   []Holder        // the ones that end first
	Customers int64           // who have some of it
	Counted   Quantity        // what they have
	Most      []CustomerShare // of those who have most
	Movements []Movement      // the last ones, the newest first
}
