package main

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
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/httpapi/contract"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// The acceptance tests run the service as its users do: the command itself, in processes of its own, on real servers, over HTTP.

// serviceLimit bounds how long a process may take to serve, or to stop.
const serviceLimit = 30 * time.Second

// command is where `go build` puts the command, once for all tests.
var command struct {
	once sync.Once
	dir  string
	err  error
}

func TestMain(m *testing.M) {
	code := m.Run()
	if command.dir != "" {
		_ = os.RemoveAll(command.dir) // the system clears what is left
	}
	os.Exit(code)
}

// builtCommand is the path of the command.
func builtCommand(t testing.TB) string {
	t.Helper()
	command.once.Do(func() {
		if command.dir, command.err = os.MkdirTemp("", "holdfast"); command.err != nil {
			return
		}
		build := exec.Command("go", "build", "-o", command.dir, ".")
		build.Env = append(os.Environ(), "CGO_ENABLED=0")
		if out, err := build.CombinedOutput(); err != nil {
			command.err = fmt.Errorf("%w: %s", err, out)
		}
	})
	if command.err != nil {
		t.Fatal("build the command:", command.err)
	}
	return filepath.Join(command.dir, "holdfast")
}

const shopToken = "shop-token"

// shop is an installation: a database, a Redis, and as many processes of the service as the test starts.
type shop struct {
	env []string // of its processes
}

// newShop has a database and keys of its own on the servers that all tests share. Redis, when not empty, is the address of
// a server that the test does more with than use it.
func newShop(t testing.TB, redis string) *shop {
	t.Helper()
	if redis == "" {
		redis = sandbox.RedisAddr(t)
	}
	tokens := filepath.Join(t.TempDir(), "tokens.json")
	list, err := json.Marshal([]httpapi.Token{{
		Name: "shop", SHA256: httpapi.HashToken(shopToken), Scopes: []httpapi.Scope{httpapi.ScopeAdmin},
	}})
	if err == nil {
		err = os.WriteFile(tokens, list, 0o600)
	}
	if err != nil {
		t.Fatal(err)
	}
	return &shop{env: []string{
		"HOLDFAST_DATABASE_URL=" + sandbox.Database(t), "HOLDFAST_REDIS_URL=redis://" + redis, "HOLDFAST_TOKENS_FILE=" + tokens,
		"HOLDFAST_GATE_PREFIX=" + sandbox.Prefix(t), "HOLDFAST_ADMIN_ADDR=127.0.0.1:0", "HOLDFAST_ACCESS_LOG=false",
		"HOLDFAST_REQUEST_DEADLINE=20s", // a machine with too much to do keeps requests waiting for longer than a customer would
	}}
}

// instance is one process of the service. Its address stays the same when it is started again.
type instance struct {
	shop  *shop
	addr  string
	admin string
	cmd   *exec.Cmd
	guard io.Closer // ends the process if we die
	ended chan struct{}

	contract contract.Checker // of what it answers

	mu  sync.Mutex
	log bytes.Buffer // guarded by mu
}

// open starts a process that stops with the test. It fails the test if it does not stop in order, or logs an error.
func (s *shop) open(t testing.TB) *instance {
	t.Helper()
	i := &instance{shop: s, addr: "127.0.0.1:" + strconv.Itoa(freePort(t))}
	i.start(t)
	t.Cleanup(func() {
		if err := i.stop(); err != nil {
			t.Errorf("stop the service: %v", err)
		}
		for _, offence := range i.contract.Offences() {
			t.Error(offence)
		}
		i.mu.Lock()
		defer i.mu.Unlock()
		if t.Failed() || strings.Contains(i.log.String(), `"level":"ERROR"`) {
			t.Errorf("log of %s, its end:\n%s", i.addr, i.log.Bytes()[max(0, i.log.Len()-4<<10):])
		}
	})
	return i
}

// freePort is one below those that systems hand out by themselves: a client that calls a process that is gone must not be
// given its port.
func freePort(t testing.TB) int {
	t.Helper()
	for range 100 {
		port := 10_000 + rand.IntN(12_000)
		if l, err := net.Listen("tcp", "127.0.0.1:"+strconv.Itoa(port)); err == nil {
			_ = l.Close() // it was only to see that it is free
			return port
		}
	}
	t.Fatal("found no free port")
	return 0
}

// start the process and wait until it serves.
func (i *instance) start(t testing.TB) {
	t.Helper()
	i.cmd = exec.Command(builtCommand(t), "serve")
	i.cmd.Env = append(i.shop.env, "HOLDFAST_ADDR="+i.addr)
	stderr, err := i.cmd.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := i.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	if i.guard, err = guard(i.cmd.Process.Pid); err != nil {
		_ = i.cmd.Process.Kill()
		t.Fatal(err)
	}
	i.ended = make(chan struct{})
	serving := make(chan string, 1)
	go i.attend(stderr, serving)
	select {
	case i.admin = <-serving:
	case <-time.After(serviceLimit):
	}
	if i.admin == "" {
		i.kill()
		t.Fatalf("the service does not serve:\n%s", i.log.Bytes())
	}
}

// attend keeps what the process logs, and reaps it.
func (i *instance) attend(stderr io.Reader, serving chan<- string) {
	lines := bufio.NewScanner(stderr)
	for lines.Scan() {
		i.mu.Lock()
		i.log.Write(lines.Bytes())
		i.log.WriteByte('\n')
		i.mu.Unlock()
		var line struct {
			Msg   string `json:"msg"`
			Admin string `json:"admin_addr"`
		}
		if err := json.Unmarshal(lines.Bytes(), &line); err == nil && line.Msg == "serving" {
			serving <- line.Admin
		}
	}
	close(serving)
	_ = i.cmd.Wait()    // ProcessState says how it ended
	_ = i.guard.Close() // the process it guarded has ended
	close(i.ended)
}

// guard starts a shell that kills a process when we end before the returned closer was closed: then its standard input ends without a line.
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

// kill -9.
func (i *instance) kill() {
	_ = i.cmd.Process.Kill() // gone is fine
	<-i.ended
}

// stop in order; a process that has been killed is left as it is.
func (i *instance) stop() error {
	_ = i.cmd.Process.Signal(syscall.SIGTERM) // gone is fine
	select {
	case <-i.ended:
	case <-time.After(serviceLimit):
		i.kill()
		return errors.New("it had to be killed")
	}
	if state := i.cmd.ProcessState; !state.Success() && state.String() != "signal: killed" {
		return errors.New(state.String())
	}
	return nil
}

// api calls the process as the shop. Answers that the contract does not have fail the test when the process is stopped.
func (i *instance) api() *caller {
	c := newCaller("http://"+i.addr, shopToken)
	c.patience = serviceLimit
	c.http.Transport = i.contract.Transport(c.http.Transport)
	return c
}

// holdfast runs the command in this process against an instance and returns what it prints and its exit code.
func (i *instance) holdfast(ctx context.Context, args ...string) (stdout, stderr string, code int) {
	var out, errs bytes.Buffer
	code = run(ctx, append(args, i.flags()...), &out, &errs)
	return out.String(), errs.String(), code
}

// flags tell a command which service to call.
func (i *instance) flags() []string {
	return []string{"--url=http://" + i.addr, "--token=" + shopToken}
}

// runBuilt runs the command in a process of its own, as users do, with more in its environment than we have.
func runBuilt(ctx context.Context, t testing.TB, env []string, args ...string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := exec.CommandContext(ctx, builtCommand(t), args...)
	cmd.Env = append(os.Environ(), env...)
	var out, errs bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &errs
	if err := cmd.Run(); cmd.ProcessState == nil {
		t.Fatal(err)
	}
	return out.String(), errs.String(), cmd.ProcessState.ExitCode()
}

// metric reads the sum of a counter, or of one series of it, from the process' metrics.
func (i *instance) metric(t testing.TB, name string) float64 {
	t.Helper()
	a, err := newCaller("http://"+i.admin, "").send(t.Context(), request{method: "GET", path: "/metrics"})
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(a.body)) {
		if value, ok := strings.CutPrefix(strings.TrimSpace(line), name+" "); ok {
			n, err := strconv.ParseFloat(value, 64)
			if err != nil {
				t.Fatal(err)
			}
			return n
		}
	}
	t.Fatalf("there is no metric %s", name)
	return 0
}

// stockUp creates an item with units on hand.
func (i *instance) stockUp(t testing.TB, sku string, units int64) {
	t.Helper()
	api := i.api()
	if err := api.put(t.Context(), stockPath(sku, "", ""), map[string]any{}); err != nil {
		t.Fatal(err)
	}
	i.receive(t, sku, "first", units)
}

// receive more units; ref tells deliveries apart.
func (i *instance) receive(t testing.TB, sku, ref string, units int64) {
	t.Helper()
	body := map[string]any{"kind": "receive", "delta": units, "reference": ref}
	a, err := i.api().persist(t.Context(), adjustment(sku, keyOf("receive", sku, ref), body))
	if err == nil {
		err = a.must()
	}
	if err != nil {
		t.Fatal(err)
	}
}

// item reads an item's figures from the ledger.
func (i *instance) item(t testing.TB, sku string) item {
	t.Helper()
	a, err := i.api().persist(t.Context(), request{method: "GET", path: stockPath(sku, "", "default")})
	var found item
	if err == nil {
		err = a.read(&found)
	}
	if err != nil {
		t.Fatal(err)
	}
	return found
}
