package study

import (
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// without is a workload of which one source of staleness has been taken out, and everything else
// left as it was.
type without struct {
	sim.Work
	size   int32
	reduce func(r *sim.Response, mean sim.Response)
	// padNS is added to every rollout, so that as many end a second as before.
	padNS int64

	// group is the one that mean is of.
	group loop.GroupID
	mean  sim.Response
}

// Rollout implements sim.Work.
func (w *without) Rollout(r sim.Rollout) sim.Response {
	if r.Group != w.group {
		w.group, w.mean = r.Group, meanOf(w.Work, r, w.size)
	}
	response := w.Work.Rollout(r)
	w.reduce(&response, w.mean)
	response.Tokens = max(response.Tokens, 1)
	response.EnvironmentNS += w.padNS
	return response
}

// meanOf is the mean of a group's rollouts.
func meanOf(work sim.Work, r sim.Rollout, size int32) (mean sim.Response) {
	tokens, ns := int64(0), int64(0)
	for sample := range size {
		one := work.Rollout(sim.Rollout{Group: r.Group, Sample: sample, Attempt: 1, Level: r.Level, Prompt: r.Prompt, Version: r.Version})
		tokens += int64(one.Tokens)
		ns += one.EnvironmentNS
	}
	mean.Tokens = int32(math.Round(float64(tokens) / float64(size)))
	mean.EnvironmentNS = ns / int64(size)
	return mean
}

// sampled is how many groups a workload's mean is taken over.
const sampled = 2000

// meanNS is the mean time of a rollout in its slot.
func meanNS(work sim.Work, size int32, nsPerToken float64) float64 {
	sum := 0.0
	for g := range loop.GroupID(sampled) {
		for sample := range size {
			one := work.Rollout(sim.Rollout{Group: g + 1, Sample: sample, Attempt: 1})
			sum += float64(one.Tokens)*nsPerToken + float64(one.EnvironmentNS)
		}
	}
	return sum / sampled / float64(size)
}

// withoutTail has every rollout of a group take what they take on average.
func withoutTail(r *sim.Response, mean sim.Response) {
	r.Tokens, r.EnvironmentNS = mean.Tokens, mean.EnvironmentNS
}

// withoutGenerating leaves of a rollout what it generates beyond its group's mean.
func withoutGenerating(r *sim.Response, mean sim.Response) { r.Tokens -= mean.Tokens }

// withoutEnvironment leaves of a rollout what it generates.
func withoutEnvironment(r *sim.Response, _ sim.Response) { r.EnvironmentNS = 0 }
