package httpapi_test

import (
	"context"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/httpapi/internal/openapi"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

func TestExplainSaysWhoHoldsWhat(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.stockUp(t, "kettle", 10)
	d := w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"7","customer":"ann","hold_seconds":60,"lines":[{"sku":"kettle","quantity":3}]}`, key("7")...)
	id := decode[openapi.Deduction](t, d.want(t, 201)).Id
	e := decode[openapi.Explanation](t, w.call(t, operator, "GET", "/v1/stock/kettle/explain", "").want(t, 200))
	if e.Item.Available != 7 || e.Item.Version != 2 || e.Holds.Count != 1 || e.Holds.Held != 3 || e.Holds.Overdue != 0 {
		t.Errorf("%+v %+v", e.Item, e.Holds)
	}
	if len(e.Holds.First) != 1 || e.Holds.First[0].DeductionId != id || e.Holds.First[0].OrderId != "7" || e.Holds.First[0].Client != "shop" {
		t.Errorf("held by %+v", e.Holds.First)
	}
	if len(e.Customers.Most) != 1 || e.Customers.Count != 1 || e.Customers.Units != 3 || e.Customers.Most[0].Customer != "ann" {
		t.Errorf("customers %+v", e.Customers)
	}
	if len(e.Movements) != 2 || e.Movements[0].Kind != "hold" || e.Movements[1].Kind != "receive" {
		t.Errorf("movements %+v", e.Movements)
	}
	words := strings.Join(e.Summary, "\n")
	for _, part := range []string{"7 available = 10 on hand − 3 held − 0 safety stock", "One open hold has 3", `One customer has 3 of it, held or taken and not returned: "ann" of shop`, "The gate"} {
		if !strings.Contains(words, part) {
			t.Errorf("%q is not in:\n%s", part, words)
		}
	}
	if strings.Contains(words, "DRIFT") || strings.Contains(words, "CONTRADICTION") {
		t.Error(words)
	}
	w.call(t, operator, "GET", "/v1/stock/cup/explain", "").problem(t, 404, "not-found")
	w.call(t, shop, "GET", "/v1/stock/kettle/explain", "").problem(t, 403, "forbidden") // it shows other clients' orders
}

func TestInvariantsTellWhatTheCheckFound(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	w := newWorldOn(t, ledger.Config{URL: url})
	w.stockUp(t, "kettle", 10)
	w.call(t, shop, "POST", "/v1/deductions", `{"order_id":"7","customer":"ann","lines":[{"sku":"kettle","quantity":3}]}`, key("7")...).want(t, 201)
	look := func() openapi.Invariants {
		t.Helper()
		for range 6 { // two rounds of so little
			if _, err := w.stock.Reconcile(context.Background()); err != nil {
				t.Fatal(err)
			}
		}
		return decode[openapi.Invariants](t, w.call(t, operator, "GET", "/v1/invariants", "").want(t, 200))
	}
	if got := look(); !got.Hold || len(got.Findings) != 0 || len(got.Rules) != 9 || got.LastRound == nil || got.LastRound.Items != 1 || got.LastRound.Customers != 1 {
		t.Errorf("%+v", got)
	}
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "UPDATE items SET on_hand = 8"); err != nil {
		t.Fatal(err)
	}
	got := look()
	if got.Hold || len(got.Findings) != 1 || got.Findings[0].Rule != "movements-add-up" || got.Findings[0].Subject != "kettle@default" {
		t.Errorf("%+v", got)
	}
	if _, err := conn.Exec(t.Context(), "UPDATE items SET on_hand = 7"); err != nil {
		t.Fatal(err)
	}
	if got := look(); !got.Hold || len(got.Findings) != 0 {
		t.Errorf("what is whole again is told as %+v", got)
	}
}
