package stock_test

import (
	"errors"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

func item(sku string, location stock.Location) stock.Item {
	return stock.Item{SKU: stock.SKU(sku), Location: location}
}

func quantity(q stock.Quantity) *stock.Quantity { return &q }

type printed interface{ Fingerprint() stock.Fingerprint }

// TestFingerprintsTellInputsApart: each input differs from all others in one thing a caller chose.
func TestFingerprintsTellInputsApart(t *testing.T) {
	t.Parallel()
	line := func(sku string, location stock.Location, q stock.Quantity, id string) stock.WantedLine {
		return stock.WantedLine{Item: item(sku, location), Quantity: q, LineID: id}
	}
	one, two := uuid.MustParse("00000000-0000-0000-0000-000000000001"), uuid.MustParse("00000000-0000-0000-0000-000000000002")
	some := func(no int, id string, q stock.Quantity) []stock.LineQuantity {
		return []stock.LineQuantity{{No: no, LineID: id, Quantity: q}}
	}
	inputs := []printed{
		&stock.DeductRequest{},
		&stock.DeductRequest{OrderID: "o"},
		&stock.DeductRequest{Part: "o"},
		&stock.DeductRequest{OrderID: "o", Part: "p"},
		&stock.DeductRequest{OrderID: "op"},
		&stock.DeductRequest{OrderID: "o", Hold: time.Second},
		&stock.DeductRequest{OrderID: "o", Hold: time.Minute},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("A", "l", 1, "")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("A", "l", 2, "")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("A", "l", 1, "x")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("Al", "", 1, "")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("a", "l", 1, "")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("A", "m", 1, "")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("A", "l", 1, ""), line("A", "l", 1, "")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("A", "l", 1, ""), line("B", "l", 1, "")}},
		&stock.DeductRequest{OrderID: "o", Lines: []stock.WantedLine{line("B", "l", 1, ""), line("A", "l", 1, "")}},
		&stock.CommitRequest{ID: one},
		&stock.CommitRequest{ID: two},
		&stock.CommitRequest{ID: one, KeepRest: true},
		&stock.CommitRequest{ID: one, Lines: some(1, "", 1)},
		&stock.CommitRequest{ID: one, Lines: some(2, "", 1)},
		&stock.CommitRequest{ID: one, Lines: some(0, "1", 1)},
		&stock.CommitRequest{ID: one, Lines: some(1, "", 1), KeepRest: true},
		&stock.CommitRequest{ID: one, Lines: append(some(1, "", 1), some(1, "", 1)...)},
		&stock.ReturnRequest{ID: one},
		&stock.ReturnRequest{ID: two},
		&stock.ReturnRequest{ID: one, Reason: "r"},
		&stock.ReturnRequest{ID: one, Lines: some(1, "", 1)},
		&stock.ReturnRequest{ID: one, Lines: some(1, "", 2)},
		&stock.ReturnRequest{ID: one, Lines: some(0, "r", 1)},
		&stock.OrderRequest{OrderID: "o"},
		&stock.OrderRequest{OrderID: "or"},
		&stock.OrderRequest{OrderID: "o", Reason: "r"},
		&stock.AdjustRequest{Item: item("A", "l")},
		&stock.AdjustRequest{Item: item("Al", "")},
		&stock.AdjustRequest{Item: item("A", "l"), Kind: stock.Adjust},
		&stock.AdjustRequest{Item: item("A", "l"), Kind: stock.Count},
		&stock.AdjustRequest{Item: item("A", "l"), Delta: 1},
		&stock.AdjustRequest{Item: item("A", "l"), Delta: -1},
		&stock.AdjustRequest{Item: item("A", "l"), SetTo: quantity(0)},
		&stock.AdjustRequest{Item: item("A", "l"), SetTo: quantity(1)},
		&stock.AdjustRequest{Item: item("A", "l"), ExpectedOnHand: quantity(0)},
		&stock.AdjustRequest{Item: item("A", "l"), SetTo: quantity(0), ExpectedOnHand: quantity(0)},
		&stock.AdjustRequest{Item: item("A", "l"), Reason: "r"},
		&stock.AdjustRequest{Item: item("A", "l"), Reference: "r"},
	}
	seen := map[stock.Fingerprint]int{}
	for i, input := range inputs {
		print := input.Fingerprint()
		if other, ok := seen[print]; ok {
			t.Errorf("%T %d and %d have one fingerprint: %+v, %+v", input, other, i, inputs[other], input)
		}
		seen[print] = i
		if print != input.Fingerprint() {
			t.Errorf("%T %d changes its fingerprint", input, i)
		}
	}
}

// TestFingerprintsLeaveOutWhatIsNoInput: who asks under which key, and when to act.
func TestFingerprintsLeaveOutWhatIsNoInput(t *testing.T) {
	t.Parallel()
	key, version := stock.Keyed{Client: "c", Key: "k"}, int64(7)
	for name, pair := range map[string][2]printed{
		"deduct": {&stock.DeductRequest{}, &stock.DeductRequest{Keyed: key}},
		"commit": {&stock.CommitRequest{}, &stock.CommitRequest{Keyed: key}},
		"return": {&stock.ReturnRequest{}, &stock.ReturnRequest{Keyed: key}},
		"adjust": {&stock.AdjustRequest{}, &stock.AdjustRequest{Keyed: key, IfVersion: &version}},
	} {
		if pair[0].Fingerprint() != pair[1].Fingerprint() {
			t.Errorf("%s: the fingerprints differ", name)
		}
	}
}

// FuzzFingerprintBoundaries moves the boundary between two neighbouring texts: another input, another fingerprint.
func FuzzFingerprintBoundaries(f *testing.F) {
	f.Add("order", "part", 3)
	f.Add("", "p", 1)
	f.Add("\x01", "\x01\x00", 1)
	f.Fuzz(func(t *testing.T, order, part string, at int) {
		both := order + part
		at = max(0, min(at, len(both)))
		a := &stock.DeductRequest{OrderID: order, Part: part}
		b := &stock.DeductRequest{OrderID: both[:at], Part: both[at:]}
		if same := a.OrderID == b.OrderID; (a.Fingerprint() == b.Fingerprint()) != same {
			t.Errorf("%q %q and %q %q: same input %v", a.OrderID, a.Part, b.OrderID, b.Part, same)
		}
	})
}

func TestTypedErrorsUnwrap(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ err, sentinel error }{
		{&stock.ShortError{}, stock.ErrInsufficientStock},
		{&stock.UnknownItemError{}, stock.ErrUnknownItem},
		{&stock.OrderError{}, stock.ErrOrderAlreadyDeducted},
		{&stock.StateError{}, stock.ErrWrongState},
		{&stock.ExpiredError{}, stock.ErrHoldExpired},
		{&stock.ReturnError{}, stock.ErrReturnExceeds},
		{&stock.PreconditionError{Reason: stock.ErrPreconditionRequired}, stock.ErrPreconditionRequired},
		{&stock.FieldError{}, stock.ErrInvalidField},
		{stock.InvalidField("/a", "is wrong"), stock.ErrInvalidField},
	} {
		if !errors.Is(c.err, c.sentinel) || c.err.Error() == "" {
			t.Errorf("%T: %v", c.err, c.err)
		}
	}
}
