package main

import (
	"math"

	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/internal/transformer"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
	"github.com/headway-rl/headway/train/grpo"
)

// lagMeter adds up what train steps say between two points of a learning curve.
type lagMeter struct {
	steps int
	sum   study.LagPoint
}

// add takes in a step. Its log-ratios are those of the step's start.
func (m *lagMeter) add(r *port.StepReport, batch *port.Batch, epsilon float64) {
	m.steps++
	s := &m.sum
	rollouts := 0.0
	var reward, exact float64
	for g := range batch.Groups {
		for i := range batch.Groups[g].Samples {
			sample := &batch.Groups[g].Samples[i]
			rollouts++
			reward += float64(sample.Reward)
			if sample.Exact {
				exact++
			}
		}
	}
	s.Reward += reward / rollouts
	s.Exact += exact / rollouts
	s.ClipFraction += r.ClipFraction
	s.ActiveClip += r.ActiveClipFraction
	s.Masked += r.MaskedFraction
	s.Truncated += r.TruncatedFraction
	s.MeanLogRatio += r.MeanLogRatio
	s.EffectiveSample += r.EffectiveSampleSize
	s.MaxWeight = max(s.MaxWeight, r.MaxWeight)
	s.GradientNorm += r.GradNorm
	var ratios ratioMoments
	for g := range batch.Groups {
		for i := range batch.Groups[g].Samples {
			sample := &batch.Groups[g].Samples[i]
			ratios.add(r.LogRatios[sample.ID], sample.LossMask)
		}
	}
	s.KL += ratios.kl()
	s.ClipPredicted += grpo.PredictClipFraction(epsilon, epsilon, ratios.kl())
	s.ClipNormal += grpo.PredictOutside(epsilon, epsilon, ratios.kl())
	s.SamplePredicted += math.Exp(-ratios.variance())
}

// point is the curve's point at a step: means over the steps taken in.
func (m *lagMeter) point(step int, accuracy float64) study.LagPoint {
	p, n := m.sum, float64(max(m.steps, 1))
	for _, v := range []*float64{&p.Reward, &p.Exact, &p.ClipFraction, &p.ActiveClip, &p.Masked, &p.Truncated, &p.MeanLogRatio,
		&p.EffectiveSample, &p.KL, &p.ClipPredicted, &p.ClipNormal, &p.SamplePredicted, &p.GradientNorm} {
		*v /= n
	}
	p.Step, p.Accuracy = step, accuracy
	return p
}

// ratioMoments are sums over tokens' log-ratios.
type ratioMoments struct {
	tokens               int
	sum, square          float64
	weight, weightSquare float64
}

// add takes in the sampled tokens of a sequence.
func (m *ratioMoments) add(logRatios []float32, sampled []uint8) {
	for k, x := range logRatios {
		if sampled[k] != 0 {
			m.one(float64(x))
		}
	}
}

func (m *ratioMoments) one(x float64) {
	m.tokens++
	m.sum += x
	m.square += x * x
	r := math.Exp(x)
	m.weight += r
	m.weightSquare += r * r
}

// kl is half the mean square log-ratio, variance that of the log-ratio.
func (m *ratioMoments) kl() float64 { return m.square / (2 * float64(max(m.tokens, 1))) }

func (m *ratioMoments) variance() float64 {
	n := float64(max(m.tokens, 1))
	return max(m.square/n-(m.sum/n)*(m.sum/n), 0)
}

// driftMeter measures how far a policy is from those that sampled earlier batches.
type driftMeter struct {
	model   transformer.Config
	prompt  int
	epsilon float64
	pass    *transformer.Pass
	lags    [len(study.DriftLags)]driftSum
}

// driftSum is what was seen at one lag: sums over tokens, and over batches of what their own
// moments predict, weighed by their tokens.
type driftSum struct {
	ratioMoments
	outside                                    int
	clipPredicted, clipNormal, samplePredicted float64
	sample                                     float64
}

func newDriftMeter(model transformer.Config, promptTokens int, epsilon float64) (*driftMeter, error) {
	pass, err := transformer.NewPass(model)
	return &driftMeter{model: model, prompt: promptTokens, epsilon: epsilon, pass: pass}, err
}

// measure takes in the newest weights and the batches of the last steps, the newest last, each
// sampled by the version it was trained on.
func (d *driftMeter) measure(newest []port.Tensor, behind []port.Batch) error {
	w, err := weights.Parameters(d.model, newest)
	if err != nil {
		return err
	}
	for i, lag := range study.DriftLags {
		at := len(behind) - 1 - lag
		if at < 0 {
			continue
		}
		if err := d.compare(w, &behind[at], &d.lags[i]); err != nil {
			return err
		}
	}
	return nil
}

// compare takes in one batch at one lag.
func (d *driftMeter) compare(w *transformer.Parameters, batch *port.Batch, to *driftSum) error {
	var b transformer.Batch
	var behaviour []float32
	b.Offsets = []int32{0}
	for g := range batch.Groups {
		for i := range batch.Groups[g].Samples {
			s := &batch.Groups[g].Samples[i]
			prompt := len(s.Tokens) - s.ResponseTokens()
			b.Tokens = append(b.Tokens, s.Tokens...)
			for _, mark := range s.LossMask {
				b.Scored = append(b.Scored, mark != 0)
			}
			behaviour = append(behaviour, s.Logprobs...)
			b.Offsets = append(b.Offsets, int32(len(b.Tokens)))
			b.First = append(b.First, int32(d.prompt-prompt))
		}
	}
	logp := make([]float32, len(b.Tokens))
	if err := d.pass.Forward(w, &b, logp); err != nil {
		return err
	}
	var one ratioMoments
	for k, scored := range b.Scored {
		if !scored {
			continue
		}
		x := float64(logp[k]) - float64(behaviour[k])
		one.one(x)
		to.one(x)
		if r := math.Exp(x); r < 1-d.epsilon || r > 1+d.epsilon {
			to.outside++
		}
	}
	n := float64(one.tokens)
	to.clipPredicted += n * grpo.PredictClipFraction(d.epsilon, d.epsilon, one.kl())
	to.clipNormal += n * grpo.PredictOutside(d.epsilon, d.epsilon, one.kl())
	to.samplePredicted += n * math.Exp(-one.variance())
	to.sample += n * one.weight * one.weight / (n * one.weightSquare)
	return nil
}

// points are what was seen, by lag.
func (d *driftMeter) points() []study.DriftPoint {
	var out []study.DriftPoint
	for i, lag := range study.DriftLags {
		s := &d.lags[i]
		if s.tokens == 0 {
			continue
		}
		n := float64(s.tokens)
		out = append(out, study.DriftPoint{Lag: lag, Tokens: s.tokens, KL: s.kl(), MeanLogRatio: s.sum / n, ClipFraction: float64(s.outside) / n,
			EffectiveSample: s.sample / n, ClipPredicted: s.clipPredicted / n, ClipNormal: s.clipNormal / n, SamplePredicted: s.samplePredicted / n})
	}
	return out
}
