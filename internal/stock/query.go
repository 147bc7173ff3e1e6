package stock

// MaxPage bounds the entries of one page of a list.
const MaxPage = 1000

// ListQuery asks for one page of items in item order.
type ListQuery struct {
	Prefix   string    // of the SKU; empty: all
	Location *Location // nil: all
	Low      bool      // only items at or below their low stock mark
	After    *Item     // the last item of the page before; nil: from the start
	Limit    int       // 1 … MaxPage
}

// DeductionQuery asks for one page of a client's deductions of one order, oldest first.
type DeductionQuery struct {
	Client  string
	OrderID string       // or
	Number  int64        // 0: by OrderID
	State   State        // empty: all
	After   *DeductionID // the last id of the page before; nil: from the start
	Limit   int          // 1 … MaxPage
}

// DeductionPage is one page of deductions.
type DeductionPage struct {
	Deductions []Deduction
	Next       *DeductionID // the After of the next page; nil: there is none
}

// MovementQuery asks for one page of an item's history by version.
type MovementQuery struct {
	Item         Item
	AfterVersion int64
	Limit        int // 1 … MaxPage
}
