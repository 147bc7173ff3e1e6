package main

import (
	"context"
	"crypto/rand"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"text/template"
	"time"

	"github.com/holdfast-stock/holdfast/db"
	"github.com/holdfast-stock/holdfast/internal/httpapi"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

type devCommand struct {
	Addr      string `default:"127.0.0.1:8080" help:"Address of the API."`
	AdminAddr string `default:"127.0.0.1:9090" help:"Address of health, metrics and profiles."`
	Dir       string `default:".dev" help:"Where data, logs and the token are kept between runs."`
	Fresh     bool   `help:"Throw away what an earlier run left."`
	AccessLog bool   `help:"Log a line for each request into the log file."`
}

// devDatabase is the database's name in the private server.
const devDatabase = "holdfast"

// Run starts private servers and the service on them, until it is told to stop.
func (c *devCommand) Run(ctx context.Context, s streams) error {
	dir, err := filepath.Abs(c.Dir)
	if err != nil {
		return err
	}
	if c.Fresh {
		if err := os.RemoveAll(dir); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	postgres, err := sandbox.StartPostgres(ctx, sandbox.PostgresConfig{Dir: filepath.Join(dir, "postgres"), Progress: s.err})
	if err != nil {
		return err
	}
	defer stopServer(postgres)
	redis, err := sandbox.StartRedis(ctx, sandbox.RedisConfig{Dir: filepath.Join(dir, "redis"), Progress: s.err})
	if err != nil {
		return err
	}
	defer stopServer(redis)
	if err := postgres.CreateDatabase(ctx, devDatabase); err != nil {
		return err
	}
	if err := db.Migrate(ctx, postgres.URL(devDatabase)); err != nil {
		return err
	}
	token, err := devToken(dir)
	if err != nil {
		return err
	}
	logs, err := os.OpenFile(filepath.Join(dir, "holdfast.log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return err
	}
	defer logs.Close()
	cfg, err := defaultConfig(postgres.URL(devDatabase), "redis://"+redis.Addr(), filepath.Join(dir, "tokens.json"))
	if err != nil {
		return err
	}
	cfg.Addr, cfg.AdminAddr, cfg.AccessLog = c.Addr, c.AdminAddr, c.AccessLog
	return serve(ctx, cfg, logs, func(at addresses) error {
		if err := seed(ctx, at.api, token); err != nil {
			return err
		}
		return c.welcome(s, at, token, logs.Name(), postgres.URL(devDatabase), redis.Addr())
	})
}

// stopServer ends a private server within bounds; what it does not get done, the next start recovers.
func stopServer(server interface{ Stop(context.Context) error }) {
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := server.Stop(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "holdfast: stop a private server:", err)
	}
}

// devToken reads the token of an earlier run, or makes one that may do everything, and writes the token file.
func devToken(dir string) (string, error) {
	path := filepath.Join(dir, "token")
	text, err := os.ReadFile(path)
	token := strings.TrimSpace(string(text))
	if errors.Is(err, fs.ErrNotExist) {
		secret := make([]byte, 24)
		_, _ = rand.Read(secret) // it never fails
		token = base64.RawURLEncoding.EncodeToString(secret)
		err = os.WriteFile(path, []byte(token+"\n"), 0o600)
	}
	if err != nil {
		return "", err
	}
	list, err := json.MarshalIndent([]httpapi.Token{{
		Name: "dev", SHA256: httpapi.HashToken(token), Scopes: []httpapi.Scope{httpapi.ScopeAdmin},
	}}, "", "  ")
	if err != nil {
		return "", err
	}
	return token, os.WriteFile(filepath.Join(dir, "tokens.json"), list, 0o600)
}

var welcomeText = template.Must(template.New("welcome").Parse(`
Holdfast is up.

  API      http://{{.API}}        docs at http://{{.API}}/docs
  Admin    http://{{.Admin}}        /readyz /metrics
  Postgres {{.Postgres}}
  Redis    {{.Redis}}
  Log      {{.Log}}

Take two mugs for an order:

  curl -s http://{{.API}}/v1/deductions -H 'Authorization: Bearer {{.Token}}' \
    -H 'Content-Type: application/json' -H 'Idempotency-Key: order-1001' \
    -d '{"order_id": "1001", "lines": [{"sku": "MUG-WHITE", "quantity": 2}]}'

Ctrl-C stops everything; the data stays in {{.Dir}}.
`))

func (c *devCommand) welcome(s streams, at addresses, token, log, postgres, redis string) error {
	return welcomeText.Execute(s.out, map[string]string{
		"API": at.api, "Admin": at.admin, "Token": token, "Log": log, "Postgres": postgres, "Redis": redis, "Dir": c.Dir,
	})
}

// devItems are there to try the API on.
var devItems = []struct {
	sku    string
	onHand int
}{{"MUG-WHITE", 100}, {"TEAPOT-RED", 20}, {"LAMP/BRASS", 5}}

// seed creates a few items through the API. The keys make it harmless on data that has them already.
func seed(ctx context.Context, addr, token string) error {
	api := newCaller("http://"+addr, token)
	for _, item := range devItems {
		path := "/v1/stock/" + url.PathEscape(item.sku)
		exists, err := api.exists(ctx, path+"?location=default")
		if err != nil || exists {
			if err != nil {
				return fmt.Errorf("seed %s: %w", item.sku, err)
			}
			continue
		}
		if err := api.put(ctx, path, map[string]any{"safety_stock": 0}); err != nil {
			return fmt.Errorf("seed %s: %w", item.sku, err)
		}
		received := map[string]any{"kind": "receive", "delta": item.onHand, "reason": "first stock"}
		if err := api.post(ctx, path+"/adjustments", "seed:"+item.sku, received); err != nil {
			return fmt.Errorf("seed %s: %w", item.sku, err)
		}
	}
	return nil
}
