package study

import (
	"context"

	"github.com/headway-rl/headway/config"
)

// LagRun is one run of the study of staleness. Its policy learns a task from batches of which each
// was sampled exactly Lag versions before it is trained on.
type LagRun struct {
	// Document has the task, the model, the batch, the number of train steps, the
	// correction and the seed. Its schedule, queue and engines mean nothing here.
	Document config.Config
	// WarmupRate is the learning rate of the supervised warm-up that makes version 0, so that
	// lessons of other rates begin with the same policy.
	WarmupRate float64
	// Lag in versions: batch t is sampled by version max(0, t−Lag) and trained on by version t.
	Lag int
	// EvaluateEvery is how many train steps lie between two points of the learning
	// curve; held-out accuracy is measured at each, over Document.Environment.HeldOut prompts.
	EvaluateEvery int
	// DriftEvery measures how far the policy has moved from those of DriftLags versions
	// before, every so many steps; 0 never. It needs Lag 0.
	DriftEvery int
}

// DriftLags are the lags at which a lesson's drift is measured.
var DriftLags = [...]int{1, 2, 4, 8, 16}

// Learned is what came of a lesson.
type Learned struct {
	// Curve has a point at step 0 and at every EvaluateEvery steps.
	Curve []LagPoint `json:"curve"`
	// Broke says why the policy could not be trained on, such as a gradient that is no
	// number; "" if it could to the end. The curve ends there.
	Broke string `json:"broke,omitempty"`
	// Drift is by lag, in the order of DriftLags; nil where it was not measured.
	Drift []DriftPoint `json:"drift,omitempty"`
}

// LagPoint is one point of a learning curve: the accuracy at a step. It also has the means of the
// train steps' own statistics since the point before.
type LagPoint struct {
	Step int `json:"step"`
	// Accuracy is the share of held-out prompts that are answered exactly, greedily.
	Accuracy float64 `json:"accuracy"`
	// Reward is the mean of the batches, Exact the share of their rollouts that are wholly right.
	Reward float64 `json:"reward"`
	Exact  float64 `json:"exact"`
	// ClipFraction is the share of tokens with a ratio outside the band. ActiveClip is that of those
	// that lost their gradient to clipping, Masked of those left out, Truncated of those with a
	// bounded weight.
	ClipFraction float64 `json:"clip_fraction"`
	ActiveClip   float64 `json:"active_clip_fraction"`
	Masked       float64 `json:"masked_fraction"`
	Truncated    float64 `json:"truncated_fraction"`
	// MeanLogRatio is of log π_θ − log π_b, in nats; EffectiveSample is ESS/N; MaxWeight the largest ratio
	// of any token since the point before.
	MeanLogRatio    float64 `json:"mean_log_ratio"`
	EffectiveSample float64 `json:"effective_sample_size"`
	MaxWeight       float64 `json:"max_weight"`
	// KL is half the mean square log-ratio, in nats a token.
	KL float64 `json:"kl"`
	// ClipPredicted and ClipNormal are the clip fractions expected at each step's own KL. The first is by the closed
	// form, the second by a normal law with the band's true edges. SamplePredicted is exp(−Var log r), the expected
	// ESS/N.
	ClipPredicted   float64 `json:"clip_fraction_predicted"`
	ClipNormal      float64 `json:"clip_fraction_normal"`
	SamplePredicted float64 `json:"effective_sample_size_predicted"`
	// GradientNorm is the mean norm of a step's gradient, before it is bounded.
	GradientNorm float64 `json:"gradient_norm"`
}

// DriftPoint is how far a policy was from that of so many versions before, over all tokens that the
// older one had sampled. Every figure means the same as in LagPoint.
type DriftPoint struct {
	Lag             int     `json:"lag"`
	Tokens          int     `json:"tokens"`
	KL              float64 `json:"kl"`
	MeanLogRatio    float64 `json:"mean_log_ratio"`
	ClipFraction    float64 `json:"clip_fraction"`
	EffectiveSample float64 `json:"effective_sample_size"`
	ClipPredicted   float64 `json:"clip_fraction_predicted"`
	ClipNormal      float64 `json:"clip_fraction_normal"`
	SamplePredicted float64 `json:"effective_sample_size_predicted"`
}

// Teach runs a lesson. The same lesson gives the same figures however many run beside
// it; an error is of a lesson that cannot be run.
type Teach func(ctx context.Context, lesson LagRun) (Learned, error)
