//go:build defects

package defect

import (
	"context"
	"fmt"
	"log/slog"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"syscall"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
)

// chosen is the defect of this process; empty: none.
var chosen = Name(os.Getenv("HOLDFAST_DEFECT"))

// On reports whether a defect is switched on.
func On(n Name) bool { return n == chosen }

var lateNews = os.Getenv("HOLDFAST_LATE_NEWS") != ""

// LateNews reports whether the gate is told everything a second time, late, as a network may have it. It is no defect: a gate that looks at
// versions does not mind.
func LateNews() bool { return lateNews }

// Start says loudly what this build is, and takes what would stop the defect out of the database. It must not be called before the
// database is migrated, and refuses a defect that there is none of.
func Start(ctx context.Context, databaseURL string, log *slog.Logger) error {
	if failing.err != nil {
		return failing.err
	}
	if chosen != "" && !slices.Contains(All(), chosen) {
		return fmt.Errorf("HOLDFAST_DEFECT: there is no defect %q, but %q", chosen, All())
	}
	log.Error("THIS BUILD IS WRONG ON PURPOSE: it is for tests only, never run it on anything of worth", "defect", string(chosen))
	if len(schema[chosen]) == 0 {
		return nil
	}
	conn, err := pgx.Connect(ctx, databaseURL)
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	return pgx.BeginFunc(ctx, conn, func(tx pgx.Tx) error {
		// Several processes start at once.
		for _, statement := range append([]string{"SELECT pg_advisory_xact_lock(7)"}, schema[chosen]...) {
			if _, err := tx.Exec(ctx, statement); err != nil {
				return fmt.Errorf("%s: %w", statement, err)
			}
		}
		return nil
	})
}

// failing is the point where this process ends or stops.
var failing = parseFailpoint(os.Getenv("HOLDFAST_FAILPOINT"))

type failpoint struct {
	point  Point
	signal syscall.Signal
	left   atomic.Int64 // passages until then
	err    error
}

func parseFailpoint(text string) *failpoint {
	f := new(failpoint)
	if text == "" {
		return f
	}
	var how string
	var passage int64
	if _, err := fmt.Sscanf(text, "%s %s %d", &f.point, &how, &passage); err != nil {
		f.err = fmt.Errorf("HOLDFAST_FAILPOINT %q: %w", text, err)
		return f
	}
	f.left.Store(passage)
	f.signal = map[string]syscall.Signal{"kill": syscall.SIGKILL, "stop": syscall.SIGSTOP}[how]
	if f.signal == 0 || !slices.Contains(Points(), f.point) {
		f.err = fmt.Errorf("HOLDFAST_FAILPOINT %q: it must be kill or stop at one of %q", text, Points())
	}
	return f
}

// Reach ends or stops the process if this is where it is to be.
func Reach(p Point) {
	if p == failing.point && failing.left.Add(-1) == 0 {
		_ = syscall.Kill(os.Getpid(), failing.signal) // ourselves are always there
		if failing.signal == syscall.SIGKILL {
			select {} // not one step further
		}
	}
}

// What keeps a defect from showing is taken out of the database. Lookups keep an index.
var (
	noChecks = []string{
		"ALTER TABLE items DROP CONSTRAINT IF EXISTS items_on_hand_not_negative",
		"ALTER TABLE items DROP CONSTRAINT IF EXISTS items_held_not_negative",
		"ALTER TABLE items DROP CONSTRAINT IF EXISTS items_held_within_on_hand",
		"ALTER TABLE deduction_lines DROP CONSTRAINT IF EXISTS deduction_lines_add_up",
	}
	noNames = []string{
		"ALTER TABLE operations DROP CONSTRAINT IF EXISTS operations_pkey",
		"CREATE INDEX IF NOT EXISTS operations_defect ON operations (client, key)",
		"DROP INDEX IF EXISTS deductions_live_key",
		"CREATE INDEX IF NOT EXISTS deductions_live_defect ON deductions (client, order_id, part)",
	}
	schema = map[Name][]string{
		NoVersionCheck: append([]string{
			"ALTER TABLE movements DROP CONSTRAINT IF EXISTS movements_pkey",
			"CREATE INDEX IF NOT EXISTS movements_defect ON movements (item_id, version)",
		}, noChecks...),
		IgnoreKey: noNames,
		DoubleApply: append([]string{
			"ALTER TABLE deductions DROP CONSTRAINT IF EXISTS deductions_pkey",
			"CREATE INDEX IF NOT EXISTS deductions_defect ON deductions (id)",
			"ALTER TABLE deduction_lines DROP CONSTRAINT IF EXISTS deduction_lines_pkey",
			"CREATE INDEX IF NOT EXISTS deduction_lines_defect ON deduction_lines (deduction_id, line_no)",
		}, noNames...),
		SweepWithoutGuard: noChecks,
	}
)

// rewrite is a change of a statement or a script, which must fit: a defect that no longer does anything would be "found" by nobody.
type rewrite struct {
	statement string // by its sqlc name
	pattern   *regexp.Regexp
	by        string
}

func change(statement, pattern, by string) rewrite {
	return rewrite{statement, regexp.MustCompile(pattern), by}
}

func (r rewrite) apply(text string) string {
	if !r.pattern.MatchString(text) {
		panic(fmt.Sprintf("defect %s: nothing in %s is like %s", chosen, r.statement, r.pattern))
	}
	return r.pattern.ReplaceAllString(text, r.by)
}

var statements = map[Name][]rewrite{
	NoVersionCheck: {
		change("WriteBatch", `i\.version = c\.version\b`, `true`),
		change("WriteDeducts", `i\.version = c\.version\b`, `true`),
		change("WriteOne", `i\.version = (\$\d+)::bigint`, `$1::bigint IS NOT NULL`),
	},
	SweepWithoutGuard: {
		change("ListDue", `AND expires_at <= clock_timestamp\(\)`, ``),
		change("WriteBatch", `d\.revision = c\.revision\b`, `(d.revision = c.revision OR c.guard = 'due')`),
		change("WriteBatch", `WHEN 'due' THEN d\.expires_at <= clock_timestamp\(\)`, `WHEN 'due' THEN true`),
	},
}

// SQL returns db with the defect in its statements.
func SQL(db Statements) Statements {
	if len(statements[chosen]) == 0 {
		return db
	}
	return broken{db}
}

type broken struct{ db Statements }

func (b broken) Exec(ctx context.Context, sql string, args ...any) (pgconn.CommandTag, error) {
	return b.db.Exec(ctx, mutated(sql), args...)
}

func (b broken) Query(ctx context.Context, sql string, args ...any) (pgx.Rows, error) {
	return b.db.Query(ctx, mutated(sql), args...)
}

func (b broken) QueryRow(ctx context.Context, sql string, args ...any) pgx.Row {
	return b.db.QueryRow(ctx, mutated(sql), args...)
}

func mutated(sql string) string {
	for _, r := range statements[chosen] {
		if strings.HasPrefix(sql, "-- name: "+r.statement+" ") {
			sql = r.apply(sql)
		}
	}
	return sql
}

// Lua returns the gate's script with the defect in it.
func Lua(script string) string {
	for _, r := range scripts[chosen] {
		script = r.apply(script)
	}
	return script
}

var scripts = map[Name][]rewrite{
	SettleWithoutVersion: {
		change("gate.lua", `elseif e < epoch\[i\][^\n]*\n\s*return\n`, ""),
		change("gate.lua", `local at = now - age`, `local at = now`),
	},
	SettleAdds: {
		change("gate.lua", `epoch\[i\], version\[i\], available\[i\], confirmed\[i\] = e, v, a, at`,
			`epoch[i], version[i], available[i], confirmed[i] = e, v, a + (available[i] or 0), at`),
	},
}
