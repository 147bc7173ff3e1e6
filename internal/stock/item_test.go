package stock_test

import (
	"slices"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

func TestNames(t *testing.T) {
	t.Parallel()
	for _, name := range []string{
		"A", "CLE-056621/6", "%2F", "a b", "..", "ä", "{x}", "{}", "😀", "BANK CHARGES", "M", "m", "01234", "1234", "+", "\"", `\`,
		"a:b", "a@b", "a\u200bb", "日本語", strings.Repeat("x", stock.MaxNameBytes), strings.Repeat("ä", stock.MaxNameBytes/2),
	} {
		if sku, err := stock.ParseSKU(name); err != nil || string(sku) != name {
			t.Errorf("%q: %q, %v", name, sku, err)
		}
		if location, err := stock.ParseLocation(name); err != nil || string(location) != name {
			t.Errorf("location %q: %q, %v", name, location, err)
		}
	}
	for name, why := range map[string]string{
		" a": "space", "a ": "space", " ": "space", "a\u00a0": "space", "\u2003a": "space", "ä ": "space",
		"a\tb": "control", "a\n": "control", "\x00": "control", "a\x7f": "control", "a\u0085b": "control", "ä\x01": "control",
		"\xff": "UTF-8", "a\xc3": "UTF-8", "\xed\xa0\x80": "UTF-8",
		strings.Repeat("x", stock.MaxNameBytes+1): "long", strings.Repeat("ä", stock.MaxNameBytes/2) + "x": "long",
	} {
		if _, err := stock.ParseSKU(name); err == nil || !strings.Contains(err.Error(), why) {
			t.Errorf("%q: got %v, want something about %q", name, err, why)
		}
		if _, err := stock.ParseLocation(name); err == nil {
			t.Errorf("location %q is legal", name)
		}
	}
	if _, err := stock.ParseSKU(""); err == nil {
		t.Error("an empty SKU is legal")
	}
	if location, err := stock.ParseLocation(""); err != nil || location != stock.DefaultLocation {
		t.Errorf("no location: %q, %v", location, err)
	}
	if err := stock.CheckText("", 10); err != nil {
		t.Errorf("an empty text: %v", err)
	}
}

func FuzzCheckName(f *testing.F) {
	for _, seed := range []string{"", "A", " a", "ä ", "a\u0085", "\xff", "😀", "a\x00", strings.Repeat("ä", 65)} {
		f.Add(seed)
	}
	f.Fuzz(func(t *testing.T, s string) {
		legal := s != "" && len(s) <= stock.MaxNameBytes && utf8.ValidString(s) && strings.TrimSpace(s) == s &&
			!strings.ContainsFunc(s, unicode.IsControl)
		if err := stock.CheckName(s); (err == nil) != legal {
			t.Errorf("%q: %v, by the rules legal: %v", s, err, legal)
		}
	})
}

// TestItemsAreOrderedByBytes, as Postgres orders them with the collation C: rows are locked in this order.
func TestItemsAreOrderedByBytes(t *testing.T) {
	t.Parallel()
	want := []stock.Item{
		{SKU: "01234", Location: "a"}, {SKU: "1234", Location: "a"}, {SKU: "M", Location: "a"}, {SKU: "M", Location: "b"},
		{SKU: "Mm", Location: "a"}, {SKU: "m", Location: "a"}, {SKU: "ä", Location: "a"}, {SKU: "😀", Location: "a"},
	}
	got := slices.Clone(want)
	slices.Reverse(got)
	slices.SortFunc(got, stock.Item.Compare)
	if !slices.Equal(got, want) {
		t.Errorf("got %v", got)
	}
	if want[0].Compare(want[0]) != 0 {
		t.Error("an item differs from itself")
	}
}

func TestAvailable(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ onHand, held, safety, want stock.Quantity }{
		{10, 3, 2, 5}, {0, 0, 0, 0}, {2, 1, 5, -4}, {stock.MaxOnHand, 0, 0, stock.MaxOnHand}, {0, 0, stock.MaxOnHand, -stock.MaxOnHand},
	} {
		l := stock.Levels{OnHand: c.onHand, Held: c.held, SafetyStock: c.safety}
		if got := l.Available(); got != c.want {
			t.Errorf("%+v: got %d", c, got)
		}
	}
}

func TestStatesThatAreLive(t *testing.T) {
	t.Parallel()
	for _, s := range stock.States() {
		if want := s == stock.Held || s == stock.Committed; s.Live() != want {
			t.Errorf("%s: live %v", s, s.Live())
		}
	}
}
