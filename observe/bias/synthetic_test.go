package bias_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
)

// population is a stream of groups made by hand: what they are, and which of them
// are trained, is the test's to choose.
type population struct {
	cfg   loop.Config
	seed  uint64
	steps int
	// likeness is the share of a length's variance that siblings have in common.
	likeness float64
	// keep says whether a group is trained, given what it is.
	keep func(rng *rand.Rand, g made) bool
	// inOrder has a batch sorted by length.
	inOrder bool
}

type made struct {
	id      loop.GroupID
	prompt  int64
	level   int32
	lengths []int32
	solved  int
}

func (g made) mean() float64 {
	sum := 0.0
	for _, n := range g.lengths {
		sum += float64(n)
	}
	return sum / float64(len(g.lengths))
}

// play feeds a population to an observer: in every step it opens groups until a
// batch of those to be trained is there, and trains it.
func (p population) play(opt bias.Options) bias.Report {
	rng := rand.New(rand.NewPCG(p.seed, 1))
	o := bias.NewObserver(p.cfg, opt)
	next := loop.GroupID(1)
	for step := range p.steps {
		var batch []made
		for len(batch) < p.cfg.BatchGroups {
			g := p.draw(rng, next)
			next++
			feed(o, g)
			if p.keep(rng, g) {
				batch = append(batch, g)
				continue
			}
			observe(o, loop.Event{Kind: loop.Tick}, loop.Action{Kind: loop.GroupEnded, Group: g.id, End: loop.EndEvicted, Count: int32(len(g.lengths))})
		}
		if p.inOrder {
			for i := range batch {
				for k := i; k > 0 && batch[k].mean() < batch[k-1].mean(); k-- {
					batch[k], batch[k-1] = batch[k-1], batch[k]
				}
			}
		}
		var lease, ended []loop.Action
		for _, g := range batch {
			lease = append(lease, loop.Action{Kind: loop.GroupLeased, Group: g.id, Attempt: 1})
			ended = append(ended, loop.Action{Kind: loop.GroupTrained, Group: g.id, Version: loop.Version(step)})
		}
		observe(o, loop.Event{Kind: loop.Tick}, append(lease, loop.Action{Kind: loop.StartTrainStep, Attempt: 1})...)
		observe(o, loop.Event{Kind: loop.TrainStepEnded}, ended...)
	}
	return o.Report()
}

func (p population) draw(rng *rand.Rand, id loop.GroupID) made {
	g := made{id: id, prompt: 1 + int64(id)%int64(max(p.cfg.Prompts, 1)), level: 1 + rng.Int32N(int32(max(p.cfg.Levels, 1)))}
	common := rng.NormFloat64()
	for range p.cfg.GroupSize {
		z := math.Sqrt(p.likeness)*common + math.Sqrt(1-p.likeness)*rng.NormFloat64()
		g.lengths = append(g.lengths, int32(math.Max(1, 300*math.Exp(0.6*z))))
		if rng.Float64() < 0.5 {
			g.solved++
		}
	}
	return g
}

func observe(o *bias.Observer, ev loop.Event, actions ...loop.Action) {
	o.Observe(ev, metrics.Measured{}, actions)
}

// feed starts and scores a group's rollouts.
func feed(o *bias.Observer, g made) {
	for k, n := range g.lengths {
		observe(o, loop.Event{Kind: loop.Tick}, loop.Action{Kind: loop.StartRollout, Group: g.id, Sample: int32(k), Attempt: 1, Slot: int32(k), Prompt: g.prompt, Level: g.level})
		ev := loop.Event{Kind: loop.RolloutScored, Group: g.id, Sample: int32(k), Attempt: 1, Slot: int32(k), Tokens: n}
		if k < g.solved {
			ev.Mark = loop.MarkSolved
		}
		o.Observe(ev, metrics.Measured{EnvironmentNS: int64(n) * 1000 * int64(1+k)}, nil)
	}
}

var null = population{
	cfg:      loop.Config{GroupSize: 4, BatchGroups: 8, EngineSlots: []int{4}, QueueGroups: 8, Prompts: 40, Levels: 4},
	steps:    60,
	likeness: 0.5,
	keep:     func(rng *rand.Rand, _ made) bool { return rng.Float64() < 0.7 },
}

// Where groups are trained regardless of what they are, about one test in twenty
// finds a bias, as it says; siblings' likeness is accounted for. That of
// distributions finds fewer: it allows for ties and for the likeness at the median.
func TestFalsePositives(t *testing.T) {
	const runs = 500
	var missed, ks, prompts, levels, solved, order int
	for seed := range uint64(runs) {
		p := null
		p.seed = seed
		r := p.play(bias.Options{})
		count := func(n *int, found bool) {
			if found {
				*n++
			}
		}
		count(&missed, r.Length.Ratio95[0] > 1 || r.Length.Ratio95[1] < 1)
		count(&ks, r.Length.P < 0.05)
		count(&prompts, r.Prompt.Found)
		count(&levels, r.Level.Found)
		count(&solved, r.SolveRate.Found)
		count(&order, r.Order.Found)
	}
	for _, test := range []struct {
		name   string
		found  int
		lo, hi float64
	}{
		{"interval of the length ratio", missed, 0.03, 0.08}, {"distribution of lengths", ks, 0.008, 0.06}, {"prompts", prompts, 0.03, 0.08},
		{"levels", levels, 0.03, 0.08}, {"solve rates", solved, 0.03, 0.08}, {"order", order, 0.03, 0.08},
	} {
		if share := float64(test.found) / runs; share < test.lo || share > test.hi {
			t.Errorf("%s: a bias found in %.1f %% of runs without one, want %g to %g %%", test.name, 100*share, 100*test.lo, 100*test.hi)
		}
	}
}

// Real biases are found nearly always, each by the part it belongs to.
func TestPower(t *testing.T) {
	const runs = 60
	for _, test := range []struct {
		name  string
		alter func(*population)
		found func(bias.Report) bool
	}{
		{"the long are trained less", func(p *population) {
			p.keep = func(rng *rand.Rand, g made) bool { return rng.Float64() < math.Min(1, 0.7*300/g.mean()) }
		}, func(r bias.Report) bool { return r.Length.Ratio95[1] < 1 && r.Length.P < 0.05 && r.Length.Found }},
		{"the middle lengths are trained more: no difference of means needed", func(p *population) {
			p.keep = func(rng *rand.Rand, g made) bool {
				z := math.Log(g.mean() / 330)
				return rng.Float64() < 1-0.6*math.Min(1, z*z/0.1)
			}
		}, func(r bias.Report) bool { return r.Length.P < 0.05 }},
		{"one prompt in ten is trained half as often", func(p *population) {
			p.steps = 200
			p.keep = func(rng *rand.Rand, g made) bool {
				return rng.Float64() < 0.8 && (g.prompt%10 != 0 || rng.Float64() < 0.5)
			}
		}, func(r bias.Report) bool {
			return r.Prompt.Found && r.Prompt.Cells[0].Name[len(r.Prompt.Cells[0].Name)-1] == '0'
		}},
		{"hard levels are trained less", func(p *population) {
			p.keep = func(rng *rand.Rand, g made) bool { return rng.Float64() < 0.9-0.1*float64(g.level) }
		}, func(r bias.Report) bool { return r.Level.Found && r.Level.Ratio < 1 }},
		{"zero advantage is filtered", func(p *population) {
			p.keep = func(_ *rand.Rand, g made) bool { return g.solved > 0 && g.solved < len(g.lengths) }
		}, func(r bias.Report) bool {
			return r.SolveRate.Found && r.SolveRate.Cells[0].Trained == 0 && r.SolveRate.Cells[0].Started > 0
		}},
		{"batches come sorted by length", func(p *population) { p.inOrder = true }, func(r bias.Report) bool {
			return r.Order.Found && r.Order.Slope > 0.5 && r.Order.Correlation > 0.5 && len(r.Order.MeanTokens) == 8 && r.Order.MeanTokens[0] < r.Order.MeanTokens[7]
		}},
	} {
		found := 0
		for seed := range uint64(runs) {
			p := null
			p.seed = seed
			test.alter(&p)
			if test.found(p.play(bias.Options{})) {
				found++
			}
		}
		if found < runs*9/10 {
			t.Errorf("%s: found in %d of %d runs", test.name, found, runs)
		}
	}
}

// Where everything is trained there is nothing to be biased by: the ratio is 1 to the last digit.
func TestAllTrained(t *testing.T) {
	p := null
	p.keep = func(*rand.Rand, made) bool { return true }
	r := p.play(bias.Options{})
	if r.Length.Ratio != 1 || r.Length.Found || r.Prompt.Found || r.Prompt.Freedom != 0 || r.TrainedGroups != r.Groups {
		t.Errorf("%+v", r.Conclusions)
	}
}

// The window begins after the warm-up, and few steps give a ratio without an interval.
func TestWindow(t *testing.T) {
	p := null
	all, late := p.play(bias.Options{}), p.play(bias.Options{Warmup: 55})
	if late.Groups*8 > all.Groups || late.Groups < 5*int64(p.cfg.BatchGroups) {
		t.Errorf("%d groups after a warm-up of 55 of 60 steps, %d in all", late.Groups, all.Groups)
	}
	if late.Length.Ratio95 != [2]float64{} || late.Batches != 0 || late.Length.Ratio == 0 {
		t.Errorf("an interval %v over 5 steps", late.Length.Ratio95)
	}
	if empty := p.play(bias.Options{Warmup: 1000}); empty.Length != nil || empty.Groups != 0 || empty.Prompt != nil || len(empty.Conclusions) != 0 {
		t.Errorf("a report of nothing: %+v", empty)
	}
}

// A long run takes no more memory than a short one, and no allocation an event.
func TestMemoryIsBounded(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1}
	o := bias.NewObserver(cfg, bias.Options{})
	actions := make([]loop.Action, 3)
	g := loop.GroupID(1)
	step := func() {
		actions[0] = loop.Action{Kind: loop.StartRollout, Group: g, Attempt: 1}
		o.Observe(loop.Event{Kind: loop.Tick}, metrics.Measured{}, actions[:1])
		actions[0] = loop.Action{Kind: loop.GroupLeased, Group: g, Attempt: 1}
		actions[1] = loop.Action{Kind: loop.StartTrainStep, Attempt: 1}
		actions[2] = loop.Action{Kind: loop.GroupTrained, Group: g, Version: loop.Version(g) - 1}
		o.Observe(loop.Event{Kind: loop.RolloutScored, Group: g, Attempt: 1, Tokens: int32(g%97 + 1)}, metrics.Measured{}, actions)
		g++
	}
	step()
	if n := testing.AllocsPerRun(20000, step); n != 0 {
		t.Errorf("%v allocations a step, want none", n)
	}
	if r := o.Report(); r.Groups < 20000 || r.Batches != 20 || r.Length.Ratio != 1 || r.Order != nil {
		t.Errorf("%+v", r)
	}
}
