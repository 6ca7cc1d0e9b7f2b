package study

import (
	"fmt"
	"math"
	"sync"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// Cell is a workload on given hardware: the part that a rule cannot choose.
type Cell struct {
	// Rho is ρ, rollout over train throughput.
	Rho float64 `json:"rho"`
	// Tailness of the lognormal lengths, 0 to 100.
	Tailness float64 `json:"tailness"`
	// Load is C/B, slots over the rollouts of a batch.
	Load float64 `json:"load"`
	// SyncShare is the time of a weight sync over that of a train step; in flight, the trainer free.
	SyncShare float64 `json:"sync_share"`
	// GroupSize is S and Concurrency C.
	GroupSize   int `json:"group_size"`
	Concurrency int `json:"concurrency"`
	// Crowding is how much slower a slot decodes when all C generate than it would alone. The speed
	// of n slots is (1+Crowding)/(1+Crowding·n/C) of that of C slots. 0 is a constant speed.
	Crowding float64 `json:"crowding,omitempty"`
}

// batchGroups is G.
func (c Cell) batchGroups() int {
	return max(int(math.Round(float64(c.Concurrency)/c.Load/float64(c.GroupSize))), 1)
}

// Rule is what the loop goes by in one arm.
type Rule struct {
	// Name of the rule, of one kind of rule each, since finished trials are kept by it.
	Name string
	// Set changes the plain loop, queue-drop with one batch of capacity, oldest first, stream.
	Set func(c *loop.Config, cell Cell)
}

// Trial is one simulation.
type Trial struct {
	Cell Cell
	Rule Rule
	Seed uint64
	// Warmup and Measured are train steps.
	Warmup, Measured int
	// Follow measures what needs every event: Figures.Bound and Delayed.
	Follow bool
}

// key names the trial among those that are kept.
func (t Trial) key() string {
	key := fmt.Sprintf("%+v|%s|seed %d|%d+%d", t.Cell, t.Rule.Name, t.Seed, t.Warmup, t.Measured)
	if t.Follow {
		key += "|followed"
	}
	return key
}

// Figures are what one trial measured.
type Figures struct {
	// Staleness is the mean over trained groups in versions, P95 its 95th percentile.
	Staleness float64 `json:"staleness"`
	P95       float64 `json:"p95"`
	// TokenStaleness is the mean over trained tokens.
	TokenStaleness float64 `json:"token_staleness"`
	// Period is the mean train period over the train step.
	Period float64 `json:"period"`
	// Length is the mean length of trained responses over that of started ones; those count however
	// they ended.
	Length float64 `json:"length"`
	// Wasted is the share of tokens made that was not trained.
	Wasted float64 `json:"wasted"`
	// RolloutIdle and TrainerIdle are shares of time.
	RolloutIdle float64 `json:"rollout_idle"`
	TrainerIdle float64 `json:"trainer_idle"`
	// Bound is the least mean staleness of a rule that does not choose by generation time D. It is at
	// the rule's own period, over all groups that were ready. It is E⌈D/T⌉ where the trainer binds
	// and a sync takes no time, else as theory.LeastStaleness has it. 0 unless followed.
	Bound float64 `json:"bound,omitempty"`
	// Delayed is the staleness that the same starts would have had if weights were switched only
	// a [DelayShare] of a train step after its end. 0 unless followed.
	Delayed float64 `json:"delayed,omitempty"`
	// Failed says why the simulation did not end, "" if it did.
	Failed string `json:"failed,omitempty"`
}

// DelayShare is the sync, as a share of the train step, of Figures.Delayed.
const DelayShare = 0.1

// Lengths of the studies: a nominal mean and the cap that the article's tables fit.
const (
	meanTokens  = 1400
	slotNS      = 20e6 // a token in one slot at full concurrency
	capBase     = 2.2 * meanTokens
	capPerPoint = 100
)

// built are the length models by tailness, which take about as long to make as to use.
var built sync.Map

// lengthsOf is the length model of a tailness.
func lengthsOf(tailness float64) (*workload.Lengths, error) {
	if known, ok := built.Load(tailness); ok {
		return known.(*workload.Lengths), nil
	}
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: meanTokens, Tailness: tailness, CapTokens: int(capBase + capPerPoint*tailness)}.Build()
	if err == nil {
		built.Store(tailness, lengths)
	}
	return lengths, err
}

// config is the trial as a simulation. The train step follows from ρ.
func (t Trial) config() (sim.Config, float64, error) {
	lengths, err := lengthsOf(t.Cell.Tailness)
	if err != nil {
		return sim.Config{}, 0, err
	}
	all, err := workload.NewAcceptance(1)
	if err != nil {
		return sim.Config{}, 0, err
	}
	g := t.Cell.batchGroups()
	stepNS := float64(g*t.Cell.GroupSize) * lengths.Mean() * slotNS * t.Cell.Rho / float64(t.Cell.Concurrency)
	rules := loop.Config{GroupSize: t.Cell.GroupSize, BatchGroups: g, QueueGroups: g, EngineSlots: []int{t.Cell.Concurrency}, Seed: t.Seed}
	t.Rule.Set(&rules, t.Cell)
	cfg := sim.Config{
		Loop: rules, Work: &startedWork{Work: sim.NewModelled(t.Seed, lengths, nil, all, int64(stepNS)), from: loop.Version(t.Warmup)}, NSPerToken: slotNS,
		SyncNS: int64(math.Round(t.Cell.SyncShare * stepNS)), Warmup: t.Warmup, Measured: t.Measured,
	}
	if a := t.Cell.Crowding; a > 0 {
		c := float64(t.Cell.Concurrency)
		cfg.Speed = func(active int, _ bool) float64 { return (1 + a) / (1 + a*float64(active)/c) }
	}
	return cfg, stepNS / 1e9, nil
}

// startedWork adds up the lengths of what is started, which cancelled rollouts and
// those of dropped groups are part of.
type startedWork struct {
	sim.Work
	from             loop.Version // counted are rollouts that start under it or later
	rollouts, tokens int64
}

// Rollout implements sim.Work.
func (w *startedWork) Rollout(r sim.Rollout) sim.Response {
	response := w.Work.Rollout(r)
	if r.Version >= w.from && r.Attempt <= 1 {
		w.rollouts++
		w.tokens += int64(response.Tokens)
	}
	return response
}

// mean is the mean length of what was started.
func (w *startedWork) mean() float64 { return float64(w.tokens) / float64(max(w.rollouts, 1)) }

// Run simulates the trial. A simulation that stalls is a result, [Figures.Failed];
// the error is of trials that cannot be simulated.
func (t Trial) Run() (Figures, error) {
	cfg, stepS, err := t.config()
	if err != nil {
		return Figures{}, err
	}
	var f follower
	if t.Follow {
		f = newFollower(loop.Version(t.Warmup), int64(DelayShare*stepS*1e9))
		cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) { f.observe(ev, actions) }
	}
	if err := cfg.Validate(); err != nil {
		return Figures{}, fmt.Errorf("study: %s: %w", t.key(), err)
	}
	res, err := sim.Run(cfg)
	if err != nil {
		return Figures{Failed: err.Error()}, nil
	}
	s := res.Summary
	figures := Figures{
		Staleness: s.Staleness.Mean, P95: float64(s.Staleness.P95), TokenStaleness: s.TokenStaleness.Mean, Period: s.PeriodS.Mean / stepS,
		Length: s.Length.TrainedMeanTokens / cfg.Work.(*startedWork).mean(), Wasted: s.Waste.WastedShare,
		RolloutIdle: s.RolloutIdleRatio, TrainerIdle: s.TrainerIdleRatio,
	}
	if t.Follow {
		figures.Bound, figures.Delayed = f.bound(s.PeriodS.Mean*1e9, stepS*1e9, float64(cfg.SyncNS)), f.delayed()
	}
	return figures, nil
}
