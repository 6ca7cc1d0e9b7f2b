package tinker

import (
	"errors"
	"fmt"
	"math"
	"strings"
)

// checkData says what a service would refuse, or compute nonsense from, before anything is sent.
func checkData(data []Datum, loss Loss) error {
	if len(data) == 0 {
		return errors.New("no data: want at least one datum")
	}
	for name, v := range loss.Config {
		if math.IsNaN(v) || math.IsInf(v, 0) {
			return fmt.Errorf("loss %s: setting %s is %v: want a finite number", loss.Name, name, v)
		}
	}
	if loss.Name == "" {
		return errors.New("the loss has no name: want cross_entropy, importance_sampling, ppo or cispo")
	}
	for i, d := range data {
		if err := d.check(loss.Name); err != nil {
			return fmt.Errorf("datum %d of %d: %w", i, len(data), err)
		}
	}
	return nil
}

func (d Datum) check(loss string) error {
	if len(d.Tokens) == 0 {
		return errors.New("no tokens")
	}
	if len(d.Targets) != len(d.Tokens) {
		return fmt.Errorf("%d targets of %d tokens: want one a token", len(d.Targets), len(d.Tokens))
	}
	for _, ids := range []struct {
		name   string
		values []int32
	}{{"token", d.Tokens}, {"target", d.Targets}} {
		for i, id := range ids.values {
			if id < 0 {
				return fmt.Errorf("%s %d is %d: want an id of at least 0", ids.name, i, id)
			}
		}
	}
	for _, f := range []struct {
		name   string
		values []float32
		needed bool
	}{
		{nameWeights, d.Weights, loss == "cross_entropy"},
		{nameLogprobs, d.Logprobs, isRatio(loss)},
		{nameAdvantages, d.Advantages, isRatio(loss)},
	} {
		if err := checkFloats(f.name, f.values, len(d.Targets), f.needed, loss); err != nil {
			return err
		}
	}
	return nil
}

// isRatio says whether a loss is one of the ratio of two policies.
func isRatio(loss string) bool {
	return loss == "importance_sampling" || loss == "ppo" || loss == "cispo"
}

func checkFloats(name string, values []float32, want int, needed bool, loss string) error {
	if values == nil {
		if needed {
			return fmt.Errorf("no %s, which loss %s reads", name, loss)
		}
		return nil
	}
	if len(values) != want {
		return fmt.Errorf("%d %s of %d targets: want one a target", len(values), name, want)
	}
	for i, v := range values {
		if math.IsNaN(float64(v)) || math.IsInf(float64(v), 0) {
			return fmt.Errorf("%s %d is %v: want a finite number", name, i, v)
		}
	}
	return nil
}

// size is a datum's in a request, in bytes as Tinker's client counts them.
func (d Datum) size() int {
	return 4*len(d.Tokens) + 8*len(d.Targets) + 4*(len(d.Weights)+len(d.Logprobs)+len(d.Advantages))
}

// divide divides data, in its order, into what one request each may have. A datum that alone is too large goes alone,
// for the service to judge.
func (l limits) divide(data []Datum) (chunks [][]Datum) {
	from, bytes := 0, 0
	for i, d := range data {
		if i > from && (i-from == l.MostData || bytes+d.size() > l.MostBytes) {
			chunks, from, bytes = append(chunks, data[from:i]), i, 0
		}
		bytes += d.size()
	}
	return append(chunks, data[from:])
}

// checkOutput says whether a service has computed what it was asked for.
func checkOutput(o Output, data []Datum) error {
	if len(o.Logprobs) != len(data) {
		return fmt.Errorf("the service returns log-probs of %d data: want those of %d", len(o.Logprobs), len(data))
	}
	for i, logprobs := range o.Logprobs {
		if len(logprobs) != len(data[i].Targets) {
			return fmt.Errorf("the service returns %d log-probs of datum %d: want %d", len(logprobs), i, len(data[i].Targets))
		}
	}
	return nil
}

// combine puts the outputs of chunks together. A metric's name says after its colon how; metrics of no such
// word are the last chunk's.
func combine(outputs []Output) Output {
	if len(outputs) == 1 {
		return outputs[0]
	}
	all := Output{Metrics: map[string]float64{}}
	weights := map[string]float64{}
	for _, o := range outputs {
		for name, v := range o.Metrics {
			before, seen := all.Metrics[name]
			if !seen {
				all.Metrics[name], weights[name] = v, float64(len(o.Logprobs))
				continue
			}
			all.Metrics[name] = reduce(name, before, v, weights[name], float64(len(o.Logprobs)))
			weights[name] += float64(len(o.Logprobs))
		}
		all.Logprobs = append(all.Logprobs, o.Logprobs...)
	}
	return all
}

// reduce puts two values of a metric together, each over a number of data.
func reduce(name string, a, b, dataA, dataB float64) float64 {
	_, how, _ := strings.Cut(name, ":")
	switch how {
	case "sum":
		return a + b
	case "mean":
		return (a*dataA + b*dataB) / (dataA + dataB)
	case "min":
		return min(a, b)
	case "max":
		return max(a, b)
	}
	return b
}
