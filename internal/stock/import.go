package stock

// ImportRow says what is to be of one item: whether it is there, its settings, and one movement. Each may be left out.
type ImportRow struct {
	Item        Item
	Create      bool      // create the item if it does not exist
	SafetyStock *Quantity // nil: as it is
	LowStockAt  *Quantity // nil: as it is
	Label       *string   // nil: as it is
	// Adjust moves units; its Item is the row's. Nil: nothing moves.
	Adjust *AdjustRequest
}

// Imported is what came of an [ImportRow].
type Imported struct {
	Created    bool // the item did not exist
	Configured bool // its settings were others
	Moved      bool // its figures changed now, and not under the same key before
	Replayed   bool // its key had had its effect before
	Levels     Levels
	Err        error
}
