package lab

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"io"
	"os"
	"path/filepath"
	"slices"
	text "text/template"
	"time"
)

// The page, the timeline that it and the documentation show, and the documentation.
var (
	//go:embed report.html
	reportPage string
	//go:embed picture.svg
	picturePart string
	//go:embed docs.md
	docsPage string
)

// Report is a page that tells what a lab run showed. It needs nothing from the network.
type Report struct {
	Results []*Result
	Runs    int
	At      time.Time
	Took    time.Duration
	Machine string // what it ran on, in words
}

var reportFunctions = template.FuncMap{
	"picture": draw,
	"seconds": func(d time.Duration) string { return fmt.Sprintf("%.2f s", d.Seconds()) },
}

// Write writes the page.
func (r *Report) Write(to io.Writer) error {
	page, err := template.New("report").Funcs(reportFunctions).Parse(reportPage + picturePart)
	if err != nil {
		return err
	}
	return page.Execute(to, r)
}

// WriteDocs writes lab.md, with the picture of each case beside it in a directory of its own.
func (r *Report) WriteDocs(dir string) error {
	pictures := filepath.Join(dir, "lab")
	if err := os.MkdirAll(pictures, 0o755); err != nil {
		return err
	}
	picture, err := template.New("svg").Parse(picturePart)
	if err != nil {
		return err
	}
	for _, result := range r.Results {
		for i, c := range result.Cases() {
			drawn := draw(c)
			drawn.Style = pictureStyle
			var svg bytes.Buffer
			if err := picture.ExecuteTemplate(&svg, "picture", drawn); err != nil {
				return err
			}
			if err := os.WriteFile(filepath.Join(pictures, fmt.Sprintf("%s-%d.svg", result.Name, i+1)), svg.Bytes(), 0o644); err != nil {
				return err
			}
		}
	}
	page, err := text.New("docs").Funcs(text.FuncMap{"next": func(i int) int { return i + 1 }}).Parse(docsPage)
	if err != nil {
		return err
	}
	var md bytes.Buffer
	if err := page.Execute(&md, r); err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "lab.md"), md.Bytes(), 0o644)
}

// pictureStyle gives a picture that stands alone the colours that the page gives it.
const pictureStyle template.CSS = `text{font:12px system-ui,sans-serif;fill:#1c2430}.axis{stroke:#d9dee5}.tick{fill:#5b6675;font-size:11px}` +
	`.no{fill:#fff;font-size:10px;font-weight:700;text-anchor:middle}.holds{fill:#8fb8de}.paused{fill:#e3c26f}.gone{fill:#b9b9b9}` +
	`.wrong{fill:#c0392b}.refused{fill:#6c4fb3}.right{fill:#2e8b57}.plain{fill:#5b6675}svg{background:#fff}`

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
	Title         string
	Style         template.CSS // of a picture that stands alone
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
	p := picture{Title: c.Title, Width: pictureWidth}
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
