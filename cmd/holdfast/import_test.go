package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

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
	want(t, "first", out, "6 lines: 6 created, 0 changed, 0 as they should be, 0 failed\n")
	const header = "sku,location,on_hand,held,safety_stock,available,version,low_stock_at,label\n"
	want(t, "stock", service.exported(t), header+`..,default,1,0,0,1,1,,
01234,default,0,0,0,0,0,,
1234,default,7,0,0,7,1,,
MUG,default,10,0,2,8,1,5,"Mug, white"
a/b,york,3,0,0,3,1,,
🫖,default,2,0,0,2,1,,
`)
	out, _ = service.bring(t, stock, exitFine)
	want(t, "again", out, "6 lines: 0 created, 0 changed, 6 as they should be, 0 failed\n")

	// What a line does not name stays as it is; later lines of an item come after earlier ones.
	out, _ = service.bring(t, "sku,on_hand,low_stock_at\nMUG,4,\nMUG,9,6\nMUG,8,\n", exitFine)
	want(t, "partly", out, "3 lines: 0 created, 3 changed, 0 as they should be, 0 failed\n")
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
	_, errs := service.bring(t, deltas, exitNo)
	if n := strings.Count(errs, "needs --id"); n != 4 {
		t.Errorf("without a name: %s", errs)
	}
	for _, expect := range []string{
		"4 lines: 2 created, 2 changed, 0 as they should be, 0 failed\n",
		"4 lines: 0 created, 0 changed, 4 as they should be, 0 failed\n",
	} {
		out, _ := service.bring(t, deltas, exitFine, "--id=note 7712")
		want(t, "deltas", out, expect)
		if i := service.item(t, "MUG"); i.OnHand != 17 {
			t.Errorf("%d mugs, want 17", i.OnHand)
		}
	}
	// Another delivery is another name; a line that was changed under the old name is noticed.
	service.bring(t, deltas, exitFine, "--id=note 7713")
	if i := service.item(t, "MUG"); i.OnHand != 34 {
		t.Errorf("%d mugs, want 34", i.OnHand)
	}
	_, errs = service.bring(t, `{"sku":"MUG","delta":11}`, exitNo, "--id=note 7712")
	if !strings.Contains(errs, `line 1: "MUG": 422`) {
		t.Errorf("changed: %s", errs)
	}
}

func TestImportListsLinesThatFail(t *testing.T) {
	t.Parallel()
	service := newShop(t, "").open(t)
	out, errs := service.bring(t, `sku,on_hand,delta,safety_stock
MUG,1,,
,1,,
CUP,1,1,
CUP,x,,
CUP,1
CUP,-1,,
 CUP,1,,
CUP,1,,-1
PLATE,2,,
`, exitNo, "--id=x")
	want(t, "summary", out, "9 lines: 2 created, 0 changed, 0 as they should be, 7 failed\n")
	for _, text := range []string{
		"line 3: \"\": it has no sku\n", "line 4: \"CUP\": on_hand and delta exclude each other\n", "line 5: on_hand is \"x\": it must be a whole number\n",
		"line 6: wrong number of fields\n", "line 7: \"CUP\": on_hand must not be negative\n",
		"line 8: \" CUP\": 422 ", "line 9: \"CUP\": 422 ",
	} {
		if !strings.Contains(errs, text) {
			t.Errorf("the list lacks %q:\n%s", text, errs)
		}
	}
	_, errs = service.bring(t, `{"sku":"A","on_hand":1}
{"sku":"A","on_hand":1} x
{"sku":"A","On_Hand":1}
{"sku":"A","on_hand":1.5}
{"sku":"A","sku":"B"}
{"sku":"A","colour":"red"}
not JSON
`, exitNo)
	for n := 2; n <= 7; n++ {
		if !strings.Contains(errs, fmt.Sprintf("line %d: ", n)) {
			t.Errorf("line %d is not listed:\n%s", n, errs)
		}
	}
}

func TestImportRefusesFilesItCannotRead(t *testing.T) {
	t.Parallel()
	for text, says := range map[string]string{
		"":                         "empty",
		"sku,colour\nMUG,red\n":    `column "colour" is not known`,
		"on_hand\n1\n":             `no column "sku"`,
		strings.Repeat("x", 70000): "is not known",
		`{"sku":"` + strings.Repeat("x", 70000) + `"}`: "token too long",
	} {
		next, err := openLines(strings.NewReader(text))
		if err == nil {
			_, err = next()
		}
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%.20q: %v, want %q", text, err, says)
		}
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
