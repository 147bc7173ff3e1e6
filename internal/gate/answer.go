package gate

import (
	"crypto/sha256"
	"encoding/binary"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Ticket names what one order part takes, in every process the same: a duplicate finds the ticket of the first.
type Ticket [16]byte

// TicketFor an order part of a client. Different parts have different tickets (SHA-256, cut to 128 bits, of the
// three texts, each preceded by its length).
func TicketFor(client, orderID, part string) Ticket {
	b := make([]byte, 0, 128)
	for _, text := range [...]string{client, orderID, part} {
		b = binary.AppendUvarint(b, uint64(len(text)))
		b = append(b, text...)
	}
	sum := sha256.Sum256(b)
	return Ticket(sum[:16])
}

// Verdict is what the gate says about a request. None of them is a promise: the ledger decides.
type Verdict uint8

const (
	// Bypassed: the gate says nothing, the ledger decides alone. [Answer.Reason] tells why. No ticket is left.
	Bypassed Verdict = iota
	// Granted: a ticket was written on every item. The caller goes on to the ledger, and calls [Gate.Drop]
	// with the ticket when the ledger has answered, whatever it said.
	Granted
	// Ample: so much is left, as of the last news in this process, that no ticket is needed. Nothing was
	// written. The caller goes on to the ledger.
	Ample
	// Shared: the order has a ticket already. Nothing was written. The caller goes on to the ledger, and must
	// not drop the ticket, which is another request's.
	Shared
	// Short: at least one item has too little left, as of figures confirmed with the ledger less than
	// [Freshness] ago. No ticket is left.
	Short
	// Limited: a customer would have too much of at least one item, as of figures like those of Short and what his other
	// requests are about to take. No ticket is left.
	Limited
	// UnknownItem: the ledger knows no such item, as of a look that began after the call. No ticket is left.
	UnknownItem

	verdicts
)

// String is the verdict's name in metrics and logs.
func (v Verdict) String() string {
	return [verdicts]string{"bypassed", "granted", "ample", "shared", "short", "limited", "unknown_item"}[v]
}

// Reason says why a request was [Bypassed].
type Reason uint8

const (
	NoReason     Reason = iota
	Closed              // the gate is closed
	Cancelled           // the caller gave up
	BreakerOpen         // a call failed a moment ago
	CallFailed          // the call did: time ran out, the connection broke, Redis refused
	QueueFull           // too many requests wait
	Crowded             // an item has all the tickets it may have
	NotConfirmed        // the ledger could not be asked
	Unsettled           // the gate's figures stayed older than the ledger's answer
	Optional            // an item the request may do without is not known
	Invalid             // no lines, or a quantity that is not positive

	reasons
)

// String is the reason's name in metrics and logs.
func (r Reason) String() string {
	return [reasons]string{"none", "closed", "cancelled", "breaker_open", "call_failed", "queue_full", "crowded",
		"not_confirmed", "unsettled", "optional", "invalid"}[r]
}

// Answer to a request.
type Answer struct {
	Verdict Verdict
	Reason  Reason              // why Bypassed
	Short   []stock.ShortLine   // every short line, in order, when Short
	Limited []stock.LimitLine   // every line of which the customer would have too much, in order, when Limited
	Unknown []stock.UnknownLine // every line of an unknown item, in order, when UnknownItem
}

// Terms of a request beside its lines.
type Terms struct {
	Partial  bool           // of each line what there is: it is short only if nothing is there
	Customer stock.Customer // whom it is for; his limit counts
	Limit    stock.Quantity // 0: none
}

func bypass(r Reason) Answer { return Answer{Verdict: Bypassed, Reason: r} }
