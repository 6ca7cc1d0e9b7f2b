package plan

import (
	"math"

	"github.com/headway-rl/headway/predict/schedule"
	"github.com/headway-rl/headway/predict/theory"
)

// effectiveBatch is B_eff, the independent rollouts that a setting's batch is
// worth: rewards of a group's rollouts are correlated by their prompt, and where
// the document says how fast the policy drifts, stale ones weigh less.
func (e *evaluator) effectiveBatch(c *Candidate, f *Figures) float64 {
	d := &e.problem.Document
	batch, size := float64(c.BatchRollouts), float64(d.Rollout.GroupSize)
	worth, err := theory.EffectiveRollouts(batch, size, d.Search.RewardCorrelation, 1, max(theory.EffectiveShare(e.drift(f)), 1e-6))
	if err != nil {
		return batch
	}
	return worth
}

// drift is the variance of a token's log-ratio at the mean staleness, 0 where the
// document does not say modelled.train.drift_nats_per_version: that is the mean absolute
// log-ratio of a version, which grows with the lag; a normal one has π/2 times
// its square as variance.
func (e *evaluator) drift(f *Figures) float64 {
	d := &e.problem.Document
	if !d.Given("modelled.train.drift_nats_per_version") {
		return 0
	}
	lag := f.StalenessMean * d.Modelled.Train.DriftNatsPerVersion
	return math.Pi / 2 * lag * lag
}

// clipFraction is the share of tokens expected outside the trainer's band, 0
// where the drift is unknown.
func (e *evaluator) clipFraction(f *Figures) float64 {
	variance := e.drift(f)
	if variance == 0 {
		return 0
	}
	epsilon := e.problem.Document.Trainer.ClipEpsilon
	return schedule.ClipFraction(variance/2, epsilon, epsilon)
}
