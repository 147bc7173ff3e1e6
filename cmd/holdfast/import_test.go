package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
)

// bring imports a text and returns what the command prints.
func (i *instance) bring(t *testing.T, text string, want int, args ...string) (stdout, stderr string) {
	t.Helper()
	file := filepath.Join(t.TempDir(), "stock")
	if err := os.WriteFile(file, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	stdout, stderr, code := i.holdfast(t.Context(), append([]string{"import", file}, args...)...)
	if code != want {
		t.Fatalf("exit code %d, want %d: %s%s", code, want, stdout, stderr)
	}
	return stdout, stderr
}

// exported is what the command prints.
func (i *instance) exported(t *testing.T, args ...string) string {
	t.Helper()
	out, errs, code := i.holdfast(t.Context(), append([]string{"export"}, args...)...)
	if code != exitFine {
		t.Fatal(errs)
	}
	return out
}

func want(t *testing.T, what, got, want string) {
	t.Helper()
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("%s (-want +got):\n%s", what, diff)
	}
}

func TestImportMakesStockWhatTheFileSays(t *testing.T) {
	t.Parallel()
	service := newShop(t, "").open(t)
	const stock = `sku,location,on_hand,safety_stock,low_stock_at,label
MUG,,10,2,5,"Mug, white"
a/b,york,3,,,
01234,,0,,,
1234,,7,,,
..,,1,,,
🫖,,2,,,
`
	out, _ := service.bring(t, stock, exitFine)
	want(t, "first", out, "6 rows: 6 applied (6 created), 0 done before, 0 as they should be, 0 refused\n")
	const header = "sku,location,on_hand,held,safety_stock,available,version,low_stock_at,label\n"
	want(t, "stock", service.exported(t), header+`..,default,1,0,0,1,1,,
01234,default,0,0,0,0,1,,
1234,default,7,0,0,7,1,,
MUG,default,10,0,2,8,1,5,"Mug, white"
a/b,york,3,0,0,3,1,,
🫖,default,2,0,0,2,1,,
`)
	out, _ = service.bring(t, stock, exitFine)
	want(t, "again", out, "6 rows: 0 applied (0 created), 6 done before, 0 as they should be, 0 refused\n")

	// What a row does not name stays as it is; later rows of an item come after earlier ones.
	const counts = "sku,on_hand,low_stock_at\nMUG,4,\nMUG,9,6\nMUG,8,\n"
	out, errs := service.bring(t, counts, exitNo)
	want(t, "guarded", out, "3 rows: 0 applied (0 created), 0 done before, 0 as they should be, 3 refused\n")
	if n := strings.Count(errs, ": 412 "); n != 3 {
		t.Errorf("refused: %s", errs)
	}
	out, _ = service.bring(t, counts, exitFine, "--overwrite")
	want(t, "overwritten", out, "3 rows: 3 applied (0 created), 0 done before, 0 as they should be, 0 refused\n")
	if i := service.item(t, "MUG"); i.OnHand != 8 || i.SafetyStock != 2 || *i.LowStockAt != 6 || i.Label != "Mug, white" {
		t.Errorf("%+v", i)
	}
}

func TestImportOfDeltasMayBeRepeated(t *testing.T) {
	t.Parallel()
	service := newShop(t, "").open(t)
	const deltas = `{"sku":"MUG","delta":10}
{"sku":"MUG","delta":10}

{"sku":"MUG","delta":-3}
{"sku":"PLATE","location":"york","delta":5,"label":"Plate"}
`
	for _, expect := range []string{
		"4 rows: 4 applied (2 created), 0 done before, 0 as they should be, 0 refused\n",
		"4 rows: 0 applied (0 created), 4 done before, 0 as they should be, 0 refused\n",
	} {
		out, _ := service.bring(t, deltas, exitFine)
		want(t, "import", out, expect)
		if i := service.item(t, "MUG"); i.OnHand != 17 {
			t.Errorf("%d mugs, want 17", i.OnHand)
		}
	}
	// Another delivery of the same goods is another name; a row that was changed under an old name is noticed.
	service.bring(t, deltas, exitFine, "--id=note-7713")
	if i := service.item(t, "MUG"); i.OnHand != 34 {
		t.Errorf("%d mugs, want 34", i.OnHand)
	}
	_, errs := service.bring(t, `{"sku":"MUG","delta":11}`, exitNo, "--id=note-7713")
	if !strings.Contains(errs, "line 1: 422 The key belongs to a different request") {
		t.Errorf("changed: %s", errs)
	}
	out, errs := service.bring(t, `{"sku":"CUP","delta":11}`, exitNo, "--no-create", "--json")
	if errs != "" || !strings.Contains(out, `{"line":1,"result":"refused","problem":{"type":"urn:holdfast:problem:unknown-item"`) ||
		!strings.Contains(out, `{"summary":{"rows":1,`) {
		t.Errorf("as JSON: %s%s", out, errs)
	}
}

func TestImportRefusesFilesItCannotRead(t *testing.T) {
	t.Parallel()
	service := newShop(t, "").open(t)
	for text, says := range map[string]string{
		"":                         "empty",
		"sku,colour\nMUG,red\n":    `column "colour" is not`,
		"on_hand\n1\n":             `no column "sku"`,
		strings.Repeat("x", 70000): "is not one the contract knows",
		`{"sku":"` + strings.Repeat("x", 70000) + `"}`: "413 ",
	} {
		if _, errs := service.bring(t, text, exitNo); !strings.Contains(errs, says) {
			t.Errorf("%.20q: %s, want %q", text, errs, says)
		}
	}
}

// The service is killed in the middle of a file: the command sends it again by itself when it is back, and everything
// is there once.
func TestImportOutlivesTheService(t *testing.T) {
	t.Parallel()
	shop := newShop(t, "")
	service := shop.open(t)
	const rows = 30_000
	var stock strings.Builder
	stock.WriteString("sku,delta\n")
	for n := range rows {
		fmt.Fprintf(&stock, "item %d,1\n", n%1000)
	}
	file := filepath.Join(t.TempDir(), "stock.csv")
	if err := os.WriteFile(file, []byte(stock.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	type end struct {
		out, errs string
		code      int
	}
	ended := make(chan end, 1)
	go func() {
		out, errs, code := service.holdfast(t.Context(), "import", file, "--patience=1m")
		ended <- end{out, errs, code}
	}()
	for deadline := time.Now().Add(serviceLimit); ; time.Sleep(time.Millisecond) {
		if in, err := service.api().exists(t.Context(), stockPath("item 0", "", "default")); err == nil && in {
			break
		}
		if time.Now().After(deadline) {
			t.Fatal("no row comes in")
		}
	}
	service.kill()
	service.start(t)
	e := <-ended
	if e.code != exitFine {
		t.Fatalf("%s%s", e.out, e.errs)
	}
	t.Log(e.out)
	total := int64(0)
	err := service.api().items(t.Context(), "", func(i *item) error {
		total += i.OnHand
		return nil
	})
	if err != nil || total != rows {
		t.Errorf("%d units, want %d: %v", total, rows, err)
	}
}

// What is exported can be imported elsewhere, in both formats, over more than one page.
func TestExportCanBeImported(t *testing.T) {
	t.Parallel()
	from := newShop(t, "").open(t)
	var stock strings.Builder
	stock.WriteString("sku,location,on_hand,safety_stock,low_stock_at,label\n")
	for n := range 1100 {
		fmt.Fprintf(&stock, "item %04d,%s,%d,%d,%d,no. %d\n", n, []string{"york", "leeds"}[n%2], n+1, n%3, n%5, n)
	}
	from.bring(t, stock.String(), exitFine)
	for _, format := range []string{"csv", "ndjson"} {
		to := newShop(t, "").open(t)
		text := from.exported(t, "--format="+format)
		to.bring(t, text, exitFine)
		want(t, format, to.exported(t), from.exported(t))
	}
	if n := strings.Count(from.exported(t, "--location=york"), "\n"); n != 551 {
		t.Errorf("york has %d lines, want 550 and a header", n)
	}
}
