package spans

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"go.opentelemetry.io/otel/attribute"
	"go.opentelemetry.io/otel/codes"
	"go.opentelemetry.io/otel/exporters/otlp/otlptrace/otlptracehttp"
	"go.opentelemetry.io/otel/sdk/resource"
	sdk "go.opentelemetry.io/otel/sdk/trace"
	"go.opentelemetry.io/otel/trace"

	"github.com/headway-rl/headway/app/sink"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/loop"
)

// Spans sends OpenTelemetry spans of a share of the groups. A group is one trace, from its first
// rollout to the train step that consumed it. It has a span for each rollout attempt, its tools, and
// its wait in the queue. Observe and Episode neither block nor wait: spans that the collector does
// not take in time are lost.
type Spans struct {
	opt      sink.SpansOptions
	began    atomic.Int64 // Unix nanoseconds at which the run's own time was 0
	provider *sdk.TracerProvider
	tracer   trace.Tracer
	seed     uint64 // of the draws that choose groups: a function of the run's name

	// groups are those under way; Observe alone touches them.
	groups map[loop.GroupID]*tracedGroup
	// parents are the rollouts under way whose tools may still be told of, by group and name.
	mu      sync.Mutex
	parents map[loop.GroupID]map[string]trace.SpanContext
}

// tracedGroup is a group under way.
type tracedGroup struct {
	span     trace.Span
	ctx      context.Context
	rollouts map[attemptKey]trace.Span
	waits    trace.Span // in the queue
}

type attemptKey struct{ sample, attempt int32 }

// Open begins to send spans. A collector that is away is no error: it is tried with every batch.
func Open(ctx context.Context, opt sink.SpansOptions) (sink.Spans, error) { return open(ctx, opt) }

func open(ctx context.Context, opt sink.SpansOptions) (*Spans, error) {
	opt.Depth = cmp.Or(opt.Depth, 4096)
	options := []otlptracehttp.Option{otlptracehttp.WithEndpointURL(strings.TrimRight(opt.URL, "/") + "/v1/traces")}
	if opt.Token != "" {
		options = append(options, otlptracehttp.WithHeaders(map[string]string{"Authorization": "Bearer " + opt.Token}))
	}
	exporter, err := otlptracehttp.New(ctx, options...)
	if err != nil {
		return nil, fmt.Errorf("sinks.spans: %w", err)
	}
	s := &Spans{opt: opt, seed: seedOf(opt.Run), groups: map[loop.GroupID]*tracedGroup{}, parents: map[loop.GroupID]map[string]trace.SpanContext{}}
	about := resource.NewSchemaless(attribute.String("service.name", "headway"), attribute.String("service.instance.id", opt.Run))
	s.provider = sdk.NewTracerProvider(sdk.WithBatcher(&sender{SpanExporter: exporter, logf: opt.Logf}, sdk.WithMaxQueueSize(opt.Depth)), sdk.WithResource(about),
		sdk.WithSampler(sdk.AlwaysSample()), sdk.WithIDGenerator(identities{opt.Run}))
	s.tracer = s.provider.Tracer("github.com/headway-rl/headway")
	return s, nil
}

// Traced reports whether a group is one of those that are sent. It is a function of the run and the
// group, so that every process that knows both agrees.
func (s *Spans) Traced(g loop.GroupID) bool {
	return float64(loop.Draw(s.seed, uint64(g))>>11)/(1<<53) < s.opt.Share
}

// Traceparent is the W3C header by which an engine's own spans become children of a rollout's, empty for a
// rollout that is not traced.
func (s *Spans) Traceparent(g loop.GroupID, sample, attempt int32) string {
	if !s.Traced(g) {
		return ""
	}
	return fmt.Sprintf("00-%s-%s-01", traceID(s.opt.Run, g), spanID(s.opt.Run, rolloutName(g, sample, attempt)))
}

func rolloutName(g loop.GroupID, sample, attempt int32) string {
	return fmt.Sprintf("g%d-s%d-a%d", g, sample, attempt)
}

// Observe takes an event of the run with what followed from it, in order, by one goroutine.
func (s *Spans) Observe(ev *loop.Event, environmentNS int64, actions []loop.Action) {
	switch ev.Kind {
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted:
		s.endRollout(ev, environmentNS)
	}
	at := s.wall(ev.Time)
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.StartRollout:
			s.startRollout(a, at)
		case loop.GroupQueued:
			if g := s.groups[a.Group]; g != nil && g.waits == nil {
				_, g.waits = s.tracer.Start(named(g.ctx, "queue"), "queue", trace.WithTimestamp(at))
			}
		case loop.GroupLeased:
			if g := s.groups[a.Group]; g != nil && g.waits != nil {
				g.waits.End(trace.WithTimestamp(at))
			}
		case loop.GroupTrained:
			total, _, _ := a.Staleness()
			s.endGroup(a, at, versionOf(trainVersion, a.Version), versionOf(stalenessKey, total), groupEnd.String("trained"))
		case loop.GroupEnded:
			s.endGroup(a, at, groupEnd.String(a.End.String()))
		}
	}
}

// wall is the wall time of an instant of the run.
func (s *Spans) wall(ns int64) time.Time { return time.Unix(0, s.began.Load()+ns) }

// Begin says at which wall time the run's own time was 0. It comes before the first event.
func (s *Spans) Begin(at time.Time) { s.began.Store(at.UnixNano()) }

func (s *Spans) startRollout(a *loop.Action, at time.Time) {
	if !s.Traced(a.Group) {
		return
	}
	g := s.groups[a.Group]
	if g == nil {
		g = &tracedGroup{rollouts: map[attemptKey]trace.Span{}}
		ctx := context.WithValue(context.Background(), groupKey{}, a.Group)
		g.ctx, g.span = s.tracer.Start(named(ctx, "group"), fmt.Sprintf("group %d", a.Group), trace.WithTimestamp(at), trace.WithNewRoot(),
			trace.WithAttributes(groupID.Int64(int64(a.Group)), versionOf(startVersion, a.StartVersion)))
		s.groups[a.Group] = g
	}
	name := rolloutName(a.Group, a.Sample, a.Attempt)
	_, span := s.tracer.Start(named(g.ctx, name), operationAgent+" "+s.opt.Model, trace.WithTimestamp(at), trace.WithSpanKind(trace.SpanKindClient),
		trace.WithAttributes(operationName.String(operationAgent), providerName.String(provider), requestModel.String(s.opt.Model), conversation.String(name),
			sampleIndex.Int(int(a.Sample)), attemptNumber.Int(int(a.Attempt)), versionOf(startVersion, a.Version)))
	g.rollouts[attemptKey{a.Sample, a.Attempt}] = span
	s.mu.Lock()
	if s.parents[a.Group] == nil {
		s.parents[a.Group] = map[string]trace.SpanContext{}
	}
	s.parents[a.Group][name] = span.SpanContext()
	s.mu.Unlock()
}

// endRollout ends an attempt's span.
func (s *Spans) endRollout(ev *loop.Event, environmentNS int64) {
	g := s.groups[ev.Group]
	if g == nil {
		return
	}
	key := attemptKey{ev.Sample, ev.Attempt}
	span := g.rollouts[key]
	if span == nil {
		return
	}
	delete(g.rollouts, key)
	span.SetAttributes(outputTokens.Int(int(ev.Tokens)))
	if ev.Kind == loop.RolloutScored {
		span.SetAttributes(rewardKey.Float64(float64(ev.Reward)), environmentTime.Float64(float64(environmentNS)/1e9))
	} else {
		span.SetAttributes(errorType.String(ev.Reason.String()))
		span.SetStatus(codes.Error, ev.Kind.String())
	}
	span.End(trace.WithTimestamp(s.wall(ev.Time)))

}

// endGroup ends a group's span, and whatever of it has none of its own end.
func (s *Spans) endGroup(a *loop.Action, at time.Time, attributes ...attribute.KeyValue) {
	g := s.groups[a.Group]
	if g == nil {
		return
	}
	delete(s.groups, a.Group)
	if g.waits != nil && a.Kind == loop.GroupEnded {
		g.waits.End(trace.WithTimestamp(at))
	}
	for _, span := range g.rollouts {
		span.SetStatus(codes.Error, "cancelled with its group")
		span.End(trace.WithTimestamp(at))
	}
	g.span.SetAttributes(attributes...)
	g.span.End(trace.WithTimestamp(at))

	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.parents, a.Group)
}

// Episode takes where the time of an attempt went: a span for each tool, sandbox and verdict. Any goroutine
// may call it.
func (s *Spans) Episode(r episode.Record) {
	var group loop.GroupID
	if _, err := fmt.Sscanf(r.Rollout, "g%d-", &group); err != nil || !s.Traced(group) {
		return // an evaluation's, or one of many
	}
	s.mu.Lock()
	parent, traced := s.parents[group][r.Rollout]
	s.mu.Unlock()
	if !traced {
		return
	}
	ctx := trace.ContextWithSpanContext(context.Background(), parent)
	for i, part := range r.Spans {
		name, about := string(part.Kind), []attribute.KeyValue{conversation.String(r.Rollout)}
		if part.Kind == episode.Tool {
			name = operationTool + " " + part.Name
			about = append(about, operationName.String(operationTool), toolName.String(part.Name))
		}
		if part.Class != "" {
			about = append(about, errorType.String(string(part.Class)))
		}
		_, span := s.tracer.Start(named(ctx, fmt.Sprintf("%s %d", r.Rollout, i)), name, trace.WithTimestamp(s.wall(part.StartNS)), trace.WithAttributes(about...))
		if part.Class != "" {
			span.SetStatus(codes.Error, string(part.Class))
		}
		span.End(trace.WithTimestamp(s.wall(part.EndNS)))

	}
}

// Close sends what waits, for as long as the context lasts.
func (s *Spans) Close(ctx context.Context) error {
	return s.provider.Shutdown(ctx)
}

// identities makes the ids of traces and spans functions of the run and of what they are of, so that an
// engine can be told its parent before the parent's span is sent.
type identities struct{ run string }

type (
	groupKey struct{}
	nameKey  struct{}
)

func named(ctx context.Context, name string) context.Context {
	return context.WithValue(ctx, nameKey{}, name)
}

func (i identities) NewIDs(ctx context.Context) (trace.TraceID, trace.SpanID) {
	g, _ := ctx.Value(groupKey{}).(loop.GroupID)
	t := traceID(i.run, g)
	return t, i.NewSpanID(ctx, t)
}

func (i identities) NewSpanID(ctx context.Context, t trace.TraceID) trace.SpanID {
	name, _ := ctx.Value(nameKey{}).(string)
	if name == "group" || name == "queue" {
		name += t.String()
	}
	return spanID(i.run, name)
}

func traceID(run string, g loop.GroupID) (id trace.TraceID) {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s\x00group\x00%d", run, g))
	copy(id[:], sum[:])
	return id
}

func spanID(run, name string) (id trace.SpanID) {
	sum := sha256.Sum256([]byte(run + "\x00span\x00" + name))
	copy(id[:], sum[:])
	return id
}

func seedOf(run string) uint64 {
	sum := sha256.Sum256([]byte(run))
	return binary.BigEndian.Uint64(sum[:])
}

// sender says when the collector takes no spans, and when it does again. The library would print every
// failure.
type sender struct {
	sdk.SpanExporter
	logf   func(format string, args ...any)
	failed atomic.Bool
}

// ExportSpans implements sdk.SpanExporter.
func (t *sender) ExportSpans(ctx context.Context, spans []sdk.ReadOnlySpan) error {
	err := t.SpanExporter.ExportSpans(ctx, spans)
	if was := t.failed.Swap(err != nil); was == (err != nil) || t.logf == nil {
		return nil
	}
	if err != nil {
		t.logf("sinks.spans: %v; spans are lost until it takes them again, and the run goes on", err)
	} else {
		t.logf("sinks.spans: the collector takes spans again")
	}
	return nil
}
