package gate

import (
	"net/url"
	"strings"
	"testing"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// hashTag is what Redis Cluster hashes of a key: what is between the first { and the next }, if there is anything.
func hashTag(key string) string {
	_, rest, found := strings.Cut(key, "{")
	tag, _, closed := strings.Cut(rest, "}")
	if !found || !closed || tag == "" {
		return key
	}
	return tag
}

// parseKey undoes appendItemKey by other means.
func parseKey(t *testing.T, key string) (prefix, tag string, item stock.Item) {
	t.Helper()
	parts := strings.Split(key, ":")
	if len(parts) != 4 {
		t.Fatalf("%q has %d parts", key, len(parts))
	}
	var texts [3]string
	for i, part := range []string{parts[0], parts[2], parts[3]} {
		text, err := url.PathUnescape(part)
		if err != nil {
			t.Fatalf("%q: %v", key, err)
		}
		texts[i] = text
	}
	return texts[0], parts[1], stock.Item{SKU: stock.SKU(texts[1]), Location: stock.Location(texts[2])}
}

// Different items have different keys, since each key tells its item; and all keys of a group lie in its slot,
// whatever is in the SKU.
func FuzzItemKey(f *testing.F) {
	for _, sku := range []string{"CLE-056621/6", "%2F", "a b", "..", "ä", "{x}", "{}", "}{", "🛒", "M", "m", ":", "\xff"} {
		f.Add("holdfast", sku, "default")
		f.Add("{t}:", sku, sku)
	}
	f.Fuzz(func(t *testing.T, prefix, sku, location string) {
		item := stock.Item{SKU: stock.SKU(sku), Location: stock.Location(location)}
		key := string(appendItemKey(nil, prefix, item))
		gotPrefix, tag, gotItem := parseKey(t, key)
		if gotPrefix != prefix || gotItem != item {
			t.Fatalf("%q is the key of %q %q", key, gotPrefix, gotItem)
		}
		group := groupOf(item)
		if group < 0 || group >= slotGroups {
			t.Fatalf("group %d", group)
		}
		if probe := probeKey(prefix, group); hashTag(key) != hashTag(probe) || "{"+hashTag(key)+"}" != tag || key == probe {
			t.Fatalf("%q has the tag %q, its group %q", key, hashTag(key), hashTag(probe))
		}
	})
}

func TestGroupsAreUsedEvenly(t *testing.T) {
	t.Parallel()
	var used [slotGroups]int
	for i := range 26 * 26 * 26 {
		sku := string([]byte{byte('A' + i/676), byte('A' + i/26%26), byte('A' + i%26)})
		used[groupOf(stock.Item{SKU: stock.SKU(sku), Location: stock.DefaultLocation})]++
	}
	for group, n := range used {
		if average := 26 * 26 * 26 / slotGroups; n < average*8/10 || n > average*12/10 {
			t.Errorf("group %d has %d items of %d on average", group, n, average)
		}
	}
}
