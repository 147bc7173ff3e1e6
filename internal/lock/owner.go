package lock

import (
	"crypto/rand"
	"fmt"
	"net/url"
	"os"
	"strconv"
	"strings"
	"time"
)

// Owner is who holds a key: readable, and unique by its grant id.
type Owner struct {
	Host  string    `json:"host"`
	PID   int       `json:"pid"`
	Grant string    `json:"grant"` // 26 letters and digits, at least 128 random bits
	Time  time.Time `json:"time"`  // when the claim was made, by the claimant's wall clock; for people only
	Meta  string    `json:"meta,omitempty"`
}

const timeFormat = "2006-01-02T15:04:05.000Z"

// newGrant returns a grant id that nobody used before.
func newGrant() string { return rand.Text() }

// String is the value that back ends store: `host pid grant time meta`, five words with single spaces between
// them. Host and meta are escaped like a URL path, so the words stay five.
func (o Owner) String() string {
	b := make([]byte, 0, len(o.Host)+len(o.Grant)+len(o.Meta)+len(timeFormat)+16)
	b = append(b, escape(o.Host)...)
	b = append(b, ' ')
	b = strconv.AppendInt(b, int64(o.PID), 10)
	b = append(b, ' ')
	b = append(b, o.Grant...)
	b = append(b, ' ')
	b = o.Time.UTC().AppendFormat(b, timeFormat)
	b = append(b, ' ')
	return string(append(b, escape(o.Meta)...))
}

func escape(s string) string { return strings.ReplaceAll(url.PathEscape(s), "%2F", "/") }

// ParseOwner reads what [Owner.String] wrote.
func ParseOwner(value string) (Owner, error) {
	words := strings.Split(value, " ")
	if len(words) != 5 {
		return Owner{}, fmt.Errorf("owner %q: want five words: %w", value, ErrInvalid)
	}
	var o Owner
	var err error
	if o.Host, err = url.PathUnescape(words[0]); err != nil {
		return Owner{}, fmt.Errorf("owner %q: host: %w", value, err)
	}
	if o.PID, err = strconv.Atoi(words[1]); err != nil {
		return Owner{}, fmt.Errorf("owner %q: process id: %w", value, err)
	}
	if o.Grant = words[2]; o.Grant == "" {
		return Owner{}, fmt.Errorf("owner %q: no grant: %w", value, ErrInvalid)
	}
	if o.Time, err = time.Parse(timeFormat, words[3]); err != nil {
		return Owner{}, fmt.Errorf("owner %q: time: %w", value, err)
	}
	if o.Meta, err = url.PathUnescape(words[4]); err != nil {
		return Owner{}, fmt.Errorf("owner %q: meta: %w", value, err)
	}
	return o, nil
}

// hostname is the name of this machine, or "unknown": it is there for people, not for telling owners apart.
func hostname() string {
	name, err := os.Hostname()
	if err != nil || name == "" {
		return "unknown"
	}
	return name
}
