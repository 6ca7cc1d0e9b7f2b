package remote

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// drawn is a sampler that draws everything: lengths, tokens, log-probs, versions, the time
// that each piece takes and how much of it is said on the way.
type drawn struct {
	mu  sync.Mutex
	rng *rand.Rand
	// few is how many different tokens there are: with few, histories coincide.
	few int
	// whole has the responses that were complete, in their order.
	whole []port.Generation
	// said are the tokens up to the end of each response: blob n holds the rows of the n-th, from its first row on.
	said []saidRows
}

// saidRows are the rows of passes that came with a response: of the tokens up to its end, from a row on.
type saidRows struct {
	tokens []int32
	from   int
	prompt int
}

// say has the response bring rows of passes, from what is known on.
func (d *drawn) say(req port.SampleRequest, g *port.Generation) {
	tokens := append(slices.Clone(req.Prompt), g.Tokens...)
	if len(tokens)-1 <= req.Known {
		return
	}
	p := channel.Part{Start: int32(req.Known), Rows: int32(len(tokens) - 1 - req.Known), Blob: int32(len(d.said))}
	d.said = append(d.said, saidRows{tokens, req.Known, len(req.Prompt)})
	g.Channels = []channel.Channel{{Header: rowsHeader, Parts: []channel.Part{p}}}
}

var rowsHeader = channel.Header{Name: channel.RoutedExperts, DType: channel.U8, Row: []int{2, 2}, Align: channel.Passes}

// checkRows: every row of a sample is of a pass over the same tokens, and of the response that sampled the token after
// it. None is absent but those behind the last response.
func (d *drawn) checkRows(t *testing.T, s *port.Sample) {
	for _, c := range s.Channels {
		first, end := s.Sequence(int(c.Sequence))
		tokens, mask := s.Tokens[first:end], s.LossMask[first:end]
		if last := len(mask) - 1; mask[last] == 1 && c.Present() != last {
			t.Fatalf("sequence %d of %d tokens has %d rows", c.Sequence, len(mask), c.Present())
		}
		for _, p := range c.Parts {
			said := &d.said[p.Blob]
			for row := int(p.Start); row < int(p.End()); row++ {
				if at := said.from + int(p.Skip) + row - int(p.Start); at != row || !slices.Equal(said.tokens[:row+1], tokens[:row+1]) {
					t.Fatalf("row %d of sequence %d is row %d of %v", row, c.Sequence, at, said.tokens)
				}
				if mask[row+1] == 1 && (row+1 < said.prompt || said.tokens[row+1] != tokens[row+1]) {
					t.Fatalf("row %d of sequence %d is not of the response that sampled the token after it", row, c.Sequence)
				}
			}
		}
	}
	if len(d.said) > 0 && len(s.Channels) != s.Sequences() {
		t.Fatalf("%d channels of %d sequences", len(s.Channels), s.Sequences())
	}
}

func (d *drawn) draw(n int) int {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.rng.IntN(n)
}

func (d *drawn) Sample(ctx context.Context, req port.SampleRequest) (port.Generation, error) {
	var g port.Generation
	n, said := 1+d.draw(req.MaxTokens), 0
	g.Derived = d.draw(5) == 0
	for i := range n {
		select {
		case <-time.After(time.Duration(d.draw(100)) * time.Millisecond):
		case <-req.Dropped:
			return port.Generation{}, port.ErrDropped
		case <-ctx.Done():
			return g, ctx.Err()
		}
		g.Tokens = append(g.Tokens, int32(d.draw(d.few)))
		g.Logprobs = append(g.Logprobs, -float32(d.draw(1000))/7)
		g.Versions = append(g.Versions, loop.Version(i+d.draw(3)))
		g.Text += string(rune('a' + g.Tokens[i]))
		if req.OnTokens != nil && d.draw(3) > 0 {
			req.OnTokens(port.Delta{Tokens: g.Tokens[said:], Logprobs: g.Logprobs[said:], Text: g.Text[said:]})
			said = len(g.Tokens)
		}
		if i+1 < n && req.Check != nil && req.Check(g.Tokens) {
			g.Pruned = true
			return g, nil
		}
	}
	g.Truncated = n == req.MaxTokens
	d.mu.Lock()
	d.say(req, &g)
	d.whole = append(d.whole, g)
	d.mu.Unlock()
	return g, nil
}

// tree is the model: the branches of a rollout as texts, a word a token. It shares nothing with
// the record but what it is told.
type tree struct{ branches []string }

func word(token int32, sampled bool, logprob float32, version loop.Version) string {
	if !sampled {
		return fmt.Sprintf("(%d) ", token)
	}
	return fmt.Sprintf("(%d: %g by %d) ", token, logprob, version)
}

// bare is a branch without what is known of its tokens.
func bare(branch string) string {
	var out strings.Builder
	for _, w := range strings.Split(strings.TrimSuffix(branch, " "), ") ") {
		w, _, _ = strings.Cut(strings.Trim(w, "()"), ":")
		out.WriteString("(" + w + ") ")
	}
	return out.String()
}

// add says which branch a turn belongs to, and adds it.
func (m *tree) add(prompt []int32, r *protocol.TurnReply) int {
	text := ""
	for _, token := range prompt {
		text += word(token, false, 0, 0)
	}
	chosen, longest := -1, -1
	for i, b := range m.branches {
		if known := bare(b); strings.HasPrefix(text, known) && len(prompt) >= strings.Count(known, "(") && strings.Count(known, "(") > longest {
			chosen, longest = i, strings.Count(known, "(")
		}
	}
	if chosen < 0 {
		chosen, longest = len(m.branches), 0
		m.branches = append(m.branches, "")
	}
	for _, token := range prompt[longest:] {
		m.branches[chosen] += word(token, false, 0, 0)
	}
	for i, token := range r.Tokens {
		m.branches[chosen] += word(token, true, r.Logprobs[i], r.Versions[i])
	}
	return chosen
}

// branchesOf renders a sample as the model does.
func branchesOf(s *port.Sample) []string {
	var out []string
	ends := append(slices.Clone(s.Breaks), int32(len(s.Tokens)))
	at := int32(0)
	for _, end := range ends {
		text := ""
		for ; at < end; at++ {
			text += word(s.Tokens[at], s.LossMask[at] == 1, s.Logprobs[at], s.Versions[at])
		}
		out = append(out, text)
	}
	return out
}

// TestAnyTree: whatever histories an agent sends and whichever calls it gives up, the sample has
// exactly the branches that an independent model has, and every token as it was answered.
func TestAnyTree(t *testing.T) {
	branches, taken := 0, 0
	for seed := range uint64(150) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 8))
			e := open(t, func(o *Options) { o.Limits.PromptTokens = 1000 })
			d := &drawn{rng: rand.New(rand.NewPCG(seed, 9)), few: 1 + rng.IntN(4)}
			done := make(chan port.Sample, 1)
			go func() {
				s, err := e.Play(t.Context(), port.RolloutRequest{ID: id(1, 0, 1)}, d)
				if err != nil {
					t.Error(err)
				}
				done <- s
			}()
			synctest.Wait()
			c := claim(t, e, "w")
			var model tree
			var histories [][]int32
			var last string
			for len(model.branches) == 0 || rng.IntN(12) > 0 {
				prompt := drawPrompt(rng, d.few, histories)
				reply, ok := callOnce(t, e, rng, c.ID, prompt)
				if !ok {
					taken++
					continue
				}
				if want := model.add(prompt, &reply); reply.Branch != want || reply.Branches != len(model.branches) {
					t.Errorf("seed %d: %v is added to branch %d of %d, want %d of %d", seed, prompt, reply.Branch, reply.Branches, want, len(model.branches))
				}
				histories = append(histories, append(slices.Clone(prompt), reply.Tokens...))
				last = reply.Finish
			}
			go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
			s := <-done
			if got := branchesOf(&s); !slices.Equal(got, model.branches) {
				t.Errorf("seed %d: the sample has\n%s\nwant\n%s", seed, strings.Join(got, "\n"), strings.Join(model.branches, "\n"))
			}
			d.checkRows(t, &s)
			if s.Truncated != (last == "length") {
				t.Errorf("seed %d: truncated %v after a response that ended by %s", seed, s.Truncated, last)
			}
			branches += len(model.branches)
			e.Logged(id(1, 0, 1), true)
			synctest.Wait()
			empty(t, e)
		})
	}
	if branches < 300 || taken < 100 {
		t.Errorf("%d branches, %d calls taken back: the test needs more of both", branches, taken)
	}
}

// drawPrompt goes on with a history, as it is or cut, or begins anew.
func drawPrompt(rng *rand.Rand, few int, histories [][]int32) []int32 {
	var prompt []int32
	if len(histories) > 0 && rng.IntN(6) > 0 {
		prompt = slices.Clone(histories[rng.IntN(len(histories))])
		if rng.IntN(3) == 0 {
			prompt = prompt[:rng.IntN(len(prompt)+1)]
		}
	}
	for len(prompt) == 0 || rng.IntN(2) == 0 {
		prompt = append(prompt, int32(rng.IntN(few)))
	}
	return prompt
}

// callOnce makes a call, streamed or not, and gives some of them up. It reports whether it was answered.
func callOnce(t *testing.T, e *Dispatcher, rng *rand.Rand, id string, prompt []int32) (protocol.TurnReply, bool) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if rng.IntN(4) == 0 {
		time.AfterFunc(time.Duration(rng.IntN(200))*time.Millisecond, cancel)
	}
	var heard protocol.TurnDelta
	var onTokens func(protocol.TurnDelta)
	if rng.IntN(2) == 0 {
		onTokens = func(d protocol.TurnDelta) {
			heard.Tokens, heard.Logprobs, heard.Text = append(heard.Tokens, d.Tokens...), append(heard.Logprobs, d.Logprobs...), heard.Text+d.Text
		}
	}
	reply, err := e.Turn(ctx, id, protocol.TurnRequest{Prompt: prompt}, onTokens)
	if err != nil {
		if ctx.Err() == nil {
			t.Errorf("%v: %v", prompt, err)
		}
		return reply, false
	}
	if onTokens != nil && (!slices.Equal(heard.Tokens, reply.Tokens) || !slices.Equal(heard.Logprobs, reply.Logprobs) || heard.Text != reply.Text) {
		t.Errorf("what was heard on the way, %+v, is not the reply %+v", heard, reply)
	}
	return reply, true
}

// TestAgentsAtOnce: many calls at once for many rollouts, given up at random places, while
// claims expire and the loop gives rollouts up. What is answered is what is recorded, token by
// token, and nothing else is.
func TestAgentsAtOnce(t *testing.T) {
	var answered, samples atomic.Int64
	for seed := range uint64(30) {
		synctest.Test(t, func(t *testing.T) {
			e := open(t, func(o *Options) { o.Limits.PromptTokens = 1000; o.TurnWait = ttl })
			var rollouts sync.WaitGroup
			for g := range loop.GroupID(12) {
				rng := rand.New(rand.NewPCG(seed, uint64(g)))
				rollouts.Go(func() {
					n, whole := agents(t, e, id(g+1, 0, 1), rng)
					if whole {
						samples.Add(1)
					}
					answered.Add(int64(n))
				})
				synctest.Wait()
			}
			rollouts.Wait()
			synctest.Wait()
			empty(t, e)
		})
	}
	if answered.Load() < 500 || samples.Load() < 100 {
		t.Errorf("%d calls answered in %d samples: the test needs more of both", answered.Load(), samples.Load())
	}
}

// agents plays one rollout by several agents at once and compares what they were answered with
// what was recorded.
func agents(t *testing.T, e *Dispatcher, task port.RolloutID, rng *rand.Rand) (answered int, whole bool) {
	ctx, giveUp := context.WithCancel(t.Context())
	defer giveUp()
	if rng.IntN(5) == 0 {
		time.AfterFunc(time.Duration(rng.IntN(3000))*time.Millisecond, giveUp)
	}
	d := &drawn{rng: rand.New(rand.NewPCG(rng.Uint64(), 1)), few: 3}
	var s port.Sample
	var err error
	played := make(chan struct{})
	go func() {
		defer close(played)
		s, err = e.Play(ctx, port.RolloutRequest{ID: task}, d)
	}()
	claims, _ := e.Claim(t.Context(), protocol.ClaimRequest{Worker: "w", WaitS: 1})
	if len(claims.Rollouts) != 1 {
		t.Errorf("claimed %+v", claims)
		return 0, false
	}
	var mu sync.Mutex
	var got []string
	var callers sync.WaitGroup
	for range 1 + rng.IntN(5) {
		own := rand.New(rand.NewPCG(rng.Uint64(), 2))
		callers.Go(func() {
			for range 4 {
				time.Sleep(time.Duration(own.IntN(300)) * time.Millisecond)
				if reply, ok := callUntil(t, e, own, claims.Rollouts[0].ID); ok {
					mu.Lock()
					got = append(got, responseText(reply.Tokens, reply.Logprobs, reply.Versions))
					mu.Unlock()
				}
			}
		})
	}
	callers.Wait()
	if rng.IntN(4) > 0 {
		go e.Finish(t.Context(), claims.Rollouts[0].ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
	} // else the claim expires
	<-played
	if err != nil || len(s.Tokens) == 0 {
		return len(got), false
	}
	e.Logged(task, true)
	// Every response that was answered is in the sample, and the sample has as many tokens.
	recorded := strings.Join(branchesOf(&s), "| ")
	n := 0
	for _, response := range got {
		if !strings.Contains(recorded, response) {
			t.Errorf("%v: %s was answered and is not in %s", task, response, recorded)
		}
		n += strings.Count(response, "(")
	}
	if n != s.ResponseTokens() {
		t.Errorf("%v: %d tokens were answered, %d are recorded", task, n, s.ResponseTokens())
	}
	return len(got), true
}

func responseText(tokens []int32, logprobs []float32, versions []loop.Version) string {
	text := ""
	for i, token := range tokens {
		text += word(token, true, logprobs[i], versions[i])
	}
	return text
}

// callUntil makes a call whose client may leave at any time.
func callUntil(t *testing.T, e *Dispatcher, rng *rand.Rand, id string) (protocol.TurnReply, bool) {
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	if rng.IntN(3) == 0 {
		time.AfterFunc(time.Duration(rng.IntN(600))*time.Millisecond, cancel)
	}
	var over atomic.Bool
	reply, err := e.Turn(ctx, id, protocol.TurnRequest{Prompt: []int32{int32(10 + rng.IntN(3))}}, func(protocol.TurnDelta) {
		if over.Load() {
			t.Error("tokens arrive after the call has returned")
		}
	})
	over.Store(true)
	return reply, err == nil
}
