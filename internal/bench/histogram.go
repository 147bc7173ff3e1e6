package bench

import (
	"math/bits"
	"sync/atomic"
	"time"
)

const (
	// subBits: each power of two is cut into 2^subBits buckets, so a value is off by less than 1/128 of itself.
	subBits = 7
	// maxBits: longer than 2^37 ns, 137 s, counts as that. No answer takes so long: its connection has a deadline.
	maxBits = 37
	buckets = (maxBits - subBits + 1) << subBits
)

// Histogram counts durations in log-linear buckets, as HdrHistogram does: any duration up to two minutes, in fixed
// memory, with a bounded relative error. Its methods may be called at the same time.
type Histogram struct {
	counts [buckets]atomic.Int64
	max    atomic.Int64
}

// Record counts one duration; a negative one as 0.
func (h *Histogram) Record(d time.Duration) {
	ns := max(int64(d), 0)
	h.counts[bucketOf(ns)].Add(1)
	for seen := h.max.Load(); ns > seen && !h.max.CompareAndSwap(seen, ns); seen = h.max.Load() {
	}
}

// bucketOf is the bucket of a duration in nanoseconds. Below 2^subBits each has its own; above, the leading
// subBits+1 bits tell.
func bucketOf(ns int64) int {
	ns = min(ns, 1<<maxBits-1)
	shift := max(bits.Len64(uint64(ns))-subBits-1, 0)
	return shift<<subBits + int(ns>>shift)
}

// highest is the longest duration of a bucket, in nanoseconds.
func highest(bucket int) int64 {
	shift := max(bucket>>subBits-1, 0)
	return (int64(bucket-shift<<subBits)+1)<<shift - 1
}

// Count of all durations.
func (h *Histogram) Count() int64 {
	total := int64(0)
	for i := range h.counts {
		total += h.counts[i].Load()
	}
	return total
}

// Percentile is the duration that p percent of all do not exceed; at most 1/128 too long, never too short. 0 if there are
// none.
func (h *Histogram) Percentile(p float64) time.Duration {
	total := h.Count()
	rank := max(int64(float64(total)*p/100+0.999999), 1)
	for i := range h.counts {
		if rank -= h.counts[i].Load(); rank <= 0 {
			return min(time.Duration(highest(i)), h.Max())
		}
	}
	return h.Max()
}

// Max is the longest duration, exactly.
func (h *Histogram) Max() time.Duration { return time.Duration(h.max.Load()) }
