package gateway

import (
	"fmt"
	"net/http"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
)

// metrics are the gateway's own. They have no rollout and no client among their labels.
type metrics struct {
	requests   *prometheus.CounterVec
	firstToken *prometheus.HistogramVec
	tokens     *prometheus.CounterVec
	branches   *prometheus.CounterVec
	overridden *prometheus.CounterVec
	calls      *prometheus.CounterVec

	// What a status shows of the same.
	asked, refused, open, turns, left, sampled atomic.Int64
	// offered counts turns that could call tools, called the calls of them, and missed attempts that were none.
	offered, called, missed atomic.Int64
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
			"Branches begun, by reason: first, n, agent, repeated, changed_history, or fallback, where the template does not extend its renderings.", "reason"),
		overridden: counter("headway_gateway_overridden_total",
			"Sampling settings of clients that the run's took the place of, by name.", "setting"),
		calls: counter("headway_gateway_calls_total",
			"Attempts of the policy to call a tool, by what became of them: ok, unknown_tool, unclosed, invalid_json, missing_name or malformed.", "status"),
	}
}

func (m *metrics) all() []prometheus.Collector {
	return []prometheus.Collector{m.requests, m.firstToken, m.tokens, m.branches, m.overridden, m.calls}
}

// request counts one request that has ended.
func (m *metrics) request(path string, status int) {
	m.requests.WithLabelValues(path, strconv.Itoa(status)).Inc()
	m.asked.Add(1)
	switch {
	case status == statusLeft:
		m.left.Add(1)
	case status != http.StatusOK:
		m.refused.Add(1)
	}
}

// call counts the attempts of a response to call tools, and whether it could.
func (m *metrics) call(callable bool, counts calls.Counts) {
	if callable {
		m.offered.Add(1)
	}
	for _, s := range calls.Statuses() {
		if n := counts[s]; n > 0 {
			m.calls.WithLabelValues(s.String()).Add(float64(n))
		}
	}
	ok := int64(counts[calls.OK] + counts[calls.UnknownTool])
	m.called.Add(ok)
	m.missed.Add(int64(counts.Total()) - ok)
}

// turn counts a response that is complete, and its prompt with the first of a request.
func (m *metrics) turn(p *prompt, ch *choice) {
	m.turns.Add(1)
	m.sampled.Add(int64(len(ch.reply.Tokens)))
	m.tokens.WithLabelValues("completion").Add(float64(len(ch.reply.Tokens)))
	if ch.index == 0 {
		m.tokens.WithLabelValues("prompt").Add(float64(len(p.tokens)))
		if p.before != nil {
			m.tokens.WithLabelValues("reused").Add(float64(p.before.total))
		}
	}
	if ch.why != "" {
		m.branches.WithLabelValues(ch.why).Inc()
	}
	for _, name := range ch.overridden {
		m.overridden.WithLabelValues(name).Inc()
	}
}

// noCallTurns is how many turns that could call tools may pass without one before that is a finding.
const noCallTurns = 64

// noCall says that no call has ever been told though tools were offered, nil as long as that may be chance.
func (g *Gateway) noCall() *protocol.Finding {
	offered, missed := g.metrics.offered.Load(), g.metrics.missed.Load()
	if g.metrics.called.Load() > 0 || offered < noCallTurns {
		return nil
	}
	seen := "none is begun"
	if missed > 0 {
		seen = fmt.Sprintf("%d attempts were none (headway_gateway_calls_total has why)", missed)
	}
	return &protocol.Finding{Code: "no_call", Message: fmt.Sprintf("tools were offered in %d turns and no call has been told from one, in the grammar %s: %s. Set gateway.tool_format to the model's own family, or look at its answers: it may not have been trained on tools", offered, g.opt.Calls.Name, seen)}
}

// Status counts what agents have asked so far.
func (g *Gateway) Status() protocol.Gateway {
	m := g.metrics
	return protocol.Gateway{Finding: g.noCall(), Requests: m.asked.Load(), Refused: m.refused.Load(), Open: m.open.Load(),
		Turns: m.turns.Load(), Aborted: m.left.Load(), Tokens: m.sampled.Load(),
		Offered: m.offered.Load(), Calls: m.called.Load(), CallsMissed: m.missed.Load()}
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
