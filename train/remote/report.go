package remote

import (
	"math"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// MetricsMax bounds the metrics of a step, MetricNameMax the bytes of their names.
const (
	MetricsMax    = 1024
	MetricNameMax = 128
)

// stamps are the versions of the weights that a step's forward pass used and that its
// optimizer changed.
type stamps struct{ forward, step loop.Version }

// check refuses stamps that cannot be of a step from version.
func (s stamps) check(version loop.Version) error {
	switch {
	case s.forward == loop.NoVersion && s.step == loop.NoVersion: // not stamped
	case s.forward < 0 || s.step < 0:
		return protocol.Refuse(protocol.CodeInvalid, "forward_version %d and step_version %d: want both from 0, or both %d", s.forward, s.step, loop.NoVersion)
	case s.forward != s.step || s.forward != version:
		return protocol.Refuse(protocol.CodeConflict, "weight version skew: the forward pass used version %d, the optimizer changed version %d, and the batch starts from version %d: they must agree. Nothing was committed",
			s.forward, s.step, version).With("forward_version", s.forward).With("step_version", s.step).With("version", version)
	}
	return nil
}

// checkMetrics refuses metrics that are no numbers.
func checkMetrics(metrics map[string]float64) error {
	if len(metrics) > MetricsMax {
		return protocol.Refuse(protocol.CodeInvalid, "%d metrics, want at most %d", len(metrics), MetricsMax)
	}
	for name, value := range metrics {
		if name == "" || len(name) > MetricNameMax {
			return protocol.Refuse(protocol.CodeInvalid, "a metric is called %.140q, want a name of 1 to %d bytes", name, MetricNameMax)
		}
		if math.IsNaN(value) || math.IsInf(value, 0) {
			return protocol.Refuse(protocol.CodeInvalid, "metric %q is %g, want a finite number: look at the step before it is published", name, value).With("metric", name)
		}
	}
	return nil
}

// stepReport is what Train returns of a step. What has no field goes under its own name.
func (o *offer) stepReport(metrics map[string]float64) port.StepReport {
	lease := o.batch.Lease()
	r := port.StepReport{Rollouts: lease.Rollouts, Tokens: lease.Tokens, Minibatches: 1}
	fields := map[string]*float64{
		"loss": &r.Loss, "grad_norm": &r.GradNorm, "clip_fraction": &r.ClipFraction, "active_clip_fraction": &r.ActiveClipFraction,
		"mean_log_ratio": &r.MeanLogRatio, "effective_sample_size": &r.EffectiveSampleSize,
		"mean_weight": &r.MeanWeight, "max_weight": &r.MaxWeight,
		"masked_fraction": &r.MaskedFraction, "truncated_fraction": &r.TruncatedFraction,
		"mean_proximal_log_ratio": &r.MeanProximalLogRatio,
	}
	for name, value := range metrics {
		switch field := fields[name]; {
		case field != nil:
			*field = value
		case name == "minibatches" && value >= 1 && value <= math.MaxInt32:
			r.Minibatches = int(value)
		default:
			if r.Metrics == nil {
				r.Metrics = make(map[string]float64)
			}
			r.Metrics[name] = value
		}
	}
	return r
}
