package ledger_test

import (
	"errors"
	"fmt"
	"testing"
	"time"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// TestManyRequestsTogether: each has its own outcome, in order, as if they came one after the other.
func TestManyRequestsTogether(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 3)
	stockUp(t, l, "B", 5)
	expired(t, l, url, "over", false) // holds one A until somebody looks
	again := order("over", "A")
	again.Key = "another key"
	other := order("1", "A", "A")
	all := []*stock.DeductRequest{
		order("1", "A"), order("2", "none"), order("1", "A"), other, order("3", "A", "A", "A"), order("4", "B", "A"), order("5", "A"), again, order("6", "B"),
	}
	want := []error{nil, stock.ErrUnknownItem, nil, stock.ErrKeyReused, stock.ErrInsufficientStock, nil, stock.ErrInsufficientStock, nil, nil}
	done := l.DeductAll(t.Context(), all)
	for i := range done {
		if !errors.Is(done[i].Err, want[i]) || (done[i].Outcome == nil) == (want[i] == nil) {
			t.Errorf("%d: %+v, want error %v", i, done[i], want[i])
			continue
		}
		if out := done[i].Outcome; out != nil && (out.Replayed != (i == 2) || out.Deduction.OrderID != all[i].OrderID) {
			t.Errorf("%d: %+v", i, out)
		}
	}
	if done[0].Outcome.Deduction.ID != done[2].Outcome.Deduction.ID {
		t.Error("one key made two deductions")
	}
	// The same once more: what was done is replayed, what was refused is decided anew.
	for i, retry := range l.DeductAll(t.Context(), all) {
		if !errors.Is(retry.Err, want[i]) || retry.Outcome != nil && !retry.Outcome.Replayed {
			t.Errorf("retry %d: %+v, want error %v", i, retry, want[i])
		}
	}
	if a, b := levels(t, l, "A"), levels(t, l, "B"); a.OnHand != 0 || b.OnHand != 3 {
		t.Errorf("got %s, %s", figures(a), figures(b))
	}
	mustHold(t, url)
}

// TestManyRequestsBeyondTheQueue: what does not fit in is refused alone.
func TestManyRequestsBeyondTheQueue(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := start(t, ledger.Config{URL: url, Writers: 1, Patience: time.Minute})
	stockUp(t, l, "A", ledger.MaxWaiting*2)
	all := make([]*stock.DeductRequest, ledger.MaxWaiting+100)
	for i := range all {
		all[i] = order(fmt.Sprint(i), "A")
	}
	done, refused := 0, 0
	for _, r := range l.DeductAll(t.Context(), all) {
		switch {
		case r.Err == nil:
			done++
		case errors.Is(r.Err, stock.ErrOverloaded):
			refused++
		default:
			t.Fatal(r.Err)
		}
	}
	if refused == 0 || done < ledger.MaxWaiting || done+refused != len(all) {
		t.Errorf("%d done, %d refused of %d", done, refused, len(all))
	}
	if got := levels(t, l, "A"); got.OnHand != stock.Quantity(ledger.MaxWaiting*2-done) {
		t.Errorf("%d were done: %s", done, figures(got))
	}
}

// TestARehearsalTellsWhatWouldHappen, and nothing happens.
func TestARehearsalTellsWhatWouldHappen(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 3)
	stockUp(t, l, "B", 1)
	made := deduct(t, l, order("made", "A"))
	if _, err := l.Void(t.Context(), keyed("given up")); err != nil {
		t.Fatal(err)
	}
	void := order("void", "A")
	void.Key = "given up"
	hold := order("hold", "A", "B")
	hold.Hold = time.Hour
	twice := order("made", "A")
	twice.Key = "another key"
	reused := order("made", "B")
	for name, c := range map[string]struct {
		r        *stock.DeductRequest
		err      error
		replayed bool
	}{
		"take": {order("a", "A", "A"), nil, false}, "hold": {hold, nil, false}, "short": {order("c", "A", "B", "B"), stock.ErrInsufficientStock, false},
		"unknown": {order("d", "none"), stock.ErrUnknownItem, false}, "void": {void, stock.ErrKeyVoided, false},
		"done": {order("made", "A"), nil, true}, "order": {twice, stock.ErrOrderAlreadyDeducted, false}, "reused": {reused, stock.ErrKeyReused, false},
	} {
		before := snapshot(t, url)
		dry, err := l.RehearseDeduct(t.Context(), c.r)
		if !errors.Is(err, c.err) || (dry == nil) == (c.err == nil) || dry != nil && dry.Replayed != c.replayed {
			t.Errorf("%s: rehearsed %+v, %v", name, dry, err)
		}
		if after := snapshot(t, url); after != before {
			t.Errorf("%s was only rehearsed, and changed\n%s\nto\n%s", name, before, after)
		}
		if dry != nil && c.replayed != (dry.Deduction.ID == made.ID) {
			t.Errorf("%s: %+v", name, dry.Deduction)
		}
	}
	dry, err := l.RehearseDeduct(t.Context(), hold)
	if err != nil {
		t.Fatal(err)
	}
	done, err := l.Deduct(t.Context(), hold)
	if err != nil || done.Replayed || dry.Deduction.State != done.Deduction.State || dry.Deduction.ID != uuid.Nil {
		t.Fatalf("rehearsed %+v, done %+v, %v", dry, done, err)
	}
	for i := range done.Levels {
		dry.Levels[i].Epoch = done.Levels[i].Epoch
		if dry.Levels[i] != done.Levels[i] || dry.Deduction.Lines[i] != done.Deduction.Lines[i] {
			t.Errorf("rehearsed %s, done %s", figures(dry.Levels[i]), figures(done.Levels[i]))
		}
	}
}

// TestAnAdjustmentIsRehearsed as a deduction is.
func TestAnAdjustmentIsRehearsed(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 3)
	zero, three := stock.Quantity(0), stock.Quantity(3)
	for _, c := range []struct {
		r   stock.AdjustRequest
		err error
	}{
		{stock.AdjustRequest{Keyed: keyed("1"), Item: at("A"), Kind: stock.Receive, Delta: 4}, nil},
		{stock.AdjustRequest{Keyed: keyed("1"), Item: at("A"), Kind: stock.Adjust, Delta: -4}, stock.ErrInsufficientStock},
		{stock.AdjustRequest{Keyed: keyed("1"), Item: at("A"), Kind: stock.Count, SetTo: &zero}, stock.ErrPreconditionRequired},
		{stock.AdjustRequest{Keyed: keyed("1"), Item: at("A"), Kind: stock.Count, SetTo: &zero, ExpectedOnHand: &zero}, stock.ErrPreconditionFailed},
		{stock.AdjustRequest{Keyed: keyed("1"), Item: at("A"), Kind: stock.Count, SetTo: &zero, ExpectedOnHand: &three}, nil},
		{stock.AdjustRequest{Keyed: keyed("stock A"), Item: at("A"), Kind: stock.Receive, Delta: 3}, nil},
	} {
		before := snapshot(t, url)
		dry, err := l.RehearseAdjust(t.Context(), &c.r)
		if !errors.Is(err, c.err) || (dry == nil) == (c.err == nil) {
			t.Errorf("%+v: %+v, %v", c.r, dry, err)
		}
		if after := snapshot(t, url); after != before {
			t.Errorf("%+v was only rehearsed, and changed\n%s\nto\n%s", c.r, before, after)
		}
	}
}

// snapshot is everything the ledger has.
func snapshot(t *testing.T, url string) (all string) {
	t.Helper()
	conn := connect(t, url)
	for _, table := range []string{"items", "movements", "operations", "deductions", "deduction_lines"} {
		var rows string
		err := conn.QueryRow(t.Context(), `SELECT COALESCE(string_agg(r::text, E'\n' ORDER BY r::text), '') FROM `+table+` AS r`).Scan(&rows)
		if err != nil {
			t.Fatal(err)
		}
		all += rows + "\n"
	}
	return all
}

// TestAPageOfOneStateGoesOn past any number of deductions in others.
func TestAPageOfOneStateGoesOn(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 10)
	// The oldest thousand and more are released; what is looked for comes after them.
	execute(t, url, `WITH d AS (
		INSERT INTO deductions (id, created_at, updated_at, expires_at, state, client, order_id, part)
		SELECT ('00000000-0000-7000-8000-' || lpad(n::text, 12, '0'))::uuid, now(), now(), now(), 'released', 'shop', 'o', n::text
		FROM generate_series(1, $1::integer) AS n RETURNING id)
		INSERT INTO deduction_lines (deduction_id, item_id, quantity, held, committed, line_no, line_id)
		SELECT d.id, i.id, 1, 0, 0, 1, '' FROM d, items i`, 2*stock.MaxPage+1)
	want := deduct(t, l, order("o", "A"))
	q := stock.DeductionQuery{Client: "shop", OrderID: "o", State: stock.Committed, Limit: 10}
	var found []stock.Deduction
	pages := 0
	for more := true; more; pages++ {
		page, err := l.Deductions(t.Context(), q)
		if err != nil {
			t.Fatal(err)
		}
		found = append(found, page.Deductions...)
		q.After, more = page.Next, page.Next != nil
	}
	if len(found) != 1 || found[0].ID != want.ID || pages != 3 {
		t.Errorf("found %+v on %d pages", found, pages)
	}
}

// TestCommittingTooMuchNamesTheLine: every place of the request that asks for it, and nothing is committed.
func TestCommittingTooMuchNamesTheLine(t *testing.T) {
	t.Parallel()
	l := open(t)
	stockUp(t, l, "A", 10)
	stockUp(t, l, "B", 10)
	r := order("o", "A", "B")
	r.Hold = time.Hour
	d := deduct(t, l, r)
	_, err := l.Commit(t.Context(), &stock.CommitRequest{Keyed: stock.Keyed{Client: "shop"}, ID: d.ID, Lines: []stock.LineQuantity{
		{No: 2, Quantity: 1}, {No: 1, Quantity: 1}, {No: 1, Quantity: 1},
	}})
	var wrong *stock.FieldError
	if !errors.As(err, &wrong) || len(wrong.Fields) != 2 || wrong.Fields[0].Pointer != "/lines/1/quantity" || wrong.Fields[1].Pointer != "/lines/2/quantity" {
		t.Errorf("got %v", err)
	}
	if a, b := levels(t, l, "A"), levels(t, l, "B"); a.Held != 1 || b.Held != 1 || a.OnHand != 10 {
		t.Errorf("got %s, %s", figures(a), figures(b))
	}
}
