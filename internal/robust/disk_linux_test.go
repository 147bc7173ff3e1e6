//go:build chaos

package robust_test

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/jackc/pgerrcode"
	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"

	"github.com/holdfast-stock/holdfast/internal/robust"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

// TestNothingIsLostUnderFaultsOfTheDisk has a Postgres on a disk of its own, which runs full.
func TestNothingIsLostUnderFaultsOfTheDisk(t *testing.T) {
	if !*long {
		t.Skip("only with -long")
	}
	disk := t.TempDir()
	if err := syscall.Mount("holdfast", disk, "tmpfs", 0, "size=400m"); err != nil {
		t.Skip("no small disk can be mounted here, which takes root:", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(disk, 0); err != nil {
			t.Error(err)
		}
	})
	c := newChaos(t, sandbox.PostgresConfig{Dir: filepath.Join(disk, "postgres"), Settings: map[string]string{"max_wal_size": "64MB"}})
	full := breakage{name: "the disk of Postgres is full", lasts: 1500 * time.Millisecond, limit: afterMove, strike: func(c *chaos) func() { return c.fill(disk) }}
	var faults []robust.Fault
	for range *rounds {
		faults = append(faults, c.suffer(full))
	}
	c.conclude(faults)
}

// fill a disk until Postgres finds it full.
func (c *chaos) fill(disk string) func() {
	c.t.Helper()
	filler := filepath.Join(disk, "filler")
	file, err := os.Create(filler)
	c.must(err)
	for err == nil {
		_, err = file.Write(make([]byte, 1<<20))
	}
	if !errors.Is(err, syscall.ENOSPC) {
		c.t.Fatal("fill the disk:", err)
	}
	c.must(file.Close())
	c.runOut(disk)
	return func() {
		c.must(os.Remove(filler))
		c.restartPostgres() // without a disk it may have ended
		c.administer("DROP TABLE IF EXISTS junk")
	}
}

// runOut has Postgres write until it cannot.
func (c *chaos) runOut(disk string) {
	c.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	conn, err := pgx.Connect(ctx, c.url)
	c.must(err)
	defer conn.Close(ctx)
	_, err = conn.Exec(ctx, "CREATE TABLE IF NOT EXISTS junk (t text)")
	for err == nil {
		_, err = conn.Exec(ctx, "INSERT INTO junk SELECT repeat('x', 1000) FROM generate_series(1, 5000)")
	}
	// Where another session needed the space first, all end.
	var left syscall.Statfs_t
	c.must(syscall.Statfs(disk, &left))
	if said := new(pgconn.PgError); (!errors.As(err, &said) || said.Code != pgerrcode.DiskFull) && left.Bavail > 0 {
		c.t.Fatalf("%d blocks are left, and Postgres says: %v", left.Bavail, err)
	}
}
