package bench

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"
)

// api calls a service the ordinary way, for what is not measured.
type api struct {
	base, token string
	http        *http.Client
}

func newAPI(t Target) *api {
	return &api{"http://" + t.Addrs[0], t.Token, &http.Client{
		Transport: &http.Transport{MaxIdleConnsPerHost: setupWorkers}, Timeout: patience,
	}}
}

// call sends body and decodes the answer into result, unless that is nil.
func (a *api) call(ctx context.Context, method, path, key string, body, result any) error {
	var content bytes.Buffer
	if body != nil {
		if err := json.NewEncoder(&content).Encode(body); err != nil {
			return err
		}
	}
	request, err := http.NewRequestWithContext(ctx, method, a.base+path, &content)
	if err != nil {
		return err
	}
	request.Header.Set("Authorization", "Bearer "+a.token)
	request.Header.Set("Content-Type", "application/json")
	if key != "" {
		request.Header.Set("Idempotency-Key", key)
	}
	response, err := a.http.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(response.Body)
	switch {
	case err != nil:
		return err
	case response.StatusCode >= 300:
		return fmt.Errorf("%s %s was answered %s: %.300s", method, path, response.Status, text)
	case result == nil:
		return nil
	}
	return json.Unmarshal(text, result)
}

// setupWorkers create items at the same time.
const setupWorkers = 32

// staleness is how long a gate may refuse what has just been received through another process, with a margin.
const staleness = 1100 * time.Millisecond

// Create makes the items of a workload through the API, with its stock of each, and waits as long as a gate may not know of it.
func (w *Workload) Create(ctx context.Context, t Target) error {
	a := newAPI(t)
	defer a.http.CloseIdleConnections()
	workers, each := errgroup.WithContext(ctx)
	workers.SetLimit(setupWorkers)
	for _, sku := range w.SKUs {
		workers.Go(func() error {
			path := "/v1/stock/" + url.PathEscape(sku)
			if err := a.call(each, http.MethodPut, path, "", map[string]any{}, nil); err != nil {
				return err
			}
			if w.Stock == 0 {
				return nil
			}
			received := map[string]any{"kind": "receive", "delta": w.Stock, "reason": "bench"}
			return a.call(each, http.MethodPost, path+"/adjustments", "stock-"+sku, received, nil)
		})
	}
	if err := workers.Wait(); err != nil {
		return err
	}
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(staleness):
		return nil
	}
}

// Insert makes the items of a workload in the database itself, for a service that has no API for it.
func (w *Workload) Insert(ctx context.Context, database string) error {
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	_, err = conn.Exec(ctx, `
WITH new AS (
    INSERT INTO items (sku, location, on_hand, version)
    SELECT sku, 'default', $2, 1 FROM unnest($1::text[]) AS sku
    RETURNING id, on_hand
)
INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, kind, actor, reason)
SELECT id, 1, on_hand, 0, on_hand, 0, now(), 'receive', 'bench', 'bench' FROM new`, w.SKUs, w.Stock)
	return err
}

// VerifyAPI compares what the API says is left with what was there less what was sold.
func (w *Workload) VerifyAPI(ctx context.Context, t Target) error {
	a := newAPI(t)
	defer a.http.CloseIdleConnections()
	var wrong atomic.Pointer[error]
	group, ctx := errgroup.WithContext(ctx)
	group.SetLimit(setupWorkers)
	for i, sku := range w.SKUs {
		group.Go(func() error {
			var item struct {
				OnHand int64 `json:"on_hand"`
				Held   int64 `json:"held"`
			}
			if err := a.call(ctx, http.MethodGet, "/v1/stock/"+url.PathEscape(sku)+"?location=default", "", nil, &item); err != nil {
				return err
			}
			if want := w.left(i); item.OnHand != want || item.Held != 0 {
				err := fmt.Errorf("%s: the API says %d on hand and %d held, the answers leave %d", sku, item.OnHand, item.Held, want)
				wrong.CompareAndSwap(nil, &err)
			}
			return nil
		})
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := wrong.Load(); err != nil {
		return *err
	}
	return nil
}

// left is what must be on hand of an item, by the answers.
func (w *Workload) left(item int) int64 { return w.Stock - w.sold[item].Load() }

// VerifyLedger compares the ledger's own rows with the answers: stock, the sum of all movements, and one deduction and
// one operation for each order that was answered as taken.
func (w *Workload) VerifyLedger(ctx context.Context, database string) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Minute)
	defer cancel()
	conn, err := pgx.Connect(ctx, database)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	left := make([]int64, len(w.SKUs))
	for i := range left {
		left[i] = w.left(i)
	}
	var wrong, deductions, operations int64
	if err := conn.QueryRow(ctx, `
SELECT count(*)
FROM ROWS FROM (unnest($1::text[]), unnest($2::bigint[])) AS want(sku, on_hand)
JOIN items i ON i.sku = want.sku AND i.location = 'default'
CROSS JOIN LATERAL (
    SELECT COALESCE(sum(delta_on_hand), 0) AS on_hand, COALESCE(sum(delta_held), 0) AS held,
        count(*) AS movements, COALESCE(max(version), 0) AS version
    FROM movements m WHERE m.item_id = i.id
) AS moved
WHERE (i.on_hand, i.held, i.version, moved.on_hand, moved.held, moved.movements, moved.version)
    IS DISTINCT FROM (want.on_hand, 0, moved.movements, want.on_hand, 0, i.version, i.version)`, w.SKUs, left).Scan(&wrong); err != nil {
		return err
	}
	if wrong > 0 {
		return fmt.Errorf("of %d of %d items the ledger's stock or the sum of its movements is not what the answers leave", wrong, len(w.SKUs))
	}
	// '.' follows '-': every name that begins with Name and '-' lies between.
	if err := conn.QueryRow(ctx, `
SELECT (SELECT count(*) FROM deductions WHERE order_id > $1 || '-' AND order_id < $1 || '.' AND state = 'committed'),
    (SELECT count(*) FROM operations WHERE key > $1 || '-' AND key < $1 || '.' AND kind = 'deduct')`, w.Name).Scan(&deductions, &operations); err != nil {
		return err
	}
	if orders := w.orders.Load(); deductions != orders || operations != orders {
		return fmt.Errorf("%d orders were answered as taken, but the ledger has %d deductions and %d keys of them", orders, deductions, operations)
	}
	return nil
}
