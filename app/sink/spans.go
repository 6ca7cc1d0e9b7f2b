package sink

import (
	"context"
	"time"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/loop"
)

// SpansOptions say which rollouts a collector is told of.
type SpansOptions struct {
	// URL of the collector's OTLP receiver over HTTP; Token is sent as a bearer token, empty for none.
	URL, Token string
	// Run names the run; Model is what its engines serve.
	Run, Model string
	// Share of the groups whose rollouts are sent, above 0 and at most 1.
	Share float64
	// Logf says what the collector did not take. Nil says nothing.
	Logf func(format string, args ...any)
	// Depth is how many spans wait at most, 0 for 4,096; more are dropped.
	Depth int
}

// OpenSpans begins to send spans of a run.
type OpenSpans func(ctx context.Context, opt SpansOptions) (Spans, error)

// Spans are sent of a share of the groups. Observe and Episode neither block nor wait: spans that the collector
// does not take in time are lost.
type Spans interface {
	// Begin says at which wall time the run's own time was 0. It comes before the first event.
	Begin(at time.Time)
	// Observe takes an event of the run with what followed from it, in order, by one goroutine.
	Observe(ev *loop.Event, environmentNS int64, actions []loop.Action)
	// Episode takes where the time of an attempt went. Any goroutine may call it.
	Episode(r episode.Record)
	// Traceparent is the W3C header by which an engine's own spans become children of a rollout's, empty for a
	// rollout that is not traced.
	Traceparent(g loop.GroupID, sample, attempt int32) string
	// Close sends what waits, for as long as the context lasts.
	Close(ctx context.Context) error
}
