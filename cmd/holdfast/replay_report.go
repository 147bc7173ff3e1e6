package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"os"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"text/template"
	"time"
)

// replayReport is what a replay has to say.
type replayReport struct {
	Log struct {
		Lines         int       `json:"lines"`
		Invoices      int       `json:"invoices"`
		Codes         int       `json:"codes"`
		Sales         int       `json:"sales"`
		Cancellations int       `json:"cancellations"`
		Skipped       []skipped `json:"skipped,omitempty"`
	} `json:"log"`
	Orders struct {
		Accepted   int            `json:"accepted"`
		Replayed   int            `json:"replayed"` // of accepted, those done before
		Units      int64          `json:"units"`    // of accepted
		Refused    int            `json:"refused"`
		ShortLines int            `json:"short_lines"`
		Unknown    int            `json:"unknown"`
		Unsent     int            `json:"unsent"`
		Failed     map[string]int `json:"failed,omitempty"` // by problem
	} `json:"orders"`
	Returns struct {
		Returned int            `json:"returned"` // against the sale they come from
		Received int            `json:"received"` // of no sale that was accepted
		Replayed int            `json:"replayed"` // of both, those done before
		Units    int64          `json:"units"`    // of both
		Unknown  int            `json:"unknown"`
		Failed   map[string]int `json:"failed,omitempty"`
	} `json:"returns"`
	Requests struct {
		Sent    int64          `json:"sent"`
		Retries map[string]int `json:"retries,omitempty"` // by reason
	} `json:"requests"`
	Speed struct {
		Seconds    float64 `json:"seconds"`    // from the first order to the last answer
		Deductions float64 `json:"deductions"` // accepted, a second
		P50        float64 `json:"p50_ms"`     // of a sale's answer, retries included
		P99        float64 `json:"p99_ms"`
	} `json:"speed"`
	Checks []check `json:"checks"`
	Result string  `json:"result"`

	OK bool `json:"ok"`
}

// report on what was sent, without checks.
func (r *replay) report(took time.Duration) *replayReport {
	var rep replayReport
	l := &rep.Log
	l.Lines, l.Invoices, l.Codes = r.log.lines, r.log.invoices, len(r.log.codes)
	for _, s := range r.log.skipped {
		l.Skipped = append(l.Skipped, *s)
	}
	slices.SortFunc(l.Skipped, func(a, b skipped) int { return cmp.Compare(a.First, b.First) })
	rep.Orders.Failed, rep.Returns.Failed = make(map[string]int), make(map[string]int)
	var latencies []time.Duration
	for i := range r.results {
		o, out := &r.log.orders[i], &r.results[i]
		if o.cancels {
			l.Cancellations++
			rep.addReturns(o, out)
			continue
		}
		l.Sales++
		rep.addOrder(o, out)
		if out.verdict == accepted || out.verdict == refused {
			latencies = append(latencies, out.answered.Sub(out.sent))
		}
	}
	rep.Requests.Sent, rep.Requests.Retries = r.api.sent.Load(), r.api.retries
	rep.Speed.Seconds = took.Seconds()
	rep.Speed.Deductions = float64(rep.Orders.Accepted) / took.Seconds()
	slices.Sort(latencies)
	rep.Speed.P50, rep.Speed.P99 = percentile(latencies, 50), percentile(latencies, 99)
	return &rep
}

func (rep *replayReport) addOrder(o *order, out *result) {
	t := &rep.Orders
	switch out.verdict {
	case accepted:
		t.Accepted++
		if out.replayed {
			t.Replayed++
		}
		for _, l := range o.lines {
			t.Units += l.quantity
		}
	case refused:
		t.Refused++
		t.ShortLines += len(out.short)
	case failed:
		t.Failed[out.problem]++
	case unknown:
		t.Unknown++
	default:
		t.Unsent++
	}
}

func (rep *replayReport) addReturns(o *order, out *result) {
	t := &rep.Returns
	for i := range out.returns {
		switch r := &out.returns[i]; r.verdict {
		case accepted:
			if r.received {
				t.Received++
			} else {
				t.Returned++
			}
			if r.replayed {
				t.Replayed++
			}
			t.Units += o.back[i].quantity
		case unknown:
			t.Unknown++
		case unsent:
		default:
			t.Failed[r.problem]++
		}
	}
	if len(out.returns) == 0 {
		rep.Orders.Unsent++
	}
}

// percentile of sorted durations, in milliseconds.
func percentile(sorted []time.Duration, p int) float64 {
	if len(sorted) == 0 {
		return 0
	}
	return float64(sorted[(len(sorted)-1)*p/100].Microseconds()) / 1000
}

// conclude adds the checks, nil when there could be none, and the verdict.
func (rep *replayReport) conclude(checks []check) {
	rep.Checks, rep.OK = checks, false
	violations := 0
	for i := range checks {
		violations += checks[i].Violations
	}
	switch {
	case violations > 0:
		rep.Result = count(violations, "violation")
	case len(checks) == 0:
		rep.Result = "not checked: send the log again, which repeats nothing that was done"
	case len(rep.Orders.Failed)+len(rep.Returns.Failed) > 0:
		rep.Result = "the service kept its promises, but not everything could be sent"
	default:
		rep.Result, rep.OK = "everything agrees", true
	}
}

func (rep *replayReport) print(out io.Writer, asJSON bool) error {
	if asJSON {
		e := json.NewEncoder(out)
		e.SetIndent("", "  ")
		return e.Encode(rep)
	}
	return replayText.Execute(out, rep)
}

var replayText = template.Must(template.New("replay").Funcs(template.FuncMap{
	"n": thousands, "kinds": kinds,
}).Parse(`log       {{n .Log.Lines}} lines, {{n .Log.Invoices}} invoices, {{n .Log.Codes}} codes
{{- range .Log.Skipped}}
          {{n .Lines}} lines left out: {{.Reason}} (first: line {{.First}})
{{- end}}
sales     {{n .Log.Sales}}: {{n .Orders.Accepted}} accepted ({{n .Orders.Replayed}} of them before), {{n .Orders.Refused}} refused with {{n .Orders.ShortLines}} short lines
{{- with .Orders.Unknown}}, {{n .}} unknown{{end}}{{with .Orders.Unsent}}, {{n .}} invoices not sent{{end}}
          {{n .Orders.Units}} units taken
{{- with .Orders.Failed}}
          failed: {{kinds .}}{{end}}
returns   {{n .Log.Cancellations}} cancellations: {{n .Returns.Returned}} lines returned to their sale, {{n .Returns.Received}} received because no accepted sale has them ({{n .Returns.Replayed}} of both before)
{{- with .Returns.Unknown}}, {{n .}} unknown{{end}}
          {{n .Returns.Units}} units came back
{{- with .Returns.Failed}}
          failed: {{kinds .}}{{end}}
requests  {{n .Requests.Sent}}{{with .Requests.Retries}}, of them sent again: {{kinds .}}{{end}}
speed     {{printf "%.0f" .Speed.Deductions}} deductions/s for {{printf "%.1f" .Speed.Seconds}} s; a sale took {{printf "%.1f" .Speed.P50}} ms (p50), {{printf "%.1f" .Speed.P99}} ms (p99)
{{range .Checks}}
{{if .Violations}}VIOLATED  {{.Name}}: {{n .Violations}} times in {{.Checked}}{{range .Examples}}
            {{.}}{{end}}{{else}}ok        {{.Name}} ({{.Checked}}){{end}}
{{- end}}

{{.Result}}
`))

// count is a number of things: "1 code", "2,822 codes".
func count(n int, thing string) string {
	if n != 1 {
		thing += "s"
	}
	return thousands(n) + " " + thing
}

// thousands writes a whole number as 1,234,567.
func thousands(n any) string {
	digits := fmt.Sprint(n)
	for i := len(digits) - 3; i > 0 && digits[i-1] != '-'; i -= 3 {
		digits = digits[:i] + "," + digits[i:]
	}
	return digits
}

// kinds lists how often each kind occurred, the most frequent first.
func kinds(of map[string]int) string {
	names := slices.SortedFunc(maps.Keys(of), func(a, b string) int {
		return cmp.Or(of[b]-of[a], strings.Compare(a, b))
	})
	for i, name := range names {
		names[i] = strconv.Itoa(of[name]) + " " + name
	}
	return strings.Join(names, ", ")
}

// progress of long work, one line that is written over. A nil one shows nothing.
type progress struct {
	out   io.Writer
	what  string
	total int
	done  atomic.Int64
	stop  chan struct{}
	shown sync.WaitGroup
}

// newProgress shows progress on a terminal only.
func newProgress(out io.Writer) *progress {
	file, ok := out.(*os.File)
	if !ok {
		return nil
	}
	info, err := file.Stat()
	if err != nil || info.Mode()&os.ModeCharDevice == 0 {
		return nil
	}
	return &progress{out: out}
}

// begin shows progress until end. A total of 0 is not known.
func (p *progress) begin(what string, total int) {
	if p == nil {
		return
	}
	p.what, p.total, p.stop = what, total, make(chan struct{})
	p.done.Store(0)
	p.shown.Go(p.draw)
}

func (p *progress) step() {
	if p != nil {
		p.done.Add(1)
	}
}

func (p *progress) end() {
	if p == nil {
		return
	}
	close(p.stop)
	p.shown.Wait()
}

func (p *progress) draw() {
	const clearLine = "\r\x1b[K"
	tick := time.NewTicker(100 * time.Millisecond)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
			text := thousands(p.done.Load()) + " " + p.what
			if p.total > 0 {
				text = thousands(p.done.Load()) + " of " + thousands(p.total) + " " + p.what
			}
			fmt.Fprint(p.out, clearLine+text)
		case <-p.stop:
			fmt.Fprint(p.out, clearLine)
			return
		}
	}
}
