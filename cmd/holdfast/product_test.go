package main

import (
	"bytes"
	"os"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/defect"
)

// TestTheProductHasNoDefects: what is wrong on purpose is in no build without its tag, not even switched off.
func TestTheProductHasNoDefects(t *testing.T) {
	t.Parallel()
	product, err := os.ReadFile(builtCommand(t))
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Contains(product, []byte("HOLDFAST_DATABASE_URL")) {
		t.Fatal("the names of variables are not to be found in the command: this test cannot fail")
	}
	traces := []string{"HOLDFAST_DEFECT", "HOLDFAST_FAILPOINT", "internal/ledger.(*memory).stale", "internal/httpapi.(*client).named"}
	for _, name := range defect.All() {
		traces = append(traces, string(name))
	}
	for _, trace := range traces {
		if bytes.Contains(product, []byte(trace)) {
			t.Errorf("the command contains %q", trace)
		}
	}
}
