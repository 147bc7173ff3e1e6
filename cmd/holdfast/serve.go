package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"net/http"
	"os"
	"runtime/debug"
	"strings"
	"sync"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/db"
	"github.com/holdfast-stock/holdfast/internal/defect"
	"github.com/holdfast-stock/holdfast/internal/gate"
	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/inventory"
	"github.com/holdfast-stock/holdfast/internal/job"
	"github.com/holdfast-stock/holdfast/internal/ledger"
	"github.com/holdfast-stock/holdfast/internal/lock"
)

type serveCommand struct {
	Config config `embed:""`
}

// Run serves until it is told to stop.
func (c *serveCommand) Run(ctx context.Context, s streams) error {
	return serve(ctx, &c.Config, s.err, func(addresses) error { return nil })
}

// addresses are where a started service listens.
type addresses struct{ api, admin string }

// tuneRuntime trades memory for time. The live heap is a few megabytes, so at Go's default the collector would
// run many times a second and take a third of this process's time; the limit makes it run as often as it must
// once memory is really used. GOGC and GOMEMLIMIT, when set, are left alone.
func tuneRuntime() {
	if os.Getenv("GOGC") == "" {
		debug.SetGCPercent(800)
	}
	if os.Getenv("GOMEMLIMIT") == "" {
		debug.SetMemoryLimit(1 << 30)
	}
	uuid.EnableRandPool() // ids need to be unique, not secret
}

// service is everything a running service consists of.
type service struct {
	cfg    *config
	log    *slog.Logger
	access *slog.Logger          // of requests
	redis  redis.UniversalClient // nil: no gate
	stock  *inventory.Service
	locks  *lockBackends
	locker *lock.Locker[*lock.Fenced] // of jobs
	jobs   *job.Runner
	api    *httpapi.API
	http   *http.Server
	admin  *http.Server
}

// serve runs the service until ctx ends, then drains it: readiness off, requests under way finished, stores
// closed. started is called once it listens; its error ends the service.
func serve(ctx context.Context, cfg *config, logTo io.Writer, started func(addresses) error) error {
	if err := cfg.check(); err != nil {
		return err
	}
	tuneRuntime()
	buffer := httpapi.NewLogBuffer(logTo)
	var background sync.WaitGroup
	defer background.Wait()
	untilEnd, end := context.WithCancel(context.WithoutCancel(ctx))
	defer end()
	background.Go(func() { _ = buffer.Run(untilEnd, 100*time.Millisecond) })
	log := slog.New(slog.NewJSONHandler(buffer, &slog.HandlerOptions{Level: cfg.LogLevel}))
	access := log
	if !cfg.AccessLog {
		access = slog.New(slog.NewJSONHandler(buffer, &slog.HandlerOptions{Level: max(cfg.LogLevel, slog.LevelWarn)}))
	}
	redis.SetLogger(redisLog{log})

	clients, err := httpapi.OpenClients(cfg.TokensFile)
	if err != nil {
		return err
	}
	background.Go(func() { clients.Watch(untilEnd, 2*time.Second, log) })
	s := &service{cfg: cfg, log: log, access: access}
	if err := s.open(ctx, clients); err != nil {
		return err
	}
	defer s.close()
	return s.run(ctx, started)
}

// open checks the stores and wires the service.
func (s *service) open(ctx context.Context, clients *httpapi.Clients) error {
	cfg := s.cfg.inventory()
	if err := s.checkLedger(ctx); err != nil {
		return err
	}
	if err := defect.Start(ctx, s.cfg.Ledger.URL, s.log); err != nil {
		return err
	}
	if s.cfg.RedisURL != "" {
		client, err := gate.Dial(s.cfg.RedisURL)
		if err != nil {
			return fmt.Errorf("HOLDFAST_REDIS_URL: %w", err)
		}
		s.redis, cfg.Redis = client, client
		if err := s.checkGate(ctx); err != nil {
			return errors.Join(err, client.Close())
		}
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	cfg.Log, cfg.Registerer = s.log, registry
	var err error
	if s.locks, err = openLocks(ctx, &s.cfg.Locks, s.cfg.Ledger.URL, s.cfg.RedisURL, s.cfg.Jobs.Lease); err != nil {
		s.closeRedis()
		return err
	}
	if s.stock, err = inventory.Open(cfg); err != nil {
		s.closeRedis()
		return errors.Join(err, s.locks.Close())
	}
	if err := s.openJobs(registry); err != nil {
		s.stock.Close()
		s.closeRedis()
		return errors.Join(err, s.locks.Close())
	}
	s.api = httpapi.New(s.stock, httpapi.Config{
		Clients: clients, Log: s.access, Metrics: registry,
		Deadline: s.cfg.RequestDeadline, MaxInFlight: s.cfg.MaxInFlight, MaxPerClient: s.cfg.MaxPerClient,
	})
	s.http = httpapi.Server(s.cfg.Addr, s.api)
	admin := http.NewServeMux()
	admin.Handle("/", s.api.Admin(registry))
	admin.Handle("GET /locks", s.locks)
	admin.Handle("GET /jobs", s.jobs)
	s.admin = httpapi.Server(s.cfg.AdminAddr, admin)
	// What the servers themselves say is a line of JSON like all others.
	s.http.ErrorLog = slog.NewLogLogger(s.log.Handler(), slog.LevelWarn)
	s.admin.ErrorLog = s.http.ErrorLog
	return nil
}

// checkLedger waits for the ledger and refuses one that could lose what it acknowledged, or whose schema is old.
func (s *service) checkLedger(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, s.cfg.StartTimeout)
	defer cancel()
	var broken []string
	for {
		var err error
		if broken, err = ledger.Check(ctx, s.cfg.Ledger.URL); err == nil {
			break
		}
		s.log.Warn("the ledger cannot be asked yet", "error", err)
		select {
		case <-ctx.Done():
			return err
		case <-time.After(500 * time.Millisecond):
		}
	}
	if err := s.unsafe("Postgres", broken); err != nil {
		return err
	}
	migrations, err := db.Status(ctx, s.cfg.Ledger.URL)
	if err != nil {
		return err
	}
	for _, m := range migrations {
		if !m.Applied {
			return fmt.Errorf("the database lacks migration %s: run \"holdfast migrate up\" first", m.Name)
		}
	}
	return nil
}

// checkGate refuses a Redis that evicts. One that is out of reach is no reason not to start: the gate is
// bypassed until it is back.
func (s *service) checkGate(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, 2*time.Second)
	defer cancel()
	err := gate.CheckPolicy(ctx, s.redis)
	switch {
	case err == nil:
		return nil
	case errors.Is(err, gate.ErrEvicts):
		return s.unsafe("Redis", []string{err.Error()})
	}
	s.log.Warn("the gate's Redis cannot be asked, it is bypassed until it answers", "error", err)
	return nil
}

// unsafe refuses to start on a store that breaks promises, unless the operator said so.
func (s *service) unsafe(store string, broken []string) error {
	if len(broken) == 0 {
		return nil
	}
	if !s.cfg.AllowUnsafe {
		return fmt.Errorf("%s is not safe to start on: %s (HOLDFAST_ALLOW_UNSAFE=true starts all the same)", store, strings.Join(broken, "; "))
	}
	for _, sentence := range broken {
		s.log.Error("started on an unsafe store, as told", "store", store, "problem", sentence)
	}
	return nil
}

// run listens until ctx ends, then drains.
func (s *service) run(ctx context.Context, started func(addresses) error) error {
	var listen net.ListenConfig
	public, err := listen.Listen(ctx, "tcp", s.cfg.Addr)
	if err != nil {
		return fmt.Errorf("HOLDFAST_ADDR: %w", err)
	}
	private, err := listen.Listen(ctx, "tcp", s.cfg.AdminAddr)
	if err != nil {
		return errors.Join(fmt.Errorf("HOLDFAST_ADMIN_ADDR: %w", err), public.Close())
	}
	jobs, stopJobs := context.WithCancel(context.WithoutCancel(ctx))
	var working sync.WaitGroup
	working.Go(func() { s.jobs.Run(jobs) })
	defer working.Wait()
	defer stopJobs()
	failed := make(chan error, 3)
	go func() { failed <- s.http.Serve(public) }()
	go func() { failed <- s.admin.Serve(private) }()
	s.log.Info("serving", "addr", public.Addr().String(), "admin_addr", private.Addr().String())
	go func() {
		if err := started(addresses{public.Addr().String(), private.Addr().String()}); err != nil {
			failed <- err
		}
	}()

	select {
	case err := <-failed:
		return errors.Join(err, s.drain())
	case <-ctx.Done():
		return s.drain()
	}
}

// drain stops taking requests and finishes those under way. The admin listener goes last, so that whoever
// asks sees "not ready" until the end.
func (s *service) drain() error {
	s.log.Info("draining", "delay", s.cfg.DrainDelay.String())
	s.api.Drain()
	<-time.After(s.cfg.DrainDelay)
	ctx, cancel := context.WithTimeout(context.Background(), s.cfg.RequestDeadline+5*time.Second)
	defer cancel()
	err := errors.Join(s.http.Shutdown(ctx), s.admin.Shutdown(ctx))
	s.log.Info("stopped", "clean", err == nil)
	return err
}

func (s *service) close() {
	s.closeLocker()
	s.stock.Close()
	if err := s.locks.Close(); err != nil {
		s.log.Warn("close the locks", "error", err)
	}
	s.closeRedis()
}

func (s *service) closeRedis() {
	if s.redis != nil {
		_ = s.redis.Close() // nothing is left to send
	}
}

// redisLog takes in what the Redis client would print by itself, such as each failed dial. The gate logs once
// that it is bypassed, and once that it is back.
type redisLog struct{ log *slog.Logger }

// Printf implements the client's logger.
func (l redisLog) Printf(ctx context.Context, format string, args ...any) {
	l.log.DebugContext(ctx, "redis client", "message", fmt.Sprintf(format, args...))
}
