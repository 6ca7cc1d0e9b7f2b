package scorer

import (
	"context"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"net/http"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// sample has three sequences: two with sampled tokens, in stretches with tokens of an environment between and behind, and
// one without. The last id of the vocabulary is among them.
func sample() *port.Sample {
	return &port.Sample{
		Tokens:   []int32{1, 2, 19, 4, 5, 6, 7, 8, 9, 3, 1, 1, 2},
		LossMask: []uint8{0, 0, 1, 1, 0, 1, 0, 0, 1, 1, 0, 0, 0},
		Breaks:   []int32{7, 10},
	}
}

func pool(t *testing.T, o Options) *Pool {
	t.Helper()
	o.TopK, o.Vocabulary, o.Attempts = 3, 20, max(o.Attempts, 1)
	if o.Timeout == 0 {
		o.Timeout = time.Minute
	}
	p, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// want is what a channel is to have for a sample, by the model itself.
func want(s *port.Sample, m model, name string, k int) (out []port.Scores) {
	for q := range s.Sequences() {
		first, end := s.Sequence(q)
		tokens := s.Tokens[first:end]
		var ids, logprobs []byte
		for i, id := range tokens {
			if s.LossMask[first+i] == 0 {
				continue
			}
			l := m.logprobs(tokens[:i])
			for _, id := range append([]int32{id}, likeliest(l, k)...) {
				ids = binary.LittleEndian.AppendUint32(ids, uint32(id))
				logprobs = binary.LittleEndian.AppendUint32(logprobs, math.Float32bits(float32(l[id])))
			}
		}
		if len(ids) == 0 {
			continue
		}
		var row []int
		if k > 0 {
			row = []int{k + 1}
		}
		if name == Teacher {
			out = append(out, port.Scores{Header: channel.Header{Name: "teacher_ids", DType: channel.I32, Row: row, Align: channel.Sampled}, Sequence: int32(q), Data: ids})
			out = append(out, port.Scores{Header: channel.Header{Name: "teacher_logprobs", DType: channel.F32, Row: row, Align: channel.Sampled}, Sequence: int32(q), Data: logprobs})
		} else {
			out = append(out, port.Scores{Header: channel.Header{Name: "ref_logprobs", DType: channel.F32, Align: channel.Sampled}, Sequence: int32(q), Data: logprobs})
		}
	}
	return out
}

func equal(t *testing.T, got, want []port.Scores) {
	t.Helper()
	if len(got) != len(want) {
		t.Fatalf("%d scores, want %d: %v", len(got), len(want), got)
	}
	for _, w := range want {
		found := false
		for _, g := range got {
			if g.Name == w.Name && g.Sequence == w.Sequence {
				found = true
				if !g.Same(w.Header) || string(g.Data) != string(w.Data) {
					t.Errorf("%s of sequence %d: %v %x, want %v %x", w.Name, w.Sequence, g.Header, g.Data, w.Header, w.Data)
				}
			}
		}
		if !found {
			t.Errorf("no %s of sequence %d", w.Name, w.Sequence)
		}
	}
}

// Every sampled token gets its own log-prob and the likeliest ids, of both kinds of server and both channels at once.
func TestScores(t *testing.T) {
	for _, kind := range []string{"vllm", "sglang"} {
		teacher, reference := &server{kind: kind, model: model{"teacher", 20}}, &server{kind: kind, model: model{"reference", 20}}
		p := pool(t, Options{Servers: []Server{
			{Name: "a", Kind: kind, Channel: Teacher, Slots: 1, Home: teacher.start(t)},
			{Name: "b", Kind: kind, Channel: Reference, Slots: 1, Home: reference.start(t)},
		}})
		got, err := p.Score(t.Context(), sample())
		if err != nil {
			t.Fatal(kind, err)
		}
		equal(t, got, append(want(sample(), teacher.model, Teacher, 3), want(sample(), reference.model, Reference, 0)...))
		for i := range got[1:] {
			if got[i].Sequence > got[i+1].Sequence {
				t.Errorf("%s: sequences are out of order", kind)
			}
		}
		p.opt.TopK = 0
		if got, err = p.Score(t.Context(), sample()); err != nil {
			t.Fatal(kind, err)
		}
		equal(t, got, append(want(sample(), teacher.model, Teacher, 0), want(sample(), reference.model, Reference, 0)...))
		if _, err := p.Score(t.Context(), &port.Sample{Tokens: []int32{1, 2}, LossMask: []uint8{1, 1}}); !errors.Is(err, port.ErrData) {
			t.Errorf("%s: a sequence without a token before the first sampled one: %v", kind, err)
		}
		if got, err := p.Score(t.Context(), &port.Sample{Tokens: []int32{1, 2}, LossMask: []uint8{0, 0}}); err != nil || len(got) > 0 {
			t.Errorf("%s: nothing sampled: %v %v", kind, got, err)
		}
	}
}

// at walks into an answer: keys of maps, numbers of lists.
func at(answer any, path ...any) any {
	for _, step := range path {
		if key, is := step.(string); is {
			answer = answer.(map[string]any)[key]
		} else {
			answer = answer.([]any)[step.(int)]
		}
	}
	return answer
}

// Answers that cannot be are refused in words that say what is wrong, and no other server is blamed.
func TestAnswersThatAreRefused(t *testing.T) {
	row := func(a map[string]any) map[string]any {
		return at(a, "choices", 0, "prompt_logprobs", 3).(map[string]any)
	}
	choice := func(a map[string]any) map[string]any { return at(a, "choices", 0).(map[string]any) }
	meta := func(a map[string]any) map[string]any { return at(a, "meta_info").(map[string]any) }
	entry := func(a map[string]any) []any { return at(a, "meta_info", "input_token_logprobs", 1).([]any) }
	for _, c := range []struct {
		name, kind string
		spoil      func(map[string]any)
		want       string
	}{
		{"other tokens", "vllm", func(a map[string]any) { choice(a)["prompt_token_ids"] = []int32{1, 2, 19, 4, 5, 7} }, "others than the 6 that were sent"},
		{"no word of which tokens", "vllm", func(a map[string]any) { choice(a)["prompt_token_ids"] = nil }, "0 tokens"},
		{"rows of other tokens", "vllm", func(a map[string]any) { delete(row(a), "4"); row(a)["21"] = map[string]any{"logprob": -1.} }, "it answers for other tokens"},
		{"one row too few", "vllm", func(a map[string]any) {
			choice(a)["prompt_logprobs"] = at(a, "choices", 0, "prompt_logprobs").([]any)[:5]
		}, "5 prompt_logprobs for 6 tokens"},
		{"no rows", "vllm", func(a map[string]any) { choice(a)["prompt_logprobs"] = nil }, "0 prompt_logprobs for 6 tokens"},
		{"an id of no vocabulary", "vllm", func(a map[string]any) {
			row(a)["25"], row(a)["26"], row(a)["27"] = map[string]any{"logprob": -9.}, map[string]any{"logprob": -9.}, map[string]any{"logprob": -9.}
			for id := range row(a) {
				if id < "25" && id != "4" {
					delete(row(a), id)
				}
			}
		}, "another vocabulary"},
		{"too many likely tokens", "vllm", func(a map[string]any) {
			for i := range 9 {
				row(a)[string(rune('5'+i%5))] = map[string]any{"logprob": -9.}
			}
		}, "likely tokens, and 3 were asked for"},
		{"not a number", "vllm", func(a map[string]any) { row(a)["4"] = map[string]any{"logprob": nil} }, "not understood"},
		{"no log-prob", "vllm", func(a map[string]any) { row(a)["4"] = map[string]any{"logprob": -9999.} }, "no log-prob"},
		{"logits", "vllm", func(a map[string]any) { row(a)["4"] = map[string]any{"logprob": 3.} }, "raw_logits"},
		{"more than all", "vllm", func(a map[string]any) {
			for _, e := range row(a) {
				e.(map[string]any)["logprob"] = -.1
			}
		}, "together"},
		{"two answers", "vllm", func(a map[string]any) { a["choices"] = append(a["choices"].([]any), choice(a)) }, "2 answers"},
		{"other tokens", "sglang", func(a map[string]any) { entry(a)[1] = 3 }, "it answers for other tokens"},
		{"other tokens read", "sglang", func(a map[string]any) { meta(a)["prompt_tokens"] = 7 }, "7 prompt_tokens of 6"},
		{"one row too few", "sglang", func(a map[string]any) { meta(a)["input_token_logprobs"] = meta(a)["input_token_logprobs"].([]any)[:4] }, "4 input_token_logprobs"},
		{"one likely row too few", "sglang", func(a map[string]any) { meta(a)["input_top_logprobs"] = meta(a)["input_top_logprobs"].([]any)[:4] }, "4 input_top_logprobs"},
		{"not a number", "sglang", func(a map[string]any) { entry(a)[0] = nil }, "no log-prob"},
		{"a likely token twice", "sglang", func(a map[string]any) {
			list := at(a, "meta_info", "input_top_logprobs", 1).([]any)
			list[1].([]any)[1] = list[0].([]any)[1]
		}, "times the same"},
		{"a likely token too few", "sglang", func(a map[string]any) {
			list := meta(a)["input_top_logprobs"].([]any)
			list[1] = list[1].([]any)[:2]
		}, "2 likely tokens, and 3"},
	} {
		s := &server{kind: c.kind, model: model{"x", 20}}
		s.spoil = func(_ int, _ http.ResponseWriter, _ *http.Request, a map[string]any) map[string]any {
			c.spoil(a)
			return a
		}
		p := pool(t, Options{Servers: []Server{{Name: "odd", Kind: c.kind, Channel: Teacher, Slots: 1, Home: s.start(t)}}})
		_, err := p.Score(t.Context(), sample())
		if !errors.Is(err, upstream.ErrLied) || !strings.Contains(err.Error(), c.want) || !strings.Contains(err.Error(), "teacher odd") {
			t.Errorf("%s of %s: %v, want %q", c.name, c.kind, err, c.want)
		}
		if s := p.Stats()[0].Servers[0]; s.Failures != 1 || s.Calls != 0 || s.Running != 0 || !strings.Contains(s.LastError, c.want) {
			t.Errorf("%s of %s: %+v", c.name, c.kind, s)
		}
	}
}

// A server that is ill costs an attempt, and another one answers: whatever the illness is.
func TestAnotherServerFirst(t *testing.T) {
	hold := make(chan struct{})
	defer close(hold)
	for name, spoil := range map[string]func(int, http.ResponseWriter, *http.Request, map[string]any) map[string]any{
		"error": func(_ int, w http.ResponseWriter, _ *http.Request, _ map[string]any) map[string]any {
			http.Error(w, "out of memory", http.StatusInternalServerError)
			return nil
		},
		"hang": func(_ int, _ http.ResponseWriter, r *http.Request, _ map[string]any) map[string]any {
			select {
			case <-r.Context().Done():
			case <-hold:
			}
			return nil
		},
		"huge": func(_ int, w http.ResponseWriter, r *http.Request, _ map[string]any) map[string]any {
			text := strings.Repeat(" ", 1<<20)
			for r.Context().Err() == nil {
				if _, err := io.WriteString(w, text); err != nil {
					break
				}
			}
			return nil
		},
		"dies": func(_ int, w http.ResponseWriter, _ *http.Request, _ map[string]any) map[string]any {
			_, _ = io.WriteString(w, `{"choices":[{"prompt_logprobs":[null,{"2":`)
			panic(http.ErrAbortHandler)
		},
	} {
		ill, well := &server{kind: "vllm", model: model{"x", 20}, spoil: spoil}, &server{kind: "vllm", model: model{"x", 20}}
		p := pool(t, Options{Attempts: 2, Timeout: 500 * time.Millisecond, Servers: []Server{
			{Name: "ill", Kind: "vllm", Channel: Teacher, Slots: 4, Home: ill.start(t)},
			{Name: "well", Kind: "vllm", Channel: Teacher, Slots: 4, Home: well.start(t)},
		}})
		got, err := p.Score(t.Context(), sample())
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		equal(t, got, want(sample(), well.model, Teacher, 3))
		if s := p.Stats()[0].Servers; ill.calls != 1 || s[0].Failures != 1 || s[1].Calls != 2 {
			t.Errorf("%s: %d calls of the ill server, %+v: the second sequence goes to the one that answers", name, ill.calls, s)
		}
	}
}

// Attempts are counted, and the last failure is said.
func TestAttemptsAreUsedUp(t *testing.T) {
	s := &server{kind: "vllm", model: model{"x", 20}, spoil: func(_ int, w http.ResponseWriter, _ *http.Request, _ map[string]any) map[string]any {
		http.Error(w, "the prompt is longer than the context", http.StatusBadRequest)
		return nil
	}}
	p := pool(t, Options{Attempts: 3, Servers: []Server{{Name: "ill", Kind: "vllm", Channel: Teacher, Slots: 4, Home: s.start(t)}}})
	if _, err := p.Score(t.Context(), sample()); err == nil || !strings.Contains(err.Error(), "after 3 attempts: teacher ill: /v1/completions answers 400") || s.calls != 3 {
		t.Errorf("%d calls: %v", s.calls, err)
	}
}

// Many rollouts at once: no server gets more calls than it has slots, all are scored, and those that are given up leave at once.
func TestSlots(t *testing.T) {
	a, b := &server{kind: "vllm", model: model{"x", 20}}, &server{kind: "sglang", model: model{"x", 20}}
	p := pool(t, Options{Servers: []Server{
		{Name: "a", Kind: "vllm", Channel: Teacher, Slots: 2, Home: a.start(t)},
		{Name: "b", Kind: "sglang", Channel: Teacher, Slots: 3, Home: b.start(t)},
	}})
	var all sync.WaitGroup
	for range 40 {
		all.Go(func() {
			got, err := p.Score(t.Context(), sample())
			if err != nil {
				t.Error(err)
				return
			}
			equal(t, got, want(sample(), a.model, Teacher, 3))
		})
	}
	all.Wait()
	if a.most > 2 || b.most > 3 || a.calls+b.calls != 80 || a.calls == 0 || b.calls == 0 {
		t.Errorf("up to %d and %d calls at once in 2 and 3 slots, %d and %d in all", a.most, b.most, a.calls, b.calls)
	}
	if s := p.Stats()[0]; s.Waiting != 0 || s.WaitedS <= 0 || s.Servers[0].Running+s.Servers[1].Running != 0 {
		t.Errorf("%+v", s)
	}
}

// A rollout that is given up stops at once: in its call, and while it waits for a slot. The slot is free afterwards.
func TestGivenUp(t *testing.T) {
	began := make(chan struct{}, 8)
	s := &server{kind: "vllm", model: model{"x", 20}, spoil: func(call int, _ http.ResponseWriter, r *http.Request, a map[string]any) map[string]any {
		if call > 1 {
			return a
		}
		began <- struct{}{}
		<-r.Context().Done()
		return nil
	}}
	p := pool(t, Options{Servers: []Server{{Name: "a", Kind: "vllm", Channel: Teacher, Slots: 1, Home: s.start(t)}}})
	ctx, cancel := context.WithCancel(t.Context())
	errs := make(chan error, 2)
	go func() { _, err := p.Score(ctx, sample()); errs <- err }()
	<-began
	go func() { _, err := p.Score(ctx, sample()); errs <- err }()
	for p.Stats()[0].Waiting == 0 {
		runtime.Gosched()
	}
	cancel()
	for range 2 {
		if err := <-errs; !errors.Is(err, context.Canceled) {
			t.Error(err)
		}
	}
	if _, err := p.Score(t.Context(), sample()); err != nil {
		t.Error(err)
	}
	if s := p.Stats()[0]; s.Servers[0].Failures != 0 || s.Waiting != 0 || s.Servers[0].Running != 0 {
		t.Errorf("%+v", s)
	}
}

// What an agent that is not trained has sampled is not sent anywhere.
func TestAgentsThatAreNotTrained(t *testing.T) {
	teacher := &server{kind: "vllm", model: model{"x", 20}}
	p := pool(t, Options{Servers: []Server{{Name: "a", Kind: "vllm", Channel: Teacher, Slots: 1, Home: teacher.start(t)}}})
	s := sample()
	s.Agents = []port.Agent{{Name: "referee", Untrained: true}, {Name: "solver"}, {Name: "solver"}}
	got, err := p.Score(t.Context(), s)
	if err != nil {
		t.Fatal(err)
	}
	equal(t, got, want(s, teacher.model, Teacher, 3)[2:])
	if teacher.calls != 1 {
		t.Errorf("%d calls, want one for the solver's sequence", teacher.calls)
	}
}
