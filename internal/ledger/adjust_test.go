package ledger_test

import (
	"errors"
	"math"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func ptr[T any](v T) *T { return &v }

// TestAdjustmentsStayInRange: extreme figures are refused, with figures a caller can read, and change nothing.
func TestAdjustmentsStayInRange(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 10)
	held := order("o", "A")
	held.Hold = time.Hour
	deduct(t, l, held)
	before := levels(t, l, "A")
	set := func(q stock.Quantity) stock.AdjustRequest {
		return stock.AdjustRequest{SetTo: &q, ExpectedOnHand: ptr(stock.Quantity(10))}
	}
	delta := func(q stock.Quantity) stock.AdjustRequest { return stock.AdjustRequest{Delta: q} }
	for name, c := range map[string]struct {
		r    stock.AdjustRequest
		want error
	}{
		"below what is held":     {delta(-10), stock.ErrInsufficientStock},
		"below nothing":          {delta(-11), stock.ErrInsufficientStock},
		"lowest delta":           {delta(math.MinInt64), stock.ErrInsufficientStock},
		"one too many":           {delta(stock.MaxOnHand - 9), stock.ErrInvalidField},
		"highest delta":          {delta(math.MaxInt64), stock.ErrInvalidField},
		"set below what is held": {set(0), stock.ErrInsufficientStock},
		"set to the lowest":      {set(math.MinInt64), stock.ErrInsufficientStock},
		"set to one too many":    {set(stock.MaxOnHand + 1), stock.ErrInvalidField},
		"set to the highest":     {set(math.MaxInt64), stock.ErrInvalidField},
		"set without knowing":    {stock.AdjustRequest{SetTo: ptr(stock.Quantity(9))}, stock.ErrPreconditionRequired},
		"set on a wrong guess":   {stock.AdjustRequest{SetTo: ptr(stock.Quantity(9)), ExpectedOnHand: ptr(stock.Quantity(9))}, stock.ErrPreconditionFailed},
		"stale version":          {stock.AdjustRequest{Delta: 1, IfVersion: ptr(before.Version - 1)}, stock.ErrPreconditionFailed},
	} {
		c.r.Keyed, c.r.Item, c.r.Kind = keyed(name), at("A"), stock.Adjust
		_, err := l.Adjust(t.Context(), &c.r)
		if !errors.Is(err, c.want) {
			t.Errorf("%s: got %v, want %v", name, err, c.want)
		}
		var short *stock.ShortError
		if errors.As(err, &short) && (short.Lines[0].Requested <= short.Lines[0].Available || short.Lines[0].Available != 9) {
			t.Errorf("%s: %d of %d", name, short.Lines[0].Requested, short.Lines[0].Available)
		}
	}
	if diff := cmp.Diff(before, levels(t, l, "A")); diff != "" {
		t.Errorf("refused, but changed:\n%s", diff)
	}
	r := set(stock.MaxOnHand)
	r.Keyed, r.Item, r.Kind = keyed("full"), at("A"), stock.Count
	out, err := l.Adjust(t.Context(), &r)
	if err != nil || out.Levels.OnHand != stock.MaxOnHand || out.Movement.Version != before.Version+1 {
		t.Errorf("filled up: %+v, %v", out, err)
	}
	again, err := l.Adjust(t.Context(), &r)
	if err != nil || !again.Replayed {
		t.Fatalf("again: %v", err)
	}
	out.Replayed, out.Levels.Epoch, again.Levels.Epoch = true, 0, 0
	if diff := cmp.Diff(out, again); diff != "" {
		t.Errorf("the replay differs:\n%s", diff)
	}
	mustHold(t, url)
}

// TestReturnsFitOnTheShelf: two lines of one item fit each by itself, and not together.
func TestReturnsFitOnTheShelf(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	stockUp(t, l, "A", 4)
	d := deduct(t, l, order("o", "A", "A"))
	_, err := l.Adjust(t.Context(), &stock.AdjustRequest{
		Keyed: keyed("fill"), Item: at("A"), Kind: stock.Count, SetTo: ptr(stock.MaxOnHand - 1), ExpectedOnHand: ptr(stock.Quantity(2)),
	})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("both"), ID: d.ID}); !errors.Is(err, stock.ErrInvalidField) {
		t.Errorf("both: %v", err)
	}
	one := []stock.LineQuantity{{No: 2, Quantity: 1}}
	if _, err := l.Return(t.Context(), &stock.ReturnRequest{Keyed: keyed("one"), ID: d.ID, Lines: one}); err != nil {
		t.Errorf("one: %v", err)
	}
	mustHold(t, url)
}

// TestConfigureCreatesAndGuards: what MustBeNew and IfVersion promise, and that only a change takes a version.
func TestConfigureCreatesAndGuards(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	l := openAt(t, url)
	r := &stock.ConfigureRequest{Client: "shop", Item: at("A"), SafetyStock: 3, Label: "first", LowStockAt: ptr(stock.Quantity(5))}
	made, err := l.Configure(t.Context(), r)
	if err != nil || !made.Created || made.Stock.Version != 0 || made.Stock.SafetyStock != 3 {
		t.Fatalf("created: %+v, %v", made, err)
	}
	same, err := l.Configure(t.Context(), r)
	if err != nil || same.Created || same.Stock.Version != 0 {
		t.Errorf("the same again: %+v, %v", same, err)
	}
	r.Label = "second"
	changed, err := l.Configure(t.Context(), r)
	if err != nil || changed.Stock.Version != 1 || changed.Stock.Label != "second" {
		t.Errorf("changed: %+v, %v", changed, err)
	}
	for name, guard := range map[string]func(*stock.ConfigureRequest){
		"must be new":   func(r *stock.ConfigureRequest) { r.MustBeNew = true },
		"stale version": func(r *stock.ConfigureRequest) { r.IfVersion = ptr(int64(0)) },
	} {
		c := *r
		c.Label = name
		guard(&c)
		var failed *stock.PreconditionError
		if _, err := l.Configure(t.Context(), &c); !errors.As(err, &failed) || failed.Levels.Version != 1 {
			t.Errorf("%s: %v", name, err)
		}
	}
	missing := &stock.ConfigureRequest{Client: "shop", Item: at("B"), IfVersion: ptr(int64(0))}
	if _, err := l.Configure(t.Context(), missing); !errors.Is(err, stock.ErrNotFound) {
		t.Errorf("with a version, but not there: %v", err)
	}
	if _, err := l.Deduct(t.Context(), order("o", "B")); !errors.Is(err, stock.ErrUnknownItem) {
		t.Errorf("got %v", err)
	}
	mustHold(t, url)
}

// TestSafetyStockIsNotSold, from the moment it is answered, whatever other processes remember.
func TestSafetyStockIsNotSold(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	one, two := openAt(t, url), openAt(t, url)
	stockUp(t, one, "A", 3)
	deduct(t, two, order("two knows the item", "A"))
	if _, err := one.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: at("A"), SafetyStock: 2}); err != nil {
		t.Fatal(err)
	}
	for i, l := range []*ledger.Ledger{one, two} {
		var short *stock.ShortError
		if _, err := l.Deduct(t.Context(), order("o", "A")); !errors.As(err, &short) || short.Lines[0].Available != 0 {
			t.Errorf("process %d: %v", i, err)
		}
	}
}

func TestListsComeInPages(t *testing.T) {
	t.Parallel()
	l := open(t)
	skus := []string{"M", "M/1", "M/2", "N", "m", "ä", "😀"}
	for _, sku := range skus {
		stockUp(t, l, sku, 1)
	}
	var all []string
	var after *stock.Item
	for {
		page, err := l.List(t.Context(), stock.ListQuery{After: after, Limit: 2})
		if err != nil {
			t.Fatal(err)
		}
		if len(page) == 0 {
			break
		}
		for _, s := range page {
			all = append(all, string(s.SKU))
		}
		after = &page[len(page)-1].Item
	}
	if diff := cmp.Diff(skus, all); diff != "" {
		t.Errorf("in pages:\n%s", diff)
	}
	for prefix, want := range map[string]string{"M": "M M/1 M/2", "M/": "M/1 M/2", "m": "m", "ä": "ä", "\U0010ffff": "", "😀": "😀", "%": ""} {
		page, err := l.List(t.Context(), stock.ListQuery{Prefix: prefix, Limit: 10})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, s := range page {
			got = append(got, string(s.SKU))
		}
		if strings.Join(got, " ") != want {
			t.Errorf("prefix %q: got %q, want %q", prefix, got, want)
		}
	}
	for range 3 {
		if _, err := l.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed(time.Now().String()), Item: at("M"), Kind: stock.Receive, Delta: 1}); err != nil {
			t.Fatal(err)
		}
	}
	moves, err := l.Movements(t.Context(), stock.MovementQuery{Item: at("M"), AfterVersion: 1, Limit: 2})
	if err != nil || len(moves) != 2 || moves[0].Version != 2 || moves[1].OnHand != 3 || moves[1].Actor != "shop" {
		t.Errorf("got %+v, %v", moves, err)
	}
}

// TestCheckSeesWhatBreaksThePromise of durability.
func TestCheckSeesWhatBreaksThePromise(t *testing.T) {
	t.Parallel()
	sound := sandbox.Database(t)
	if broken, err := ledger.Check(t.Context(), sound); err != nil || len(broken) > 0 {
		t.Errorf("sound: %q, %v", broken, err)
	}
	broken, err := ledger.Check(t.Context(), sound+"&options=-c%20synchronous_commit%3Doff")
	if err != nil || len(broken) != 1 || !strings.Contains(broken[0], "synchronous_commit") {
		t.Errorf("synchronous_commit off: %q, %v", broken, err)
	}
	unsafe := sandbox.OwnPostgres(t, sandbox.PostgresConfig{Settings: map[string]string{"fsync": "off", "full_page_writes": "off"}})
	if broken, err := ledger.Check(t.Context(), unsafe.URL("postgres")); err != nil || len(broken) != 2 {
		t.Errorf("fsync and full_page_writes off: %q, %v", broken, err)
	}
}
