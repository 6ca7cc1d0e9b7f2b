package compare

import (
	"errors"
	"math"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/predict/experiment"
)

// resimulateKeys are the keys of a document that a resimulation can change: the loop's rules,
// and the time of a weight sync. What else took time was measured, and stays.
var resimulateKeys = []string{"preset", "schedule", "rollout.concurrency", "rollout.group_size", "rollout.start", "rollout.placement", "rollout.redundancy", "rollout.oversample",
	"rollout.partial", "rollout.prune.tokens", "train.batch", "queue", "control", "sync", "filter.zero_advantage", "filter.solve_rate", "engines", "failures", "trainer.steps", capKey, syncKey}

// capKey is the length at which responses are cut.
const capKey = "modelled.length.cap_tokens"

// syncKey is the time of a weight sync.
const syncKey = "modelled.sync.time_s"

// Factors on what was measured.
const (
	timesStep        = "times.train_step"
	timesDecode      = "times.decode"
	timesEnvironment = "times.environment"
)

// WhatIf is one setting to resimulate.
type WhatIf struct {
	// set are its keys as they were given.
	set []string
	// Document is the run's with those of them that are a document's.
	Document config.Config
	// Factors on times, 1 where nothing was said; capTokens 0.
	step, decode float64
	environment  *float64
	capTokens    int32
	// sync says that the time of a sync is the document's, though that be what the run was set to: a live one measured another.
	sync bool
}

// ParseWhatIf reads the keys of one setting of a recorded run.
func ParseWhatIf(header trace.Header, set []string) (WhatIf, error) {
	w := WhatIf{set: set, step: 1, decode: 1}
	var document []string
	for _, text := range set {
		key, value, ok := strings.Cut(text, "=")
		known := slices.ContainsFunc(resimulateKeys, func(k string) bool { return key == k || strings.HasPrefix(key, k+".") })
		var err error
		switch {
		case !ok:
			err = failure.Usage("headway resimulate --help", "%q: expected KEY=VALUE", text)
		case key == timesStep:
			w.step, err = factor(text, value, false)
		case key == timesDecode:
			w.decode, err = factor(text, value, false)
		case key == timesEnvironment:
			var f float64
			f, err = factor(text, value, true)
			w.environment = &f
		case key == capKey:
			var n int64
			if n, err = strconv.ParseInt(value, 10, 32); err != nil || n < 1 {
				err = failure.Usage("headway resimulate --help", "%s: expected a length in tokens, at least 1", text)
			}
			w.capTokens = int32(n)
		case !known:
			err = failure.Usage("headway simulate takes a whole document", "--set %s: a resimulation has the run's own lengths and times; it can change %s, and multiply %s",
				text, strings.Join(resimulateKeys, ", "), strings.Join([]string{timesStep, timesDecode, timesEnvironment}, ", "))
		default:
			document = append(document, text)
			w.sync = w.sync || key == syncKey
		}
		if err != nil {
			return w, err
		}
	}
	recorded, err := config.ParseRecorded("config of the trace", []byte(header.Config))
	if err == nil {
		recorded, err = recorded.Set(document...)
	}
	if err == nil {
		w.Document, err = recorded.Resolve()
	}
	return w, err
}

// factorMost bounds factors on times, and its inverse does: beyond it times are none that a run has.
const factorMost = 1e6

// factor reads a factor on times.
func factor(text, value string, zero bool) (float64, error) {
	v, err := strconv.ParseFloat(value, 64)
	switch {
	case err != nil || math.IsInf(v, 0) || !(v >= 0):
		return 0, failure.Usage("0.5 is half the time, 2 twice as long", "%s: expected a factor on the measured times", text)
	case v > factorMost || v > 0 && v < 1/factorMost:
		return 0, failure.Usage("0.5 is half the time, 2 twice as long", "%s: expected a factor from %g to %g", text, 1/factorMost, factorMost)
	case v == 0 && !zero:
		return 0, failure.Usage("0.5 is half the time, 2 twice as long", "%s: nothing takes no time: expected a factor above 0", text)
	}
	return v, nil
}

// settings is what a setting changes of a recorded run.
func (w *WhatIf) settings(header trace.Header) (replay.Settings, error) {
	recorded, err := config.ParseRecorded("config of the trace", []byte(header.Config))
	if err == nil {
		recorded, err = recorded.Resolve()
	}
	if err != nil {
		return replay.Settings{}, err
	}
	rules := w.Document.LoopConfig()
	rules.TrainerAsks = header.Loop.TrainerAsks // how the run was served, not what it was set to
	s := replay.Settings{Loop: &rules, StepScale: w.step, OutsideScale: w.environment, CapTokens: w.capTokens}
	if w.decode > 0 {
		s.SpeedScale = 1 / w.decode
	}
	if w.sync || w.Document.Modelled.Sync.TimeS != recorded.Modelled.Sync.TimeS {
		s.SyncNS = nsOf(w.Document.Modelled.Sync.TimeS)
	}
	if w.Document.Rollout.Prune.Tokens != recorded.Rollout.Prune.Tokens {
		s.PruneTokens = int32(w.Document.Rollout.Prune.Tokens)
	}
	if w.Document.Trainer.Steps != recorded.Trainer.Steps {
		s.Steps = w.Document.Trainer.Steps
	}
	return s, nil
}

// steps is how many train steps a setting is resimulated for: as many as consume what the run did, if it
// does not say.
func (w *WhatIf) steps(recording *replay.Recording) int64 {
	settings, err := w.settings(recording.Header)
	if err != nil || settings.Loop.BatchGroups <= 0 {
		return 0 // it is refused
	}
	if settings.Steps > 0 {
		return int64(settings.Steps)
	}
	return int64(recording.Version) * int64(recording.Header.Loop.BatchGroups) / int64(settings.Loop.BatchGroups)
}

// resimulate makes one arm. What cannot be made says so in the arm.
func (w *WhatIf) resimulate(recording *replay.Recording, stepped func()) (arm Arm) {
	arm = Arm{Set: append([]string{}, w.set...), Unsettled: []experiment.Unsettled{}, Warnings: []string{}}
	settings, err := w.settings(recording.Header)
	if err != nil {
		arm.err = err
		return arm
	}
	var split *attribution.Observer
	settings.Beside, settings.Stepped = besideTo(&split), stepped
	again, err := recording.Resimulate(settings)
	arm.Extrapolated, arm.Steps, arm.WarmupSteps = again.Extrapolated, again.Steps, again.Warmup
	arm.Warnings = append(arm.Warnings, again.Warnings...)
	switch {
	case errors.Is(err, sim.ErrStalled):
		arm.err = experiment.StallError(w.Document, err)
	case err != nil:
		arm.err = failure.Run("", "%w", err)
	}
	if arm.err != nil {
		arm.Refused = strings.TrimPrefix(err.Error(), "replay: ")
		return arm
	}
	attributed := split.Summary()
	arm.Unsettled = unsettledAfter(again.Series, loop.Version(again.Warmup))
	arm.again, arm.Summary, arm.Ledger, arm.Attribution = again, &again.Summary, &again.Ledger, &attributed
	return arm
}

// compare fills in the arm's figures, against the run's own settings unless it is these.
func (a *Arm) compare(own *replay.Resimulation, other bool) {
	switch {
	case a.err != nil:
	case other:
		a.Estimates = replay.Estimates(a.again, own)
	default:
		a.Estimates = replay.Estimates(a.again, nil)
	}
}
