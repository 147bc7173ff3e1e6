package gate_test

import (
	"encoding/binary"
	"strconv"
	"sync/atomic"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func benchmarkTake(b *testing.B, items int, onHand stock.Quantity, want gate.Verdict) {
	s := newShelf()
	skus := make([]string, items)
	for i := range skus {
		skus[i] = "SKU-" + strconv.Itoa(i)
		s.put(item(skus[i]), 1, onHand)
	}
	g := open(b, dial(b, sandbox.RedisAddr(b)), s, gate.Config{})
	var n atomic.Uint64
	b.SetParallelism(32) // of GOMAXPROCS
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		line := lines(1, "")
		var ticket gate.Ticket
		for pb.Next() {
			id := n.Add(1)
			binary.BigEndian.PutUint64(ticket[:], id)
			line[0].Item.SKU = stock.SKU(skus[id*7919%uint64(items)])
			a := g.Take(b.Context(), ticket, line)
			if a.Verdict != want {
				b.Errorf("%+v", a)
				return
			}
			if want == gate.Granted {
				g.Drop(ticket, line)
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "takes/s")
}

func BenchmarkTakeHot(b *testing.B)    { benchmarkTake(b, 1, 1<<50, gate.Granted) }
func BenchmarkTakeSpread(b *testing.B) { benchmarkTake(b, 10_000, 1<<50, gate.Granted) }
func BenchmarkRefuseHot(b *testing.B)  { benchmarkTake(b, 1, 0, gate.Short) }
