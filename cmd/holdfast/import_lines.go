package main

import (
	"bufio"
	"bytes"
	"encoding/csv"
	"errors"
	"fmt"
	"io"
	"slices"
	"strconv"

	"github.com/go-json-experiment/json"
)

// stockLine is what a line says. Nil is what it does not say.
type stockLine struct {
	SKU         string  `json:"sku"`
	Location    string  `json:"location"`
	OnHand      *int64  `json:"on_hand"`
	Delta       *int64  `json:"delta"`
	SafetyStock *int64  `json:"safety_stock"`
	LowStockAt  *int64  `json:"low_stock_at"`
	Label       *string `json:"label"`

	// Of an export, for people: ignored.
	Held      any `json:"held"`
	Available any `json:"available"`
	Version   any `json:"version"`

	line int
}

// lineError is a line that cannot be read; the next one may.
type lineError struct {
	line int
	err  error
}

func (e *lineError) Error() string { return fmt.Sprintf("line %d: %v", e.line, e.err) }

// maxLine bounds a line of NDJSON, in bytes.
const maxLine = 64 << 10

// openLines reads NDJSON if the first byte is a brace, else CSV. The function it returns gives the lines one by one, then io.EOF.
func openLines(source io.Reader) (func() (*stockLine, error), error) {
	r := skipByteOrderMark(source)
	first, err := r.Peek(1)
	if errors.Is(err, io.EOF) {
		return nil, errors.New("the file is empty")
	}
	if err != nil {
		return nil, err
	}
	if first[0] == '{' {
		return jsonLines(r), nil
	}
	return csvLines(r)
}

func jsonLines(r io.Reader) func() (*stockLine, error) {
	scanner := bufio.NewScanner(r)
	scanner.Buffer(nil, maxLine)
	line := 0
	return func() (*stockLine, error) {
		for scanner.Scan() {
			line++
			if len(bytes.TrimSpace(scanner.Bytes())) == 0 {
				continue
			}
			l := &stockLine{Location: "default", line: line}
			if err := json.Unmarshal(scanner.Bytes(), l, json.RejectUnknownMembers(true)); err != nil {
				return nil, &lineError{line, err}
			}
			return l, nil
		}
		if err := scanner.Err(); err != nil {
			return nil, fmt.Errorf("line %d: %w", line+1, err)
		}
		return nil, io.EOF
	}
}

// ignoredColumns are those of an export that say nothing to an import.
var ignoredColumns = []string{"held", "available", "version"}

func csvLines(source io.Reader) (func() (*stockLine, error), error) {
	r := csv.NewReader(source)
	header, err := r.Read()
	if err != nil {
		return nil, fmt.Errorf("read the header: %w", err)
	}
	for _, name := range header {
		if (&stockLine{}).set(name, "") != nil {
			return nil, fmt.Errorf("column %q is not known: the header is %q", name, header)
		}
	}
	if !slices.Contains(header, "sku") {
		return nil, fmt.Errorf("there is no column \"sku\": the header is %q", header)
	}
	return func() (*stockLine, error) {
		record, err := r.Read()
		if errors.Is(err, io.EOF) {
			return nil, io.EOF
		}
		if bad := (*csv.ParseError)(nil); errors.As(err, &bad) {
			return nil, &lineError{bad.StartLine, bad.Err}
		}
		if err != nil {
			return nil, err
		}
		l := &stockLine{Location: "default"}
		l.line, _ = r.FieldPos(0)
		for i, value := range record {
			if err := l.set(header[i], value); err != nil {
				return nil, &lineError{l.line, err}
			}
		}
		return l, nil
	}, nil
}

// set a member by the name of its column. An empty value says nothing.
func (l *stockLine) set(name, value string) error {
	var number **int64
	switch name {
	case "sku":
		l.SKU = value
		return nil
	case "location":
		if value != "" {
			l.Location = value
		}
		return nil
	case "label":
		if value != "" {
			l.Label = &value
		}
		return nil
	case "on_hand":
		number = &l.OnHand
	case "delta":
		number = &l.Delta
	case "safety_stock":
		number = &l.SafetyStock
	case "low_stock_at":
		number = &l.LowStockAt
	default:
		if slices.Contains(ignoredColumns, name) {
			return nil
		}
		return fmt.Errorf("column %q is not known", name)
	}
	if value == "" {
		return nil
	}
	n, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return fmt.Errorf("%s is %q: it must be a whole number", name, value)
	}
	*number = &n
	return nil
}
