package attribution

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
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
		g.LastNS = o.s.Now - g.BegunNS
		environment := min(m.EnvironmentNS, g.LastNS) // the rest of it was before the group began anew
		g.MadeNS = max(g.MadeNS, g.LastNS-environment)
		g.EndsNS += g.LastNS
		g.EnvironmentNS += environment
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
	switch {
	case g == nil || a.StartVersion < 0:
		return
	case g.Held && a.Kind == loop.GroupQueued:
		g.Held, g.Waited = false, o.s.Version-a.ReadyVersion
		return
	case g.Ready:
		return
	}
	g.Ready, g.ReadyLease, g.Held = true, o.s.Lease, a.Kind == loop.GroupHeld
	// What had been made when it began was not served yet.
	begun := min(max(g.Begun, a.StartVersion), a.ReadyVersion)
	late := min(max(g.Due-a.StartVersion, 0), begun-a.StartVersion)
	g.Before[Sync] = int64(late) * quantum
	g.Before[Inner] = int64(begun-a.StartVersion-late) * quantum
	n := int64(max(g.Scored, 1))
	mean, environment := g.EndsNS/n, g.EnvironmentNS/n
	after := int64(o.madeAfter(g.BegunNS+mean, begun, a.ReadyVersion)) * quantum
	upTo := int64(a.ReadyVersion-begun)*quantum - after
	inEnvironment := portion(upTo, environment, mean)
	g.Before[Concurrency] = upTo - inEnvironment
	// Environment and tail meet where a rollout is the last because of its environment: they share by
	// how much sooner the group would have been ready without the one, and without the other.
	beyond := inEnvironment + after
	withoutE, withoutT, whole := g.LastNS-g.MadeNS, g.LastNS-mean, g.LastNS-mean+environment
	if withoutE >= withoutT && withoutE > 0 {
		g.Before[Environment] = portion(beyond, withoutE, whole)
		g.Before[Tail] = beyond - g.Before[Environment]
	} else {
		g.Before[Tail] = portion(beyond, withoutT, whole)
		g.Before[Environment] = beyond - g.Before[Tail]
	}
}

// portion is what a part of a whole has of an amount, nothing for a part below 0 and all for one that
// exceeds the whole.
func portion(amount, part, whole int64) int64 {
	switch {
	case part <= 0:
		return 0
	case part >= whole:
		return amount
	}
	return int64(float64(amount) * (float64(part) / float64(whole)))
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
	fill := o.madeWithout(g.ReadyLease, a.ReadyVersion, a.Version)
	// What was held outside a full queue was one too many in flight.
	behind := max(queued-g.Waited-fill, 0)
	split[Fill] = int64(fill) * quantum
	split[Queue] = int64(behind) * quantum
	split[Concurrency] += int64(queued-fill-behind) * quantum
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
