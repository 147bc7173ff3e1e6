package httpapi

import (
	"bytes"
	"cmp"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strconv"
	"time"

	"github.com/go-json-experiment/json/jsontext"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	maxBody   = 256 << 10 // bytes: 1,000 lines with long names fit
	maxBatch  = 4 << 20   // bytes of many requests in one
	maxDepth  = 8         // of nesting: twice what any body needs
	maxFields = 100       // wrong fields reported at once
)

// body reads the JSON document of one request: strictly, once, from front to back, straight into a request
// of package stock. What is wrong but readable is noted with its JSON pointer and reading goes on, so that a caller learns of
// all of it at once; what is not JSON ends it. After that every method returns zero values.
type body struct {
	buf     bytes.Buffer
	limited io.LimitedReader
	dec     jsontext.Decoder
	fields  []stock.Field // wrong so far, at most maxFields
	err     error         // why nothing more can be read
}

// load takes in the bytes of r's body, at most limit.
func (b *body) load(r *http.Request, limit int64) error {
	b.reset()
	if r.ContentLength > limit {
		return tooLarge(limit)
	}
	b.limited = io.LimitedReader{R: r.Body, N: limit + 1}
	_, err := b.buf.ReadFrom(&b.limited)
	b.limited.R = nil
	if b.limited.N == 0 {
		return tooLarge(limit)
	}
	switch {
	case errors.Is(err, os.ErrDeadlineExceeded):
		return errLate
	case err != nil:
		return malformed("", "the body ended early")
	}
	return nil
}

// errLate refuses a body that we do not wait for any longer.
var errLate = malformed("", "the body did not come in time")

// reset makes room for another document.
func (b *body) reset() {
	b.buf.Reset()
	b.fields, b.err = nil, nil
}

// parse reads the whole document with read, and says what is wrong with it.
func (b *body) parse(read func(*body)) error {
	b.dec.Reset(&b.buf)
	read(b)
	if b.err == nil {
		b.end()
	}
	if b.err != nil {
		return b.err
	}
	if len(b.fields) > 0 {
		return &stock.FieldError{Fields: b.fields}
	}
	return nil
}

// end makes sure that nothing comes after the document.
func (b *body) end() {
	if _, err := b.dec.ReadToken(); err == nil {
		b.err = malformed("", "something comes after the JSON value")
	} else if !errors.Is(err, io.EOF) {
		b.stop(err)
	}
}

// stop notes why the rest cannot be read.
func (b *body) stop(err error) {
	if b.err != nil || err == nil {
		return
	}
	var syntax *jsontext.SyntacticError
	switch {
	case errors.As(err, &syntax) && errors.Is(err, jsontext.ErrDuplicateName):
		b.err = malformed(string(syntax.JSONPointer), "a name is there twice")
	case errors.As(err, &syntax):
		b.err = malformed(string(syntax.JSONPointer), fmt.Sprintf("not JSON at byte %d: %v", syntax.ByteOffset, syntax.Err))
	default: // the buffer is in memory: it can only have ended
		b.err = malformed("", "the body ends before the JSON value does")
	}
}

// wrong notes what is wrong with the value read last.
func (b *body) wrong(detail string) { b.wrongAt(string(b.dec.StackPointer()), detail) }

func (b *body) wrongAt(pointer, detail string) {
	if b.err == nil && len(b.fields) < maxFields {
		b.fields = append(b.fields, stock.Field{Pointer: pointer, Detail: detail})
	}
}

// skip reads over the next value, which is wrong for this reason. It goes token by token, so that depth is seen.
func (b *body) skip(detail string) {
	for outer := b.dec.StackDepth(); b.err == nil; {
		if _, err := b.dec.ReadToken(); err != nil {
			b.stop(err)
		}
		switch depth := b.dec.StackDepth(); {
		case depth > maxDepth:
			b.err = malformed(string(b.dec.StackPointer()), fmt.Sprintf("is nested more than %d deep", maxDepth))
		case depth <= outer:
			b.wrong(detail)
			return
		}
	}
}

// ignore reads over the next value, whatever it is.
func (b *body) ignore() {
	if b.err == nil {
		b.stop(b.dec.SkipValue())
	}
}

// open reads the first token of an object or array and reports whether there was one.
func (b *body) open(kind jsontext.Kind, detail string) bool {
	if b.err != nil {
		return false
	}
	if next := b.dec.PeekKind(); next != kind && next != jsontext.KindInvalid {
		b.skip(detail)
		return false
	}
	if _, err := b.dec.ReadToken(); err != nil {
		b.stop(err)
		return false
	}
	return true
}

// more reports whether the object or array read now goes on, and reads its last token if not.
func (b *body) more(end jsontext.Kind) bool {
	if b.err != nil {
		return false
	}
	if b.dec.PeekKind() != end {
		return true // or an error, which reading on will find
	}
	if _, err := b.dec.ReadToken(); err != nil {
		b.stop(err)
	}
	return false
}

// object reads an object. Member is called with each name, reads its value, and returns false for a name it does
// not know. Required are the names that must be there.
func (b *body) object(member func(name []byte) bool, required ...string) {
	if !b.open(jsontext.KindBeginObject, "must be an object") {
		return
	}
	var seen uint
	var unescaped []byte
	for b.more(jsontext.KindEndObject) {
		quoted, err := b.dec.ReadValue()
		if err != nil {
			b.stop(err)
			return
		}
		name := []byte(quoted[1 : len(quoted)-1])
		if bytes.IndexByte(name, '\\') >= 0 {
			unescaped, _ = jsontext.AppendUnquote(unescaped[:0], quoted) // the decoder has checked it
			name = unescaped
		}
		for i, r := range required {
			if string(name) == r {
				seen |= 1 << i
			}
		}
		if !member(name) {
			b.skip("is not a member the contract knows")
		}
	}
	if b.err != nil || seen == 1<<len(required)-1 {
		return
	}
	at := string(b.dec.StackPointer())
	for i, r := range required {
		if seen&(1<<i) == 0 {
			b.wrongAt(at+"/"+r, "is required")
		}
	}
}

// list reads an array of 1 to [stock.MaxLines] entries, each with one.
func (b *body) list(one func()) {
	if !b.open(jsontext.KindBeginArray, "must be an array") {
		return
	}
	n := 0
	for ; b.more(jsontext.KindEndArray); n++ {
		if n == stock.MaxLines {
			b.wrongAt(string(b.dec.StackPointer().Parent()), fmt.Sprintf("must have at most %d entries", n))
			b.err = &stock.FieldError{Fields: b.fields}
			return
		}
		one()
	}
	if n == 0 {
		b.wrong("must not be empty")
	}
}

// text reads a string of at most limit bytes that may be empty.
func (b *body) text(limit int) string {
	s, ok := b.str()
	if !ok {
		return ""
	}
	if err := stock.CheckText(s, limit); err != nil {
		b.wrong(err.Error())
	}
	return s
}

// name reads a string that is a legal name.
func (b *body) name() string {
	s, ok := b.str()
	if !ok {
		return ""
	}
	if err := stock.CheckName(s); err != nil {
		b.wrong(err.Error())
	}
	return s
}

func (b *body) str() (string, bool) {
	token, ok := b.token("must be a string", jsontext.KindString)
	if !ok {
		return "", false
	}
	return token.String(), true
}

func (b *body) boolean() bool {
	token, ok := b.token("must be true or false", jsontext.KindTrue, jsontext.KindFalse)
	return ok && token.Bool()
}

// token reads the next value if it is of one of these kinds.
func (b *body) token(detail string, kinds ...jsontext.Kind) (jsontext.Token, bool) {
	if b.err != nil {
		return jsontext.Token{}, false
	}
	next := b.dec.PeekKind()
	for _, kind := range kinds {
		if next != kind {
			continue
		}
		token, err := b.dec.ReadToken()
		if err != nil {
			b.stop(err)
		}
		return token, err == nil
	}
	b.skip(detail)
	return jsontext.Token{}, false
}

// quantity reads a whole number from least to most.
func (b *body) quantity(least, most stock.Quantity) stock.Quantity {
	if b.err != nil {
		return 0
	}
	if next := b.dec.PeekKind(); next != jsontext.KindNumber && next != jsontext.KindInvalid {
		b.skip(wholeNumber(least, most))
		return 0
	}
	raw, err := b.dec.ReadValue()
	if err != nil {
		b.stop(err)
		return 0
	}
	q, ok := parseQuantity(string(raw), least, most)
	if !ok {
		b.wrong(wholeNumber(least, most))
	}
	return q
}

// parseQuantity reads a whole number: no fraction, no exponent.
func parseQuantity(s string, least, most stock.Quantity) (stock.Quantity, bool) {
	n, err := strconv.ParseInt(s, 10, 64)
	if q := stock.Quantity(n); err == nil && least <= q && q <= most {
		return q, true
	}
	return 0, false
}

func wholeNumber(least, most stock.Quantity) string {
	return fmt.Sprintf("must be a whole number from %d to %d", least, most)
}

// optionalQuantity is [body.quantity] for a member whose absence means something.
func (b *body) optionalQuantity(least, most stock.Quantity) *stock.Quantity {
	q := b.quantity(least, most)
	return &q
}

// seconds reads a duration of at least one second.
func (b *body) seconds(most time.Duration) time.Duration {
	return time.Duration(b.quantity(1, stock.Quantity(most/time.Second))) * time.Second
}

// number reads a line's number.
func (b *body) number() int { return int(b.quantity(1, stock.MaxLines)) }

// The bodies of the contract, one function each.

// newDeduction is a deduction as it is asked for.
type newDeduction struct {
	stock.DeductRequest
	dryRun bool
}

func (b *body) deduct(r *newDeduction) {
	b.object(func(name []byte) bool {
		switch string(name) {
		case "order_id":
			r.OrderID = b.name()
		case "part":
			r.Part = b.text(stock.MaxNameBytes)
		case "hold_seconds":
			r.Hold = b.seconds(stock.MaxHold)
		case "lines":
			b.list(func() { r.Lines = append(r.Lines, b.wantedLine()) })
		case "dry_run":
			r.dryRun = b.boolean()
		case "allow_partial":
			r.AllowPartial = b.boolean()
		case "customer":
			r.Customer = b.name()
		case "customer_limit":
			r.CustomerLimit = b.quantity(1, stock.MaxLineQuantity)
		default:
			return false
		}
		return true
	}, "order_id", "lines")
	b.uniqueLineIDs(r.Lines)
	b.boundedSources(&r.DeductRequest)
	if r.CustomerLimit > 0 && r.Customer == "" {
		b.wrongAt(string(b.dec.StackPointer())+"/customer", "is required with customer_limit")
	}
}

func (b *body) wantedLine() stock.WantedLine {
	l := stock.WantedLine{}
	var any stock.Sourcing
	sourcing := ""
	b.object(func(name []byte) bool {
		switch string(name) {
		case "sku":
			l.Item.SKU = stock.SKU(b.name())
		case "location":
			l.Item.Location = stock.Location(b.name())
		case "quantity":
			l.Quantity = b.quantity(1, stock.MaxLineQuantity)
		case "line_id":
			l.LineID = b.name()
		case "sourcing":
			if sourcing = b.name(); sourcing != "any" {
				b.wrong("must be any")
			}
		case "locations":
			any.Locations = b.locations()
		case "split":
			any.Split = b.boolean()
		default:
			return false
		}
		return true
	}, "sku", "quantity")
	switch {
	case sourcing == "" && (any.Locations != nil || any.Split):
		b.wrong("has locations or split, which need sourcing")
	case sourcing == "":
		l.Item.Location = cmp.Or(l.Item.Location, stock.DefaultLocation)
	case l.Item.Location != "":
		b.wrong("has a location, so there is nothing to choose by sourcing")
	default:
		l.Sourcing = &any
	}
	return l
}

// locations reads a list of up to [stock.MaxLocations] different ones.
func (b *body) locations() []stock.Location {
	list := []stock.Location{}
	b.list(func() {
		location := stock.Location(b.name())
		if slices.Contains(list, location) {
			b.wrong("is there twice")
		}
		list = append(list, location)
	})
	if len(list) > stock.MaxLocations {
		b.wrong(fmt.Sprintf("must have at most %d entries", stock.MaxLocations))
	}
	return list
}

// boundedSources notes what would make an order look at more items than it may have lines, and a limit for a choice of
// items.
func (b *body) boundedSources(r *stock.DeductRequest) {
	at, items := string(b.dec.StackPointer()), 0
	for i := range r.Lines {
		s := r.Lines[i].Sourcing
		switch {
		case s == nil:
			items++
			continue
		case len(s.Locations) > 0:
			items += len(s.Locations)
		default:
			items += stock.MaxLocations
		}
		if r.CustomerLimit > 0 {
			b.wrongAt(at+"/lines/"+strconv.Itoa(i)+"/sourcing", "cannot go with customer_limit, which is for one location")
		}
	}
	if items > stock.MaxLines {
		b.wrongAt(at+"/lines", fmt.Sprintf("must not come from more than %d locations in all", stock.MaxLines))
	}
}

// uniqueLineIDs notes line ids that would name two lines of the object read last.
func (b *body) uniqueLineIDs(lines []stock.WantedLine) {
	at := string(b.dec.StackPointer())
	var seen map[string]bool
	for i := range lines {
		id := lines[i].LineID
		if id == "" {
			continue
		}
		if seen == nil {
			seen = make(map[string]bool, len(lines))
		}
		if seen[id] {
			b.wrongAt(at+"/lines/"+strconv.Itoa(i)+"/line_id", "names another line already")
		}
		seen[id] = true
	}
}

// batchEntry is one deduction of a batch. What is wrong with it hurts no other.
type batchEntry struct {
	newDeduction
	wrong []stock.Field
}

func (b *body) batch() (entries []batchEntry) {
	lines := 0
	b.object(func(name []byte) bool {
		if string(name) != "deductions" {
			return false
		}
		b.list(func() {
			entries = append(entries, b.batchEntry())
			if lines += len(entries[len(entries)-1].Lines); lines > stock.MaxBatchLines && b.err == nil {
				b.wrongAt("/deductions", fmt.Sprintf("must have at most %d lines in all", stock.MaxBatchLines))
				b.err = &stock.FieldError{Fields: b.fields}
			}
		})
		return true
	}, "deductions")
	return entries
}

func (b *body) batchEntry() (e batchEntry) {
	others := b.fields
	b.fields = nil
	b.object(func(name []byte) bool {
		switch string(name) {
		case "idempotency_key":
			e.Key = b.key()
		case "deduction":
			if b.deduct(&e.newDeduction); e.dryRun {
				b.wrongAt(string(b.dec.StackPointer())+"/dry_run", "is for a deduction that is sent alone")
			}
		default:
			return false
		}
		return true
	}, "idempotency_key", "deduction")
	e.wrong, b.fields = b.fields, others
	return e
}

// key reads an idempotency key.
func (b *body) key() string {
	s, ok := b.str()
	if !ok {
		return ""
	}
	key, detail := bareKey(s)
	if detail != "" {
		b.wrong(detail)
	}
	return key
}

func (b *body) orderReturn(r *stock.OrderRequest) {
	b.object(func(name []byte) bool {
		if string(name) != "reason" {
			return false
		}
		r.Reason = b.text(maxReason)
		return true
	})
}

func (b *body) commit(r *stock.CommitRequest) {
	b.object(func(name []byte) bool {
		switch string(name) {
		case "lines":
			b.list(func() { r.Lines = append(r.Lines, b.lineQuantity()) })
		case "keep_rest":
			r.KeepRest = b.boolean()
		default:
			return false
		}
		return true
	})
	if r.KeepRest && len(r.Lines) == 0 {
		b.wrongAt("/lines", "is required with keep_rest")
	}
}

func (b *body) returned(r *stock.ReturnRequest) {
	b.object(func(name []byte) bool {
		switch string(name) {
		case "lines":
			b.list(func() { r.Lines = append(r.Lines, b.lineQuantity()) })
		case "reason":
			r.Reason = b.text(maxReason)
		default:
			return false
		}
		return true
	})
}

func (b *body) lineQuantity() stock.LineQuantity {
	var l stock.LineQuantity
	named := 0
	b.object(func(name []byte) bool {
		switch string(name) {
		case "line":
			l.No = b.number()
			named++
		case "line_id":
			l.LineID = b.name()
			named++
		case "quantity":
			l.Quantity = b.quantity(1, stock.MaxLineQuantity)
		default:
			return false
		}
		return true
	}, "quantity")
	if named != 1 {
		b.wrong("must name a line by line or by line_id, not both")
	}
	return l
}

func (b *body) extend(r *stock.ExtendRequest) {
	b.object(func(name []byte) bool {
		switch string(name) {
		case "hold_seconds":
			r.Hold = b.seconds(stock.MaxHold)
		case "reacquire":
			r.Reacquire = b.boolean()
		default:
			return false
		}
		return true
	}, "hold_seconds")
}

// nothing reads the body of a call that takes none: an empty object.
func (b *body) nothing() { b.object(func([]byte) bool { return false }) }

func (b *body) settings(r *stock.ConfigureRequest) {
	b.object(func(name []byte) bool {
		switch string(name) {
		case "safety_stock":
			r.SafetyStock = b.quantity(0, stock.MaxOnHand)
		case "low_stock_at":
			r.LowStockAt = b.optionalQuantity(0, stock.MaxOnHand)
		case "label":
			r.Label = b.text(maxLabel)
		default:
			return false
		}
		return true
	})
}

// newAdjustment is an adjustment as it is asked for.
type newAdjustment struct {
	stock.AdjustRequest
	dryRun bool
}

func (b *body) openStocktake(r *stock.OpenStocktakeRequest) {
	b.object(func(name []byte) bool {
		switch string(name) {
		case "lease_seconds":
			r.Lease = b.seconds(stock.MaxStocktake)
		case "reference":
			r.Reference = b.text(stock.MaxNameBytes)
		default:
			return false
		}
		return true
	}, "lease_seconds")
}

func (b *body) completeStocktake(r *stock.CompleteStocktakeRequest) {
	b.object(func(name []byte) bool {
		if string(name) != "counted" {
			return false
		}
		r.Counted = b.quantity(0, stock.MaxOnHand)
		return true
	}, "counted")
}

func (b *body) adjust(r *newAdjustment) {
	delta := false
	b.object(func(name []byte) bool {
		switch string(name) {
		case "kind":
			r.Kind = b.adjustmentKind()
		case "delta":
			r.Delta, delta = b.quantity(-stock.MaxOnHand, stock.MaxOnHand), true
		case "set_to":
			r.SetTo = b.optionalQuantity(0, stock.MaxOnHand)
		case "expected_on_hand":
			r.ExpectedOnHand = b.optionalQuantity(0, stock.MaxOnHand)
		case "reason":
			r.Reason = b.text(maxReason)
		case "reference":
			r.Reference = b.text(stock.MaxNameBytes)
		case "dry_run":
			r.dryRun = b.boolean()
		default:
			return false
		}
		return true
	}, "kind")
	if len(b.fields) > 0 {
		return
	}
	switch {
	case delta == (r.SetTo != nil):
		b.wrongAt("", "must have either delta or set_to")
	case delta && r.Delta == 0:
		b.wrongAt("/delta", "must not be 0")
	case r.Kind == stock.Receive && (!delta || r.Delta < 0):
		b.wrongAt("/delta", "must be above 0 to receive")
	}
}

func (b *body) adjustmentKind() stock.MovementKind {
	s, ok := b.str()
	switch kind := stock.MovementKind(s); kind {
	case stock.Receive, stock.Adjust, stock.Count:
		return kind
	}
	if ok {
		b.wrong("must be receive, adjust or count")
	}
	return ""
}
