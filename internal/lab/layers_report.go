package lab

import (
	"bytes"
	_ "embed"
	"fmt"
	"os"
	"path/filepath"
	text "text/template"
	"time"
)

var (
	//go:embed layers.md
	layersPage string
	//go:embed layers.svg
	layersChart string
)

// Comparison is what a comparison of paths measured.
type Comparison struct {
	Results []PathResult
	Lasts   time.Duration
	At      time.Time
	Machine string // what it ran on, in words
}

// Of returns what a path did under a trouble; nil if it was not run.
func (c *Comparison) Of(path string, trouble Trouble) *PathResult {
	for i := range c.Results {
		if r := &c.Results[i]; r.Path == path && r.Trouble == trouble {
			return r
		}
	}
	return nil
}

// WriteDocs writes layers.md and its chart.
func (c *Comparison) WriteDocs(dir string) error {
	functions := text.FuncMap{
		"paths": Paths, "troubles": Troubles,
		"of":    func(path, trouble string) *PathResult { return c.Of(path, Trouble(trouble)) },
		"ms":    func(d time.Duration) string { return fmt.Sprintf("%.1f", d.Seconds()*1000) },
		"whole": func(f float64) string { return fmt.Sprintf("%.0f", f) },
		"bar":   c.bar, "y": func(i int) int { return 20 + 44*i }, "plus": func(a, b int) int { return a + b },
		"height": func() int { return 30 + 44*len(Paths()) },
	}
	for _, page := range []struct{ name, source string }{{"layers.md", layersPage}, {"lab/layers.svg", layersChart}} {
		parsed, err := text.New(page.name).Funcs(functions).Parse(page.source)
		if err != nil {
			return err
		}
		var out bytes.Buffer
		if err := parsed.Execute(&out, c); err != nil {
			return err
		}
		file := filepath.Join(dir, page.name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			return err
		}
		if err := os.WriteFile(file, out.Bytes(), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// bar is how long the bar of a path is in the chart, of at most 300.
func (c *Comparison) bar(path, trouble string) int {
	var most float64
	for _, r := range c.Results {
		most = max(most, r.Rate)
	}
	if r := c.Of(path, Trouble(trouble)); r != nil && most > 0 {
		return max(1, int(300*r.Rate/most))
	}
	return 0
}
