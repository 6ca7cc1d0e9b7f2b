package api

import (
	"net/http"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headway-rl/headway/api/protocol"
)

// metrics has a registry of its own, so that nothing else in the process adds to it.
type metrics struct {
	registry *prometheus.Registry
	scrape   http.Handler
	requests *prometheus.CounterVec
	seconds  *prometheus.HistogramVec
	sync     *prometheus.HistogramVec
	// cached has the handles of routes and codes: a lookup by labels hashes them each time.
	cached sync.Map
}

type requestKey struct {
	route string
	code  int
}

type requestHandles struct {
	count   prometheus.Counter
	seconds prometheus.Observer
}

func newMetrics(opt Options, status func() protocol.Status) *metrics {
	m := &metrics{
		registry: prometheus.NewRegistry(),
		requests: prometheus.NewCounterVec(prometheus.CounterOpts{Name: "headway_http_requests_total",
			Help: "Requests answered, by pattern of the path and status."}, []string{"path", "code"}),
		seconds: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "headway_http_request_duration_seconds",
			Help:    "Time to answer, waiting for work included.",
			Buckets: []float64{.001, .005, .025, .1, .5, 1, 5, 15, 60, 300}}, []string{"path"}),
		sync: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "headway_sync_phase_seconds",
			Help:    "Weight syncs by phase: load, wait, switch and total.",
			Buckets: prometheus.ExponentialBuckets(.001, 4, 10)}, []string{"phase"}),
	}
	of := figures
	if opt.Cell != "" {
		of = cellFigures
	}
	m.registry.MustRegister(m.requests, m.seconds, m.sync, &planeCollector{version: opt.Version, figures: of, status: status},
		collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	m.scrape = promhttp.HandlerFor(m.registry, promhttp.HandlerOpts{MaxRequestsInFlight: 4})
	return m
}

// request counts one request.
func (m *metrics) request(route string, code int, took time.Duration) {
	key := requestKey{route, code}
	handles, ok := m.cached.Load(key)
	if !ok {
		handles, _ = m.cached.LoadOrStore(key, &requestHandles{
			m.requests.WithLabelValues(route, strconv.Itoa(code)), m.seconds.WithLabelValues(route)})
	}
	h := handles.(*requestHandles)
	h.count.Inc()
	h.seconds.Observe(took.Seconds())
}

// ObserveSync counts a weight sync in the metrics.
func (s *Server) ObserveSync(sync protocol.Sync) {
	for _, phase := range []struct {
		name    string
		seconds float64
	}{{"load", sync.LoadS}, {"wait", sync.WaitS}, {"switch", sync.SwitchS}, {"total", sync.TotalS}} {
		s.metrics.sync.WithLabelValues(phase.name).Observe(phase.seconds)
	}
}

// scrape answers Prometheus.
func (s *Server) scrape(w http.ResponseWriter, r *http.Request) error {
	s.metrics.scrape.ServeHTTP(w, r)
	return nil
}
