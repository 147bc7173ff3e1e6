package lab_test

import (
	"slices"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/lab"
)

// The comparison sees what a path gets wrong, and what the product gets right.
func TestLayersAreToldApart(t *testing.T) {
	t.Parallel()
	paths := slices.DeleteFunc(lab.Paths(), func(p *lab.Path) bool { return p.Name != "the full stack" && p.Name != "FOR UPDATE" })
	results, err := lab.Compare(t.Context(), lab.CompareConfig{
		Paths: paths, Troubles: []lab.Trouble{lab.NoTrouble, lab.Retrying}, Lasts: 500 * time.Millisecond,
	})
	if err != nil {
		t.Fatal(err)
	}
	comparison := &lab.Comparison{Results: results}
	for _, path := range paths {
		for _, trouble := range []lab.Trouble{lab.NoTrouble, lab.Retrying} {
			r := comparison.Of(path.Name, trouble)
			if r == nil || r.Orders == 0 {
				t.Fatalf("%s sold nothing while %s: %+v", path.Name, trouble, r)
			}
			// A row lock does not know that two requests are one order.
			if wrong := path.Name == "FOR UPDATE" && trouble == lab.Retrying; r.Right() == wrong {
				t.Errorf("%s while %s: sold twice %d, taken twice %d of %d", r.Path, r.Trouble, r.SoldTwice, r.TakenTwice, r.Orders)
			}
		}
	}
	if err := comparison.WriteDocs(t.TempDir()); err != nil {
		t.Error(err)
	}
}
