package tinkertest

import (
	"math"
	"math/rand/v2"
	"net/http"
	"slices"
	"time"
)

// sampler is a sampling session.
type sampler struct {
	path  string
	model string
	own   weights
}

// input is a prompt or a datum's tokens in JSON.
type input struct {
	Chunks []struct {
		Tokens []int32 `json:"tokens"`
	} `json:"chunks"`
}

func (p input) tokens() (all []int32) {
	for _, c := range p.Chunks {
		all = append(all, c.Tokens...)
	}
	return all
}

// sampling is a request's wishes.
type sampling struct {
	Most        int     `json:"max_tokens"`
	Temperature float64 `json:"temperature"`
	TopP        float64 `json:"top_p"`
	TopK        int     `json:"top_k"`
	Seed        *int64  `json:"seed"`
	Stop        []any   `json:"stop"`
}

func (s *Service) createSampler(q request) reply {
	var asked struct {
		Session string `json:"session_id"`
		Path    string `json:"model_path"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	if !s.sessions[asked.Session] {
		return refused(http.StatusNotFound, "Session not found")
	}
	from, there := s.saved[asked.Path]
	if !there {
		return refused(http.StatusNotFound, "Checkpoint not found: %s", asked.Path)
	}
	id := s.id("sampling")
	s.samplers[id] = &sampler{asked.Path, from.model, from.weights}
	return ok(map[string]any{"type": "create_sampling_session", "sampling_session_id": id})
}

// sample takes a sample. Log-probs are the weights' own, before temperature and cuts.
func (s *Service) sample(q request, fault Fault) reply {
	var asked struct {
		Prompt   input    `json:"prompt"`
		Sampling sampling `json:"sampling_params"`
		Sampler  string   `json:"sampling_session_id"`
		Seq      int      `json:"seq_id"`
	}
	if bad := q.json(&asked); bad != nil {
		return *bad
	}
	prompt := asked.Prompt.tokens()
	s.mu.Lock()
	defer s.mu.Unlock()
	from := s.samplers[asked.Sampler]
	if from == nil {
		return refused(http.StatusNotFound, "Sampling session not found")
	}
	stops, numbers := asked.Sampling.stops()
	if asked.Sampling.Most < 1 || len(prompt) == 0 || !numbers {
		return refused(http.StatusBadRequest, "want a prompt, max_tokens and stops that are tokens: this service has no texts")
	}
	if _, there := s.saved[from.path]; !there {
		return refused(http.StatusNotFound, "Checkpoint not found: %s", from.path)
	}
	f, id := s.promise(fault)
	if fault.Fails != "" {
		s.fails(f, "server", fault.Fails)
		return taken(id)
	}
	s.executed = append(s.executed, Executed{"asample", asked.Sampler, asked.Seq, from.path, [][]int32{prompt}})
	w := from.own
	if m := s.models[from.model]; m != nil && s.o.OneAdapter {
		w = m.weights
	}
	tokens, logprobs, stopped := w.sample(prompt, asked.Sampling, stops)
	reason := "length"
	if stopped {
		reason = "stop"
	}
	result := map[string]any{"type": "sample", "sequences": []any{map[string]any{"tokens": tokens, "logprobs": logprobs, "stop_reason": reason}}}
	ready := time.Now().Add(time.Duration(len(tokens)) * s.o.TokenTime)
	f.resolve(ok(result), sampleToProtobuf(tokens, logprobs, stopped), ready)
	return taken(id)
}

// stops are the tokens to stop at; false where they are not tokens.
func (p sampling) stops() (tokens []int32, numbers bool) {
	for _, one := range p.Stop {
		number, is := one.(float64)
		if !is {
			return nil, false
		}
		tokens = append(tokens, int32(number))
	}
	return tokens, true
}

// sample draws tokens by the seed alone, so that the same request gives the same tokens from the same weights.
func (w weights) sample(prompt []int32, p sampling, stops []int32) (tokens []int32, logprobs []float32, stopped bool) {
	seed := int64(0)
	if p.Seed != nil {
		seed = *p.Seed
	}
	draw := rand.New(rand.NewPCG(uint64(seed), 0x74696e6b6572))
	last := prompt[len(prompt)-1]
	for range p.Most {
		all := w.logprobs(last)
		last = p.draw(all, draw.Float64())
		tokens, logprobs = append(tokens, last), append(logprobs, float32(all[last]))
		if slices.Contains(stops, last) {
			return tokens, logprobs, true
		}
	}
	return tokens, logprobs, false
}

// draw picks a token by a number from 0 to 1, of the likeliest at temperature 0.
func (p sampling) draw(logprobs row, u float64) int32 {
	order := make([]int32, len(logprobs))
	for v := range order {
		order[v] = int32(v)
	}
	slices.SortStableFunc(order, func(a, b int32) int {
		switch {
		case logprobs[a] > logprobs[b]:
			return -1
		case logprobs[a] < logprobs[b]:
			return 1
		}
		return 0
	})
	if p.Temperature == 0 {
		return order[0]
	}
	tempered := make(row, len(logprobs))
	for v := range tempered {
		tempered[v] = logprobs[v] / p.Temperature
	}
	normal(tempered)
	kept, mass := 0, 0.0
	for kept < len(order) && (p.TopK <= 0 || kept < p.TopK) && (kept == 0 || p.TopP <= 0 || mass < p.TopP) {
		mass += math.Exp(tempered[order[kept]])
		kept++
	}
	u *= mass
	for _, v := range order[:kept] {
		if u -= math.Exp(tempered[v]); u < 0 {
			return v
		}
	}
	return order[kept-1]
}
