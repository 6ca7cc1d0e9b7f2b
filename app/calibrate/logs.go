package calibrate

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/explain/foreign"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop/workload"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// Log makes constants of a run's record: a run directory or trace of ours, or another framework's log. The name is of
// the run, where a log holds several. Function told is shown how far the reading is, from 0 to 1.
func Log(ctx context.Context, path, from, name string, told func(share float64, text string)) (measure.Findings, error) {
	own, err := compare.HoldsTrace(path)
	if err != nil {
		return measure.Findings{}, failure.Usage("name a run directory, a trace, or files of another framework's tracker", "--run: %w", err)
	}
	if own {
		return ofTrace(path)
	}
	log, err := foreign.Read(ctx, []string{path}, foreign.Options{From: from, Run: name, Progress: func(done, total int64) {
		told(float64(done)/math.Max(float64(total), 1), "reading "+path)
	}})
	if err != nil {
		return measure.Findings{}, failure.Usage("name a run of Headway, or another framework's log; --from names the framework", "--run: %w", err)
	}
	return ofLog(path, log)
}

// stepsMin is how many train steps a log needs: the first is often another.
const stepsMin = 3

// series are one figure's values by step.
type series struct {
	values, weights []float64
	from            string
}

// seriesOf takes a figure of every step but the first of all, which pays for what begins.
func seriesOf(log *foreign.Log, n foreign.Notion) series {
	var s series
	for i := range log.Series {
		step := &log.Series[i]
		figure := n.At(step)
		if !figure.Known() || i == 0 && len(log.Series) > stepsMin || math.IsNaN(figure.Value) || figure.Value < 0 {
			continue
		}
		s.values, s.weights, s.from = append(s.values, figure.Value), append(s.weights, float64(max(step.Steps, 1))), figure.From
	}
	return s
}

// mean is the mean by weight and the half of its interval of 95 %; ok where there are values enough.
func (s series) mean() (mean, off float64, ok bool) {
	var sum, weight float64
	for i, v := range s.values {
		sum, weight = sum+v*s.weights[i], weight+s.weights[i]
	}
	if len(s.values) < stepsMin-1 || weight == 0 {
		return 0, 0, false
	}
	mean = sum / weight
	var squares float64
	for i, v := range s.values {
		squares += s.weights[i] * s.weights[i] * (v - mean) * (v - mean)
	}
	n := float64(len(s.values))
	return mean, 2 * math.Sqrt(squares*n/(n-1)) / weight, true
}

// logFindings are a log's constants under way.
type logFindings struct {
	log   *foreign.Log
	found measure.Findings
}

// ofLog makes constants of another framework's log.
func ofLog(path string, log *foreign.Log) (measure.Findings, error) {
	if len(log.Series) < stepsMin {
		return measure.Findings{}, failure.Usage("give the log of a longer run", "--run %s: %d train steps, want at least %d", path, len(log.Series), stepsMin)
	}
	l := &logFindings{log: log, found: measure.Findings{Of: []string{fmt.Sprintf("%s (%s)", path, log.Framework)}}}
	period, _, _ := seriesOf(log, foreign.Period).mean()
	l.found.RunPeriodS = period
	l.settings()
	length, lengthOff, ok := seriesOf(log, foreign.Response).mean()
	if whole := l.groups(); whole > 0 && !ok {
		length = whole
	} else if whole == 0 && ok && length >= 1 {
		l.add("mean response before the cap, tokens", "modelled.length.mean_tokens", length, lengthOff, "the log, of what was trained on")
		l.tail(length)
	}
	l.trainer(length)
	l.times("weight sync, s", "modelled.sync.time_s", seriesOf(log, foreign.Sync))
	l.engines(length, period)
	for _, w := range log.Warnings {
		if w.File == "" {
			l.found.Notes = append(l.found.Notes, w.Text)
			continue
		}
		l.found.Left = append(l.found.Left, measure.Left{Why: w.Text, Count: int(w.Count), First: fmt.Sprintf("%s:%d", w.File, w.Line)})
	}
	return l.found, nil
}

// add adds a determined constant with the half of its interval.
func (l *logFindings) add(name, key string, value, off float64, from string) {
	l.found.Constants = append(l.found.Constants, measure.Constant{Name: name, Key: key, Value: value, Low: max(value-off, 0), High: value + off, Determined: true, From: from})
}

// times adds the mean of a series.
func (l *logFindings) times(name, key string, s series) {
	if mean, off, ok := s.mean(); ok {
		l.add(name, key, mean, off, fmt.Sprintf("%s, %d steps", s.from, len(s.values)))
	}
}

// settings adds what the run was set up with.
func (l *logFindings) settings() {
	s := l.log.Settings
	for _, c := range []struct {
		name, key string
		figure    foreign.Figure
	}{
		{"rollouts of a batch", "train.batch", s.BatchRollouts}, {"rollouts of one prompt", "rollout.group_size", s.GroupSize},
		{"responses at once", "rollout.concurrency", s.ConcurrencyRollouts},
	} {
		if c.figure.Known() && c.figure.Value >= 1 {
			l.add(c.name, c.key, c.figure.Value, 0, c.figure.From)
		}
	}
	if s.Policy == "synchronous" {
		l.found.Constants = append(l.found.Constants, measure.Constant{Name: "schedule", Key: "schedule", Text: "synchronous", Determined: true, From: "engines and trainer take turns in the log"})
	}
}

// groups adds the lengths of single rollouts by group, where the log has enough of them, and returns their mean; 0 without.
func (l *logFindings) groups() float64 {
	byGroup := map[string][]int{}
	var order []string
	for _, r := range l.log.Rollouts {
		if !r.Tokens.Known() || r.Tokens.Value < 1 || r.Group == "" {
			continue
		}
		if len(byGroup[r.Group]) == 0 {
			order = append(order, r.Group)
		}
		byGroup[r.Group] = append(byGroup[r.Group], int(r.Tokens.Value))
	}
	size, set := int(l.log.Settings.GroupSize.Value), l.log.Settings.GroupSize.Known()
	var all [][]int
	for _, name := range order {
		if group := byGroup[name]; !set || len(group) == size {
			all = append(all, group)
		}
	}
	return l.empirical(all)
}

// empirical adds the last of measured lengths by group where they are enough, and returns their mean; 0 for too few.
func (l *logFindings) empirical(groups [][]int) float64 {
	groups = groups[max(len(groups)-groupsKept, 0):]
	var means series
	for _, group := range groups {
		sum := 0
		for _, n := range group {
			sum += n
		}
		means.values, means.weights = append(means.values, float64(sum)/float64(len(group))), append(means.weights, 1)
	}
	mean, off, ok := means.mean()
	if !ok || len(groups) < groupsMin {
		return 0
	}
	l.found.Constants = append(l.found.Constants, measure.Constant{Name: "mean response, tokens", Key: "modelled.length", Value: mean, Low: math.Max(mean-off, 1), High: mean + off,
		Determined: true, From: fmt.Sprintf("the lengths of the last %d whole groups", len(groups)), Lengths: groups})
	return mean
}

// tail adds the tailness at which a lognormal's longest of a group is so many times the mean as the log says.
func (l *logFindings) tail(length float64) {
	times, off, ok := seriesOf(l.log, foreign.Tail).mean()
	size := l.log.Settings.GroupSize
	if !ok || !size.Known() || size.Value < 2 {
		return
	}
	// The multiplier rises with the tail.
	tailnessOf := func(times float64) float64 {
		low, high := 0.0, 100.0
		for range 20 {
			middle := (low + high) / 2
			lengths, err := workload.LengthSpec{Kind: "lognormal", MeanTokens: length, Tailness: middle}.Build()
			if err == nil && lengths.TailMultiplier(int(size.Value)) < times {
				low = middle
			} else {
				high = middle
			}
		}
		return (low + high) / 2
	}
	l.found.Constants = append(l.found.Constants, measure.Constant{Name: "tail of the responses, 0 to 100", Key: "modelled.length.tailness", Value: tailnessOf(times), Low: tailnessOf(times - off), High: tailnessOf(times + off),
		Determined: true, From: fmt.Sprintf("the longest of a group is %.2f times the mean, as a lognormal", times)})
}

// trainer adds the train step: the step and the trainer's pass for the old log-probs, one after the other.
func (l *logFindings) trainer(length float64) {
	train, logProbs := seriesOf(l.log, foreign.Train), seriesOf(l.log, foreign.LogProbs)
	step, off, ok := train.mean()
	if !ok {
		return
	}
	from := train.from
	if pass, passOff, has := logProbs.mean(); has {
		step, off, from = step+pass, math.Hypot(off, passOff), from+" + "+logProbs.from
	}
	l.add("train step, s", "modelled.train.step_s", step, off, fmt.Sprintf("%s, %d steps", from, len(train.values)))
	if gpus, batch := l.log.Settings.TrainGPUs, l.log.Settings.BatchRollouts; length > 0 && gpus.Known() && batch.Known() && step > 0 && !l.log.Settings.SharedGPUs {
		speed := batch.Value * length / step / gpus.Value
		l.add("training, response tokens/s a GPU", "hardware.train_tokens_per_s_per_gpu", speed, speed*off/step, "batch × mean response ÷ train step ÷ GPUs that train")
		l.add("prompt tokens in that", "hardware.prompt_tokens", 0, 0, "responses alone")
	}
}

// waitShare is the share of its time that a trainer waits from which on the engines' speed decides.
const waitShare = 0.05

// engines adds how fast they are, by the first way that the log allows.
func (l *logFindings) engines(length, period float64) {
	log := l.log
	generate, generateOff, hasGenerate := seriesOf(log, foreign.Generate).mean()
	busy, _, hasBusy := seriesOf(log, foreign.Busy).mean()
	rollout, rolloutOff, hasRollout := seriesOf(log, foreign.RolloutMean).mean()
	wait, _, _ := seriesOf(log, foreign.Wait).mean()
	batch := log.Settings.BatchRollouts
	switch {
	case length < 1:
	case hasGenerate && hasBusy && generate > 0 && busy > 0 && log.Settings.Policy == "synchronous":
		// The longest response of a batch takes its whole generation.
		speed := length / busy / generate
		l.add("speed of a slot, tokens/s", "modelled.decode_tokens_per_s", speed, speed*generateOff/generate, "the longest response of a batch over its generation")
	case hasRollout && rollout > 0:
		speed := length / rollout
		l.add("speed of a slot, tokens/s", "modelled.decode_tokens_per_s", speed, speed*rolloutOff/rollout, "mean response over a rollout's time, its environment's too")
	case batch.Known() && period > 0:
		made := batch.Value * length / period
		c := measure.Constant{Name: "speed of all engines, tokens/s", Key: "modelled.throughput_tokens_per_s", Value: made, Low: made, High: 2 * made}
		c.From = "batch × mean response ÷ time between two updates; the trainer hardly waits, so that engines may be faster: give --metrics"
		if wait > waitShare*period {
			c.Determined, c.Low, c.High = true, 0.95*made, 1.05*made
			c.From = fmt.Sprintf("batch × mean response ÷ time between two updates; the trainer waits %.0f %% of it", 100*wait/period)
		}
		l.found.Constants = append(l.found.Constants, c)
	}
}
