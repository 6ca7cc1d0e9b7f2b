package experiment

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/predict/theory"
)

// ReadForecast returns the prediction that stands in a run's trace before its first event.
func ReadForecast(dir string) (Forecast, error) {
	var p Forecast
	log, err := trace.Open(dir)
	if err != nil {
		return p, err
	}
	defer log.Close()
	reader, err := trace.NewReader(log)
	for err == nil {
		var rec trace.Record
		if rec, err = reader.Next(); err == nil && rec.Note == trace.NotePrediction {
			return p, json.Unmarshal(rec.Data, &p)
		}
		if rec.Event != nil {
			break
		}
	}
	if errors.Is(err, io.EOF) {
		err = nil
	}
	return p, err
}

// Probe is what a short probe of the real engines, environment and trainer
// measures before a run, with the untrained policy.
type Probe struct {
	// Rollouts finished in WindowS seconds, with all slots busy and the trainer stepping.
	Rollouts int     `json:"rollouts"`
	WindowS  float64 `json:"window_s"`
	// RolloutsPerS is the production rate, StepS the median train step.
	RolloutsPerS float64 `json:"rollouts_per_s"`
	StepS        float64 `json:"step_s"`
	// Utilization is ρ, TailMultiplier E[longest of a group]/E[rollout] of durations.
	Utilization    float64 `json:"utilization"`
	TailMultiplier float64 `json:"tail_multiplier"`
}

// Forecast is what is expected of a run before its first step: the closed form, corrected
// where a correction is known. It stands in the trace, with a digest, ahead of every event.
type Forecast struct {
	StalenessMean *float64 `json:"staleness_mean"`
	PQS           *float64 `json:"pqs"`
	IQS           *float64 `json:"iqs"`
	PeriodS       *float64 `json:"period_s"`
	Regime        string   `json:"regime"`
	Warnings      []string `json:"warnings,omitempty"`
	Probe         Probe    `json:"probe"`
	// SHA256 of this object with an empty SHA256.
	SHA256 string `json:"sha256"`
}

// UnmarshalJSON reads a forecast from a trace, which an earlier version may have written: there the
// probe is named calibration. SHA256 stays that of the text as it was written.
func (p *Forecast) UnmarshalJSON(text []byte) error {
	type plain Forecast
	read := struct {
		*plain
		Earlier *Probe `json:"calibration"`
	}{plain: (*plain)(p)}
	if err := json.Unmarshal(text, &read); err != nil {
		return err
	}
	if read.Earlier != nil {
		p.Probe = *read.Earlier
	}
	return nil
}

// ForecastRun says what to expect of a run from its config and the probe.
func ForecastRun(cfg config.Config, c Probe) (Forecast, error) {
	p := Forecast{Probe: c}
	expected, err := Expect(cfg, measuredInput(cfg, c.Utilization, c.TailMultiplier, c.StepS, 1))
	if err != nil {
		return p, err
	}
	p.Regime, p.Warnings = expected.Regime, expected.Warnings
	best := expected.Corrected
	p.StalenessMean, p.PQS, p.IQS = cmp.Or(Optional(best.Mean), Optional(expected.Staleness.Mean)), cmp.Or(Optional(best.PQS), Optional(expected.PQS)), cmp.Or(Optional(best.IQS), Optional(expected.IQS))
	p.PeriodS = cmp.Or(Optional(best.Period.S), Optional(expected.Period.S))
	text, err := json.Marshal(p)
	if err != nil {
		return p, err
	}
	sum := sha256.Sum256(text)
	p.SHA256 = hex.EncodeToString(sum[:])
	return p, nil
}

// measuredInput is a run's setting with rates that were measured, environment
// time and contention included.
func measuredInput(cfg config.Config, utilization, tail, stepS, acceptance float64) theory.Input {
	in := theory.Input{
		ConcurrencyRollouts: float64(cfg.Rollout.Concurrency), BatchRollouts: float64(cfg.Train.Batch), GroupSize: cfg.Rollout.GroupSize,
		QueueFactor: float64(cfg.QueueGroups()) / float64(cfg.BatchGroups()), Utilization: utilization,
		TailMultiplier: min(max(tail, 1), float64(cfg.Rollout.GroupSize)), StepS: stepS, Acceptance: acceptance,
		Policy: cfg.Queue.Policy, MaxStaleness: cfg.Queue.MaxStaleness, Select: cfg.Queue.Select, Start: cfg.Rollout.Start,
		SyncEvery: cfg.Sync.Every, SyncTrainer: cfg.Sync.Trainer, SyncMode: cfg.Sync.Mode,
	}
	if cfg.Schedule == theory.PolicySynchronous {
		in.Policy = theory.PolicySynchronous
	}
	return in.WithDefaults()
}

// Optional is a known figure's value, nil for an unknown one.
func Optional(f theory.Figure) *float64 {
	if v, ok := f.Value(); ok {
		return &v
	}
	return nil
}
