package code

import (
	"math/rand/v2"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/env"
)

// inputs are the lists on which programs for a problem are run: a function of the prompt alone, so
// that all rollouts of a group have the same ones. One has few different values, for what depends on
// repetition, where there are enough others that tell a wrong statement from a right one.
func (t *Task) inputs(p env.Problem) [][]int64 {
	seed := uint64(1469598103934665603)
	for _, token := range p.Prompt {
		seed = (seed ^ uint64(token)) * 1099511628211
	}
	rng := rand.New(rand.NewPCG(seed, 0x636f6465))
	inputs := make([][]int64, t.tests)
	for i := range inputs {
		bound := int64(9)
		if i == 7 {
			bound = 2
		}
		inputs[i] = make([]int64, 4+rng.IntN(4))
		for k := range inputs[i] {
			inputs[i][k] = rng.Int64N(2*bound+1) - bound
		}
	}
	return inputs
}

// written is a list as Python writes it.
func written(x []int64) string {
	var b strings.Builder
	b.WriteByte('[')
	for i, v := range x {
		if i > 0 {
			b.WriteString(", ")
		}
		b.WriteString(strconv.FormatInt(v, 10))
	}
	b.WriteByte(']')
	return b.String()
}

// observed is what a program did on one input: the lists it yielded, and whether it came to its end.
type observed struct {
	stages []string
	ended  bool
}

// score compares what a program did with what was asked for. Of every input the stages that are
// right up to the first that is not count, and, where there is any, the right number of them; out of the
// longer of the two and 1. So the first statement that becomes right raises the reward, then the second,
// and a policy that starts from noise climbs.
func (t *Task) score(p env.Problem, response []int32, runs []observed) env.Score {
	asked := t.asked(p)
	inputs := t.inputs(p)
	exact, sum := ended(response), 0.0
	for i, x := range inputs {
		var got observed
		if i < len(runs) {
			got = runs[i]
		}
		want := run(asked, x)
		right := 0
		for right < min(len(want), len(got.stages)) && want[right] == got.stages[right] {
			right++
		}
		checks := 1 + max(len(want), len(got.stages))
		if right > 0 && len(got.stages) == len(want) && got.ended && ended(response) {
			right++
		}
		exact = exact && right == checks
		sum += float64(right) / float64(checks)
	}
	if exact {
		return env.Score{Reward: 1, Exact: true}
	}
	return env.Score{Reward: min(sum/float64(len(inputs)), 1-1e-6)}
}
