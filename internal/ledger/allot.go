package ledger

import "github.com/holdfast-stock/holdfast/internal/stock"

// want is what one line asks for.
type want struct {
	quantity stock.Quantity
	from     []*itemRow // where it may be taken from, in order of preference; at least one
	split    bool       // from several of them
}

// portion is what one line takes from one item, and what is missing then.
type portion struct {
	line              int // index of its want
	row               *itemRow
	quantity, missing stock.Quantity
}

// allot what there is to lines, first come, first served: two lines that want one item share it. Every line has a portion
// at least. It is to be followed by [settled].
func allot(wants []want) []portion {
	portions := make([]portion, 0, len(wants))
	for i := range wants {
		portions = wants[i].serve(portions, i)
	}
	return portions
}

// settled ends what [allot] began, and sums up: how much is missing, and whether anything is there.
func settled(portions []portion) (missing stock.Quantity, anything bool) {
	for i := range portions {
		portions[i].row.wanted = 0
		missing += portions[i].missing
		anything = anything || portions[i].quantity > 0
	}
	return missing, anything
}

// serve one line.
func (w *want) serve(portions []portion, line int) []portion {
	left, first := w.quantity, len(portions)
	for _, row := range w.sources() {
		if taken := min(left, max(row.free(), 0)); taken != 0 {
			row.wanted += taken
			left -= taken
			portions = append(portions, portion{line: line, row: row, quantity: taken})
		}
	}
	if len(portions) == first {
		portions = append(portions, portion{line: line, row: w.from[0]})
	}
	portions[len(portions)-1].missing = left
	return portions
}

// sources are the first item that has it all; else every one, or if it may not be split the one that has most.
func (w *want) sources() []*itemRow {
	most := 0
	for i, row := range w.from {
		free := row.free()
		if free >= w.quantity {
			return w.from[i : i+1]
		}
		if free > w.from[most].free() {
			most = i
		}
	}
	if w.split {
		return w.from
	}
	return w.from[most : most+1]
}

// free is what lines before have left of the item.
func (r *itemRow) free() stock.Quantity { return r.levels.Available() - r.wanted }

// shortage says what the lines that cannot be served lack: a line that may come from several locations, of each of them.
// What is requested of an item is the sum of all lines.
func shortage(wants []want, portions []portion) error {
	for i := range wants {
		if w := &wants[i]; len(w.from) == 1 {
			w.from[0].wanted += w.quantity
		}
	}
	lacks := make([]bool, len(wants))
	for i := range portions {
		p := &portions[i]
		lacks[p.line] = lacks[p.line] || p.missing > 0
		if len(wants[p.line].from) > 1 {
			p.row.wanted += p.quantity
		}
	}
	short := new(stock.ShortError)
	for i := range wants {
		short.Lines = append(short.Lines, wants[i].lacking(i, lacks[i])...)
	}
	for i := range wants {
		for _, row := range wants[i].from {
			row.wanted = 0
		}
	}
	return short
}

// lacking is what one line adds to a shortage.
func (w *want) lacking(line int, lacks bool) []stock.ShortLine {
	if len(w.from) == 1 {
		lacks = w.from[0].free() < 0 // as do the other lines that want this item
	}
	if !lacks {
		return nil
	}
	short := make([]stock.ShortLine, 0, len(w.from))
	for _, row := range w.from {
		requested := row.wanted
		if len(w.from) > 1 {
			requested = w.quantity
		}
		short = append(short, stock.ShortLine{
			Line: line, Item: row.levels.Item, Requested: requested, Available: row.levels.Available(), Version: row.levels.Version,
		})
	}
	return short
}
