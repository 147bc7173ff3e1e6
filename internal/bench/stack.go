package bench

import (
	"bufio"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/db"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// Database is the name of the database in the private server.
const Database = "holdfast"

// StackConfig says what to run.
type StackConfig struct {
	Executable string    // this program, which runs the services as "bench service" and "bench baseline"
	Dir        string    // where the ledger is kept; empty: a temporary one, removed at the end
	Progress   io.Writer // gets a line before something takes long
}

// Stack is a private Postgres and Redis and the services that run on them.
type Stack struct {
	Postgres *sandbox.Postgres
	Redis    *sandbox.Redis
	Token    string

	executable string
	dir        string // for what does not outlive the run
	data       string // for what may
	tokens     string
	children   []*child
}

// StartStack starts the stores, with an empty, migrated ledger unless the directory has one.
func StartStack(ctx context.Context, cfg StackConfig) (s *Stack, err error) {
	s = &Stack{executable: cfg.Executable}
	defer func() {
		if err != nil {
			err = errors.Join(err, s.Stop())
		}
	}()
	if s.dir, err = os.MkdirTemp("", "holdfast-bench-"); err != nil {
		return s, err
	}
	if s.data = cfg.Dir; s.data == "" {
		s.data = filepath.Join(s.dir, "data")
	}
	if err := os.MkdirAll(s.data, 0o755); err != nil {
		return s, err
	}
	postgres := sandbox.PostgresConfig{Dir: filepath.Join(s.data, "postgres"), Progress: cfg.Progress}
	if s.Postgres, err = sandbox.StartPostgres(ctx, postgres); err != nil {
		return s, err
	}
	if s.Redis, err = sandbox.StartRedis(ctx, sandbox.RedisConfig{Progress: cfg.Progress}); err != nil {
		return s, err
	}
	if err := s.Postgres.CreateDatabase(ctx, Database); err != nil {
		return s, err
	}
	if err := db.Migrate(ctx, s.DatabaseURL()); err != nil {
		return s, err
	}
	return s, s.makeToken()
}

// makeToken writes a token file with one token that may do everything.
func (s *Stack) makeToken() error {
	s.Token = rand.Text()
	sum := sha256.Sum256([]byte(s.Token))
	list, err := json.Marshal([]map[string]any{{
		"name": client, "sha256": hex.EncodeToString(sum[:]), "scopes": []string{"admin"},
	}})
	if err != nil {
		return err
	}
	s.tokens = filepath.Join(s.dir, "tokens.json")
	return os.WriteFile(s.tokens, list, 0o600)
}

// client is the name that the token has.
const client = "bench"

// DatabaseURL of the ledger.
func (s *Stack) DatabaseURL() string { return s.Postgres.URL(Database) }

// Stop ends everything that was started.
func (s *Stack) Stop() error {
	ctx, cancel := context.WithTimeout(context.Background(), time.Minute)
	defer cancel()
	var errs []error
	for _, child := range s.children {
		errs = append(errs, child.stop())
	}
	if s.Redis != nil {
		errs = append(errs, s.Redis.Stop(ctx))
	}
	if s.Postgres != nil {
		errs = append(errs, s.Postgres.Stop(ctx))
	}
	if s.dir != "" {
		errs = append(errs, os.RemoveAll(s.dir))
	}
	return errors.Join(errs...)
}

// Addresses are what a child prints, as JSON, when it serves.
type Addresses struct {
	API   string `json:"api"`
	Admin string `json:"admin,omitempty"` // of /metrics and profiles
}

// ServiceConfig says how Holdfast is run.
type ServiceConfig struct {
	Processes int // on the same stores
	NoGate    bool
	Env       []string // more variables, NAME=value
}

// StartService runs Holdfast. HOLDFAST_* variables that this process has hold for it too, unless they name stores or addresses.
func (s *Stack) StartService(cfg ServiceConfig) (*Service, error) {
	service := &Service{Target: Target{Token: s.Token}, API: true}
	env := slices.Clone(cfg.Env)
	if cfg.NoGate {
		env = append(env, "HOLDFAST_REDIS_URL=")
	}
	for range cfg.Processes {
		if err := s.start(service, env, "bench", "service"); err != nil {
			return nil, err
		}
	}
	return service, nil
}

// StartBaseline runs the baseline with a pool of so many sessions.
func (s *Stack) StartBaseline(sessions int) (*Service, error) {
	service := &Service{Target: Target{Token: s.Token}}
	return service, s.start(service, nil, "bench", "baseline", "--sessions="+strconv.Itoa(sessions))
}

// Stop ends the processes that were started for the service.
func (s *Service) Stop() error {
	var errs []error
	for _, child := range s.children {
		errs = append(errs, child.stop())
	}
	return errors.Join(errs...)
}

// child is a service in a process of its own, so that what it costs can be told apart.
type child struct {
	Addresses
	cmd     *exec.Cmd
	stdin   io.Closer
	log     *os.File
	stopped bool
}

// start adds a process to a service. The command must print its [Addresses] and end when its standard input does, which it also
// does when this process is killed: nothing is left behind.
func (s *Stack) start(service *Service, env []string, args ...string) error {
	log, err := os.OpenFile(filepath.Join(s.dir, "service.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	c := &child{cmd: exec.Command(s.executable, args...), log: log}
	c.cmd.Env = append(c.cmd.Environ(), "HOLDFAST_ADDR=127.0.0.1:0", "HOLDFAST_ADMIN_ADDR=127.0.0.1:0",
		"HOLDFAST_DATABASE_URL="+s.DatabaseURL(), "HOLDFAST_REDIS_URL=redis://"+s.Redis.Addr(), "HOLDFAST_TOKENS_FILE="+s.tokens)
	c.cmd.Env = append(c.cmd.Env, env...)
	c.cmd.Stderr = log
	if err := c.start(); err != nil {
		text, _ := os.ReadFile(log.Name()) // without it, the error must do
		return errors.Join(fmt.Errorf("start the service: %w; the end of its log:\n%s", err, text[max(0, len(text)-2000):]), c.stop())
	}
	s.children = append(s.children, c)
	service.children = append(service.children, c)
	service.Addrs = append(service.Addrs, c.API)
	if c.Admin != "" {
		service.Admins = append(service.Admins, c.Admin)
	}
	service.Pids = append(service.Pids, c.cmd.Process.Pid)
	return nil
}

// start runs the child and waits for its addresses.
func (c *child) start() error {
	stdin, err := c.cmd.StdinPipe()
	if err != nil {
		return err
	}
	c.stdin = stdin
	stdout, err := c.cmd.StdoutPipe()
	if err != nil {
		return err
	}
	if err := c.cmd.Start(); err != nil {
		return err
	}
	line, err := bufio.NewReader(stdout).ReadBytes('\n')
	if err != nil {
		return err
	}
	return json.Unmarshal(line, &c.Addresses)
}

// stop asks the child to end and waits until it has.
func (c *child) stop() error {
	if c.stopped {
		return nil
	}
	c.stopped = true
	var errs []error
	if c.stdin != nil {
		_ = c.stdin.Close() // the child may be gone
	}
	if c.cmd.Process != nil {
		errs = append(errs, c.cmd.Wait())
	}
	return errors.Join(append(errs, c.log.Close())...)
}

// SetCommitDelay makes each flush of Postgres take longer, by at most 100 ms; 0: as fast as it is.
func (s *Stack) SetCommitDelay(ctx context.Context, delay time.Duration) error {
	conn, err := pgx.Connect(ctx, s.DatabaseURL())
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	want := strconv.FormatInt(delay.Microseconds(), 10)
	for _, statement := range []string{
		"ALTER SYSTEM SET commit_siblings = 0", // or a session that commits alone would not be delayed
		"ALTER SYSTEM SET commit_delay = " + want,
		"SELECT pg_reload_conf()",
	} {
		if _, err := conn.Exec(ctx, statement); err != nil {
			return err
		}
	}
	ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for { // sessions take it over when the server has told them
		var got string
		err := conn.QueryRow(ctx, "SELECT current_setting('commit_delay')").Scan(&got)
		if err != nil || got == want {
			return err
		}
	}
}
