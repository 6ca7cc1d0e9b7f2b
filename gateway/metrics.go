package gateway

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// metrics are the gateway's own. They have no rollout and no client among their labels.
type metrics struct {
	requests   *prometheus.CounterVec
	firstToken *prometheus.HistogramVec
	tokens     *prometheus.CounterVec
	branches   *prometheus.CounterVec
	overridden *prometheus.CounterVec
}

func newMetrics() *metrics {
	counter := func(name, help string, labels ...string) *prometheus.CounterVec {
		return prometheus.NewCounterVec(prometheus.CounterOpts{Name: name, Help: help}, labels)
	}
	return &metrics{
		requests: counter("headway_gateway_requests_total",
			"Requests of agents that have ended, by path and status; 499 is a client that left.", "path", "status"),
		firstToken: prometheus.NewHistogramVec(prometheus.HistogramOpts{Name: "headway_gateway_time_to_first_token_seconds",
			Help:    "Time from a request to the first token of its first choice, waiting for a slot included.",
			Buckets: []float64{.001, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 15, 60, 300}}, []string{"path"}),
		tokens: counter("headway_gateway_tokens_total",
			"Tokens of responses that are complete: prompt, of which reused were taken over from earlier turns, and completion.", "kind"),
		branches: counter("headway_gateway_branches_total",
			"Branches begun, by reason: first, n, repeated, changed_history, or fallback, where the template does not extend its renderings.", "reason"),
		overridden: counter("headway_gateway_overridden_total",
			"Sampling settings of clients that the run's took the place of, by name.", "setting"),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.firstToken, m.tokens, m.branches, m.overridden}
}

// request counts one request that has ended.
func (m *metrics) request(path string, status int) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
}

// first counts a first token.
func (m *metrics) first(path string, took time.Duration) {
	m.firstToken.WithLabelValues(path).Observe(took.Seconds())
}

// Describe implements prometheus.Collector.
func (g *Gateway) Describe(ch chan<- *prometheus.Desc) {
	for _, c := range g.metrics.all() {
		c.Describe(ch)
	}
}

// Collect implements prometheus.Collector.
func (g *Gateway) Collect(ch chan<- prometheus.Metric) {
	for _, c := range g.metrics.all() {
		c.Collect(ch)
	}
}
