package metric

import (
	"math"
	"slices"
)

// RelativeError bounds how far a percentile may be from the exact one: every bucket is 1/256 of its power of two wide and
// answers with its middle. Count, sum, minimum and maximum are exact.
const RelativeError = 1.0 / 512

const (
	subBits = 8
	subs    = 1 << subBits
	expBits = 52 // where the exponent begins in the bits of a float64
	maxExp  = 2046
)

type page [subs]uint64

// Histogram counts finite float64 values in buckets of bounded relative width (the idea of HdrHistogram, Tene 2012). The
// bucket of a value is the exponent and the first 8 bits of the mantissa of its binary form, so finding it needs no
// logarithm, and no range has to be known beforehand. A power of two that occurs costs 2 KiB; all of them together,
// both signs, 8 MiB. Values nearer to zero than 2^-1022 count as zero. The zero value is empty and ready.
//
// It is not safe for concurrent use.
type Histogram struct {
	zero     uint64
	pos, neg scale
}

// scale holds the pages of one sign; pages[i] is the power of two with biased exponent base+i, nil when none occurred.
type scale struct {
	base  int
	pages []*page
}

// Add counts one value. It must be finite.
func (h *Histogram) Add(v float64) {
	bits := math.Float64bits(v)
	exp := int(bits>>expBits) & 0x7ff
	if exp == 0 {
		h.zero++
		return
	}
	side := &h.pos
	if v < 0 {
		side = &h.neg
	}
	side.page(exp)[(bits>>(expBits-subBits))&(subs-1)]++
}

func (s *scale) page(exp int) *page {
	if i := exp - s.base; i >= 0 && i < len(s.pages) && s.pages[i] != nil {
		return s.pages[i]
	}
	if len(s.pages) == 0 {
		s.base = exp
	}
	if exp < s.base {
		s.pages = slices.Insert(s.pages, 0, make([]*page, s.base-exp)...)
		s.base = exp
	}
	if missing := exp - s.base + 1 - len(s.pages); missing > 0 {
		s.pages = append(s.pages, make([]*page, missing)...)
	}
	s.pages[exp-s.base] = new(page)
	return s.pages[exp-s.base]
}

// Merge adds all values of other to h.
func (h *Histogram) Merge(other *Histogram) {
	h.zero += other.zero
	h.pos.merge(&other.pos)
	h.neg.merge(&other.neg)
}

func (s *scale) merge(other *scale) {
	for i, from := range other.pages {
		if from == nil {
			continue
		}
		to := s.page(other.base + i)
		for j, n := range from {
			to[j] += n
		}
	}
}

// At returns the value of the given rank, counted from 0 in ascending order, within RelativeError. A rank beyond the
// last value answers with the last.
func (h *Histogram) At(rank uint64) float64 {
	v, seen := 0.0, uint64(0)
	for i, p := range slices.Backward(h.neg.pages) {
		for j := subs - 1; j >= 0 && p != nil; j-- {
			if n := p[j]; n > 0 {
				v = -middle(h.neg.base+i, j)
				if seen += n; rank < seen {
					return v
				}
			}
		}
	}
	if h.zero > 0 {
		v = 0
		if seen += h.zero; rank < seen {
			return v
		}
	}
	for i, p := range h.pos.pages {
		for j := 0; j < subs && p != nil; j++ {
			if p[j] > 0 {
				v = middle(h.pos.base+i, j)
				if seen += p[j]; rank < seen {
					return v
				}
			}
		}
	}
	return v
}

// middle is the middle of bucket sub of the power of two with the given biased exponent.
func middle(exp, sub int) float64 {
	return math.Float64frombits(uint64(exp)<<expBits | uint64(sub)<<(expBits-subBits) | 1<<(expBits-subBits-1))
}
