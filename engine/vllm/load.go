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

// Load reads the server's metrics. Metrics without a line of vLLM's own mean that it was started
// with --disable-log-stats, and not that it is idle.
func (Dialect) Load(ctx context.Context, s *upstream.Server, _ *upstream.Capabilities) (upstream.Load, error) {
	unknown := upstream.Load{Running: -1, Waiting: -1, Cache: -1}
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
	load := unknown
	if m, ok := sums[metricRunning]; ok {
		load.Running = int(m.sum)
	}
	if m, ok := sums[metricWaiting]; ok {
		load.Waiting = int(m.sum)
	}
	for _, name := range []string{metricCacheOld, metricCache} {
		if m, ok := sums[name]; ok {
			load.Cache = m.sum / float64(m.series)
		}
	}
	return load, nil
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
