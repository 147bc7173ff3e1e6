package inventory_test

import (
	"bytes"
	"context"
	"net/url"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// ticketLife is short enough to wait for, and long enough to be seen.
const ticketLife = 2 * time.Second

// world is two real stores, each behind a wire that can be broken, and ways past the service.
type world struct {
	database, redis string // past the wires
	prefix          string
	toLedger        *fault.Proxy
	toGate          *fault.Proxy
	direct          *ledger.Ledger // another process, without a gate
	eyes            *gate.Gate     // only to peek
	patience        time.Duration  // of the services' ledgers; 0: their default
}

func newWorld(t *testing.T, redisAddr string) *world {
	t.Helper()
	w := &world{database: sandbox.Database(t), redis: redisAddr, prefix: sandbox.Prefix(t)}
	u, err := url.Parse(w.database)
	if err != nil {
		t.Fatal(err)
	}
	w.toLedger, w.toGate = proxy(t, u.Host), proxy(t, redisAddr)
	if w.direct, err = ledger.Open(ledger.Config{URL: w.database}); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(w.direct.Close)
	client, err := gate.Dial("redis://" + redisAddr)
	if err != nil {
		t.Fatal(err)
	}
	w.eyes = gate.New(client, gate.Config{Prefix: w.prefix, Confirm: w.direct.Levels})
	t.Cleanup(func() {
		w.eyes.Close()
		_ = client.Close()
	})
	return w
}

func proxy(t *testing.T, target string) *fault.Proxy {
	t.Helper()
	p, err := fault.NewProxy(target)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// serve opens a service over the wires. Nothing sweeps, and every request needs a ticket.
func (w *world) serve(t *testing.T) *inventory.Service {
	t.Helper()
	client, err := gate.Dial("redis://" + w.toGate.Addr())
	if err != nil {
		t.Fatal(err)
	}
	u, err := url.Parse(w.database)
	if err != nil {
		t.Fatal(err)
	}
	u.Host = w.toLedger.Addr()
	s, err := inventory.Open(inventory.Config{
		Ledger: ledger.Config{URL: u.String(), Writers: 1, Patience: w.patience},
		Gate:   gate.Config{Prefix: w.prefix, TicketLife: ticketLife, Ample: -1},
		Redis:  client,
	})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		s.Close()
		_ = client.Close()
	})
	return s
}

func at(sku string) stock.Item {
	return stock.Item{SKU: stock.SKU(sku), Location: stock.DefaultLocation}
}

func keyed(key string) stock.Keyed { return stock.Keyed{Client: "shop", Key: key} }

func order(id string, skus ...string) *stock.DeductRequest {
	r := &stock.DeductRequest{Keyed: keyed(id), OrderID: id}
	for _, sku := range skus {
		r.Lines = append(r.Lines, stock.WantedLine{Item: at(sku), Quantity: 1})
	}
	return r
}

// stockUp creates an item with units on hand, past the gate.
func (w *world) stockUp(t *testing.T, sku string, units stock.Quantity) {
	t.Helper()
	w.stockUpAt(t, at(sku), units)
}

func (w *world) stockUpAt(t *testing.T, item stock.Item, units stock.Quantity) {
	t.Helper()
	if _, err := w.direct.Configure(t.Context(), &stock.ConfigureRequest{Client: "shop", Item: item}); err != nil {
		t.Fatal(err)
	}
	if units > 0 {
		w.receiveAt(t, item, "stock "+item.String(), units)
	}
}

func (w *world) receive(t *testing.T, sku, key string, units stock.Quantity) {
	t.Helper()
	w.receiveAt(t, at(sku), key, units)
}

func (w *world) receiveAt(t *testing.T, item stock.Item, key string, units stock.Quantity) {
	t.Helper()
	_, err := w.direct.Adjust(t.Context(), &stock.AdjustRequest{Keyed: keyed(key), Item: item, Kind: stock.Receive, Delta: units})
	if err != nil {
		t.Fatal(err)
	}
}

func deduct(t *testing.T, s *inventory.Service, r *stock.DeductRequest) *stock.Outcome {
	t.Helper()
	out, err := s.Deduct(t.Context(), r)
	if err != nil {
		t.Fatalf("order %s: %v", r.OrderID, err)
	}
	return out
}

func (w *world) connect(t *testing.T) *pgx.Conn {
	t.Helper()
	conn, err := pgx.Connect(t.Context(), w.database)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = conn.Close(context.Background()) })
	return conn
}

// onHand checks an item's figure, and that its movements add up to it.
func (w *world) onHand(t *testing.T, sku string, want stock.Quantity) {
	t.Helper()
	var onHand, held, movedOnHand, movedHeld, version, movements int64
	err := w.connect(t).QueryRow(t.Context(), `
		SELECT i.on_hand, i.held, COALESCE(sum(m.delta_on_hand), 0), COALESCE(sum(m.delta_held), 0), i.version, count(m.version)
		FROM items i LEFT JOIN movements m ON m.item_id = i.id WHERE i.sku = $1 GROUP BY i.id`, sku,
	).Scan(&onHand, &held, &movedOnHand, &movedHeld, &version, &movements)
	if err != nil {
		t.Fatal(err)
	}
	if onHand != movedOnHand || held != movedHeld || version != movements {
		t.Errorf("%s: %d on hand, %d held at version %d, but %d movements come to %d and %d",
			sku, onHand, held, version, movements, movedOnHand, movedHeld)
	}
	if stock.Quantity(onHand) != want {
		t.Errorf("%s: %d on hand, want %d", sku, onHand, want)
	}
}

// tickets on an item that have not run out.
func (w *world) tickets(t *testing.T, sku string) []gate.HeldTicket {
	t.Helper()
	return w.ticketsOn(t, at(sku))
}

func (w *world) ticketsOn(t *testing.T, item stock.Item) []gate.HeldTicket {
	t.Helper()
	f, err := w.eyes.Peek(t.Context(), item)
	if err != nil {
		t.Fatal(err)
	}
	var valid []gate.HeldTicket
	for _, held := range f.Tickets {
		if held.Deadline.After(time.Now()) {
			valid = append(valid, held)
		}
	}
	return valid
}

// givesBack waits until no ticket on an item is left, for half as long as it would be valid: a refused order is settled after its answer.
func (w *world) givesBack(t *testing.T, item stock.Item) {
	t.Helper()
	eventually(t, "no ticket on "+item.String(), ticketLife/2, func() bool { return len(w.ticketsOn(t, item)) == 0 })
}

// block an item's row, so that the ledger's answer waits until the function it returns is called.
func (w *world) block(t *testing.T, sku string) (unblock func()) {
	t.Helper()
	tx, err := w.connect(t).Begin(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if _, err := tx.Exec(t.Context(), "SELECT FROM items WHERE sku = $1 FOR UPDATE", sku); err != nil {
		t.Fatal(err)
	}
	return func() {
		t.Helper()
		if err := tx.Rollback(context.Background()); err != nil {
			t.Error(err)
		}
	}
}

// due makes the time of every open hold be over.
func (w *world) due(t *testing.T) {
	t.Helper()
	if _, err := w.connect(t).Exec(t.Context(), "UPDATE deductions SET expires_at = now() - interval '1 second' WHERE state = 'held'"); err != nil {
		t.Fatal(err)
	}
}

func contains(part []byte) func([]byte) bool {
	return func(request []byte) bool { return bytes.Contains(request, part) }
}

func happens(t *testing.T, what string, signal <-chan struct{}) {
	t.Helper()
	select {
	case <-signal:
	case <-time.After(20 * time.Second):
		t.Fatalf("%s did not happen", what)
	}
}

func eventually(t *testing.T, what string, limit time.Duration, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(limit); !holds(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", limit, what)
		}
	}
}
