package scorer

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"math"
	"net/http"
	"net/http/httptest"
	"slices"
	"strconv"
	"sync"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// model says log-probs over a small vocabulary, as a function of what stands before a token.
type model struct {
	seed       string
	vocabulary int
}

func (m model) logprobs(before []int32) []float64 {
	out, sum := make([]float64, m.vocabulary), 0.0
	for id := range out {
		h := fnv.New64a()
		_, _ = fmt.Fprint(h, m.seed, before, id)
		out[id] = float64(h.Sum64()%10_007) / 2_000
		sum += math.Exp(out[id])
	}
	for id := range out {
		out[id] = float64(float32(out[id] - math.Log(sum)))
	}
	return out
}

// likeliest are the ids of the k largest, the largest first.
func likeliest(logprobs []float64, k int) []int32 {
	ids := make([]int32, len(logprobs))
	for i := range ids {
		ids[i] = int32(i)
	}
	slices.SortStableFunc(ids, func(a, b int32) int {
		switch x, y := logprobs[a], logprobs[b]; {
		case x > y:
			return -1
		case x < y:
			return 1
		}
		return 0
	})
	return ids[:k]
}

// server is a teacher of either kind. It refuses what the real ones refuse, and spoils its answers where it is told to.
type server struct {
	model
	kind string
	// spoil, if not nil, changes an answer, or answers by itself and returns nil.
	spoil func(call int, w http.ResponseWriter, r *http.Request, answer map[string]any) map[string]any
	mu    sync.Mutex
	calls int
	// now and most are the calls under way.
	now, most int
}

func (s *server) start(t *testing.T) *upstream.Server {
	t.Helper()
	h := httptest.NewServer(s)
	t.Cleanup(h.Close)
	home, err := upstream.NewServer(upstream.ServerOptions{URL: h.URL})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(home.Close)
	return home
}

func (s *server) count(now int) (call int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if now > 0 {
		s.calls++
	}
	s.now += now
	s.most = max(s.most, s.now)
	return s.calls
}

func (s *server) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	if r.URL.Path == "/v1/models" {
		_, _ = io.WriteString(w, `{"data":[{"id":"big","max_model_len":64}]}`)
		return
	}
	call := s.count(1)
	defer s.count(-1)
	answer := s.vllm
	if s.kind == "sglang" {
		answer = s.sglang
	}
	said, err := answer(r)
	if err != nil {
		http.Error(w, err.Error(), http.StatusBadRequest)
		return
	}
	if s.spoil != nil {
		if said = s.spoil(call, w, r, said); said == nil {
			return
		}
	}
	w.Header().Set("Content-Type", "application/json")
	_ = json.NewEncoder(w).Encode(said)
}

// vllm answers as vLLM 0.32 does: no log-probs of the first token, the token itself first, the likeliest by rank after it
// unless it is one of them, −9999 for −inf.
func (s *server) vllm(r *http.Request) (map[string]any, error) {
	var q struct {
		Prompt    []int32 `json:"prompt"`
		Max       int     `json:"max_tokens"`
		Top       *int    `json:"prompt_logprobs"`
		ReturnIDs bool    `json:"return_token_ids"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v1/completions" || q.Top == nil || q.Max != 1 {
		return nil, fmt.Errorf("%s of %+v: %w", r.URL.Path, q, err)
	}
	rows := []any{nil}
	for i := 1; i < len(q.Prompt); i++ {
		l := s.logprobs(q.Prompt[:i])
		rank := 1
		for _, x := range l {
			if x > l[q.Prompt[i]] {
				rank++
			}
		}
		row := map[string]any{strconv.Itoa(int(q.Prompt[i])): map[string]any{"logprob": l[q.Prompt[i]], "rank": rank, "decoded_token": "Ġ\"é"}}
		for k, id := range likeliest(l, *q.Top) {
			row[strconv.Itoa(int(id))] = map[string]any{"logprob": l[id], "rank": k + 1, "decoded_token": nil}
		}
		rows = append(rows, row)
	}
	choice := map[string]any{"index": 0, "text": "x", "logprobs": nil, "finish_reason": "length", "token_ids": []int32{1}, "prompt_logprobs": rows, "prompt_token_ids": nil}
	if q.ReturnIDs {
		choice["prompt_token_ids"] = q.Prompt
	}
	return map[string]any{"id": "cmpl-1", "object": "text_completion", "choices": []any{choice}, "usage": map[string]any{"prompt_tokens": len(q.Prompt)}}, nil
}

// sglang answers as SGLang 0.5.23 does: from the start on, with no log-prob of the token there. It says 0 for the last id
// of its vocabulary.
func (s *server) sglang(r *http.Request) (map[string]any, error) {
	var q struct {
		IDs      []int32 `json:"input_ids"`
		Sampling struct {
			Max *int `json:"max_new_tokens"`
		} `json:"sampling_params"`
		Logprob bool `json:"return_logprob"`
		Start   int  `json:"logprob_start_len"`
		Top     int  `json:"top_logprobs_num"`
	}
	if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/generate" || !q.Logprob || q.Sampling.Max == nil || *q.Sampling.Max != 0 || q.Start < 0 {
		return nil, fmt.Errorf("%s of %+v: %w", r.URL.Path, q, err)
	}
	var own, top []any
	for i := q.Start; i < len(q.IDs); i++ {
		id := q.IDs[i]
		if int(id) >= s.vocabulary-1 {
			id = 0
		}
		if i == q.Start {
			own, top = append(own, []any{nil, id, nil}), append(top, nil)
			continue
		}
		l := s.logprobs(q.IDs[:i])
		own = append(own, []any{l[q.IDs[i]], id, nil})
		row := []any{}
		for _, id := range likeliest(l, q.Top) {
			row = append(row, []any{l[id], id, nil})
		}
		top = append(top, row)
	}
	meta := map[string]any{"id": "x", "prompt_tokens": len(q.IDs), "completion_tokens": 0, "input_token_logprobs": own, "output_token_logprobs": []any{}}
	if q.Top > 0 {
		meta["input_top_logprobs"] = top
	}
	return map[string]any{"text": "", "output_ids": []int32{}, "meta_info": meta}, nil
}
