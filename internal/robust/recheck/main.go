// Command recheck checks a history that a run of the robustness tests has saved:
//
//	go run ./internal/robust/recheck history.json
//
// It prints what the history breaks, writes a picture of the first item that Porcupine finds no order for beside it, and exits with 1.
package main

import (
	"fmt"
	"os"
	"time"

	"github.com/holdfast-stock/holdfast/internal/robust"
)

// patience bounds the search for an order of one item's operations.
const patience = 2 * time.Minute

func main() {
	if len(os.Args) != 2 {
		fmt.Fprintln(os.Stderr, "usage: recheck history.json")
		os.Exit(2)
	}
	h, err := robust.Load(os.Args[1])
	if err != nil {
		fmt.Fprintln(os.Stderr, "recheck:", err)
		os.Exit(2)
	}
	fmt.Fprintf(os.Stdout, "seed %d, %d operations, %d movements\n", h.Seed, len(h.Ops), len(h.Ledger.Movements))
	for _, f := range h.Faults {
		fmt.Fprintf(os.Stdout, "  %v–%v %s\n", f.From.Round(time.Millisecond), f.To.Round(time.Millisecond), f.Name)
	}
	found := append(robust.CheckOrder(h), robust.CheckLinear(h, patience, os.Args[1]+".html")...)
	for _, v := range found {
		fmt.Fprintln(os.Stdout, v)
	}
	if len(found) > 0 {
		os.Exit(1)
	}
}
