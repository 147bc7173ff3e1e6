package metric

import (
	"fmt"
	"math"
	"strconv"
	"strings"
	"time"
)

// Sink is what is left of all values of one metric. Which fields are filled depends on the metric's kind.
type Sink struct {
	Count    uint64 // values added
	NonZero  uint64 // of them not zero
	Sum      float64
	Min, Max float64
	Last     float64
	at       time.Duration // when Last was added
	hist     *Histogram
}

func (s *Sink) add(kind Kind, v float64, now func() time.Duration) {
	if s.Count == 0 || v < s.Min {
		s.Min = v
	}
	if s.Count == 0 || v > s.Max {
		s.Max = v
	}
	s.Count++
	s.Sum += v
	if v != 0 {
		s.NonZero++
	}
	switch kind {
	case Gauge:
		s.Last, s.at = v, now()
	case Trend:
		if s.hist == nil {
			s.hist = new(Histogram)
		}
		s.hist.Add(v)
	}
}

func (s *Sink) merge(other *Sink) {
	if other.Count == 0 {
		return
	}
	if s.Count == 0 || other.Min < s.Min {
		s.Min = other.Min
	}
	if s.Count == 0 || other.Max > s.Max {
		s.Max = other.Max
	}
	if s.Count == 0 || other.at >= s.at {
		s.Last, s.at = other.Last, other.at
	}
	s.Count += other.Count
	s.NonZero += other.NonZero
	s.Sum += other.Sum
	if other.hist != nil {
		if s.hist == nil {
			s.hist = new(Histogram)
		}
		s.hist.Merge(other.hist)
	}
}

// Average is the mean of all values, 0 when there are none.
func (s *Sink) Average() float64 {
	if s.Count == 0 {
		return 0
	}
	return s.Sum / float64(s.Count)
}

// Share is the part of values that are not zero, between 0 and 1; 0 when there are none.
func (s *Sink) Share() float64 {
	if s.Count == 0 {
		return 0
	}
	return float64(s.NonZero) / float64(s.Count)
}

// Percentile returns the p-th percentile (0…100) of a Trend, 0 when it has no values. Between two ranks it
// interpolates linearly. Its error is at most [RelativeError] of the larger of the two values it lies between; the
// first and the last value are exact.
func (s *Sink) Percentile(p float64) float64 {
	if s.Count == 0 || s.hist == nil {
		return 0
	}
	place := p / 100 * float64(s.Count-1)
	low := math.Floor(place)
	v := s.ranked(uint64(low))
	if part := place - low; part > 0 {
		v += part * (s.ranked(uint64(low)+1) - v)
	}
	return v
}

func (s *Sink) ranked(rank uint64) float64 {
	switch {
	case rank == 0:
		return s.Min
	case rank >= s.Count-1:
		return s.Max
	default:
		return min(max(s.hist.At(rank), s.Min), s.Max)
	}
}

// Stat returns a documented statistic of a Trend by its name: avg, min, med, max, count or p(N).
func (s *Sink) Stat(name string) (float64, error) {
	switch name {
	case "avg":
		return s.Average(), nil
	case "min":
		return s.Min, nil
	case "max":
		return s.Max, nil
	case "med":
		return s.Percentile(50), nil
	case "count":
		return float64(s.Count), nil
	}
	p, err := parsePercentile(name)
	if err != nil {
		return 0, err
	}
	return s.Percentile(p), nil
}

func parsePercentile(name string) (float64, error) {
	digits, ok := strings.CutPrefix(name, "p(")
	digits, closed := strings.CutSuffix(digits, ")")
	p, err := strconv.ParseFloat(digits, 64)
	if !ok || !closed || err != nil {
		return 0, fmt.Errorf("%q is none of avg, min, med, max, count, p(N)", name)
	}
	if !(p >= 0 && p <= 100) {
		return 0, fmt.Errorf("%q: a percentile is between 0 and 100", name)
	}
	return p, nil
}

// CheckStat refuses a statistic that [Sink.Stat] would not know.
func CheckStat(name string) error {
	_, err := new(Sink).Stat(name)
	return err
}
