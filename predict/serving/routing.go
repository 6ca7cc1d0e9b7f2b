package serving

import (
	"fmt"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/drive/sim/serving"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/loop/workload/session"
	"github.com/headway-rl/headway/predict/hardware"
)

// What rows of rollouts do not tell: how uneven lengths are, and the share of a GPU's memory that an engine takes which
// shares it with a trainer, as verl's examples set it.
const (
	rolloutTailness  = 50
	colocatedMemory  = 0.6
	rolloutsArriveS  = 1.0
	mostRolloutCalls = 200000
)

var promptCapPattern = regexp.MustCompile(`prompts at most (\d+)`)

// Rollouts predicts the generation of one synchronous step, from a row of the table of published runs. The answer has
// SpanS, from the first call to the last end, and PrefixHit. The note names the placement.
func Rollouts(row map[string]string) (Answer, error) {
	s := &setup{id: row["id"]}
	config, err := s.rolloutEngines(row)
	if err != nil {
		return Answer{}, err
	}
	sessions, err := s.rollouts(row)
	if err != nil {
		return Answer{}, err
	}
	result, err := serving.Run(config, sessions)
	if err != nil {
		return Answer{}, err
	}
	a := Answer{ID: s.id, Assumed: s.assumed, Calls: len(result.Calls), Preemptions: result.Preemptions()}
	a.SpanS = value(result.EndS - result.Calls[0].ArriveS)
	a.PrefixHit = value(result.HitRate())
	a.OutputTokensPerS = value(result.OutputTokensPerS())
	a.TTFTMS = value(1e3 * serving.Over(result.Calls, (*serving.Call).TTFT).Mean)
	a.TPOTMS = value(1e3 * serving.Over(result.Calls, (*serving.Call).TPOT).Mean)
	return a, nil
}

// rolloutEngines reads the engines of a row.
func (s *setup) rolloutEngines(row map[string]string) (serving.Config, error) {
	model, err := hardware.ModelNamed(row["model"])
	if err != nil {
		return serving.Config{}, err
	}
	gpu, err := hardware.GPUNamed(row["gpu"])
	if err != nil {
		return serving.Config{}, err
	}
	w := workers{count: number(row["rollout_replicas"]), tensor: max(number(row["rollout_tp"]), 1), data: 1}
	if w.count < 1 {
		return serving.Config{}, fmt.Errorf("rollout_replicas %q: expected a number of engines", row["rollout_replicas"])
	}
	rule, err := rolloutPlacement(row["note"])
	if err != nil {
		return serving.Config{}, err
	}
	r, err := replica(w, model, gpu, numbers{row["rollout_dtype"], 2})
	if err != nil {
		return serving.Config{}, err
	}
	if strings.Contains(row["schedule"], "colocated") {
		r.MemoryUse = colocatedMemory
		s.assume("engines take %g of a GPU's memory beside the trainer", colocatedMemory)
	}
	e := serving.Engine{StepS: StepCost(r), BlockTokens: defaultBlock, BatchedTokens: defaultBatched, Sequences: defaultSequences}
	mean := float64(number(row["mean_prompt_tokens"]) + number(row["mean_response_tokens"]))
	if e.CacheTokens, err = CacheTokens(r, mean); err != nil {
		return serving.Config{}, err
	}
	return serving.Config{Replicas: w.count, Engine: e, Placement: rule}, nil
}

// rolloutPlacement reads a rule in the words of the tables.
func rolloutPlacement(note string) (serving.Placement, error) {
	switch {
	case strings.Contains(note, "prefix affinity"):
		return serving.GroupLeastLoaded, nil
	case strings.Contains(note, "least in flight"):
		return serving.LeastLoaded, nil
	case strings.Contains(note, "round robin"):
		return serving.RoundRobin, nil
	case strings.Contains(note, "consistent hash"):
		return serving.ConsistentHash, nil
	case strings.Contains(note, "sticky"):
		return serving.StickyLeastLoaded, nil
	case strings.Contains(note, "cache-aware"):
		return serving.PrefixWeighted, nil
	}
	return "", fmt.Errorf("note %q names no placement that is known: expected one such as \"round robin\" or \"least in flight\"", note)
}

// rollouts are the calls of one step: groups in order, all within about a second.
func (s *setup) rollouts(row map[string]string) ([]session.Session, error) {
	prompts, samples := number(row["prompts"]), max(number(row["samples"]), 1)
	if prompts < 1 || prompts*samples > mostRolloutCalls {
		return nil, fmt.Errorf("prompts %q of %d rollouts: expected at least one, and at most %d rollouts", row["prompts"], samples, mostRolloutCalls)
	}
	promptCap := 0
	if found := promptCapPattern.FindStringSubmatch(row["cap_of"]); found != nil {
		promptCap = number(found[1])
	}
	input, err := drawn("mean_prompt_tokens", row, promptCap)
	if err != nil {
		return nil, err
	}
	output, err := drawn("mean_response_tokens", row, number(row["cap_tokens"]))
	if err != nil {
		return nil, err
	}
	s.assume("lengths are lognormal of tailness %d, and prompts share nothing between groups", rolloutTailness)
	random := rand.New(rand.NewPCG(25, 2))
	all := make([]session.Session, 0, prompts*samples)
	for group := range prompts {
		tokens := int(input.Quantile(random.Float64()))
		for sample := range samples {
			at := rolloutsArriveS * float64(len(all)) / float64(prompts*samples)
			call := session.Call{InputTokens: tokens, OutputTokens: int(output.Quantile(random.Float64()))}
			all = append(all, session.Session{Group: group, Sample: sample, StartS: at, Calls: []session.Call{call}})
		}
	}
	return all, nil
}

// drawn is the distribution of a length with a published mean and cap.
func drawn(column string, row map[string]string, limit int) (*workload.Lengths, error) {
	mean, err := strconv.ParseFloat(row[column], 64)
	if err != nil {
		return nil, fmt.Errorf("%s %q: expected a mean in tokens", column, row[column])
	}
	if limit == 0 {
		limit = int(16 * mean)
	}
	l, err := workload.LengthSpec{Kind: "lognormal", MeanTokens: mean, Tailness: rolloutTailness, CapTokens: limit}.Build()
	if err != nil {
		return nil, fmt.Errorf("%s: %w", column, err)
	}
	return l, nil
}
