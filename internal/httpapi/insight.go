package httpapi

import (
	"net/http"
	"strconv"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func (o operations) ExplainItem(w http.ResponseWriter, _ *http.Request, sku openapi.Sku, p openapi.ExplainItemParams) {
	c := callOf(w)
	c.run(func() error {
		item, err := c.item(sku, p.Location)
		if err != nil {
			return err
		}
		e, err := o.stock.Explain(c.ctx, item)
		if err != nil {
			return err
		}
		c.etag(e.Levels.Version)
		c.answer(http.StatusOK, contentJSON, appendExplanation(c.out, e))
		return nil
	})
}

func (o operations) GetInvariants(w http.ResponseWriter, _ *http.Request) {
	c := callOf(w)
	c.run(func() error {
		told, err := o.stock.Invariants(c.ctx)
		if err != nil {
			return err
		}
		c.answer(http.StatusOK, contentJSON, appendInvariants(c.out, &told))
		return nil
	})
}

func appendExplanation(b []byte, e *inventory.Explanation) []byte {
	b = append(b, `{"summary":`...)
	b = appendTexts(b, e.Sentences)
	b = appendLevels(append(b, `,"item":`...), &e.Levels)
	b = appendTime(b, `,"read_at":`, e.ReadAt)
	b = appendNumber(b, `,"holds":{"count":`, e.Holds)
	b = appendNumber(b, `,"held":`, e.Held)
	b = appendNumber(b, `,"overdue":`, e.Overdue)
	b = appendList(append(b, `,"first":`...), e.Holders, appendHolder)
	b = appendNumber(b, `},"customers":{"count":`, e.Customers)
	b = appendNumber(b, `,"units":`, e.Counted)
	b = appendList(append(b, `,"most":`...), e.Most, appendShare)
	b = append(b, `},"gate":`...)
	b = appendGate(b, e)
	b = appendList(append(b, `,"movements":`...), e.Movements, appendMovement)
	return append(b, '}')
}

func appendTexts(b []byte, texts []string) []byte {
	return appendList(b, texts, func(b []byte, text *string) []byte { return appendText(b, "", *text) })
}

func appendHolder(b []byte, h *stock.Holder) []byte {
	b = appendText(b, `{"deduction_id":`, h.Deduction.String())
	b = appendText(b, `,"client":`, h.Client)
	b = appendText(b, `,"order_id":`, h.OrderID)
	b = appendText(b, `,"part":`, h.Part)
	b = appendNumber(b, `,"line":`, h.Line)
	b = appendNumber(b, `,"held":`, h.Held)
	b = appendTime(b, `,"expires_at":`, h.ExpiresAt)
	return append(b, '}')
}

func appendShare(b []byte, s *stock.CustomerShare) []byte {
	b = appendText(b, `{"client":`, s.Client)
	b = appendText(b, `,"customer":`, s.Name)
	b = appendNumber(b, `,"units":`, s.Units)
	return append(b, '}')
}

func appendGate(b []byte, e *inventory.Explanation) []byte {
	b = appendText(b, `{"state":`, string(e.Gate))
	if e.Gate == inventory.GateKnown {
		f := &e.Figures
		b = appendNumber(b, `,"available":`, f.Available)
		b = appendNumber(b, `,"version":`, f.Version)
		b = appendNumber(b, `,"behind":`, e.Levels.Version-f.Version)
		b = appendTime(b, `,"confirmed_at":`, f.ConfirmedAt)
		b = appendTime(b, `,"read_at":`, f.Now)
		b = appendNumber(b, `,"tickets":`, len(f.Tickets))
		b = appendNumber(b, `,"tickets_counting":`, e.Counting)
		b = appendNumber(b, `,"tickets_hold":`, f.Outstanding)
	}
	if e.Drift != "" {
		b = appendText(b, `,"drift":`, e.Drift)
	}
	return append(b, '}')
}

// appendInvariants writes the verdict of a rule as what was found against it: nothing, when it holds.
func appendInvariants(b []byte, told *inventory.Invariants) []byte {
	b = strconv.AppendBool(append(b, `{"hold":`...), told.Hold())
	rules := stock.ContinuousRules()
	b = append(b, `,"rules":`...)
	b = appendList(b, rules, func(b []byte, rule *stock.Rule) []byte {
		b = appendText(b, `{"rule":`, string(*rule))
		b = strconv.AppendBool(append(b, `,"holds":`...), told.Open[*rule] == 0)
		b = appendNumber(b, `,"open":`, told.Open[*rule])
		b = appendNumber(b, `,"repaired":`, told.All[*rule]-told.Open[*rule])
		return append(b, '}')
	})
	b = append(b, `,"findings":[`...)
	for i := range told.Findings {
		if i > 0 {
			b = append(b, ',')
		}
		f := &told.Findings[i]
		b = appendText(b, `{"rule":`, string(f.Rule))
		b = appendText(b, `,"subject":`, f.Subject)
		b = appendTexts(append(b, `,"evidence":`...), f.Evidence)
		b = strconv.AppendBool(append(b, `,"repaired":`...), f.Repaired)
		b = appendTime(b, `,"found_at":`, f.FoundAt)
		b = appendTime(b, `,"seen_at":`, f.SeenAt)
		b = append(b, '}')
	}
	b = appendTime(append(b, `],"round":{`...), `"began_at":`, told.Began)
	b = appendNumber(b, `,"items":`, told.Checked.Items)
	b = appendNumber(b, `,"movements":`, told.Checked.Movements)
	b = appendNumber(b, `,"customers":`, told.Checked.Customers)
	b = appendNumber(b, `,"keys":`, told.Checked.Keys)
	b = append(b, '}')
	if last := &told.Last; !last.Ended.IsZero() {
		b = appendTime(append(b, `,"last_round":{`...), `"began_at":`, last.Began)
		b = appendTime(b, `,"ended_at":`, last.Ended)
		b = appendNumber(b, `,"items":`, last.Checked.Items)
		b = appendNumber(b, `,"movements":`, last.Checked.Movements)
		b = appendNumber(b, `,"customers":`, last.Checked.Customers)
		b = appendNumber(b, `,"keys":`, last.Checked.Keys)
		b = append(b, '}')
	}
	return append(b, '}')
}
