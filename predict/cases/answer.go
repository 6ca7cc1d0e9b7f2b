package cases

import (
	"context"
	"fmt"
	"math"
	"slices"

	"gonum.org/v1/gonum/mat"

	"github.com/headway-rl/headway/internal/parallel"
	"github.com/headway-rl/headway/predict/schedule"
	"github.com/headway-rl/headway/predict/serving"
)

// Estimate is a predicted time with its 80 % interval, in seconds.
type Estimate struct {
	Predicted float64 `json:"predicted"`
	Low       float64 `json:"low"`
	High      float64 `json:"high"`
}

// Answer is a row's prediction beside its measurement. Figures that a row does not have are nil.
type Answer struct {
	ID     string `json:"id"`
	Family string `json:"family"`
	Grade  string `json:"grade"`
	// Figure names the measured column that Step answers: step_s, or train_s, sync_s or gen_s of a part alone.
	Figure string `json:"figure"`
	// Measured is the source's, in seconds.
	Measured *float64 `json:"measured_step_s"`
	// Step is predicted from the inputs alone; Calibrated with the rows that the caller names, of the same family.
	Step       *Estimate `json:"step_s"`
	Calibrated *Estimate `json:"calibrated"`
	// Reference says that the row is one of those: its Calibrated is nil.
	Reference bool `json:"reference,omitempty"`
	// Parts of the step.
	Parts *Parts `json:"parts"`
	// TokensPerSAndGPU are trained and prompt tokens a second, by all GPUs.
	TokensPerSAndGPU *float64 `json:"tokens_per_s_gpu"`
	// Simulated is the step of the loop that runs in production, simulated, of an asynchronous row.
	Simulated *float64 `json:"simulated_step_s,omitempty"`
	// Staleness is the mean lag of a trained rollout, in versions. WaitShare is the share of a step that the trainer
	// waits. Both are of the loop, simulated.
	Staleness *float64 `json:"staleness_mean"`
	WaitShare *float64 `json:"wait_share"`
	// NotSimulated says why an asynchronous row has no Staleness and WaitShare, "" where it has or is none.
	NotSimulated string `json:"not_simulated,omitempty"`
	// PrefixHit is the share of prompt tokens that a cache has, of generation alone.
	PrefixHit *float64 `json:"prefix_hit,omitempty"`
	// Assumed are inputs that the source does not have, with the value taken.
	Assumed []string `json:"assumed,omitempty"`
	// Reason says why there is no answer, "" if there is one.
	Reason string `json:"reason"`
}

// normal80 is the quantile of a normal distribution between whose two 80 % lies.
const normal80 = 1.2816

// familyNoise is how far all runs of a family may lie off together for causes that no constant is, as
// a standard deviation of the logarithm.
const familyNoise = 0.11

// solved is a row's prediction with what moves it.
type solved struct {
	*setup
	parts  Parts
	slopes []float64 // of the answer's logarithm, by constant; the last is the family's own factor
	spread float64   // of the answer's logarithm, without a calibration
	family Family
}

// answered returns the observation that the row's answer is held to.
func (s *setup) answered() (string, func(Parts) float64) {
	switch s.rules.kind {
	case kindTrain:
		return "train_s", func(p Parts) float64 { return p.Training }
	case kindSync:
		return "sync_s", func(p Parts) float64 { return p.Sync }
	}
	return "step_s", func(p Parts) float64 { return p.Step }
}

// solve predicts a row under fitted constants.
func solve(s *setup, f Fitted) solved {
	out := solved{setup: s, family: f.of(s.row.Family)}
	figure, part := s.answered()
	here, moved := s.slopes(out.family.Values)
	out.parts = here
	noise := noiseOf(figure)
	variance := noise*noise + familyNoise*familyNoise + s.guessSpread*s.guessSpread
	for i := range moved {
		slope := math.Log(part(moved[i])/part(here)) / slopeStep
		out.slopes = append(out.slopes, slope)
		variance += slope * slope * out.family.Spreads[i] * out.family.Spreads[i]
	}
	out.slopes = append(out.slopes, 1)
	out.spread = math.Sqrt(variance)
	return out
}

// estimate is a prediction with its interval.
func estimate(value, spread float64) *Estimate {
	return &Estimate{value, value * math.Exp(-normal80*spread), value * math.Exp(normal80*spread)}
}

// Options are what an answer may use.
type Options struct {
	// CalibrateOn are the identifiers of rows whose measurements calibrate the others of their family.
	CalibrateOn []string
	// Simulate has asynchronous rows simulated for staleness and waiting: the first SimulatedRows, for a row takes
	// 0.1 s and more.
	Simulate bool
	// Said, if not nil, is told what is done with the rows, and how many of them are. It is called by one goroutine at a time.
	Said func(what string, done, all int)
}

// Table answers every row, in its order, on all cores. It fails for a calibration on a row that is not there, or that
// has no figure or no answer.
func Table(ctx context.Context, rows []Row, f Fitted, o Options) ([]Answer, error) {
	references := map[string]bool{}
	for _, id := range o.CalibrateOn {
		if !slices.ContainsFunc(rows, func(r Row) bool { return r.ID == id }) {
			return nil, fmt.Errorf("there is no row %q to calibrate on: give identifiers from the column id, separated by commas", id)
		}
		references[id] = true
	}
	rows = completed(rows)
	said := func(what string) func(done, all int) {
		return func(done, all int) {
			if o.Said != nil {
				o.Said(what, done, all)
			}
		}
	}
	solutions, _, err := parallel.All(ctx, len(rows), said("answered"), func(i int) (solution, error) { return answer(rows[i], f), nil })
	if err != nil {
		return nil, err
	}
	answers := make([]Answer, len(rows))
	place := map[string]*solved{}
	var simulated []int
	for i, s := range solutions {
		answers[i] = s.Answer
		answers[i].Reference = references[s.ID]
		if s.solved == nil {
			continue
		}
		place[s.ID] = s.solved
		if !o.Simulate || s.rules.kind != kindStep || !s.rules.async {
			continue
		}
		switch {
		case s.rules.shared || s.rules.helping:
			answers[i].NotSimulated = "the loop has no rule by which GPUs change sides"
		case len(simulated) == SimulatedRows:
			answers[i].NotSimulated = fmt.Sprintf("the first %d of a table are simulated", SimulatedRows)
		default:
			simulated = append(simulated, i)
		}
	}
	for _, id := range o.CalibrateOn {
		if err := usable(id, rows, place, answers); err != nil {
			return nil, err
		}
	}
	if _, _, err := parallel.All(ctx, len(simulated), said("simulated"), func(k int) (struct{}, error) {
		i := simulated[k]
		answers[i].simulate(ctx, solutions[i].solved)
		return struct{}{}, nil
	}); err != nil {
		return nil, err
	}
	calibrate(answers, place, references)
	return answers, nil
}

// solution is a row's answer, with its prediction where the row has one by constants.
type solution struct {
	Answer
	*solved
}

// answer is one row's.
func answer(r Row, f Fitted) solution {
	a := Answer{ID: r.ID, Family: r.Family, Grade: r.Grade}
	if r.rules().kind == kindServe && len(r.unread) == 0 {
		a.serve(r)
		return solution{Answer: a}
	}
	setup, err := newSetup(r)
	if err != nil {
		a.Reason = err.Error()
		if figure := r.soleFigure(); figure != "" {
			a.Figure, a.Measured = figure, pointer(r.Measured[figure])
		}
		return solution{Answer: a}
	}
	s := solve(setup, f)
	setup.release()
	a.fill(&s)
	return solution{a, &s}
}

// usable reports why a row cannot calibrate.
func usable(id string, rows []Row, place map[string]*solved, answers []Answer) error {
	for i, r := range rows {
		if r.ID != id {
			continue
		}
		if r.rules().kind == kindServe {
			return fmt.Errorf("row %s cannot calibrate: it is of generation alone, whose engines are simulated without constants", id)
		}
		if _, ok := place[id]; !ok {
			return fmt.Errorf("row %s cannot calibrate: it has no prediction: %s", id, answers[i].Reason)
		}
		if answers[i].Measured == nil {
			return fmt.Errorf("row %s cannot calibrate: it has no m_%s", id, answers[i].Figure)
		}
	}
	return nil
}

// soleFigure is the time that a row without an answer has measured.
func (r Row) soleFigure() string {
	for _, figure := range []string{"step_s", "train_s", "sync_s", "gen_s"} {
		if r.Measured[figure] > 0 {
			return figure
		}
	}
	return ""
}

// serveSpread is how far a simulated generation may be off, as a standard deviation of the logarithm: what
// the published rows of placement show.
const serveSpread = 0.25

// serve answers a row of generation alone by simulating its engines, with their caches and the placement.
func (a *Answer) serve(r Row) {
	a.Figure = "gen_s"
	if m := r.Measured["gen_s"]; m > 0 {
		a.Measured = pointer(m)
	}
	got, err := serving.Rollouts(r.Fields)
	switch {
	case err != nil:
		a.Reason = err.Error()
	case got.SpanS == nil || !(*got.SpanS > 0):
		a.Reason = "the simulated engines generate nothing"
	default:
		a.Step, a.PrefixHit, a.Assumed = estimate(*got.SpanS, serveSpread), got.PrefixHit, got.Assumed
		a.Parts = &Parts{Generation: *got.SpanS, Step: *got.SpanS}
	}
}

func pointer(v float64) *float64 { return &v }

// fill takes over a prediction.
func (a *Answer) fill(s *solved) {
	figure, part := s.answered()
	a.Figure, a.Assumed = figure, s.assumed
	if m := s.row.Measured[figure]; m > 0 {
		a.Measured = pointer(m)
	}
	a.Step = estimate(part(s.parts), s.spread)
	a.Parts = &s.parts
	if gpus := s.gpus(); gpus > 0 && s.rules.kind != kindSync {
		a.TokensPerSAndGPU = pointer(s.sequences * (s.promptTokens + s.meanTokens) / a.Step.Predicted / float64(gpus))
	}
	if s.rules.kind == kindStep && !s.rules.async {
		a.Staleness = pointer(0)
		if !s.rules.shared {
			a.WaitShare = pointer((s.parts.Generation) / s.parts.Step)
		}
	}
}

// gpus are those of the row.
func (s *setup) gpus() int {
	if s.row.GPUs > 0 {
		return s.row.GPUs
	}
	if s.rules.shared {
		return max(s.row.TrainGPUs, s.row.RolloutGPUs)
	}
	return s.row.TrainGPUs + s.row.RolloutGPUs
}

// The length of a simulation: batches before and in the window, and events at most.
const (
	simulatedWarmup  = 4
	simulatedBatches = 12
	simulatedEvents  = 4 << 20
)

// SimulatedRows is how many asynchronous rows of a table are simulated at most.
const SimulatedRows = 200

// simulate plays an asynchronous row through the loop.
func (a *Answer) simulate(ctx context.Context, s *solved) {
	c := s.family.Values
	in, name := s.input(c, s.lengthsOf(c[lengthSpread]), s.parts)
	in.Warmup, in.Batches = simulatedWarmup, simulatedBatches
	out, err := schedule.SimulateWithin(ctx, in, in.Arm(name), simulatedEvents)
	if err != nil { // or interrupted, which Table says
		a.NotSimulated = err.Error()
		return
	}
	a.Simulated = pointer(out.Parts.StepS)
	a.Staleness = pointer(out.Summary.Staleness.Mean)
	a.WaitShare = pointer(out.WaitS / out.Parts.StepS)
	s.release()
}

// calibrate moves every family's answers by its reference rows: the most likely constants and family
// factor, by one linear step from the family's own.
func calibrate(answers []Answer, place map[string]*solved, references map[string]bool) {
	families := map[string][]*solved{}
	for i := range answers {
		if s := place[answers[i].ID]; s != nil && references[answers[i].ID] {
			families[s.row.Family] = append(families[s.row.Family], s)
		}
	}
	for i := range answers {
		a := &answers[i]
		s := place[a.ID]
		if s == nil || a.Reference || len(families[s.row.Family]) == 0 {
			continue
		}
		shift, variance := posterior(s, families[s.row.Family])
		noise := noiseOf(a.Figure)
		a.Calibrated = estimate(a.Step.Predicted*math.Exp(shift), math.Sqrt(variance+noise*noise+s.guessSpread*s.guessSpread))
	}
}

// posterior is how far reference rows move the logarithm of an answer, and the variance left to it.
func posterior(s *solved, references []*solved) (shift, variance float64) {
	n := constants + 1
	h, g := mat.NewSymDense(n, nil), mat.NewVecDense(n, nil)
	for i := range n {
		sd := familyNoise
		if i < constants {
			sd = math.Max(s.family.Spreads[i], 1e-6)
		}
		h.SetSym(i, i, 1/(sd*sd))
	}
	for _, r := range references {
		figure, part := r.answered()
		left := math.Log(r.row.Measured[figure] / part(r.parts))
		noise := noiseOf(figure)
		w := 1 / (noise*noise + r.guessSpread*r.guessSpread)
		for a := range n {
			g.SetVec(a, g.AtVec(a)+w*r.slopes[a]*left)
			for b := a; b < n; b++ {
				h.SetSym(a, b, h.At(a, b)+w*r.slopes[a]*r.slopes[b])
			}
		}
	}
	var factor mat.Cholesky
	if !factor.Factorize(h) {
		return 0, s.spread * s.spread
	}
	slopes := mat.NewVecDense(n, s.slopes)
	var moved, seen mat.VecDense
	if factor.SolveVecTo(&moved, g) != nil || factor.SolveVecTo(&seen, slopes) != nil {
		return 0, s.spread * s.spread
	}
	return mat.Dot(slopes, &moved), mat.Dot(slopes, &seen)
}
