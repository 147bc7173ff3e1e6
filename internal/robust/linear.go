package robust

import (
	"fmt"
	"math"
	"time"

	"github.com/anishathalye/porcupine"
)

// change is what an operation does to one item: movements one after the other, none for a read.
type change struct {
	what  string
	moves []Movement
}

// CheckLinear asks Porcupine whether each item's operations can be put into an order that respects time and in which one counter with
// a version would have given these answers. Operations whose outcome nobody was told are there if the ledger has them, and may
// have happened at any time after their call. An answer that is not found within patience fails too. The picture of the
// first item that fails is written to picture, if that is not empty.
func CheckLinear(h *History, patience time.Duration, picture string) []Violation {
	c := &checker{
		h: h, items: map[string][]Movement{}, keys: map[[2]string][]KeyRow{}, effects: map[string][]Movement{},
		ledger: map[string]Deduction{}, deduction: map[[2]string]string{},
	}
	c.index()
	var found []Violation
	for sku, ops := range c.perItem() {
		result, info := porcupine.CheckOperationsVerbose(counter, ops, patience)
		if result == porcupine.Ok {
			continue
		}
		found = append(found, Violation{"linearizable", fmt.Sprintf("%s with %d operations: %s", sku, len(ops), result)})
		if picture != "" {
			if err := porcupine.VisualizePath(counter, info, picture); err != nil {
				found = append(found, Violation{"picture", err.Error()})
			}
			picture = ""
		}
	}
	return found
}

// counter is the whole of what an item is.
var counter = porcupine.Model{
	Init: func() any { return Level{} },
	Step: func(state, input, output any) (bool, any) {
		now, in := state.(Level), input.(change)
		for _, m := range in.moves {
			now.OnHand += m.OnHandBy
			now.Held += m.HeldBy
			now.Version++
			if now.Held < 0 || now.OnHand < now.Held {
				return false, state
			}
		}
		said, ok := output.(Level)
		return !ok || said == now, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%s → %+v", input.(change).what, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// perItem sorts what happened by item. All levels are without the item's name, which is the same for all.
func (c *checker) perItem() map[string][]porcupine.Operation {
	all := map[string][]porcupine.Operation{}
	claimed := map[[2]any]bool{}
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		moves, _ := c.effectOf(op)
		byItem := map[string][]Movement{}
		for _, m := range moves {
			if at := [2]any{m.SKU, m.Version}; !claimed[at] {
				claimed[at] = true
				byItem[m.SKU] = append(byItem[m.SKU], m)
			}
		}
		back := int64(op.Return)
		if op.Outcome != Done { // refused in doubt, and done all the same: nobody knows when
			back = math.MaxInt64
		}
		for sku, moves := range byItem {
			after := moves[len(moves)-1].Level
			after.SKU = ""
			all[sku] = append(all[sku], porcupine.Operation{
				ClientId: op.Process, Call: int64(op.Call), Return: back, Input: change{describe(op), moves}, Output: after,
			})
		}
		for _, l := range op.Levels {
			sku := l.SKU
			l.SKU = ""
			all[sku] = append(all[sku], porcupine.Operation{
				ClientId: op.Process, Call: int64(op.Call), Return: int64(op.Return), Input: change{what: describe(op)}, Output: l,
			})
		}
	}
	for sku, moves := range c.items {
		for _, m := range moves {
			if !claimed[[2]any{sku, m.Version}] { // by the service itself
				all[sku] = append(all[sku], porcupine.Operation{
					Call: int64(max(m.At, 0)), Return: math.MaxInt64, Input: change{m.Kind, []Movement{m}}, Output: nil,
				})
			}
		}
	}
	return all
}
