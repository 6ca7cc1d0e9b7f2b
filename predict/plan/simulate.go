package plan

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"runtime"
	"sync"
	"sync/atomic"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// Simulated are a candidate's figures by the simulator.
type Simulated struct {
	Figures
	// StalenessMean95 and PeriodS95 are 95 % confidence intervals.
	StalenessMean95 [2]float64 `json:"staleness_mean_95"`
	PeriodS95       [2]float64 `json:"period_s_95"`
	// TrainerIdleRatio and RolloutIdleRatio are the shares of time that each side waited.
	TrainerIdleRatio float64 `json:"trainer_idle_ratio"`
	RolloutIdleRatio float64 `json:"rollout_idle_ratio"`
	// Trainer and Engines say what each side waited for, as headway simulate does: of the recommended setting alone.
	Trainer *attribution.Idle `json:"trainer_idle,omitempty"`
	Engines *attribution.Idle `json:"engines_idle,omitempty"`
	// Binding is the side that limits, as a simulation's throughput has it.
	Binding string `json:"binding"`
	// Steps and Warmup are the train steps simulated.
	Steps  int `json:"steps"`
	Warmup int `json:"warmup_steps"`
	// Scale is by what a larger fleet's batch and rollouts at once were divided for the simulation; absent for none.
	Scale float64 `json:"scale,omitempty"`
	// Settled is false where the staleness still drifts, so that its mean is worth little; Doubt says why. Finalists are simulated again, twice as long, before that is left standing.
	Settled bool   `json:"settled"`
	Doubt   string `json:"doubt,omitempty"`
}

// effort is how much of a simulation a candidate is worth.
type effort struct {
	rollouts           float64 // generated in all, about
	stepsMin, stepsMax int
}

// The two efforts: enough to sort rules out, and enough for three digits.
var (
	screening = effort{rollouts: 150_000, stepsMin: 60, stepsMax: 600}
	thorough  = effort{rollouts: 1_200_000, stepsMin: 240, stepsMax: 3000}
)

// effortMost bounds a simulation's measured rollouts, and its warm-up's, as a
// multiple of what its effort aims at; stepsLeast are the steps it has all the same.
const (
	effortMost = 4
	stepsLeast = 10
)

// steps is the window of a simulation, warm-up and measured.
func (w effort) steps(e *evaluator, c *Candidate) (warmup, measured int) {
	estimated := e.estimator.Estimate(e.ratesOnly(c))
	load := max(1, min(estimated.Utilization, usefulRho))
	// A rollout of several turns takes as many events.
	perStep := load * float64(c.BatchRollouts) / e.acceptance() * (1 + e.problem.Document.Modelled.Tools.Calls)
	measured = int(min(max(w.rollouts/perStep, float64(w.stepsMin)), float64(w.stepsMax)))
	// Whatever precision asks for, a plan is to end: of the largest batches it has fewer steps, and says so.
	measured = min(measured, max(int(effortMost*w.rollouts/perStep), stepsLeast))
	settle := cmp.Or(estimated.SettlingSteps, 20)
	warmup = int(min(max(settle, 20), float64(measured)))
	// Steps that share a sync settle together, within the same bound.
	return min(warmup*c.SyncEvery, max(int(effortMost*w.rollouts/perStep), warmup)), measured
}

// acceptance is the share of groups that the filter lets through.
func (e *evaluator) acceptance() float64 {
	if a := e.problem.Document.Modelled.Filter.Acceptance; a > 0 {
		return a
	}
	return 1
}

// ratesOnly is a candidate under the plainest rules, for what the rates alone say.
func (e *evaluator) ratesOnly(c *Candidate) theory.Point {
	p := e.point(c)
	p.Policy, p.Select, p.SyncMode, p.MaxStaleness = theory.PolicyDrop, theory.SelectOldest, theory.SyncInFlight, 0
	p.QueueFactor = max(c.QueueFactor, 1)
	return p
}

// simulateAll simulates candidates on all cores. The first error by order wins;
// a setting that stalls is no error, it is marked and never chosen.
func (e *evaluator) simulateAll(phase string, list []*Candidate, w effort) error {
	errs := make([]error, len(list))
	var next, done atomic.Int64
	var wait sync.WaitGroup
	var report sync.Mutex
	for range min(runtime.GOMAXPROCS(0), len(list)) {
		wait.Go(func() {
			for {
				i := int(next.Add(1)) - 1
				if i >= len(list) {
					return
				}
				errs[i] = e.simulate(list[i], w)
				report.Lock()
				e.problem.progress(phase, int(done.Add(1)), len(list))
				report.Unlock()
			}
		})
	}
	wait.Wait()
	return errors.Join(errs...)
}

// longer is an effort of twice the length.
func (w effort) longer() effort {
	return effort{rollouts: 2 * w.rollouts, stepsMin: 2 * w.stepsMin, stepsMax: 2 * w.stepsMax}
}

// settle simulates finalists, and those again, twice as long, whose figures had not
// settled. What has not settled then stays marked.
func (e *evaluator) settle(list []Candidate, w effort) (simulated int, err error) {
	if err := e.simulateAll("simulating finalists", addresses(list), w); err != nil {
		return 0, err
	}
	var drifting []*Candidate
	for i := range list {
		if s := list[i].Simulated; s != nil && !s.Settled {
			drifting = append(drifting, &list[i])
		}
	}
	if len(drifting) > 0 {
		err = e.simulateAll("simulating what had not settled", drifting, w.longer())
	}
	return len(list) + len(drifting), err
}

// simulate simulates one candidate.
func (e *evaluator) simulate(c *Candidate, w effort) error {
	small, scale := e.shrunk(c)
	document, err := e.problem.DocumentOf(&small)
	var refused config.Errors
	if errors.As(err, &refused) { // a rule and a setting that exclude each other
		c.Predicted, c.Uncovered = nil, refused[0].Problem
		return nil
	}
	if err != nil {
		return err
	}
	document.Steps.Warmup, document.Steps.Measured = w.steps(e, &small)
	cfg, err := e.problem.Simulation(document)
	if err != nil {
		return fmt.Errorf("plan: simulate %s: %w", c.Rule(), err)
	}
	result, err := sim.Run(cfg)
	if errors.Is(err, sim.ErrStalled) {
		c.Predicted, c.Simulated, c.Uncovered = nil, nil, "stalls: a run with these settings would wait for ever"
		return nil
	}
	if err != nil {
		return fmt.Errorf("plan: simulate %s: %w", c.Rule(), err)
	}
	s := e.measured(c, &result)
	s.Steps, s.Warmup, s.Scale = document.Steps.Measured, document.Steps.Warmup, scale
	c.Simulated = s
	return nil
}

// attribute simulates a candidate once more, and says what both sides waited for. To observe that in every
// simulation would lengthen a plan by two fifths.
func (e *evaluator) attribute(c *Candidate) error {
	if c.Simulated == nil {
		return nil
	}
	small, _ := e.shrunk(c)
	document, err := e.problem.DocumentOf(&small)
	if err != nil {
		return err
	}
	document.Steps.Warmup, document.Steps.Measured = c.Simulated.Warmup, c.Simulated.Steps
	cfg, err := e.problem.Simulation(document)
	if err != nil {
		return err
	}
	waits := attribution.New(cfg.Loop)
	waits.Warmup = loop.Version(cfg.Warmup)
	cfg.Beside = waits
	if _, err = sim.Run(cfg); err != nil {
		return fmt.Errorf("plan: simulate %s: %w", c.Rule(), err)
	}
	found := waits.Summary()
	c.Simulated.Trainer, c.Simulated.Engines = &found.Trainer, &found.Engines
	return nil
}

// measured turns a simulation into figures.
func (e *evaluator) measured(c *Candidate, r *sim.Result) *Simulated {
	m := &r.Summary
	s := &Simulated{TrainerIdleRatio: m.TrainerIdleRatio, RolloutIdleRatio: m.RolloutIdleRatio, Binding: m.Throughput.Binding, Settled: true}
	s.Figures = Figures{
		StalenessMean: m.Staleness.Mean, StalenessP50: int(m.Staleness.P50), StalenessP95: int(m.Staleness.P95), StalenessP99: int(m.Staleness.P99),
		PQS: m.PQS.Mean, IQS: m.IQS.Mean, Utilization: m.Utilization, PeriodS: m.PeriodS.Mean, WasteShare: wasted(m),
	}
	if m.Length.SampledMeanTokens > 0 {
		s.LengthBias = m.Length.TrainedMeanTokens/m.Length.SampledMeanTokens - 1
	}
	e.intervals(s, r, int(m.Steps))
	e.derive(c, &s.Figures)
	return s
}

// wasted is the share of ready groups that were not trained on.
func wasted(m *metrics.Summary) float64 {
	trained := m.Throughput.ConsumptionRolloutsPerWallS
	if made := m.Throughput.ProductionRolloutsPerS; made > 0 {
		return max(0, 1-trained/made)
	}
	return 0
}

// intervals adds what the means are worth.
func (e *evaluator) intervals(s *Simulated, r *sim.Result, steps int) {
	window := r.Series[max(len(r.Series)-steps, 0):]
	staleness, periods := make([]float64, len(window)), make([]float64, len(window))
	for i, step := range window {
		staleness[i], periods[i] = step.Staleness, float64(step.PeriodNS)/1e9
	}
	verdict := estimate.SettlingOf(staleness, 0)
	s.StalenessMean95 = around(s.StalenessMean, verdict.Interval)
	s.PeriodS95 = around(s.PeriodS, estimate.OfSeries(periods))
	if !verdict.OK() {
		s.Settled, s.Doubt = false, fmt.Sprintf("staleness had not settled within %d simulated steps", steps)
	}
}

// around is an interval around a mean; a series too short for one gives the mean itself.
func around(mean float64, i estimate.Interval) [2]float64 {
	half := i.Half
	if math.IsNaN(half) {
		half = 0
	}
	return [2]float64{mean - half, mean + half}
}
