package main

import (
	endian "encoding/binary"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"
	"net/http"
	"net/http/httptest"
	"strconv"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// teacherTop is what scoring.top_k asks for in these tests.
const teacherTop = 2

// taught is what a teacher says of a token after others: the log-prob of the token itself, and its likeliest ids with
// theirs. Each name is another model.
func taught(name string, before []int32, token int32) (own float32, ids [teacherTop]int32, top [teacherTop]float32) {
	h := fnv.New64a()
	fmt.Fprint(h, name, before)
	x := h.Sum64()
	for k := range ids {
		ids[k], top[k] = int32((x>>8+uint64(k))%uint64(servedPolicy.Vocabulary)), -1-float32(k)-float32(x%97)/256
	}
	own = -5 - float32((x^uint64(token)*31)%101)/128
	for k, id := range ids {
		if id == token {
			own = top[k]
		}
	}
	return own, ids, top
}

// teacherServer scores in vLLM's words (see engine/scorer, whose fake is held to recorded answers). Every seventh call
// fails: half of these with an error, half by an answer for other tokens.
func teacherServer(t *testing.T, name string, top int) (url string, calls *atomic.Int64) {
	t.Helper()
	calls = new(atomic.Int64)
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		var q struct {
			Prompt []int32 `json:"prompt"`
			Top    int     `json:"prompt_logprobs"`
		}
		if err := json.NewDecoder(r.Body).Decode(&q); err != nil || r.URL.Path != "/v1/completions" || q.Top != top {
			http.Error(w, fmt.Sprintf("%s of %+v: %v", r.URL.Path, q, err), http.StatusBadRequest)
			return
		}
		call := calls.Add(1)
		if call%14 == 6 {
			http.Error(w, "out of memory", http.StatusInternalServerError)
			return
		}
		rows := []any{nil}
		for i, token := range q.Prompt[1:] {
			own, ids, top := taught(name, q.Prompt[:i+1], token)
			row := map[string]any{strconv.Itoa(int(token)): map[string]any{"logprob": own}}
			for k := range q.Top {
				row[strconv.Itoa(int(ids[k]))] = map[string]any{"logprob": top[k], "rank": k + 1}
			}
			rows = append(rows, row)
		}
		if call%14 == 13 {
			q.Prompt[0]++
		}
		_ = json.NewEncoder(w).Encode(map[string]any{"choices": []any{map[string]any{"prompt_token_ids": q.Prompt, "prompt_logprobs": rows}}})
	}))
	t.Cleanup(s.Close)
	return s.URL, calls
}

// scored fetches what teacher and reference say of a batch, and holds every value to what they said. It returns the rows.
func (s *served) scored(b *batchtest.Tensors) (rows int) {
	s.t.Helper()
	values := map[string][]uint32{}
	for name, want := range map[string]func(before []int32, token int32) []uint32{
		channel.TeacherIDs: func(before []int32, token int32) []uint32 {
			_, ids, _ := taught("teacher", before, token)
			return []uint32{uint32(token), uint32(ids[0]), uint32(ids[1])}
		},
		channel.TeacherLogprobs: func(before []int32, token int32) []uint32 {
			own, _, top := taught("teacher", before, token)
			return []uint32{math.Float32bits(own), math.Float32bits(top[0]), math.Float32bits(top[1])}
		},
		channel.ReferenceLogprobs: func(before []int32, token int32) []uint32 {
			own, _, _ := taught("reference", before, token)
			return []uint32{math.Float32bits(own)}
		},
	} {
		parts, raw := s.channel(b, name)
		for at := 0; at < len(raw); at += 4 {
			values[name] = append(values[name], endian.LittleEndian.Uint32(raw[at:]))
		}
		left, sequences := values[name], map[int64]int64{}
		for _, part := range parts {
			if part[1] != sequences[part[0]] {
				s.t.Fatalf("%s: rows of sequence %d begin with %d after %d", name, part[0], part[1], sequences[part[0]])
			}
			sequences[part[0]] += part[2]
		}
		for r := range len(b.Offsets) - 1 {
			n := int64(0)
			for i := b.Offsets[r]; i < b.Offsets[r+1]; i++ {
				if b.LossMask[i] != 1 {
					continue
				}
				n++
				for _, x := range want(b.Tokens[b.Offsets[r]:i], b.Tokens[i]) {
					if len(left) == 0 || left[0] != x {
						s.t.Fatalf("lease %d: %s at token %d of sequence %d is not what was said", b.Lease.Lease, name, i-b.Offsets[r], r)
					}
					left = left[1:]
				}
			}
			if n != sequences[int64(r)] {
				s.t.Fatalf("lease %d: %s has %d rows of sequence %d, which has %d sampled tokens", b.Lease.Lease, name, sequences[int64(r)], r, n)
			}
			rows += int(n)
		}
		if len(left) > 0 {
			s.t.Fatalf("%s: %d values are left", name, len(left))
		}
	}
	return rows
}

// TestServeScores: whatever a trainer leases has every row of teacher and reference, each as it was said of that token,
// over servers that fail at times, and two deaths of the control plane.
func TestServeScores(t *testing.T) {
	t.Run("own", func(t *testing.T) { checkServeScores(t, false) })
	t.Run("cell", func(t *testing.T) { checkServeScores(t, true) })
}

// checkServeScores plays on an engine of the control plane, or on one of a cell.
func checkServeScores(t *testing.T, cell bool) {
	t.Helper()
	const steps = 6
	dir := t.TempDir()
	engine := routedServer(t)
	teacher, asked := teacherServer(t, "teacher", teacherTop)
	reference, _ := teacherServer(t, "reference", 0)
	document := fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 4}", engine.URL()), steps)
	document += fmt.Sprintf("scoring: {top_k: %d, servers: [{kind: vllm, url: %q, slots: 2}, {kind: vllm, url: %q, channel: reference}]}\n", teacherTop, teacher, reference)
	if cell {
		document = inCell(t, document, engine.URL())
	}
	var c *served
	var workers sync.WaitGroup
	rows := 0
	for step := 0; step < steps; {
		s := startServe(t, dir, document, "--set", "server.claim_s=1") // workers end with it, and their claims outlive it
		player := s
		if cell {
			if c == nil {
				c = startCell(t, dir, "b", "--listen", "127.0.0.1:0")
			}
			player = c
		}
		for range 4 {
			workers.Go(player.play)
		}
		s.connect()
		for range 2 {
			batch := s.leased()
			rows += s.scored(batch)
			step++
			s.publish(batch, byte(step))
		}
		if step == steps-2 {
			player.scoresShown()
		}
		s.kill()
		if !cell {
			workers.Wait()
		}
	}
	if cell {
		c.kill()
		workers.Wait()
	}
	if rows == 0 || asked.Load() < 20 {
		t.Errorf("%d rows, %d calls: the test needs some", rows, asked.Load())
	}
}

// scoresShown holds the status to what an operator is to see of the servers.
func (s *served) scoresShown() {
	s.t.Helper()
	st := s.status()
	if len(st.Scoring) != 2 || st.Scoring[0].Channel != "teacher" || st.Scoring[0].Servers[0].Calls == 0 || st.Scoring[0].Servers[0].Failures == 0 || st.Scoring[0].Servers[0].LastError == "" ||
		st.Scoring[1].Servers[0].Name != "reference-1" || st.Scoring[1].Servers[0].Calls == 0 {
		s.t.Errorf("the status says of scoring: %+v", st.Scoring)
	}
}
