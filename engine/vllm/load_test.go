package vllm

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"strconv"

	"github.com/headway-rl/headway/engine/upstream"
)

// Names of the server's own counts in its metrics; the last is what older builds call the one before.
const (
	metricRunning  = "vllm:num_requests_running"
	metricWaiting  = "vllm:num_requests_waiting"
	metricCache    = "vllm:kv_cache_usage_perc"
	metricCacheOld = "vllm:gpu_cache_usage_perc"
)

// load is how busy a server is; -1 where it does not say.
type load struct {
	Running, Waiting int
	// Cache is the share of its cache that is in use, 0 to 1.
	Cache float64
}

// loadOf reads the server's metrics.
func loadOf(ctx context.Context, s *upstream.Server) (load, error) {
	unknown := load{Running: -1, Waiting: -1, Cache: -1}
	body, err := s.Open(ctx, http.MethodGet, upstream.Call{Path: "/metrics"})
	if absent(err) {
		return unknown, nil
	}
	if err != nil {
		return unknown, err
	}
	defer body.Close()
	sums, err := readMetrics(body)
	if err != nil {
		return unknown, fmt.Errorf("/metrics: %w", err)
	}
	l := unknown
	if m, ok := sums[metricRunning]; ok {
		l.Running = int(m.sum)
	}
	if m, ok := sums[metricWaiting]; ok {
		l.Waiting = int(m.sum)
	}
	for _, name := range []string{metricCacheOld, metricCache} {
		if m, ok := sums[name]; ok {
			l.Cache = m.sum / float64(m.series)
		}
	}
	return l, nil
}

// metric is a gauge over the server's engines, of which there is one for every data-parallel rank.
type metric struct {
	sum    float64
	series int
}

// readMetrics reads the gauges that say how busy a server is.
func readMetrics(body io.Reader) (map[string]metric, error) {
	found := map[string]metric{}
	lines := bufio.NewScanner(body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Bytes()
		name := line
		if i := bytes.IndexAny(line, "{ "); i >= 0 {
			name = line[:i]
		}
		switch string(name) {
		case metricRunning, metricWaiting, metricCache, metricCacheOld:
		default:
			continue
		}
		rest := line[len(name):]
		if i := bytes.LastIndexByte(rest, '}'); i >= 0 {
			rest = rest[i+1:]
		}
		value, _, _ := bytes.Cut(bytes.TrimSpace(rest), []byte(" ")) // a time may follow
		x, err := strconv.ParseFloat(string(value), 64)
		if err != nil {
			return nil, fmt.Errorf("a line that is not understood: %.200q", line)
		}
		m := found[string(name)]
		found[string(name)] = metric{m.sum + x, m.series + 1}
	}
	return found, lines.Err()
}
