package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/workload"
)

// validation is the state of the evaluations of a run.
type validation struct {
	// next is the first version to be validated.
	next loop.Version
	// untilNS is when the engines go on.
	untilNS int64
	// slots are used while a validation is worked out.
	slots []validating
}

// validating is a slot in which validated rollouts are generated: when it is free
// again, its time of a token and its engine's relative speed.
type validating struct{ end, nsPerToken, relative float64 }

// firstValidated is the number of a group that no loop opens: those that are
// validated are numbered from here on, so that their draws are their own.
const firstValidated = loop.GroupID(1) << 48

// due reports whether a version is to be validated, and remembers that it was.
func (v *validation) due(version loop.Version, every int) bool {
	if every == 0 || version < v.next {
		return false
	}
	v.next = (version/loop.Version(every) + 1) * loop.Version(every)
	return true
}

// validateEngines has all engines stand still for a validation, if the version that
// a sync has brought is due.
func (r *runner) validateEngines(version loop.Version) {
	v := &r.cfg.Validation
	if v.Trainer || !r.validation.due(version, v.Every) {
		return
	}
	ns := r.validationNS(version)
	r.rec.Validated(ns)
	r.validation.untilNS = max(r.validation.untilNS, r.now) + ns
	for i := range r.engines {
		if !r.engines[i].lost {
			r.holdEngine(int32(i), heldByValidation, true)
		}
	}
}

// validated has the engines go on.
func (r *runner) validated() {
	for i := range r.engines {
		if !r.engines[i].lost {
			r.holdEngine(int32(i), heldByValidation, false)
		}
	}
	r.validation.untilNS = 0
}

// validateTrainer returns how much later a train step from a version begins, for a
// validation at the trainer.
func (r *runner) validateTrainer(version loop.Version) int64 {
	v := &r.cfg.Validation
	if !v.Trainer || !r.validation.due(version, v.Every) {
		return 0
	}
	ns := r.validationNS(version)
	r.rec.TrainerValidates(ns)
	return ns
}

// validationNS is how long a validation takes: the makespan of its rollouts in all
// slots, each taking the next as it is free, at the speed at which all of them
// generate. Nothing of it waits for another but for a slot.
func (r *runner) validationNS(version loop.Version) int64 {
	v := &r.cfg.Validation
	if v.NS > 0 {
		return v.NS
	}
	slots := r.validation.slots[:0]
	for i, n := range r.cfg.Loop.EngineSlots {
		speed := r.cfg.relative(i)
		if r.cfg.Speed != nil {
			speed *= max(r.cfg.Speed(n, r.busy), 1e-9)
		}
		for range n {
			slots = append(slots, validating{0, r.cfg.NSPerToken / speed, r.cfg.relative(i)})
		}
	}
	r.validation.slots = slots
	last := 0.0
	for i := range v.Rollouts {
		group := firstValidated + loop.GroupID(version)*loop.GroupID(v.Rollouts) + loop.GroupID(i)
		w := r.cfg.Work.Rollout(Rollout{Group: group, Attempt: 1, Version: version})
		first := &slots[0]
		first.end += float64(w.Tokens)*first.nsPerToken + float64(w.EnvironmentNS)
		if r.agents != nil {
			first.end += float64(r.agents.besideNS(group, version, w, first.relative))
		}
		last = max(last, first.end)
		sink(slots)
	}
	return int64(math.Round(last))
}

// sink puts the first of a heap of slots to its place, after it has become free later.
func sink(h []validating) {
	for i := 0; ; {
		first := i
		for child := 2*i + 1; child <= 2*i+2 && child < len(h); child++ {
			if h[child].end < h[first].end {
				first = child
			}
		}
		if first == i {
			return
		}
		h[i], h[first] = h[first], h[i]
		i = first
	}
}

// besideNS is what a validated rollout's prompt, tools, sandbox and judge take at an
// engine of that speed, if it waits for none of them and nothing fails.
func (w *agents) besideNS(group loop.GroupID, version loop.Version, res Response, relative float64) int64 {
	turn := workload.Turn{Group: uint64(group), Attempt: 1}
	calls := w.callsOf(turn, res.Tokens, version)
	ns := w.readNS(int64(w.cfg.PromptTokens), relative) + int64(calls)*w.readNS(int64(w.cfg.ToolTokens), relative) + w.judgeNS(turn)
	if s := w.cfg.Sandboxes; s != nil && (s.Early || calls > 0 || res.EnvironmentNS > 0) {
		ns += w.startNS(turn)
	}
	for ; turn.Turn < uint32(calls); turn.Turn++ {
		ns += w.cfg.Tools.CallNS(w.draw.tool, turn)
	}
	return ns
}
