package tinker

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strings"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/train/grpo"
	"github.com/headway-rl/headway/train/sequence"
)

// step is a batch, ready to be sent.
type step struct {
	batch port.Batch
	all   []sequence.Sequence
	parts [][]sequence.Sequence
	keep  bool
}

// prepare finds what a batch cannot be trained on for before the service hears of it.
func (t *Trainer) prepare(batch port.Batch) (*step, error) {
	all, err := sequence.Of(batch, t.opt.NormalizeStd, trainable)
	if err != nil {
		return nil, err
	}
	s := &step{batch: batch, all: all, keep: t.opt.KeepLogRatios != nil && t.opt.KeepLogRatios(batch.Version)}
	if s.keep {
		sequence.KeepRatios(all)
	}
	if t.opt.Minibatches > 1 {
		sequence.Proximal(all)
	}
	division := sequence.Division{Parts: t.opt.Minibatches, Shuffle: t.opt.ShuffleMinibatches, Seed: t.opt.Seed}
	if s.parts, err = division.Minibatches(all, len(batch.Groups), batch.Version); err != nil {
		return nil, err
	}
	for i, part := range s.parts {
		if sequence.Scored(part) == 0 {
			return nil, fmt.Errorf("trainer: a batch without a token to train on in minibatch %d of %d", i+1, len(s.parts))
		}
	}
	return s, nil
}

// trainable refuses what no model takes. What is too long for the service's it refuses itself.
func trainable(s *sequence.Sequence) error {
	if s.Prompt < 1 {
		return fmt.Errorf("trainer: rollout %v has a sequence without a token before the first that the policy sampled, want at least 1", s.ID)
	}
	for k, token := range s.Tokens {
		if token < 0 {
			return fmt.Errorf("trainer: rollout %v has the token %d at %d, want ids from 0", s.ID, token, k)
		}
	}
	return nil
}

// run makes the optimizer steps of one train step.
func (t *Trainer) run(ctx context.Context, s *step) (port.StepReport, error) {
	report := port.StepReport{Minibatches: len(s.parts), Metrics: map[string]float64{}}
	sequence.Sizes(&report, s.batch.Groups, s.all)
	t.reporter.Begin(&t.correction, &t.tally)
	if len(s.parts) > 1 {
		if err := t.measure(ctx, s.all); err != nil {
			return report, err
		}
	}
	for i, part := range s.parts {
		err := t.optimize(ctx, &report, part, i == 0 && len(s.parts) > 1)
		if err != nil && len(s.parts) > 1 {
			err = fmt.Errorf("minibatch %d of %d: %w", i+1, len(s.parts), err)
		}
		if err != nil {
			return report, err
		}
	}
	t.reporter.Tell(&report, s.batch.Groups, s.parts, &t.tally)
	if s.keep {
		report.LogRatios = sequence.LogRatios(s.all)
	}
	return report, nil
}

// optimize makes one optimizer step. Measured says that the model has the weights of the proximal log-probs.
func (t *Trainer) optimize(ctx context.Context, report *port.StepReport, part []sequence.Sequence, measured bool) error {
	d := newData(part)
	output, err := t.backward(ctx, d, measured)
	if err != nil {
		return err
	}
	gather(report.Metrics, output.Metrics)
	stepped, err := t.model.OptimStep(ctx, service.Adam{LearningRate: t.opt.LearningRate, GradientNorm: t.opt.GradientNorm})
	if err != nil {
		return fmt.Errorf("the optimizer's step: %w", err)
	}
	gather(report.Metrics, stepped)
	t.averages = t.averages || isSkyRL(stepped)
	report.GradNorm = max(report.GradNorm, gradientNorm(stepped))
	return nil
}

// backward adds the gradient of the part's mean loss at the service, and takes in what it saw. A loss that
// the service has takes one pass. Any other is taken to where the model stands by a first one: what the second
// adds up, −Σ exp(logp − q)·A with q those very log-probs, has the derivative −A by each, which is what is asked for.
// Cross-entropy with weights would say the same, but there are services that divide it by the weights' sum.
func (t *Trainer) backward(ctx context.Context, d *data, measured bool) (service.Output, error) {
	if loss, ok := t.lossThere(); ok {
		d.advantages()
		d.level(t.averages)
		output, err := t.model.ForwardBackward(ctx, d.datums, loss)
		if err != nil {
			return output, fmt.Errorf("the pass of the loss %s: %w", loss.Name, err)
		}
		current, err := d.logprobs(output)
		if err != nil {
			return output, err
		}
		d.derive(&t.tally, &t.correction, current)
		return output, nil
	}
	current, err := d.proximal(), error(nil)
	if !measured {
		current, err = t.forward(ctx, d)
	}
	if err != nil {
		return service.Output{}, err
	}
	d.gradient(d.derive(&t.tally, &t.correction, current), current)
	d.level(t.averages)
	output, err := t.model.ForwardBackward(ctx, d.datums, service.Loss{Name: "importance_sampling"})
	if err != nil {
		return output, fmt.Errorf("the pass of the derivative: %w", err)
	}
	_, err = d.logprobs(output)
	return output, err
}

// lossThere is the service's own loss, where it has the very same one.
func (t *Trainer) lossThere() (service.Loss, bool) {
	c := &t.correction
	names := map[grpo.Kind]string{grpo.PPOClip: "ppo", grpo.CISPO: "cispo"}
	if c.VersionMask != grpo.VersionsAll || c.MaxSpans > 0 || names[c.Kind] == "" {
		return service.Loss{}, false
	}
	return service.Loss{Name: names[c.Kind], Config: map[string]float64{"clip_low_threshold": 1 - c.EpsilonLow, "clip_high_threshold": 1 + c.EpsilonHigh}}, true
}

// measure asks for the log-probs of the weights that the step begins with, for which the sequences have room.
func (t *Trainer) measure(ctx context.Context, all []sequence.Sequence) error {
	d := newData(all)
	start, err := t.forward(ctx, d)
	if err != nil {
		return err
	}
	for i, s := range d.sequences {
		copy(s.Proximal, start[i])
	}
	return nil
}

// forward asks for the log-probs of all tokens, one entry a token of each sequence.
func (t *Trainer) forward(ctx context.Context, d *data) ([][]float32, error) {
	d.marks()
	output, err := t.model.Forward(ctx, d.datums, service.Loss{Name: "cross_entropy"})
	if err != nil {
		return nil, fmt.Errorf("the pass for log-probs: %w", err)
	}
	return d.logprobs(output)
}

// data are sequences as the service takes them. One without a token that the policy sampled is none of them: it
// has nothing to learn and nothing to tell.
type data struct {
	sequences []*sequence.Sequence
	datums    []service.Datum
	scored    float32
}

func newData(part []sequence.Sequence) *data {
	d := &data{scored: float32(sequence.Scored(part))}
	for i := range part {
		s := &part[i]
		if s.Scored() == 0 {
			continue
		}
		n := len(s.Tokens) - 1
		d.sequences = append(d.sequences, s)
		d.datums = append(d.datums, service.Datum{Tokens: s.Tokens[:n], Targets: s.Tokens[1:]})
	}
	return d
}

// fill makes the columns of the data anew; set is called for every target that the policy sampled, with the place
// of the token in its sequence.
func (d *data) fill(weights bool, set func(i, target, token int)) {
	for i, s := range d.sequences {
		n := len(s.Tokens) - 1
		datum := &d.datums[i]
		datum.Weights, datum.Logprobs, datum.Advantages = nil, nil, nil
		if weights {
			datum.Weights = make([]float32, n)
		} else {
			datum.Logprobs, datum.Advantages = make([]float32, n), make([]float32, n)
		}
		for k := range n {
			if s.Sampled[k+1] != 0 {
				set(i, k, k+1)
			}
		}
	}
}

// marks weighs what the policy sampled by 1.
func (d *data) marks() {
	d.fill(true, func(i, target, _ int) { d.datums[i].Weights[target] = 1 })
}

// advantages are for a loss of the service: each token's is divided by their number, so that it adds up a mean.
func (d *data) advantages() {
	d.fill(false, func(i, target, token int) {
		s := d.sequences[i]
		d.datums[i].Logprobs[target], d.datums[i].Advantages[target] = s.Logprobs[token], s.Advantage/d.scored
	})
}

// gradient is for a loss whose derivative by each log-prob is known at the current ones.
func (d *data) gradient(derivative, current [][]float32) {
	d.fill(false, func(i, target, token int) {
		d.datums[i].Logprobs[target], d.datums[i].Advantages[target] = current[i][token], -derivative[i][token]
	})
}

// proximal are the log-probs that the step began with, by token.
func (d *data) proximal() [][]float32 {
	out := make([][]float32, len(d.sequences))
	for i, s := range d.sequences {
		out[i] = s.Proximal
	}
	return out
}

// level gives, where a service averages, all data one sum of weights, so that a token counts as much in a long sequence as
// in a short one: 1 where the policy sampled, and what is left on the first target where it did not, whose advantage is 0.
// A sequence that has none, after a prompt of one token, cannot be levelled and counts by its own length.
//
// SkyRL's backend in JAX averages: a datum's loss is divided by the sum of its weights, each 1 if they are not
// given, and the gradient by the number of data. That number is the same for all data of a step, and of its size Adam takes no notice but for the steps before. What
// SkyRL trains with otherwise adds up, and does what it did without weights. Other services are not sent any:
// these losses have none.
func (d *data) level(averages bool) {
	if !averages {
		return
	}
	most := 0
	for i := range d.datums {
		most = max(most, len(d.datums[i].Targets))
	}
	for i, s := range d.sequences {
		weights, rest := make([]float32, len(d.datums[i].Targets)), most
		for k := range weights {
			weights[k] = float32(s.Sampled[k+1])
			rest -= int(s.Sampled[k+1])
		}
		if k := slices.Index(s.Sampled[1:], 0); k >= 0 {
			weights[k] = float32(rest)
		}
		d.datums[i].Weights = weights
	}
}

// derive computes the derivative of the loss by each token's log-prob, and takes in what it saw.
func (d *data) derive(tally *sequence.Tally, c *grpo.Correction, current [][]float32) [][]float32 {
	out := make([][]float32, len(d.sequences))
	for i, s := range d.sequences {
		out[i] = make([]float32, len(s.Tokens))
		tally.Gradient(c, out[i], s, current[i], d.scored)
	}
	return out
}

// errAnswer is wrapped by errors of passes whose answer cannot be.
var errAnswer = errors.New("the service's answer cannot be right")

// logprobs are those of an output by token, 0 for what was not sampled, if they can be: as many as were asked for, and finite.
func (d *data) logprobs(output service.Output) ([][]float32, error) {
	if len(output.Logprobs) != len(d.datums) {
		return nil, fmt.Errorf("%w: log-probs of %d sequences, want those of %d", errAnswer, len(output.Logprobs), len(d.datums))
	}
	out := make([][]float32, len(d.datums))
	for i, s := range d.sequences {
		got, n := output.Logprobs[i], len(s.Tokens)-1
		if len(got) != n {
			return nil, fmt.Errorf("%w: %d log-probs of rollout %v, want one of each of its %d targets", errAnswer, len(got), s.ID, n)
		}
		out[i] = make([]float32, len(s.Tokens))
		for k, x := range got {
			if s.Sampled[k+1] == 0 {
				continue
			}
			if y := float64(x); math.IsNaN(y) || math.IsInf(y, 0) {
				return nil, fmt.Errorf("%w: token %d of rollout %v has the log-prob %v, want a finite number. The weights have run away, or engine and trainer have different models; lower the learning rate",
					errAnswer, k+1, s.ID, x)
			}
			out[i][k+1] = x
		}
	}
	return out, nil
}

// gather takes in the metrics of one more pass: those that are sums add up, of any other the last stays. What is
// no finite number is none.
func gather(to, metrics map[string]float64) {
	for name, x := range metrics {
		switch {
		case math.IsNaN(x) || math.IsInf(x, 0):
		case strings.HasSuffix(name, ":sum"):
			to[name] += x
		default:
			to[name] = x
		}
	}
}

// isSkyRL recognizes a SkyRL server by the names of its optimizer's metrics, the first that it says of itself.
func isSkyRL(metrics map[string]float64) bool {
	for name := range metrics {
		if strings.HasPrefix(name, "skyrl.ai/") {
			return true
		}
	}
	return false
}

// gradientNorm is the norm that a service says the gradient had, 0 where it says none.
func gradientNorm(metrics map[string]float64) float64 {
	for _, name := range []string{"skyrl.ai/grad_norm", "unclipped_grad_l2:mean", "grad_norm:mean", "grad_norm"} {
		if x, ok := metrics[name]; ok && !math.IsNaN(x) && !math.IsInf(x, 0) {
			return x
		}
	}
	return 0
}
