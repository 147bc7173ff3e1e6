// Package ledger is what is true: every table, every transaction, every idempotency key.
package ledger
