package sandbox

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"net"
	"os"
	"path/filepath"

	"github.com/jackc/pgx/v5"
)

// StandbyConfig says how to run a standby of a Postgres server.
type StandbyConfig struct {
	PostgresConfig
	Name        string // application_name on the primary
	Via         string // address it replicates from, such as a proxy before the primary; empty: the primary itself
	Synchronous bool   // commits of the primary wait until this standby has synced them
}

// StartPostgresStandby runs a hot standby, made from a running primary, and returns when it streams from it.
func StartPostgresStandby(ctx context.Context, primary *Postgres, config StandbyConfig) (*Postgres, error) {
	if config.Via == "" {
		config.Via = primary.Addr()
	}
	host, port, err := net.SplitHostPort(config.Via)
	if err != nil {
		return nil, err
	}
	settings := map[string]string{
		"primary_conninfo": fmt.Sprintf("host=%s port=%s user=postgres application_name=%s", host, port, config.Name),
	}
	maps.Copy(settings, config.Settings)
	config.Settings = settings
	standby, err := startPostgres(ctx, config.PostgresConfig, func(p *Postgres) error { return p.copyOf(primary) })
	if err != nil {
		return nil, err
	}
	if err := primary.awaitStandby(ctx, config); err != nil {
		return nil, errors.Join(fmt.Errorf("standby %s: %w", config.Name, err), standby.Stop(context.WithoutCancel(ctx)))
	}
	return standby, nil
}

// copyOf makes the data directory of a standby if there is none: whole or not at all.
func (p *Postgres) copyOf(primary *Postgres) error {
	if _, err := os.Stat(p.data()); err == nil {
		return nil
	}
	return p.asOwner(func(work string) error {
		backup := filepath.Join(work, "data")
		run := p.runs("pg_basebackup", "-D", backup, "-d", primary.URL("postgres"), "--checkpoint=fast", "--no-sync")
		if err := run.run(); err != nil {
			return err
		}
		// What ALTER SYSTEM set on the primary is not for the standby: promoted, it would wait for standbys of its own.
		err := errors.Join(
			os.WriteFile(filepath.Join(backup, "standby.signal"), nil, 0o600),
			os.WriteFile(filepath.Join(backup, "postgresql.auto.conf"), nil, 0o600))
		if err != nil {
			return err
		}
		return p.adopt(backup)
	})
}

// awaitStandby waits until the primary streams to the standby, and makes commits wait for it if asked to.
func (p *Postgres) awaitStandby(ctx context.Context, config StandbyConfig) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	wanted := "async"
	if config.Synchronous {
		wanted = "sync"
		name := pgx.Identifier{config.Name}.Sanitize() // of a standby, quoted as an identifier is
		if _, err := conn.Exec(ctx, "ALTER SYSTEM SET synchronous_standby_names = '"+name+"'"); err != nil {
			return err
		}
		if _, err := conn.Exec(ctx, "SELECT pg_reload_conf()"); err != nil {
			return err
		}
	}
	return waitUntil(ctx, func() (streams bool, err error) {
		const query = `SELECT EXISTS (SELECT FROM pg_stat_replication
			WHERE application_name = $1 AND state = 'streaming' AND sync_state = $2)`
		err = conn.QueryRow(ctx, query, config.Name, wanted).Scan(&streams)
		return streams, err
	})
}

// Promote makes a standby a primary of its own, on a new timeline, with the data that it has: what a failover does.
// It returns when it takes writes.
func (p *Postgres) Promote(ctx context.Context) error {
	conn, err := pgx.Connect(ctx, p.URL("postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(context.WithoutCancel(ctx))
	var promoted bool
	if err := conn.QueryRow(ctx, "SELECT pg_promote(true, $1)", int(startLimit.Seconds())).Scan(&promoted); err != nil {
		return fmt.Errorf("promote: %w", err)
	}
	if !promoted {
		return errors.New("promote: not done in time")
	}
	return nil
}
