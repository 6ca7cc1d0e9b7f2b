package compare

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/experiment"
	"github.com/headway-rl/headway/predict/forecast"
)

// readRun reads one run: ours where there is a trace, else another framework's.
func readRun(ctx context.Context, path, from string, show Meter) (*Run, error) {
	header, err := Header(path)
	if err == nil {
		return readOwn(ctx, path, header, show)
	}
	if own, ownErr := HoldsTrace(path); ownErr == nil && own { // and no log, whatever is wrong with it
		return nil, err
	}
	log, foreignErr := foreign.Read(ctx, []string{path}, foreign.Options{From: from})
	if folder := FolderError(path); foreignErr != nil && folder != nil {
		return nil, folder
	}
	switch {
	case foreignErr == nil:
		return ofForeign(path, log), nil
	case errors.Is(err, fs.ErrNotExist):
		return nil, failure.Usage("name run directories, traces, or logs of another framework", "%s: neither a run of ours nor a log: %w", path, foreignErr)
	}
	return nil, failure.Usage("name run directories, traces, or logs of another framework", "%s: not a run of ours (%w), and not another framework's: %w", path, err, foreignErr)
}

// readOwn reads a run by its trace.
func readOwn(ctx context.Context, path string, header trace.Header, show Meter) (*Run, error) {
	recording, split, err := Measure(ctx, path, show)
	if err != nil {
		return nil, err
	}
	s := recording.Measured
	run := &Run{Path: path, Source: header.Source, Program: header.Program, Steps: s.Steps, Ended: recording.Ended,
		Figures: ofSeries(recording.Series, header.Warmup), Attribution: &split, Ledger: &recording.Ledger, Control: s.Control, Warnings: []string{},
		seed: strconv.FormatUint(header.Seed, 10), series: recording.Series}
	if s.Steps == 0 {
		return nil, failure.Run("let it go on for longer", "%s: no train step has been measured, so there is nothing to compare", path)
	}
	if torn := tornWarning(recording); torn != "" {
		run.Warnings = append(run.Warnings, torn)
	}
	if !run.Ended {
		run.Warnings = append(run.Warnings, "its trace has no end: the run goes on, or was interrupted")
	}
	j := experiment.SettlingOf(experiment.Window(recording.Series, int(header.Warmup)))
	for _, u := range j.Unsettled {
		run.Warnings = append(run.Warnings, u.Why)
	}
	run.settings, run.task, err = settingsOf(header)
	if err != nil {
		return nil, err
	}
	if header.Source != "live" { // a simulation's trace does not say which version made which token
		delete(run.Figures, "token_staleness")
	}
	run.summarise(s)
	if run.prediction, err = forecast.Read(path); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	run.learned(path, header.Warmup)
	return run, nil
}

// summarise adds what a summary has beyond the series.
func (r *Run) summarise(s metrics.Summary) {
	for key, value := range map[string]float64{
		"staleness_p95": float64(s.Staleness.P95), "staleness_max": float64(s.Staleness.Max), "step_s": s.StepS.Mean,
		"utilization": s.Utilization, "tail_multiplier": s.TailMultiplier, "acceptance": s.Acceptance,
		"production_rollouts_per_s": s.Throughput.ProductionRolloutsPerS, "effective_rollouts_per_s": s.Throughput.EffectiveRolloutsPerS,
		"consumption_rollouts_per_wall_s": s.Throughput.ConsumptionRolloutsPerWallS, "wasted_share": s.Waste.WastedShare,
		"sampled_mean_tokens": s.Length.SampledMeanTokens, "trained_mean_tokens": s.Length.TrainedMeanTokens,
	} {
		r.Figures[key] = Figure{Value: value}
	}
	if len(r.series) > 0 {
		tail := r.series[len(r.series)-max(len(r.series)/10, 1):]
		sum := 0.0
		for i := range tail {
			sum += tail[i].Reward
		}
		r.Figures["reward"] = Figure{Value: sum / float64(len(tail))}
	}
}

// learned adds how far training was off policy, where the trainer said: means over the steps after the warm-up.
func (r *Run) learned(path string, warmup loop.Version) {
	lines, err := learnedOf(path)
	var clip, ratio, effective, n float64
	for _, l := range lines {
		if l.Step <= warmup || l.EffectiveSampleSize == 0 { // 0: it gave a verdict on its forward pass alone
			continue
		}
		n++
		clip, ratio, effective = clip+l.ClipFraction, ratio+l.MeanLogRatio, effective+l.EffectiveSampleSize
	}
	if err != nil || n == 0 {
		return
	}
	for key, sum := range map[string]float64{"clip_fraction": clip, "mean_log_ratio": ratio, "effective_sample_size": effective} {
		r.Figures[key] = Figure{Value: sum / n}
	}
}

// notSettings are keys of a document that say where and for how long a run was, not how.
var notSettings = []string{"store.", "server.", "steps.", "trainer.steps", "seed"}

// settingsOf are the keys of a run's document, and what its task is.
func settingsOf(header trace.Header) (settings map[string]string, task string, err error) {
	document, err := config.ParseRecorded("config of the trace", []byte(header.Config))
	if err == nil {
		document, err = document.Resolve()
	}
	if err != nil {
		return nil, "", err
	}
	text, err := json.Marshal(document)
	if err != nil {
		return nil, "", err
	}
	var tree map[string]any
	if err := json.Unmarshal(text, &tree); err != nil {
		return nil, "", err
	}
	settings = map[string]string{}
	flatten(settings, "", tree)
	for key := range settings {
		for _, prefix := range notSettings {
			if strings.HasPrefix(key, prefix) {
				delete(settings, key)
			}
		}
	}
	if header.Source != "live" {
		return settings, "modelled", nil
	}
	name := document.EnvironmentName()
	if document.Environment.Kind == "embedded" {
		name = document.Environment.Task
	}
	return settings, strings.Trim(document.Environment.Kind+" "+name, " "), nil
}

// flatten lists the leaves of a document by their dotted paths.
func flatten(into map[string]string, path string, value any) {
	join := func(key string) string {
		if path == "" {
			return key
		}
		return path + "." + key
	}
	switch v := value.(type) {
	case map[string]any:
		for key, inner := range v {
			flatten(into, join(key), inner)
		}
	case []any:
		for i, inner := range v {
			flatten(into, join(strconv.Itoa(i)), inner)
		}
	case string:
		into[path] = v
	default:
		text, _ := json.Marshal(v)
		into[path] = string(text)
	}
}

// ofForeign is another framework's run, with what its log has.
func ofForeign(path string, log *foreign.Log) *Run {
	run := &Run{Path: path, Source: log.Framework, Ended: true, Figures: map[string]Figure{}, Warnings: []string{},
		settings: map[string]string{}, foreign: true}
	for key, figure := range map[string]foreign.Figure{"rollout.concurrency": log.Settings.ConcurrencyRollouts, "train.batch": log.Settings.BatchRollouts,
		"rollout.group_size": log.Settings.GroupSize, "queue.capacity": log.Settings.QueueRollouts, "sync.every": log.Settings.SyncEvery} {
		if figure.Known() {
			run.settings[key] = strconv.FormatFloat(figure.Value, 'g', -1, 64)
		}
	}
	if log.Settings.Policy != "" {
		run.settings["queue.policy"] = log.Settings.Policy
	}
	for _, f := range foreignFigures {
		sum, weight := 0.0, 0.0
		for i := range log.Series {
			if figure, n := f.of(&log.Series[i]), float64(max(log.Series[i].Steps, 1)); figure.Known() {
				sum, weight = sum+n*figure.Value, weight+n
			}
		}
		if weight > 0 {
			run.Figures[f.key] = Figure{Value: sum / weight}
		}
	}
	for i := range log.Series {
		run.Steps += max(log.Series[i].Steps, 1)
	}
	for _, warning := range log.Warnings {
		if warning.File == path { // the run's name stands before it
			warning.File = ""
		}
		run.Warnings = append(run.Warnings, warning.String())
	}
	if log.Definition != "" {
		run.Warnings = append(run.Warnings, log.Definition)
	}
	run.Warnings = append(run.Warnings, fmt.Sprintf("the whole of %s is averaged, its beginning too, and its reward", filepath.Base(path)))
	return run
}

// foreignFigures are what another framework's steps may say.
var foreignFigures = []struct {
	key string
	of  func(*foreign.Step) foreign.Figure
}{
	{"staleness_mean", func(s *foreign.Step) foreign.Figure { return s.StalenessMean }},
	{"pqs", func(s *foreign.Step) foreign.Figure { return s.PQS }},
	{"iqs", func(s *foreign.Step) foreign.Figure { return s.IQS }},
	{"token_staleness", func(s *foreign.Step) foreign.Figure { return s.TokenStaleness }},
	{"period_s", func(s *foreign.Step) foreign.Figure { return s.PeriodS }},
	{"step_s", func(s *foreign.Step) foreign.Figure { return s.TrainS }},
	{"trainer_idle_ratio", func(s *foreign.Step) foreign.Figure { return s.TrainerIdle }},
	{"rollout_idle_ratio", func(s *foreign.Step) foreign.Figure { return s.RolloutIdle }},
	{"tail_multiplier", func(s *foreign.Step) foreign.Figure { return s.TailMultiplier }},
	{"reward", func(s *foreign.Step) foreign.Figure { return s.Reward }},
	{"clip_fraction", func(s *foreign.Step) foreign.Figure { return s.ClipFraction }},
	{"mean_log_ratio", func(s *foreign.Step) foreign.Figure { return s.MeanLogRatio }},
	{"effective_sample_size", func(s *foreign.Step) foreign.Figure { return s.EffectiveSampleSize }},
	{"sampled_mean_tokens", func(s *foreign.Step) foreign.Figure { return s.ResponseTokens }},
	{"tokens_per_s", func(s *foreign.Step) foreign.Figure { return s.TokensPerS }},
}
