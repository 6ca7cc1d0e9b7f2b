package schedule

import (
	"cmp"
	"fmt"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/predict/theory"
)

// Row is one schedule beside the others.
type Row struct {
	// Name of the schedule.
	Name Name `json:"name"`
	// RolloutGPUs and TrainGPUs are what each phase runs on; Shared says they are the same.
	RolloutGPUs int  `json:"rollout_gpus"`
	TrainGPUs   int  `json:"train_gpus"`
	Shared      bool `json:"shared"`
	// Pieces is the train steps a batch, with one weight sync.
	Pieces int `json:"train_steps_per_batch"`
	// Refused says why the schedule cannot run here, "" if it can; the rest is then zero.
	Refused string `json:"refused,omitempty"`
	// Parts of the step, simulated; ClosedS is the closed form of the same step.
	Parts   Parts   `json:"parts"`
	ClosedS float64 `json:"closed_form_step_s"`
	// TokensPerS is the response tokens trained a second, Speedup the step time of the
	// synchronous schedule on shared GPUs over this one.
	TokensPerS float64 `json:"tokens_per_s"`
	Speedup    float64 `json:"speedup"`
	// StalenessMean and StalenessP95 are in batches: versions over Pieces.
	StalenessMean float64 `json:"staleness_batches_mean"`
	StalenessP95  float64 `json:"staleness_batches_p95"`
	// VersionsMean and VersionsP95 are the same in policy versions.
	VersionsMean float64 `json:"staleness_versions_mean"`
	VersionsP95  float64 `json:"staleness_versions_p95"`
	// OverBudget says that the staleness is more than the budget.
	OverBudget bool `json:"over_budget"`
	// ClipFraction is predicted for that staleness; unknown where the input does not say how
	// fast the policy moves.
	ClipFraction theory.Figure `json:"clip_fraction"`
	// SlotsBusy and TrainerIdle are shares of time.
	SlotsBusy   float64 `json:"slots_busy"`
	TrainerIdle float64 `json:"trainer_idle_ratio"`
	// WasteShare is the share of generated tokens never trained, LengthBias how far the mean
	// length trained is from the mean sampled, as a share.
	WasteShare float64 `json:"waste_share"`
	LengthBias float64 `json:"length_bias"`
	// Gain is what saves time over the synchronous schedule on shared GPUs, in parts that add up.
	Gain []Effect `json:"gain"`
	// Gantt is what was busy over the last batches.
	Gantt Gantt `json:"gantt"`
}

// Comparison is all schedules of one input.
type Comparison struct {
	// Rows in the order of [Names].
	Rows []Row `json:"schedules"`
	// Split says which split the separate schedules have, and which would be best for overlap.
	RolloutGPUs     int `json:"rollout_gpus"`
	BestRolloutGPUs int `json:"best_rollout_gpus"`
	// Conclusion on asynchrony.
	Conclusion Conclusion `json:"conclusion"`
	// Findings say, a sentence each, what else is to be seen.
	Findings []string `json:"findings"`
}

// Conclusion says whether asynchrony pays here.
type Conclusion struct {
	// Pays is whether a schedule that is not synchronous is at least worthwhile faster than the
	// synchronous one on shared GPUs.
	Pays bool `json:"pays"`
	// Best is the fastest schedule that is not synchronous, Speedup by how much.
	Best    Name    `json:"best"`
	Speedup float64 `json:"speedup"`
	// Effect is what gives most of the gain, or costs most where there is none.
	Effect string `json:"effect"`
	// Text says it in a sentence or two.
	Text string `json:"text"`
}

// worthwhile is the speed-up from which asynchrony is advised: below it a schedule
// that is easier to get right, and fresher, is as good.
const worthwhile = 1.1

// asGood is how much slower than the fastest a schedule may be to be advised for
// being fresher.
const asGood = 1.05

// Compare simulates every schedule of an input and sets closed forms beside. Zero
// fields have their defaults. Errors are those of Validate and of simulations that
// cannot go on.
func Compare(in Input) (Comparison, error) {
	in = in.WithDefaults()
	if err := in.Validate(); err != nil {
		return Comparison{}, err
	}
	c := Comparison{BestRolloutGPUs: in.BestSplit(), RolloutGPUs: cmp.Or(in.RolloutGPUs, in.BestSplit())}
	for _, name := range Names() {
		row, err := in.row(name)
		if err != nil {
			return Comparison{}, err
		}
		c.Rows = append(c.Rows, row)
	}
	base := c.Rows[0]
	for i := range c.Rows {
		r := &c.Rows[i]
		if r.Refused == "" {
			r.Speedup = base.Parts.StepS / r.Parts.StepS
			r.Gain = r.Parts.Gain(base.Parts)
		}
	}
	c.Conclusion = in.conclusion(c)
	c.Findings = in.findings(c)
	return c, nil
}

// row simulates one schedule.
func (in Input) row(name Name) (Row, error) {
	a := in.Arm(name)
	r := Row{Name: name, RolloutGPUs: a.RolloutGPUs, TrainGPUs: a.TrainGPUs, Shared: a.Shared, Pieces: a.Pieces}
	if err := a.Rules.Validate(); err != nil {
		if name == Colocated {
			return Row{}, fmt.Errorf("schedule: %s: %w", name, err)
		}
		r.Refused = strings.TrimPrefix(err.Error(), "loop: ")
		return r, nil
	}
	o, err := Simulate(in, a)
	if err != nil {
		return Row{}, err
	}
	s := o.Summary.Staleness
	r.Parts, r.ClosedS, r.TokensPerS = o.Parts, in.ClosedS(a), o.TokensPerS(in)
	r.VersionsMean, r.VersionsP95 = s.Mean, float64(s.P95)
	r.StalenessMean, r.StalenessP95 = s.Mean/float64(a.Pieces), float64(s.P95)/float64(a.Pieces)
	r.OverBudget = in.StalenessMax > 0 && r.StalenessMean > in.StalenessMax || in.StalenessP95Max > 0 && r.StalenessP95 > in.StalenessP95Max
	if clip := in.ClipFraction(o); !math.IsNaN(clip) {
		r.ClipFraction = theory.Known(clip)
	}
	r.SlotsBusy, r.TrainerIdle, r.Gantt = o.SlotsBusy, o.Summary.TrainerIdleRatio, o.Gantt
	r.WasteShare = o.Parts.WasteS / (o.Parts.WasteS + o.Parts.WorkS)
	r.LengthBias = o.Summary.Length.TrainedMeanTokens/o.Summary.Length.SampledMeanTokens - 1
	return r, nil
}

// asynchronous reports whether a schedule trains on what an older version made.
func asynchronous(n Name) bool { return n != Colocated && n != Synchronous }

// conclusion says whether asynchrony pays.
func (in Input) conclusion(c Comparison) Conclusion {
	var best Row
	fastest, beyond := math.Inf(1), 0
	for _, r := range c.Rows {
		switch {
		case !asynchronous(r.Name) || r.Refused != "":
		case r.OverBudget:
			beyond++
		default:
			fastest = min(fastest, r.Parts.StepS)
		}
	}
	// Of those that are as good as the fastest, the freshest.
	for _, r := range c.Rows {
		if asynchronous(r.Name) && r.Refused == "" && !r.OverBudget && r.Parts.StepS <= asGood*fastest && (best.Name == "" || r.StalenessMean < best.StalenessMean) {
			best = r
		}
	}
	if best.Name == "" && beyond > 0 {
		return Conclusion{Text: "Every asynchronous schedule that can run here is staler than the budget."}
	}
	if best.Name == "" {
		return Conclusion{Text: "No asynchronous schedule can run here."}
	}
	v := Conclusion{Best: best.Name, Speedup: best.Speedup, Pays: best.Speedup >= worthwhile}
	most := slices.MaxFunc(best.Gain, func(a, b Effect) int { return cmp.Compare(a.S, b.S) })
	least := slices.MinFunc(best.Gain, func(a, b Effect) int { return cmp.Compare(a.S, b.S) })
	saved := c.Rows[0].Parts.StepS - best.Parts.StepS
	if v.Pays {
		v.Effect = most.Name
		v.Text = fmt.Sprintf("Asynchrony pays: %s takes %s s a batch where the synchronous schedule on shared GPUs takes %s, %s times as fast. Of the %s s saved most comes from this: %s (%s s)%s.",
			best.Name, seconds(best.Parts.StepS), seconds(c.Rows[0].Parts.StepS), ratio(best.Speedup), seconds(saved), most.Name, signed(most.S), against(least))
		return v
	}
	v.Effect = least.Name
	how := "is no faster than"
	if best.Speedup >= 1.005 {
		how = fmt.Sprintf("is only %s times as fast as", ratio(best.Speedup))
	} else if best.Speedup < 0.995 {
		how = fmt.Sprintf("takes %s times as long as", ratio(1/best.Speedup))
	}
	v.Text = fmt.Sprintf("Async will not pay here: the best of it, %s, %s the synchronous schedule on shared GPUs (%s s against %s s a batch). It gains most by this: %s (%s s)%s.",
		best.Name, how, seconds(best.Parts.StepS), seconds(c.Rows[0].Parts.StepS), most.Name, signed(most.S), against(least))
	return v
}

// against says what the largest cost is, nothing where there is none to speak of.
func against(e Effect) string {
	if e.S > -0.005 {
		return ""
	}
	return fmt.Sprintf(", against a cost: %s (%s s)", e.Name, signed(e.S))
}

// findings say what is to be seen beside the verdict.
func (in Input) findings(c Comparison) []string {
	var out []string
	add := func(format string, args ...any) { out = append(out, fmt.Sprintf(format, args...)) }
	base := c.Rows[0].Parts
	add("The synchronous step on shared GPUs is %s s: %s s of work with every slot busy, %s s of tail behind it, %s s of old log-probs, %s s of update, %s s of handing the GPUs over.",
		seconds(base.StepS), seconds(base.WorkS), seconds(base.TailS), seconds(base.LogProbS), seconds(base.TrainS), seconds(base.SyncS))
	if in.RolloutGPUs > 0 && c.BestRolloutGPUs != in.RolloutGPUs {
		a, b := in.overlapS(in.RolloutGPUs), in.overlapS(c.BestRolloutGPUs)
		if a > 1.05*b {
			add("The split is %d:%d; by the closed form of full overlap %d:%d would take %s s a batch instead of %s.",
				in.RolloutGPUs, in.GPUs-in.RolloutGPUs, c.BestRolloutGPUs, in.GPUs-c.BestRolloutGPUs, seconds(b), seconds(a))
		}
	}
	for _, r := range c.Rows {
		switch {
		case r.Refused != "":
			add("%s cannot run here: %s.", r.Name, r.Refused)
			continue
		case r.OverBudget && r.Speedup > max(1, c.Conclusion.Speedup):
			add("%s would be %s times as fast, and is staler than the budget: %.2f batches on average, p95 %.2f.", r.Name, ratio(r.Speedup), r.StalenessMean, r.StalenessP95)
		}
		if r.WasteShare > 0.02 {
			add("%s drops %s of what it generates.", r.Name, percent(r.WasteShare))
		}
		if math.Abs(r.LengthBias) > 0.02 {
			add("%s trains on lengths that are %s off those sampled, on average.", r.Name, percent(r.LengthBias))
		}
	}
	out = append(out, in.advice(c)...)
	if in.KLPerBatch == 0 {
		add("What share of tokens would be clipped is not predicted: how fast the policy moves is not given, and only a run can tell.")
	}
	return out
}

// overlapS is the closed form of full overlap at a split.
func (in Input) overlapS(rollout int) float64 {
	return max(in.WorkS(rollout), in.Train.On(in.trainGPUs(rollout)))
}

// advice is which schedule suits what.
func (in Input) advice(c Comparison) []string {
	by := map[Name]Row{}
	for _, r := range c.Rows {
		by[r.Name] = r
	}
	streamed, partial, drain := by[Streamed], by[Partial], by[Async]
	var out []string
	if c.Conclusion.Best == "" {
		return append(out, "The synchronous schedule on shared GPUs is what is left.")
	}
	if !c.Conclusion.Pays {
		return append(out, "Where asynchrony does not pay, the synchronous schedule on shared GPUs is the fresher and the simpler one.")
	}
	if streamed.Refused == "" && !streamed.OverBudget && streamed.Speedup >= worthwhile {
		out = append(out, fmt.Sprintf("Streaming alone, which keeps every group within its sync, is %s times as fast: the choice where throughput matters and staleness hurts.", ratio(streamed.Speedup)))
	}
	if partial.Refused == "" && !partial.OverBudget && partial.Speedup > 1.05*max(streamed.Speedup, 0) {
		out = append(out, fmt.Sprintf("Starting %s of a batch ahead and interrupting rollouts at the sync is %s times as fast, at %.2f batches of staleness: the choice of large runs that tolerate it.", percent(in.Threshold), ratio(partial.Speedup), partial.StalenessMean))
	}
	if drain.Refused == "" && partial.Refused == "" && drain.Parts.StepS > 1.05*partial.Parts.StepS {
		out = append(out, fmt.Sprintf("Waiting for rollouts in flight at the sync instead of interrupting them costs %s s a batch.", seconds(drain.Parts.StepS-partial.Parts.StepS)))
	}
	return out
}
