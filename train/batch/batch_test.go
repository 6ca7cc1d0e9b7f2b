package batch

import (
	"bytes"
	"flag"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/batch/batchtest"
	"github.com/headway-rl/headway/train/grpo"
)

var rewrite = flag.Bool("rewrite", false, "write testdata anew")

const vocabulary = 32

// draw makes a batch of groups of up to size samples of up to length tokens.
func draw(rng *rand.Rand, groups, size, length int) port.Batch {
	b := port.Batch{Lease: 7, Attempt: 1, Version: 12}
	for g := range groups {
		start := loop.Version(rng.IntN(12))
		group := port.Group{ID: loop.GroupID(3*g + 1), StartVersion: start, ReadyVersion: start + loop.Version(rng.IntN(int(13-start)))}
		for i := range 1 + rng.IntN(size) {
			group.Samples = append(group.Samples, drawSample(rng, port.RolloutID{Group: group.ID, Sample: int32(i), Attempt: 1}, 1+rng.IntN(length)))
		}
		group.Rollouts = len(group.Samples)
		b.Groups = append(b.Groups, group)
	}
	return b
}

func drawSample(rng *rand.Rand, id port.RolloutID, n int) port.Sample {
	s := port.Sample{ID: id, Reward: float32(rng.IntN(3)) / 2}
	// Engines disagree about what stands where nothing was sampled.
	dirty := rng.IntN(3) == 0
	for range n {
		mask, logprob, version := uint8(rng.IntN(2)), -10*rng.Float32(), loop.Version(rng.IntN(13))
		if mask == 0 && !dirty {
			logprob, version = 0, loop.NoVersion
		} else if mask == 0 && rng.IntN(2) == 0 {
			logprob, version = float32(math.NaN()), 99
		}
		s.Tokens = append(s.Tokens, rng.Int32N(vocabulary))
		s.LossMask = append(s.LossMask, mask)
		s.Logprobs = append(s.Logprobs, logprob)
		s.Versions = append(s.Versions, version)
	}
	return s
}

// expect is what a body of these groups is to decode to, by the words of package protocol.
func expect(b port.Batch, normalize bool, groups []int) *batchtest.Tensors {
	t, rollout := &batchtest.Tensors{Offsets: []int64{0}, Rollout: []int32{}}, int32(0)
	for _, g := range groups {
		group := &b.Groups[g]
		rewards := make([]float32, len(group.Samples))
		for i := range group.Samples {
			rewards[i] = group.Samples[i].Reward
		}
		advantages := make([]float32, len(rewards))
		grpo.Advantages(advantages, rewards, normalize)
		for i, s := range group.Samples {
			for k := range s.Tokens {
				logprob, version := s.Logprobs[k], int32(s.Versions[k])
				if s.LossMask[k] == 0 {
					logprob, version = 0, -1
				}
				t.Logprobs, t.Versions = append(t.Logprobs, logprob), append(t.Versions, version)
			}
			t.Tokens, t.LossMask = append(t.Tokens, s.Tokens...), append(t.LossMask, s.LossMask...)
			begin := int64(len(t.Tokens) - len(s.Tokens))
			for _, end := range append(slices.Clone(s.Breaks), int32(len(s.Tokens))) {
				t.Offsets = append(t.Offsets, begin+int64(end))
				t.Advantages, t.Rewards = append(t.Advantages, advantages[i]), append(t.Rewards, s.Reward)
				t.Groups, t.Samples = append(t.Groups, int64(s.ID.Group)), append(t.Samples, s.ID.Sample)
				t.Rollout = append(t.Rollout, rollout)
			}
			rollout++
		}
	}
	if !branched(b) {
		t.Rollout = nil
	}
	return t
}

// branched reports whether a rollout of the batch has several sequences.
func branched(b port.Batch) bool {
	for _, g := range b.Groups {
		for _, s := range g.Samples {
			if len(s.Breaks) > 0 {
				return true
			}
		}
	}
	return false
}

// branch divides some rollouts of a batch into several sequences.
func branch(rng *rand.Rand, b port.Batch) {
	for g := range b.Groups {
		for i := range b.Groups[g].Samples {
			s := &b.Groups[g].Samples[i]
			for at := 1; at < len(s.Tokens); at++ {
				if rng.IntN(10) == 0 {
					s.Breaks = append(s.Breaks, int32(at))
				}
			}
		}
	}
}

// same compares tensors, without the lease.
func same(a, b *batchtest.Tensors) bool {
	return slices.Equal(a.Tokens, b.Tokens) && slices.Equal(a.Offsets, b.Offsets) && slices.Equal(a.LossMask, b.LossMask) &&
		slices.Equal(a.Logprobs, b.Logprobs) && slices.Equal(a.Versions, b.Versions) && slices.Equal(a.Advantages, b.Advantages) &&
		slices.Equal(a.Rewards, b.Rewards) && slices.Equal(a.Groups, b.Groups) && slices.Equal(a.Samples, b.Samples) &&
		slices.Equal(a.Rollout, b.Rollout) && (a.Rollout == nil) == (b.Rollout == nil)
}

func share(t *testing.T, p *Batch, rank, ranks int) *batchtest.Tensors {
	t.Helper()
	body, err := p.Share(rank, ranks, 60)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := body.Bytes()
	if err != nil {
		t.Fatal(err)
	}
	if int64(len(raw)) != body.Size() {
		t.Fatalf("rank %d of %d: %d bytes, Size says %d", rank, ranks, len(raw), body.Size())
	}
	out, err := batchtest.Decode(raw)
	if err != nil {
		t.Fatalf("rank %d of %d: %v", rank, ranks, err)
	}
	if !reflect.DeepEqual(out.Lease, body.Lease()) {
		t.Fatalf("the header's lease is %+v, want %+v", out.Lease, body.Lease())
	}
	return out
}

// What is decoded is what went in, whole and in shares, and the shares are the batch.
func TestRoundTrip(t *testing.T) {
	for seed := range uint64(100) {
		rng := rand.New(rand.NewPCG(seed, 1))
		b := draw(rng, rng.IntN(12), 6, 40)
		normalize := seed%2 == 0
		if seed%4 > 1 {
			branch(rng, b)
		}
		p, err := New(b, Options{Vocabulary: vocabulary, NormalizeStd: normalize})
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		all := make([]int, len(b.Groups))
		for g := range all {
			all[g] = g
		}
		if got, want := share(t, p, 0, 0), expect(b, normalize, all); !same(got, want) {
			t.Fatalf("seed %d: decoded\n%v\nwant\n%v", seed, got, want)
		}
		ranks := 2 + rng.IntN(5)
		owner := make([]int, len(b.Groups))
		for r := range ranks {
			got := share(t, p, r, ranks)
			var mine []int
			for _, stamp := range got.Lease.Stamps {
				g := (int(stamp.Group) - 1) / 3
				mine = append(mine, g)
				owner[g]++
			}
			if !same(got, expect(b, normalize, mine)) {
				t.Fatalf("seed %d: rank %d of %d is not its groups %v", seed, r, ranks, mine)
			}
			if again := share(t, p, r, ranks); !reflect.DeepEqual(again, got) {
				t.Fatalf("seed %d: rank %d of %d differs when asked for again", seed, r, ranks)
			}
			if got.Lease.Tokens != p.lease.Tokens || got.Lease.Rollouts != p.lease.Rollouts || got.Lease.Groups != len(b.Groups) {
				t.Fatalf("seed %d: rank %d says %+v of the whole batch %+v", seed, r, got.Lease, p.lease)
			}
		}
		for g, n := range owner {
			if n != 1 {
				t.Fatalf("seed %d: group %d is on %d of %d ranks, want 1", seed, g, n, ranks)
			}
		}
	}
}

func TestSharesAreBalanced(t *testing.T) {
	rng := rand.New(rand.NewPCG(5, 5))
	b := draw(rng, 64, 8, 200)
	branch(rng, b)
	p, err := New(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	mean, worst := float64(p.lease.Tokens)/8, 0
	for r := range 8 {
		worst = max(worst, len(share(t, p, r, 8).Tokens))
	}
	if float64(worst) > 1.02*mean {
		t.Errorf("the largest of 8 shares has %d tokens, %.0f would be even", worst, mean)
	}
}

// The lease of the header sums the whole batch up.
func TestLease(t *testing.T) {
	b := draw(rand.New(rand.NewPCG(2, 2)), 2, 3, 9)
	b.Groups[0].StartVersion, b.Groups[0].ReadyVersion = 5, 6
	b.Groups[1].StartVersion, b.Groups[1].ReadyVersion = 10, 12
	p, err := New(b, Options{})
	if err != nil {
		t.Fatal(err)
	}
	response := 0
	for g := range b.Groups {
		for i := range b.Groups[g].Samples {
			response += b.Groups[g].Samples[i].ResponseTokens()
		}
	}
	l := share(t, p, 1, 3).Lease
	if l.StalenessMean != 4.5 || l.StalenessMax != 7 || l.ResponseTokens != response || l.Kind != protocol.KindTrain || l.DeadlineS != 60 || l.Rank != 1 || l.WorldSize != 3 {
		t.Errorf("lease %+v", l)
	}
	if _, err := p.Share(3, 3, 1); err == nil {
		t.Error("rank 3 of 3 got a share")
	}
}

// A validation batch has no advantages.
func TestValidation(t *testing.T) {
	p, err := New(draw(rand.New(rand.NewPCG(3, 3)), 4, 4, 9), Options{Kind: protocol.KindValidation})
	if err != nil {
		t.Fatal(err)
	}
	out := share(t, p, 0, 1)
	for i, a := range out.Advantages {
		if a != 0 {
			t.Errorf("rollout %d has the advantage %g", i, a)
		}
	}
	if out.Lease.Kind != protocol.KindValidation {
		t.Errorf("kind %q", out.Lease.Kind)
	}
}

func TestRefused(t *testing.T) {
	nan, inf := float32(math.NaN()), float32(math.Inf(1))
	for want, spoil := range map[string]func(*port.Batch, *port.Sample){
		"rollout g4-s1-a1 has 6 tokens, 5 mask entries":                            func(_ *port.Batch, s *port.Sample) { s.LossMask = s.LossMask[:5] },
		"6 mask entries, 7 log-probs":                                              func(_ *port.Batch, s *port.Sample) { s.Logprobs = append(s.Logprobs, 0) },
		"6 log-probs and 5 versions":                                               func(_ *port.Batch, s *port.Sample) { s.Versions = s.Versions[:5] },
		"has 0 tokens":                                                             func(_ *port.Batch, s *port.Sample) { *s = port.Sample{ID: s.ID} },
		"g4-s1-a1 has the log-prob NaN at token 3":                                 func(_ *port.Batch, s *port.Sample) { s.Logprobs[3] = nan },
		"has the log-prob -Inf at token 3":                                         func(_ *port.Batch, s *port.Sample) { s.Logprobs[3] = -inf },
		"has the log-prob 0.5 at token 4, want a finite":                           func(_ *port.Batch, s *port.Sample) { s.Logprobs[4] = 0.5 },
		"g4-s1-a1 has the id 32 at token 2, want from 0 to 31":                     func(_ *port.Batch, s *port.Sample) { s.Tokens[2] = 32 },
		"has the id -1 at token 0":                                                 func(_ *port.Batch, s *port.Sample) { s.Tokens[0] = -1 },
		"mask value 2 at token 5":                                                  func(_ *port.Batch, s *port.Sample) { s.LossMask[5] = 2 },
		"token 3 sampled by version 13, but the step starts from version 12":       func(_ *port.Batch, s *port.Sample) { s.Versions[3] = 13 },
		"token 5 of unknown version (-1)":                                          func(_ *port.Batch, s *port.Sample) { s.Versions[5] = loop.NoVersion },
		"has a break at 0 after 0: want breaks that rise, above 0 and below its 6": func(_ *port.Batch, s *port.Sample) { s.Breaks = []int32{0} },
		"has a break at 6 after 3":                                                 func(_ *port.Batch, s *port.Sample) { s.Breaks = []int32{3, 6} },
		"has a break at 3 after 3":                                                 func(_ *port.Batch, s *port.Sample) { s.Breaks = []int32{3, 3} },
		"has the reward NaN":                                                       func(_ *port.Batch, s *port.Sample) { s.Reward = nan },
		"has the reward +Inf":                                                      func(_ *port.Batch, s *port.Sample) { s.Reward = inf },
		"has the advantage +Inf from the rewards": func(b *port.Batch, s *port.Sample) {
			b.Groups[1].Samples[0].Reward, s.Reward = math.MaxFloat32, -math.MaxFloat32
			b.Groups[1].Samples = append(b.Groups[1].Samples, *s)
		},
		"group 4 has the rollout g9-s1-a1 of another group":  func(_ *port.Batch, s *port.Sample) { s.ID.Group = 9 },
		"group 4 has no samples":                             func(b *port.Batch, _ *port.Sample) { b.Groups[1].Samples = nil },
		"group 1 occurs twice":                               func(b *port.Batch, _ *port.Sample) { b.Groups[1] = b.Groups[0] },
		"group 4 started under version 9 and was ready at 8": func(b *port.Batch, _ *port.Sample) { b.Groups[1].StartVersion, b.Groups[1].ReadyVersion = 9, 8 },
		"was ready at 13, and the step starts from 12":       func(b *port.Batch, _ *port.Sample) { b.Groups[1].ReadyVersion = 13 },
		"started under version -1":                           func(b *port.Batch, _ *port.Sample) { b.Groups[1].StartVersion = -1 },
		"it starts from version -1":                          func(b *port.Batch, _ *port.Sample) { b.Version = -1 },
	} {
		b := plain()
		spoil(&b, &b.Groups[1].Samples[1])
		if _, err := New(b, Options{Vocabulary: vocabulary}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
	if _, err := New(plain(), Options{Vocabulary: vocabulary}); err != nil {
		t.Errorf("unspoilt: %v", err)
	}
}

// plain is a batch of two groups of two, the last three tokens of six sampled.
func plain() port.Batch {
	b := port.Batch{Lease: 3, Attempt: 1, Version: 12}
	for g := range 2 {
		group := port.Group{ID: loop.GroupID(3*g + 1), StartVersion: 10, ReadyVersion: 11, Rollouts: 2}
		for i := range 2 {
			group.Samples = append(group.Samples, port.Sample{
				ID:     port.RolloutID{Group: group.ID, Sample: int32(i), Attempt: 1},
				Tokens: []int32{1, 2, 3, 4, 5, int32(6 + i)}, LossMask: []uint8{0, 0, 0, 1, 1, 1},
				Logprobs: []float32{0, 0, 0, -0.5, -1.25, -3}, Versions: []loop.Version{-1, -1, -1, 10, 10, 11},
				Reward: float32(i),
			})
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// branchedPlain is plain with a rollout that left two sequences, of three tokens each.
func branchedPlain() port.Batch {
	b := plain()
	s := &b.Groups[0].Samples[1]
	s.Breaks, s.LossMask = []int32{3}, []uint8{0, 0, 1, 0, 0, 1}
	s.Logprobs, s.Versions = []float32{0, 0, -0.5, 0, 0, -3}, []loop.Version{-1, -1, 10, -1, -1, 11}
	return b
}

// spokenPlain is branchedPlain in whose first group a solver and a referee speak, the referee untrained, and in the
// second nobody is named.
func spokenPlain() port.Batch {
	b := branchedPlain()
	solver, referee := port.Agent{Name: "solver"}, port.Agent{Name: "referee", Untrained: true}
	b.Groups[0].Samples[0].Agents = []port.Agent{{Name: "critic"}}
	b.Groups[0].Samples[1].Agents = []port.Agent{referee, solver}
	b.Groups[0].Samples[1].Channels = []channel.Channel{
		{Header: channel.Header{Name: "x-a", DType: channel.U8, Align: channel.Sampled}, Parts: []channel.Part{{Rows: 1}}},
		{Header: channel.Header{Name: "x-a", DType: channel.U8, Align: channel.Sampled}, Sequence: 1, Parts: []channel.Part{{Rows: 1, Blob: 1}}},
	}
	return b
}

// TestAgents: every sequence says who speaks, and what is not trained is left out of batch and figures. The
// rollouts that the batch is made of keep it.
func TestAgents(t *testing.T) {
	b := spokenPlain()
	p, err := New(b, Options{NormalizeStd: true})
	if err != nil {
		t.Fatal(err)
	}
	out := share(t, p, 0, 1)
	l := out.Lease
	if !slices.Equal(l.Agents, []string{"critic", "solver"}) || !slices.Equal(out.Agents, []int32{0, 1, -1, -1}) {
		t.Errorf("agents %q, of sequences %v", l.Agents, out.Agents)
	}
	if l.Rollouts != 4 || l.Sequences != 0 || l.Tokens != 21 || l.ResponseTokens != 10 || !slices.Equal(out.Offsets, []int64{0, 6, 9, 15, 21}) {
		t.Errorf("figures %+v, offsets %v", l, out.Offsets)
	}
	if !slices.Equal(out.Tokens[6:9], []int32{4, 5, 7}) || out.Advantages[0] != -1 || out.Advantages[1] != 1 {
		t.Errorf("tokens %v, advantages %v", out.Tokens, out.Advantages)
	}
	if c := l.Channels; len(c) != 1 || c[0].Rows != 1 || c[0].Absent != 9 {
		t.Errorf("channels %+v", c)
	}
	if s := b.Groups[0].Samples[1]; len(s.Tokens) != 6 || len(s.Agents) != 2 || len(s.Channels) != 2 {
		t.Errorf("the rollout itself has become %+v", s)
	}
	for want, spoil := range map[string]func(*port.Sample){
		"the agents of 1":                        func(s *port.Sample) { s.Agents = s.Agents[:1] },
		"has no agent in sequence 1, and others": func(s *port.Sample) { s.Agents[1].Name = "" },
		"has no agent that is trained":           func(s *port.Sample) { s.Agents[1].Untrained = true },
	} {
		b := spokenPlain()
		spoil(&b.Groups[0].Samples[1])
		if _, err := New(b, Options{}); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// What says that sequences are of one rollout must hold together.
func TestDecodeRefusesRollouts(t *testing.T) {
	p, err := New(branchedPlain(), Options{})
	if err != nil {
		t.Fatal(err)
	}
	out := share(t, p, 0, 1)
	if out.Rollouts() != 4 || !slices.Equal(out.Rollout, []int32{0, 1, 1, 2, 3}) || out.Lease.Sequences != 5 || out.Lease.Rollouts != 4 {
		t.Fatalf("decoded %+v", out)
	}
	for want, spoil := range map[string]func(*batchtest.Tensors){
		"rollout 2 after 0":                 func(o *batchtest.Tensors) { o.Rollout[1], o.Rollout[2] = 2, 2 },
		"rollout 0 after 1":                 func(o *batchtest.Tensors) { o.Rollout[2] = 0 },
		"rollout 1 after -1":                func(o *batchtest.Tensors) { o.Rollout[0] = 1 },
		"5 rewards and 4 entries":           func(o *batchtest.Tensors) { o.Rollout = o.Rollout[:4] },
		"sequence 1 is of rollout 0, and":   func(o *batchtest.Tensors) { o.Rollout = []int32{0, 0, 1, 2, 3} },
		"sequence 2 is of rollout 1, and i": func(o *batchtest.Tensors) { o.Advantages[2] = 0 },
		"are left of 3": func(o *batchtest.Tensors) {
			o.Rollout = []int32{0, 1, 1, 2, 2}
			o.Samples[4], o.Rewards[4], o.Advantages[4] = o.Samples[3], o.Rewards[3], o.Advantages[3]
		},
	} {
		changed := *out
		changed.Rollout, changed.Samples = slices.Clone(out.Rollout), slices.Clone(out.Samples)
		changed.Rewards, changed.Advantages = slices.Clone(out.Rewards), slices.Clone(out.Advantages)
		spoil(&changed)
		if err := changed.Check(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("error %v, want %q in it", err, want)
		}
	}
}

// The files of testdata are what other programs' readers are tested with: a change
// of a byte is a change of the wire.
func TestGolden(t *testing.T) {
	b := plain()
	b.Groups[1].Samples = b.Groups[1].Samples[:1]
	b.Groups[1].Rollouts = 1
	p, err := New(b, Options{Vocabulary: vocabulary, NormalizeStd: true})
	if err != nil {
		t.Fatal(err)
	}
	q, err := New(branchedPlain(), Options{Vocabulary: vocabulary, NormalizeStd: true})
	if err != nil {
		t.Fatal(err)
	}
	a, err := New(spokenPlain(), Options{Vocabulary: vocabulary, NormalizeStd: true})
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		of          *Batch
		rank, ranks int
	}{"whole": {p, 0, 1}, "share0": {p, 0, 3}, "share1": {p, 1, 3}, "empty": {p, 2, 3}, "branched": {q, 0, 1}, "agents": {a, 0, 1}} {
		path := filepath.Join("testdata", name+".safetensors")
		body, err := c.of.Share(c.rank, c.ranks, 60)
		if err != nil {
			t.Fatal(err)
		}
		got, err := body.Bytes()
		if err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(path, got, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		want, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		if !bytes.Equal(got, want) {
			t.Errorf("%s differs: if the wire is to change, write it anew with -rewrite and tell its readers", path)
		}
	}
}

// Bytes is the whole body in memory.
func (b *Body) Bytes() ([]byte, error) {
	out := collector(make([]byte, 0, b.size))
	_, err := b.WriteTo(&out)
	return slices.Clip(out), err
}

type collector []byte

func (c *collector) Write(p []byte) (int, error) {
	*c = append(*c, p...)
	return len(p), nil
}
