// Package gate tells requests that cannot succeed so, before they reach the ledger.
//
// The ledger is the authority. The gate may only refuse: what it grants is a ticket, which keeps the units from
// other requests at the gate for a moment and promises nothing.
package gate
