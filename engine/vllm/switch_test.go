package vllm

import (
	"context"
	"io"
	"math"
	"net/http"
	"strings"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// needs skips a test of what the server was not started with, and says what that is.
func needs(t *testing.T, there bool, caps *upstream.Capabilities) {
	t.Helper()
	if !there {
		var lacks []string
		for _, m := range caps.Missing {
			lacks = append(lacks, m.What)
		}
		t.Skip("the server lacks it: " + strings.Join(lacks, "; "))
	}
}

// precision is how far log-probs in float32 may be from those in float64.
const precision = 2e-4

// farthest is the greatest distance between log-probs of two lists.
func farthest(got []float32, want []float64) float64 {
	most := 0.0
	for i, x := range got {
		most = max(most, math.Abs(float64(x)-want[i]))
	}
	return most
}

// sampled is the number of tokens that the server has ever sampled.
func sampled(t *testing.T, s *upstream.Server) string {
	t.Helper()
	body, err := s.Open(limited(t), http.MethodGet, upstream.Call{Path: "/metrics"})
	if err != nil {
		t.Fatal(err)
	}
	defer body.Close()
	text, err := io.ReadAll(body)
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(text)) {
		if strings.HasPrefix(line, "vllm:generation_tokens_total") {
			return line
		}
	}
	t.Skip("the server does not count its tokens: start it without --disable-log-stats")
	return ""
}

func update(t *testing.T, s *upstream.Server, caps *upstream.Capabilities, u upstream.Update) {
	t.Helper()
	ctx := limited(t)
	if err := New().Pause(ctx, s, u, caps); err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := New().Resume(context.WithoutCancel(ctx), s, caps); err != nil {
			t.Error(err)
		}
	}()
	if err := New().Update(ctx, s, u, caps); err != nil {
		t.Fatal(err)
	}
}

func TestPauseStopsTokens(t *testing.T) {
	s, caps, _ := real(t)
	needs(t, caps.Pause, caps)
	ctx := limited(t)
	st := openLong(t, s, caps, request(200))
	st.until(t, 5)
	defer func() { _ = New().Resume(context.WithoutCancel(ctx), s, caps) }()
	for range 2 { // a second time changes nothing
		if err := New().Pause(ctx, s, upstream.Update{}, caps); err != nil {
			t.Fatal(err)
		}
	}
	before := sampled(t, s)
	for range 50 { // a server that goes on has sampled meanwhile
		if label, err := New().Version(ctx, s, caps); err != nil || label == "" {
			t.Fatal(label, err)
		}
	}
	if load, err := loadOf(ctx, s); err != nil || load.Running < 1 || load.Cache < 0 {
		t.Errorf("in a pause the load is %+v, %v", load, err)
	}
	if after := sampled(t, s); after != before {
		t.Errorf("sampled in a pause: %s then %s", before, after)
	}
	for range 2 {
		if err := New().Resume(ctx, s, caps); err != nil {
			t.Fatal(err)
		}
	}
	if !st.until(t, all) || st.delta.Finish == "" {
		t.Errorf("after the pause it ends with %q after %d tokens", st.delta.Finish, len(st.delta.Tokens))
	}
}

// TestSwitchUnderWay switches weights under a response and holds every token's log-prob against
// what the weights named by its span say, computed here.
func TestSwitchUnderWay(t *testing.T) {
	s, caps, weights := real(t)
	needs(t, caps.Pause && caps.UpdateDisk && caps.VersionSpans && caps.Flush, caps)
	if weights[1] == "" {
		t.Skip("HEADWAY_TEST_WEIGHTS does not name two directories, dir0:dir1")
	}
	models := map[string]*llama{"test-0": newLlama(t, weights[0]), "test-1": newLlama(t, weights[1])}
	update(t, s, caps, upstream.Update{Label: "test-0", Dir: weights[0], Cache: upstream.CacheFlush})
	defer update(t, s, caps, upstream.Update{Label: "test-0", Dir: weights[0], Cache: upstream.CacheFlush})
	r := request(120)
	r.Salt = "test-0"
	st := openLong(t, s, caps, r)
	st.until(t, 20)
	update(t, s, caps, upstream.Update{Label: "test-1", Dir: weights[1], Cache: upstream.CacheFlush})
	if label, err := New().Version(limited(t), s, caps); err != nil || label != "test-1" {
		t.Errorf("it says that it serves %q, %v", label, err)
	}
	st.until(t, all)
	d := st.delta
	if len(d.Spans) != 2 || d.Spans[0].Label != "test-0" || d.Spans[1].Label != "test-1" || d.Spans[0].Start != 0 ||
		d.Spans[0].End != d.Spans[1].Start || d.Spans[1].End != len(d.Tokens) {
		t.Fatalf("spans of %d tokens: %+v", len(d.Tokens), d.Spans)
	}
	sequence := append(append([]int32(nil), r.Prompt...), d.Tokens...)
	for i, span := range d.Spans {
		own := models[span.Label].score(sequence)[len(r.Prompt)-1:]
		other := models[d.Spans[1-i].Label].score(sequence)[len(r.Prompt)-1:]
		near, far := farthest(d.Logprobs[span.Start:span.End], own[span.Start:span.End]), farthest(d.Logprobs[span.Start:span.End], other[span.Start:span.End])
		t.Logf("%s sampled %d tokens: at most %.2g from its own log-probs, %.2g from the other's", span.Label, span.End-span.Start, near, far)
		if near > precision || far < 100*precision {
			t.Errorf("%s: %g from its own log-probs, %g from the other's", span.Label, near, far)
		}
	}
	scores, err := New().Score(limited(t), s, sequence, caps)
	if err != nil {
		t.Fatal(err)
	}
	if far := farthest(scores, models["test-1"].score(sequence)); far > precision {
		t.Errorf("after the switch its scores are %g from the new weights'", far)
	}
}

// TestSwitchThatKeepsTheCache shows what the policy keep means: tokens after the switch are of new
// weights over old keys and values, and no model's own.
func TestSwitchThatKeepsTheCache(t *testing.T) {
	s, caps, weights := real(t)
	needs(t, caps.Pause && caps.UpdateDisk && caps.VersionSpans, caps)
	if weights[1] == "" {
		t.Skip("HEADWAY_TEST_WEIGHTS does not name two directories, dir0:dir1")
	}
	update(t, s, caps, upstream.Update{Label: "test-0", Dir: weights[0], Cache: upstream.CacheFlush})
	defer update(t, s, caps, upstream.Update{Label: "test-0", Dir: weights[0], Cache: upstream.CacheFlush})
	st := openLong(t, s, caps, request(80))
	st.until(t, 20)
	update(t, s, caps, upstream.Update{Label: "test-1", Dir: weights[1], Cache: upstream.CacheKeep})
	st.until(t, all)
	sequence := append(append([]int32(nil), request(1).Prompt...), st.delta.Tokens...)
	if len(st.delta.Spans) != 2 {
		t.Fatalf("spans %+v", st.delta.Spans)
	}
	first := st.delta.Spans[1].Start
	own := newLlama(t, weights[1]).score(sequence)[len(request(1).Prompt)-1:]
	far := math.Abs(float64(st.delta.Logprobs[first]) - own[first])
	t.Logf("the first token after the switch is %.2g from the new weights' own", far)
	if far < precision {
		t.Errorf("the first token after the switch has the new weights' own log-prob: the cache was not kept")
	}
}

// TestProbeWakesAServer that somebody has paused and left.
func TestProbeWakesAServer(t *testing.T) {
	s, caps, _ := real(t)
	needs(t, caps.Pause, caps)
	ctx := limited(t)
	if err := New().Pause(ctx, s, upstream.Update{}, caps); err != nil {
		t.Fatal(err)
	}
	again, err := New().Probe(ctx, s)
	if err != nil || !again.Pause {
		t.Errorf("pause %v, %v", again.Pause, err)
	}
	var reply struct {
		Paused bool `json:"is_paused"`
	}
	if err := s.Call(ctx, http.MethodGet, "/is_paused", nil, &reply); err != nil || reply.Paused {
		t.Errorf("it is left paused: %v, %v", reply.Paused, err)
	}
}
