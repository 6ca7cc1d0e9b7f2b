package main

import (
	"errors"
	"fmt"
	"io"
	"math"
	"slices"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
	"github.com/headway-rl/headway/replay"
	"github.com/headway-rl/headway/report"
	"github.com/headway-rl/headway/sim"
	"github.com/headway-rl/headway/trace"
)

// resimulateCmd says what a run would have been under other settings.
type resimulateCmd struct {
	output
	Path string   `arg:"" name:"run" help:"A run directory, or a trace file."`
	Set  []string `name:"set" sep:"none" placeholder:"KEY=VALUE" help:"Change a key of the run's document, such as queue.factor=2. Repeatable."`
}

// resimulateKeys are the keys a resimulation can change: the loop's rules. What
// took time was measured, and stays.
var resimulateKeys = []string{"preset", "schedule", "rollout.concurrency", "rollout.group_size", "rollout.start", "rollout.redundancy", "rollout.oversample",
	"rollout.partial", "train.batch", "queue", "sync", "filter.zero_advantage", "engines", "trainer.steps"}

// resimulation is what headway resimulate --json prints.
type resimulation struct {
	metrics.Summary
	// Measured is the same of the run itself, over the same window.
	Measured metrics.Summary `json:"measured"`
	Ledger   loop.Ledger     `json:"ledger"`
	// Extrapolated is the share of rollouts and steps that were not recorded.
	Extrapolated float64  `json:"extrapolated_ratio"`
	WarmupSteps  int      `json:"warmup_steps"`
	Warnings     []string `json:"warnings"`
}

// Run resimulates and prints the result beside what the run measured.
func (c *resimulateCmd) Run(application *app) error {
	if err := resimulateOverrides(c.Set); err != nil {
		return err
	}
	header, err := traceHeader(c.Path)
	if err != nil {
		return err
	}
	document, err := config.Parse("config of "+c.Path, []byte(header.Config))
	if err == nil {
		document, err = document.Set(c.Set...)
	}
	if err == nil {
		document, err = document.Resolve()
	}
	if err != nil {
		return err
	}
	if takes := costly(document); takes != "" {
		return usageError("choose fewer slots", "%s", takes)
	}
	again, err := resimulateDir(c.Path, document)
	if err != nil {
		return err
	}
	measured, err := measuredSummary(c.Path)
	if err != nil {
		return err
	}
	doc := resimulation{Summary: again.Summary, Measured: measured, Ledger: again.Ledger, Extrapolated: again.Extrapolated,
		WarmupSteps: again.Warmup, Warnings: append([]string{}, again.Warnings...)}
	if c.JSON {
		return printJSON(application.Stdout, doc)
	}
	return printResimulation(application.Stdout, c, again, measured)
}

// resimulateOverrides refuses keys that a resimulation cannot change.
func resimulateOverrides(overrides []string) error {
	for _, o := range overrides {
		key, _, _ := strings.Cut(o, "=")
		known := slices.ContainsFunc(resimulateKeys, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
		if !known {
			return usageError("headway simulate takes a whole document", "--set %s: a resimulation has the run's own lengths and times; it can change %s",
				o, strings.Join(resimulateKeys, ", "))
		}
	}
	return nil
}

// traceHeader reads the header of a run's trace.
func traceHeader(path string) (trace.Header, error) {
	file, err := trace.Open(path)
	if err != nil {
		return trace.Header{}, usageError("name a run directory that headway run made, or a trace file", "%w", err)
	}
	defer file.Close()
	reader, err := trace.NewReader(file)
	if err != nil {
		return trace.Header{}, replayError(file.Name(), err)
	}
	return reader.Header, nil
}

// measuredSummary is what a run measured of itself.
func measuredSummary(path string) (metrics.Summary, error) {
	file, err := trace.Open(path)
	if err != nil {
		return metrics.Summary{}, err
	}
	defer file.Close()
	run, err := replay.Load(file)
	if err != nil {
		return metrics.Summary{}, replayError(file.Name(), err)
	}
	return run.Recorder.Summary(), nil
}

// resimulateDir takes the lengths and times of a run's trace through the
// simulator, under the rules of a resolved document.
func resimulateDir(path string, document config.Config) (replay.Resimulation, error) {
	file, err := trace.Open(path)
	if err != nil {
		return replay.Resimulation{}, err
	}
	defer file.Close()
	recording, err := replay.Measure(file)
	if err != nil {
		return replay.Resimulation{}, replayError(file.Name(), err)
	}
	settings, err := resimulateSettings(recording, document)
	if err != nil {
		return replay.Resimulation{}, err
	}
	again, err := recording.Resimulate(settings)
	switch {
	case errors.Is(err, sim.ErrStalled):
		return again, simulationError(document, err)
	case err != nil:
		return again, runError("", "%s: %w", file.Name(), err)
	}
	return again, nil
}

// resimulateSettings is what a document changes of a recorded run.
func resimulateSettings(recording *replay.Recording, document config.Config) (replay.Settings, error) {
	recorded, err := config.Parse("config of the trace", []byte(recording.Header.Config))
	if err == nil {
		recorded, err = recorded.Resolve()
	}
	if err != nil {
		return replay.Settings{}, err
	}
	rules := document.LoopConfig()
	settings := replay.Settings{Loop: &rules}
	if document.Sync.TimeS != recorded.Sync.TimeS {
		ns := int64(math.Round(document.Sync.TimeS * 1e9))
		settings.SyncNS = &ns
	}
	if document.Trainer.Steps != recorded.Trainer.Steps {
		settings.Steps = document.Trainer.Steps
	}
	return settings, nil
}

// printResimulation prints the figures beside those of the run.
func printResimulation(w io.Writer, c *resimulateCmd, again replay.Resimulation, measured metrics.Summary) error {
	changes := "the run's own settings"
	if len(c.Set) > 0 {
		changes = strings.Join(c.Set, ", ")
	}
	s := again.Summary
	var b strings.Builder
	b.WriteString(report.Table{
		Title:  fmt.Sprintf("%s resimulated with %s: %d train steps after %d of warm-up", c.Path, changes, again.Steps, again.Warmup),
		Header: []string{"", "resimulated", "the run itself"},
		Rows: [][]string{
			{"staleness, mean", report.Figure(s.Staleness.Mean, 3), report.Figure(measured.Staleness.Mean, 3)},
			{"staleness, p95", fmt.Sprint(s.Staleness.P95), fmt.Sprint(measured.Staleness.P95)},
			{"pre-queue (PQS)", report.Figure(s.PQS.Mean, 3), report.Figure(measured.PQS.Mean, 3)},
			{"in-queue (IQS)", report.Figure(s.IQS.Mean, 3), report.Figure(measured.IQS.Mean, 3)},
			{"train period, s", report.Figure(s.PeriodS.Mean, 4), report.Figure(measured.PeriodS.Mean, 4)},
			{"train step, s", report.Figure(s.StepS.Mean, 4), report.Figure(measured.StepS.Mean, 4)},
			{"utilization ρ", report.Figure(s.Utilization, 3), report.Figure(measured.Utilization, 3)},
			{"tail multiplier", report.Figure(s.TailMultiplier, 3), report.Figure(measured.TailMultiplier, 3)},
			{"trainer idle", report.Share(s.TrainerIdleRatio), report.Share(measured.TrainerIdleRatio)},
			{"rollout idle", report.Share(s.RolloutIdleRatio), report.Share(measured.RolloutIdleRatio)},
			{"rollouts/s trained", report.Figure(s.Throughput.ConsumptionRolloutsPerWallS, 2), report.Figure(measured.Throughput.ConsumptionRolloutsPerWallS, 2)},
		},
	}.String())
	fmt.Fprintf(&b, "\n%s of the rollouts and steps were made up from others of the run\n", report.Share(again.Extrapolated))
	for _, warning := range again.Warnings {
		fmt.Fprintf(&b, "  - %s\n", warning)
	}
	_, err := io.WriteString(w, trimLines(b.String()))
	return err
}
