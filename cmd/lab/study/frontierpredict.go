package study

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"math"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/predict/theory"
)

// FrontierFigures is a point of the frontier.
type FrontierFigures struct {
	// PeriodS is the mean time between two updates, in seconds; Staleness the mean over trained groups, in versions.
	PeriodS   float64 `json:"period_s"`
	Staleness float64 `json:"staleness"`
}

// MarshalJSON writes what is not known as null.
func (f FrontierFigures) MarshalJSON() ([]byte, error) {
	return json.Marshal(map[string]any{"period_s": orNull(f.PeriodS), "staleness": orNull(f.Staleness)})
}

// orNull is a figure, nil where it is not a number.
func orNull(v float64) any {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return nil
	}
	return v
}

// UnmarshalJSON reads it again.
func (f *FrontierFigures) UnmarshalJSON(text []byte) error {
	var read struct {
		PeriodS   *float64 `json:"period_s"`
		Staleness *float64 `json:"staleness"`
	}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	*f = FrontierFigures{math.NaN(), math.NaN()}
	if read.PeriodS != nil {
		f.PeriodS = *read.PeriodS
	}
	if read.Staleness != nil {
		f.Staleness = *read.Staleness
	}
	return nil
}

// FrontierPrediction is what is expected of a run before its first step. It stands in the run's trace, with a
// digest, ahead of every event.
type FrontierPrediction struct {
	Split Split  `json:"split"`
	Seed  uint64 `json:"seed"`
	// Groups, MeanTokens and LengthTail (E[longest of a group]/E[length]) are of the lengths it was made
	// from, LengthsSHA256 the digest of these as JSON.
	Groups        int           `json:"groups"`
	MeanTokens    float64       `json:"mean_tokens"`
	LengthTail    float64       `json:"length_tail"`
	LengthsSHA256 string        `json:"lengths_sha256"`
	Rates         FrontierRates `json:"rates"`
	// Utilization is ρ, and TailMultiplier M of the times that rollouts hold their slots.
	Utilization    float64 `json:"utilization"`
	TailMultiplier float64 `json:"tail_multiplier"`
	// Theory is the closed form with its corrections, Published the article's.
	Theory    FrontierFigures `json:"theory"`
	Published FrontierFigures `json:"published"`
	// Simulated is the production loop in virtual time.
	Simulated FrontierSimulated `json:"simulated"`
	// SHA256 of this object with an empty SHA256.
	SHA256 string `json:"sha256"`
}

// FrontierSimulated is what a simulation came to.
type FrontierSimulated struct {
	Figures     FrontierFigures `json:"figures"`
	TrainerIdle float64         `json:"trainer_idle_ratio"`
	RolloutIdle float64         `json:"rollout_idle_ratio"`
	Wasted      float64         `json:"wasted_share"`
}

// lengthMoments are the number of lengths, their mean, and the mean longest of a group over it.
func lengthMoments(groups [][]int) (n int, mean, tail float64) {
	sum, longest := 0, 0
	for _, lengths := range groups {
		most := 0
		for _, l := range lengths {
			sum += l
			most = max(most, l)
		}
		n += len(lengths)
		longest += most
	}
	if n == 0 || sum == 0 {
		return n, 0, 0
	}
	mean = float64(sum) / float64(n)
	return n, mean, float64(longest) / float64(len(groups)) / mean
}

// foretellFrontier predicts a run from lengths and rates that were measured before it.
func foretellFrontier(s FrontierSettings, document config.Config, split Split, lengths [][]int, rates FrontierRates) (FrontierPrediction, error) {
	p := FrontierPrediction{Split: split, Seed: document.Seed, Groups: len(lengths), Rates: rates}
	_, p.MeanTokens, p.LengthTail = lengthMoments(lengths)
	text, err := json.Marshal(lengths)
	if err != nil {
		return p, err
	}
	p.LengthsSHA256 = digest(text)
	model, err := newFrontierModel(lengths, rates.GapS)
	if err != nil {
		return p, err
	}
	at := frontierPoint{slots: float64(s.SlotsPerDevice * split.Rollout), queueFactor: s.QueueFactor, rates: rates}
	expected, err := model.predict(at)
	if err != nil {
		return p, err
	}
	p.Utilization, p.TailMultiplier = expected.Utilization, expected.TailMultiplier
	p.Theory, p.Published = frontierFigures(expected)
	if p.Simulated, err = model.simulate(document.LoopConfig(), document.Seed, at, s); err != nil {
		return p, err
	}
	if text, err = json.Marshal(p); err != nil {
		return p, err
	}
	p.SHA256 = digest(text)
	return p, nil
}

func digest(text []byte) string {
	sum := sha256.Sum256(text)
	return hex.EncodeToString(sum[:])
}

// frontierModel is how long the rollouts of a policy are, and hold their slots beyond that.
type frontierModel struct {
	lengths *workload.Lengths
	gap     *workload.Times
}

func newFrontierModel(groups [][]int, gapS float64) (frontierModel, error) {
	var m frontierModel
	var err error
	if m.lengths, err = (workload.LengthSpec{Kind: workload.KindEmpirical, Groups: groups}).Build(); err != nil {
		return m, fmt.Errorf("study: the measured lengths: %w", err)
	}
	spec := workload.TimesSpec{Kind: workload.KindNone}
	if gapS > 0 {
		spec = workload.TimesSpec{Kind: workload.KindFixed, MeanS: gapS}
	}
	if m.gap, err = spec.Build(); err != nil {
		return m, fmt.Errorf("study: the measured time between rollouts: %w", err)
	}
	return m, nil
}

// frontierPoint is a split, of devices that need not be whole, with its measured rates.
type frontierPoint struct {
	slots, queueFactor float64
	rates              FrontierRates
}

// syncS is what a sync delays the stamps of groups by. A rollout is stamped at its first token, for which it
// waits GapS on average, so that new weights which are there by then count for it.
func (at frontierPoint) syncS() float64 { return max(at.rates.SyncS-at.rates.GapS, 0) }

// decodeUtilization is ρ of decoding alone: C/(token time) tokens/s over B·E[L]/t_step.
func (m frontierModel) decodeUtilization(at frontierPoint) float64 {
	return at.slots / at.rates.TokenS * at.rates.StepS / (frontierBatch * m.lengths.Mean())
}

// workload is the part of a point's input that is the same at every split.
func (m frontierModel) workload() theory.Input {
	in := theory.Input{GroupSize: frontierGroup, Lengths: m.lengths}
	if !m.gap.Zero() {
		in.Environment = m.gap
	}
	return in
}

// predict is the closed form of a point.
func (m frontierModel) predict(at frontierPoint) (theory.Prediction, error) {
	in := m.workload()
	in.ConcurrencyRollouts, in.BatchRollouts, in.QueueFactor = at.slots, frontierBatch, at.queueFactor
	in.Utilization, in.DecodeTokensPerS = m.decodeUtilization(at), 1/at.rates.TokenS
	in.StepS, in.SyncTimeS = at.rates.StepS, at.syncS()
	return theory.Predict(in)
}

// estimate is the same form without what stands beside it, for curves of many points.
func (m frontierModel) estimate(by *theory.Estimator, at frontierPoint) (theory.Estimate, error) {
	e := by.Estimate(theory.Point{ConcurrencyRollouts: at.slots, BatchRollouts: frontierBatch, QueueFactor: at.queueFactor,
		Utilization: m.decodeUtilization(at), StepS: at.rates.StepS, SyncTimeS: at.syncS()})
	if e.Reason == theory.ReasonInvalid {
		return e, fmt.Errorf("study: no closed form of %+v", at)
	}
	return e, nil
}

// frontierFigures are the best closed form of a point, and the published one.
func frontierFigures(p theory.Prediction) (best, published FrontierFigures) {
	value := func(figures ...theory.Figure) float64 {
		for _, f := range figures {
			if v, ok := f.Value(); ok {
				return v
			}
		}
		return math.NaN()
	}
	published = FrontierFigures{value(p.Period.S), value(p.Staleness.Mean)}
	return FrontierFigures{value(p.Corrected.Period.S, p.Period.S), value(p.Corrected.Mean, p.Staleness.Mean)}, published
}

// simulate is the production loop at a point.
func (m frontierModel) simulate(rules loop.Config, seed uint64, at frontierPoint, s FrontierSettings) (FrontierSimulated, error) {
	all, err := workload.NewAcceptance(1)
	if err != nil {
		return FrontierSimulated{}, err
	}
	nanoseconds := func(seconds float64) int64 { return int64(math.Round(1e9 * seconds)) }
	cfg := sim.Config{
		Loop: rules, Work: sim.NewModelled(seed, m.lengths, m.gap, all, nanoseconds(at.rates.StepS)),
		NSPerToken: 1e9 * at.rates.TokenS, SyncNS: nanoseconds(at.syncS()), Warmup: max(s.Warmup, s.SimulatedSteps/10), Measured: s.SimulatedSteps,
	}
	if err := cfg.Validate(); err != nil {
		return FrontierSimulated{}, fmt.Errorf("study: simulating: %w", err)
	}
	res, err := sim.Run(cfg)
	if err != nil {
		return FrontierSimulated{}, fmt.Errorf("study: simulating: %w", err)
	}
	r := res.Summary
	return FrontierSimulated{FrontierFigures{r.PeriodS.Mean, r.Staleness.Mean}, r.TrainerIdleRatio, r.RolloutIdleRatio, r.Waste.WastedShare}, nil
}

// FrontierCurve is the frontier at any split, devices taken as divisible, at the mean rates of all runs.
type FrontierCurve struct {
	// RolloutDevices is N_R.
	RolloutDevices []float64 `json:"rollout_devices"`
	Utilization    []float64 `json:"utilization"`
	PeriodS        []float64 `json:"period_s"`
	Staleness      []float64 `json:"staleness"`
}

func (c *FrontierCurve) add(devices, utilization float64, f FrontierFigures) {
	c.RolloutDevices = append(c.RolloutDevices, devices)
	c.Utilization = append(c.Utilization, utilization)
	c.PeriodS, c.Staleness = append(c.PeriodS, f.PeriodS), append(c.Staleness, f.Staleness)
}

// Steps of the curves, in devices: the closed form costs microseconds, a simulation half a second.
const (
	predictedStep = 0.05
	simulatedStep = 0.25
)

// curves are the predicted and the simulated frontier, from the first to the last of the splits that were run.
func (r *FrontierResult) curves(ctx context.Context) error {
	model, err := newFrontierModel(r.lengths, r.rates().GapS)
	if err != nil {
		return err
	}
	first, last := r.Splits[0].Rollout, r.Splits[0].Rollout
	for _, s := range r.Splits {
		first, last = min(first, s.Rollout), max(last, s.Rollout)
	}
	by, err := theory.NewEstimator(model.workload())
	if err != nil {
		return err
	}
	for i := 0; i <= int(math.Round(float64(last-first)/predictedStep)); i++ {
		n := float64(first) + float64(i)*predictedStep
		e, err := model.estimate(by, r.point(n))
		if err != nil {
			return err
		}
		r.Predicted.add(n, e.Utilization, FrontierFigures{e.PeriodS, e.Mean})
	}
	count := int(math.Round(float64(last-first)/simulatedStep)) + 1
	simulated, err := inParallel(ctx, count, nil, func(i int) (FrontierSimulated, error) {
		at := r.point(float64(first) + float64(i)*simulatedStep)
		rules := loop.Config{GroupSize: frontierGroup, BatchGroups: frontierBatch / frontierGroup,
			QueueGroups: int(math.Floor(r.Settings.QueueFactor*frontierBatch/frontierGroup + 1e-9)), EngineSlots: []int{int(math.Round(at.slots))}, Seed: 1}
		return model.simulate(rules, 1, at, r.Settings)
	})
	if err != nil {
		return err
	}
	for i, f := range simulated {
		at := r.point(float64(first) + float64(i)*simulatedStep)
		e, err := model.estimate(by, at)
		if err != nil {
			return err
		}
		r.Simulated.add(float64(first)+float64(i)*simulatedStep, e.Utilization, f.Figures)
	}
	return nil
}

// point is a split of devices that need not be whole, at the mean rates of the runs.
func (r *FrontierResult) point(rolloutDevices float64) frontierPoint {
	rates := r.rates()
	_, mean, _ := lengthMoments(r.lengths)
	rates.StepS = r.Settings.StepS(float64(r.Settings.Devices)-rolloutDevices, mean)
	return frontierPoint{slots: rolloutDevices * float64(r.Settings.SlotsPerDevice), queueFactor: r.Settings.QueueFactor, rates: rates}
}

// rates are the means over all runs but for the train step, which the split decides.
func (r *FrontierResult) rates() FrontierRates {
	var out FrontierRates
	n := float64(len(r.Runs))
	for _, run := range r.Runs {
		p := run.Prediction.Rates
		out.TokenS += p.TokenS / n
		out.GapS += p.GapS / n
		out.SyncS += p.SyncS / n
	}
	return out
}
