package gate_test

import (
	"encoding/binary"
	"fmt"
	"strconv"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func benchmarkTake(b *testing.B, items int, onHand stock.Quantity, want gate.Verdict, settle bool) {
	s := newShelf()
	skus := make([]string, items)
	for i := range skus {
		skus[i] = "SKU-" + strconv.Itoa(i)
		s.put(skus[i], 1, onHand)
	}
	client := shared(b)
	client.ConfigResetStat(b.Context())
	g := open(b, client, s, gate.Config{Ample: -1})
	var n atomic.Uint64
	own, server := cpu(b, client)
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
			if settle {
				g.Settle([]stock.Levels{{Item: line[0].Item, OnHand: onHand, Version: int64(id), Epoch: 1}})
			}
			if want == gate.Granted {
				g.Drop(gate.Wish{Ticket: ticket, Lines: line})
			}
		}
	})
	b.ReportMetric(float64(b.N)/b.Elapsed().Seconds(), "takes/s")
	ownEnd, serverEnd := cpu(b, client)
	b.ReportMetric(float64((ownEnd-own).Microseconds())/float64(b.N), "client-us/take")
	b.ReportMetric(float64((serverEnd-server).Microseconds())/float64(b.N), "redis-us/take")
	reportRedis(b, client)
}

func BenchmarkTakeHot(b *testing.B)      { benchmarkTake(b, 1, 1<<50, gate.Granted, false) }
func BenchmarkSettleHot(b *testing.B)    { benchmarkTake(b, 1, 1<<50, gate.Granted, true) }
func BenchmarkTakeSpread(b *testing.B)   { benchmarkTake(b, 10_000, 1<<50, gate.Granted, false) }
func BenchmarkSettleSpread(b *testing.B) { benchmarkTake(b, 10_000, 1<<50, gate.Granted, true) }
func BenchmarkRefuseHot(b *testing.B)    { benchmarkTake(b, 1, 0, gate.Short, false) }

// reportRedis adds what the server says about its own work, in microseconds of its time for each request.
func reportRedis(b *testing.B, client redis.UniversalClient) {
	info, err := client.Info(b.Context(), "commandstats").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		var name string
		var calls, usec int
		if n, _ := fmt.Sscanf(strings.NewReplacer(":", " ", ",", " ").Replace(line), "cmdstat_%s calls=%d usec=%d", &name, &calls, &usec); n != 3 {
			continue
		}
		switch name {
		case "evalsha":
			b.ReportMetric(float64(b.N)/float64(calls), "takes/call")
			fallthrough
		case "hmget", "hset", "hdel":
			b.ReportMetric(float64(usec)/float64(b.N), name+"-us/take")
		}
	}
}

// cpu is the processor time that this process and the server have used.
func cpu(b *testing.B, client redis.UniversalClient) (own, server time.Duration) {
	var usage syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &usage); err != nil {
		b.Fatal(err)
	}
	own = time.Duration(usage.Utime.Nano() + usage.Stime.Nano())
	info, err := client.Info(b.Context(), "cpu").Result()
	if err != nil {
		b.Fatal(err)
	}
	for line := range strings.Lines(info) {
		name, value, _ := strings.Cut(strings.TrimSpace(line), ":")
		if name == "used_cpu_user" || name == "used_cpu_sys" {
			seconds, err := strconv.ParseFloat(value, 64)
			if err != nil {
				b.Fatal(err)
			}
			server += time.Duration(seconds * float64(time.Second))
		}
	}
	return own, server
}
