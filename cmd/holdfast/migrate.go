package main

import (
	"context"
	"fmt"

	"github.com/holdfast-stock/holdfast/db"
)

type migrateCommand struct {
	Up     migrateUp     `cmd:"" help:"Bring the database to the newest schema. Several may be started at once."`
	Status migrateStatus `cmd:"" help:"List the steps of the schema; exit code 1 when some are missing."`
}

type migrateUp struct {
	Ledger ledgerAddress `embed:""`
}

// Run applies what is missing.
func (c *migrateUp) Run(ctx context.Context, s streams) error {
	if err := db.Migrate(ctx, c.Ledger.URL); err != nil {
		return err
	}
	fmt.Fprintln(s.out, "the schema is up to date")
	return nil
}

type migrateStatus struct {
	Ledger ledgerAddress `embed:""`
}

// Run lists the steps.
func (c *migrateStatus) Run(ctx context.Context, s streams) error {
	migrations, err := db.Status(ctx, c.Ledger.URL)
	if err != nil {
		return err
	}
	missing := false
	for _, m := range migrations {
		state := "applied"
		if !m.Applied {
			state, missing = "missing", true
		}
		fmt.Fprintf(s.out, "%-8s %s\n", state, m.Name)
	}
	if missing {
		return errNo
	}
	return nil
}
