package tinker

import (
	"errors"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
)

func loopVersion(n int64) loop.Version { return loop.Version(n) }

func options(t *testing.T) Options {
	t.Helper()
	v, err := OpenVersions(t.TempDir(), VersionsOptions{Logf: t.Logf})
	if err != nil {
		t.Fatal(err)
	}
	return Options{Model: service.ModelOptions{Base: "toy", Rank: 4, Seed: 5}, Versions: v, Run: "r", Seed: 3, LearningRate: 0.05, ClipEpsilon: 0.2, NormalizeStd: true, Logf: t.Logf}
}

func started(t *testing.T, o Options, h *host) *Trainer {
	t.Helper()
	tr, err := newTrainer(o, h.newModel)
	if err != nil {
		t.Fatal(err)
	}
	if err := tr.Initialize(t.Context()); err != nil {
		t.Fatal(err)
	}
	return tr
}

// batch makes rollouts of several turns, some with branches, by up to three versions, with log-probs that lie
// around the policy's.
func batch(rng *rand.Rand, p *toy, version loop.Version) port.Batch {
	b := port.Batch{Lease: loop.LeaseID(version + 1), Attempt: 1, Version: version}
	for g := range 4 {
		group := port.Group{ID: loop.GroupID(g + 1), StartVersion: max(version-2, 0)}
		for k := range 4 {
			s := port.Sample{ID: port.RolloutID{Group: group.ID, Sample: int32(k), Attempt: 1}, Reward: float32(rng.IntN(2))}
			for range 1 + rng.IntN(2) {
				if len(s.Tokens) > 0 {
					s.Breaks = append(s.Breaks, int32(len(s.Tokens)))
				}
				for i := range 2 + rng.IntN(9) {
					token := rng.Int32N(vocabulary)
					mark, logp, by := uint8(0), float32(0), loop.NoVersion
					if i > 0 && rng.IntN(4) > 0 {
						mark, by = 1, version-loop.Version(rng.Int64N(int64(min(version, 2))+1))
						logp = float32(min(p.logp(s.Tokens[len(s.Tokens)-1], token)+rng.NormFloat64()*0.25, 0))
					}
					s.Tokens, s.LossMask, s.Logprobs, s.Versions = append(s.Tokens, token), append(s.LossMask, mark), append(s.Logprobs, logp), append(s.Versions, by)
				}
			}
			group.Samples = append(group.Samples, s)
		}
		b.Groups = append(b.Groups, group)
	}
	return b
}

// reference is the same step by grpo on the toy itself: the mean loss of each minibatch's tokens, and Adam.
func reference(p *toy, b port.Batch, o Options) (report grpo.Report, norm float64) {
	c := o.Correction
	if c.EpsilonLow == 0 {
		c.EpsilonLow = o.ClipEpsilon
	}
	c = c.WithDefaults()
	start, parts := p.clone(), max(o.Minibatches, 1)
	for part := range parts {
		groups := b.Groups[part*len(b.Groups)/parts : (part+1)*len(b.Groups)/parts]
		referenceGradient(p, start, groups, b.Version, c, o.NormalizeStd, &report)
		norm = max(norm, p.step(o.LearningRate))
	}
	return report, norm
}

// referenceGradient adds to the gradient of p that of the groups' mean loss per token.
func referenceGradient(p, start *toy, groups []port.Group, version loop.Version, c grpo.Correction, normalize bool, report *grpo.Report) {
	scored := 0
	for _, g := range groups {
		for i := range g.Samples {
			scored += g.Samples[i].ResponseTokens()
		}
	}
	for _, g := range groups {
		rewards, advantages := make([]float32, len(g.Samples)), make([]float32, len(g.Samples))
		for i := range g.Samples {
			rewards[i] = g.Samples[i].Reward
		}
		grpo.Advantages(advantages, rewards, normalize)
		for i := range g.Samples {
			referenceRollout(p, start, &g.Samples[i], &c, report, grpo.Sequence{Advantage: advantages[i], Staleness: int32(version - g.StartVersion)}, version, float64(scored))
		}
	}
}

func referenceRollout(p, start *toy, s *port.Sample, c *grpo.Correction, report *grpo.Report, q grpo.Sequence, training loop.Version, scored float64) {
	bounds := append(append([]int32{0}, s.Breaks...), int32(len(s.Tokens)))
	for i := range len(bounds) - 1 {
		from, end := bounds[i], bounds[i+1]
		q.Sampled, q.Behaviour = s.LossMask[from:end], s.Logprobs[from:end]
		n := end - from
		q.Current, q.Proximal, q.Lags = make([]float32, n), make([]float32, n), make([]int32, n)
		grpo.Lags(q.Lags, s.Versions[from:end], training)
		derivative := make([]float32, n)
		for k := int32(1); k < n; k++ {
			q.Current[k] = float32(p.logp(s.Tokens[from+k-1], s.Tokens[from+k]))
			q.Proximal[k] = float32(start.logp(s.Tokens[from+k-1], s.Tokens[from+k]))
		}
		c.Gradient(derivative, &q, report)
		for k := int32(1); k < n; k++ {
			p.descend(s.Tokens[from+k-1], s.Tokens[from+k], float64(derivative[k])/scored)
		}
	}
}

// corrections are all kinds, and settings that keep the service's own losses from being used.
func corrections() []grpo.Correction {
	var out []grpo.Correction
	for _, kind := range grpo.Kinds() {
		out = append(out, grpo.Correction{Kind: kind})
	}
	return append(out, grpo.Correction{EpsilonLow: 0.1, EpsilonHigh: 0.4}, grpo.Correction{Kind: grpo.CISPO, EpsilonLow: 1, EpsilonHigh: 0.3},
		grpo.Correction{VersionMask: grpo.VersionsTraining, VersionLag: 1}, grpo.Correction{Kind: grpo.CISPO, MaxSpans: 2},
		grpo.Correction{Kind: grpo.DPPO, Penalty: 0.01}, grpo.Correction{Kind: grpo.TIS, Level: grpo.LevelSequence, Cap: 1.5},
		grpo.Correction{Kind: grpo.DecoupledPPO, Cap: 1.1, Floor: 0.9, DropOverCap: true}, grpo.Correction{Kind: grpo.SequenceMask, Metric: grpo.MetricKL, MaxKL: 0.01})
}

// TestStepsAreGRPOs: under every correction, in one minibatch or several, a step at the service leaves the weights
// that grpo's own derivatives leave, to the bits that go over the wire, and reports what grpo's statistics say.
func TestStepsAreGRPOs(t *testing.T) {
	for _, c := range corrections() {
		for _, minibatches := range []int{0, 3} {
			o, h := options(t), newHost()
			o.Correction, o.Minibatches = c, minibatches
			tr := started(t, o, h)
			want, rng := newToy(5), rand.New(rand.NewPCG(7, 7))
			for version := range loop.Version(4) {
				b := batch(rng, want, version)
				got, err := tr.Train(t.Context(), b)
				if err != nil {
					t.Fatalf("%+v: %v", c, err)
				}
				report, norm := reference(want, b, o)
				for i, w := range h.weights(t, o.Versions, int64(version+1)) {
					if math.Abs(w-want.weights[i]) > 1e-4 {
						t.Fatalf("%+v in %d minibatches, version %d: weight %d is %g, want %g", c, minibatches, version+1, i, w, want.weights[i])
					}
				}
				for what, pair := range map[string][2]float64{
					"loss": {got.Loss, report.All.MeanLoss()}, "clip fraction": {got.ClipFraction, report.All.ClipFraction()}, "active": {got.ActiveClipFraction, report.All.ActiveClipFraction()},
					"log-ratio": {got.MeanLogRatio, report.All.MeanLogRatio()}, "proximal": {got.MeanProximalLogRatio, report.Moments.MeanLogRatio()},
					"sample size": {got.EffectiveSampleSize, report.All.EffectiveSampleSize()}, "masked": {got.MaskedFraction, report.All.MaskedFraction()},
					"truncated": {got.TruncatedFraction, report.All.TruncatedFraction()}, "norm": {got.GradNorm, norm}, "group lag": {got.GroupLag[2].MeanWeight, lagWeight(&report, 2)},
				} {
					if math.Abs(pair[0]-pair[1]) > 1e-4 {
						t.Errorf("%+v in %d minibatches, version %d: %s is %g, want %g", c, minibatches, version+1, what, pair[0], pair[1])
					}
				}
				if got.Rollouts != 16 || got.Minibatches != max(minibatches, 1) || len(got.Drifts) != 4 || got.Health == "" || got.TokenLag[0].Tokens != report.ByToken[0].Tokens {
					t.Errorf("report %+v", got)
				}
			}
		}
	}
}

func lagWeight(r *grpo.Report, bucket int) float64 {
	if r.ByGroup[bucket].Tokens == 0 {
		return 0
	}
	return r.ByGroup[bucket].MeanWeight()
}

// TestPasses: what a step asks of the service, and in which order.
func TestPasses(t *testing.T) {
	for _, c := range []struct {
		correction  grpo.Correction
		minibatches int
		want        string
	}{
		{grpo.Correction{}, 1, "backward step"},
		{grpo.Correction{Kind: grpo.CISPO}, 1, "backward step"},
		{grpo.Correction{Kind: grpo.TIS}, 1, "forward backward step"},
		{grpo.Correction{MaxSpans: 1}, 1, "forward backward step"},
		{grpo.Correction{}, 2, "forward backward step backward step"},
		{grpo.Correction{Kind: grpo.DecoupledPPO}, 3, "forward backward step forward backward step forward backward step"},
	} {
		o, h := options(t), newHost()
		o.Correction, o.Minibatches = c.correction, c.minibatches
		tr := started(t, o, h)
		h.calls = nil
		if _, err := tr.Train(t.Context(), batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)); err != nil {
			t.Fatal(err)
		}
		want := strings.Join([]string{"1", strings.ReplaceAll(c.want+" save_sampler save_state", " ", " 1 ")}, " ")
		if got := strings.ReplaceAll(strings.Join(h.calls, " "), "save s", "save_s"); got != want {
			t.Errorf("%+v in %d minibatches: %s, want %s", c.correction, c.minibatches, got, want)
		}
	}
}

// TestAveragingService: where a service averages each datum's loss, as SkyRL's own backend does, the gradient has the
// direction of the tokens' mean all the same, from the second step on: the first says what the service is.
func TestAveragingService(t *testing.T) {
	for _, kind := range []grpo.Kind{grpo.PPOClip, grpo.TIS} {
		o, h := options(t), newHost()
		o.Correction.Kind, h.averages = kind, true
		tr := started(t, o, h)
		rng := rand.New(rand.NewPCG(5, 5))
		for version := range loop.Version(3) {
			b := batch(rng, newToy(5), version)
			for g := range b.Groups { // a prompt of one token cannot be levelled: two in a row at least
				for i := range b.Groups[g].Samples {
					s := &b.Groups[g].Samples[i]
					for _, at := range append([]int32{0}, s.Breaks...) {
						s.LossMask[at+1], s.Logprobs[at+1], s.Versions[at+1] = 0, 0, loop.NoVersion
					}
				}
			}
			before := tr.model.(*adapter).toy.clone()
			trainAll(t, tr, b)
			want := before.clone()
			referenceGradient(want, before, b.Groups, b.Version, tr.correction, o.NormalizeStd, new(grpo.Report))
			if cosine := direction(h.gradients[version], want.gradient); (cosine > 1-1e-9) != (version > 0) {
				t.Errorf("%s, step %d: the gradient's direction has the cosine %.12f", kind, version+1, cosine)
			}
		}
	}
}

// direction is the cosine between two gradients.
func direction(a, b []float64) float64 {
	ab, aa, bb := 0.0, 0.0, 0.0
	for i := range a {
		ab, aa, bb = ab+a[i]*b[i], aa+a[i]*a[i], bb+b[i]*b[i]
	}
	return ab / math.Sqrt(aa*bb)
}

// TestAlignment: whatever the batch, the data put together again are the batch: a target is the token after its
// place, advantages and log-probs stand at targets that the policy sampled and nowhere else, and no datum crosses a break.
func TestAlignment(t *testing.T) {
	rng := rand.New(rand.NewPCG(2, 3))
	for range 60 {
		o, h := options(t), newHost()
		tr := started(t, o, h)
		b := batch(rng, newToy(5), 0)
		if _, err := tr.Train(t.Context(), b); err != nil {
			t.Fatal(err)
		}
		data, scored, at := h.passes[0].data, 0, 0
		for _, g := range b.Groups {
			for i := range g.Samples {
				scored += g.Samples[i].ResponseTokens()
			}
		}
		for _, g := range b.Groups {
			advantages, rewards := make([]float32, len(g.Samples)), make([]float32, len(g.Samples))
			for i := range g.Samples {
				rewards[i] = g.Samples[i].Reward
			}
			grpo.Advantages(advantages, rewards, true)
			for i := range g.Samples {
				s, from := &g.Samples[i], int32(0)
				for _, end := range append(slices.Clone(s.Breaks), int32(len(s.Tokens))) {
					if slices.Contains(s.LossMask[from:end], 1) {
						checkDatum(t, &data[at], s, from, end, advantages[i]/float32(scored))
						at++
					}
					from = end
				}
			}
		}
		if at != len(data) {
			t.Fatalf("%d data, want %d", len(data), at)
		}
	}
}

func checkDatum(t *testing.T, d *service.Datum, s *port.Sample, from, end int32, advantage float32) {
	t.Helper()
	if !slices.Equal(d.Tokens, s.Tokens[from:end-1]) || !slices.Equal(d.Targets, s.Tokens[from+1:end]) || d.Weights != nil || len(d.Logprobs) != len(d.Targets) || len(d.Advantages) != len(d.Targets) {
		t.Fatalf("rollout %v from %d to %d is %+v", s.ID, from, end, d)
	}
	for k := range d.Targets {
		at, logp, a := from+1+int32(k), float32(0), float32(0)
		if s.LossMask[at] != 0 {
			logp, a = s.Logprobs[at], advantage
		}
		if d.Logprobs[k] != logp || d.Advantages[k] != a {
			t.Fatalf("rollout %v, token %d: log-prob %g and advantage %g, want %g and %g", s.ID, at, d.Logprobs[k], d.Advantages[k], logp, a)
		}
	}
}

// TestNames: a name that is taken at the service is passed over, and one that stays refused is an error.
func TestNames(t *testing.T) {
	o, h := options(t), newHost()
	tr := started(t, o, h)
	h.states["tinker://1/state/r-v000001"], h.states["tinker://1/state/r-v000001-2"] = newToy(1), newToy(1)
	trainAll(t, tr, batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0))
	r, err := o.Versions.read(1)
	if err != nil || r.State != "tinker://1/state/r-v000001-3" || r.Sampler != "tinker://1/sampler/r-v000001" || r.Lease != 1 {
		t.Errorf("%+v, %v", r, err)
	}
	h.before = func(call int) error {
		if strings.Contains(h.calls[call], "save") {
			return service.ErrRefused
		}
		return nil
	}
	if _, err := tr.Train(t.Context(), batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 1)); !errors.Is(err, service.ErrRefused) {
		t.Error(err)
	}
	if n := strings.Count(strings.Join(h.calls, " "), "save sampler"); n != 2+nameTries {
		t.Errorf("%d saves, want %d", n, 2+nameTries)
	}
}

// TestAnswers: an answer that cannot be right is refused, and the next attempt starts over.
func TestAnswers(t *testing.T) {
	for _, c := range []struct {
		bend func(*service.Output)
		want string
	}{
		{func(o *service.Output) { o.Logprobs = o.Logprobs[1:] }, "want those of"},
		{func(o *service.Output) { o.Logprobs[3] = o.Logprobs[3][1:] }, "of its"},
		{func(o *service.Output) {
			for i := range o.Logprobs[2] {
				o.Logprobs[2][i] = float32(math.NaN())
			}
		}, "log-prob NaN"},
		{func(o *service.Output) {
			for i := range o.Logprobs[2] {
				o.Logprobs[2][i] = float32(math.Inf(-1))
			}
		}, "log-prob -Inf"},
	} {
		for _, kind := range []grpo.Kind{grpo.PPOClip, grpo.None} {
			o, h := options(t), newHost()
			o.Correction.Kind = kind
			tr := started(t, o, h)
			b := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)
			h.bend = c.bend
			if _, err := tr.Train(t.Context(), b); !errors.Is(err, errAnswer) || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%s: %v, want %q", kind, err, c.want)
			}
			h.bend = nil
			trainAll(t, tr, b)
			if h.models != 2 {
				t.Errorf("%s: %d models", kind, h.models)
			}
		}
	}
}

// TestRefuses: a batch that cannot be trained on never gets to the service.
func TestRefuses(t *testing.T) {
	o, h := options(t), newHost()
	o.Minibatches = 2
	tr := started(t, o, h)
	calls := len(h.calls)
	for want, change := range map[string]func(*port.Batch){
		"starts from version 7":    func(b *port.Batch) { b.Version = 7 },
		"the token -4":             func(b *port.Batch) { b.Groups[0].Samples[0].Tokens[0] = -4 },
		"without a token before":   func(b *port.Batch) { b.Groups[0].Samples[0].LossMask[0], b.Groups[0].Samples[0].Versions[0] = 1, 0 },
		"log-probs and":            func(b *port.Batch) { b.Groups[0].Samples[0].Logprobs = nil },
		"without a token to train": func(b *port.Batch) { b.Groups[2].Samples, b.Groups[3].Samples = nil, nil },
		"cannot be divided into 2": func(b *port.Batch) { b.Groups = b.Groups[:1] },
	} {
		b := batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0)
		change(&b)
		if _, err := tr.Train(t.Context(), b); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	if len(h.calls) != calls || tr.model == nil {
		t.Errorf("the service was asked for %v", h.calls[calls:])
	}
}

// TestKeptLogRatios: those that are kept are of every token of the rollout, and their mean is the one reported.
func TestKeptLogRatios(t *testing.T) {
	for _, minibatches := range []int{1, 2} {
		o, h := options(t), newHost()
		o.Minibatches, o.KeepLogRatios = minibatches, func(v loop.Version) bool { return v == 1 }
		tr := started(t, o, h)
		trainAll(t, tr, batch(rand.New(rand.NewPCG(1, 1)), newToy(5), 0))
		b := batch(rand.New(rand.NewPCG(2, 1)), newToy(5), 1)
		report, err := tr.Train(t.Context(), b)
		if err != nil {
			t.Fatal(err)
		}
		sum, scored := 0.0, 0
		for _, g := range b.Groups {
			for i := range g.Samples {
				ratios := report.LogRatios[g.Samples[i].ID]
				if len(ratios) != len(g.Samples[i].Tokens) {
					t.Fatalf("%d log-ratios of %d tokens", len(ratios), len(g.Samples[i].Tokens))
				}
				for _, x := range ratios {
					sum += float64(x)
				}
				scored += g.Samples[i].ResponseTokens()
			}
		}
		if math.Abs(sum/float64(scored)-report.MeanProximalLogRatio) > 1e-6 || sum == 0 {
			t.Errorf("%d minibatches: the mean is %g, reported is %g", minibatches, sum/float64(scored), report.MeanProximalLogRatio)
		}
	}
}

// TestMetrics: sums of several minibatches add up, and what is no number is left out.
func TestMetrics(t *testing.T) {
	to := map[string]float64{}
	gather(to, map[string]float64{"loss:sum": 2, "x": 1, "bad": math.NaN()})
	gather(to, map[string]float64{"loss:sum": 3, "x": 4})
	if len(to) != 2 || to["loss:sum"] != 5 || to["x"] != 4 {
		t.Errorf("%v", to)
	}
	if gradientNorm(nil) != 0 || gradientNorm(map[string]float64{"grad_norm": 3}) != 3 || gradientNorm(map[string]float64{"skyrl.ai/grad_norm": math.NaN()}) != 0 {
		t.Error("gradient norms are wrong")
	}
}

// TestOptions: what cannot be is said at once.
func TestOptions(t *testing.T) {
	for want, change := range map[string]func(*Options){
		"no name":          func(o *Options) { o.Model.Base = "" },
		"rank is 0":        func(o *Options) { o.Model.Rank = 0 },
		"Versions is":      func(o *Options) { o.Versions = nil },
		`called "a/b"`:     func(o *Options) { o.Run = "a/b" },
		"learning rate":    func(o *Options) { o.LearningRate = math.NaN() },
		"clip epsilon":     func(o *Options) { o.ClipEpsilon = 1 },
		"not be negative":  func(o *Options) { o.GradientNorm = -1 },
		`kind is "magic"`:  func(o *Options) { o.Correction.Kind = "magic" },
		"Session is missi": func(o *Options) {},
	} {
		o := options(t)
		change(&o)
		_, err := newTrainer(o, newHost().newModel)
		if err == nil {
			_, err = New(o)
		}
		if err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}
