package spans

import (
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	collector "go.opentelemetry.io/proto/otlp/collector/trace/v1"
	spans "go.opentelemetry.io/proto/otlp/trace/v1"
	"google.golang.org/protobuf/proto"

	"github.com/headway-rl/headway/app/sink"
	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/loop"
)

// receiver takes OTLP over HTTP, by the protocol's own messages.
type receiver struct {
	mu     sync.Mutex
	spans  []*spans.Span
	header http.Header
	status int
}

func (r *receiver) ServeHTTP(w http.ResponseWriter, request *http.Request) {
	body, err := io.ReadAll(request.Body)
	var message collector.ExportTraceServiceRequest
	if err = errors.Join(err, proto.Unmarshal(body, &message)); err != nil || request.URL.Path != "/v1/traces" {
		w.WriteHeader(http.StatusBadRequest)
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if r.status != 0 {
		w.WriteHeader(r.status)
		return
	}
	r.header = request.Header
	for _, resource := range message.ResourceSpans {
		for _, scope := range resource.ScopeSpans {
			r.spans = append(r.spans, scope.Spans...)
		}
	}
}

// attribute of a span as text, "" for none.
func attributeOf(s *spans.Span, key string) string {
	for _, a := range s.Attributes {
		if a.Key == key {
			return strings.TrimSpace(strings.SplitN(a.Value.String(), ":", 2)[1])
		}
	}
	return ""
}

// play tells of a group of two rollouts: one is scored, after a tool and a first attempt that failed, the other too;
// the group waits and is trained.
func play(s *Spans, id loop.GroupID) {
	event := func(second int64, ev loop.Event, actions ...loop.Action) {
		ev.Time = second * 1e9
		s.Observe(&ev, 5e8, actions)
	}
	start := func(sample, attempt int32) loop.Action {
		return loop.Action{Kind: loop.StartRollout, Group: id, Sample: sample, Attempt: attempt, Version: 3, StartVersion: 3}
	}
	event(0, loop.Event{Kind: loop.RunStarted}, start(0, 1), start(1, 1))
	event(1, loop.Event{Kind: loop.RolloutFailed, Group: id, Sample: 0, Attempt: 1, Reason: loop.ReasonEnvironment}, start(0, 2))
	s.Episode(episode.Record{Rollout: fmt.Sprintf("g%d-s0-a2", id), Spans: []episode.Span{
		{Kind: episode.Model, StartNS: 1e9, EndNS: 15e8}, {Kind: episode.Tool, Name: "python", StartNS: 15e8, EndNS: 2e9, Class: "timeout"}}})
	event(2, loop.Event{Kind: loop.RolloutScored, Group: id, Sample: 0, Attempt: 2, Tokens: 7, Reward: 0.5})
	event(3, loop.Event{Kind: loop.RolloutScored, Group: id, Sample: 1, Attempt: 1, Tokens: 9, Reward: 1}, loop.Action{Kind: loop.GroupQueued, Group: id})
	event(5, loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.GroupLeased, Group: id, Version: 5, StartVersion: 3, ReadyVersion: 4})
	event(6, loop.Event{Kind: loop.TrainStepEnded}, loop.Action{Kind: loop.GroupTrained, Group: id, Version: 5, StartVersion: 3, ReadyVersion: 4, Count: 2})
}

func TestSpansOfAGroup(t *testing.T) {
	r := &receiver{}
	server := httptest.NewServer(r)
	defer server.Close()
	s, err := open(t.Context(), sink.SpansOptions{URL: server.URL, Token: "secret", Run: "run", Model: "reverse", Share: 1})
	if err != nil {
		t.Fatal(err)
	}
	s.Begin(time.Unix(1000, 0))
	play(s, 42)
	if err := s.Close(t.Context()); err != nil {
		t.Fatal(err)
	}
	byName := map[string]*spans.Span{}
	for _, span := range r.spans {
		byName[span.Name+attributeOf(span, "gen_ai.conversation.id")] = span
		if string(span.TraceId) != string(r.spans[0].TraceId) {
			t.Errorf("%s is of another trace", span.Name)
		}
	}
	if len(r.spans) != 7 || len(byName) != 7 || r.header.Get("Authorization") != "Bearer secret" {
		t.Fatalf("%d spans, by name %v", len(r.spans), byName)
	}
	group := byName["group 42"]
	second := byName[`invoke_agent reverse"g42-s0-a2"`]
	failed := byName[`invoke_agent reverse"g42-s0-a1"`]
	tool := byName[`execute_tool python"g42-s0-a2"`]
	queue := byName["queue"]
	if group == nil || second == nil || failed == nil || tool == nil || queue == nil {
		t.Fatalf("the spans are %v", byName)
	}
	at := func(ns uint64) float64 { return float64(ns)/1e9 - 1000 }
	if at(group.StartTimeUnixNano) != 0 || at(group.EndTimeUnixNano) != 6 || at(queue.StartTimeUnixNano) != 3 || at(queue.EndTimeUnixNano) != 5 || at(tool.EndTimeUnixNano) != 2 {
		t.Errorf("group %v to %v, queue %v to %v", at(group.StartTimeUnixNano), at(group.EndTimeUnixNano), at(queue.StartTimeUnixNano), at(queue.EndTimeUnixNano))
	}
	if string(second.ParentSpanId) != string(group.SpanId) || string(tool.ParentSpanId) != string(second.SpanId) || len(group.ParentSpanId) != 0 {
		t.Error("children have other parents")
	}
	if attributeOf(group, "rl.staleness") != "2" || attributeOf(second, "gen_ai.usage.output_tokens") != "7" || attributeOf(failed, "error.type") != `"environment"` ||
		failed.Status.Code != spans.Status_STATUS_CODE_ERROR || attributeOf(tool, "gen_ai.tool.name") != `"python"` {
		t.Errorf("attributes: %v %v %v", group.Attributes, second.Attributes, failed.Attributes)
	}
	want := fmt.Sprintf("00-%x-%x-01", second.TraceId, second.SpanId)
	if got := s.Traceparent(42, 0, 2); got != want {
		t.Errorf("an engine is told %s, the span has %s", got, want)
	}
}

// The share is of groups, the same ones in every process, and what is not traced costs no memory.
func TestSpansOfAShare(t *testing.T) {
	s := &Spans{opt: sink.SpansOptions{Run: "run", Share: 0.1}}
	again := &Spans{opt: sink.SpansOptions{Run: "run", Share: 0.1}}
	traced := 0
	for g := range loop.GroupID(10_000) {
		if s.Traced(g) != again.Traced(g) {
			t.Fatalf("group %d is traced by one alone", g)
		}
		if s.Traced(g) {
			traced++
		} else if s.Traceparent(g, 0, 1) != "" {
			t.Fatalf("group %d has a parent", g)
		}
	}
	if traced < 900 || traced > 1100 {
		t.Errorf("%d of 10,000 groups are traced, want about a tenth", traced)
	}
}

// A collector that refuses is said once, and once that it takes spans again.
func TestSpansNobodyTakes(t *testing.T) {
	r := &receiver{status: http.StatusForbidden}
	server := httptest.NewServer(r)
	defer server.Close()
	var said []string
	s, err := open(t.Context(), sink.SpansOptions{URL: server.URL, Run: "run", Share: 1, Logf: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
	if err != nil {
		t.Fatal(err)
	}
	s.Begin(time.Unix(1000, 0))
	play(s, 1)
	err = s.provider.ForceFlush(t.Context())
	play(s, 2)
	err = errors.Join(err, s.provider.ForceFlush(t.Context()))
	r.mu.Lock()
	r.status = 0
	r.mu.Unlock()
	play(s, 3)
	if err = errors.Join(err, s.Close(t.Context())); err != nil {
		t.Fatal(err)
	}
	if len(said) != 2 || !strings.Contains(said[0], "403") || !strings.Contains(said[1], "again") || len(r.spans) != 7 {
		t.Errorf("said %q, took %d spans", said, len(r.spans))
	}
	if len(s.groups) != 0 || len(s.parents) != 0 {
		t.Errorf("%d groups and %d rollouts are remembered", len(s.groups), len(s.parents))
	}
}

func BenchmarkSpansObserve(b *testing.B) {
	s := &Spans{opt: sink.SpansOptions{Run: "run", Share: 1e-9}, groups: map[loop.GroupID]*tracedGroup{}}
	b.ReportAllocs()
	for i := range b.N {
		id := loop.GroupID(i + 1)
		ev := loop.Event{Kind: loop.RolloutScored, Group: id, Sample: 1, Attempt: 1}
		s.Observe(&ev, 0, []loop.Action{{Kind: loop.StartRollout, Group: id, Sample: 1, Attempt: 1}})
	}
}
