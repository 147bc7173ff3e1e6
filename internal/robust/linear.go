package robust

import (
	"cmp"
	"fmt"
	"math"
	"slices"
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
		return output == now, now
	},
	DescribeOperation: func(input, output any) string { return fmt.Sprintf("%s → %+v", input.(change).what, output) },
	DescribeState:     func(state any) string { return fmt.Sprintf("%+v", state) },
}

// maxAtOnce is up to how many operations under way at once on an item its reads are looked at too. Beyond, the search for the place
// of each read takes too long, and the writes are left, whose answers say what they come after.
const maxAtOnce = 8

// perItem sorts what happened by item.
func (c *checker) perItem() map[string][]porcupine.Operation {
	writes, reads := map[string][]porcupine.Operation{}, map[string][]porcupine.Operation{}
	claimed := map[[2]any]bool{}
	for i := range c.h.Ops {
		op := &c.h.Ops[i]
		said := map[string]Level{}
		for _, l := range op.Levels {
			said[l.SKU] = anonymous(l)
		}
		moves, _ := c.effectOf(op)
		byItem := map[string][]Movement{}
		for _, m := range moves {
			if at := [2]any{m.SKU, m.Version}; !claimed[at] {
				claimed[at] = true
				byItem[m.SKU] = append(byItem[m.SKU], m)
			}
		}
		for sku, moves := range byItem {
			write := operation(op, moves, anonymous(moves[len(moves)-1].Level))
			// Found done by an earlier sending, it is answered with the figures of later.
			if l, ok := said[sku]; ok && l.Version == moves[len(moves)-1].Version {
				write.Output = l
				delete(said, sku)
			}
			if op.Outcome != Done { // nobody knows when
				write.Return = math.MaxInt64
			}
			writes[sku] = append(writes[sku], write)
		}
		for sku, l := range said {
			reads[sku] = append(reads[sku], operation(op, nil, l))
		}
	}
	for sku, moves := range c.items {
		for _, m := range moves {
			if !claimed[[2]any{sku, m.Version}] { // by the service itself
				writes[sku] = append(writes[sku], porcupine.Operation{
					Call: int64(max(m.At, 0)), Return: math.MaxInt64, Input: change{m.Kind, []Movement{m}}, Output: anonymous(m.Level),
				})
			}
		}
	}
	for sku := range writes {
		if all := slices.Concat(writes[sku], reads[sku]); atOnce(all) <= maxAtOnce {
			writes[sku] = all
		}
	}
	return writes
}

func operation(op *Op, moves []Movement, output Level) porcupine.Operation {
	return porcupine.Operation{
		ClientId: op.Process, Call: int64(op.Call), Return: int64(op.Return), Input: change{describe(op), moves}, Output: output,
	}
}

// anonymous figures: the counter has no name.
func anonymous(l Level) Level {
	l.SKU = ""
	return l
}

// atOnce is how many operations were under way at once, at most, without those that never ended.
func atOnce(ops []porcupine.Operation) int {
	var edges [][2]int64
	for i := range ops {
		if ops[i].Return < math.MaxInt64 {
			edges = append(edges, [2]int64{ops[i].Call, 1}, [2]int64{ops[i].Return, -1})
		}
	}
	slices.SortFunc(edges, func(a, b [2]int64) int { return cmp.Compare(a[0], b[0]) })
	most, now := 0, 0
	for _, e := range edges {
		now += int(e[1])
		most = max(most, now)
	}
	return most
}
