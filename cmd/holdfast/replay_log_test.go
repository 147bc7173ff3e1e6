package main

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

func parseLog(t *testing.T, lines ...string) *orderLog {
	t.Helper()
	log, err := readLog(strings.NewReader("invoice,stock_code,quantity,at\n" + strings.Join(lines, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return log
}

func diffOrders(want []order, got *orderLog) string {
	return cmp.Diff(want, got.orders, cmp.AllowUnexported(order{}, orderLine{}, comeback{}))
}

func TestLogSumsLinesOfOneCode(t *testing.T) {
	t.Parallel()
	log := parseLog(t, "1,A,2,", "1,B,1,", "1,A,3,", "2,a,1,", "2,A,1,", "2,BANK CHARGES,1,", "1,B,4,")
	want := []order{
		{invoice: "1", lines: []orderLine{{"A", 5}, {"B", 5}}},
		{invoice: "2", lines: []orderLine{{"a", 1}, {"A", 1}, {"BANK CHARGES", 1}}},
	}
	if diff := diffOrders(want, log); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
	if diff := cmp.Diff(map[string]int64{"A": 6, "B": 5, "a": 1, "BANK CHARGES": 1}, log.demand); diff != "" {
		t.Errorf("demand (-want +got):\n%s", diff)
	}
}

func TestLogMatchesWhatCameBackWithTheLatestSale(t *testing.T) {
	t.Parallel()
	log := parseLog(t, "1,A,5,", "2,A,2,", "C3,A,-1,", "C4,A,-4,", "5,A,9,", "C6,A,-2,", "C6,A,-1,", "C7,B,-1,", "C8,A,-20,")
	back := func(code string, quantity int64, sale int) comeback {
		return comeback{orderLine{code, quantity}, sale, 0}
	}
	want := []order{
		{invoice: "1", lines: []orderLine{{"A", 5}}},
		{invoice: "2", lines: []orderLine{{"A", 2}}},
		{invoice: "C3", cancels: true, lines: []orderLine{{"A", 1}}, back: []comeback{back("A", 1, 1)}},
		{invoice: "C4", cancels: true, lines: []orderLine{{"A", 4}}, back: []comeback{back("A", 1, 1), back("A", 3, 0)}},
		{invoice: "5", lines: []orderLine{{"A", 9}}},
		{invoice: "C6", cancels: true, lines: []orderLine{{"A", 3}}, back: []comeback{back("A", 3, 4)}},
		{invoice: "C7", cancels: true, lines: []orderLine{{"B", 1}}, back: []comeback{back("B", 1, -1)}},
		{
			invoice: "C8", cancels: true, lines: []orderLine{{"A", 20}},
			back: []comeback{back("A", 6, 4), back("A", 2, 0), back("A", 12, -1)},
		},
	}
	if diff := diffOrders(want, log); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
}

func TestLogSaysWhatItLeavesOut(t *testing.T) {
	t.Parallel()
	long := strings.Repeat("x", 129)
	log := parseLog(t,
		"1,A,0,", "1,A,-1,", "1,B,-2,", "1,C,1.5,", "1,D,1000000001,", "1, E,1,", "1,"+long+",1,", "1,,1,",
		"C2,A,3,", "C2,A,0,", long+",A,1,", ",A,1,", "3,F,600000000,", "3,F,600000000,", "4,G,1,", "5,H,-1,", "C6,I,99999999999999999999,",
	)
	got := make(map[string]int)
	for reason, s := range log.skipped {
		got[reason] = s.Lines*1000 + s.First
	}
	want := map[string]int{
		skipZero: 2002, skipNegative: 3003, skipQuantity: 4005, skipCode: 3007, skipPositive: 1010, skipInvoice: 2012,
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("1000 × lines + first line (-want +got):\n%s", diff)
	}
	if diff := diffOrders([]order{{invoice: "3", lines: []orderLine{{"F", 600_000_000}}}, {invoice: "4", lines: []orderLine{{"G", 1}}}}, log); diff != "" {
		t.Errorf("orders (-want +got):\n%s", diff)
	}
	if log.invoices != 8 || log.lines != 17 {
		t.Errorf("%d invoices, %d lines, want 8 and 17", log.invoices, log.lines)
	}
	if diff := cmp.Diff([]string{"A", "B", "C", "D", "F", "G", "H", "I"}, log.codes); diff != "" {
		t.Errorf("codes (-want +got):\n%s", diff)
	}
}

func TestLogLeavesOutWhatAnOrderCannotHave(t *testing.T) {
	t.Parallel()
	var lines []string
	for n := range 1002 {
		lines = append(lines, fmt.Sprintf("1,%d,1,", n))
	}
	log := parseLog(t, append(lines, "1,0,1,")...)
	if n := len(log.orders[0].lines); n != 1000 || log.skipped[skipLines].Lines != 2 || log.orders[0].lines[0].quantity != 2 {
		t.Errorf("%d lines, %+v left out, want 1,000 and 2", n, log.skipped[skipLines])
	}
}

func TestLogThatCannotBeRead(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"empty":         "",
		"no header":     "536365,85123A,6,2010-12-01",
		"short line":    "invoice,stock_code,quantity\n1,A\n",
		"open quote":    "invoice,stock_code,quantity\n1,\"A,1\n",
		"no such field": "invoice,code,quantity\n1,A,1\n",
	} {
		if _, err := readLog(strings.NewReader(text)); err == nil {
			t.Errorf("%s: no error", name)
		}
	}
	if log, err := readLog(strings.NewReader("\uFEFFquantity,x,stock_code,invoice\n3,,A,1\n")); err != nil || log.orders[0].lines[0].quantity != 3 {
		t.Errorf("columns in another order, after a byte order mark: %v, %+v", err, log)
	}
}

func TestKeysAreVisibleAndDifferent(t *testing.T) {
	t.Parallel()
	seen := make(map[string]bool)
	for _, parts := range [][]string{
		{"k", "a", "b"}, {"k", "a:b", ""}, {"k", "a b"}, {"k", "ä"}, {"k", ""}, {"k", strings.Repeat("ä", 64)}, {"k", strings.Repeat("ö", 64)},
	} {
		key := keyOf(parts...)
		if seen[key] || len(key) > 255 || strings.ContainsFunc(key, func(r rune) bool { return r < '!' || r > '~' }) {
			t.Errorf("%q makes the key %q", parts, key)
		}
		seen[key] = true
	}
}
