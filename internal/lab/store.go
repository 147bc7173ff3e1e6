package lab

import (
	"context"
	_ "embed"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/holdfast-stock/holdfast/db"
	"github.com/holdfast-stock/holdfast/internal/lock"
	"github.com/holdfast-stock/holdfast/internal/sandbox"
)

const storeDatabase = "lab"

//go:embed store.sql
var storeSchema string

// startStore starts the Postgres that experiments share, with the tables they write to beside those of the service.
func startStore(ctx context.Context, progress io.Writer) (*sandbox.Postgres, error) {
	server, err := sandbox.StartPostgres(ctx, sandbox.PostgresConfig{
		Settings: map[string]string{"shared_buffers": "64MB", "max_connections": "300"}, Progress: progress,
	})
	if err != nil {
		return nil, err
	}
	if err := prepareStore(ctx, server); err != nil {
		return nil, errors.Join(err, server.Stop(ctx))
	}
	return server, nil
}

func prepareStore(ctx context.Context, server *sandbox.Postgres) error {
	if err := server.CreateDatabase(ctx, storeDatabase); err != nil {
		return err
	}
	if err := db.Migrate(ctx, server.URL(storeDatabase)); err != nil {
		return err
	}
	pool, err := pgxpool.New(ctx, server.URL(storeDatabase))
	if err != nil {
		return err
	}
	defer pool.Close()
	if _, err := pool.Exec(ctx, storeSchema); err != nil {
		return fmt.Errorf("create the tables of the lab: %w", err)
	}
	return nil
}

// database is a pool or a transaction.
type database interface {
	Exec(ctx context.Context, sql string, arguments ...any) (pgconn.CommandTag, error)
}

// errStale: the store refused a write because its writer is not the newest holder, or did not see the newest state.
var errStale = errors.New("refused by the store: stale")

// register is one row that a lock is meant to guard, seen by one writer.
type register struct {
	pool   *pgxpool.Pool
	name   string
	writer string
}

// write overwrites whatever is there: what most code does under a lock.
func (r register) write(ctx context.Context) error {
	return r.accept(ctx, 0, `INSERT INTO register AS r (name, writer, version) VALUES ($1, $2, 1)
		ON CONFLICT (name) DO UPDATE SET writer = $2, version = r.version + 1`, r.name, r.writer)
}

// writeIfNotOlder refuses tokens that are smaller than the newest one written: not enough, see stale-first-write.
func (r register) writeIfNotOlder(ctx context.Context, token lock.Token) error {
	return r.accept(ctx, token, `INSERT INTO register AS r (name, writer, token, version) VALUES ($1, $2, $3, 1)
		ON CONFLICT (name) DO UPDATE SET writer = $2, token = $3, version = r.version + 1 WHERE r.token <= $3`,
		r.name, r.writer, int64(token))
}

// claim makes the token the newest one. Everything older is refused from then on.
func (r register) claim(ctx context.Context, token lock.Token) error {
	return r.guarded(ctx, r.pool, `INSERT INTO register AS r (name, token) VALUES ($1, $2)
		ON CONFLICT (name) DO UPDATE SET token = $2 WHERE r.token < $2`, r.name, int64(token))
}

// writeClaimed writes if the claimed token is still the newest, in one transaction.
func (r register) writeClaimed(ctx context.Context, token lock.Token) error {
	return r.accept(ctx, token, `UPDATE register SET writer = $2, version = version + 1 WHERE name = $1 AND token = $3`,
		r.name, r.writer, int64(token))
}

// version reads which state the register is in; 0 if nothing was ever written.
func (r register) version(ctx context.Context) (int64, error) {
	var version int64
	err := r.pool.QueryRow(ctx, `SELECT version FROM register WHERE name = $1`, r.name).Scan(&version)
	if errors.Is(err, pgx.ErrNoRows) {
		return 0, nil
	}
	return version, err
}

// writeIfUnchanged writes if the register is as seen: an optimistic lock.
func (r register) writeIfUnchanged(ctx context.Context, seen int64) error {
	return r.accept(ctx, 0, `INSERT INTO register AS r (name, writer, version) SELECT $1, $2, 1 WHERE $3::bigint = 0 OR EXISTS
		(SELECT 1 FROM register WHERE name = $1)
		ON CONFLICT (name) DO UPDATE SET writer = $2, version = r.version + 1 WHERE r.version = $3`, r.name, r.writer, seen)
}

// accept does a write and enters it in the list of accepted ones.
func (r register) accept(ctx context.Context, token lock.Token, statement string, args ...any) error {
	return pgx.BeginFunc(ctx, r.pool, func(tx pgx.Tx) error {
		if err := r.guarded(ctx, tx, statement, args...); err != nil {
			return err
		}
		_, err := tx.Exec(ctx, `INSERT INTO writes (name, writer, token) VALUES ($1, $2, $3)`, r.name, r.writer, int64(token))
		return err
	})
}

// guarded runs a statement that changes one row, or none if its guard does not hold.
func (r register) guarded(ctx context.Context, db database, statement string, args ...any) error {
	tag, err := db.Exec(ctx, statement, args...)
	if err != nil {
		return err
	}
	if tag.RowsAffected() == 0 {
		return errStale
	}
	return nil
}

// accepted lists who wrote, in order.
func (r register) accepted(ctx context.Context) ([]string, error) {
	rows, err := r.pool.Query(ctx, `SELECT writer FROM writes WHERE name = $1 ORDER BY id`, r.name)
	if err != nil {
		return nil, err
	}
	return pgx.CollectRows(rows, pgx.RowTo[string])
}

// store connects to the lab's database.
func (s *Stage) store(ctx context.Context) (*pgxpool.Pool, error) {
	url, err := s.Postgres(ctx)
	if err != nil {
		return nil, err
	}
	return s.Pool(ctx, url)
}

// left reads how much of the register's stock there is.
func (r register) left(ctx context.Context) (left int64, err error) {
	err = r.pool.QueryRow(ctx, `SELECT on_hand FROM stock WHERE name = $1`, r.name).Scan(&left)
	return left, err
}

// sell overwrites how much of the register's stock there is.
func (r register) sell(ctx context.Context, left int64) error {
	return r.accept(ctx, 0, `UPDATE stock SET on_hand = $2 WHERE name = $1`, r.name, left)
}

// migrated creates a database of this run with the tables of the service.
func (s *Stage) migrated(ctx context.Context) (url string, err error) {
	if _, err := s.Postgres(ctx); err != nil {
		return "", err
	}
	server := s.servers.postgres.server
	name := "lab_" + strings.ReplaceAll(s.Name(), "-", "_")
	if err := server.CreateDatabase(ctx, name); err != nil {
		return "", err
	}
	url = server.URL(name)
	return url, db.Migrate(ctx, url)
}
