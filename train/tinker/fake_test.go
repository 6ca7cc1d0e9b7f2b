package tinker

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math"
	"math/rand/v2"
	"slices"
	"testing"

	service "github.com/headway-rl/headway/internal/tinker"
)

// vocabulary of the toy policy: the logits of a token are a row of weights, by the token before it.
const vocabulary = 7

// toy is a policy with Adam, in float64: what a model at the service is, as small as can be.
type toy struct {
	weights, gradient, mean, variance []float64
	steps                             int
	epsilon                           float64
}

func newToy(seed int64) *toy {
	n := vocabulary * vocabulary
	p := &toy{weights: make([]float64, n), gradient: make([]float64, n), mean: make([]float64, n), variance: make([]float64, n), epsilon: 1e-6}
	rng := rand.New(rand.NewPCG(uint64(seed), 1))
	for i := range p.weights {
		p.weights[i] = rng.NormFloat64() / 2
	}
	return p
}

func (p *toy) clone() *toy {
	c := *p
	c.weights, c.gradient, c.mean, c.variance = slices.Clone(p.weights), slices.Clone(p.gradient), slices.Clone(p.mean), slices.Clone(p.variance)
	return &c
}

// logp is the log-prob of a token after another; descend adds to the gradient the derivative of a loss by it.
func (p *toy) logp(before, token int32) float64 {
	row := p.weights[before*vocabulary:][:vocabulary]
	sum := 0.0
	for _, x := range row {
		sum += math.Exp(x)
	}
	return row[token] - math.Log(sum)
}

func (p *toy) descend(before, token int32, derivative float64) {
	for other := range int32(vocabulary) {
		d := -math.Exp(p.logp(before, other))
		if other == token {
			d++
		}
		p.gradient[before*vocabulary+other] += derivative * d
	}
}

// step is Adam's, along the gathered gradient, which it clears and whose norm it returns.
func (p *toy) step(rate float64) (norm float64) {
	p.steps++
	for i, g := range p.gradient {
		norm += g * g
		p.mean[i] = 0.9*p.mean[i] + 0.1*g
		p.variance[i] = 0.95*p.variance[i] + 0.05*g*g
		p.weights[i] -= rate * p.mean[i] / (1 - math.Pow(0.9, float64(p.steps))) / (math.Sqrt(p.variance[i]/(1-math.Pow(0.95, float64(p.steps)))) + p.epsilon)
	}
	clear(p.gradient)
	return math.Sqrt(norm)
}

// host is a service: models, and what they have saved, by path.
type host struct {
	models int
	states map[string]*toy
	// calls are the operations in their order, as MODEL OPERATION.
	calls []string
	// before and after, if not nil, say of the operation numbered so from 0 how it fails, without or with its effect.
	before, after func(call int) error
	// bend, if not nil, changes an output.
	bend func(*service.Output)
	// passes are the data of forward-backward passes, with their losses.
	passes []pass
	// averages makes it one that divides a datum's loss by the sum of its weights, as SkyRL's own backend does.
	averages bool
	// gradients are those that were stepped along.
	gradients [][]float64
	// unloaded is how many models were given back.
	unloaded int
}

type pass struct {
	data []service.Datum
	loss service.Loss
}

func newHost() *host { return &host{states: map[string]*toy{}} }

// adapter is a model of a host.
type adapter struct {
	host   *host
	id     int
	toy    *toy
	broken bool
}

// errFault is what tests have operations fail with.
var errFault = errors.New("the wire was cut")

// do executes an operation, or fails.
func (a *adapter) do(ctx context.Context, what string, effect func() error) error {
	call := len(a.host.calls)
	a.host.calls = append(a.host.calls, fmt.Sprintf("%d %s", a.id, what))
	if a.broken {
		return service.ErrBroken
	}
	err := ctx.Err()
	if err == nil && a.host.before != nil {
		err = a.host.before(call)
	}
	if err == nil {
		err = effect()
	}
	if err == nil && a.host.after != nil {
		err = a.host.after(call)
	}
	a.broken = err != nil && !errors.Is(err, service.ErrRefused)
	return err
}

// newModel makes an adapter; it is an operation as well.
func (h *host) newModel(ctx context.Context) (model, error) {
	h.models++
	a := &adapter{host: h, id: h.models}
	if err := a.do(ctx, "create", func() error { a.toy = newToy(5); return nil }); err != nil {
		return nil, err
	}
	return a, nil
}

func (a *adapter) pass(ctx context.Context, what string, data []service.Datum, loss service.Loss) (out service.Output, err error) {
	err = a.do(ctx, what, func() error {
		out.Metrics = map[string]float64{"loss:sum": 0}
		for _, d := range data {
			logprobs := make([]float32, len(d.Targets))
			for k := range d.Targets {
				logp := a.toy.logp(d.Tokens[k], d.Targets[k])
				logprobs[k] = float32(logp)
				value, derivative := tokenLoss(&d, k, logp, loss)
				if a.host.averages {
					derivative *= share(&d, k)
				}
				out.Metrics["loss:sum"] += value
				if what == "backward" && derivative != 0 {
					a.toy.descend(d.Tokens[k], d.Targets[k], derivative)
				}
			}
			out.Logprobs = append(out.Logprobs, logprobs)
		}
		if a.host.bend != nil {
			a.host.bend(&out)
		}
		return nil
	})
	return out, err
}

// share is what a target counts for where a datum's loss is an average by weights.
func share(d *service.Datum, k int) float64 {
	if d.Weights == nil {
		return 1 / float64(len(d.Targets))
	}
	sum := 0.0
	for _, w := range d.Weights {
		sum += float64(w)
	}
	return float64(d.Weights[k]) / max(sum, 1e-9)
}

// tokenLoss is a service's loss of one target, and its derivative by the target's log-prob.
func tokenLoss(d *service.Datum, k int, logp float64, loss service.Loss) (value, derivative float64) {
	if loss.Name == "cross_entropy" {
		return -float64(d.Weights[k]) * logp, -float64(d.Weights[k])
	}
	a, ratio := float64(d.Advantages[k]), math.Exp(logp-float64(d.Logprobs[k]))
	clipped := min(max(ratio, loss.Config["clip_low_threshold"]), loss.Config["clip_high_threshold"])
	switch loss.Name {
	case "importance_sampling":
		return -ratio * a, -ratio * a
	case "ppo":
		if clipped*a < ratio*a {
			return -clipped * a, 0
		}
		return -ratio * a, -ratio * a
	case "cispo":
		return -clipped * a * logp, -clipped * a
	}
	panic("no loss is called " + loss.Name)
}

func (a *adapter) Forward(ctx context.Context, data []service.Datum, loss service.Loss) (service.Output, error) {
	return a.pass(ctx, "forward", data, loss)
}

func (a *adapter) ForwardBackward(ctx context.Context, data []service.Datum, loss service.Loss) (service.Output, error) {
	a.host.passes = append(a.host.passes, pass{data, loss})
	return a.pass(ctx, "backward", data, loss)
}

func (a *adapter) OptimStep(ctx context.Context, adam service.Adam) (metrics map[string]float64, err error) {
	err = a.do(ctx, "step", func() error {
		a.host.gradients = append(a.host.gradients, slices.Clone(a.toy.gradient))
		metrics = map[string]float64{"grad_norm": a.toy.step(adam.LearningRate)}
		if a.host.averages {
			metrics = map[string]float64{"skyrl.ai/grad_norm": metrics["grad_norm"]}
		}
		return nil
	})
	return metrics, err
}

func (a *adapter) SaveState(ctx context.Context, name string) (string, error) {
	return a.save(ctx, "state", name)
}

func (a *adapter) SaveSampler(ctx context.Context, name string) (string, error) {
	return a.save(ctx, "sampler", name)
}

func (a *adapter) save(ctx context.Context, kind, name string) (string, error) {
	path := fmt.Sprintf("tinker://%d/%s/%s", a.id, kind, name)
	err := a.do(ctx, "save "+kind, func() error {
		if _, taken := a.host.states[path]; taken {
			return fmt.Errorf("%w: %s is there", service.ErrRefused, path)
		}
		a.host.states[path] = a.toy.clone()
		return nil
	})
	if err != nil {
		return "", err
	}
	return path, nil
}

func (a *adapter) LoadState(ctx context.Context, path string) error {
	return a.do(ctx, "load", func() error {
		there, ok := a.host.states[path]
		if !ok {
			return service.ErrGone
		}
		a.toy = there.clone()
		return nil
	})
}

// Unload gives the adapter's place back.
func (a *adapter) Unload(context.Context) error {
	a.host.unloaded++
	return nil
}

// weights are what a host has saved of a version, state and sampler alike.
func (h *host) weights(t *testing.T, v *Versions, version int64) []float64 {
	t.Helper()
	r, err := v.readFile(fileName(loopVersion(version)))
	if err != nil {
		t.Fatal(err)
	}
	state, sampler := h.states[r.State], h.states[r.Sampler]
	if state == nil || sampler == nil || !slices.Equal(state.weights, sampler.weights) || state.steps != sampler.steps || maxOf(state.gradient) != 0 {
		t.Fatalf("version %d is recorded as %+v; of that the service has %v", version, r, slices.Sorted(maps.Keys(h.states)))
	}
	return state.weights
}

func maxOf(xs []float64) (most float64) {
	for _, x := range xs {
		most = max(most, math.Abs(x))
	}
	return most
}
