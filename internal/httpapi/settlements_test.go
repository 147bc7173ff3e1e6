package httpapi_test

import (
	"strings"
	"testing"
	"time"

	"github.com/go-json-experiment/json"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

func TestStocktakeIsExclusiveAndWritesTheDifference(t *testing.T) {
	t.Parallel()
	w := newWorld(t)
	w.call(t, shop, "PUT", "/v1/stock/kettle", `{}`).want(t, 201)
	w.call(t, shop, "POST", "/v1/stock/kettle/adjustments", `{"kind":"receive","delta":10}`, key("in")...).want(t, 201)
	a := w.call(t, shop, "POST", "/v1/stock/kettle/stocktakes", `{"lease_seconds":600}`, key("c1")...).want(t, 201)
	place := a.header.Get("Location")
	w.call(t, shop, "POST", "/v1/stock/kettle/stocktakes", `{"lease_seconds":600}`, key("c2")...).problem(t, 409, "stocktake-open")
	w.call(t, shop, "POST", "/v1/stock/nothing/stocktakes", `{"lease_seconds":600}`, key("c3")...).problem(t, 404, "not-found")
	w.call(t, shop, "POST", place+"/complete", `{"counted":8}`).want(t, 200)
	w.call(t, shop, "POST", place+"/complete", `{"counted":9}`).problem(t, 409, "stocktake-over")
	var got struct {
		State   string `json:"state"`
		OnHand  int64  `json:"on_hand"`
		Counted int64  `json:"counted"`
	}
	if err := json.Unmarshal(w.call(t, shop, "GET", place, "").want(t, 200).body, &got); err != nil {
		t.Fatal(err)
	}
	if got.State != "completed" || got.OnHand != 10 || got.Counted != 8 {
		t.Errorf("%+v", got)
	}
	w.call(t, other, "GET", place, "").problem(t, 404, "not-found")
}

func TestSettledDayIsShown(t *testing.T) {
	t.Parallel()
	url := sandbox.Database(t)
	w := newWorldOn(t, ledger.Config{URL: url})
	w.call(t, shop, "PUT", "/v1/stock/kettle", `{}`).want(t, 201)
	w.call(t, shop, "POST", "/v1/stock/kettle/adjustments", `{"kind":"receive","delta":10}`, key("in")...).want(t, 201)
	conn, err := pgx.Connect(t.Context(), url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(t.Context())
	if _, err := conn.Exec(t.Context(), "UPDATE movements SET at = at - interval '2 days'"); err != nil {
		t.Fatal(err)
	}
	if _, err := conn.Exec(t.Context(), "UPDATE items SET created_at = created_at - interval '2 days'"); err != nil {
		t.Fatal(err)
	}
	day := time.Now().UTC().AddDate(0, 0, -2).Format(time.DateOnly)
	path := "/v1/settlements/" + day
	w.call(t, shop, "GET", path, "").problem(t, 404, "not-found")
	k := &stock.Tick{Job: "settle", ScheduledAt: time.Now(), Token: 1, Limit: time.Hour}
	if _, err := w.stock.BeginRun(t.Context(), k); err != nil {
		t.Fatal(err)
	}
	if n, err := w.stock.Settle(t.Context(), k.Fence()); n != 1 || err != nil {
		t.Fatalf("settled %d, %v", n, err)
	}
	page := string(w.call(t, shop, "GET", path, "").want(t, 200).body)
	if !strings.Contains(page, `"opening":0,"received":10,"deducted":0,"returned":0,"adjusted":0,"closing":10`) {
		t.Error(page)
	}
	want := "date,sku,location,version,opening,received,deducted,returned,adjusted,closing\n" + day + ",kettle,default,1,0,10,0,0,0,10\n"
	if sheet := string(w.call(t, shop, "GET", path+"?format=csv", "").want(t, 200).body); sheet != want {
		t.Error(sheet)
	}
	w.call(t, shop, "GET", path+"?format=csv&limit=1", "").problem(t, 422, "invalid-field")
}
