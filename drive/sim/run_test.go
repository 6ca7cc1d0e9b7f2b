package sim_test

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/loop/workload"
)

// setup is a run in the article's terms.
type setup struct {
	c, s, b  int
	q        float64
	rho      float64
	tailness float64
	seed     uint64
	envS     float64
	accept   float64
	warmup   int
	steps    int
	rules    func(*loop.Config)
	sim      func(*sim.Config)
}

const nsPerToken = 20e6

func (s setup) config(tb testing.TB) sim.Config {
	tb.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: s.tailness, CapTokens: int(2.2*1400 + 100*s.tailness)}.Build()
	if err != nil {
		tb.Fatal(err)
	}
	tools, err := workload.TimesSpec{Kind: workload.KindExponential, MeanS: s.envS}.Build()
	if err != nil {
		tb.Fatal(err)
	}
	if s.accept == 0 {
		s.accept = 1
	}
	accept, err := workload.NewAcceptance(s.accept)
	if err != nil {
		tb.Fatal(err)
	}
	vR := float64(s.c) / nsPerToken
	stepNS := int64(float64(s.b) * lengths.Mean() / (vR / s.rho))
	cfg := sim.Config{
		Loop: loop.Config{GroupSize: s.s, BatchGroups: s.b / s.s, EngineSlots: []int{s.c}, QueueGroups: int(s.q * float64(s.b/s.s))},
		Work: sim.NewModelled(s.seed, lengths, tools, accept, stepNS), NSPerToken: nsPerToken, Warmup: s.warmup, Measured: s.steps,
	}
	if s.rules != nil {
		s.rules(&cfg.Loop)
	}
	if s.sim != nil {
		s.sim(&cfg)
	}
	return cfg
}

func run(tb testing.TB, cfg sim.Config) sim.Result {
	tb.Helper()
	res, err := sim.Run(cfg)
	if err != nil {
		tb.Fatal(err)
	}
	return res
}

var small = setup{c: 32, s: 4, b: 16, q: 2, rho: 0.9, tailness: 50, warmup: 10, steps: 200}

// The same seed gives the same bytes, another seed others.
func TestSameSeedSameBytes(t *testing.T) {
	text := func(seed uint64) string {
		s := small
		s.seed, s.envS, s.accept = seed, 4, 0.8
		data, err := json.Marshal(run(t, s.config(t)))
		if err != nil {
			t.Fatal(err)
		}
		return string(data)
	}
	once, again, other := text(1), text(1), text(2)
	if once != again {
		t.Error("one seed gave two results")
	}
	if once == other {
		t.Error("two seeds gave one result")
	}
}

// scaled is a workload that is factor times as large.
type scaled struct {
	sim.Work
	factor int64
}

func (s scaled) Rollout(r sim.Rollout) sim.Response {
	w := s.Work.Rollout(r)
	w.Tokens *= int32(s.factor)
	w.EnvironmentNS *= s.factor
	return w
}

func (s scaled) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	return s.factor * s.Work.StepNS(lease, rollouts, tokens/s.factor)
}

// Staleness does not depend on the unit of length or time: with all lengths, the
// step, the environment and the sync ten times as long, every group is as stale.
func TestScaleInvariance(t *testing.T) {
	for _, mode := range []loop.SyncMode{loop.SyncInFlight, loop.SyncPause, loop.SyncDrain} {
		s := small
		s.envS = 5
		s.rules = func(c *loop.Config) { c.Sync = mode }
		s.sim = func(c *sim.Config) { c.SyncNS, c.LoadNS = 1_000_003, 500_001 }
		once := run(t, s.config(t))
		s.sim = func(c *sim.Config) {
			c.SyncNS, c.LoadNS = 10*1_000_003, 10*500_001
			c.Work = scaled{c.Work, 10}
		}
		tenfold := run(t, s.config(t))
		if !slices.Equal(once.Summary.Staleness.Histogram, tenfold.Summary.Staleness.Histogram) || once.Ledger != tenfold.Ledger {
			t.Errorf("sync mode %d: staleness %v, ten times as long %v", mode, once.Summary.Staleness.Histogram, tenfold.Summary.Staleness.Histogram)
		}
		if once.EndNS*10 != tenfold.EndNS {
			t.Errorf("sync mode %d: ends at %d ns, ten times as long at %d", mode, once.EndNS, tenfold.EndNS)
		}
	}
}

// A restart, too: with the time of a token, of its prefill, the step and the sync
// ten times as long, every group is as stale.
func TestScaleInvarianceOfRestarts(t *testing.T) {
	result := func(factor int64) sim.Result {
		s := small
		s.rules = func(c *loop.Config) { c.Sync, c.TrainerBlocked = loop.SyncRestart, true }
		s.sim = func(c *sim.Config) {
			c.SyncNS, c.LoadNS, c.NSPerToken, c.PrefillNSPerToken = factor*1_000_003, factor*500_001, float64(factor)*1e6, float64(factor)*2e4
			c.Work = slower{c.Work, factor}
		}
		return run(t, s.config(t))
	}
	once, tenfold := result(1), result(10)
	if !slices.Equal(once.Summary.Staleness.Histogram, tenfold.Summary.Staleness.Histogram) || once.Ledger != tenfold.Ledger ||
		once.EndNS*10 != tenfold.EndNS || once.PrefillTokens != tenfold.PrefillTokens || once.PrefillTokens == 0 {
		t.Errorf("staleness %v until %d, ten times as long %v until %d", once.Summary.Staleness.Histogram, once.EndNS, tenfold.Summary.Staleness.Histogram, tenfold.EndNS)
	}
}

// slower is a workload whose train step takes factor times as long, at a
// twentieth of the time of a token.
type slower struct {
	sim.Work
	factor int64
}

func (s slower) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	return s.factor * (s.Work.StepNS(lease, rollouts, tokens) / 20)
}

// checked simulates with the independent checker watching, and a second loop
// that must decide the same from the events alone.
func checked(t *testing.T, cfg sim.Config) (sim.Result, error) {
	t.Helper()
	rules := cfg.Loop
	rules.TrainSteps = loop.Version(cfg.Warmup + cfg.Measured)
	checker := looptest.NewChecker(rules)
	twin, err := loop.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	var wrong error
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		again, tick := twin.Step(ev)
		switch {
		case wrong != nil:
		case !slices.Equal(again, actions):
			wrong = fmt.Errorf("%v: the loop decided %v, a second one %v", ev, actions, again)
		case generateNS < 0 || environmentNS < 0:
			wrong = fmt.Errorf("%v: %d ns of generation, %d of environment", ev, generateNS, environmentNS)
		default:
			wrong = checker.Observe(ev, again, tick)
		}
	}
	res, err := sim.Run(cfg)
	if wrong != nil {
		t.Error(wrong)
	}
	if err == nil {
		if err := checker.Compare(twin.Status()); err != nil {
			t.Error(err)
		}
		if !checker.Finished() || checker.Ledger() != res.Ledger || !res.Ledger.Balanced() {
			t.Errorf("ledger %+v, the checker has %+v", res.Ledger, checker.Ledger())
		}
	}
	return res, err
}

// anyRules draws rules of every kind, and makes of them what can be run.
func anyRules(rng *rand.Rand, c *loop.Config) {
	pick, chance := rng.IntN, func(n int) bool { return rng.IntN(n) == 0 }
	c.Policy, c.Select, c.Sync = loop.Policy(pick(7)), loop.Selection(pick(3)), loop.SyncMode(pick(4))
	c.TrainerBlocked, c.RollingSwitch, c.SyncEvery = chance(2), chance(2), 1+pick(2)
	c.MaxStaleness, c.Abort = loop.Version(2+pick(4)), chance(2)
	c.Eta, c.StalenessThreshold = 1+3*rng.Float64(), 2*rng.Float64()
	c.MaxUses, c.Gamma, c.Evict, c.Seed = pick(4), rng.Float64(), loop.Eviction(pick(2)), rng.Uint64()
	c.Hold, c.InterruptAtBatch, c.MaxSpans = float64(pick(3))*0.2, chance(4), pick(3)
	c.Redundancy, c.Requeue, c.Prompts = pick(3)/2, chance(2), pick(2)*20
	c.Balance = c.Policy == loop.PolicyReplay && c.Prompts > 0 && chance(2)
	if chance(3) {
		c.PauseGroups = c.BatchGroups + pick(3)
	}
	if chance(3) {
		c.Levels, c.SolveLow, c.SolveHigh, c.Explore, c.FilterSolveRate = 3, 0.01, 0.99, 0.2, c.GroupSize > 1 && chance(2)
	}
	c.FilterZeroAdvantage = c.GroupSize > 1 && chance(4)
	if slots := c.Concurrency(); slots >= 2*c.GroupSize+1 && chance(2) {
		c.EngineSlots = []int{slots / 2, slots - slots/2}
		if slots >= 2*(c.GroupSize+c.Redundancy) && chance(2) {
			c.Start = loop.StartGang
		}
	}
	if c.Policy == loop.PolicySynchronous {
		c.SyncEvery, c.ExtraGroups = 1, pick(3)
		c.QueueGroups = c.BatchGroups + c.ExtraGroups
	}
	c.QueueGroups = max(c.QueueGroups, c.LiveGroupsMax())
}

// Every rule of the loop runs under the simulator, all decisions checked.
func TestEveryRule(t *testing.T) {
	rng := rand.New(rand.NewPCG(11, 12))
	pick := func(n int) int { return rng.IntN(n) }
	stalls, runs := 0, 140
	if os.Getenv("HEADWAY_LONG") != "" {
		runs = 20_000
	}
	for i := range runs {
		s := setup{c: 8 + pick(40), s: 1 + pick(5), q: 1 + float64(pick(3)), rho: 0.4 + 1.5*rng.Float64(), tailness: float64(20 * pick(5)),
			seed: uint64(i), envS: float64(10 * pick(2)), accept: 0.7 + 0.3*float64(pick(2)), steps: 25}
		s.b = s.s * (1 + pick(5))
		s.rules = func(c *loop.Config) { anyRules(rng, c) }
		s.sim = func(c *sim.Config) {
			c.SyncNS, c.LoadNS = int64(pick(3))*5e9, int64(pick(2))*3e9
			c.Lockstep, c.StartNS, c.PrefillNSPerToken = pick(2) == 0, int64(pick(2))*7e9, float64(pick(2))*1e6
			c.PruneTokens, c.DriftPerVersion, c.DriftSpread = int32(pick(2)*2500), 0.1, 0.5
			if pick(2) == 0 {
				c.Speed = func(active int, busy bool) float64 {
					speed := 1 / (1 + float64(active)/20)
					if busy {
						speed *= 0.7
					}
					return speed
				}
			}
		}
		cfg := s.solving(t, workload.SolveSpec{Kind: workload.KindLogistic, To: 2, Steps: 20, Spread: 1, Levels: []float64{-1, 0, 1}}).config(t)
		res, err := checked(t, cfg)
		if err != nil && !errors.Is(err, sim.ErrStalled) {
			t.Fatalf("setting %d: %v\n%+v", i, err, cfg.Loop)
		}
		if err != nil {
			stalls++
			t.Logf("setting %d: %v", i, err)
		}
		if err == nil && cfg.Loop.Policy == loop.PolicyMax && res.Summary.Staleness.Max > cfg.Loop.MaxStaleness {
			t.Errorf("setting %d: staleness of %d over a budget of %d", i, res.Summary.Staleness.Max, cfg.Loop.MaxStaleness)
		}
		if err == nil && cfg.Loop.Policy == loop.PolicySynchronous && !cfg.Loop.InterruptAtBatch && res.Summary.Staleness.Max != 0 {
			t.Errorf("setting %d: staleness of %d under the synchronous schedule", i, res.Summary.Staleness.Max)
		}
		if t.Failed() {
			t.Fatalf("setting %d: %+v", i, cfg.Loop)
		}
	}
	if stalls > runs/10 {
		t.Errorf("%d of %d settings stall: hardly anything was tested", stalls, runs)
	}
}

// Slots are never idle while the loop may start groups, and groups in flight
// spread over the versions as their lengths say.
func TestSlotsAreWorkConserving(t *testing.T) {
	s := small
	s.envS = 10
	if idle := run(t, s.config(t)).Summary.RolloutIdleRatio; idle != 0 {
		t.Errorf("slots idle %v of the time under drop, want never", idle)
	}
	s.rules = func(c *loop.Config) { c.Policy = loop.PolicyBlock }
	s.rho = 2
	if idle := run(t, s.config(t)).Summary.RolloutIdleRatio; idle < 0.1 {
		t.Errorf("slots idle %v of the time under block at twice the trainer's rate", idle)
	}
}

// never is a workload of which nothing is ever trained on.
type never struct{ sim.Work }

func (n never) Rollout(r sim.Rollout) sim.Response {
	w := n.Work.Rollout(r)
	w.Mark = loop.MarkReject
	return w
}

// A run in which no batch can fill is reported with its state, not simulated for ever.
func TestStallsAreErrors(t *testing.T) {
	for name, rules := range map[string]func(*loop.Config){
		"drop":        func(*loop.Config) {},
		"synchronous": func(c *loop.Config) { c.Policy, c.QueueGroups = loop.PolicySynchronous, c.BatchGroups },
	} {
		s := small
		s.rules = rules
		s.sim = func(c *sim.Config) { c.Work = never{c.Work} }
		_, err := sim.Run(s.config(t))
		if !errors.Is(err, sim.ErrStalled) || !strings.Contains(err.Error(), "after 0 of 210") {
			t.Errorf("%s: %v, want a stall", name, err)
		}
	}
}

func TestBadConfigs(t *testing.T) {
	for name, change := range map[string]func(*sim.Config){
		"Work":       func(c *sim.Config) { c.Work = nil },
		"NSPerToken": func(c *sim.Config) { c.NSPerToken = 0 },
		"SyncNS":     func(c *sim.Config) { c.SyncNS = -1 },
		"LoadNS":     func(c *sim.Config) { c.LoadNS = -1 },
		"measured":   func(c *sim.Config) { c.Measured = 0 },
		"GroupSize":  func(c *sim.Config) { c.Loop.GroupSize = 0 },
		"Prefill":    func(c *sim.Config) { c.PrefillNSPerToken = math.Inf(1) },
		"Prune":      func(c *sim.Config) { c.PruneTokens = -1 },
		"DriftPer":   func(c *sim.Config) { c.DriftPerVersion = -1 },
		"DriftSpr":   func(c *sim.Config) { c.DriftSpread = math.NaN() },
		"rewards":    func(c *sim.Config) { c.Loop.FilterZeroAdvantage = true },
		"levels": func(c *sim.Config) {
			solve, err := workload.SolveSpec{Kind: workload.KindLogistic, Levels: []float64{0, 1}}.Build()
			if err != nil {
				t.Fatal(err)
			}
			c.Work = c.Work.(*sim.Modelled).WithSolve(solve)
			c.Loop.Levels, c.Loop.SolveHigh = 3, 1
		},
	} {
		cfg := small.config(t)
		change(&cfg)
		if _, err := sim.Run(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A decode speed that depends on nothing is a constant speed.
func TestConstantSpeedIsNoSpeed(t *testing.T) {
	s := small
	s.envS = 3
	plain := run(t, s.config(t))
	s.sim = func(c *sim.Config) { c.Speed = func(int, bool) float64 { return 1 } }
	if flat := run(t, s.config(t)); flat.Summary.Staleness.Mean != plain.Summary.Staleness.Mean || flat.EndNS != plain.EndNS {
		t.Errorf("at a speed of 1 staleness %v and end %d, without %v and %d", flat.Summary.Staleness.Mean, flat.EndNS, plain.Summary.Staleness.Mean, plain.EndNS)
	}
	s.sim = func(c *sim.Config) {
		c.Speed, c.NSPerToken = func(int, bool) float64 { return 0.5 }, nsPerToken/2
	}
	if half := run(t, s.config(t)); half.Ledger != plain.Ledger {
		t.Errorf("half the speed of twice the speed gives %+v, want %+v", half.Ledger, plain.Ledger)
	}
}

// fixedTokens is a workload of rollouts that all have the same length.
type fixedTokens struct {
	sim.Work
	tokens int32
}

func (f fixedTokens) Rollout(sim.Rollout) sim.Response { return sim.Response{Tokens: f.tokens} }

func (fixedTokens) StepNS(loop.LeaseID, int64, int64) int64 { return 2503 }

// In common decode steps everything ends, and weights switch, at a step's end; a
// group that waited for its first step is stamped with what sampled its first token.
func TestLockstep(t *testing.T) {
	s := small
	s.b, s.steps, s.warmup = 8, 50, 0
	s.sim = func(c *sim.Config) {
		c.Lockstep, c.NSPerToken, c.LoadNS = true, 1000, 2345
		c.Work = fixedTokens{c.Work, 7}
		c.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
			switch ev.Kind {
			case loop.RolloutScored, loop.FirstToken, loop.WeightsSwitched:
				if ev.Time%1000 != 0 {
					t.Errorf("%v is not at the end of a decode step", ev)
				}
			}
		}
	}
	run(t, s.config(t))

	// An engine that is switched while a rollout waits for its first step: the stamp rises.
	s = small
	s.rho, s.steps = 0.5, 400
	raised := 0
	issued, first := map[loop.GroupID]loop.Version{}, map[loop.GroupID]loop.Version{}
	s.sim = func(c *sim.Config) {
		c.Lockstep, c.StartNS = true, 30e9
		c.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
			if _, seen := first[ev.Group]; ev.Kind == loop.FirstToken && !seen {
				first[ev.Group] = ev.Version
			}
			for _, a := range actions {
				switch a.Kind {
				case loop.StartRollout:
					if _, seen := issued[a.Group]; !seen {
						issued[a.Group] = a.Version
					}
				case loop.GroupQueued:
					if a.StartVersion != first[a.Group] {
						t.Errorf("group %d is stamped v%d, its first token was sampled by v%d", a.Group, a.StartVersion, first[a.Group])
					}
					if a.StartVersion > issued[a.Group] {
						raised++
					}
				}
			}
		}
	}
	if _, err := checked(t, s.config(t)); err != nil {
		t.Fatal(err)
	}
	run(t, s.config(t))
	if raised < 100 {
		t.Errorf("the stamp of %d groups rose, want many where rollouts wait half a period", raised)
	}
}

// A rollout that its engine takes up late is late by that.
func TestStartTime(t *testing.T) {
	s := small
	s.tailness = 0
	for _, lockstep := range []bool{false, true} {
		spent := func(start int64) int64 {
			total, n := int64(0), int64(0)
			s.sim = func(c *sim.Config) {
				c.Lockstep, c.StartNS = lockstep, start
				c.Observe = func(ev loop.Event, generateNS, environmentNS int64, _ []loop.Action) {
					if ev.Kind == loop.RolloutScored {
						total += generateNS + environmentNS
						n++
					}
				}
			}
			run(t, s.config(t))
			return total / n
		}
		if late, prompt := spent(nsPerToken*50), spent(0); late != prompt+nsPerToken*50 {
			t.Errorf("lockstep %v: rollouts take %d ns, started at once %d", lockstep, late, prompt)
		}
	}
}

// A simulation twice as long allocates no more: nothing is allocated a step.
func TestNoAllocationInTheSteadyState(t *testing.T) {
	for name, rules := range map[string]func(*loop.Config){
		"drop":  func(*loop.Config) {},
		"block": func(c *loop.Config) { c.Policy = loop.PolicyBlock },
		"max":   func(c *loop.Config) { c.Policy, c.MaxStaleness, c.Abort = loop.PolicyMax, 2, true },
		"pause": func(c *loop.Config) { c.Sync, c.EngineSlots = loop.SyncPause, []int{16, 16} },
		"steps": func(*loop.Config) {},
		"restart": func(c *loop.Config) {
			c.Sync, c.Policy, c.StalenessThreshold, c.EngineSlots = loop.SyncRestart, loop.PolicyThreshold, 0.5, []int{16, 16}
		},
		"at batch": func(c *loop.Config) { c.Policy, c.InterruptAtBatch, c.MaxSpans = loop.PolicyBlock, true, 3 },
		"replay": func(c *loop.Config) {
			c.Policy, c.MaxUses, c.Gamma, c.Evict, c.QueueGroups = loop.PolicyReplay, 2, 0.9, loop.EvictDrift, 12
		},
		"levels": func(c *loop.Config) {
			c.Levels, c.SolveLow, c.SolveHigh, c.FilterSolveRate, c.Redundancy, c.Hold = 4, 0.1, 0.9, true, 1, 0.3
		},
	} {
		allocations := func(steps int) float64 {
			s := small
			s.warmup, s.steps, s.envS, s.rules = 0, steps, 4, rules
			s.sim = func(c *sim.Config) { c.Lockstep, c.DriftPerVersion = name == "steps", 0.1 }
			cfg := s.solving(t, workload.SolveSpec{Kind: workload.KindFixed, Rate: 0.5}).config(t)
			return testing.AllocsPerRun(2, func() { run(t, cfg) })
		}
		if short, long := allocations(500), allocations(2000); long > short {
			t.Errorf("%s: %v allocations over 500 steps, %v over 2000", name, short, long)
		}
	}
}

// Stop ends a simulation, whichever way its rollouts are run, and is asked at every event.
func TestStop(t *testing.T) {
	enough := errors.New("enough")
	for _, mode := range []loop.SyncMode{loop.SyncInFlight, loop.SyncPause} { // merged, and slot by slot
		cfg := setup{c: 64, s: 8, b: 64, q: 1, rho: 1, tailness: 8, warmup: 2, steps: 20, rules: func(c *loop.Config) { c.Sync = mode }}.config(t)
		asked, seen := 0, 0
		cfg.Observe = func(loop.Event, int64, int64, []loop.Action) { seen++ }
		cfg.Stop = func() error {
			if asked++; asked > 500 {
				return enough
			}
			return nil
		}
		if _, err := sim.Run(cfg); !errors.Is(err, enough) {
			t.Errorf("%v: %v", mode, err)
		}
		if seen < 400 || seen > 501 {
			t.Errorf("%v: %d events by the 501st question", mode, seen)
		}
	}
}
