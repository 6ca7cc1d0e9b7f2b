package steps

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Control is a controller in a line of metrics.jsonl.
type Control struct {
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

// NewControl is the controller after a step; nil without a goal.
func NewControl(s *loop.ControlStatus, p *metrics.StepControl) *Control {
	if s == nil || p.State == loop.ControlOff {
		return nil
	}
	known := func(value float64) *float64 {
		if value < 0 {
			return nil
		}
		return &value
	}
	line := &Control{State: p.State.String(), MeasuredMean: known(p.Mean), MeasuredShare: known(p.Share), BatchMean: known(p.Batch), BatchShare: known(p.BatchShare),
		Judged: p.Judged, Held: p.Held, BatchHeld: p.BatchHeld, Settings: map[string]float64{}}
	for _, setting := range s.Settings {
		line.Settings[setting.Name] = setting.Value
	}
	return line
}
