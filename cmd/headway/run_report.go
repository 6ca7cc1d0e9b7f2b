package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/internal/printable"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/control"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/observe/steps"
)

// reportFile is the report's name in a run directory.
const reportFile = "report.html"

// writeReport writes the self-contained page.
func (e *ending) writeReport(r runReport, res live.Result) (err error) {
	path := filepath.Join(e.Dir, reportFile)
	f, err := os.OpenFile(path+".new", os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o600)
	if err != nil {
		return err
	}
	if err = errors.Join(report.HTML(f, e.reportRun(r, res)), f.Close()); err == nil {
		err = os.Rename(path+".new", path)
	}
	if err != nil {
		_ = os.Remove(path + ".new")
	}
	return err
}

// print prints the end of the run for people.
func (e *ending) print(r runReport, res live.Result) error {
	run := e.reportRun(r, res)
	if e.full || res.Summary.Steps == 0 {
		return report.Text(e.App.Stdout, run)
	}
	run.Files = slices.DeleteFunc(run.Files, func(row report.Row) bool { return !slices.Contains(briefFiles, row.Name) })
	return report.Brief(e.App.Stdout, run)
}

// reportRun is the run as the report package wants it.
func (e *ending) reportRun(r runReport, res live.Result) report.Run {
	s := res.Summary
	run := report.Run{
		Name: filepath.Base(e.Dir), Dominant: r.Dominant, Balanced: r.Ledger.Balanced, Notes: r.Warnings,
		Measured: s.Staleness.Histogram,
		Waste:    report.WasteRows(s), Partial: report.InterruptionRows(s, e.Cfg.Environment.ServiceTime.Kind != "none"), OffPolicy: offPolicyRows(r.OffPolicy), Bias: r.Bias,
		QueueLever: queueLever(e.Cfg), Source: largestSource(e.Cfg, r.Attribution), Window: report.WindowText(int(e.Warmup())), OffPolicyNote: newClipLimits(e.Cfg.Trainer).note(),
		Summary: fmt.Sprintf("%s trained by GRPO, %s, %d train steps in %.0f s. Figures are of the %d steps after %d of warm-up.",
			e.Task.Name(), e.Cfg.Schedule, r.Steps, r.WallS, s.Steps, e.Warmup()),
		Next: []report.Row{{Name: "next", Value: "headway diagnose " + printable.Word(e.Dir)}, {Value: "headway view " + printable.Word(e.Dir)}},
	}
	run.Ledger, run.Settings, run.Files = e.ledgerRows(r), e.settingRows(), e.fileRows(r)
	if s.Steps == 0 {
		return e.unmeasured(run, r)
	}
	if e.resimulated != nil {
		run.Simulated = e.resimulated.Staleness.Histogram
	}
	run.Health = health(s)
	run.Headline = headline(r, s, newClipLimits(e.Cfg.Trainer))
	run.Comparison = []report.Comparison{
		{Name: "mean staleness", Measured: r.Staleness.MeasuredMean, Predicted: orUnknown(r.Staleness.PredictedMean),
			Closed: orUnknown(r.Staleness.ClosedFormMeasuredInputs), Simulated: orUnknown(r.Staleness.ResimulatedMean)},
		{Name: "p95 staleness", Measured: float64(r.Staleness.MeasuredP95), Predicted: orUnknown(r.Predicted.StalenessP95),
			Closed: orUnknown(r.Staleness.ClosedFormP95), Simulated: orUnknown(r.Staleness.ResimulatedP95)},
		e.periods(s),
	}
	for _, line := range e.Steps.Lines {
		step := report.Step{Step: int64(line.Step), TimeS: line.Time, Reward: line.Reward, Staleness: line.StalenessMean, PQS: line.PQS, IQS: line.IQS,
			TrainerIdle: line.TrainerIdleRatio, RolloutIdle: line.RolloutIdleRatio, ClipFraction: line.ClipFraction, TokensPerS: report.Unknown}
		if line.PeriodS > 0 {
			step.TokensPerS = float64(line.ResponseTokens) / line.PeriodS
		}
		run.Steps = append(run.Steps, step)
		if line.HeldOutAccuracy != nil {
			run.Accuracy = append(run.Accuracy, report.Point{Step: int64(*line.HeldOutStep), Value: *line.HeldOutAccuracy})
		}
	}
	run.Accuracy = append(run.Accuracy, report.Point{Step: int64(r.Steps), Value: r.HeldOutAccuracy})
	run.Control = control.Rows(r.Control)
	run.Throughput, run.Attribution, run.Idle = throughputRows(r), report.AttributionRows(r.Attribution), report.IdleRows(r.Attribution)
	for _, t := range e.NewestSamples() {
		run.Samples = append(run.Samples, report.Sample{Step: int64(r.Steps), Prompt: t.Prompt, Answer: t.Response, Expected: t.Answer, Reward: t.Reward, Versions: t.Versions})
	}
	return run
}

// headline are the few figures a reader wants first, with what was expected of them before the first step.
func headline(r runReport, s metrics.Summary, limits clipLimits) []report.Row {
	p := r.Predicted
	mostly, period := "", report.Row{Name: "train period", Value: report.Period(s.PeriodS.Mean), Note: fmt.Sprintf("train step %s; trainer idle %s", report.Period(s.StepS.Mean), report.Share(s.TrainerIdleRatio))}
	if a := r.Attribution; a.Dominant != "" {
		mostly = fmt.Sprintf("; mostly %s, %s", strings.ReplaceAll(a.Dominant, "_", " "), report.Share(a.Share))
	}
	wasted := report.Row{Name: "tokens wasted", Value: report.Share(s.Waste.WastedShare), Note: "made and never trained"}
	mean := report.Row{Name: "staleness, mean", Value: report.Figure(s.Staleness.Mean, 2), Note: "versions" + mostly}
	p95 := report.Row{Name: "staleness, p95", Value: fmt.Sprint(s.Staleness.P95)}
	if p.StalenessMean != nil {
		wasted.Predicted, mean.Predicted = report.Share(p.WastedShare), report.Figure(*p.StalenessMean, 2)
	}
	if p.StalenessP95 != nil {
		p95.Predicted = report.Figure(*p.StalenessP95, 0)
	}
	if p.PeriodS != nil {
		period.Predicted = report.Period(*p.PeriodS)
		if p.PeriodSpread > 0 {
			period.Predicted += fmt.Sprintf(" ± %.0f %%", 100*p.PeriodSpread)
		}
	}
	rows := []report.Row{wasted, mean, p95, period,
		{Name: "engines idle", Value: report.Share(s.RolloutIdleRatio), Note: report.IdleRows(r.Attribution)[1].Note},
		{Name: "held-out accuracy", Value: report.Figure(r.HeldOutAccuracy, 3), Note: report.Counted(r.HeldOutPrompts, "prompt") + " never trained on"},
		{Name: "trained tokens/s", Value: report.Figure(r.TokensPerS, 0), Note: fmt.Sprintf("%s rollouts/s", report.Figure(s.Throughput.ConsumptionRolloutsPerWallS, 0))},
		{Name: "outside the band", Value: report.Share(r.ClipFraction), Note: fmt.Sprintf("of tokens, ratio %s; clipped %s", limits.band(), report.Share(r.ActiveClipFraction))},
	}
	if r.MaskedFraction > shareWorthSaying {
		rows = append(rows, report.Row{Name: "tokens masked", Value: report.Share(r.MaskedFraction), Note: "by trainer.correction: " + limits.kind})
	}
	if r.TruncatedFraction > shareWorthSaying {
		rows = append(rows, report.Row{Name: "tokens truncated", Value: report.Share(r.TruncatedFraction), Note: "by trainer.correction: " + limits.kind})
	}
	return rows
}

// health says what enters the queue, what leaves it, and what binds.
func health(s metrics.Summary) string {
	t := s.Throughput
	made := rateText(t.ProductionRolloutsPerS) + " rollouts/s made"
	if s.Acceptance < 0.995 {
		made += fmt.Sprintf(", %s of use", rateText(t.EffectiveRolloutsPerS))
	}
	text := fmt.Sprintf("%s -> %s/s trained", made, rateText(t.ConsumptionRolloutsPerWallS))
	if says := bindingText(t.Binding); says != "" {
		text += "; " + says
	}
	return text
}

// shareWorthSaying is the share of tokens above which a summary says what the
// correction did to them.
const shareWorthSaying = 0.01

// unmeasured is the report of a run that ended before anything was measured: where
// its rollouts went, and nothing about figures that are none.
func (e *ending) unmeasured(run report.Run, r runReport) report.Run {
	run.Summary = fmt.Sprintf("%s, %s: no train step was made in %.0f s.", e.Task.Name(), e.Cfg.Schedule, r.WallS)
	if r.Steps > 0 {
		run.Summary = fmt.Sprintf("%s, %s: %d train steps in %.0f s. Nothing is measured before the end of the warm-up of %d.", e.Task.Name(), e.Cfg.Schedule, r.Steps, r.WallS, e.Warmup())
	}
	var rows []report.Row
	for _, row := range run.Ledger {
		if row.Value != "0" {
			rows = append(rows, row)
		}
	}
	run.Ledger, run.Partial, run.OffPolicy, run.Bias, run.Measured, run.Dominant, run.Source, run.Window = rows, nil, nil, nil, nil, "", report.Source{}, ""
	return run
}

// largestSource is where most of a run's staleness arises, with what moves that under the run's rules.
func largestSource(c config.Config, a attribution.Summary) report.Source {
	for i, part := range a.Parts {
		if a.Dominant == "" || part.Source != a.Dominant {
			continue
		}
		source := attribution.Source(i)
		return report.Source{Name: strings.ReplaceAll(part.Source, "_", " "), Words: source.Label(), Share: a.Share, Lever: sourceLever(c, source)}
	}
	return report.Source{}
}

// sourceLever says what moves a source of staleness.
func sourceLever(c config.Config, source attribution.Source) string {
	switch source {
	case attribution.Sync:
		return "A faster sync moves it"
	case attribution.Inner:
		return "A lower sync.every moves it"
	case attribution.Concurrency:
		return "Fewer slots (rollout.concurrency) or a larger batch (train.batch) move it"
	case attribution.Environment:
		return "Faster tools, sandboxes and verifiers, or their time-outs, move it"
	case attribution.Tail:
		return "A length cap, smaller groups (rollout.group_size) or redundancy (rollout.redundancy) move it"
	case attribution.Queue:
		if lever := queueLever(c); lever != "" {
			return report.Capital(lever) + " move it"
		}
		return "A lower queue.factor, or the newest first (queue.select), move it"
	case attribution.Fill:
		return "It falls where the trainer waits for rollouts (ρ below 1), and is 1 where the trainer is what binds"
	}
	return ""
}

// queueLever names what moves the wait in the queue, "" where its capacity does.
func queueLever(c config.Config) string {
	const split = " and the split between rollouts and training"
	switch {
	case c.Schedule == "synchronous":
	case c.Queue.Policy == "bounded":
		return "queue.eta" + split
	case c.Queue.Policy == "threshold":
		return "queue.staleness_threshold, sync.every" + split
	case c.Queue.Policy == "replay":
		return "the buffer's size, queue.gamma and queue.max_uses"
	case c.Queue.PauseAt > 0:
		return "queue.pause_at" + split
	}
	return ""
}

// fileRows say where everything is.
func (e *ending) fileRows(r runReport) []report.Row {
	return []report.Row{
		{Name: "run directory", Value: e.Dir}, {Name: "trace", Value: r.Trace, Note: "headway replay " + printable.Word(e.Dir)},
		{Name: "report", Value: filepath.Join(e.Dir, reportFile)}, {Name: "metrics", Value: filepath.Join(e.Dir, steps.File)},
		{Name: "samples", Value: filepath.Join(e.Dir, "samples")}, {Name: "weights", Value: filepath.Join(e.Dir, "weights")},
	}
}

// briefFiles are the rows of files that a brief report has.
var briefFiles = []string{"run directory", "report"}

// periods compares the train period.
func (e *ending) periods(s metrics.Summary) report.Comparison {
	of := func(seconds *float64) float64 { return 1e3 * orUnknown(seconds) }
	row := report.Comparison{Name: "train period, ms", Measured: of(&s.PeriodS.Mean), Predicted: of(e.Expected.PeriodS), Closed: report.Unknown, Simulated: report.Unknown}
	if e.resimulated != nil {
		row.Simulated = of(&e.resimulated.PeriodS.Mean)
	}
	return row
}

func orUnknown(v *float64) float64 {
	if v == nil {
		return report.Unknown
	}
	return *v
}

func (e *ending) ledgerRows(r runReport) []report.Row {
	l := r.Ledger.Ledger
	var rows []report.Row
	for _, e := range []struct {
		name string
		n    int64
		note string
	}{
		{"admitted", l.Admitted, "rollout attempts started"},
		{"trained", l.Trained, "consumed by a train step"},
		{"evicted", l.Evicted, "dropped by a full queue"},
		{"discarded", l.Discarded, "over the staleness budget"},
		{"filtered", l.Filtered, "their group teaches nothing"},
		{"pruned", l.Pruned, "stopped early"},
		{"cancelled", l.Cancelled, "stopped with their group"},
		{"failed", l.Failed, "ended without a reward"},
		{"in flight", l.InFlight, "left when the run ended: still running"},
		{"waiting", l.Waiting, "left when the run ended: scored, their group not ready"},
		{"queued", l.Queued, "left when the run ended: ready, not trained"},
		{"leased", l.Leased, "left when the run ended: at the trainer"},
	} {
		rows = append(rows, report.Row{Name: e.name, Value: report.Count(e.n), Note: e.note})
	}
	return rows
}

func throughputRows(r runReport) []report.Row {
	t := r.Throughput
	return []report.Row{
		{Name: "production, rollouts/s", Value: report.Figure(t.ProductionRolloutsPerS, 1), Note: "finished"},
		{Name: "effective production, rollouts/s", Value: report.Figure(t.EffectiveRolloutsPerS, 1), Note: "finished and not filtered"},
		{Name: "consumption, rollouts/s", Value: report.Figure(t.ConsumptionRolloutsPerS, 1), Note: "per second of train step alone"},
		{Name: "consumption, rollouts/s of wall time", Value: report.Figure(t.ConsumptionRolloutsPerWallS, 1), Note: "idle and sync included"},
		{Name: "utilization", Value: report.Figure(r.Utilization, 2), Note: "production over consumption"},
		{Name: "tail multiplier", Value: report.Figure(r.TailMultiplier, 2), Note: "longest rollout of a group over the mean"},
		{Name: "binding", Value: t.Binding, Note: "what limits the rate of updates"},
	}
}

// queueSetting says the queue's rule with its number, its capacity and its order.
func queueSetting(c config.Config) string {
	rule, order := c.Queue.Policy, c.Queue.Select+" first"
	switch {
	case c.Schedule == "synchronous":
		rule = c.Schedule
	case rule == "max":
		rule += fmt.Sprintf(" of %d versions", c.Queue.MaxStaleness)
	case rule == "bounded":
		rule += fmt.Sprintf(" by %g versions", c.Queue.Eta)
	case rule == "threshold":
		rule += fmt.Sprintf(" of %g", c.Queue.StalenessThreshold)
	case rule == "replay":
		order = fmt.Sprintf("at most %d uses", c.Queue.MaxUses)
	}
	parts := []string{rule, fmt.Sprintf("%d groups", c.QueueGroups()), order}
	if c.Queue.Hold > 0 {
		parts = append(parts, fmt.Sprintf("hold %g", c.Queue.Hold))
	}
	if c.Queue.PauseAt > 0 {
		parts = append(parts, fmt.Sprintf("pause at %g batches", c.Queue.PauseAt))
	}
	return strings.Join(parts, ", ")
}

func (e *ending) settingRows() []report.Row {
	c := e.Cfg
	rows := []report.Row{
		{Name: "task", Value: c.Environment.Task}, {Name: "seed", Value: fmt.Sprint(c.Seed)},
		{Name: "concurrency C", Value: fmt.Sprint(c.Rollout.Concurrency)}, {Name: "batch B", Value: fmt.Sprint(c.Train.Batch)},
		{Name: "group S", Value: fmt.Sprint(c.Rollout.GroupSize)}, {Name: "queue", Value: queueSetting(c)},
		{Name: "sync", Value: strings.Join([]string{c.Sync.Mode, "every " + fmt.Sprint(c.Sync.Every), "trainer " + c.Sync.Trainer}, ", ")},
		{Name: "correction", Value: c.Trainer.Correction.Kind},
	}
	if c.Preset != "" {
		rows = append(rows, report.Row{Name: "preset", Value: c.Preset})
	}
	if s := c.Environment.ServiceTime; s.Kind != "none" {
		rows = append(rows, report.Row{Name: "tool time", Value: fmt.Sprintf("%s, mean %g s", s.Kind, s.MeanS)})
	}
	return rows
}
