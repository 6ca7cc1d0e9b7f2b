package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"sync"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// settingNumber is one number of a setting that may be turned, named as predict names its flag.
type settingNumber struct {
	name        string
	least, most float64
	whole       bool
	at          func(*theory.Input) any // *float64 or *int
}

var settingNumbers = []settingNumber{
	{"concurrency", 1, 1 << 28, false, func(in *theory.Input) any { return &in.ConcurrencyRollouts }},
	{"batch", 1, 1 << 28, false, func(in *theory.Input) any { return &in.BatchRollouts }},
	{"group", 1, 1 << 16, true, func(in *theory.Input) any { return &in.GroupSize }},
	{"queue-factor", 1, 1e6, false, func(in *theory.Input) any { return &in.QueueFactor }},
	{"utilization", 1e-6, 1e6, false, func(in *theory.Input) any { return &in.Utilization }},
	{"tail-multiplier", 1, 1 << 16, false, func(in *theory.Input) any { return &in.TailMultiplier }},
	{"max-staleness", 0, 1e6, true, func(in *theory.Input) any { return &in.MaxStaleness }},
	{"staleness-threshold", 0, 1e3, false, func(in *theory.Input) any { return &in.StalenessThreshold }},
	{"step-time", 0, 1e9, false, func(in *theory.Input) any { return &in.StepS }},
	{"sync-time", 0, 1e9, false, func(in *theory.Input) any { return &in.SyncTimeS }},
	{"sync-every", 1, 1 << 10, true, func(in *theory.Input) any { return &in.SyncEvery }},
	{"acceptance", 1e-6, 1, false, func(in *theory.Input) any { return &in.Acceptance }},
	{"budget", 0, 1e6, true, func(in *theory.Input) any { return &in.BudgetVersions }},
	{"speed-ratio", 0, 1e6, false, func(in *theory.Input) any { return &in.SpeedRatio }},
}

// settingChoices are what a setting names.
var settingChoices = map[string]func(*theory.Input) *string{
	"policy": func(in *theory.Input) *string { return &in.Policy }, "select": func(in *theory.Input) *string { return &in.Select },
	"start": func(in *theory.Input) *string { return &in.Start }, "sync-mode": func(in *theory.Input) *string { return &in.SyncMode },
	"sync-trainer": func(in *theory.Input) *string { return &in.SyncTrainer },
}

// read returns the number in a setting.
func (n settingNumber) read(in *theory.Input) float64 {
	if n.name == "tail-multiplier" && in.Lengths != nil {
		return in.Lengths.TailMultiplier(in.GroupSize)
	}
	if p, whole := n.at(in).(*int); whole {
		return float64(*p)
	}
	return *n.at(in).(*float64)
}

// set puts a number into a setting.
func (n settingNumber) set(in *theory.Input, v float64) error {
	if !(v >= n.least && v <= n.most) || n.whole && v != math.Trunc(v) {
		return invalid("%s=%g: want %s from %g to %g", n.name, v, kindOfNumber(n.whole), n.least, n.most)
	}
	if p, whole := n.at(in).(*int); whole {
		*p = int(v)
		return nil
	}
	*n.at(in).(*float64) = v
	if n.name == "tail-multiplier" {
		in.Lengths, in.Environment = nil, nil // whose tail it would be
	}
	return nil
}

// Setting is a run as the closed forms have it.
type Setting struct {
	// Input has the run's measured rates, or those that are expected of it before any are.
	Input theory.Input
	// Uncovered says why no closed form covers the run's rules, empty where one does.
	Uncovered string
	// Nearest: Input has queue-drop in place of the run's rule, at its rates.
	Nearest bool
}

// withoutWaiting has a setting's engines as fast as they are while they do not wait, as they would be under queue-drop.
// A rule that holds engines back has them make no more than is trained.
func withoutWaiting(in *theory.Input, measured metrics.Summary) {
	in.Utilization /= max(1-measured.RolloutIdleRatio, 0.01)
}

// setting is the run's own, and what was measured of it.
func (m *Model) setting() (Setting, metrics.Summary, bool) {
	measured, _ := m.measured() // whose syncs the closed form's input has
	if m.opt.Setting == nil {
		return Setting{}, measured, false
	}
	s, known := m.opt.Setting(measured)
	return s, measured, known
}

// measured is what the recorder says now, and the mean time of a weight sync.
func (m *Model) measured() (metrics.Summary, float64) {
	m.mu.Lock()
	defer m.mu.Unlock() // also where a panic, of a model whose observation broke, goes past it
	return m.rec.Summary(), m.draw.meanSync()
}

// Frontier returns where a setting stands, the run's own with what is given changed.
func (m *Model) Frontier(numbers map[string]float64, choices map[string]string) (Frontier, error) {
	own, measured, known := m.setting()
	if !known {
		return Frontier{}, &refusal{status: 409, code: "conflict", message: "nothing has been measured of this run yet, and nothing was expected of it: the frontier follows with its first train steps"}
	}
	in := own.Input
	if own.Nearest {
		withoutWaiting(&in, measured)
	}
	for name, v := range numbers {
		for _, n := range settingNumbers {
			if n.name == name {
				if err := n.set(&in, v); err != nil {
					return Frontier{}, err
				}
			}
		}
	}
	for name, v := range choices {
		*settingChoices[name](&in) = v
	}
	in = in.WithDefaults()
	if err := in.Validate(); err != nil {
		return Frontier{}, invalid("%v", err)
	}
	f := Frontier{Inputs: map[string]float64{}, Choices: map[string]string{}, Curve: []FrontierPoint{}, Warnings: []string{}}
	for _, n := range settingNumbers {
		f.Inputs[n.name] = n.read(&in)
	}
	for name, at := range settingChoices {
		f.Choices[name] = *at(&in)
	}
	if own.Uncovered != "" && len(choices) == 0 {
		f.Warnings = append(f.Warnings, own.Uncovered)
		if !own.Nearest {
			f.Here = here(measured, 0)
			return f, nil
		}
		f.Warnings = append(f.Warnings, "The curve is that of queue-drop at this run's speeds, with engines that do not wait.")
	}
	estimator, err := m.forms.estimator(in)
	if err != nil {
		return f, invalid("%v", err)
	}
	curve, shortest := splits(estimator, in)
	f.Curve = append(f.Curve, curve...)
	e := estimator.Estimate(pointIn(in))
	if !e.Covered {
		f.Warnings = append(f.Warnings, e.Reason.Sentence())
	}
	f.Point, f.Here = pointOf(e, in.Utilization, 1/shortest), here(measured, shortest)
	if own.Uncovered != "" { // what is cheapest under another rule is no advice
		return f, nil
	}
	f.Cheapest = m.forms.move(own.Input, measured.Steps).from(f.Here)
	return f, nil
}

// Steps of the curve, over the utilizations around 1 that a split of the GPUs may have.
const (
	curvePoints = 61
	curveLeast  = 0.2
	curveMost   = 5.0
)

// splits are the outcomes of a setting over the split of its GPUs: at a fixed number of them, slots move with those
// that generate, and the train step with those that train. shortest is the shortest period, relative to the setting's step.
func splits(estimator *theory.Estimator, in theory.Input) (curve []FrontierPoint, shortest float64) {
	beta := cmp.Or(in.SpeedRatio, 1)
	share := func(rho float64) float64 { return rho * beta / (1 + rho*beta) }
	shortest = math.Inf(1)
	for i := range curvePoints {
		rho := curveLeast * math.Pow(curveMost/curveLeast, float64(i)/(curvePoints-1))
		step := (1 - share(in.Utilization)) / (1 - share(rho))
		at := pointIn(in)
		at.ConcurrencyRollouts, at.Utilization, at.StepS = max(in.ConcurrencyRollouts*share(rho)/share(in.Utilization), 1), rho, in.StepS*step
		e := estimator.Estimate(at)
		if e.PeriodRelative <= 0 {
			continue
		}
		p := pointOf(e, rho, step)
		shortest = min(shortest, p.PeriodRatio)
		curve = append(curve, p)
	}
	for i := range curve {
		curve[i].PeriodRatio /= shortest
	}
	return curve, shortest
}

// pointIn is what of a setting may differ in a search.
func pointIn(in theory.Input) theory.Point {
	return theory.Point{ConcurrencyRollouts: in.ConcurrencyRollouts, BatchRollouts: in.BatchRollouts, QueueFactor: in.QueueFactor, Utilization: in.Utilization,
		DecodeTokensPerS: in.DecodeTokensPerS, StepS: in.StepS, Policy: in.Policy, Select: in.Select, Start: in.Start, SyncMode: in.SyncMode,
		SyncTrainer: in.SyncTrainer, MaxStaleness: in.MaxStaleness, StalenessThreshold: in.StalenessThreshold, PartialRollout: in.PartialRollout,
		Acceptance: in.Acceptance, SyncTimeS: in.SyncTimeS, SyncEvery: in.SyncEvery, BudgetVersions: in.BudgetVersions}
}

func regimeOf(rho float64) string {
	if rho < 1 {
		return theory.RolloutBound
	}
	return theory.TrainBound
}

// pointOf is an estimate as a point; scale is what its period is multiplied by.
func pointOf(e theory.Estimate, rho, scale float64) FrontierPoint {
	return FrontierPoint{Utilization: rho, StalenessMean: e.Mean, StalenessP95: float64(e.P95), PQS: e.PQS, IQS: e.IQS, PeriodRatio: e.PeriodRelative * scale, Regime: regimeOf(e.Utilization)}
}

// here is where the run stands, as measured; nil before anything was.
func here(s metrics.Summary, shortest float64) *FrontierPoint {
	if s.Steps == 0 {
		return nil
	}
	p := &FrontierPoint{Utilization: s.Utilization, StalenessMean: s.Staleness.Mean, StalenessP95: float64(s.Staleness.P95), PQS: s.PQS.Mean, IQS: s.IQS.Mean, Regime: regimeOf(s.Utilization)}
	if shortest > 0 && s.StepS.Mean > 0 {
		p.PeriodRatio = s.PeriodS.Mean / s.StepS.Mean / shortest
	}
	return p
}

// worthLess is by what share a move has to lower staleness to be named.
const worthLess = 0.1

// from is where a move leads from where the run stands: the form's ratios of staleness and period, of what was
// measured. nil where either is not known.
func (m *FrontierMove) from(here *FrontierPoint) *FrontierMove {
	if m == nil || here == nil {
		return nil
	}
	to := *m
	to.StalenessMean *= here.StalenessMean
	to.PeriodRatio *= here.PeriodRatio
	return &to
}

// cheapest is the single change, as ratios of staleness and period to those before it, that lowers staleness for the least longer period, of equals the one that lowers it most;
// nil where none lowers it by a tenth.
func cheapest(own theory.Input, base theory.Prediction) *FrontierMove {
	now, known := base.Corrected.Mean.Value()
	if !known {
		return nil
	}
	var best *FrontierMove
	for _, l := range base.Levers {
		after, knownMean := l.CorrectedMean.Value()
		period, knownPeriod := l.PeriodRatio.Value()
		if !knownMean || !knownPeriod || after > now*(1-worthLess) || !advisable(&l, own) {
			continue
		}
		if best == nil || period < best.PeriodRatio-1e-3 || period < best.PeriodRatio+1e-3 && after/now < best.StalenessMean {
			best = &FrontierMove{Change: fmt.Sprintf("%s: %s", l.Name, l.Change), HoldsFixed: l.HoldsFixed, StalenessMean: after / now, PeriodRatio: period}
		}
	}
	return best
}

// advisable reports whether a run could make a lever's change and would see its gain. No key moves GPUs or a tail.
// More rollouts on the same engines are priced at the decode speed of a slot as it is, which engines do not keep.
func advisable(l *theory.Lever, own theory.Input) bool {
	switch l.Name {
	case "split", "tail":
		return false
	case "concurrency":
		return l.Setting.ConcurrencyRollouts < own.ConcurrencyRollouts
	}
	return true
}

// forms keeps what of the closed forms takes longest to prepare.
type forms struct {
	mu sync.Mutex
	// of is what the newest estimator was made for.
	of  theory.Input
	one *theory.Estimator
	// best is the cheapest move from the run's own setting, as of so many measured steps.
	steps int64
	best  *FrontierMove
	known bool
}

// estimator returns one for the lengths and the group of an input.
func (f *forms) estimator(in theory.Input) (*theory.Estimator, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	of := theory.Input{GroupSize: in.GroupSize, TailMultiplier: in.TailMultiplier, Lengths: in.Lengths, Environment: in.Environment}
	if f.one != nil && f.of == of {
		return f.one, nil
	}
	one, err := theory.NewEstimator(in)
	if err == nil {
		f.of, f.one = of, one
	}
	return one, err
}

// move is the cheapest move from the run's own setting. It is computed again when what was measured has moved.
func (f *forms) move(own theory.Input, steps int64) *FrontierMove {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.known && steps < f.steps+max(f.steps/50, 16) {
		return f.best
	}
	f.known, f.steps, f.best = true, steps, nil
	if base, err := theory.Predict(own); err == nil {
		f.best = cheapest(own, base)
	}
	return f.best
}
