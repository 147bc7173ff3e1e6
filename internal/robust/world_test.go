package robust_test

import (
	"bufio"
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/fault"
	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/robust"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// patience bounds everything that is waited for: far more than it takes, since the machine may be busy.
const patience = 60 * time.Second

// builds are the commands, built once for all tests.
var builds struct {
	product, defects sync.Once
	dir              string
	err              error
}

func TestMain(m *testing.M) {
	var err error
	if builds.dir, err = os.MkdirTemp("", "robust"); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := sandbox.Tests(m).Run()
	_ = os.RemoveAll(builds.dir) // the system clears what is left
	os.Exit(code)
}

// product is the command as it is shipped.
func product(t testing.TB) string {
	return built(t, "product", &builds.product)
}

func built(t testing.TB, name string, once *sync.Once, flags ...string) string {
	t.Helper()
	path := filepath.Join(builds.dir, name)
	once.Do(func() {
		args := append(append([]string{"build", "-o", path}, flags...), "github.com/holdfast-stock/holdfast/cmd/holdfast")
		build := exec.Command("go", args...)
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			builds.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if builds.err != nil {
		t.Fatal("build the command:", builds.err)
	}
	return path
}

// clients of the service. They use the same keys and orders on purpose.
var clients = []string{"shop", "market"}

// world is an installation: stores of its own or shared ones, and two processes that reach them over wires that can be broken.
type world struct {
	t        testing.TB
	random   *rand.Rand
	seed     uint64
	start    time.Time
	url      string // of the database, past the wires
	redis    string // address, past the wires
	prefix   string
	services []*service
}

// service is one process and its wires.
type service struct {
	world           *world
	env             []string
	command         string
	addr            string
	admin           string // address of its metrics, once it serves
	postgres, redis *fault.Proxy

	cmd   *exec.Cmd
	guard io.Closer
	ended chan struct{}
	mu    sync.Mutex
	log   bytes.Buffer // guarded by mu
}

// worldConfig says what a world is made of.
type worldConfig struct {
	command  string
	postgres *sandbox.Postgres // nil: the shared one
	redis    *sandbox.Redis    // nil: the shared one
	env      []string
	envOf    [2]string // of one process each
}

func newWorld(t testing.TB, cfg worldConfig) *world {
	t.Helper()
	seed := seedOf(t)
	t.Logf("ROBUST_SEED=%d", seed)
	w := &world{t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), start: time.Now(), prefix: sandbox.Prefix(t)}
	if cfg.postgres == nil {
		w.url = sandbox.Database(t)
	} else {
		w.url = cfg.postgres.Database(t)
	}
	if cfg.redis == nil {
		w.redis = sandbox.RedisAddr(t)
	} else {
		w.redis = cfg.redis.Addr()
	}
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	var list []map[string]any
	for _, name := range clients {
		list = append(list, map[string]any{"name": name, "sha256": hashOf(name), "scopes": []string{"admin"}})
	}
	text, err := json.Marshal(list)
	if err == nil {
		err = os.WriteFile(tokens, text, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	for i := range 2 {
		s := &service{world: w, command: cfg.command, addr: "127.0.0.1:" + strconv.Itoa(freePort(t, w.random))}
		s.postgres, s.redis = w.wire(hostOf(t, w.url)), w.wire(w.redis)
		s.env = append(append([]string{
			"HOLDFAST_DATABASE_URL=" + strings.Replace(w.url, hostOf(t, w.url), s.postgres.Addr(), 1),
			"HOLDFAST_REDIS_URL=redis://" + s.redis.Addr(), "HOLDFAST_TOKENS_FILE=" + tokens, "HOLDFAST_GATE_PREFIX=" + w.prefix,
			"HOLDFAST_ADDR=" + s.addr, "HOLDFAST_ADMIN_ADDR=127.0.0.1:0", "HOLDFAST_ACCESS_LOG=false", "HOLDFAST_GATE_AMPLE=-1",
		}, cfg.env...), cfg.envOf[i])
		s.open()
		t.Cleanup(s.close)
		w.services = append(w.services, s)
	}
	return w
}

// seedOf is drawn anew for each run, unless ROBUST_SEED names one.
func seedOf(t testing.TB) uint64 {
	if given := os.Getenv("ROBUST_SEED"); given != "" {
		seed, err := strconv.ParseUint(given, 10, 64)
		if err != nil {
			t.Fatal("ROBUST_SEED:", err)
		}
		return seed
	}
	return rand.Uint64() >> 1
}

func hostOf(t testing.TB, database string) string {
	u, err := url.Parse(database)
	if err != nil {
		t.Fatal(err)
	}
	return u.Host
}

func (w *world) wire(target string) *fault.Proxy {
	p, err := fault.NewProxy(target)
	if err != nil {
		w.t.Fatal(err)
	}
	w.t.Cleanup(func() { _ = p.Close() }) // its clients are gone
	return p
}

// freePort is below those that systems hand out by themselves.
func freePort(t testing.TB, random *rand.Rand) int {
	t.Helper()
	for range 100 {
		port := 22_000 + random.IntN(8_000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			_ = l.Close() // it was only to see that it is free
			return port
		}
	}
	t.Fatal("found no free port")
	return 0
}

// open starts the process and waits until it serves.
func (s *service) open() {
	t := s.world.t
	t.Helper()
	serving := s.begin()
	select {
	case <-serving:
	case <-s.ended:
		t.Fatalf("the service did not start, %s:\n%s", s.cmd.ProcessState, s.tail())
	case <-time.After(patience):
		t.Fatalf("the service does not serve:\n%s", s.tail())
	}
}

// begin starts the process; more are variables of this run only.
func (s *service) begin(more ...string) (serving <-chan bool) {
	t := s.world.t
	t.Helper()
	s.cmd = exec.Command(s.command, "serve")
	s.cmd.Env = append(append(os.Environ(), s.env...), more...)
	stderr, err := s.cmd.StderrPipe()
	if err == nil {
		err = s.cmd.Start()
	}
	if err == nil {
		s.guard, err = guard(s.cmd.Process.Pid)
	}
	if err != nil {
		t.Fatal(err)
	}
	s.ended = make(chan struct{})
	serves := make(chan bool, 1)
	go s.attend(stderr, serves)
	return serves
}

func (s *service) attend(stderr io.Reader, serving chan<- bool) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		s.mu.Lock()
		s.log.Write(lines.Bytes())
		s.log.WriteByte('\n')
		s.mu.Unlock()
		if bytes.Contains(lines.Bytes(), []byte(`"msg":"serving"`)) {
			var at struct {
				Admin string `json:"admin_addr"`
			}
			_ = json.Unmarshal(lines.Bytes(), &at) // without it nothing is found there, which shows
			s.admin = at.Admin
			serving <- true
		}
	}
	_ = s.cmd.Wait()    // ProcessState says how it ended
	_ = s.guard.Close() // what it guarded has ended
	close(s.ended)
}

// guard starts a shell that kills a process when we end before the returned closer was closed.
func guard(pid int) (io.Closer, error) {
	shell := exec.Command("/bin/sh", "-c", `read _ || kill -KILL "$1"`, "guard", strconv.Itoa(pid))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	pipe, err := shell.StdinPipe()
	if err != nil {
		return nil, err
	}
	return closer(func() error {
		_, err := io.WriteString(pipe, "\n")
		return errors.Join(err, pipe.Close(), shell.Wait())
	}), shell.Start()
}

type closer func() error

func (c closer) Close() error { return c() }

func (s *service) signal(sig syscall.Signal) { _ = s.cmd.Process.Signal(sig) } // gone is fine

// await the end of the process.
func (s *service) await() {
	s.world.t.Helper()
	select {
	case <-s.ended:
	case <-time.After(patience):
		s.world.t.Fatalf("%s does not end:\n%s", s.addr, s.tail())
	}
}

func (s *service) close() {
	s.signal(syscall.SIGCONT)
	s.signal(syscall.SIGTERM)
	s.await()
}

func (s *service) tail() string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return string(s.log.Bytes()[max(0, s.log.Len()-8<<10):])
}

func (w *world) now() time.Duration { return time.Since(w.start) }

// complete a history with what the ledger and the gate say, once all is quiet.
func (w *world) complete(h *robust.History) {
	w.t.Helper()
	h.Seed, h.Start = w.seed, w.start
	h.Gate = nil
	for i := range cold + 1 {
		h.Gate = append(h.Gate, w.readGate(skuOf(i))...)
	}
	w.readLedger(h) // after the gate: what the gate was told of must be there
}

// finish completes a history and checks it.
func (w *world) finish(h *robust.History) []robust.Violation {
	w.t.Helper()
	w.complete(h)
	picture := ""
	if dir := os.Getenv("ROBUST_DIR"); dir != "" {
		picture = filepath.Join(dir, strings.ReplaceAll(w.t.Name(), "/", "-")+".html")
	}
	return append(robust.CheckOrder(h), robust.CheckLinear(h, patience, picture)...)
}

// keep saves the history and the logs of a run that went wrong, and says how to look at them.
func (w *world) keep(h *robust.History, found []robust.Violation) {
	w.t.Helper()
	dir := os.Getenv("ROBUST_DIR")
	if dir == "" {
		var err error
		if dir, err = os.MkdirTemp("", "robust-violation-"); err != nil {
			w.t.Fatal(err)
		}
	}
	path := filepath.Join(dir, strings.ReplaceAll(w.t.Name(), "/", "-")+".json")
	if err := h.Save(path); err != nil {
		w.t.Fatal(err)
	}
	for i, s := range w.services {
		s.mu.Lock()
		if err := os.WriteFile(fmt.Sprintf("%s.log%d", path, i), s.log.Bytes(), 0o600); err != nil {
			w.t.Error(err)
		}
		s.mu.Unlock()
	}
	w.t.Errorf("%d violations, seed %d; look again with: go run ./internal/robust/recheck %s", len(found), w.seed, path)
	for _, v := range found[:min(len(found), 20)] {
		w.t.Error(v)
	}
}

func (w *world) readLedger(h *robust.History) {
	t := w.t
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, w.url)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(ctx)
	tx, err := conn.BeginTx(ctx, pgx.TxOptions{IsoLevel: pgx.RepeatableRead})
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx) // it only reads
	at := func(at *time.Time) time.Duration {
		if at == nil {
			return 0
		}
		return at.Sub(w.start)
	}
	l := &h.Ledger
	*l = robust.Ledger{}
	each := func(query string, scan func(pgx.Rows) error) {
		t.Helper()
		rows, err := tx.Query(ctx, query)
		for err == nil && rows.Next() {
			err = scan(rows)
		}
		if err = errors.Join(err, rows.Err()); err != nil {
			t.Fatalf("%s: %v", query, err)
		}
	}
	each(`SELECT sku, on_hand, held, version FROM items ORDER BY sku`, func(rows pgx.Rows) error {
		var i robust.Level
		err := rows.Scan(&i.SKU, &i.OnHand, &i.Held, &i.Version)
		l.Items = append(l.Items, i)
		return err
	})
	each(`SELECT i.sku, m.version, m.on_hand, m.held, m.delta_on_hand, m.delta_held, m.kind, COALESCE(m.deduction_id::text, ''), m.at
		FROM movements m JOIN items i ON i.id = m.item_id ORDER BY i.sku, m.version`, func(rows pgx.Rows) error {
		var m robust.Movement
		var when time.Time
		err := rows.Scan(&m.SKU, &m.Version, &m.OnHand, &m.Held, &m.OnHandBy, &m.HeldBy, &m.Kind, &m.Deduction, &when)
		told := at(&when)
		m.Ahead = told.Round(day)
		m.At = told - m.Ahead
		l.Movements = append(l.Movements, m)
		return err
	})
	each(`SELECT o.client, o.key, o.kind, COALESCE(o.deduction_id::text, ''), COALESCE(i.sku, ''), COALESCE(o.version, 0)
		FROM operations o LEFT JOIN items i ON i.id = o.item_id`, func(rows pgx.Rows) error {
		var k robust.KeyRow
		err := rows.Scan(&k.Client, &k.Key, &k.Kind, &k.Deduction, &k.SKU, &k.Version)
		l.Keys = append(l.Keys, k)
		return err
	})
	each(`SELECT d.id::text, d.client, d.state, d.expires_at, i.sku, l.quantity, l.held, l.committed, l.returned
		FROM deductions d JOIN deduction_lines l ON l.deduction_id = d.id JOIN items i ON i.id = l.item_id
		ORDER BY d.id, l.line_no`, func(rows pgx.Rows) error {
		var d robust.Deduction
		var line robust.DeductionLine
		var expires *time.Time
		err := rows.Scan(&d.ID, &d.Client, &d.State, &expires, &line.SKU, &line.Quantity, &line.Held, &line.Committed, &line.Returned)
		if n := len(l.Deductions); n == 0 || l.Deductions[n-1].ID != d.ID {
			d.Expires = at(expires)
			l.Deductions = append(l.Deductions, d)
		}
		last := &l.Deductions[len(l.Deductions)-1]
		last.Lines = append(last.Lines, line)
		return err
	})
}

// day is by how much the clocks of servers are set away: far more than a run takes, so that each of their times tells whether they were.
const day = 24 * time.Hour

// readGate says what the gate has of an item, if it knows it.
func (w *world) readGate(sku string) []robust.Base {
	t := w.t
	t.Helper()
	client, err := gate.Dial("redis://" + w.redis)
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close() // it only read
	g := gate.New(client, gate.Config{Prefix: w.prefix, Confirm: func(context.Context, []stock.Item) ([]stock.Levels, error) {
		return nil, errors.New("not asked")
	}})
	defer g.Close()
	f, err := g.Peek(context.Background(), stock.Item{SKU: stock.SKU(sku), Location: "default"})
	if err != nil {
		t.Fatal(err)
	}
	if !f.Known {
		return nil
	}
	return []robust.Base{{SKU: sku, Available: int64(f.Available), Version: f.Version}}
}

var httpClient = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64, DisableCompression: true}}
