package sim_test

import (
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"gonum.org/v1/gonum/stat/distuv"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// fed is a run whose trainer is never the limit: what is measured is production.
var fed = setup{c: 48, s: 4, b: 16, q: 2, rho: 0.01, tailness: 0, warmup: 20, steps: 300}

// tokensFed is the length of its rollouts, secondsFed what one takes to generate.
const (
	tokensFed  = 1400
	secondsFed = tokensFed * nsPerToken / 1e9
)

func (s setup) agents(a *sim.Agents, more ...func(*sim.Config)) setup {
	before := s.sim
	s.sim = func(c *sim.Config) {
		if before != nil {
			before(c)
		}
		c.Agents = a
		for _, f := range more {
			f(c)
		}
	}
	return s
}

// also changes the simulation further.
func (s setup) also(more func(*sim.Config)) setup {
	before := s.sim
	s.sim = func(c *sim.Config) { before(c); more(c) }
	return s
}

func near(t *testing.T, what string, got, want, within float64) {
	t.Helper()
	if math.Abs(got-want) > within*math.Abs(want) {
		t.Errorf("%s is %.6g, the closed form says %.6g", what, got, want)
	}
}

func fixed(t *testing.T, seconds float64) *workload.Times {
	return service(t, workload.TimesSpec{Kind: workload.KindFixed, MeanS: seconds})
}

// produced is the rate of production of a run, and what bound it.
func produced(t *testing.T, s setup) (float64, string) {
	t.Helper()
	th := run(t, s.config(t)).Summary.Throughput
	return th.ProductionRolloutsPerS, th.Binding
}

// A judge without limits is an environment: the same events, byte for byte.
func TestVerifierWithoutLimitIsAnEnvironment(t *testing.T) {
	s := small
	s.envS = 7
	plain := run(t, s.config(t))
	exponential := service(t, workload.TimesSpec{Kind: workload.KindFixed, MeanS: 7})
	environment := small
	environment.sim = func(c *sim.Config) { c.Work = constantEnvironment{c.Work, 7e9} }
	judged := run(t, small.agents(&sim.Agents{Verifier: sim.Review{Time: exponential}}).config(t))
	if want := run(t, environment.config(t)); judged.EndNS != want.EndNS || judged.Ledger != want.Ledger || !slices.Equal(judged.Summary.Staleness.Histogram, want.Summary.Staleness.Histogram) {
		t.Errorf("judged until %d, %+v; in an environment until %d, %+v", judged.EndNS, judged.Ledger, want.EndNS, want.Ledger)
	}
	idle := run(t, s.agents(&sim.Agents{}).config(t))
	if idle.EndNS != plain.EndNS || idle.Ledger != plain.Ledger || idle.Summary.TokenStaleness != plain.Summary.TokenStaleness {
		t.Errorf("agents that do nothing end at %d, %+v; without them %d, %+v", idle.EndNS, idle.Ledger, plain.EndNS, plain.Ledger)
	}
}

// constantEnvironment is a workload with one time of the environment.
type constantEnvironment struct {
	sim.Work
	ns int64
}

func (e constantEnvironment) Rollout(r sim.Rollout) sim.Response {
	w := e.Work.Rollout(r)
	w.EnvironmentNS = e.ns
	return w
}

// Calls that wait for nothing add their time: C rollouts at once, each of
// E[L]/s + calls · E[time], by Little's law.
func TestToolTime(t *testing.T) {
	for _, spec := range []workload.ToolsSpec{
		{Calls: 3, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 4}},
		{Calls: 5, CallsKind: workload.KindPoisson, Split: workload.SplitRandom, Time: workload.TimesSpec{Kind: workload.KindLognormal, MeanS: 3, Tailness: 60}},
		{Calls: 6, CallsKind: workload.KindGeometric, CallsMax: 15, Time: workload.TimesSpec{Kind: workload.KindExponential, MeanS: 3}, FailureRate: 0.2, Retries: 20},
	} {
		model := tools(t, spec)
		res := run(t, fed.agents(&sim.Agents{Seed: 3, Tools: model}).config(t)).Summary
		near(t, "production", res.Throughput.ProductionRolloutsPerS, float64(fed.c)/(secondsFed+model.MeanNS()/1e9), 0.02)
		near(t, "calls per rollout", res.Services.ToolCallsPerRollout, model.MeanCalls(), 0.02)
		near(t, "tool time", res.Latency.ToolS, model.MeanNS()/1e9, 0.03)
	}
}

// What is limited to k at once and takes u produces k/u once it binds, and is named.
func TestLimitedServicesBind(t *testing.T) {
	one := workload.ToolsSpec{Calls: 1, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 20}}
	for name, test := range map[string]struct {
		agents  sim.Agents
		rate    float64
		binding string
	}{
		"verifier": {sim.Agents{Verifier: sim.Review{Time: fixed(t, 20), Workers: 6}}, 6.0 / 20, "verifier"},
		"scorer":   {sim.Agents{PromptTokens: 600, Scorer: sim.Review{NSPerToken: 1e7, Workers: 6}}, 6.0 / 20, "scorer"},
		"tool":     {sim.Agents{Tools: tools(t, one), ToolWorkers: 5}, 5.0 / 20, "environment"},
		"starter":  {sim.Agents{Sandboxes: &sim.Sandboxes{Early: true, Start: fixed(t, 30), Starting: 9}}, 9.0 / 30, "sandbox"},
		"sandbox":  {sim.Agents{Sandboxes: &sim.Sandboxes{Early: true, Start: fixed(t, 10), Limit: 7}}, 7 / (secondsFed + 10), "sandbox"},
		"pool":     {sim.Agents{PromptTokens: 1000, PrefillNSPerToken: 25e6, Prefill: sim.PrefillPool, PrefillWorkers: 4}, 4.0 / 25, "prefill"},
	} {
		rate, binding := produced(t, fed.agents(&test.agents))
		near(t, name+": production", rate, test.rate, 0.01)
		if binding != test.binding {
			t.Errorf("%s: %s binds, want %s", name, binding, test.binding)
		}
	}
}

// Engines that mostly read one by one, or evaluate, are named as such, though their
// rollouts stand still in decoding; those that do so less are not.
func TestBusyEnginesBind(t *testing.T) {
	reads := func(perTokenNS float64) *sim.Agents {
		return &sim.Agents{PromptTokens: 1000, PrefillNSPerToken: perTokenNS, Prefill: sim.PrefillEngine}
	}
	validates := func(seconds int64) func(*sim.Config) {
		return func(c *sim.Config) { c.Validation = sim.Validation{Every: 1, NS: seconds * 1e9} }
	}
	for name, test := range map[string]struct {
		agents *sim.Agents
		sim    func(*sim.Config)
		want   string
	}{
		"reading 48 s of 86":     {reads(1e6), func(*sim.Config) {}, "prefill"},
		"reading 24 s of 62":     {reads(5e5), func(*sim.Config) {}, "rollout"},
		"evaluating 40 s of 53":  {nil, validates(40), "validation"},
		"evaluating 5 s of 18":   {nil, validates(5), "rollout"},
		"evaluating, and a pool": {&sim.Agents{PromptTokens: 1000, PrefillNSPerToken: 1e5, Prefill: sim.PrefillPool, PrefillWorkers: 9}, validates(40), "validation"},
	} {
		if _, binding := produced(t, fed.agents(test.agents, test.sim)); binding != test.want {
			t.Errorf("%s: %s binds, want %s", name, binding, test.want)
		}
	}
}

// An engine that reads prompts while its others stand still: each of C rollouts
// holds up all C by p, so that a rollout takes L/s + C·p.
func TestEnginePrefillStallsTheEngine(t *testing.T) {
	a := &sim.Agents{PromptTokens: 2000, PrefillNSPerToken: 1e5, Prefill: sim.PrefillEngine}
	rate, _ := produced(t, fed.agents(a))
	near(t, "production of one engine", rate, float64(fed.c)/(secondsFed+float64(fed.c)*0.2), 0.01)
	two := fed
	two.rules = func(c *loop.Config) { c.EngineSlots = []int{32, 16} }
	rate, _ = produced(t, two.agents(a))
	near(t, "production of two engines", rate, 32/(secondsFed+32*0.2)+16/(secondsFed+16*0.2), 0.02)
	a.Prefill = sim.PrefillSlot
	rate, _ = produced(t, fed.agents(a))
	near(t, "production, every slot for itself", rate, float64(fed.c)/(secondsFed+0.2), 0.01)
}

// Engines of different speed produce by their slots and speeds, and so they do by a
// speed that depends on how many generate.
func TestEngineSpeeds(t *testing.T) {
	s := fed
	s.rules = func(c *loop.Config) { c.EngineSlots = []int{32, 16} }
	s.sim = func(c *sim.Config) { c.EngineSpeed = []float64{1.5, 0.25} }
	rate, _ := produced(t, s)
	near(t, "production", rate, (32*1.5+16*0.25)/secondsFed, 0.01)
	s.sim = func(c *sim.Config) {
		c.EngineSpeed = []float64{1.5, 0.25}
		c.Speed = func(active int, _ bool) float64 { return 20 / (4 + float64(active)) }
	}
	rate, _ = produced(t, s)
	near(t, "production", rate, (32*1.5*20/36+16*0.25)/secondsFed, 0.01)
}

// C rollouts of exponential length and a verifier, or scorers, of exponential time with k workers are
// the machine-repair model: births at rate (C−n)/E[L], deaths at min(n, k)/u.
func TestReviewsAreMachineRepairQueues(t *testing.T) {
	lengths, err := workload.LengthSpec{Kind: workload.KindExponential, MeanTokens: 3000}.Build()
	if err != nil {
		t.Fatal(err)
	}
	const think, u, k, c = 3000 * nsPerToken / 1e9, 12.0, 4, 24
	s := setup{c: c, s: 1, b: 8, q: 2, rho: 0.01, warmup: 100, steps: 6000}
	review := sim.Review{Time: service(t, workload.TimesSpec{Kind: workload.KindExponential, MeanS: u}), Workers: k}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	want := theory.Pool{Slots: c, Servers: k, AwayS: think, ServiceS: u}.Figures()
	for what, agents := range map[string]*sim.Agents{"verifier": {Seed: 5, Verifier: review}, "scorer": {Seed: 5, Scorer: review}} {
		cfg := s.agents(agents).config(t)
		cfg.Work = sim.NewModelled(9, lengths, nil, accept, 1e6)
		res := run(t, cfg).Summary
		near(t, what+": production", res.Throughput.ProductionRolloutsPerS, want.RolloutsPerS, 0.01)
		near(t, what+": wait", res.Latency.VerifierWaitS+res.Latency.ScorerWaitS, want.WaitS, 0.04)
	}
}

// A call that fails a share f of the times is made 1 + f + … + f^r times, and its
// rollout's attempt fails with probability f^(r+1).
func TestToolFailures(t *testing.T) {
	const f, r = 0.4, 2
	model := tools(t, workload.ToolsSpec{Calls: 1, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 1}, FailureRate: f, Retries: r})
	s := fed
	s.steps = 1500
	s.rules = func(c *loop.Config) { c.MaxAttempts = 50 }
	res := run(t, s.agents(&sim.Agents{Seed: 3, Tools: model}).config(t)).Summary
	failed, scored := float64(res.Failures.Environment), res.Throughput.ProductionRolloutsPerS*res.WindowS
	near(t, "share of failed attempts", failed/(failed+scored), math.Pow(f, r+1), 0.06)
	near(t, "failed tries a call", float64(res.Services.ToolFailures)/(failed+scored), f+f*f+f*f*f, 0.03)
}

// A group is trained on with its minimum of scored rollouts or more: of S rollouts of which each is lost with
// probability p, a binomial share of groups has so many.
func TestGroupMin(t *testing.T) {
	const f, least = 0.3, 3
	model := tools(t, workload.ToolsSpec{Calls: 1, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 1}, FailureRate: f})
	s := fed
	s.steps = 1500
	s.rules = func(c *loop.Config) { c.MaxAttempts, c.OnFailure, c.GroupMin = 1, loop.ShrinkGroup, least }
	cfg := s.agents(&sim.Agents{Seed: 3, Tools: model}).config(t)
	fewest := cfg.Loop.GroupSize
	cfg.Observe = func(_ loop.Event, _, _ int64, actions []loop.Action) {
		for _, a := range actions {
			if a.Kind == loop.GroupTrained {
				fewest = min(fewest, int(a.Count))
			}
		}
	}
	res := run(t, cfg)
	if fewest != least {
		t.Errorf("the smallest group that was trained on has %d rollouts", fewest)
	}
	ended := res.Summary.Waste.GroupsEnded
	all := ended.Failed + ended.Trained + ended.Evicted
	near(t, "share of groups that fail", float64(ended.Failed)/float64(all), distuv.Binomial{N: float64(cfg.Loop.GroupSize), P: 1 - f}.CDF(least-1), 0.06)
}

// A sandbox is held as long as Little's law says, starts that fail are tried again,
// and those that take too long count as such.
func TestSandboxes(t *testing.T) {
	a := &sim.Agents{Seed: 3, Tools: tools(t, workload.ToolsSpec{Calls: 2, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 3}}),
		Sandboxes: &sim.Sandboxes{Start: service(t, workload.TimesSpec{Kind: workload.KindExponential, MeanS: 10}), FailureRate: 0.1, TimeoutNS: 15e9, Retries: 30}}
	s := fed
	s.steps = 800
	res := run(t, s.agents(a).config(t)).Summary
	l := res.Latency
	// The first call comes after a third of the tokens; the sandbox is there from its start on.
	held := l.SandboxStartS + l.ToolS + l.DecodeS*2/3
	near(t, "live sandboxes", res.Services.SandboxesLiveMean, res.Throughput.ProductionRolloutsPerS*held, 0.02)
	slow := math.Exp(-1.5)
	near(t, "share that takes too long", float64(res.Services.SandboxTimeouts)/float64(res.Services.SandboxStarts), slow, 0.04)
	near(t, "error rate", res.Services.SandboxErrorRate, slow+(1-slow)*0.1, 0.04)
	// E[min(start, time-out)] per start, of as many starts as it takes to succeed.
	near(t, "start-up time", l.SandboxStartS, 10*(1-slow)/(1-slow)/0.9, 0.04)
}

// Evaluations every N steps stop the engines, or the trainer, for their share.
func TestValidationTakesItsTime(t *testing.T) {
	const every, ns = 5, 40e9
	s := fed
	s.steps = 400
	plain := run(t, s.config(t)).Summary
	s.sim = func(c *sim.Config) { c.Validation = sim.Validation{Every: every, NS: ns} }
	held := run(t, s.config(t)).Summary
	near(t, "period with evaluating engines", held.PeriodS.Mean, plain.PeriodS.Mean+ns/1e9/every, 0.01)
	near(t, "share of the time", held.Services.ValidationShare, ns/1e9/every/held.PeriodS.Mean, 0.01)
	s.rho = 3
	s.sim = nil
	plain = run(t, s.config(t)).Summary
	s.sim = func(c *sim.Config) { c.Validation = sim.Validation{Every: every, NS: ns, Trainer: true} }
	busy := run(t, s.config(t)).Summary
	near(t, "period with an evaluating trainer", busy.PeriodS.Mean, plain.PeriodS.Mean+ns/1e9/every, 0.001)
	near(t, "train step with an evaluating trainer", busy.StepS.Mean, plain.StepS.Mean, 1e-9)
	near(t, "share of the time in which it does not train", busy.TrainerIdleRatio, ns/1e9/every/busy.PeriodS.Mean, 0.001)
	near(t, "consumption while it trains", busy.Throughput.ConsumptionRolloutsPerS, plain.Throughput.ConsumptionRolloutsPerS, 1e-9)
	if busy.Throughput.Binding != "validation" {
		t.Errorf("%s binds beside an evaluating trainer", busy.Throughput.Binding)
	}
	// 100 equal rollouts in 48 slots take three rounds.
	s.sim = func(c *sim.Config) { c.Validation = sim.Validation{Every: every, Rollouts: 100, Trainer: true} }
	worked := run(t, s.config(t)).Summary
	near(t, "time of an evaluation", worked.Services.ValidationS/float64(worked.Services.Validations), 3*secondsFed, 1e-9)
}

// A train step of coefficient of variation cv has the same mean; one that fails a
// share f of the times takes 1/(1−f) as long.
func TestTrainSteps(t *testing.T) {
	s := setup{c: 48, s: 4, b: 16, q: 2, rho: 3, tailness: 50, warmup: 20, steps: 4000}
	constant := run(t, s.config(t)).Summary.StepS.Mean
	s.sim = func(c *sim.Config) { c.Work = c.Work.(*sim.Modelled).WithStep(sim.Step{CV: 0.3}) }
	varied := run(t, s.config(t))
	sum, squares := 0.0, 0.0
	for _, p := range varied.Series {
		x := float64(p.TrainNS) / 1e9
		sum, squares = sum+x, squares+x*x
	}
	n := float64(len(varied.Series))
	near(t, "mean step", sum/n, constant, 0.02)
	near(t, "its coefficient of variation", math.Sqrt(squares/n-sum/n*sum/n)/(sum/n), 0.3, 0.05)
	s.rules = func(c *loop.Config) { c.TrainAttempts = 100 }
	s.sim = func(c *sim.Config) { c.Faults.TrainRate = 0.25 }
	failing := run(t, s.config(t)).Summary
	near(t, "period with failing steps", failing.PeriodS.Mean, constant/0.75, 0.02)
	s.rules = nil
	s.sim = func(c *sim.Config) { c.Work = c.Work.(*sim.Modelled).WithStep(sim.Step{Tokens: 16 * 1378}) }
	for _, p := range run(t, s.config(t)).Series {
		near(t, "step by tokens", float64(p.TrainNS)/float64(p.Tokens), constant*1e9/(16*1378), 1e-6)
	}
}

// Lengths and calls go with the version that starts a rollout.
func TestDrift(t *testing.T) {
	change, err := workload.ChangeSpec{Steps: 100, LengthFactor: 2, ToolCallsFactor: 3}.Build(0)
	if err != nil {
		t.Fatal(err)
	}
	s := fed
	s.warmup, s.steps = 150, 200
	s = s.agents(&sim.Agents{Change: change, Tools: tools(t, workload.ToolsSpec{Calls: 2})}, func(c *sim.Config) { c.Work = c.Work.(*sim.Modelled).WithChange(change) })
	res := run(t, s.config(t)).Summary
	near(t, "length in the end", res.Length.SampledMeanTokens, 2*tokensFed, 1e-9)
	near(t, "calls in the end", res.Services.ToolCallsPerRollout, 6, 1e-9)
}

// timed is a workload whose train step and environment take factor times as long.
type timed struct {
	sim.Work
	factor int64
}

func (w timed) StepNS(lease loop.LeaseID, rollouts, tokens int64) int64 {
	return w.factor * w.Work.StepNS(lease, rollouts, tokens)
}

func (w timed) Rollout(r sim.Rollout) sim.Response {
	res := w.Work.Rollout(r)
	res.EnvironmentNS *= w.factor
	return res
}

// everything is every feature at once, all times factor times as long. Times are
// powers of two in ns, or fixed, so that nothing is rounded.
func everything(t *testing.T, factor float64) setup {
	s := setup{c: 48, s: 4, b: 16, q: 2, rho: 0.9, tailness: 70, warmup: 5, steps: 150, envS: 3}
	s.rules = func(c *loop.Config) { c.EngineSlots, c.Sync, c.MaxAttempts = []int{16, 16, 16}, loop.SyncRestart, 10 }
	fixed := func(seconds float64) *workload.Times { return fixed(t, factor*seconds) }
	a := &sim.Agents{
		Seed: 4, PromptTokens: 500, PrefillNSPerToken: factor * 1e5, Prefill: sim.PrefillEngine, ToolTokens: 300, ToolWorkers: 12,
		Tools: tools(t, workload.ToolsSpec{Calls: 3, CallsKind: workload.KindPoisson, Split: workload.SplitRandom,
			Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: factor * 2}, FailureRate: 0.05, Retries: 1}),
		Sandboxes: &sim.Sandboxes{Start: fixed(9), Limit: 40, Starting: 6, TimeoutNS: int64(factor * 60e9), FailureRate: 0.02, Retries: 2},
		Verifier:  sim.Review{Time: fixed(2), Workers: 5},
		Scorer:    sim.Review{NSPerToken: factor * 1e6, Workers: 4},
	}
	return s.agents(a, func(c *sim.Config) {
		c.NSPerToken *= factor
		c.SyncNS, c.LoadNS = int64(factor*3e9), int64(factor*2e9)
		c.EngineSpeed = []float64{1, 2, 0.5}
		c.Validation = sim.Validation{Every: 7, Rollouts: 90}
		c.Faults.Plan = []sim.EngineLoss{{Engine: 1, AtNS: int64(factor * 500e9), DownNS: int64(factor * 100e9)}}
		c.Work = timed{c.Work.(*sim.Modelled).WithStep(sim.Step{CV: 0.2}), int64(factor)}
	})
}

// With every length, tool, start, verdict, sync, evaluation, loss and train step ten
// times as long, every group is as stale.
func TestScaleInvarianceOfEverything(t *testing.T) {
	once, tenfold := run(t, everything(t, 1).config(t)), run(t, everything(t, 10).config(t))
	if !slices.Equal(once.Summary.Staleness.Histogram, tenfold.Summary.Staleness.Histogram) || once.Ledger != tenfold.Ledger ||
		once.Summary.Services.SandboxFailures != tenfold.Summary.Services.SandboxFailures || once.Summary.Failures != tenfold.Summary.Failures {
		t.Errorf("staleness %v, %+v; ten times as long %v, %+v", once.Summary.Staleness.Histogram, once.Ledger, tenfold.Summary.Staleness.Histogram, tenfold.Ledger)
	}
	near(t, "ten times the end", float64(tenfold.EndNS), 10*float64(once.EndNS), 1e-7)
	near(t, "ten times the latency", tenfold.Summary.Latency.EndToEndS, 10*once.Summary.Latency.EndToEndS, 1e-6)
	for _, n := range []int64{once.Summary.Services.EnginesLost, once.Summary.Services.Validations, once.Summary.Failures.Environment, once.Summary.Partial.Interruptions} {
		if n == 0 {
			t.Errorf("a feature was not there: %+v %+v", once.Summary.Services, once.Summary.Partial)
		}
	}
}

// Rollouts that are interrupted, wherever they are, and resumed at once at no cost
// end when they would have.
func TestFreeRestartOfAgentsIsInFlight(t *testing.T) {
	result := func(mode loop.SyncMode) sim.Result {
		s := everything(t, 1)
		before := s.rules
		s.rules = func(c *loop.Config) { before(c); c.Sync, c.EngineSlots = mode, []int{48} }
		return run(t, s.also(func(c *sim.Config) {
			c.SyncNS, c.EngineSpeed, c.Faults.Plan, c.Agents.PrefillNSPerToken, c.Agents.PromptTokens = 0, nil, nil, 0, 0
		}).config(t))
	}
	restart, flight := result(loop.SyncRestart), result(loop.SyncInFlight)
	if !slices.Equal(restart.Summary.Staleness.Histogram, flight.Summary.Staleness.Histogram) || restart.Ledger != flight.Ledger || restart.EndNS != flight.EndNS {
		t.Errorf("restarted %v until %d, in flight %v until %d", restart.Summary.Staleness.Histogram, restart.EndNS, flight.Summary.Staleness.Histogram, flight.EndNS)
	}
	if a, b := restart.Summary.TokenStaleness.Mean, flight.Summary.TokenStaleness.Mean; math.Abs(a-b) > 1e-9 {
		t.Errorf("token staleness %v restarted, %v in flight", a, b)
	}
	a, b := restart.Summary.Latency, flight.Summary.Latency
	if a != b {
		t.Errorf("latency %+v restarted, %+v in flight", a, b)
	}
	if restart.Summary.Partial.Interruptions == 0 {
		t.Error("nothing was interrupted")
	}
}

// A sandbox that lives a mean time m is gone in a call of time u a share 1 − e^(−u/m)
// of the times, and its rollout's attempt with it.
func TestSandboxesDie(t *testing.T) {
	a := &sim.Agents{Seed: 3, Tools: tools(t, workload.ToolsSpec{Calls: 1, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 20}}),
		Sandboxes: &sim.Sandboxes{MTBFNS: 60e9}}
	s := fed
	s.steps = 1500
	s.rules = func(c *loop.Config) { c.MaxAttempts = 50 }
	res := run(t, s.agents(a).config(t)).Summary
	lost, scored := float64(res.Services.SandboxesLost), res.Throughput.ProductionRolloutsPerS*res.WindowS
	near(t, "share of sandboxes lost", lost/(lost+scored), -math.Expm1(-20.0/60), 0.03)
	if res.Failures.Environment != res.Services.SandboxesLost {
		t.Errorf("%d attempts failed, %d sandboxes were lost", res.Failures.Environment, res.Services.SandboxesLost)
	}
}

// The state of an environment is made by the turns that called a tool: a rollout
// interrupted before its first call has none.
func TestStateLagCountsTurnsThatActed(t *testing.T) {
	lag := func(calls float64) float64 {
		s := setup{c: 48, s: 4, b: 16, q: 2, rho: 0.3, tailness: 50, warmup: 20, steps: 300}
		s.rules = func(c *loop.Config) { c.Sync = loop.SyncRestart }
		return run(t, s.agents(&sim.Agents{Tools: tools(t, workload.ToolsSpec{Calls: calls, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 1}})}).config(t)).Summary.Partial.StateLagMean
	}
	none, few, many := lag(0), lag(1), lag(20)
	if none != 0 || few <= 0 || many <= few {
		t.Errorf("state lag of %v without calls, %v with one, %v with 20: want 0 and rising", none, few, many)
	}
}

// Little's law as integers holds for the updates that groups live through while their
// rollouts wait for tools, sandboxes and verifiers, stand still for evaluations and are
// interrupted.
func TestLittleIdentityOfAgents(t *testing.T) {
	for name, rules := range map[string]func(*loop.Config){
		"block": func(c *loop.Config) { c.Policy = loop.PolicyBlock },
		"partial": func(c *loop.Config) {
			c.Policy, c.StalenessThreshold, c.Sync, c.TrainerBlocked = loop.PolicyThreshold, 0.7, loop.SyncRestart, true
		},
		"at batch": func(c *loop.Config) { c.Policy, c.InterruptAtBatch = loop.PolicyBlock, true },
	} {
		counted := little{lived: map[loop.GroupID]int64{}, leased: map[loop.GroupID]int64{}}
		cfg := littleRun(t, 0.6, rules)
		cfg.Agents = &sim.Agents{
			Tools: tools(t, workload.ToolsSpec{Calls: 3, CallsKind: workload.KindGeometric, Time: workload.TimesSpec{Kind: workload.KindExponential, MeanS: 0.02},
				FailureRate: 0.2, Retries: 100}), ToolWorkers: 6, ToolTokens: 30, PrefillNSPerToken: 1e4, Prefill: sim.PrefillEngine,
			Sandboxes: &sim.Sandboxes{Start: service(t, workload.TimesSpec{Kind: workload.KindExponential, MeanS: 0.1}), Limit: 40, Starting: 10},
			Verifier:  sim.Review{Time: fixed(t, 0.01), Workers: 4},
			Scorer:    sim.Review{NSPerToken: 1e5, Workers: 6},
		}
		cfg.EngineSpeed, cfg.Validation = []float64{1.4, 0.6}, sim.Validation{Every: 9, Rollouts: 60}
		cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) { counted.observe(ev, actions) }
		run(t, cfg)
		if open := counted.open(); counted.trained == 0 || counted.trained != counted.waited || open != counted.trained {
			t.Errorf("%s: Σ staleness %d, Σ updates lived %d, Σ open or queued %d", name, counted.trained, counted.waited, open)
		}
	}
}

// What never settles says why: which services fail, what is waited for, that the
// trainer gave up.
func TestServicesThatNeverSettle(t *testing.T) {
	tool := func(rate float64) *workload.Tools {
		return tools(t, workload.ToolsSpec{Calls: 4, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 1}, FailureRate: rate})
	}
	for what, test := range map[string]struct {
		change func(*sim.Config)
		is     error
	}{
		"failed (environment): tools or sandboxes fail too often": {func(c *sim.Config) { c.Agents = &sim.Agents{Tools: tool(0.999)} }, sim.ErrStalled},
		"failed (timeout): sandboxes take too long to start": {func(c *sim.Config) {
			c.Agents = &sim.Agents{Tools: tool(0), Sandboxes: &sim.Sandboxes{Start: fixed(t, 9), TimeoutNS: 8e9}}
		}, sim.ErrStalled},
		"1 of 1 engines lost": {func(c *sim.Config) { c.Faults.Plan = []sim.EngineLoss{{AtNS: 1e9}} }, sim.ErrStalled},
		"after 0 of 320 train steps: the trainer failed 3 times in a row": {func(c *sim.Config) { c.Faults.TrainRate = 0.999 }, sim.ErrEnded},
	} {
		s := fed
		s.sim = test.change
		if _, err := sim.Run(s.config(t)); !errors.Is(err, test.is) || !strings.Contains(err.Error(), what) {
			t.Errorf("%v, want it to say %q", err, what)
		}
	}
}

func TestBadAgents(t *testing.T) {
	for name, change := range map[string]func(*sim.Config){
		"Lockstep":          func(c *sim.Config) { c.Agents, c.Lockstep = &sim.Agents{}, true },
		"PrefillNSPerToken": func(c *sim.Config) { c.Agents = &sim.Agents{PrefillNSPerToken: math.NaN()} },
		"1 worker":          func(c *sim.Config) { c.Agents = &sim.Agents{Prefill: sim.PrefillPool} },
		"negative number":   func(c *sim.Config) { c.Agents = &sim.Agents{ToolWorkers: -1} },
		"FailureRate":       func(c *sim.Config) { c.Agents = &sim.Agents{Sandboxes: &sim.Sandboxes{FailureRate: 1}} },
		"MTBFNS":            func(c *sim.Config) { c.Agents = &sim.Agents{Sandboxes: &sim.Sandboxes{MTBFNS: -1}} },
		"negative limit":    func(c *sim.Config) { c.Agents = &sim.Agents{Sandboxes: &sim.Sandboxes{Limit: -1}} },
		"EngineSpeed":       func(c *sim.Config) { c.EngineSpeed = []float64{1, 2} },
		"EngineSpeed[0]":    func(c *sim.Config) { c.EngineSpeed = []float64{0} },
		"TrainRate":         func(c *sim.Config) { c.Faults.TrainRate = 1 },
		"Faults has":        func(c *sim.Config) { c.Faults.MTBFNS = 5 },
		"Faults.Plan":       func(c *sim.Config) { c.Faults.Plan = []sim.EngineLoss{{Engine: 1}} },
		"Validation":        func(c *sim.Config) { c.Validation.Every = 3 },
	} {
		cfg := small.config(t)
		change(&cfg)
		if _, err := sim.Run(cfg); err == nil || !strings.Contains(err.Error(), name) {
			t.Errorf("%s: %v", name, err)
		}
	}
}
