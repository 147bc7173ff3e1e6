package bench

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"
	"strings"
	"time"
)

// scrape adds up the metrics of services: the value of each name, over all its labels and all of them.
func scrape(ctx context.Context, addrs []string) (map[string]float64, error) {
	total := map[string]float64{}
	for _, addr := range addrs {
		ctx, cancel := context.WithTimeout(ctx, 10*time.Second)
		defer cancel()
		request, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+addr+"/metrics", http.NoBody)
		if err != nil {
			return nil, err
		}
		response, err := http.DefaultClient.Do(request)
		if err != nil {
			return nil, err
		}
		err = addMetrics(total, response.Body)
		_ = response.Body.Close() // read to its end
		if err != nil {
			return nil, fmt.Errorf("metrics of %s: %w", addr, err)
		}
	}
	return total, nil
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
