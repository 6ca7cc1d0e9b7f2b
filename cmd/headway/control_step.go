package main

import (
	"strconv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// controlLine is a controller in a line of metrics.jsonl.
type controlLine struct {
	// State is settling, keeping, correcting, unreachable or silent.
	State string `json:"state"`
	// MeasuredMean is the mean staleness over the window of train steps that ends with this one; absent while unknown.
	MeasuredMean *float64 `json:"measured_mean,omitempty"`
	// MeasuredShare is the share of what these steps trained on within the target's versions; absent while unknown, and without such a target.
	MeasuredShare *float64 `json:"measured_share,omitempty"`
	// BatchMean is the mean staleness of this step's batch alone, as the controller counts.
	BatchMean *float64 `json:"batch_mean,omitempty"`
	// BatchShare is the share within the target's versions of this step's batch alone.
	BatchShare *float64 `json:"batch_share,omitempty"`
	// Judged says that the step counts: enough steps are measured. Until then it is not held.
	Judged bool `json:"judged"`
	// Held says that the goal held over the window that ends with this step.
	Held bool `json:"held"`
	// BatchHeld says that this step's batch alone met the goal.
	BatchHeld bool `json:"batch_held"`
	// Settings are where those that may move stand after the step: concurrency, live_groups, hold, queue_groups, redundancy, sync_every, engines.
	Settings map[string]float64 `json:"settings"`
}

// newControlLine is the controller after a step; nil without a goal.
func newControlLine(s *loop.ControlStatus, p *metrics.StepControl) *controlLine {
	if s == nil || p.State == loop.ControlOff {
		return nil
	}
	known := func(value float64) *float64 {
		if value < 0 {
			return nil
		}
		return &value
	}
	line := &controlLine{State: p.State.String(), MeasuredMean: known(p.Mean), MeasuredShare: known(p.Share), BatchMean: known(p.Batch), BatchShare: known(p.BatchShare),
		Judged: p.Judged, Held: p.Held, BatchHeld: p.BatchHeld, Settings: map[string]float64{}}
	for _, setting := range s.Settings {
		line.Settings[setting.Name] = setting.Value
	}
	return line
}

// movedSettings are the settings that a controller may move, by name and place; none without one.
func movedSettings(c *metrics.Control) []loop.Setting {
	if c == nil {
		return nil
	}
	var out []loop.Setting
	for _, s := range c.Settings {
		if setting, err := loop.ParseSetting(s.Name); err == nil {
			out = append(out, setting)
		}
	}
	return out
}

// appendControl appends the controller after one train step of a simulation, to an object that goes on.
func appendControl(b []byte, p *metrics.StepControl, moved []loop.Setting) []byte {
	b = append(b, `, "control": {"state": "`...)
	b = append(append(b, p.State.String()...), '"')
	for _, figure := range [...]struct {
		name  string
		value float64
	}{{"measured_mean", p.Mean}, {"measured_share", p.Share}, {"batch_mean", p.Batch}, {"batch_share", p.BatchShare}} {
		if figure.value >= 0 {
			b = append(append(append(b, `, "`...), figure.name...), `": `...)
			b = strconv.AppendFloat(b, figure.value, 'g', -1, 64)
		}
	}
	for _, truth := range [...]struct {
		name string
		is   bool
	}{{"judged", p.Judged}, {"held", p.Held}, {"batch_held", p.BatchHeld}} {
		b = append(append(append(b, `, "`...), truth.name...), `": `...)
		b = strconv.AppendBool(b, truth.is)
	}
	b = append(b, `, "settings": {`...)
	for i, setting := range moved {
		if i > 0 {
			b = append(b, `, `...)
		}
		b = append(append(append(b, '"'), setting.String()...), `": `...)
		b = strconv.AppendFloat(b, p.Settings[setting], 'g', -1, 64)
	}
	return append(b, `}}`...)
}
