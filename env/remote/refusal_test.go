package remote

import (
	"math"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

func TestSampledElsewhere(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		good := func() protocol.FinishRequest {
			return protocol.FinishRequest{Worker: "w", Reward: new(float32(1)), Tokens: []int32{20, 1, 2}, LossMask: []uint8{0, 1, 1}, Logprobs: []float32{0, -1, 0}, Versions: []loop.Version{0, 0, 5}}
		}
		for word, change := range map[string]func(*protocol.FinishRequest){
			"3 tokens, 2 loss_mask":   func(r *protocol.FinishRequest) { r.LossMask = r.LossMask[:2] },
			"logprobs[1] is NaN":      func(r *protocol.FinishRequest) { r.Logprobs[1] = float32(math.NaN()) },
			"logprobs[2] is -Inf":     func(r *protocol.FinishRequest) { r.Logprobs[2] = float32(math.Inf(-1)) },
			"logprobs[1] is 0.5":      func(r *protocol.FinishRequest) { r.Logprobs[1] = 0.5 },
			"loss_mask[1] is 2":       func(r *protocol.FinishRequest) { r.LossMask[1] = 2 },
			"loss_mask[0] is 1":       func(r *protocol.FinishRequest) { r.LossMask[0], r.Versions[0] = 1, 0 },
			"loss_mask has no 1":      func(r *protocol.FinishRequest) { r.LossMask = []uint8{0, 0, 0} },
			"tokens[0] is 30":         func(r *protocol.FinishRequest) { r.Tokens[0] = vocabulary },
			"tokens[2] is -1":         func(r *protocol.FinishRequest) { r.Tokens[2] = -1 },
			"versions[1] is 6":        func(r *protocol.FinishRequest) { r.Versions[1] = 6 },
			"versions[2] is -1":       func(r *protocol.FinishRequest) { r.Versions[2] = -1 },
			"stand without tokens":    func(r *protocol.FinishRequest) { r.Tokens = nil },
			"nothing was sampled":     func(r *protocol.FinishRequest) { *r = protocol.FinishRequest{Worker: "w", Reward: new(float32(1))} },
			"reward is missing or nu": func(r *protocol.FinishRequest) { r.Reward = nil },
			"reward is NaN":           func(r *protocol.FinishRequest) { r.Reward = new(float32(math.NaN())) },
			"reward is +Inf":          func(r *protocol.FinishRequest) { r.Reward = new(float32(math.Inf(1))) },
			"without failed":          func(r *protocol.FinishRequest) { r.Reason = "timeout" },
			`reason is "tired"`:       func(r *protocol.FinishRequest) { r.Failed, r.Reason = "no", "tired" },
			`class is "lost" without`: func(r *protocol.FinishRequest) { r.Class = "lost" },
			`class is "Out of it"`:    func(r *protocol.FinishRequest) { r.Failed, r.Class = "no", "Out of it" },
			`want letters, digits`:    func(r *protocol.FinishRequest) { r.Worker = "a b" },
			`want 1 to 128 characte`:  func(r *protocol.FinishRequest) { r.Worker = "" },
		} {
			req := good()
			change(&req)
			_, err := e.Finish(t.Context(), c.ID, req)
			refused(t, err, protocol.CodeInvalid, word)
		}
		req := good()
		for range 14 {
			req.Tokens, req.LossMask, req.Logprobs, req.Versions = append(req.Tokens, 1), append(req.LossMask, 1), append(req.Logprobs, -1), append(req.Versions, 1)
		}
		_, err := e.Finish(t.Context(), c.ID, req)
		refused(t, err, protocol.CodeTooLarge, "may have 16, as environment.prompt_tokens_max and response_tokens_max add up to")
		go e.Finish(t.Context(), c.ID, good())
		<-p.done
		if s := p.sample; p.err != nil || !slices.Equal(s.Tokens, []int32{20, 1, 2}) || !slices.Equal(s.Versions, []loop.Version{-1, 0, 5}) || s.Logprobs[1] != -1 {
			t.Errorf("played %+v, %v", p.sample, p.err)
		}
		e.Logged(id(1, 0, 1), true)
		if again, err := e.Finish(t.Context(), c.ID, good()); err != nil || !again.Counted {
			t.Errorf("finished again: %+v, %v", again, err)
		}
		for name, change := range map[string]func(*protocol.FinishRequest){
			"token":    func(r *protocol.FinishRequest) { r.Tokens[2] = 3 },
			"mask":     func(r *protocol.FinishRequest) { r.LossMask[1] = 0 },
			"log-prob": func(r *protocol.FinishRequest) { r.Logprobs[1] = -2 },
			"version":  func(r *protocol.FinishRequest) { r.Versions[1] = 1 },
		} {
			req := good()
			change(&req)
			_, err := e.Finish(t.Context(), c.ID, req)
			if refused(t, err, protocol.CodeConflict, "other words"); err == nil {
				t.Errorf("finished again with another %s", name)
			}
		}

		play(t, e, id(2, 0, 1))
		c = claim(t, e, "w")
		sample(t, e, "w", c.ID, 0, 20)
		_, err = e.Finish(t.Context(), c.ID, good())
		refused(t, err, protocol.CodeInvalid, "was sampled here")
		e.opt.Newest = nil
		play(t, e, id(3, 0, 1))
		_, err = e.Finish(t.Context(), claim(t, e, "w").ID, good())
		refused(t, err, protocol.CodeInvalid, "call sample")
	})
}

// TestBadCalls: what cannot be meant is refused and leaves the claim as it was.

func TestBadCalls(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		play(t, e, id(1, 0, 1))
		_, err := e.Touch(t.Context(), "g1-s0-a1", protocol.TouchRequest{Worker: "w"})
		refused(t, err, protocol.CodeConflict, "not claimed")
		c := claim(t, e, "w")
		for word, req := range map[string]protocol.SampleRequest{
			"prompt is empty":    {MaxTokens: 4},
			"prompt[1] is 30":    {Prompt: []int32{0, vocabulary}, MaxTokens: 4},
			"max_tokens is 5":    {Prompt: []int32{0}, MaxTokens: 5},
			"max_tokens is -1":   {Prompt: []int32{0}, MaxTokens: -1},
			"turns count from 0": {Prompt: []int32{0}, Turn: -1},
		} {
			req.Worker = "w"
			_, err := e.Sample(t.Context(), c.ID, req)
			refused(t, err, protocol.CodeInvalid, word)
		}
		_, err = e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Prompt: make([]int32, 13), MaxTokens: 4})
		refused(t, err, protocol.CodeTooLarge, "at most 12, earlier turns included: shorten it; the limit is environment.prompt_tokens_max")
		for word, req := range map[string]protocol.ClaimRequest{
			"max is 1025":   {Worker: "w", Max: 1025},
			"max is -1":     {Worker: "w", Max: -1},
			"wait_s is 61":  {Worker: "w", WaitS: 61},
			"wait_s is -1":  {Worker: "w", WaitS: -1},
			"wait_s is NaN": {Worker: "w", WaitS: math.NaN()},
			`worker "a/b"`:  {Worker: "a/b"},
			`worker w plays "sort", "chess". Set environment.name to`: {Worker: "w", Environments: []string{"sort", "chess"}},
			`"a", "b", "c", "d", 1 more. Set`:                         {Worker: "w", Environments: []string{"a", "b", "c", "d", "e"}},
		} {
			_, err := e.Claim(t.Context(), req)
			refused(t, err, protocol.CodeInvalid, word)
		}
		for id, code := range map[string]protocol.Code{
			"g1-s0-a1x": protocol.CodeNotFound, "": protocol.CodeNotFound, "../status": protocol.CodeNotFound, "g01-s0-a1": protocol.CodeNotFound,
			"g1-s0-a9": protocol.CodeExpired, "g99-s0-a1": protocol.CodeExpired,
		} {
			_, err := e.Touch(t.Context(), id, protocol.TouchRequest{Worker: "w"})
			refused(t, err, code, "")
		}
		_, err = e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "v", Prompt: []int32{0}, MaxTokens: 4})
		refused(t, err, protocol.CodeConflict, "not claimed under the name v")
		if got := sample(t, e, "w", c.ID, 0, 20); len(got.Tokens) != 2 {
			t.Errorf("the claim did not survive: %+v", got)
		}
		go e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Turn: 1, Prompt: []int32{20, 1, 2}})
		synctest.Wait()
		_, err = e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refused(t, err, protocol.CodeConflict, "still being sampled")
	})
}

// TestEnd: what waits when the run ends, and when the process stops.

func TestOptions(t *testing.T) {
	for word, change := range map[string]func(*Options){
		"Name":       func(o *Options) { o.Name = "" },
		"lasts":      func(o *Options) { o.ClaimTTL = 0 },
		"vocabulary": func(o *Options) { o.Vocabulary = 0 },
		"limits":     func(o *Options) { o.Limits.ResponseTokens = -1 },
	} {
		opt := Options{Name: "reverse", ClaimTTL: ttl, Vocabulary: 3}
		change(&opt)
		if _, err := New(opt); err == nil || !strings.Contains(err.Error(), word) {
			t.Errorf("%s: %v", word, err)
		}
	}
}
