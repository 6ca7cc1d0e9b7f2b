package reproduce

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/observe/report"
)

// Limits of what findings call drift and alike, as factors.
const (
	verlDrifts = 1.2
	verlSteady = 1.1
)

// verlSeen are the rows of a result as findings look for them.
type verlSeen struct {
	rows map[string][]verlRow
	runs [][]verlRun
}

// row of a family by its mode and settings.
func (s verlSeen) row(family, mode string, threshold float64, require int) verlRow {
	for _, r := range s.rows[family] {
		if r.mode == mode && r.threshold == threshold && r.require == require {
			return r
		}
	}
	return verlRow{}
}

// of is a mean over a row's seeds, NaN where it was not simulated.
func (s verlSeen) of(r verlRow, value func(verlRun) float64) float64 {
	for _, seeds := range s.runs {
		if seeds[0].row == r {
			return over(seeds, value).Mean
		}
	}
	return math.NaN()
}

// stepS is our step of a row.
func (s verlSeen) stepS(r verlRow) float64 {
	return s.of(r, func(v verlRun) float64 { return v.stepS })
}

// verlUnexplained says which rows timing alone does not explain, and by what it
// shows. What is a conclusion depends on the figures that it is drawn from.
func verlUnexplained(rows map[string][]verlRow, runs [][]verlRun) []string {
	s := verlSeen{rows, runs}
	var out []string
	for _, finding := range []func() string{s.drift, s.twice, s.requireBatches, s.fittedDrifted, s.largeModel, s.waits, s.update} {
		if text := finding(); text != "" {
			out = append(out, text)
		}
	}
	return out
}

// drift says how the published runs changed while their settings did not.
func (s verlSeen) drift() string {
	base, small := s.rows["7b-128"][0], s.rows["7b-64"][0]
	streamed, partial := s.row("7b-128", "stream_off_policy", 0, 4), s.row("7b-128", "async_partial", 0.5, 4)
	if max(base.growth(), streamed.growth(), partial.growth()) < verlDrifts {
		return ""
	}
	steady := "too"
	if g := small.growth(); g < verlSteady && g > 1/verlSteady {
		steady = "not"
	}
	return fmt.Sprintf("The runs drifted, under settings that stayed: from the first hundred steps to the last printed the seconds a step grew %s times under colocated, %s under streamed and %s under partial rollouts on 128 GPUs (published hours), which the source puts down to response lengths; the colocated run of 64 GPUs did %s (%s). A mean over a run that drifts is of no one length distribution.",
		report.Figure(base.growth(), 2), report.Figure(streamed.growth(), 2), report.Figure(partial.growth(), 2), steady, report.Figure(small.growth(), 2))
}

// twice says how far one setting is from itself.
func (s verlSeen) twice() string {
	long, short := s.row("7b-128", "async_partial", 0.5, 4), s.row("7b-128", "require_batches", 0.5, 4)
	return fmt.Sprintf("The same settings are printed twice, partial rollouts at θ 0.5 with require_batches 4, with %s s a step over 400 steps and %s over 300: %s apart. How far a prediction is from either says no more than that.",
		report.Figure(long.stepS, 1), report.Figure(short.stepS, 1), report.Share(math.Abs(long.stepS/short.stepS-1)))
}

// requireBatches sets the published difference of require_batches beside ours.
func (s verlSeen) requireBatches() string {
	one, four := s.row("7b-128", "require_batches", 0.5, 1), s.row("7b-128", "require_batches", 0.5, 4)
	ours := s.stepS(one) / s.stepS(four)
	text := fmt.Sprintf("require_batches 1 takes %s s a step where 4 takes %s; its update takes %s s against %s, of the same number of prompts on the same GPUs, its wait %s against %s. Its first hundred steps take %s s each against %s, its third %s against %s. In simulation, where lengths do not react, they take %s and %s s",
		report.Figure(one.stepS, 1), report.Figure(four.stepS, 1), report.Figure(one.updateS, 1), report.Figure(four.updateS, 1), report.Figure(one.genS, 1), report.Figure(four.genS, 1),
		one.hundreds()[0].Format(0), four.hundreds()[0].Format(0), one.hundreds()[2].Format(0), four.hundreds()[2].Format(0), report.Figure(s.stepS(one), 1), report.Figure(s.stepS(four), 1))
	if ours < verlSteady && one.stepS/four.stepS > verlDrifts {
		return text + ": the schedule alone does not give the difference. The source says that responses grew longer because of the order in which samples arrive."
	}
	return text + "."
}

// fittedDrifted says of 16:16 whether the row it is predicted from drifted
// where it did not.
func (s verlSeen) fittedDrifted() string {
	list := s.rows["7b-32"]
	if len(list) < 2 {
		return ""
	}
	base, fast := list[0], list[1]
	off := s.stepS(fast)/fast.stepS - 1
	if math.Abs(off) <= verlTolerance || base.growth() < verlDrifts || fast.growth() > verlSteady {
		return ""
	}
	slow, quick := base.hundreds(), fast.hundreds()
	first, whole, ours := slow[0].Or(math.NaN())/quick[0].Or(math.NaN()), base.stepS/fast.stepS, base.stepS/s.stepS(fast)
	nearer := "over the whole run"
	if math.Abs(ours-first) < math.Abs(ours-whole) {
		nearer = "before the drift"
	}
	return fmt.Sprintf("16:16 is predicted %s off, from a calibration row that drifted where it did not: the colocated run of 32 GPUs took %s s a step in its first hundred and %s in its last, the asynchronous one %s and %s. In the first hundred the published speed-up is %s, over the whole run %s; ours, %s, is nearer to that %s.",
		offBy(off), slow[0].Format(0), slow[len(slow)-1].Format(0), quick[0].Format(0), quick[len(quick)-1].Format(0),
		report.Figure(first, 2), report.Figure(whole, 2), report.Figure(ours, 2), nearer)
}

// largeModel says where the same work is printed as less work.
func (s verlSeen) largeModel() string {
	list := s.rows["30b-128"]
	if len(list) < 2 {
		return ""
	}
	base, apart := list[0], list[1]
	share := func(a, b float64) float64 { return a * float64(apart.train) / (b * float64(base.train)) }
	ref, update := share(apart.refS.Or(math.NaN()), base.refS.Or(math.NaN())), share(apart.updateS, base.updateS)
	if !(ref < 1/verlSteady && update < 1/verlSteady) {
		return ""
	}
	return fmt.Sprintf("30B-A3B at 96:32: the reference pass, the same work in both modes, took %s of the colocated run's GPU seconds, and the update %s: the asynchronous run trained fewer tokens a step, or 32 GPUs are that much better used than 128. Neither follows from the schedule.", report.Figure(ref, 2), report.Figure(update, 2))
}

// waits sets the trainer's printed waits beside ours.
func (s verlSeen) waits() string {
	least, most, ours := math.Inf(1), 0.0, 0.0
	n, fast, trainMin, trainMax := 0, 0, math.MaxInt, 0
	for _, seeds := range s.runs {
		r := seeds[0].row
		if !r.partial || r.threshold < 0.3 {
			continue
		}
		n++
		least, most, trainMin, trainMax = min(least, r.genS), max(most, r.genS), min(trainMin, r.train), max(trainMax, r.train)
		ours = max(ours, over(seeds, func(v verlRun) float64 { return v.waitS }).Mean)
		if verlResidual(seeds) < 0 {
			fast++
		}
	}
	if n == 0 {
		return ""
	}
	text := fmt.Sprintf("The waits printed for partial rollouts at θ of 0.3 and more are %s to %s s in %d rows of %d to %d train GPUs; in simulation the trainer waits at most %s s for rollouts there. %d of these rows are predicted too fast.",
		report.Figure(least, 0), report.Figure(most, 0), n, trainMin, trainMax, report.Figure(ours, 0), fast)
	if ours < least {
		text += " The timer also holds the fetching and assembling of each batch by one process, which no figure of the colocated run tells; whether that is the difference is not known."
	}
	return text
}

// update sets the update's published cost beside ours, with and without what is
// assumed about it: where they agree that is no evidence of the assumptions.
func (s verlSeen) update() string {
	base := s.rows["7b-128"][0]
	published, ours := [2]float64{math.Inf(1), 0}, [2]float64{math.Inf(1), 0}
	for _, seeds := range s.runs {
		r := seeds[0].row
		own := s.rows[r.family.name][0]
		if r.mode == own.mode || r.mode == "require_batches" || r.family.model != base.family.model || r.family.groups != base.family.groups {
			continue
		}
		share := func(v float64) float64 { return v * float64(r.train) / (own.updateS * float64(own.train)) }
		a, b := share(r.updateS), share(over(seeds, func(v verlRun) float64 { return v.updateS }).Mean)
		published, ours = [2]float64{min(published[0], a), max(published[1], a)}, [2]float64{min(ours[0], b), max(ours[1], b)}
	}
	without := verlCentral
	without.balanced, without.offloadStays = true, true
	plain, err := fit(base, without)
	if err != nil || ours[1] == 0 {
		return ""
	}
	half := base.train / 2
	return fmt.Sprintf("The published updates of the 7B math runs apart take %s to %s of the colocated GPU seconds, require_batches left out; ours take %s to %s under those two assumptions, and without them on %d GPUs %s. The two bear on this very figure, so that agreeing with it is no evidence for them.",
		report.Figure(published[0], 2), report.Figure(published[1], 2), report.Figure(ours[0], 2), report.Figure(ours[1], 2), half,
		report.Figure(plain.update(half, false)*float64(half)/(base.updateS*float64(base.train)), 2))
}
