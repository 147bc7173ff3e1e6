package httpapi

import (
	"encoding/base64"
	"strconv"
	"strings"

	"github.com/google/uuid"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

const (
	maxLabel     = 256 // bytes
	maxReason    = 256 // bytes
	maxKey       = 255 // characters of an idempotency key
	defaultLimit = 100 // entries on a page
)

// keyHeader is where an idempotency key comes in, see draft-ietf-httpapi-idempotency-key-header.
const keyHeader = "Idempotency-Key"

// parseKey takes the quotes off an idempotency key: `"k"` and `k` are the same. The parameter is where it came in.
func parseKey(parameter, s string) (string, error) {
	key, detail := bareKey(s)
	switch {
	case detail == "":
		return key, nil
	case key == "" && strings.Trim(s, `"`) == "":
		return "", errKeyMissing
	}
	return "", invalidParameter(parameter, detail)
}

// bareKey is the key without its quotes; detail says what is wrong with it, if anything.
func bareKey(s string) (key, detail string) {
	if strings.HasPrefix(s, `"`) {
		if len(s) < 2 || strings.IndexByte(s[1:], '"') != len(s)-2 {
			return s, "begins with a quote, so it must end with the only other one"
		}
		s = s[1 : len(s)-1]
	}
	if s == "" {
		return "", "must not be empty"
	}
	if len(s) > maxKey {
		return s, "must have at most 255 characters"
	}
	for i := range len(s) {
		if s[i] < '!' || s[i] > '~' {
			return s, "must be of visible ASCII characters"
		}
	}
	return s, ""
}

// etagOf names a version of an item.
func etagOf(version int64) string { return `"` + strconv.FormatInt(version, 10) + `"` }

// parseIfMatch reads one strong ETag as this service gives them; nil for none.
func parseIfMatch(s *string) (*int64, error) {
	if s == nil {
		return nil, nil // no header is a legal answer
	}
	digits, quoted := strings.CutPrefix(*s, `"`)
	digits, closed := strings.CutSuffix(digits, `"`)
	version, err := strconv.ParseUint(digits, 10, 63)
	if err != nil || !quoted || !closed {
		return nil, invalidParameter("If-Match", `must be one ETag of this service, as in "17"`)
	}
	n := int64(version)
	return &n, nil
}

// matches reports whether an If-None-Match header names etag: by weak comparison, in a list, or as `*`.
func matches(header *string, etag string) bool {
	if header == nil {
		return false
	}
	for one := range strings.SplitSeq(*header, ",") {
		one = strings.TrimSpace(one)
		if one == "*" || strings.TrimPrefix(one, "W/") == etag {
			return true
		}
	}
	return false
}

// parseItem reads the item that path and query name.
func parseItem(sku string, location *string) (stock.Item, error) {
	s, err := stock.ParseSKU(sku)
	if err != nil {
		return stock.Item{}, invalidParameter("sku", err.Error())
	}
	item := stock.Item{SKU: s, Location: stock.DefaultLocation}
	if location == nil {
		return item, nil
	}
	item.Location, err = parseLocation(*location)
	return item, err
}

// parseLocation reads a location that was named, so that it may not be empty.
func parseLocation(s string) (stock.Location, error) {
	if err := stock.CheckName(s); err != nil {
		return "", invalidParameter("location", err.Error())
	}
	return stock.Location(s), nil
}

func parseLimit(limit *int32) (int, error) {
	switch {
	case limit == nil:
		return defaultLimit, nil
	case *limit < 1 || *limit > stock.MaxPage:
		return 0, invalidParameter("limit", "must be a whole number from 1 to 1000")
	}
	return int(*limit), nil
}

// A cursor is the key of the last entry of the page before, in base64url. An item's parts are separated by a
// NUL, which no name contains.

func itemCursor(item stock.Item) string {
	return base64.RawURLEncoding.EncodeToString([]byte(string(item.SKU) + "\x00" + string(item.Location)))
}

func parseItemCursor(cursor *string) (*stock.Item, error) {
	if cursor == nil {
		return nil, nil // no cursor is a legal answer
	}
	key, err := base64.RawURLEncoding.DecodeString(*cursor)
	sku, location, found := strings.Cut(string(key), "\x00")
	if err != nil || !found || stock.CheckName(sku) != nil || stock.CheckName(location) != nil {
		return nil, invalidParameter("cursor", "must be a next_cursor of this list")
	}
	return &stock.Item{SKU: stock.SKU(sku), Location: stock.Location(location)}, nil
}

// parseOrderOrNumber reads which deductions are asked for: exactly one of the two says it.
func parseOrderOrNumber(order *string, number *int64) (string, int64, error) {
	switch {
	case (order == nil) == (number == nil):
		return "", 0, invalidParameter("order_id", "either order_id or number is needed, and not both")
	case order != nil:
		if err := stock.CheckName(*order); err != nil {
			return "", 0, invalidParameter("order_id", err.Error())
		}
		return *order, 0, nil
	case *number < 1:
		return "", 0, invalidParameter("number", "must be a number of a deduction")
	}
	return "", *number, nil
}

func deductionCursor(id stock.DeductionID) string { return base64.RawURLEncoding.EncodeToString(id[:]) }

func parseDeductionCursor(cursor *string) (*stock.DeductionID, error) {
	if cursor == nil {
		return nil, nil // no cursor is a legal answer
	}
	key, err := base64.RawURLEncoding.DecodeString(*cursor)
	if err != nil {
		key = nil
	}
	id, err := uuid.FromBytes(key)
	if err != nil {
		return nil, invalidParameter("cursor", "must be a next_cursor of this list")
	}
	return &id, nil
}
