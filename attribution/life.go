package attribution

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/metrics"
)

// quantum is what versions are counted in, so that parts add up exactly in any order: 2^-20 of one,
// which a float64 holds exactly up to 2^33 versions.
const quantum = 1 << 20

// quanta is a Split in quanta.
type quanta [Sources]int64

// split returns it in versions, divided by n.
func (q *quanta) split(n int64) (s Split) {
	for i, part := range q {
		s[i] = float64(part) / quantum / float64(max(n, 1))
	}
	return s
}

// scored counts a rollout that its group keeps.
func (o *Observer) scored(ev *loop.Event, m *metrics.Measured) {
	if !o.vacate(ev) {
		return
	}
	g := o.groups.get(ev.Group)
	switch {
	case g == nil:
	case ev.Verdict == loop.VerdictPruned, ev.Reward-ev.Reward != 0: // no finite number is a failure
		g.left()
	default:
		g.Flying--
		g.Scored++
		g.EndsNS += o.s.Now - g.BegunNS
		g.EnvironmentNS += m.EnvironmentNS
	}
}

// firstToken may bring the beginning of a group forward: it lives from its first token on, and
// what waited until then at its engine was not generating.
func (o *Observer) firstToken(ev *loop.Event) {
	if uint(ev.Slot) >= uint(len(o.s.Slots)) {
		return
	}
	u := &o.s.Slots[ev.Slot]
	if u.Group != ev.Group || u.Sample != ev.Sample || u.Attempt != ev.Attempt || u.Aborted {
		return
	}
	g := o.groups.get(ev.Group)
	if g == nil || g.Seen || g.Scored > 0 {
		return
	}
	g.Seen = true
	g.Begun, g.Due, g.BegunNS = o.s.Version, o.s.Due, o.s.Now
	g.Born = max(g.Born, min(ev.Version, o.minServed()))
}

// ready splits what a group has lived through up to being ready, the first time it is: one that
// was held is queued later, and one that a lease gave back may be held again.
func (o *Observer) ready(a *loop.Action) {
	g := o.groups.get(a.Group)
	if g == nil || g.Ready || a.StartVersion < 0 {
		return
	}
	g.Ready, g.ReadyLease = true, o.s.Lease
	g.Before = quanta{}
	// What had been made when it began was not served yet.
	begun := min(max(g.Begun, a.StartVersion), a.ReadyVersion)
	late := min(max(g.Due-a.StartVersion, 0), begun-a.StartVersion)
	g.Before[Sync] = int64(late) * quantum
	g.Before[Inner] = int64(begun-a.StartVersion-late) * quantum
	mean := g.BegunNS + g.EndsNS/int64(max(g.Scored, 1))
	after := o.madeAfter(mean, begun, a.ReadyVersion)
	g.Before[Tail] = int64(after) * quantum
	generating := int64(a.ReadyVersion-begun-after) * quantum
	g.Before[Environment] = int64(math.Floor(float64(generating) * g.environmentShare()))
	g.Before[Concurrency] = generating - g.Before[Environment]
}

// environmentShare is the share of its rollouts' time, from its beginning to their ends, that their
// environments took.
func (g *life) environmentShare() float64 {
	if g.EndsNS <= 0 {
		return 0
	}
	return min(float64(g.EnvironmentNS)/float64(g.EndsNS), 1)
}

// madeAfter counts the versions above one and up to another that were made after a time.
func (o *Observer) madeAfter(ns int64, above, upTo loop.Version) (n loop.Version) {
	above = max(above, o.s.Version-remembered)
	for v := upTo; v > above && o.s.Made[int(v)%remembered].NS > ns; v-- {
		n++
	}
	return n
}

// train splits the staleness of a group that was trained.
func (o *Observer) train(a *loop.Action) {
	g := o.groups.get(a.Group)
	if g == nil || !g.Ready || a.StartVersion < 0 {
		return
	}
	total, _, queued := a.Staleness()
	split := g.Before
	split[Fill] = int64(o.madeWithout(g.ReadyLease, a.ReadyVersion, a.Version)) * quantum
	split[Queue] = int64(queued)*quantum - split[Fill]
	step := &o.s.Step
	step.Groups++
	for i, part := range split {
		step.Split[i] += part
	}
	step.Staleness += int64(total)
	step.Lived += int64(o.s.Version - 1 - g.Born) // the newest version is what became of it
	if o.OnGroup != nil {
		o.OnGroup(Group{ID: a.Group, Version: a.Version, Staleness: total, Split: split.split(1)})
	}
	if o.cfg.Policy != loop.PolicyReplay {
		o.groups.remove(a.Group)
	}
}

// madeWithout counts the versions above one and up to another that no step of a lease after the
// given one made: those of the step that ran when a group became ready, and those that the trainer
// went back to.
func (o *Observer) madeWithout(after loop.LeaseID, above, upTo loop.Version) (n loop.Version) {
	above = max(above, o.s.Version-remembered)
	for v := above + 1; v <= upTo; v++ {
		if o.s.Made[int(v)%remembered].Lease <= after {
			n++
		}
	}
	return n
}
