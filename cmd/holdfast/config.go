package main

import (
	"errors"
	"fmt"
	"log/slog"
	"net/url"
	"time"

	"github.com/alecthomas/kong"
	"github.com/jackc/pgx/v5"

	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	numbers "github.com/holdfast-stock/holdfast/internal/number"
)

// config of the service. Units and defaults are in each field's help; check refuses impossible values.
type config struct {
	Addr       string        `env:"HOLDFAST_ADDR" default:":8080" help:"Address of the API."`
	AdminAddr  string        `env:"HOLDFAST_ADMIN_ADDR" default:"127.0.0.1:9090" help:"Address of health, metrics and profiles. Keep it private."`
	Ledger     ledgerAddress `embed:""`
	RedisURL   string        `env:"HOLDFAST_REDIS_URL" help:"Redis of the gate: redis://…, or redis+cluster://…. None: no gate, the ledger decides everything."`
	TokensFile string        `env:"HOLDFAST_TOKENS_FILE" help:"File of the tokens that may call." required:""`

	LogLevel  slog.Level `env:"HOLDFAST_LOG_LEVEL" default:"INFO" help:"DEBUG, INFO, WARN or ERROR."`
	AccessLog bool       `env:"HOLDFAST_ACCESS_LOG" default:"true" negatable:"" help:"Log a line for each request."`

	RequestDeadline time.Duration `env:"HOLDFAST_REQUEST_DEADLINE" default:"5s" help:"How long a request may take; 100ms to 1m."`
	MaxInFlight     int           `env:"HOLDFAST_MAX_IN_FLIGHT" default:"2048" help:"Requests under way at once; more get 503."`
	MaxPerClient    int           `env:"HOLDFAST_MAX_PER_CLIENT" default:"1024" help:"Requests of one client under way at once; more get 429."`
	LedgerSessions  int           `env:"HOLDFAST_LEDGER_SESSIONS" default:"2" help:"Postgres sessions that write batches; 1 to 16. More make batches smaller, not the service faster."`
	ReadSessions    int           `env:"HOLDFAST_READ_SESSIONS" default:"8" help:"Postgres sessions that answer reads; 1 to 256."`
	GateTimeout     time.Duration `env:"HOLDFAST_GATE_TIMEOUT" default:"100ms" help:"How long one call of the gate may take before it is bypassed; 5ms to 5s."`
	GatePrefix      string        `env:"HOLDFAST_GATE_PREFIX" default:"holdfast" help:"Prefix of the gate's keys; installations that share a Redis need one each."`
	GateAmple       int           `env:"HOLDFAST_GATE_AMPLE" default:"1000" help:"How many requests like one must fit into what is left for it to need no ticket, since nothing would be refused. Negative: every request takes one."`
	Sweep           time.Duration `env:"HOLDFAST_SWEEP" default:"1s" help:"How often expired holds are released; answers do not wait for it. Negative: never."`
	Reconcile       time.Duration `env:"HOLDFAST_RECONCILE" default:"1s" help:"How often a step of the continuous check of ledger and gate is made. Negative: never."`

	Numbers      string `env:"HOLDFAST_NUMBERS" enum:"segments,snowflakes" default:"segments" help:"How deductions are numbered: segments (short, by blocks of a counter) or snowflakes (by time)."`
	NumberWorker int    `env:"HOLDFAST_NUMBER_WORKER" default:"0" help:"This process's worker of the snowflakes, where you number them: 1 to 31, one a process. 0: leased from the ledger."`

	Locks lockConfig `embed:""`
	Jobs  jobsConfig `embed:"" prefix:"jobs-"`

	DrainDelay   time.Duration `env:"HOLDFAST_DRAIN_DELAY" default:"0s" help:"How long to go on serving after readiness is off, for load balancers to notice; up to 1m."`
	StartTimeout time.Duration `env:"HOLDFAST_START_TIMEOUT" default:"30s" help:"How long to wait for the ledger at start; 1s to 10m."`
	AllowUnsafe  bool          `env:"HOLDFAST_ALLOW_UNSAFE" help:"Start although a store is set up so that it can lose what was acknowledged; it is logged at each start."`
}

// check refuses impossible values, all of them at once.
func (c *config) check() error {
	var wrong []error
	within := func(name string, value, low, high time.Duration) {
		if value < low || value > high {
			wrong = append(wrong, fmt.Errorf("%s is %v: it must be %v to %v", name, value, low, high))
		}
	}
	count := func(name string, value, most int) {
		if value < 1 || value > most {
			wrong = append(wrong, fmt.Errorf("%s is %d: it must be 1 to %d", name, value, most))
		}
	}
	within("HOLDFAST_REQUEST_DEADLINE", c.RequestDeadline, 100*time.Millisecond, time.Minute)
	within("HOLDFAST_GATE_TIMEOUT", c.GateTimeout, 5*time.Millisecond, 5*time.Second)
	within("HOLDFAST_DRAIN_DELAY", c.DrainDelay, 0, time.Minute)
	within("HOLDFAST_START_TIMEOUT", c.StartTimeout, time.Second, 10*time.Minute)
	count("HOLDFAST_MAX_IN_FLIGHT", c.MaxInFlight, 100_000)
	count("HOLDFAST_MAX_PER_CLIENT", c.MaxPerClient, 100_000)
	count("HOLDFAST_LEDGER_SESSIONS", c.LedgerSessions, 16)
	count("HOLDFAST_READ_SESSIONS", c.ReadSessions, 256)
	if c.NumberWorker < 0 || c.NumberWorker >= numbers.Workers {
		wrong = append(wrong, fmt.Errorf("HOLDFAST_NUMBER_WORKER is %d: it must be 0 to %d", c.NumberWorker, numbers.Workers-1))
	}
	if err := c.Locks.check(); err != nil {
		wrong = append(wrong, err)
	}
	if c.GateAmple == 0 {
		wrong = append(wrong, errors.New("HOLDFAST_GATE_AMPLE is 0: it must be positive, or negative for never"))
	}
	if c.Sweep == 0 {
		wrong = append(wrong, errors.New("HOLDFAST_SWEEP is 0: it must be positive, or negative for never"))
	}
	if c.Reconcile == 0 {
		wrong = append(wrong, errors.New("HOLDFAST_RECONCILE is 0: it must be positive, or negative for never"))
	}
	return errors.Join(append(wrong, c.Jobs.check())...)
}

// inventory is the part of the configuration that the stores need.
func (c *config) inventory() inventory.Config {
	return inventory.Config{
		Ledger: ledger.Config{
			URL: c.Ledger.URL, Writers: c.LedgerSessions, Readers: c.ReadSessions,
			Patience:   c.RequestDeadline * 4 / 5, // a batch is given up before its callers are
			Snowflakes: c.Numbers == "snowflakes", Worker: c.NumberWorker,
		},
		Gate: gate.Config{
			CallTimeout: c.GateTimeout, Prefix: c.GatePrefix, TicketLife: c.RequestDeadline + time.Second, Ample: c.GateAmple,
		},
		Reconcile: c.Reconcile,
	}
}

// defaultConfig is the configuration with every default, as if only these three were set.
func defaultConfig(database, redis, tokens string) (*config, error) {
	var c config
	parser, err := kong.New(&c)
	if err != nil {
		return nil, err
	}
	_, err = parser.Parse([]string{"--database-url=" + database, "--redis-url=" + redis, "--tokens-file=" + tokens})
	return &c, err
}

// ledgerAddress is where the ledger is, for every command that goes to it by itself.
type ledgerAddress struct {
	URL string `name:"database-url" env:"HOLDFAST_DATABASE_URL" required:"" help:"Postgres of the ledger, postgres://…"`
}

// Validate refuses an address that cannot be read before anybody tries to: the errors of libraries repeat it, or the part that they stumbled
// over, and that may be the password.
func (a ledgerAddress) Validate() error {
	_, err := pgx.ParseConfig(a.URL)
	if err == nil {
		return nil
	}
	cause := errors.Unwrap(err) // without the address
	if _, unreadable := url.Parse(a.URL); cause == nil || unreadable != nil {
		cause = errors.New("it must be postgres://user:password@host:port/name, with special characters percent-encoded")
	}
	return fmt.Errorf("HOLDFAST_DATABASE_URL cannot be read: %w", cause)
}
