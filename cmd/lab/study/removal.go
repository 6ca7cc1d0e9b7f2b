package study

import (
	"fmt"
	"math"
	"math/rand/v2"
	"slices"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// RemovalCase is a simulated run whose sources of staleness are taken out one by one.
type RemovalCase struct {
	Seed uint64 `json:"seed"`
	// GroupSize, BatchGroups, Concurrency, QueueFactor, SyncEvery, Hold and the rules are the loop's.
	GroupSize   int     `json:"group_size"`
	BatchGroups int     `json:"batch_groups"`
	Concurrency int     `json:"concurrency"`
	QueueFactor float64 `json:"queue_factor"`
	Policy      string  `json:"policy"`
	Select      string  `json:"select"`
	Sync        string  `json:"sync"`
	SyncEvery   int     `json:"sync_every"`
	Hold        float64 `json:"hold"`
	// Utilization is ρ with the environment's time in it, Tailness that of lengths.
	Utilization float64 `json:"utilization"`
	Tailness    float64 `json:"tailness"`
	// Environment is the environment's mean time over a rollout's mean generation, EnvironmentTail
	// its tailness.
	Environment     float64 `json:"environment"`
	EnvironmentTail float64 `json:"environment_tail"`
	// SyncTime is a weight sync's time in train steps.
	SyncTime float64 `json:"sync_time"`
	// Warmup and Steps are train steps before and in the measured window.
	Warmup int `json:"warmup"`
	Steps  int `json:"steps"`
}

// removalNS is the time of a token, removalTokens the nominal mean length.
const (
	removalNS     = 20e6
	removalTokens = 1400
)

var removalPolicies = map[string]loop.Policy{"drop": loop.PolicyDrop, "block": loop.PolicyBlock}
var removalSyncs = map[string]loop.SyncMode{"in_flight": loop.SyncInFlight, "pause": loop.SyncPause}
var removalOrders = map[string]loop.Selection{"oldest": loop.SelectOldest, "newest": loop.SelectNewest}

// DrawRemoval returns a case that is a function of the seed.
func DrawRemoval(seed uint64, steps int) RemovalCase {
	r := rand.New(rand.NewPCG(seed, 0x61747472))
	pick := func(of ...int) int { return of[r.IntN(len(of))] }
	between := func(low, high float64) float64 { return low * math.Exp(r.Float64()*math.Log(high/low)) }
	c := RemovalCase{Seed: seed, GroupSize: pick(1, 4, 8, 16), BatchGroups: pick(8, 15, 16, 32), Steps: steps,
		Policy: "drop", Select: "oldest", Sync: "in_flight", SyncEvery: 1}
	batch := float64(c.GroupSize * c.BatchGroups)
	c.Concurrency = max(int(math.Round(batch*between(0.25, 4))), c.GroupSize)
	c.QueueFactor = []float64{1, 1, 1.5, 2, 3, 4}[r.IntN(6)]
	c.Utilization, c.Tailness = between(0.4, 3), 20+75*r.Float64()
	if r.IntN(3) == 0 {
		c.Policy = "block"
	}
	if r.IntN(5) == 0 {
		c.Select = "newest"
	}
	if r.IntN(4) == 0 {
		c.Sync = "pause"
	}
	if r.IntN(3) == 0 {
		c.SyncEvery = pick(2, 3, 4)
	}
	if r.IntN(6) == 0 {
		c.Hold = 0.3
	}
	if r.IntN(2) == 0 {
		c.Environment, c.EnvironmentTail = between(0.1, 4), []float64{0, 30, 60, 90}[r.IntN(4)]
	}
	if r.IntN(2) == 0 {
		c.SyncTime = between(0.05, 2)
	}
	c.Warmup = max(300, int(2*(c.QueueFactor-1)*(c.QueueFactor-1)*float64(c.BatchGroups)))
	return c
}

// String names the case by what is particular to it.
func (c RemovalCase) String() string {
	return fmt.Sprintf("seed %d: S=%d G=%d C=%d q=%g %s %s %s every %d hold %g, ρ=%.2f tail %.0f env %.2f (%.0f) sync %.2f",
		c.Seed, c.GroupSize, c.BatchGroups, c.Concurrency, c.QueueFactor, c.Policy, c.Select, c.Sync, c.SyncEvery, c.Hold,
		c.Utilization, c.Tailness, c.Environment, c.EnvironmentTail, c.SyncTime)
}

// config returns the simulation of the case.
func (c RemovalCase) config() (sim.Config, error) {
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: removalTokens, Tailness: c.Tailness, CapTokens: int(2.2*removalTokens + 100*c.Tailness)}.Build()
	if err != nil {
		return sim.Config{}, err
	}
	env := workload.TimesSpec{Kind: workload.KindNone}
	if c.Environment > 0 {
		env = workload.TimesSpec{Kind: workload.KindLognormal, MeanS: c.Environment * lengths.Mean() * removalNS / 1e9, Tailness: c.EnvironmentTail}
	}
	service, err := env.Build()
	if err != nil {
		return sim.Config{}, err
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		return sim.Config{}, err
	}
	rules := loop.Config{GroupSize: c.GroupSize, BatchGroups: c.BatchGroups, EngineSlots: []int{c.Concurrency}, Hold: c.Hold,
		QueueGroups: int(math.Round(c.QueueFactor * float64(c.BatchGroups))), Policy: removalPolicies[c.Policy], Select: removalOrders[c.Select],
		Sync: removalSyncs[c.Sync], SyncEvery: c.SyncEvery}
	work := sim.NewModelled(c.Seed, lengths, service, accept, 1)
	perBatch := float64(c.GroupSize*c.BatchGroups) * meanNS(work, int32(c.GroupSize), removalNS) / float64(c.Concurrency)
	stepNS := int64(c.Utilization * perBatch)
	return sim.Config{Loop: rules, Work: sim.NewModelled(c.Seed, lengths, service, accept, stepNS), NSPerToken: removalNS,
		SyncNS: int64(c.SyncTime * float64(stepNS)), Warmup: c.Warmup, Measured: c.Steps}, nil
}

// Removal is what became of a case.
type Removal struct {
	Case RemovalCase `json:"case"`
	// Attribution is that of the run itself.
	Attribution attribution.Summary `json:"attribution"`
	// Lowers is by how many versions the mean staleness falls without each source, in the order of
	// attribution.Source.
	Lowers [attribution.Sources]float64 `json:"lowers"`
	// Most is the source whose removal lowers it most.
	Most string `json:"most"`
	// Verdict is "agrees" where that is the one the attribution names. It is "tie" where the two are
	// within 5 % of each other, by removal or as attributed, else "differs".
	Verdict string `json:"conclusion"`
}

// Run simulates the case, and again without each source.
func (c RemovalCase) Run() (Removal, error) {
	out := Removal{Case: c}
	cfg, err := c.config()
	if err != nil {
		return out, err
	}
	attributed := attribution.New(cfg.Loop)
	attributed.Warmup = loop.Version(cfg.Warmup)
	late := lateness{warmup: loop.Version(cfg.Warmup)}
	cfg.Beside, cfg.Observe = attributed, late.observe
	base, err := sim.Run(cfg)
	if err != nil {
		return out, fmt.Errorf("%s: %w", c, err)
	}
	out.Attribution = attributed.Summary()
	cfg.Beside, cfg.Observe = nil, nil
	for source := range attribution.Sources {
		if source == attribution.Fill {
			out.Lowers[source] = late.mean()
			continue
		}
		changed, does := remove(cfg, source)
		if !does {
			continue
		}
		res, err := resimulated(changed, source, base.Summary)
		if err != nil {
			return out, fmt.Errorf("%s without %s: %w", c, source, err)
		}
		out.Lowers[source] = base.Summary.Staleness.Mean - res.Summary.Staleness.Mean
	}
	out.judge()
	return out, nil
}

// resimulated simulates a run without a source. Where a rule stops starts for a while, fewer slots
// make less than in proportion: slots and time are added until as many rollouts end a second as in the
// run itself, within 1 %.
func resimulated(cfg sim.Config, source attribution.Source, base metrics.Summary) (sim.Result, error) {
	res, err := sim.Run(cfg)
	w, shortened := cfg.Work.(*without)
	if !shortened || source == attribution.Tail {
		return res, err
	}
	for range 6 {
		if err != nil {
			return res, err
		}
		slots := cfg.Loop.Concurrency()
		switch rate := res.Summary.Throughput.ProductionRolloutsPerS / base.Throughput.ProductionRolloutsPerS; {
		case rate < 0.99:
			cfg.Loop.EngineSlots = []int{max(int(math.Round(float64(slots)/rate)), slots+1)}
		case rate > 1.01:
			w.padNS += int64((rate - 1) * meanNS(w, int32(cfg.Loop.GroupSize), cfg.NSPerToken))
		default:
			return res, nil
		}
		res, err = sim.Run(cfg)
	}
	return res, err
}

// remove takes a source out of a simulation and holds the rest. It reports false where there is
// nothing to take out.
func remove(cfg sim.Config, source attribution.Source) (sim.Config, bool) {
	switch source {
	case attribution.Sync:
		had := cfg.SyncNS > 0
		cfg.SyncNS = 0
		return cfg, had
	case attribution.Inner:
		had := cfg.Loop.SyncEvery > 1
		cfg.Loop.SyncEvery = 1
		return cfg, had
	case attribution.Queue:
		had := cfg.Loop.QueueGroups > cfg.Loop.BatchGroups
		cfg.Loop.QueueGroups = cfg.Loop.BatchGroups
		return cfg, had
	case attribution.Tail:
		return reduced(cfg, withoutTail), cfg.Loop.GroupSize > 1
	case attribution.Environment:
		return reduced(cfg, withoutEnvironment), true
	default:
		return reduced(cfg, withoutGenerating), true
	}
}

// reduced takes time out of rollouts, and with it slots, so that as many end a second as before.
func reduced(cfg sim.Config, reduce func(*sim.Response, sim.Response)) sim.Config {
	size, slots := int32(cfg.Loop.GroupSize), cfg.Loop.Concurrency()
	before := meanNS(cfg.Work, size, cfg.NSPerToken)
	w := &without{Work: cfg.Work, size: size, reduce: reduce}
	after := meanNS(w, size, cfg.NSPerToken)
	left := max(int(math.Ceil(float64(slots)*after/before-1e-6)), 1)
	w.padNS = int64(math.Round(max(before*float64(left)/float64(slots)-after, 0)))
	w.group = 0
	cfg.Work, cfg.Loop.EngineSlots = w, []int{left}
	return cfg
}

// lateness counts the groups that begin while a train step runs: they live through one version
// more than if the trainer published what it makes when it begins. That is a run without waiting for
// a batch: all else, when it happens and in what order, stays.
type lateness struct {
	warmup  loop.Version
	version loop.Version
	running bool
	begun   map[loop.GroupID]bool
	trained int64
	lived   int64
}

func (l *lateness) observe(ev loop.Event, _, _ int64, actions []loop.Action) {
	if l.begun == nil {
		l.begun = map[loop.GroupID]bool{}
	}
	if ev.Kind == loop.TrainStepEnded {
		l.running = false
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.StartRollout:
			if _, there := l.begun[a.Group]; !there {
				l.begun[a.Group] = l.running
			}
		case loop.StartTrainStep:
			l.running = true
		case loop.GroupTrained:
			if l.version >= l.warmup {
				l.trained++
				if l.begun[a.Group] {
					l.lived++
				}
			}
			delete(l.begun, a.Group)
		case loop.GroupEnded:
			delete(l.begun, a.Group)
		}
	}
	if ev.Kind == loop.TrainStepEnded {
		l.version++
	}
}

func (l *lateness) mean() float64 { return float64(l.lived) / float64(max(l.trained, 1)) }

// Verdicts on a run.
const (
	verdictAgrees  = "agrees"
	verdictTie     = "tie"
	verdictDiffers = "differs"
)

// removalTie is how close two removals must come to count as a tie.
const removalTie = 0.05

// judge holds the named source to what removing it does.
func (r *Removal) judge() {
	most := attribution.Source(0)
	for s := range attribution.Sources {
		if r.Lowers[s] > r.Lowers[most] {
			most = s
		}
	}
	r.Most = most.String()
	r.Verdict = verdictDiffers
	for s := range attribution.Sources {
		switch {
		case s.String() != r.Attribution.Dominant:
		case s == most:
			r.Verdict = verdictAgrees
		case r.Lowers[s] >= (1-removalTie)*r.Lowers[most], slices.Contains(r.Attribution.Ties, r.Most):
			r.Verdict = verdictTie
		}
	}
}
