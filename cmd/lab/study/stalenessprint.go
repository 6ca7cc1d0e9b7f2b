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

// StalenessText prints the study for a terminal.
func StalenessText(w io.Writer, r StalenessResult, from Provenance) error {
	var b strings.Builder
	b.WriteString(r.basis() + "\n" + from.line() + "\n\n")
	for _, warning := range r.warnings() {
		b.WriteString("! " + warning + "\n\n")
	}
	for _, f := range r.findings() {
		b.WriteString("- " + f + "\n")
	}
	for _, t := range r.tables() {
		b.WriteString("\n" + t.String())
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// StalenessMarkdown prints it as a document; page is the name of the page with the pictures.
func StalenessMarkdown(w io.Writer, r StalenessResult, from Provenance, page string) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Staleness against reward: %s\n\n%s\n\n%s Learning curves: [%s](%s).\n\n", r.task.Name, r.basis(), from.line(), page, page)
	for _, warning := range r.warnings() {
		fmt.Fprintf(&b, "**%s**\n\n", warning)
	}
	b.WriteString("## What was found\n\n")
	for _, f := range r.findings() {
		b.WriteString("- " + f + "\n")
	}
	b.WriteString("\n## What can be concluded, and what cannot\n\n")
	for _, l := range r.limits() {
		b.WriteString("- " + l + "\n")
	}
	b.WriteString("\n## How\n\n")
	for _, l := range r.method() {
		b.WriteString(l + "\n\n")
	}
	for _, t := range r.tables() {
		fmt.Fprintf(&b, "## %s\n\n", t.Title)
		t.Title = ""
		fmt.Fprintf(&b, "```\n%s```\n\n", t.String())
	}
	_, err := io.WriteString(w, strings.TrimRight(b.String(), "\n")+"\n")
	return err
}

// basis says what the study rests on.
func (r *StalenessResult) basis() string {
	runs := 0
	for i := range r.runs {
		runs += len(r.runs[i])
	}
	return fmt.Sprintf("%d runs: %d arms, seeds 1 to %d each, %d train steps of %d rollouts (groups of %d); the task is %s. ± is half of Student's 95 %% interval over the seeds; differences are taken seed by seed.",
		runs, len(r.arms), r.Options.Seeds, r.Options.Steps, stalenessBatch, stalenessGroup, r.task.Note)
}

// warnings say what keeps the study from being a result.
func (r *StalenessResult) warnings() []string {
	var all []string
	if r.Options.Quick {
		all = append(all, "A corner of the study, to see that it works: it is no result.")
	}
	if r.Options.Seeds < 2 {
		all = append(all, "One seed is no result: no difference below can be told from chance.")
	}
	for _, a := range r.Arms {
		if a.Broke > 0 {
			all = append(all, fmt.Sprintf("%s: %d of %d runs ended early, since their gradient was no number.", a.Name, a.Broke, a.Runs))
		}
	}
	return all
}

// method says how it was made.
func (r *StalenessResult) method() []string {
	return []string{
		fmt.Sprintf("Batch t is sampled by version max(0, t − lag), all of it, and trained on by version t. Engine and trainer take turns; no clock is read, so that the same command gives the same figures on any number of cores. "+
			"All arms of a seed begin with the same policy, made by a supervised warm-up, and have the same prompts and the same draws. Adam, rate %g, gradient norm at most 1, advantages over their group's standard deviation, no group filtered. "+
			"Held-out accuracy is greedy, over %d prompts that are never trained on, at %d points of the curve.", r.Rate, stalenessHeldOut, len(r.Arms[0].Curve)),
		fmt.Sprintf("Equal time charges every step the period of a simulation of the loop: bounded admission, the trainer on %.0f %% of the devices and engines on the others. Without lag that is three periods. "+
			"*Apart* is the synchronous schedule on the same devices: one side waits for the other. *Colocated* is the one that asynchronous training is compared with: generation and training take turns on all devices, so that a train step takes %.0f %% of the time; "+
			"generation waits for the longest response of its batch, whose slot is no faster for devices with more empty ones. *Colocated, decoding twice as fast* is the same where generation too gets faster by all that it gains in devices, or because slots on the way to the longest response are nearly empty. "+
			"Handing devices over and weight syncs cost nothing here, in any arm. Changes are from colocated.", 100*trainShare, 100*trainShare),
		fmt.Sprintf("What a correction costs the trainer: a train step is a forward and a backward pass, 2 and 4 operations a parameter and token. Decoupled PPO and IcePop weigh by π_p, whose log-probs are a forward pass over the batch before the step: %.2f of a train step (0.25 where activations are recomputed), at every lag. "+
			"A trainer that makes one optimizer step a batch, as here, could spare it, since π_p is then what the step's own forward pass has; AReaL makes it by default. The others take r from that pass and the log-probs that came with the rollouts, at no price but arithmetic on single numbers a token.", ForwardShare),
		"Without lag every correction is the same gradient (r is 1 at every token): that arm is run once, and stands for all of them.",
		"Clip fraction is the share of tokens with r outside 0.8 to 1.2, whether the correction clips or not; ESS/N is (Σr)²/(N·Σr²) over a batch's tokens; KL is half the mean square of log r. *Predicted* is the closed form at each step's own KL, 2·(1 − Φ(ln 1.2/√(2·KL))); *normal* the same with the band's true edges and mean −KL; ESS is predicted as exp(−Var log r).",
	}
}

// tables are those of the document.
func (r *StalenessResult) tables() []report.Table {
	all := []report.Table{r.outcomeTable(), r.offPolicyTable(), r.driftTable()}
	if t := r.checkTable(); len(t.Rows) > 0 {
		all = append(all, t)
	}
	for i := range r.Hardware {
		all = append(all, r.Hardware[i].table())
	}
	notes := report.Table{Title: "The corrections", Header: []string{"name", "forward passes beside the step's", "loss of a token"}}
	for _, c := range StalenessCorrections() {
		notes.Rows = append(notes.Rows, []string{c.Name, strconv.Itoa(c.forwards), c.Note})
	}
	return append(all, notes)
}

// starred marks an estimate whose interval leaves out 0.
func (e Estimate) starred(decimals int) string {
	if math.IsNaN(e.Half) || math.Abs(e.Mean) <= e.Half {
		return e.print(decimals)
	}
	return e.print(decimals) + " *"
}

// among prints steps or times that some runs reach.
func (e Estimate) among(reached, runs, decimals int) string {
	switch {
	case reached == 0:
		return "– (0 of " + strconv.Itoa(runs) + ")"
	case reached < runs:
		return fmt.Sprintf("%s (%d of %d)", e.print(decimals), reached, runs)
	}
	return e.print(decimals)
}

// grid reports whether an arm is of the grid, and not of the checks beside it.
func (a *StalenessArm) grid() bool { return a.RateFactor == 1 && a.Minibatches == 1 }

func (r *StalenessResult) outcomeTable() report.Table {
	t := report.Table{Title: "Equal steps: held-out accuracy", Header: []string{"lag", "correction", "final", "best", "mean over steps", "change of the mean", "reward at the end", "steps to 0.5", "steps to 0.9", "runs"}}
	for i := range r.Arms {
		if a := &r.Arms[i]; a.grid() {
			t.Rows = append(t.Rows, append([]string{strconv.Itoa(a.Lag), a.Correction}, a.outcome()...))
		}
	}
	return t
}

// outcome are the cells of what an arm came to.
func (a *StalenessArm) outcome() []string {
	runs := strconv.Itoa(a.Runs)
	if a.Broke > 0 {
		runs += fmt.Sprintf(", %d broke", a.Broke)
	}
	change := a.AreaChange.starred(3)
	if a.Lag == 0 {
		change = "–"
	}
	return []string{a.Final.print(3), a.Best.print(3), a.Area.print(3), change, a.Reward.print(3),
		a.Steps50.among(a.Reached50, a.Runs, 0), a.Steps90.among(a.Reached90, a.Runs, 0), runs}
}

func (r *StalenessResult) offPolicyTable() report.Table {
	t := report.Table{Title: "Equal steps: how far off-policy, means over the train steps", Header: []string{"lag", "correction", "clip fraction", "predicted", "normal", "active clip", "masked", "cut", "mean log r", "KL", "ESS/N", "predicted"}}
	for i := range r.Arms {
		a := &r.Arms[i]
		if !a.grid() {
			continue
		}
		t.Rows = append(t.Rows, []string{strconv.Itoa(a.Lag), a.Correction, a.ClipFraction.print(3), a.ClipPredicted.print(3), a.ClipNormal.print(3), a.ActiveClip.print(3), a.Masked.print(3), a.Truncated.print(3),
			a.MeanLogRatio.print(3), a.KL.print(3), a.EffectiveSample.print(3), a.SamplePredicted.print(3)})
	}
	return t
}

func (r *StalenessResult) driftTable() report.Table {
	t := report.Table{Title: "What an on-policy learner leaves behind: the same figures between versions s apart, KL ∝ s^" + r.DriftExponent.print(2),
		Header: []string{"s", "KL", "mean log r", "clip fraction", "predicted", "normal", "ESS/N", "predicted"}}
	for _, d := range r.Drift {
		t.Rows = append(t.Rows, []string{strconv.Itoa(d.Lag), d.KL.print(4), d.MeanLogRatio.print(4), d.ClipFraction.print(3), d.ClipPredicted.print(3), d.ClipNormal.print(3), d.EffectiveSample.print(3), d.SamplePredicted.print(3)})
	}
	return t
}

// checkTable has what was tried beside the grid.
func (r *StalenessResult) checkTable() report.Table {
	t := report.Table{Title: "Checks: other learning rates, and four optimizer steps a batch", Header: []string{"arm", "final", "best", "mean over steps", "change of the mean", "reward at the end", "steps to 0.5", "steps to 0.9", "runs", "clip fraction", "ESS/N"}}
	for i := range r.Arms {
		a := &r.Arms[i]
		if a.grid() {
			continue
		}
		t.Rows = append(t.Rows, append(append([]string{a.Name}, a.outcome()...), a.ClipFraction.print(3), a.EffectiveSample.print(3)))
	}
	return t
}

func (h *TimedHardware) table() report.Table {
	t := report.Table{Title: fmt.Sprintf("Equal time, %s: %s train steps alone for every arm", h.Name, report.Figure(h.Time, 0)),
		Header: []string{"lag", "correction", "period", "simulated staleness", "steps", "accuracy then", "mean over time", "change of the mean", "time to 0.5", "time to 0.9"}}
	for _, a := range h.Arms {
		change, name := a.Change.starred(3), a.Correction
		if a.Schedule != "" {
			name += ", " + a.Schedule
		}
		if a.Schedule == scheduleColocated {
			change = "–"
		}
		runs := a.Runs
		t.Rows = append(t.Rows, []string{strconv.Itoa(a.Lag), name, report.Figure(a.Period, 2), report.Figure(h.price(a.Lag).Staleness, 2), report.Figure(a.Steps, 0),
			a.Accuracy.print(3), a.Area.print(3), change, a.Time50.among(a.Reached50, runs, 0), a.Time90.among(a.Reached90, runs, 0)})
	}
	return t
}

// StalenessCSV writes every point of every run's curve.
func StalenessCSV(w io.Writer, r StalenessResult) error {
	out := csv.NewWriter(w)
	if err := out.Write([]string{"task", "lag", "correction", "learning_rate", "minibatches", "seed", "step", "held_out_accuracy", "reward", "exact_share", "clip_fraction", "active_clip_fraction", "masked_fraction", "truncated_fraction",
		"mean_log_ratio", "kl", "effective_sample_size", "max_weight", "clip_fraction_predicted", "clip_fraction_normal", "effective_sample_size_predicted", "gradient_norm"}); err != nil {
		return err
	}
	number := func(v float64) string { return strconv.FormatFloat(v, 'g', 6, 64) }
	for i, a := range r.arms {
		for seed := range r.runs[i] {
			for k := range r.runs[i][seed].Curve {
				p := &r.runs[i][seed].Curve[k]
				row := []string{r.Options.Task, strconv.Itoa(a.lag), a.correction, number(r.Rate * a.rate), strconv.Itoa(a.minis), strconv.Itoa(seed + 1), strconv.Itoa(p.Step), number(p.Accuracy)}
				for _, v := range []float64{p.Reward, p.Exact, p.ClipFraction, p.ActiveClip, p.Masked, p.Truncated, p.MeanLogRatio, p.KL, p.EffectiveSample, p.MaxWeight, p.ClipPredicted, p.ClipNormal, p.SamplePredicted, p.GradientNorm} {
					if k == 0 { // no train step yet
						row = append(row, "")
						continue
					}
					row = append(row, number(v))
				}
				if err := out.Write(row); err != nil {
					return err
				}
			}
		}
	}
	out.Flush()
	return out.Error()
}
