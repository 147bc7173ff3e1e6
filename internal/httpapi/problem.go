package httpapi

import (
	"context"
	"errors"
	"net/http"
	"strconv"
	"strings"

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
	outcome string
	retry   string
	seconds int // of Retry-After; 0: no such header
	title   string
	detail  string // for errors that carry nothing particular; empty: the title says it all
}

// problems is the one error table. The first row that matches counts; the last stands for everything else. The
// refusals a busy service gives most come first.
func problems() []problem {
	return []problem{
		{stock.ErrInsufficientStock, "insufficient-stock", http.StatusConflict, outcomeNone, retrySameKey, 0,
			"Not enough stock", "Some lines ask for more than is available."},
		{stock.ErrOverloaded, "overloaded", http.StatusServiceUnavailable, outcomeNone, retryAfter, 1,
			"Too much work is waiting", "Nothing was done. Send the same request again later."},
		{errRateLimited, "rate-limited", http.StatusTooManyRequests, outcomeNone, retryAfter, 1,
			"Too many requests under way", "This client has as many requests under way as it may have."},
		{stock.ErrUnknownItem, "unknown-item", http.StatusUnprocessableEntity, outcomeNone, retrySameKey, 0,
			"An item does not exist", "Some lines name an item that does not exist."},
		{stock.ErrOrderAlreadyDeducted, "order-already-deducted", http.StatusConflict, outcomeNone, retryNever, 0,
			"The order has a live deduction already", "It was made for this order and part under another key."},
		{stock.ErrKeyReused, "idempotency-key-reused", http.StatusUnprocessableEntity, outcomeNone, retryNewKey, 0,
			"The key belongs to a different request", "This idempotency key was used with other input."},
		{stock.ErrKeyVoided, "idempotency-key-voided", http.StatusConflict, outcomeNone, retryNewKey, 0,
			"The key was voided", "Nothing will ever be done under this idempotency key."},
		{stock.ErrHoldExpired, "hold-expired", http.StatusConflict, outcomeNone, retryNever, 0,
			"The hold has expired", "Its units are available to others again."},
		{stock.ErrWrongState, "wrong-state", http.StatusConflict, outcomeNone, retryNever, 0,
			"The deduction's state does not allow this", ""},
		{stock.ErrCustomerLimit, "customer-limit-reached", http.StatusConflict, outcomeNone, retrySameKey, 0,
			"The customer may not have so many", "With some lines the customer would have more of an item than customer_limit."},
		{stock.ErrReturnExceeds, "return-exceeds-deducted", http.StatusConflict, outcomeNone, retryNever, 0,
			"More than there is", "Some lines name more than the deduction has left of them."},
		{stock.ErrNotFound, "not-found", http.StatusNotFound, outcomeNone, retryNever, 0,
			"Not found", "There is nothing under this name."},
		{stock.ErrInvalidField, "invalid-field", http.StatusUnprocessableEntity, outcomeNone, retryNever, 0,
			"A value is not allowed", ""},
		{stock.ErrPreconditionFailed, "precondition-failed", http.StatusPreconditionFailed, outcomeNone, retryNever, 0,
			"The item is not as expected", "Look at its current figures, then decide anew."},
		{stock.ErrPreconditionRequired, "precondition-required", http.StatusPreconditionRequired, outcomeNone, retryNever, 0,
			"A precondition is needed", "Setting a figure needs If-Match or expected_on_hand."},
		{stock.ErrStocktakeOpen, "stocktake-open", http.StatusConflict, outcomeNone, retrySameKey, 0,
			"The item is being counted", "It can be counted anew when that count is completed or its time is over."},
		{stock.ErrStocktakeOver, "stocktake-over", http.StatusConflict, outcomeNone, retryNever, 0,
			"The stocktake is over", "Its time ended, or it was completed with another figure. Open a new one."},
		{stock.ErrStale, "stale-token", http.StatusConflict, outcomeNone, retryNever, 0,
			"The fencing token is stale", "A newer holder has taken over."},
		{stock.ErrLedgerUnavailable, "ledger-unavailable", http.StatusServiceUnavailable, outcomeNone, retryAfter, 1,
			"The ledger is out of reach", "Nothing was done. Send the same request again later."},
		{stock.ErrUnknownOutcome, "outcome-unknown", http.StatusServiceUnavailable, outcomeUnknown, retrySameKey, 1,
			"The outcome is unknown", "Send the same request with the same key to learn what happened."},
		{errMalformed, "malformed-request", http.StatusBadRequest, outcomeNone, retryNever, 0,
			"The request cannot be read", ""},
		{errKeyMissing, "idempotency-key-missing", http.StatusBadRequest, outcomeNone, retryNever, 0,
			"An idempotency key is needed", "Send a header Idempotency-Key with a name of your own for this request."},
		{errDuplicateHeader, "duplicate-header", http.StatusBadRequest, outcomeNone, retryNever, 0,
			"A header is there twice", ""},
		{errUnauthenticated, "unauthenticated", http.StatusUnauthorized, outcomeNone, retryNever, 0,
			"No valid token", "Send a header Authorization: Bearer with a token of this service."},
		{errForbidden, "forbidden", http.StatusForbidden, outcomeNone, retryNever, 0,
			"The token does not allow this", ""},
		{errNoRoute, "not-found", http.StatusNotFound, outcomeNone, retryNever, 0,
			"Not found", "There is no such path. A SKU is one segment: encode its slashes as %2F."},
		{errMethodNotAllowed, "method-not-allowed", http.StatusMethodNotAllowed, outcomeNone, retryNever, 0,
			"The path does not have this method", "The Allow header lists those it has."},
		{errTooLarge, "too-large", http.StatusRequestEntityTooLarge, outcomeNone, retryNever, 0,
			"The body is too large", ""},
		{errMediaType, "unsupported-media-type", http.StatusUnsupportedMediaType, outcomeNone, retryNever, 0,
			"The body is not JSON", "Send Content-Type: application/json, in UTF-8, without Content-Encoding."},
		{errHeadersTooLarge, "headers-too-large", http.StatusRequestHeaderFieldsTooLarge, outcomeNone, retryNever, 0,
			"The headers are too large", "A request has at most 100 header fields with 16384 bytes in all."},
		// The deadline passed somewhere on the way. Who knows that nothing was done says so with an error of stock.
		{context.DeadlineExceeded, "outcome-unknown", http.StatusServiceUnavailable, outcomeUnknown, retrySameKey, 1,
			"The outcome is unknown", "Send the same request with the same key to learn what happened."},
		// Nobody is left to read this one; it is for the log.
		{context.Canceled, "client-gone", statusClientGone, outcomeUnknown, retrySameKey, 0,
			"The client hung up", ""},
		{errInternal, "internal", http.StatusInternalServerError, outcomeUnknown, retrySameKey, 0,
			"A defect of the service", "The service's log has it under this request's id."},
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

// tooLarge refuses a body of more bytes than the path takes.
func tooLarge(limit int64) error {
	return &refusal{kind: errTooLarge, detail: "A body has at most " + strconv.FormatInt(limit, 10) + " bytes here."}
}

// forbidden says what the token does not allow.
func forbidden(detail string) error { return &refusal{kind: errForbidden, detail: detail} }

// appendProblem encodes err, whose row is p, for the request named instance. Only the row and the data of
// typed errors are shown: the text of an error may come from anywhere below.
//
// At is where in the body the request is that failed.
func appendProblem(b []byte, p *problem, instance string, at place, err error) []byte {
	b = append(b, `{"type":"`+typePrefix...)
	b = append(b, p.name...)
	b = appendText(b, `","title":`, p.title)
	b = appendNumber(b, `,"status":`, p.status)
	b = appendText(b, `,"detail":`, detailOf(p, err))
	b = appendText(b, `,"instance":`, instance)
	b = appendText(b, `,"outcome":`, p.outcome)
	b = appendText(b, `,"retry":`, p.retry)
	for ; err != nil; err = errors.Unwrap(err) {
		b = appendEvidence(b, at, err)
	}
	return append(b, '}')
}

// detailOf says what is particular about err, else what there is to say about all of its kind.
func detailOf(p *problem, err error) string {
	if own, ok := errors.AsType[*refusal](err); ok {
		return own.detail
	}
	if invalid, ok := errors.AsType[*stock.FieldError](err); ok && len(invalid.Fields) > 0 {
		return strings.TrimSpace(invalid.Fields[0].Pointer + " " + invalid.Fields[0].Detail)
	}
	if state, ok := errors.AsType[*stock.StateError](err); ok {
		return "The deduction is " + string(state.Deduction.State) + "."
	}
	if p.detail == "" {
		return p.title + "."
	}
	return p.detail
}

// appendEvidence encodes what a typed error carries: what the caller needs to act.
func appendEvidence(b []byte, at place, err error) []byte {
	switch e := err.(type) { //nolint:errorlint // the caller walks the chain
	case *stock.ShortError:
		b = append(b, `,"short":`...)
		return appendList(b, e.Lines, func(b []byte, l *stock.ShortLine) []byte { return appendShortLine(b, at, l) })
	case *stock.LimitError:
		b = append(b, `,"limited":`...)
		return appendList(b, e.Lines, func(b []byte, l *stock.LimitLine) []byte { return appendLimitLine(b, at, l) })
	case *stock.UnknownItemError:
		b = append(b, `,"unknown":`...)
		return appendList(b, e.Lines, func(b []byte, l *stock.UnknownLine) []byte { return appendUnknownLine(b, at, l) })
	case *stock.ReturnError:
		b = append(b, `,"excess":`...)
		return appendList(b, e.Lines, func(b []byte, l *stock.ExcessLine) []byte { return appendExcessLine(b, at, l) })
	case *stock.OrderError:
		return appendText(b, `,"deduction_id":`, e.ID.String())
	case *stock.StateError:
		return appendDeduction(append(b, `,"deduction":`...), &e.Deduction, nil)
	case *stock.ExpiredError:
		return appendDeduction(append(b, `,"deduction":`...), &e.Deduction, nil)
	case *stock.StocktakeError:
		return appendStocktake(append(b, `,"stocktake":`...), &e.Stocktake)
	case *stock.PreconditionError:
		b = appendLevels(append(b, `,"item":`...), &e.Levels)
		return appendText(b, `,"etag":`, etagOf(e.Levels.Version))
	case *stock.FieldError:
		b = append(b, `,"fields":`...)
		return appendList(b, e.Fields, func(b []byte, f *stock.Field) []byte { return appendField(b, at, f) })
	case *refusal:
		return appendRefusal(b, e)
	}
	return b
}

// place is where a request is in the body.
type place struct {
	within string // pointer to the request, when it is one of several
	short  string // pointer to the line that is short, when the request has no list of them
}

func appendShortLine(b []byte, at place, l *stock.ShortLine) []byte {
	if at.short == "" {
		b = appendPointer(b, at, l.Line, "quantity")
	} else {
		b = appendText(b, `{"pointer":`, at.short)
	}
	b = appendItem(b, l.Item)
	b = appendNumber(b, `,"requested":`, l.Requested)
	b = appendNumber(b, `,"available":`, l.Available)
	b = appendNumber(b, `,"version":`, l.Version)
	return append(b, '}')
}

func appendUnknownLine(b []byte, at place, l *stock.UnknownLine) []byte {
	b = appendPointer(b, at, l.Line, "sku")
	b = appendText(b, `,"sku":`, string(l.Item.SKU))
	if l.Item.Location != "" {
		b = appendText(b, `,"location":`, string(l.Item.Location))
	}
	return append(b, '}')
}

func appendLimitLine(b []byte, at place, l *stock.LimitLine) []byte {
	b = appendPointer(b, at, l.Line, "quantity")
	b = appendItem(b, l.Item)
	b = appendNumber(b, `,"requested":`, l.Requested)
	b = appendNumber(b, `,"has":`, l.Has)
	b = appendNumber(b, `,"limit":`, l.Limit)
	return append(b, '}')
}

func appendExcessLine(b []byte, at place, l *stock.ExcessLine) []byte {
	b = appendPointer(b, at, l.Line, "quantity")
	b = appendNumber(b, `,"requested":`, l.Requested)
	b = appendNumber(b, `,"possible":`, l.Possible)
	return append(b, '}')
}

// appendPointer begins an object with the pointer to a member of a line of the request.
func appendPointer(b []byte, at place, line int, member string) []byte {
	b = append(b, `{"pointer":"`...)
	b = append(b, at.within...)
	b = append(b, "/lines/"...)
	b = strconv.AppendInt(b, int64(line), 10)
	b = append(b, '/')
	b = append(b, member...)
	return append(b, '"')
}

func appendField(b []byte, at place, f *stock.Field) []byte {
	b = appendText(b, `{"pointer":`, at.within+f.Pointer)
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
