package diagnosis

import (
	"context"
	"fmt"
	"math"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/estimate"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// arm is a run under some setting.
type arm struct {
	staleness, period estimate.Interval
	pqs, iqs, p95     float64
	trainerIdle       float64
	rolloutIdle       float64
	// dropped is the share of groups given up for room or staleness, bias the mean length trained over
	// the mean length sampled.
	dropped, bias float64
	// stalenessHalf and periodHalf are of the 95 % intervals of the differences from the run's own settings,
	// whose rollouts and steps are the same; 0 where there is none.
	stalenessHalf, periodHalf float64
	// held is the share of train steps that held the target, turns how often settings went back and forth; zero
	// without a target.
	held  float64
	turns map[loop.Setting]int64
}

// idea is a change of the settings before it is priced.
type idea struct {
	// overrides are keys of our documents as --set takes them; knob is what is to be set where there
	// are none: another framework's setting, or what is no setting at all.
	overrides []string
	knob      string
	holds     string
	// price in words, what it costs beside the figures.
	price string
	// input changes what a closed form is asked and returns the factor on the train step; nil where no
	// closed form knows the change.
	input func(*theory.Input) float64
	// settings changes what a resimulation is asked beside the overrides; nil for nothing.
	settings func(*replay.Settings)
	// model changes what a simulation of a log is asked beside input; nil for nothing.
	model func(*modelled)
}

// resimulationRollouts bounds one resimulation: enough for a mean within a hundredth.
const resimulationRollouts = 400_000

// resimulator resimulates a run of ours under changed settings.
type resimulator struct {
	ctx       context.Context
	recording *replay.Recording
	document  config.Config
	progress  func(string, float64)
	base      arm
	own       *replay.Resimulation // behind base
	// steps of the base, 0 for as many as the run made.
	steps int
	batch int
	tried map[string]arm
}

func newResimulator(ctx context.Context, recording *replay.Recording, f *facts, options *Options) (*resimulator, error) {
	if !f.own.documented {
		return nil, fmt.Errorf("the trace does not hold the run's document, so that no setting can be changed in it")
	}
	raw, err := config.ParseRecorded("the run's document", []byte(recording.Header.Config))
	if err != nil {
		return nil, err
	}
	r := &resimulator{ctx: ctx, recording: recording, document: raw, progress: options.progress, tried: map[string]arm{}}
	recording.Header.Warmup = f.own.from
	rules := recording.Header.Loop
	r.batch = rules.BatchGroups * rules.GroupSize
	if most := resimulationRollouts / r.batch; int(recording.Version) > most && most > 4*stepsMin {
		r.steps = most
		recording.Header.Warmup = min(recording.Header.Warmup, loop.Version(most/4))
	}
	r.progress("resimulating it", 0)
	r.base, err = r.run(replay.Settings{Steps: r.steps})
	return r, err
}

// try resimulates an idea, once.
func (r *resimulator) try(i *idea) (arm, error) {
	key := strings.Join(i.overrides, " ") + i.knob
	if a, ok := r.tried[key]; ok {
		return a, nil
	}
	settings, err := r.settings(i)
	if err != nil {
		return arm{}, err
	}
	r.progress("resimulating "+key, 0)
	a, err := r.run(settings)
	if err == nil {
		r.tried[key] = a
	}
	return a, err
}

// settings are what an idea changes of the recorded run.
func (r *resimulator) settings(i *idea) (replay.Settings, error) {
	s := replay.Settings{Steps: r.steps}
	if len(i.overrides) > 0 {
		changed, err := r.document.Set(i.overrides...)
		if err == nil {
			changed, err = changed.Resolve()
		}
		if err != nil {
			return s, err
		}
		rules := changed.LoopConfig()
		s.Loop = &rules
		if r.steps > 0 {
			s.Steps = r.steps * r.batch / (rules.BatchGroups * rules.GroupSize)
		}
	}
	if i.settings != nil {
		i.settings(&s)
	}
	return s, nil
}

// run resimulates: first the run's own settings, with which others are compared.
func (r *resimulator) run(s replay.Settings) (arm, error) {
	if err := r.ctx.Err(); err != nil {
		return arm{}, err
	}
	again, err := r.recording.Resimulate(s)
	if err != nil {
		return arm{}, err
	}
	a := armOf(again.Summary, windowSteps(again.Series, loop.Version(again.Warmup)))
	if r.own == nil {
		r.own = &again
		return a, nil
	}
	figures := replay.Estimates(again, r.own)
	a.stalenessHalf, a.periodHalf = halfOf(figures["staleness_mean"]), halfOf(figures["period_s"])
	return a, nil
}

// halfOf is half the width of a difference's interval, 0 for none.
func halfOf(e replay.Estimate) float64 {
	if e.Difference95 == nil {
		return 0
	}
	return (e.Difference95[1] - e.Difference95[0]) / 2
}

// armOf is a simulation as an arm.
func armOf(s metrics.Summary, steps []metrics.Step) arm {
	a := arm{
		staleness: estimate.OfSeries(column(steps, func(p *metrics.Step) float64 { return p.Staleness })),
		period:    estimate.OfSeries(column(steps, func(p *metrics.Step) float64 { return float64(p.PeriodNS) / 1e9 })),
		pqs:       s.PQS.Mean, iqs: s.IQS.Mean, p95: float64(s.Staleness.P95),
		trainerIdle: s.TrainerIdleRatio, rolloutIdle: s.RolloutIdleRatio, bias: 1,
	}
	if c := s.Control; c != nil {
		a.held, _ = heldShare(c)
		a.turns = map[loop.Setting]int64{}
		for set := range loop.SettingEngines + 1 {
			a.turns[set], _, _ = swings(steps, set)
		}
	}
	a.staleness.Mean = s.Staleness.Mean
	a.period.Mean = s.PeriodS.Mean
	if e := s.Waste.GroupsEnded; e.Trained > 0 {
		a.dropped = float64(e.Evicted+e.Discarded) / float64(e.Trained+e.Evicted+e.Discarded+e.Filtered+e.Cancelled+e.Failed+e.Pruned)
	}
	if s.Length.SampledMeanTokens > 0 {
		a.bias = s.Length.TrainedMeanTokens / s.Length.SampledMeanTokens
	}
	return a
}

// outcome is a priced idea.
type outcome struct {
	Change
	// after is the arm behind it, nil where a closed form answered.
	after *arm
}

// price says what an idea would buy: by resimulation where the run's trace allows it, else by the
// closed form, else by a simulation of what was fitted, else not at all.
func (f *facts) price(i idea) (outcome, bool) {
	if !f.staleness.known || f.staleness.value <= 0 && !f.period.known {
		return outcome{}, false
	}
	out := outcome{Change: Change{Set: i.knob, Overrides: i.overrides, HoldsFixed: i.holds, Price: i.price, PeriodRatio: 1}}
	if len(i.overrides) > 0 {
		out.Set = strings.Join(i.overrides, " ")
	}
	if f.again != nil {
		if after, err := f.again.try(&i); err == nil {
			out.resimulated(f, after)
			return out, true
		}
	}
	if out.closedForm(f, &i) {
		return out, true
	}
	if f.model != nil && (i.input != nil || i.model != nil) {
		if after, err := f.model.try(&i); err == nil {
			out.simulated(f, after)
			return out, true
		}
	}
	return out, false
}

// resimulated fills in what a resimulation says, relative to that of the run itself: what the
// simulation gets wrong of the run it gets wrong of both.
func (o *outcome) resimulated(f *facts, after arm) {
	base := f.again.base
	o.Method, o.after = methodResimulation, &after
	ratio := after.staleness.Mean / base.staleness.Mean
	o.Gain = 1 - ratio
	o.StalenessMean = f.staleness.value * ratio
	half := math.Hypot(after.stalenessHalf/base.staleness.Mean, o.Gain*share(base.staleness))
	o.between(half)
	o.PeriodRatio = after.period.Mean / base.period.Mean
	o.periodHalf = math.Hypot(after.periodHalf/base.period.Mean, (1-o.PeriodRatio)*share(base.period))
}

// between sets the interval of the gain. No staleness can fall by more than all of it.
func (o *outcome) between(half float64) {
	o.GainLow, o.GainHigh = o.Gain-half, math.Min(o.Gain+half, 1)
}

// share is an interval's half over its mean, 0 for none.
func share(v estimate.Interval) float64 {
	if !v.Known() || math.IsNaN(v.Half) || v.Mean == 0 {
		return 0
	}
	return v.Half / v.Mean
}

// closedForm fills in what the closed form says, relative to that of the run itself.
func (o *outcome) closedForm(f *facts, i *idea) bool {
	if i.input == nil || f.unfit != "" || f.uncovered != "" {
		return false
	}
	in := f.in
	factor := i.input(&in)
	p, err := theory.Predict(in)
	if err != nil || !p.Covered {
		return false
	}
	after, ok := MeanOf(&p)
	before, known := MeanOf(&f.predicted)
	periodAfter, okAfter := periodOf(&p)
	periodBefore, okBefore := periodOf(&f.predicted)
	if !ok || !known || !okAfter || !okBefore || before == 0 {
		return false
	}
	o.Method = methodClosedForm
	o.Gain = 1 - after/before
	o.StalenessMean = f.staleness.value * after / before
	o.PeriodRatio = factor * periodAfter / periodBefore
	return true
}

// Least gains that are worth a finding: of staleness, and of the period.
const (
	gainLeast   = 0.05
	periodLeast = 0.03
)

// sureOf is how wide an interval may be against the gain, to either side: what is less sure is
// no advice.
const sureOf = 0.1

// lowers reports whether a change surely lowers staleness by enough.
func (o *outcome) lowers() bool {
	return o.Gain >= gainLeast && (o.after == nil || o.Gain-o.GainLow <= sureOf*o.Gain)
}

// speeds reports whether a change surely shortens the period by enough.
func (o *outcome) speeds() bool {
	return 1-o.PeriodRatio >= periodLeast && o.periodHalf <= sureOf*(1-o.PeriodRatio)
}

// mightSpeed reports whether a change may shorten the period by enough: its interval does not leave that out.
func (o *outcome) mightSpeed() bool { return 1-o.PeriodRatio+o.periodHalf >= periodLeast }

// unsure reports whether a change would lower staleness by enough, were it only sure.
func (o *outcome) unsure() bool { return o.Gain >= gainLeast && o.GainLow > 0 && !o.lowers() }
