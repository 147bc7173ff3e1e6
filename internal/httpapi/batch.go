package httpapi

import (
	"net/http"
	"strconv"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// CreateDeductions answers 200 whatever became of the deductions: each has a status of its own.
func (o operations) CreateDeductions(w http.ResponseWriter, _ *http.Request) {
	c := callOf(w)
	c.run(func() error {
		var entries []batchEntry
		if err := c.read(func(b *body) { entries = b.batch() }); err != nil {
			return err
		}
		results := o.deductAll(c, entries)
		b := append(c.out, `{"results":[`...)
		for i := range results {
			if i > 0 {
				b = append(b, ',')
			}
			b = c.appendResult(b, &entries[i], i, &results[i])
		}
		c.answer(http.StatusOK, contentJSON, append(b, "]}"...))
		return nil
	})
}

// deductAll asks for the entries that can be asked for.
func (o operations) deductAll(c *call, entries []batchEntry) []stock.DeductResult {
	results := make([]stock.DeductResult, len(entries))
	var asked []*stock.DeductRequest
	var places []int
	for i := range entries {
		e := &entries[i]
		e.Client = c.client.name
		if len(e.wrong) > 0 {
			continue
		}
		if results[i].Err = c.mayWant(e.Lines); results[i].Err == nil {
			asked, places = append(asked, &e.DeductRequest), append(places, i)
		}
	}
	if len(asked) == 0 {
		return results
	}
	for n, done := range o.stock.DeductAll(c.ctx, asked) {
		results[places[n]] = done
	}
	return results
}

// appendResult encodes what a deduction would have been answered with if it had been sent alone.
func (c *call) appendResult(b []byte, e *batchEntry, index int, done *stock.DeductResult) []byte {
	b = appendText(b, `{"idempotency_key":`, e.Key)
	if out := done.Outcome; out != nil {
		b = appendNumber(b, `,"status":`, http.StatusCreated)
		if out.Replayed {
			b = append(b, `,"replayed":true`...)
		}
		return append(appendOutcome(append(b, `,"deduction":`...), out), '}')
	}
	err, at := done.Err, place{within: "/deductions/" + strconv.Itoa(index) + "/deduction"}
	if len(e.wrong) > 0 { // these were found in the body, and say where
		err, at = &stock.FieldError{Fields: e.wrong}, place{}
	}
	p := c.api.problemOf(err)
	if p.status >= http.StatusInternalServerError && c.err == nil {
		c.err = err
	}
	b = appendNumber(b, `,"status":`, p.status)
	if p.seconds > 0 {
		b = appendNumber(b, `,"retry_after":`, p.seconds)
	}
	return append(appendProblem(append(b, `,"problem":`...), p, c.id, at, err), '}')
}
