package tinkertest

import (
	"fmt"
	"maps"
	"math"
	"slices"
)

// row is a number a token.
type row []float64

// weights are a model's: the logits that follow each token, as the difference to the base model's, and what Adam
// keeps of them. Rows that are not there are zero.
type weights struct {
	vocabulary    int
	delta         map[int32]row
	first, second map[int32]row // Adam's moments
	steps         int
}

func newWeights(vocabulary int) weights {
	return weights{vocabulary, map[int32]row{}, map[int32]row{}, map[int32]row{}, 0}
}

func (w weights) clone() weights {
	return weights{w.vocabulary, cloned(w.delta), cloned(w.first), cloned(w.second), w.steps}
}

func cloned(rows map[int32]row) map[int32]row {
	c := maps.Clone(rows)
	for k, r := range c {
		c[k] = slices.Clone(r)
	}
	return c
}

// at is a row to change.
func at(rows map[int32]row, token int32, n int) row {
	if rows[token] == nil {
		rows[token] = make(row, n)
	}
	return rows[token]
}

// logprobs are those of every token after one, in nats.
func (w weights) logprobs(after int32) row {
	logits := make(row, w.vocabulary)
	for v := range logits {
		logits[v] = 0.3 * math.Sin(float64(7*int(after)+3*v)) // the base model
		if delta := w.delta[after]; delta != nil {
			logits[v] += delta[v]
		}
	}
	return normal(logits)
}

// normal turns logits into log-probs.
func normal(logits row) row {
	most, sum := slices.Max(logits), 0.0
	for _, x := range logits {
		sum += math.Exp(x - most)
	}
	for v := range logits {
		logits[v] -= most + math.Log(sum)
	}
	return logits
}

// datum is one of a pass.
type datum struct {
	tokens, targets []int32
	inputs          map[string][]float64 // weights, logprobs, advantages
}

// check says what of a datum the model cannot compute on.
func (w weights) check(d datum, l loss) error {
	for _, token := range slices.Concat(d.tokens, d.targets) {
		if token < 0 || int(token) >= w.vocabulary {
			return fmt.Errorf("token %d is not in the vocabulary of %d", token, w.vocabulary)
		}
	}
	if len(d.tokens) != len(d.targets) {
		return fmt.Errorf("%d targets of %d tokens", len(d.targets), len(d.tokens))
	}
	needed, known := lossInputs[l.name]
	if !known {
		return fmt.Errorf("loss %q is not known", l.name)
	}
	for _, name := range needed {
		if len(d.inputs[name]) != len(d.targets) {
			return fmt.Errorf("loss %s: %d %s of %d targets", l.name, len(d.inputs[name]), name, len(d.targets))
		}
	}
	return nil
}

// loss is one by its name in the API.
type loss struct {
	name   string
	config map[string]float64
}

var lossInputs = map[string][]string{
	"cross_entropy":       {"weights"},
	"importance_sampling": {"logprobs", "advantages"},
	"ppo":                 {"logprobs", "advantages"},
	"cispo":               {"logprobs", "advantages"},
}

// of is the loss of target i of a datum at a log-prob, and its derivative by the log-prob.
func (l loss) of(d datum, i int, logprob float64) (value, slope float64) {
	if l.name == "cross_entropy" {
		w := d.inputs["weights"][i]
		return -w * logprob, -w
	}
	advantage := d.inputs["advantages"][i]
	ratio := math.Exp(logprob - d.inputs["logprobs"][i])
	clipped := min(max(ratio, l.bound("clip_low_threshold", 0.8)), l.bound("clip_high_threshold", 1.2))
	switch l.name {
	case "ppo":
		if clipped*advantage < ratio*advantage {
			return -clipped * advantage, 0
		}
	case "cispo":
		return -clipped * logprob * advantage, -clipped * advantage
	}
	return -ratio * advantage, -ratio * advantage
}

func (l loss) bound(name string, otherwise float64) float64 {
	if v, given := l.config[name]; given {
		return v
	}
	return otherwise
}

// pass computes the log-probs of the targets and the loss over all of them; gradient, which may be nil, gathers
// the loss's.
func (w weights) pass(data []datum, l loss, gradient map[int32]row) (logprobs [][]float32, sum float64) {
	for _, d := range data {
		var of []float32
		for i, token := range d.tokens {
			all := w.logprobs(token)
			logprob := all[d.targets[i]]
			value, slope := l.of(d, i, logprob)
			sum += value
			of = append(of, float32(logprob))
			if gradient == nil {
				continue
			}
			g := at(gradient, token, w.vocabulary)
			for v, other := range all {
				g[v] -= slope * math.Exp(other)
			}
			g[d.targets[i]] += slope
		}
		logprobs = append(logprobs, of)
	}
	return logprobs, sum
}

// adam is a step's settings.
type adam struct {
	LearningRate float64 `json:"learning_rate"`
	Beta1        float64 `json:"beta1"`
	Beta2        float64 `json:"beta2"`
	Epsilon      float64 `json:"eps"`
	Norm         float64 `json:"grad_clip_norm"`
}

// step moves the weights along a gradient and returns its norm.
func (w *weights) step(gradient map[int32]row, a adam) (norm float64) {
	for _, token := range slices.Sorted(maps.Keys(gradient)) {
		for _, g := range gradient[token] {
			norm += g * g
		}
	}
	norm = math.Sqrt(norm)
	scale := 1.0
	if a.Norm > 0 && norm > a.Norm {
		scale = a.Norm / norm
	}
	w.steps++
	for token := range gradient {
		at(w.first, token, w.vocabulary)
		at(w.second, token, w.vocabulary)
	}
	bias1, bias2 := 1-math.Pow(a.Beta1, float64(w.steps)), 1-math.Pow(a.Beta2, float64(w.steps))
	for token, first := range w.first {
		second, delta := w.second[token], at(w.delta, token, w.vocabulary)
		for v := range first {
			g := 0.0
			if gradient[token] != nil {
				g = scale * gradient[token][v]
			}
			first[v] = a.Beta1*first[v] + (1-a.Beta1)*g
			second[v] = a.Beta2*second[v] + (1-a.Beta2)*g*g
			delta[v] -= a.LearningRate * (first[v] / bias1) / (math.Sqrt(second[v]/bias2) + a.Epsilon)
		}
	}
	return norm
}
