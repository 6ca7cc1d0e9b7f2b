package bias_test

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
)

// simulate runs the article's kind of setting and returns the report of its bias.
func simulate(t *testing.T, tailness float64, steps int, seed uint64, rho float64, rules func(*loop.Config)) (bias.Report, metrics.Summary) {
	t.Helper()
	return simulateWith(t, tailness, steps, seed, rho, rules, func(*sim.Modelled) {})
}

func simulateWith(t *testing.T, tailness float64, steps int, seed uint64, rho float64, rules func(*loop.Config), shape func(*sim.Modelled)) (bias.Report, metrics.Summary) {
	t.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: tailness, CapTokens: int(2.2*1400 + 100*tailness)}.Build()
	if err != nil {
		t.Fatal(err)
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	const c, s, b, nsPerToken = 120, 8, 120, 20e6
	stepNS := int64(b * lengths.Mean() / (c / nsPerToken / rho))
	work := sim.NewModelled(seed, lengths, nil, accept, stepNS)
	shape(work)
	cfg := sim.Config{Loop: loop.Config{GroupSize: s, BatchGroups: b / s, EngineSlots: []int{c}, QueueGroups: b / s},
		Work: work, NSPerToken: nsPerToken, Warmup: 100, Measured: steps}
	rules(&cfg.Loop)
	o := bias.NewObserver(cfg.Loop, bias.Options{Warmup: loop.Version(cfg.Warmup), Known: func(a loop.Action) (int32, int64) {
		r := work.Rollout(sim.Rollout{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Level: a.Level, Prompt: a.Prompt, Version: a.Version})
		return r.Tokens, r.EnvironmentNS
	}})
	cfg.Observe = func(ev loop.Event, _, environmentNS int64, actions []loop.Action) {
		o.Observe(ev, metrics.Measured{EnvironmentNS: environmentNS}, actions)
	}
	res, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return o.Report(), res.Summary
}

// queue-drop evicts whichever group is the oldest, which says nothing of its length:
// the mean length trained is within half a percent of that started, with heavy
// tails too, train-bound, where a part of the groups is evicted.
func TestQueueDropIsUnbiased(t *testing.T) {
	for _, tailness := range []float64{50, 90} {
		for q := 1; q <= 2; q++ {
			r, _ := simulate(t, tailness, 3000, 7, 1.3, func(cfg *loop.Config) { cfg.QueueGroups = q * cfg.BatchGroups })
			l := r.Length
			if math.Abs(l.Ratio-1) > 0.005 || l.Ratio95[0] > 1 || l.Ratio95[1] < 1 || l.Ratio95[1]-l.Ratio95[0] > 0.01 {
				t.Errorf("tailness %g, q = %d: %s, want an interval that covers 1 and is no wider than 0.01", tailness, q, l.Conclusion)
			}
			if share := float64(r.TrainedGroups) / float64(r.Groups); share > 0.9 {
				t.Errorf("tailness %g, q = %d: %.3f of the groups are trained, so that there is hardly a choice to be biased", tailness, q, share)
			}
		}
	}
}

// queue-max discards what took long: the smaller the budget, the shorter what is
// trained, and within a batch the short come first.
func TestQueueMaxIsBiased(t *testing.T) {
	last := 0.0
	for _, budget := range []loop.Version{1, 2, 4} {
		r, _ := simulate(t, 50, 1000, 7, 1.07, func(cfg *loop.Config) { cfg.Policy, cfg.MaxStaleness = loop.PolicyMax, budget })
		l := r.Length
		if !l.Found || l.Ratio95[1] > 0.99 || l.P > 1e-6 || !r.Order.Found || r.Order.Slope < 0 {
			t.Errorf("budget %d: %q, p = %g, want a clear bias to the short", budget, r.Conclusions, l.P)
		}
		if l.Ratio <= last {
			t.Errorf("budget %d: ratio %.3f, want more than the %.3f of the smaller budget", budget, l.Ratio, last)
		}
		last = l.Ratio
	}
}

// Of rollouts started beyond a group's size the longest are cancelled, and where
// lengths are not known beforehand the report says how many it knows nothing of.
func TestRedundancyIsBiased(t *testing.T) {
	rules := func(cfg *loop.Config) { cfg.Redundancy = 2 }
	r, _ := simulate(t, 50, 500, 3, 0.9, rules)
	if l := r.Length; !l.Found || l.Ratio95[1] > 0.9 || r.CensoredShare != 0 {
		t.Errorf("%q with %.3f censored, want responses a tenth shorter at least, and none censored", r.Conclusions, r.CensoredShare)
	}
}

// Discarding what is late and playing its prompt again starves slow prompts: they are
// started more often and trained less often than others, and the report names them.
func TestRequeueStarvesSlowPrompts(t *testing.T) {
	requeue := func(cfg *loop.Config) {
		cfg.Policy, cfg.MaxStaleness, cfg.Prompts, cfg.Requeue = loop.PolicyMax, 1, 40, true
	}
	scale, err := workload.NewPromptScale(0.6, 8080)
	if err != nil {
		t.Fatal(err)
	}
	shape := func(m *sim.Modelled) { m.WithPromptScale(scale) }
	r, _ := simulateWith(t, 50, 1000, 5, 1.07, requeue, shape)
	p := r.Prompt
	if p == nil || !p.Found || p.P > 1e-6 || len(p.Cells) == 0 {
		t.Fatalf("%q, want prompts told apart", r.Conclusions)
	}
	worst, all := p.Cells[0], float64(r.TrainedGroups)/float64(r.Groups)
	if worst.TrainedShare > all/2 || float64(worst.Started) < 1.2*float64(r.Groups)/40 {
		t.Errorf("the worst prompt is started %d times of %d, and %.2f of its groups are trained where %.2f of all are: want it started more and trained less",
			worst.Started, r.Groups, worst.TrainedShare, all)
	}
	// Evicting the oldest does no such thing, though prompts that always come in the same order meet
	// the same neighbours, which is enough for a difference that shows.
	fair, _ := simulateWith(t, 50, 1000, 5, 1.07, func(cfg *loop.Config) { cfg.Prompts = 40 }, shape)
	if share := fair.Prompt.Cells[0].TrainedShare; share < 0.9*float64(fair.TrainedGroups)/float64(fair.Groups) {
		t.Errorf("queue-drop: %s", fair.Prompt.Conclusion)
	}
}
