// Package db is the schema: the migrations, and the queries that internal/ledger is generated from.
package db

import (
	"context"
	"database/sql"
	"embed"
	"fmt"
	"io/fs"

	_ "github.com/jackc/pgx/v5/stdlib" // the driver that goose needs
	"github.com/pressly/goose/v3"
	"github.com/pressly/goose/v3/lock"
)

//go:embed migrations/*.sql
var files embed.FS

// Migration is one step of the schema and whether a database has it.
type Migration struct {
	Version int64
	Name    string
	Applied bool
}

// Migrate brings the database at url to the newest schema. Starters that run at the same time wait for each
// other on a session advisory lock; each step runs in a transaction of its own.
func Migrate(ctx context.Context, url string) error {
	return withProvider(url, func(p *goose.Provider) error {
		_, err := p.Up(ctx)
		return err
	})
}

// Status lists every migration known to this build, oldest first.
func Status(ctx context.Context, url string) ([]Migration, error) {
	var list []Migration
	err := withProvider(url, func(p *goose.Provider) error {
		states, err := p.Status(ctx)
		for _, s := range states {
			list = append(list, Migration{s.Source.Version, s.Source.Path, s.State == goose.StateApplied})
		}
		return err
	})
	return list, err
}

func withProvider(url string, use func(*goose.Provider) error) error {
	conn, err := sql.Open("pgx", url)
	if err != nil {
		return fmt.Errorf("open database: %w", err)
	}
	defer conn.Close()
	migrations, err := fs.Sub(files, "migrations")
	if err != nil {
		return err
	}
	locker, err := lock.NewPostgresSessionLocker()
	if err != nil {
		return err
	}
	provider, err := goose.NewProvider(goose.DialectPostgres, conn, migrations, goose.WithSessionLocker(locker))
	if err != nil {
		return fmt.Errorf("read migrations: %w", err)
	}
	if err := use(provider); err != nil {
		return fmt.Errorf("migrate: %w", err)
	}
	return nil
}
