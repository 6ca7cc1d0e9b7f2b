package study

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// signed writes a relative error in per cent.
func (e Estimate) signed() string {
	if math.Abs(e.Mean) < 0.0005 {
		e.Mean = 0 // not -0.0
	}
	e.Mean++
	return e.change()
}

// share writes a ratio in per cent.
func (e Estimate) share() string { return report.Share(e.Mean) }

// Tables are the study as tables: the frontier, the behaviour of the devices, and the runs beside
// other expectations.
func (r FrontierResult) Tables() []report.Table {
	frontier := report.Table{Header: []string{"split", "ρ", "period live", "predicted", "simulated", "error", "staleness live", "predicted", "simulated", "error"}}
	others := report.Table{Title: "The same runs beside other expectations: live over expected, less one",
		Header: []string{"split", "period: simulated", "published form", "closed form at measured inputs", "staleness: simulated", "published form", "closed form at measured inputs"}}
	devices := report.Table{Title: "Idle devices, wasted tokens, and how the machine kept the devices' pace (the worst of a split's runs)",
		Header: []string{"split", "trainer idle", "engines idle", "tokens wasted", "steps late", "slower than the pace"}}
	for _, row := range r.Rows {
		p, s := row.Period, row.Staleness
		frontier.Rows = append(frontier.Rows, []string{row.Split.String(), row.Utilization.print(2),
			seconds(p.Live), seconds(p.Predicted), seconds(p.Simulated), row.OfPredicted.Period.signed(),
			s.Live.print(2), s.Predicted.print(2), s.Simulated.print(2), row.OfPredicted.Staleness.signed()})
		others.Rows = append(others.Rows, []string{row.Split.String(),
			row.OfSimulated.Period.signed(), row.OfPublished.Period.signed(), row.OfClosed.Period.signed(),
			row.OfSimulated.Staleness.signed(), row.OfPublished.Staleness.signed(), row.OfClosed.Staleness.signed()})
		devices.Rows = append(devices.Rows, []string{row.Split.String(), row.TrainerIdle.share(), row.RolloutIdle.share(), row.Wasted.share(),
			report.Share(row.Late), report.Share(row.Slowdown)})
	}
	return []report.Table{frontier, devices, others}
}

// seconds writes a time in milliseconds.
func seconds(e Estimate) string {
	ms := Estimate{1e3 * e.Mean, 1e3 * e.Half}
	decimals := 0
	if ms.Mean < 100 {
		decimals = 1
	}
	return ms.print(decimals) + " ms"
}

// Verdict says at how many splits the live runs agree with their predictions.
func (r FrontierResult) Verdict() string {
	text := fmt.Sprintf("Live period and staleness are both within %g %% of the prediction at %d of %d splits", 100*FrontierTolerance, r.Agree, len(r.Rows))
	var off []string
	worst := 0.0
	for _, row := range r.Rows {
		worst = max(worst, math.Abs(row.OfPredicted.Period.Mean), math.Abs(row.OfPredicted.Staleness.Mean))
		if !row.Within {
			off = append(off, fmt.Sprintf("%v (period %s, staleness %s)", row.Split, row.OfPredicted.Period.signed(), row.OfPredicted.Staleness.signed()))
		}
	}
	if len(off) > 0 {
		text += "; not at " + strings.Join(off, ", ")
	}
	return text + fmt.Sprintf(". The largest error is %.1f %%.", 100*worst)
}

// Doubts are what a reader must know before the figures are believed.
func (r FrontierResult) Doubts() []string {
	var out []string
	if r.Quick {
		out = append(out, "This is a corner of the study, to show that it works: no result.")
	}
	if r.Seeds < 2 {
		out = append(out, "One seed: no interval over seeds can be given.")
	}
	for _, row := range r.Rows {
		if row.Slowdown > frontierSlow || row.Late > frontierLate {
			out = append(out, fmt.Sprintf("Split %v: the machine did not keep the devices' pace: %s of a side's steps were late, and together %s longer than they should be.",
				row.Split, report.Share(row.Late), report.Share(row.Slowdown)))
		}
	}
	for _, run := range r.Runs {
		if run.Mismatch != 0 {
			out = append(out, fmt.Sprintf("Split %v, seed %d: Little's identity is off by %s.", run.Split, run.Seed, report.Share(run.Mismatch)))
		}
	}
	return out
}

// From these shares on a row is doubted: of late steps, and of time lost.
const (
	frontierLate = 0.1
	frontierSlow = 0.01
)

// method says how the figures came about.
func (r FrontierResult) method() []string {
	s := r.Settings
	_, mean, tail := r.lengthFacts()
	return []string{
		fmt.Sprintf("N = %d modelled devices are split between rollout and training. A rollout device is an embedded engine of %d slots that makes a token in every slot every %s, c_R = %s tokens/s; a train device trains c_T = %g·c_R = %s tokens/s, so that a step on N_T of them takes B·E[L]/(N_T·c_T). "+
			"B = %d, S = %d, q = %g, queue-drop, oldest first, start order stream; C = %d·N_R goes with the split. Tokens are really sampled and batches really trained; a device that is done early waits for the rest of its step, and what a late timer costs one step is made up for by the next.",
			s.Devices, s.SlotsPerDevice, milliseconds(s.DecodeStepS), report.Figure(s.RolloutTokensPerS(), 0), s.SpeedRatio, report.Figure(s.TrainTokensPerS(), 0), frontierBatch, frontierGroup, s.QueueFactor, s.SlotsPerDevice),
		fmt.Sprintf("Lengths are the policy's: it answers words of up to %d letters and has learned nothing, so that it ends a response at every token with about the same probability; the mean is %.1f tokens and the longest of %d is %.2f times that, over all seeds. With a learning rate of %s every step changes the weights, and the lengths stay: a frontier is of a steady state.",
			frontierLetters, mean, frontierGroup, tail, frontierRate),
		fmt.Sprintf("Predicted before each run, and written down with a digest before its first event, from %s lengths sampled by version 0 and from a probe of the run's own engines and trainer (times of a decode step, a train step and a sync, and how long a slot stays empty between two rollouts): "+
			"the closed form with its corrections, and the loop in virtual time over %s train steps. Nothing is fitted to a run. The closed form at measured inputs takes ρ, M and times from the run itself: it is made after it, and no prediction.",
			count(s.ProbeGroups*frontierGroup), count(s.SimulatedSteps)),
		fmt.Sprintf("Runs: %d, of %s and %s, %d train steps each after a warm-up of %d. Every seed has another policy. ± is half of Student's 95 %% interval over the seeds, of errors taken seed by seed.",
			len(r.Runs), several(len(r.Splits), "split"), several(r.Seeds, "seed"), s.Steps, s.Warmup),
	}
}

// several writes a number of things.
func several(n int, thing string) string {
	if n == 1 {
		return "1 " + thing
	}
	return fmt.Sprintf("%d %ss", n, thing)
}

// lengthFacts are those of all lengths that predictions were made from.
func (r FrontierResult) lengthFacts() (n int, mean, tail float64) { return lengthMoments(r.lengths) }

func milliseconds(s float64) string { return strconv.FormatFloat(1e3*s, 'g', 3, 64) + " ms" }

// WriteText prints the study for a terminal.
func (r FrontierResult) WriteText(w io.Writer) error {
	var b strings.Builder
	for i, t := range r.Tables() {
		if i > 0 {
			b.WriteString("\n")
		}
		b.WriteString(t.String())
	}
	fmt.Fprintf(&b, "\n%s\n", r.Verdict())
	for _, doubt := range r.Doubts() {
		fmt.Fprintf(&b, "warning: %s\n", doubt)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// FrontierCSV writes one line a run.
func FrontierCSV(w io.Writer, r FrontierResult) error {
	out := csv.NewWriter(w)
	header := []string{"rollout_devices", "train_devices", "seed", "steps",
		"period_s", "predicted_period_s", "simulated_period_s", "published_period_s", "closed_form_measured_inputs_period_s",
		"staleness", "staleness_half_interval_95", "predicted_staleness", "simulated_staleness", "published_staleness", "closed_form_measured_inputs_staleness",
		"pqs", "iqs", "utilization", "predicted_utilization", "tail_multiplier", "predicted_tail_multiplier", "mean_tokens", "predicted_mean_tokens", "step_s", "predicted_step_s", "sync_s",
		"trainer_idle_ratio", "rollout_idle_ratio", "wasted_share", "decode_late_share", "decode_slowdown", "train_late_share", "train_slowdown", "prediction_sha256"}
	if err := out.Write(header); err != nil {
		return err
	}
	for _, run := range r.Runs {
		p := run.Prediction
		cells := []string{fmt.Sprint(run.Split.Rollout), fmt.Sprint(run.Split.Train), fmt.Sprint(run.Seed), fmt.Sprint(run.Steps)}
		for _, v := range []float64{run.Live.PeriodS, p.Theory.PeriodS, p.Simulated.Figures.PeriodS, p.Published.PeriodS, run.Closed.PeriodS,
			run.Live.Staleness, run.HalfInterval, p.Theory.Staleness, p.Simulated.Figures.Staleness, p.Published.Staleness, run.Closed.Staleness,
			run.PQS, run.IQS, run.Utilization, p.Utilization, run.Tail, p.TailMultiplier, run.MeanTokens, p.MeanTokens, run.StepS, p.Rates.StepS, run.SyncS,
			run.TrainerIdle, run.RolloutIdle, run.Wasted, run.Pace.DecodeLate, run.Pace.DecodeSlowdown, run.Pace.TrainLate, run.Pace.TrainSlowdown} {
			cells = append(cells, cell(v))
		}
		if err := out.Write(append(cells, p.SHA256)); err != nil {
			return err
		}
	}
	out.Flush()
	return out.Error()
}

// cell writes a figure for machines, nothing where it is not known.
func cell(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'g', 6, 64)
}
