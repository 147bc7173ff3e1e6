package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
)

// scrape adds up the metrics of services: the value of each name, over all its labels and all of them.
func scrape(ctx context.Context, addrs []string) (map[string]float64, error) {
	total := map[string]float64{}
	for _, addr := range addrs {
		if err := fetch(ctx, addr, "/metrics", func(body io.Reader) error { return addMetrics(total, body) }); err != nil {
			return nil, err
		}
	}
	return total, nil
}

// fetch gets what an admin listener shows and gives it to read.
func fetch(ctx context.Context, addr, path string, read func(io.Reader) error) error {
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+path, http.NoBody)
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("GET %s was answered %s", path, response.Status)
	}
	if err := read(response.Body); err != nil {
		return fmt.Errorf("read %s of %s: %w", path, addr, err)
	}
	return nil
}

// addMetrics reads Prometheus' text format. Buckets are left out: over labels they do not add up to anything.
func addMetrics(total map[string]float64, text io.Reader) error {
	lines := bufio.NewScanner(text)
	for lines.Scan() {
		line := lines.Text()
		if strings.HasPrefix(line, "#") || strings.Contains(line, "_bucket{") {
			continue
		}
		space := strings.LastIndexByte(line, ' ')
		if space < 0 {
			continue
		}
		value, err := strconv.ParseFloat(line[space+1:], 64)
		if err != nil {
			return err
		}
		name, _, _ := strings.Cut(line[:space], "{")
		total[name] += value
	}
	return lines.Err()
}
