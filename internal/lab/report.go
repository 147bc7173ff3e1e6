package lab

import (
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"slices"
	"time"
)

//go:embed report.html
var reportPage string

// Report is a page that tells what a lab run showed. It needs nothing from the network.
type Report struct {
	Results []*Result
	Runs    int
	At      time.Time
	Took    time.Duration
	Machine string // what it ran on, in words
}

// Write writes the page.
func (r *Report) Write(to io.Writer) error {
	page, err := template.New("report").Funcs(template.FuncMap{
		"picture": draw,
		"seconds": func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) },
	}).Parse(reportPage)
	if err != nil {
		return err
	}
	return page.Execute(to, r)
}

// Shown counts the experiments of which everything was seen.
func (r *Report) Shown() (n int) {
	for _, result := range r.Results {
		if result.Verdict == Shown {
			n++
		}
	}
	return n
}

// picture is a timeline as it is drawn: a lane for each actor, bars for what lasts, numbered dots for what happened.
type picture struct {
	Width, Height int
	Lanes         []lane
	Bars          []bar
	Dots          []dot
	Ticks         []tick
	Foot          int
}

type lane struct {
	Name string
	Y    int
}

type bar struct {
	X, Y, Width int
	Tone        Tone
	Text        string
}

type dot struct {
	X, Y, No int
	Moment
}

type tick struct {
	X    int
	Text string
}

// Measures of a picture, in its own units.
const (
	pictureWidth = 480
	laneLeft     = 64 // where time begins
	laneHeight   = 44
	barHeight    = 22
	dotApart     = 17 // dots of a lane that would overlap move apart
)

// draw lays a timeline out.
func draw(c CaseResult) picture {
	p := picture{Width: pictureWidth}
	total := max(c.Took, time.Millisecond)
	place := func(at time.Duration) int {
		return laneLeft + int(float64(pictureWidth-laneLeft-22)*at.Seconds()/total.Seconds())
	}
	lanes := map[string]int{}
	last := map[string]int{} // where the latest dot of a lane is
	moments := slices.SortedStableFunc(slices.Values(c.Timeline), func(a, b Moment) int { return int(a.At - b.At) })
	for _, m := range moments {
		y, ok := lanes[m.Actor]
		if !ok {
			y = 12 + laneHeight*len(lanes)
			lanes[m.Actor] = y
			p.Lanes = append(p.Lanes, lane{m.Actor, y + barHeight/2})
		}
		x := place(m.At)
		if m.Lasts > 0 {
			p.Bars = append(p.Bars, bar{X: x, Y: y, Width: max(3, place(m.At+m.Lasts)-x), Tone: m.Tone, Text: m.Text})
		}
		if before, ok := last[m.Actor]; ok {
			x = max(x, before+dotApart)
		}
		last[m.Actor] = x
		p.Dots = append(p.Dots, dot{X: x, Y: y + barHeight + 2, No: len(p.Dots) + 1, Moment: m})
	}
	p.Foot = 12 + laneHeight*len(lanes) + 6
	p.Height = p.Foot + 18
	for i := range 4 {
		at := total * time.Duration(i) / 3
		p.Ticks = append(p.Ticks, tick{place(at), fmt.Sprintf("%.2f s", at.Seconds())})
	}
	return p
}
