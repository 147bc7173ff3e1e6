package gate

import (
	"strconv"
	"strings"

	"github.com/holdfast-stock/holdfast/internal/stock"
)

// slotGroups is how many hash tags there are. All items of a group lie in one slot of a Cluster, so one script
// call decides them together; more groups spread better over masters and gather less into a call. The tags {g0} to
// {g15} lie evenly on 2, 3 and 4 masters with an equal share of slots each, and on every one of 8. Every process must
// use the same number, which is why it is no setting.
const slotGroups = 16

// allowance is what a customer may have of an item: for the gate an item of its own, whose figure is below zero by what he
// has. Its location goes on behind a zero byte, which no name contains, with client and customer.
func allowance(item stock.Item, c stock.Customer) stock.Item {
	item.Location += stock.Location("\x00" + c.Client + "\x00" + c.Name)
	return item
}

// allowed is the reverse of allowance; false for a real item.
func allowed(item stock.Item) (stock.Item, stock.Customer, bool) {
	location, rest, ok := strings.Cut(string(item.Location), "\x00")
	if !ok {
		return item, stock.Customer{}, false
	}
	item.Location = stock.Location(location)
	client, name, _ := strings.Cut(rest, "\x00")
	return item, stock.Customer{Client: client, Name: name}, true
}

// groupOf an item: FNV-1a over SKU, a zero byte that neither part may contain, and location. An allowance is in the group
// of its item.
func groupOf(item stock.Item) int {
	const offset, prime = 2166136261, 16777619
	h := uint32(offset)
	for i := range len(item.SKU) {
		h = (h ^ uint32(item.SKU[i])) * prime
	}
	h *= prime
	for i := range len(item.Location) {
		if item.Location[i] == 0 {
			break
		}
		h = (h ^ uint32(item.Location[i])) * prime
	}
	return int((h ^ h>>16) % slotGroups)
}

// appendItemKey appends the key of an item's hash: prefix:{gN}:sku:location, each part escaped, so that different
// items have different keys and no SKU forms, ends or breaks a hash tag.
func appendItemKey(b []byte, prefix string, item stock.Item) []byte {
	b = appendTag(b, prefix, groupOf(item))
	b = append(b, ':')
	b = appendEscaped(b, string(item.SKU))
	b = append(b, ':')
	return appendEscaped(b, string(item.Location))
}

// probeKey is written when a node is probed: it shows that the group's master takes writes.
func probeKey(prefix string, group int) string {
	return string(append(appendTag(nil, prefix, group), ":#probe"...))
}

func appendTag(b []byte, prefix string, group int) []byte {
	b = appendEscaped(b, prefix)
	b = append(b, ":{g"...)
	b = strconv.AppendInt(b, int64(group), 10)
	return append(b, '}')
}

// appendEscaped percent-encodes every byte but ASCII letters, digits, '-', '_' and '.'.
func appendEscaped(b []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	for i := range len(s) {
		switch c := s[i]; {
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', '0' <= c && c <= '9', c == '-', c == '_', c == '.':
			b = append(b, c)
		default:
			b = append(b, '%', hex[c>>4], hex[c&15])
		}
	}
	return b
}
