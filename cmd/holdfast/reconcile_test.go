package main

import (
	"bytes"
	"context"
	"encoding/json"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5"
)

// reconcile runs the command against a shop's stores.
func (s *shop) reconcile(t *testing.T, args ...string) (stdout string, code int) {
	t.Helper()
	args = append([]string{"reconcile"}, args...)
	for _, setting := range s.env {
		name, value, _ := strings.Cut(setting, "=")
		switch name {
		case "HOLDFAST_DATABASE_URL":
			args = append(args, "--database-url="+value)
		case "HOLDFAST_REDIS_URL":
			args = append(args, "--redis-url="+value)
		case "HOLDFAST_GATE_PREFIX":
			args = append(args, "--gate-prefix="+value)
		}
	}
	var out, errs bytes.Buffer
	if code = run(t.Context(), args, &out, &errs); code != exitFine && code != exitNo {
		t.Fatal(errs.String())
	}
	return out.String(), code
}

func TestReconcileAndExplainCommands(t *testing.T) {
	t.Parallel()
	s := newShop(t, "")
	i := s.open(t)
	i.stockUp(t, "mug", 5)
	stdout, stderr, code := i.holdfast(t.Context(), "explain", "mug")
	if code != exitFine || !strings.Contains(stdout, "5 available = 5 on hand") || !strings.Contains(stdout, "receive") {
		t.Errorf("exit code %d: %s%s", code, stdout, stderr)
	}
	if _, stderr, code = i.holdfast(t.Context(), "explain", "cup"); code != exitNo || !strings.Contains(stderr, "Not found") {
		t.Errorf("exit code %d: %s", code, stderr)
	}
	if stdout, code = s.reconcile(t); code != exitFine || !strings.Contains(stdout, "1 items, 1 movements, 0 counts of customers and 1 keys checked: 0 findings") {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	if err := i.stop(); err != nil { // it would log what comes now
		t.Fatal(err)
	}
	conn, err := pgx.Connect(t.Context(), strings.TrimPrefix(s.env[0], "HOLDFAST_DATABASE_URL="))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close(context.Background())
	if _, err := conn.Exec(t.Context(), "UPDATE items SET on_hand = 6"); err != nil {
		t.Fatal(err)
	}
	if stdout, code = s.reconcile(t, "--repair", "--json"); code != exitNo {
		t.Errorf("exit code %d: %s", code, stdout)
	}
	var report struct{ Findings []found }
	if err := json.Unmarshal([]byte(stdout), &report); err != nil || len(report.Findings) == 0 || report.Findings[0].Rule != "movements-add-up" {
		t.Errorf("%v: %s", err, stdout)
	}
}
