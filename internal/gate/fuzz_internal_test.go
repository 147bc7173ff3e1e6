package gate

import (
	"errors"
	"maps"
	"regexp"
	"strings"
	"testing"

	"github.com/redis/go-redis/v9"

	"github.com/holdfast-stock/holdfast/internal/sandbox"
	"github.com/holdfast-stock/holdfast/internal/stock"
)

// replyForm is what the head of gate.lua says of a reply.
var replyForm = regexp.MustCompile(`^[GSRC]*(?: [12](?::-?\d+:\d+:[012])?)*$`)

// Whatever the script is given, it is one of two things: BADARG with nothing written, or a reply that makes sense and items that
// can be read.
func FuzzScript(f *testing.F) {
	client := redis.NewClient(&redis.Options{Addr: sandbox.RedisAddr(f), Protocol: 2, DisableIdentity: true})
	f.Cleanup(func() { _ = client.Close() })
	prefix := sandbox.Prefix(f)
	keys := []string{prefix + "{x}a", prefix + "{x}b"}
	head := strings.Repeat("\x00\x00\x00\x00\x01\x00", 3) + "\x00\x00\x10\x00"
	ticket, one := strings.Repeat("t", 16), "\x00\x00\x00\x00\x00\x01"
	line := func(key, form string) string { return "\x00" + key + one + "\x00\x00\x00\x00\x00\x00" + form }
	news := "\x00\x00\x00\x01" + "\x00\x00\x00\x00\x00\x00\x00\x05" + "\x00\x00\x00\x00\x00\x00\x00\x09" + "\x00\x00\x00\x00\x00\x01"
	for _, seed := range [][6]string{
		{head, "", news, "", ticket + one, ""},
		{head, ticket + "\x00\x02" + line("\x01", "\x00") + line("\x02", "\x01"), news, ticket, ticket + one, ticket + one},
		{head, ticket + "\x00\x01" + line("\x02", "\x02"), "", ticket, "", ""},
		{head, ticket + "\x00\x02" + line("\x01", "\x00"), news, "", "", ""},
		{head, ticket[1:], news, "", "", ""},
		{head[1:], "", news, "", "", ""},
		{"", "", "", "", "", ""},
		{head, "", news[1:], ticket[1:], ticket, "x"},
	} {
		f.Add([]byte(seed[0]), []byte(seed[1]), []byte(seed[2]), []byte(seed[3]), []byte(seed[4]), []byte(seed[5]))
	}
	f.Fuzz(func(t *testing.T, head, orders, news, drops, takes, others []byte) {
		if len(orders)+len(drops)+len(takes)+len(others) > 24*maxRequests {
			return // more than a call ever has
		}
		before := stored(t, client, keys)
		reply, err := client.Eval(t.Context(), script, keys, head, orders, news, drops, takes, "", "", others).Text()
		after := stored(t, client, keys)
		switch {
		case err != nil && !redis.HasErrorPrefix(err, "BADARG"):
			t.Fatal(err)
		case err != nil && !maps.EqualFunc(before, after, maps.Equal):
			t.Fatalf("refused, and written all the same:\n%q\n%q", before, after)
		case err == nil && !replyForm.MatchString(reply):
			t.Fatalf("the reply %q makes no sense", reply)
		}
		for key, fields := range after {
			if _, err := parseFigures(fields); err != nil {
				t.Fatalf("%s: %v: %q", key, err, fields)
			}
		}
	})
}

// stored is what Redis has of each key.
func stored(t *testing.T, client *redis.Client, keys []string) map[string]map[string]string {
	t.Helper()
	all := map[string]map[string]string{}
	for _, key := range keys {
		fields, err := client.HGetAll(t.Context(), key).Result()
		if err != nil {
			t.Fatal(err)
		}
		all[key] = fields
	}
	return all
}

// Whatever the script is said to have replied, it is read or refused.
func FuzzReply(f *testing.F) {
	for _, reply := range []string{"GG", "SC", "RR 1:5:3:1 2", "RR 1", "R", "GG 1:1", "RR 1:-5:3:0 2:9007199254740991:9007199254740991:2", " ", "RX 3:1:1:1"} {
		f.Add(reply)
	}
	b := newBatch(nil)
	f.Fuzz(func(t *testing.T, reply string) {
		b.reset()
		for _, sku := range []stock.SKU{"A", "B"} {
			a := newAsk()
			a.wants = []want{{item: stock.Item{SKU: sku}, quantity: 1}}
			b.add(a)
		}
		if err := b.decode(reply); err != nil && !errors.Is(err, errBadReply) {
			t.Fatal(err)
		}
	})
}
