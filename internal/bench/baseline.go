package bench

import (
	"cmp"
	"context"
	"crypto/sha256"
	"crypto/subtle"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/go-chi/chi/v5"
	"github.com/google/uuid"
	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"
)

// Baseline is the service that Holdfast is compared with: what a team writes that knows its trade and needs no more. An order is
// one transaction that locks its items with SELECT … FOR UPDATE in their order, and writes the same rows that Holdfast writes for the same
// request and answer. It exists to be measured: it knows one client, deductions of whole orders and nothing else.
type Baseline struct {
	pool  *pgxpool.Pool
	name  string // of the one client
	token [sha256.Size]byte
}

// BaselineConfig is what it runs on.
type BaselineConfig struct {
	Database   string // URL
	Sessions   int    // of the pool
	TokensFile string // of which the first token may call
}

// OpenBaseline connects to the database, which must have Holdfast's schema.
func OpenBaseline(ctx context.Context, cfg BaselineConfig) (*Baseline, error) {
	text, err := os.ReadFile(cfg.TokensFile)
	if err != nil {
		return nil, err
	}
	var tokens []struct{ Name, SHA256 string }
	if err := json.Unmarshal(text, &tokens); err != nil {
		return nil, err
	}
	if len(tokens) == 0 {
		return nil, errors.New("the token file is empty")
	}
	b := &Baseline{name: tokens[0].Name}
	if n, err := hex.Decode(b.token[:], []byte(tokens[0].SHA256)); err != nil || n != len(b.token) {
		return nil, errors.New("the token file has no SHA-256")
	}
	pool, err := pgxpool.ParseConfig(cfg.Database)
	if err != nil {
		return nil, err
	}
	pool.MaxConns, pool.MinConns = int32(cfg.Sessions), int32(cfg.Sessions)
	b.pool, err = pgxpool.NewWithConfig(ctx, pool)
	return b, err
}

// Close ends its sessions.
func (b *Baseline) Close() { b.pool.Close() }

// Handler of its one route.
func (b *Baseline) Handler() http.Handler {
	mux := chi.NewMux()
	mux.Post("/v1/deductions", b.create)
	return mux
}

type (
	orderBody struct {
		OrderID string      `json:"order_id"`
		Part    string      `json:"part"`
		Lines   []orderLine `json:"lines"`
	}
	orderLine struct {
		SKU      string `json:"sku"`
		Location string `json:"location"`
		Quantity int64  `json:"quantity"`
		LineID   string `json:"line_id"`

		number int
	}
	deductionBody struct {
		ID        uuid.UUID  `json:"id"`
		OrderID   string     `json:"order_id"`
		Part      string     `json:"part"`
		State     string     `json:"state"`
		Revision  int        `json:"revision"`
		CreatedAt time.Time  `json:"created_at"`
		UpdatedAt time.Time  `json:"updated_at"`
		Lines     []lineBody `json:"lines"`
		Items     []itemBody `json:"items,omitempty"`
	}
	lineBody struct {
		Line      int    `json:"line"`
		LineID    string `json:"line_id,omitempty"`
		SKU       string `json:"sku"`
		Location  string `json:"location"`
		Quantity  int64  `json:"quantity"`
		Held      int64  `json:"held"`
		Committed int64  `json:"committed"`
		Released  int64  `json:"released"`
		Returned  int64  `json:"returned"`
	}
	itemBody struct {
		SKU         string `json:"sku"`
		Location    string `json:"location"`
		OnHand      int64  `json:"on_hand"`
		Held        int64  `json:"held"`
		SafetyStock int64  `json:"safety_stock"`
		Available   int64  `json:"available"`
		Version     int64  `json:"version"`

		id int64
	}
)

var errShort = errors.New("insufficient-stock")

func (b *Baseline) create(w http.ResponseWriter, r *http.Request) {
	bearer := sha256.Sum256([]byte(strings.TrimPrefix(r.Header.Get("Authorization"), "Bearer ")))
	if subtle.ConstantTimeCompare(bearer[:], b.token[:]) != 1 {
		answer(w, http.StatusUnauthorized, problemBody{Title: "unauthenticated"})
		return
	}
	key := r.Header.Get("Idempotency-Key")
	var order orderBody
	if err := json.NewDecoder(http.MaxBytesReader(w, r.Body, 256<<10)).Decode(&order); err != nil || key == "" {
		answer(w, http.StatusBadRequest, problemBody{Title: "malformed"})
		return
	}
	d, replayed, err := b.deduct(r.Context(), key, &order)
	switch {
	case errors.Is(err, errShort):
		answer(w, http.StatusConflict, problemBody{Type: "insufficient-stock", Title: "Insufficient stock", Detail: err.Error()})
	case err != nil:
		answer(w, http.StatusInternalServerError, problemBody{Title: "internal", Detail: err.Error()})
	default:
		if replayed {
			w.Header().Set("Idempotent-Replayed", "true")
		}
		answer(w, http.StatusCreated, d)
	}
}

type problemBody struct {
	Type   string `json:"type"`
	Title  string `json:"title"`
	Detail string `json:"detail"`
}

func answer(w http.ResponseWriter, status int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.WriteHeader(status)
	_ = json.NewEncoder(w).Encode(body) // nobody listens any more if it fails
}

// deduct takes the order, or finds what was done under its key.
func (b *Baseline) deduct(ctx context.Context, key string, order *orderBody) (d *deductionBody, replayed bool, err error) {
	d, err = b.find(ctx, key)
	if d != nil || err != nil {
		return d, true, err
	}
	err = pgx.BeginFunc(ctx, b.pool, func(tx pgx.Tx) error {
		d, err = b.take(ctx, tx, key, order)
		return err
	})
	var refused *pgconn.PgError
	if errors.As(err, &refused) && refused.Code == pgerrcode.UniqueViolation {
		d, err = b.find(ctx, key) // it came in between
		return d, true, err
	}
	return d, false, err
}

// find what was done under a key; nil if nothing was.
func (b *Baseline) find(ctx context.Context, key string) (*deductionBody, error) {
	d := &deductionBody{}
	err := b.pool.QueryRow(ctx, `
SELECT d.id, d.order_id, d.part, d.state, d.revision, d.created_at, d.updated_at
FROM operations o JOIN deductions d ON d.id = o.deduction_id
WHERE o.client = $1 AND o.key = $2`, b.name, key).Scan(&d.ID, &d.OrderID, &d.Part, &d.State, &d.Revision, &d.CreatedAt, &d.UpdatedAt)
	if errors.Is(err, pgx.ErrNoRows) {
		return nil, nil
	}
	return d, err
}

// take locks the items in the order of their names, so that no two orders wait for each other, and writes everything.
func (b *Baseline) take(ctx context.Context, tx pgx.Tx, key string, order *orderBody) (*deductionBody, error) {
	id, err := uuid.NewV7()
	if err != nil {
		return nil, err
	}
	d := &deductionBody{ID: id, OrderID: order.OrderID, Part: order.Part, State: "committed", Revision: 1, CreatedAt: time.Now()}
	d.UpdatedAt = d.CreatedAt
	for i := range order.Lines {
		order.Lines[i].Location = cmp.Or(order.Lines[i].Location, "default")
		order.Lines[i].number = i + 1
	}
	slices.SortFunc(order.Lines, func(a, b orderLine) int {
		return cmp.Or(cmp.Compare(a.SKU, b.SKU), cmp.Compare(a.Location, b.Location), cmp.Compare(a.number, b.number))
	})
	for i := range order.Lines {
		if err := d.lock(ctx, tx, &order.Lines[i]); err != nil {
			return nil, err
		}
	}
	print := sha256.Sum256(fmt.Append(nil, order))
	if _, err := tx.Exec(ctx, `
INSERT INTO operations (client, key, fingerprint, deduction_id, at, kind)
VALUES ($1, $2, $3, $4, $5, 'deduct')`, b.name, key, print[:], id, d.CreatedAt); err != nil {
		return nil, err
	}
	if _, err := tx.Exec(ctx, `
INSERT INTO deductions (id, created_at, updated_at, state, client, order_id, part)
VALUES ($1, $2, $2, $3, $4, $5, $6)`, id, d.CreatedAt, d.State, b.name, d.OrderID, d.Part); err != nil {
		return nil, err
	}
	for i := range order.Lines {
		if err := b.line(ctx, tx, d, &order.Lines[i]); err != nil {
			return nil, err
		}
	}
	slices.SortFunc(d.Lines, func(a, b lineBody) int { return cmp.Compare(a.Line, b.Line) })
	return d, nil
}

// lock the item of a line and note its figures.
func (d *deductionBody) lock(ctx context.Context, tx pgx.Tx, line *orderLine) error {
	if last := len(d.Items) - 1; last >= 0 && d.Items[last].SKU == line.SKU && d.Items[last].Location == line.Location {
		return nil
	}
	item := itemBody{SKU: line.SKU, Location: line.Location}
	err := tx.QueryRow(ctx, `
SELECT id, on_hand, held, safety_stock, version FROM items
WHERE sku = $1 AND location = $2 FOR UPDATE`, line.SKU, line.Location).Scan(&item.id, &item.OnHand, &item.Held, &item.SafetyStock, &item.Version)
	d.Items = append(d.Items, item)
	return err
}

// line takes one line from its item.
func (b *Baseline) line(ctx context.Context, tx pgx.Tx, d *deductionBody, line *orderLine) error {
	item := &d.Items[slices.IndexFunc(d.Items, func(i itemBody) bool { return i.SKU == line.SKU && i.Location == line.Location })]
	if line.Quantity <= 0 || item.OnHand-item.Held-item.SafetyStock < line.Quantity {
		return errShort
	}
	item.OnHand -= line.Quantity
	item.Version++
	item.Available = item.OnHand - item.Held - item.SafetyStock
	d.Lines = append(d.Lines, lineBody{
		Line: line.number, LineID: line.LineID, SKU: line.SKU, Location: line.Location, Quantity: line.Quantity, Committed: line.Quantity,
	})
	if _, err := tx.Exec(ctx, `
INSERT INTO deduction_lines (deduction_id, item_id, quantity, held, committed, line_no, line_id)
VALUES ($1, $2, $3, 0, $3, $4, $5)`, d.ID, item.id, line.Quantity, line.number, line.LineID); err != nil {
		return err
	}
	if _, err := tx.Exec(ctx, `
INSERT INTO movements (item_id, version, delta_on_hand, delta_held, on_hand, held, at, deduction_id, kind, actor)
VALUES ($1, $2, $3, 0, $4, $5, $6, $7, 'deduct', $8)`,
		item.id, item.Version, -line.Quantity, item.OnHand, item.Held, d.CreatedAt, d.ID, b.name); err != nil {
		return err
	}
	_, err := tx.Exec(ctx, `
UPDATE items SET on_hand = $2, version = $3, updated_at = $4 WHERE id = $1`, item.id, item.OnHand, item.Version, d.CreatedAt)
	return err
}
