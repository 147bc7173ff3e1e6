package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// Failures that the HTTP layer finds itself. Each has a row in [problems], as those of package stock have.
var (
	errMalformed        = errors.New("malformed request")
	errKeyMissing       = errors.New("no idempotency key")
	errDuplicateHeader  = errors.New("a header is there twice")
	errUnauthenticated  = errors.New("not authenticated")
	errForbidden        = errors.New("not allowed")
	errNoRoute          = errors.New("no such path")
	errMethodNotAllowed = errors.New("the path does not have this method")
	errTooLarge         = errors.New("body too large")
	errMediaType        = errors.New("unsupported media type")
	errHeadersTooLarge  = errors.New("headers too large")
	errRateLimited      = errors.New("too many requests of one client under way")
	errInternal         = errors.New("internal error")
)

// typePrefix makes a problem's name its type: a URI that is stable and needs no host to answer for it.
const typePrefix = "urn:holdfast:problem:"

// What sending the same request again is good for.
const (
	retrySameKey = "same-key" // may succeed, and is safe
	retryAfter   = "after"    // the same, once Retry-After is over
	retryNewKey  = "new-key"  // not under this key
	retryNever   = "never"    // refused however often
)

// Whether the request had its effect.
const (
	outcomeNone    = "none"
	outcomeUnknown = "unknown"
)

// problem is a row of the error table: what one kind of failure looks like to a client.
type problem struct {
	cause   error  // compared with [errors.Is]
	name    string // of its type, and the label in logs and metrics
	status  int
	title   string
	detail  string // when the error itself carries nothing to say
	outcome string
	retry   string
	seconds int // of Retry-After; 0: no such header
}

// problems is the one error table. The first row that matches counts; the last matches everything. The
// refusals a busy service gives most come first.
func problems() []problem {
	return []problem{
		{
			stock.ErrInsufficientStock, "insufficient-stock", http.StatusConflict, "Not enough stock",
			"Some lines ask for more than is available.", outcomeNone, retrySameKey, 0,
		},
		{
			stock.ErrOverloaded, "overloaded", http.StatusServiceUnavailable, "Too much work is waiting",
			"Nothing was done. Send the same request again later.", outcomeNone, retryAfter, 1,
		},
		{
			errRateLimited, "rate-limited", http.StatusTooManyRequests, "Too many requests under way",
			"This client has as many requests under way as it may have.", outcomeNone, retryAfter, 1,
		},
		{
			stock.ErrUnknownItem, "unknown-item", http.StatusUnprocessableEntity, "An item does not exist",
			"Some lines name an item that does not exist.", outcomeNone, retrySameKey, 0,
		},
		{
			stock.ErrOrderAlreadyDeducted, "order-already-deducted", http.StatusConflict,
			"The order has a live deduction already",
			"Another key took or holds stock for this order and part.", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrKeyReused, "idempotency-key-reused", http.StatusUnprocessableEntity,
			"The key belongs to a different request",
			"This idempotency key was used for a request with other input.", outcomeNone, retryNewKey, 0,
		},
		{
			stock.ErrKeyVoided, "idempotency-key-voided", http.StatusConflict, "The key was voided",
			"Nothing will ever be done under this idempotency key.", outcomeNone, retryNewKey, 0,
		},
		{
			stock.ErrRequestInProgress, "request-in-progress", http.StatusConflict,
			"A request with this key is in progress",
			"Send the same request again to learn how it ended.", outcomeUnknown, retryAfter, 1,
		},
		{
			stock.ErrHoldExpired, "hold-expired", http.StatusConflict, "The hold has expired",
			"Its units are available to others again.", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrWrongState, "wrong-state", http.StatusConflict, "The deduction's state does not allow this",
			"", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrReturnExceeds, "return-exceeds-deducted", http.StatusConflict, "More than there is",
			"Some lines name more than the deduction has left of them.", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrNotFound, "not-found", http.StatusNotFound, "Not found",
			"There is nothing under this name.", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrInvalidField, "invalid-field", http.StatusUnprocessableEntity, "A value is not allowed",
			"", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrPreconditionFailed, "precondition-failed", http.StatusPreconditionFailed,
			"The item is not as expected",
			"Something changed it. Look at the current figures, then decide anew.", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrPreconditionRequired, "precondition-required", http.StatusPreconditionRequired,
			"A precondition is needed",
			"Setting a figure needs If-Match or expected_on_hand.", outcomeNone, retryNever, 0,
		},
		{
			stock.ErrLedgerUnavailable, "ledger-unavailable", http.StatusServiceUnavailable,
			"The ledger is out of reach",
			"Nothing was done. Send the same request again later.", outcomeNone, retryAfter, 1,
		},
		{
			stock.ErrUnknownOutcome, "outcome-unknown", http.StatusServiceUnavailable, "The outcome is unknown",
			"Send the same request with the same key to learn what happened.", outcomeUnknown, retrySameKey, 1,
		},
		{errMalformed, "malformed-request", http.StatusBadRequest, "The request cannot be read", "", outcomeNone, retryNever, 0},
		{
			errKeyMissing, "idempotency-key-missing", http.StatusBadRequest, "An idempotency key is needed",
			"Send an Idempotency-Key header with a value of your own for each request that is to be done once.",
			outcomeNone, retryNever, 0,
		},
		{errDuplicateHeader, "duplicate-header", http.StatusBadRequest, "A header is there twice", "", outcomeNone, retryNever, 0},
		{
			errUnauthenticated, "unauthenticated", http.StatusUnauthorized, "No valid token",
			"Send Authorization: Bearer with a token of this service.", outcomeNone, retryNever, 0,
		},
		{errForbidden, "forbidden", http.StatusForbidden, "The token does not allow this", "", outcomeNone, retryNever, 0},
		{
			errNoRoute, "not-found", http.StatusNotFound, "Not found",
			"There is no such path. A SKU is one segment: encode its slashes as %2F.", outcomeNone, retryNever, 0,
		},
		{
			errMethodNotAllowed, "method-not-allowed", http.StatusMethodNotAllowed, "The path does not have this method",
			"The Allow header lists those it has.", outcomeNone, retryNever, 0,
		},
		{
			errTooLarge, "too-large", http.StatusRequestEntityTooLarge, "The body is too large",
			"A body has at most 262144 bytes.", outcomeNone, retryNever, 0,
		},
		{
			errMediaType, "unsupported-media-type", http.StatusUnsupportedMediaType, "The body is not JSON",
			"Send Content-Type: application/json, in UTF-8, without Content-Encoding.", outcomeNone, retryNever, 0,
		},
		{
			errHeadersTooLarge, "headers-too-large", http.StatusRequestHeaderFieldsTooLarge, "The headers are too large",
			"A request has at most 100 header fields with 16384 bytes in all.", outcomeNone, retryNever, 0,
		},
		{
			// The deadline passed while the request was under way. Who knows more says so with an error of stock.
			context.DeadlineExceeded, "outcome-unknown", http.StatusServiceUnavailable, "The outcome is unknown",
			"Send the same request with the same key to learn what happened.", outcomeUnknown, retrySameKey, 1,
		},
		{
			// Nobody is left to read it; the status is for the log.
			context.Canceled, "client-gone", statusClientGone, "The client hung up", "", outcomeUnknown, retrySameKey, 0,
		},
		{
			errInternal, "internal", http.StatusInternalServerError, "A defect of the service",
			"It is in the service's log under this request's id.", outcomeUnknown, retrySameKey, 0,
		},
	}
}

// statusClientGone is what nginx logs for a client that hung up before the answer.
const statusClientGone = 499

// problemOf finds the row for err.
func (a *API) problemOf(err error) *problem {
	for i := range a.problems {
		if errors.Is(err, a.problems[i].cause) {
			return &a.problems[i]
		}
	}
	return &a.problems[len(a.problems)-1]
}

// refusal is a failure the HTTP layer found, and where.
type refusal struct {
	kind      error
	detail    string
	parameter string  // of the path, the query or a header
	pointer   *string // into the body
}

func (e *refusal) Error() string { return e.kind.Error() + ": " + e.detail }
func (e *refusal) Unwrap() error { return e.kind }

// invalidParameter refuses a parameter of the path, the query or a header; detail goes on from its name.
func invalidParameter(name, detail string) error {
	return &refusal{kind: stock.ErrInvalidField, parameter: name, detail: name + " " + detail}
}

// malformed refuses a body that cannot be read beyond pointer.
func malformed(pointer, detail string) error {
	return &refusal{kind: errMalformed, pointer: &pointer, detail: detail}
}

// forbidden says what the token does not allow.
func forbidden(detail string) error { return &refusal{kind: errForbidden, detail: detail} }

// appendProblem encodes err, whose row is p, for the request named instance. Only the row and the data of
// typed errors are shown: the text of an error may come from anywhere below.
//
// Short is where a line that is short is in the body; empty when that is among its lines.
func appendProblem(b []byte, p *problem, instance, short string, err error) []byte {
	b = append(b, `{"type":"`+typePrefix...)
	b = append(b, p.name...)
	b = appendText(b, `","title":`, p.title)
	b = appendNumber(b, `,"status":`, p.status)
	b = appendText(b, `,"detail":`, detailOf(p, err))
	b = appendText(b, `,"instance":`, instance)
	b = appendText(b, `,"outcome":`, p.outcome)
	b = appendText(b, `,"retry":`, p.retry)
	for ; err != nil; err = errors.Unwrap(err) {
		b = appendEvidence(b, short, err)
	}
	return append(b, '}')
}

// detailOf says what is particular about err, else what there is to say about all of its kind.
func detailOf(p *problem, err error) string {
	var own *refusal
	if errors.As(err, &own) {
		return own.detail
	}
	var invalid *stock.FieldError
	if errors.As(err, &invalid) && len(invalid.Fields) > 0 {
		return invalid.Fields[0].Pointer + " " + invalid.Fields[0].Detail
	}
	var state *stock.StateError
	if errors.As(err, &state) {
		return "The deduction is " + string(state.Deduction.State) + "."
	}
	if p.detail == "" {
		return p.title + "."
	}
	return p.detail
}

// appendEvidence encodes what a typed error carries: what the caller needs to act.
func appendEvidence(b []byte, short string, err error) []byte {
	switch e := err.(type) { // the caller walks the chain
	case *stock.ShortError:
		b = append(b, `,"short":`...)
		return appendList(b, e.Lines, func(b []byte, l *stock.ShortLine) []byte { return appendShortLine(b, short, l) })
	case *stock.UnknownItemError:
		b = append(b, `,"unknown":`...)
		return appendList(b, e.Lines, appendUnknownLine)
	case *stock.ReturnError:
		b = append(b, `,"excess":`...)
		return appendList(b, e.Lines, appendExcessLine)
	case *stock.OrderError:
		return appendText(b, `,"deduction_id":`, e.ID.String())
	case *stock.StateError:
		return appendDeduction(append(b, `,"deduction":`...), &e.Deduction, nil)
	case *stock.ExpiredError:
		return appendDeduction(append(b, `,"deduction":`...), &e.Deduction, nil)
	case *stock.PreconditionError:
		b = appendLevels(append(b, `,"item":`...), &e.Levels)
		return appendText(b, `,"etag":`, etagOf(e.Levels.Version))
	case *stock.FieldError:
		b = append(b, `,"fields":`...)
		return appendList(b, e.Fields, appendField)
	case *refusal:
		return appendRefusal(b, e)
	}
	return b
}

func appendShortLine(b []byte, at string, l *stock.ShortLine) []byte {
	if at == "" {
		b = appendPointer(b, l.Line, "quantity")
	} else {
		b = appendText(b, `{"pointer":`, at)
	}
	b = appendItem(b, l.Item)
	b = appendNumber(b, `,"requested":`, l.Requested)
	b = appendNumber(b, `,"available":`, l.Available)
	b = appendNumber(b, `,"version":`, l.Version)
	return append(b, '}')
}

func appendUnknownLine(b []byte, l *stock.UnknownLine) []byte {
	b = appendPointer(b, l.Line, "sku")
	b = appendItem(b, l.Item)
	return append(b, '}')
}

func appendExcessLine(b []byte, l *stock.ExcessLine) []byte {
	b = appendPointer(b, l.Line, "quantity")
	b = appendNumber(b, `,"requested":`, l.Requested)
	b = appendNumber(b, `,"possible":`, l.Possible)
	return append(b, '}')
}

// appendPointer begins an object with the pointer to a member of a line of the request.
func appendPointer(b []byte, line int, member string) []byte {
	b = append(b, `{"pointer":"/lines/`...)
	b = strconv.AppendInt(b, int64(line), 10)
	b = append(b, '/')
	b = append(b, member...)
	return append(b, '"')
}

func appendField(b []byte, f *stock.Field) []byte {
	b = appendText(b, `{"pointer":`, f.Pointer)
	b = appendText(b, `,"detail":`, f.Detail)
	return append(b, '}')
}

func appendRefusal(b []byte, e *refusal) []byte {
	switch {
	case e.pointer != nil:
		b = appendText(b, `,"fields":[{"pointer":`, *e.pointer)
	case e.parameter != "":
		b = appendText(b, `,"fields":[{"parameter":`, e.parameter)
	default:
		return b
	}
	b = appendText(b, `,"detail":`, e.detail)
	return append(b, "}]"...)
}
