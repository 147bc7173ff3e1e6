package stock

import (
	"errors"
	"strings"
	"unicode"
	"unicode/utf8"
)

// MaxNameBytes bounds a SKU, a location, an order id and the other short names a caller chooses.
const MaxNameBytes = 128

// DefaultLocation is where an item is when a caller names no location.
const DefaultLocation Location = "default"

// SKU names a thing that is sold: 1 to [MaxNameBytes] bytes of UTF-8 without control characters or
// surrounding space. Case and leading zeros matter: `01234` and `1234`, `M` and `m` are four SKUs.
type SKU string

// Location names a place that has stock, under the same rules as a [SKU].
type Location string

// Item is a SKU at a location: the unit that has a stock figure, a version and a row in the ledger.
type Item struct {
	SKU      SKU
	Location Location
}

// String is for people and logs; it is not a key, since either part may contain the separator.
func (i Item) String() string { return string(i.SKU) + "@" + string(i.Location) }

// Compare orders items by SKU, then location, byte by byte: the one order in which rows are locked.
func (i Item) Compare(other Item) int {
	if c := strings.Compare(string(i.SKU), string(other.SKU)); c != 0 {
		return c
	}
	return strings.Compare(string(i.Location), string(other.Location))
}

// ParseSKU checks s against the rules of [SKU]; the error is a sentence a caller can act on.
func ParseSKU(s string) (SKU, error) {
	if err := CheckName(s); err != nil {
		return "", err
	}
	return SKU(s), nil
}

// ParseLocation checks s against the rules of [Location]; an empty s is [DefaultLocation].
func ParseLocation(s string) (Location, error) {
	if s == "" {
		return DefaultLocation, nil
	}
	if err := CheckName(s); err != nil {
		return "", err
	}
	return Location(s), nil
}

// CheckName reports why s is no legal name, or nil.
func CheckName(s string) error {
	if s == "" {
		return errors.New("must not be empty")
	}
	return CheckText(s, MaxNameBytes)
}

// CheckText reports why s is no legal text of at most limit bytes, or nil. Empty text is legal.
func CheckText(s string, limit int) error {
	if len(s) > limit {
		return errors.New("is too long")
	}
	ascii := true
	for i := range len(s) {
		switch c := s[i]; {
		case c < 0x20 || c == 0x7f:
			return errors.New("must not contain control characters")
		case c >= utf8.RuneSelf:
			ascii = false
		}
	}
	if s != "" && (s[0] == ' ' || s[len(s)-1] == ' ') {
		return errors.New("must not begin or end with space")
	}
	if ascii {
		return nil
	}
	return checkUnicode(s)
}

// checkUnicode is the part of [CheckText] that only text beyond ASCII needs.
func checkUnicode(s string) error {
	if !utf8.ValidString(s) {
		return errors.New("must be valid UTF-8")
	}
	for _, r := range s {
		if unicode.IsControl(r) {
			return errors.New("must not contain control characters")
		}
	}
	if strings.TrimSpace(s) != s {
		return errors.New("must not begin or end with space")
	}
	return nil
}
