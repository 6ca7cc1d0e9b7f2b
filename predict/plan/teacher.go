package plan

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/hardware"
	"github.com/headway-rl/headway/predict/theory"
)

// Teacher is one server of the teacher's, which scores one rollout after the other. The zero Teacher is none.
type Teacher struct {
	// Model is a preset's name, GPUs are those of a server.
	Model string `json:"model,omitempty"`
	GPUs  int    `json:"gpus,omitempty"`
}

// teacherSlots is how many rollouts a server has room for: the one it reads, and one to follow.
const teacherSlots = 2

// WithTeacher adds the scoring by hardware.teacher to a document and to its raw form, where modelled.scorer does not say
// how fast it is. Scores are one prefill of prompt and response by the roofline, on the fewest GPUs that hold the model.
// A server reads one rollout at a time, since compute binds it. The error is a [config.Errors].
func WithTeacher(raw, document config.Config, lengths *workload.Lengths) (config.Config, config.Config, Teacher, error) {
	h := document.Hardware
	if h.Teacher == "" {
		return raw, document, Teacher{}, nil
	}
	fail := func(err error) (config.Config, config.Config, Teacher, error) { return raw, document, Teacher{}, err }
	model, err := hardware.ModelNamed(h.Teacher)
	if err != nil {
		return fail(document.Refuse("hardware.teacher", unknownName(err), ""))
	}
	gpu, err := hardware.GPUNamed(h.GPU)
	if err != nil {
		return fail(document.Refuse("hardware.teacher", "is read on GPUs that hardware.gpu does not name", "a preset in hardware.gpu"))
	}
	r := hardware.Replica{Model: model, GPU: gpu, WeightBytes: h.WeightBytes, KVBytes: h.KVBytes, MemoryUse: h.MemoryUse, PrefillUse: h.PrefillUse,
		PromptTokens: h.PromptTokens + toolTokens(document), MeanTokens: lengths.Mean(), MeanSquareTokens: lengths.MeanSquare()}
	if r, err = hardware.SmallestReplica(r, teacherSlots); err != nil {
		return fail(document.Refuse("hardware.teacher", err.Error(), ""))
	}
	teacher := Teacher{Model: model.Name, GPUs: r.GPUs}
	if !document.Modelled.Scorer.None() {
		return raw, document, teacher, nil
	}
	read := r.PromptTokens + lengths.Mean()
	speed := read / r.PrefillSeconds(read)
	set := []string{"modelled.scorer.tokens_per_s=" + plain(round6(speed))}
	// A plan's prompt need not be the simulation's, whose engines have its reading in their speeds.
	if beside := h.PromptTokens - float64(document.Modelled.PromptTokens); beside > 0 {
		set = append(set, fmt.Sprintf("modelled.scorer.time={kind: fixed, mean_s: %s}", plain(round6(beside/speed))))
	}
	if raw, err = raw.Set(set...); err != nil {
		return fail(err)
	}
	resolved, err := raw.Resolve()
	if err != nil {
		return fail(err)
	}
	document, err = resolved.ForPlan()
	return raw, document, teacher, err
}

// scoring says how many scorers keep the pool from binding, by the closed form of a queue of that many servers.
func (s *search) scoring(add answerer, rate float64) {
	d, c := &s.problem.Document, &s.plan.Recommended
	scoreS := d.ScoreMeanS(s.eval.tokens)
	if scoreS <= 0 {
		return
	}
	pool := theory.Pool{Slots: c.Concurrency(), AwayS: s.eval.tokens/c.DecodeTokensPerS + math.Max(s.eval.meanS-scoreS, 0), ServiceS: scoreS}
	// A trainer that binds has the slots pass no more than it takes.
	pool.AwayS = math.Max(pool.AwayS, float64(pool.Slots)/rate-scoreS)
	need := theory.PoolServers(pool, bindsAt)
	busy := rate * scoreS
	if t := s.problem.Teacher; t.GPUs > 0 {
		add("teachers", float64(need*t.GPUs), "GPUs", "teachers: %s of %s with %s each, %s beside the plan's: a score takes %.2g s, %.3g are scored at once on average",
			report.Counted(need, "server"), t.Model, report.Counted(t.GPUs, "GPU"), report.Counted(need*t.GPUs, "GPU"), scoreS, busy)
		return
	}
	add("teachers", float64(need), "scores at once", "scorers: %.3g scores at once on average, %d with room for chance", busy, need)
}

// teachersText is the answer about scorers, "" where nothing scores: GPUs that the plan needs beside its own come first.
func (p *Plan) teachersText() string {
	for _, a := range p.Answers {
		if a.Question == "teachers" {
			return a.Text
		}
	}
	return ""
}
