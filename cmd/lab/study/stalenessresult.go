package study

import (
	"math"
	"slices"
)

// StalenessResult is the study's outcome.
type StalenessResult struct {
	Options StalenessOptions `json:"options"`
	// Rate is the task's learning rate.
	Rate float64        `json:"learning_rate"`
	Arms []StalenessArm `json:"arms"`
	// Drift is of the arm without lag, by lag: the drift that a policy that learns from fresh data
	// leaves behind.
	Drift []DriftEstimate `json:"drift"`
	// DriftExponent is a in KL(s) ∝ s^a over those lags, seed by seed.
	DriftExponent Estimate `json:"drift_exponent"`
	// Exponents are a in KL ∝ lag^a over the arms of a correction.
	Exponents []CorrectionExponent `json:"exponents"`
	// Hardware is the cost of a step at each lag, and the arms' results at equal time on it.
	Hardware []TimedHardware `json:"equal_time"`
	// runs are by arm and seed, hidden from JSON, where they would be most of it: the CSV has them.
	runs [][]Learned
	arms []stalenessArm
	task StalenessTask
}

// StalenessArm is one arm over its seeds. Figures of a train step are means over all steps.
type StalenessArm struct {
	Name        string  `json:"name"`
	Lag         int     `json:"lag"`
	Correction  string  `json:"correction"`
	RateFactor  float64 `json:"learning_rate_factor"`
	Minibatches int     `json:"minibatches"`
	// Runs counts them, Broke those that could not be trained to the end; their curves go on with
	// the last accuracy they had.
	Runs  int `json:"runs"`
	Broke int `json:"broke"`
	// Final is the held-out accuracy at the last step, Best the best of the curve, Area its mean over
	// the steps. Reward is the mean of the last quarter of the batches.
	Final  Estimate `json:"final_accuracy"`
	Best   Estimate `json:"best_accuracy"`
	Area   Estimate `json:"mean_accuracy"`
	Reward Estimate `json:"final_reward"`
	// FinalChange and AreaChange are differences from the arm without lag at the same rate, seed by seed.
	FinalChange Estimate `json:"final_accuracy_change"`
	AreaChange  Estimate `json:"mean_accuracy_change"`
	// Steps50 and Steps90 are the steps to an accuracy of 0.5 and of 0.9, over the runs that reach
	// it. Reached50 and Reached90 are the numbers of those runs.
	Steps50   Estimate `json:"steps_to_50"`
	Reached50 int      `json:"reached_50"`
	Steps90   Estimate `json:"steps_to_90"`
	Reached90 int      `json:"reached_90"`
	// The rest is as LagPoint has it.
	ClipFraction    Estimate `json:"clip_fraction"`
	ActiveClip      Estimate `json:"active_clip_fraction"`
	Masked          Estimate `json:"masked_fraction"`
	Truncated       Estimate `json:"truncated_fraction"`
	MeanLogRatio    Estimate `json:"mean_log_ratio"`
	EffectiveSample Estimate `json:"effective_sample_size"`
	KL              Estimate `json:"kl"`
	ClipPredicted   Estimate `json:"clip_fraction_predicted"`
	ClipNormal      Estimate `json:"clip_fraction_normal"`
	SamplePredicted Estimate `json:"effective_sample_size_predicted"`
	// Curve is the accuracy and the reward over the seeds.
	Curve []StalenessPoint `json:"curve"`
}

// StalenessPoint is one point of an arm's curve.
type StalenessPoint struct {
	Step     int      `json:"step"`
	Accuracy Estimate `json:"accuracy"`
	Reward   Estimate `json:"reward"`
}

// DriftEstimate is a DriftPoint over the seeds.
type DriftEstimate struct {
	Lag             int      `json:"lag"`
	KL              Estimate `json:"kl"`
	MeanLogRatio    Estimate `json:"mean_log_ratio"`
	ClipFraction    Estimate `json:"clip_fraction"`
	ClipPredicted   Estimate `json:"clip_fraction_predicted"`
	ClipNormal      Estimate `json:"clip_fraction_normal"`
	EffectiveSample Estimate `json:"effective_sample_size"`
	SamplePredicted Estimate `json:"effective_sample_size_predicted"`
}

// CorrectionExponent is how the KL between trainer and rollout grows with lag under a correction.
type CorrectionExponent struct {
	Correction string   `json:"correction"`
	Exponent   Estimate `json:"exponent"`
}

// stalenessResult adds up the runs.
func stalenessResult(o StalenessOptions, task StalenessTask, arms []stalenessArm, runs [][]Learned, hardware []StalenessHardware) StalenessResult {
	r := StalenessResult{Options: o, Rate: task.Rate, runs: runs, arms: arms, task: task}
	for i, a := range arms {
		base := slices.IndexFunc(arms, func(b stalenessArm) bool {
			return b.lag == 0 && b.rate == a.rate && b.minis == a.minis && (a.minis == 1 || b.correction == a.correction)
		})
		var fresh []Learned
		if base >= 0 {
			fresh = runs[base]
		}
		r.Arms = append(r.Arms, newStalenessArm(a, runs[i], fresh, o.Steps))
	}
	r.drift()
	r.exponents()
	for _, h := range hardware {
		r.Hardware = append(r.Hardware, r.timed(h))
	}
	return r
}

func newStalenessArm(a stalenessArm, runs, fresh []Learned, steps int) StalenessArm {
	out := StalenessArm{Name: a.key(), Lag: a.lag, Correction: a.correction, RateFactor: a.rate, Minibatches: a.minis, Runs: len(runs)}
	for i := range runs {
		if runs[i].Broke != "" {
			out.Broke++
		}
	}
	over := func(of func(*Learned) float64) Estimate {
		var values []float64
		for i := range runs {
			if v := of(&runs[i]); !math.IsNaN(v) {
				values = append(values, v)
			}
		}
		return estimateOf(values)
	}
	change := func(of func(*Learned) float64) Estimate {
		var values []float64
		for i := range runs {
			if i < len(fresh) {
				values = append(values, of(&runs[i])-of(&fresh[i]))
			}
		}
		return estimateOf(values)
	}
	final := func(l *Learned) float64 { return l.accuracyAt(float64(steps)) }
	area := func(l *Learned) float64 { return l.area(float64(steps)) }
	out.Final, out.Area, out.Best = over(final), over(area), over((*Learned).best)
	out.FinalChange, out.AreaChange = change(final), change(area)
	out.Reward = over(func(l *Learned) float64 { return l.lastReward() })
	out.Steps50, out.Reached50 = reached(runs, 0.5)
	out.Steps90, out.Reached90 = reached(runs, 0.9)
	for _, f := range []struct {
		to *Estimate
		of func(*LagPoint) float64
	}{
		{&out.ClipFraction, func(p *LagPoint) float64 { return p.ClipFraction }},
		{&out.ActiveClip, func(p *LagPoint) float64 { return p.ActiveClip }},
		{&out.Masked, func(p *LagPoint) float64 { return p.Masked }},
		{&out.Truncated, func(p *LagPoint) float64 { return p.Truncated }},
		{&out.MeanLogRatio, func(p *LagPoint) float64 { return p.MeanLogRatio }},
		{&out.EffectiveSample, func(p *LagPoint) float64 { return p.EffectiveSample }},
		{&out.KL, func(p *LagPoint) float64 { return p.KL }},
		{&out.ClipPredicted, func(p *LagPoint) float64 { return p.ClipPredicted }},
		{&out.ClipNormal, func(p *LagPoint) float64 { return p.ClipNormal }},
		{&out.SamplePredicted, func(p *LagPoint) float64 { return p.SamplePredicted }},
	} {
		*f.to = over(func(l *Learned) float64 { return l.mean(f.of) })
	}
	out.Curve = learningCurve(runs)
	return out
}

// accuracyAt is the accuracy at a step, between two points along a line; beyond the last point
// it is that of the last.
func (l *Learned) accuracyAt(step float64) float64 {
	for i := 1; i < len(l.Curve); i++ {
		a, b := &l.Curve[i-1], &l.Curve[i]
		if step <= float64(b.Step) {
			share := (step - float64(a.Step)) / float64(b.Step-a.Step)
			return a.Accuracy + float64(share*(b.Accuracy-a.Accuracy))
		}
	}
	return l.Curve[len(l.Curve)-1].Accuracy
}

// area is the mean accuracy over the steps up to one.
func (l *Learned) area(end float64) float64 {
	sum, last, from := 0.0, l.Curve[0].Accuracy, 0.0
	for i := 1; i < len(l.Curve) && from < end; i++ {
		to := min(float64(l.Curve[i].Step), end)
		now := l.accuracyAt(to)
		sum += float64((to - from) * (last + now) / 2)
		from, last = to, now
	}
	return (sum + float64((end-from)*last)) / end
}

func (l *Learned) best() float64 {
	best := 0.0
	for i := range l.Curve {
		best = max(best, l.Curve[i].Accuracy)
	}
	return best
}

// reaches is the first step at which the curve crosses an accuracy; false if it never does.
func (l *Learned) reaches(accuracy float64) (float64, bool) {
	for i := range l.Curve {
		b := &l.Curve[i]
		if b.Accuracy < accuracy {
			continue
		}
		if i == 0 {
			return float64(b.Step), true
		}
		a := &l.Curve[i-1]
		return float64(a.Step) + float64(b.Step-a.Step)*(accuracy-a.Accuracy)/(b.Accuracy-a.Accuracy), true
	}
	return 0, false
}

// lastReward is the mean reward of the last quarter of the batches.
func (l *Learned) lastReward() float64 {
	points := l.Curve[1:]
	points = points[len(points)-(len(points)+3)/4:]
	sum := 0.0
	for i := range points {
		sum += points[i].Reward
	}
	return sum / float64(len(points))
}

// mean is a figure's over the train steps; points lie equally far apart.
func (l *Learned) mean(of func(*LagPoint) float64) float64 {
	sum := 0.0
	for i := range l.Curve[1:] {
		sum += of(&l.Curve[i+1])
	}
	return sum / float64(len(l.Curve)-1)
}

// reached are the steps to an accuracy of the runs that reach it, and how many do.
func reached(runs []Learned, accuracy float64) (Estimate, int) {
	var steps []float64
	for i := range runs {
		if s, ok := runs[i].reaches(accuracy); ok {
			steps = append(steps, s)
		}
	}
	return estimateOf(steps), len(steps)
}

// learningCurve is the mean curve; a run that broke keeps its last accuracy.
func learningCurve(runs []Learned) []StalenessPoint {
	longest := 0
	for i := range runs {
		if len(runs[i].Curve) > len(runs[longest].Curve) {
			longest = i
		}
	}
	var out []StalenessPoint
	for k, at := range runs[longest].Curve {
		var accuracy, reward []float64
		for i := range runs {
			accuracy = append(accuracy, runs[i].accuracyAt(float64(at.Step)))
			if k > 0 && k < len(runs[i].Curve) {
				reward = append(reward, runs[i].Curve[k].Reward)
			}
		}
		out = append(out, StalenessPoint{at.Step, estimateOf(accuracy), estimateOf(reward)})
	}
	return out
}

// drift adds up what the runs without lag measured at each lag.
func (r *StalenessResult) drift() {
	at := slices.Index(r.arms, stalenessArm{0, stalenessReference, 1, 1})
	if at < 0 {
		return
	}
	runs := r.runs[at]
	var exponents []float64
	for i := range runs {
		var lags, kls []float64
		for _, p := range runs[i].Drift {
			lags, kls = append(lags, float64(p.Lag)), append(kls, p.KL)
		}
		if a, ok := powerOf(lags, kls); ok {
			exponents = append(exponents, a)
		}
	}
	r.DriftExponent = estimateOf(exponents)
	for _, lag := range DriftLags {
		var points []DriftPoint
		for i := range runs {
			for _, p := range runs[i].Drift {
				if p.Lag == lag {
					points = append(points, p)
				}
			}
		}
		if len(points) == 0 {
			continue
		}
		over := func(of func(*DriftPoint) float64) Estimate {
			var values []float64
			for i := range points {
				values = append(values, of(&points[i]))
			}
			return estimateOf(values)
		}
		r.Drift = append(r.Drift, DriftEstimate{Lag: lag,
			KL:              over(func(p *DriftPoint) float64 { return p.KL }),
			MeanLogRatio:    over(func(p *DriftPoint) float64 { return p.MeanLogRatio }),
			ClipFraction:    over(func(p *DriftPoint) float64 { return p.ClipFraction }),
			ClipPredicted:   over(func(p *DriftPoint) float64 { return p.ClipPredicted }),
			ClipNormal:      over(func(p *DriftPoint) float64 { return p.ClipNormal }),
			EffectiveSample: over(func(p *DriftPoint) float64 { return p.EffectiveSample }),
			SamplePredicted: over(func(p *DriftPoint) float64 { return p.SamplePredicted }),
		})
	}
}

// exponents fits, seed by seed, how the KL grows with lag over the arms of a correction.
func (r *StalenessResult) exponents() {
	for _, name := range r.Options.Corrections {
		var all []float64
		for seed := range r.Options.Seeds {
			var lags, kls []float64
			for i, a := range r.arms {
				if a.correction == name && a.lag > 0 && a.rate == 1 && a.minis == 1 {
					lags = append(lags, float64(a.lag))
					kls = append(kls, r.runs[i][seed].mean(func(p *LagPoint) float64 { return p.KL }))
				}
			}
			if a, ok := powerOf(lags, kls); ok {
				all = append(all, a)
			}
		}
		r.Exponents = append(r.Exponents, CorrectionExponent{name, estimateOf(all)})
	}
}

// powerOf is a in y ∝ x^a, the slope of a least-squares line through the logarithms; false
// with fewer than two points above 0.
func powerOf(x, y []float64) (float64, bool) {
	var n, sx, sy, sxx, sxy float64
	for i := range x {
		if !(x[i] > 0 && y[i] > 0) || math.IsInf(y[i], 1) {
			continue
		}
		a, b := math.Log(x[i]), math.Log(y[i])
		n, sx, sy, sxx, sxy = n+1, sx+a, sy+b, sxx+float64(a*a), sxy+float64(a*b)
	}
	spread := float64(n*sxx) - float64(sx*sx)
	if n < 2 || !(spread > 0) {
		return 0, false
	}
	return (float64(n*sxy) - float64(sx*sy)) / spread, true
}
