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

// life is what is remembered of a group from its first rollout to its end. Exported fields are
// for State alone.
type life struct {
	// Begun is the trainer's version when the group began, Due the newest version that a weight
	// sync without any duration would have brought by then; Begun is loop.NoVersion while
	// nothing of the group has begun.
	Begun, Due loop.Version
	// BegunNS is when that was.
	BegunNS int64
	// Born is the oldest version that an engine served when it was given one of the rollouts,
	// observed apart from the loop's stamp; loop.NoVersion for none.
	Born loop.Version
	// EndsNS and EnvironmentNS are sums over the rollouts scored: of their ends since BegunNS, and
	// of what their environments took until then.
	EndsNS, EnvironmentNS int64
	// Flying counts attempts that have not ended, Scored those that were kept.
	Flying, Scored int32
	// LastNS is when the last of them ended since BegunNS, MadeNS the longest that one took but for its
	// environment.
	LastNS, MadeNS int64
	// Seen: the first token was reported. Ready: the group has been ready, when the step of
	// ReadyLease was the newest that had begun. Held: it waits outside a full queue.
	Seen, Ready, Held bool
	ReadyLease        loop.LeaseID
	// Waited is how many versions were made while it was held.
	Waited loop.Version
	// Before is the part of the split up to being ready.
	Before quanta
}

// began notes that a rollout of the group was given to an engine.
func (g *life) began(o *Observer, served loop.Version) {
	if g.Begun == loop.NoVersion {
		g.Begun, g.Due, g.BegunNS = o.run.Version, o.s.Due, o.s.Now
	}
	if g.Born == loop.NoVersion || served < g.Born {
		g.Born = served
	}
}

// left notes that an attempt ended without a score. A group of which nothing is left begins anew.
func (g *life) left() {
	g.Flying--
	g.anew()
}

func (g *life) anew() {
	if g.Flying <= 0 && g.Scored == 0 {
		*g = life{Begun: loop.NoVersion, Born: loop.NoVersion}
	}
}

// scored counts a rollout that its group keeps.
func (o *Observer) scored(ev *loop.Event, m *metrics.Measured, left []int32) {
	if len(left) == 0 || o.run.Slots[left[0]].Aborted {
		return
	}
	g := o.groups.Get(ev.Group)
	switch {
	case g == nil:
	case fails(ev):
		g.left()
	default:
		o.keep(g, m)
	}
}

// fails reports whether a score is none: no finite number is a failure.
func fails(ev *loop.Event) bool {
	return ev.Mark == loop.MarkPruned || ev.Reward-ev.Reward != 0
}

// keep counts a scored rollout in its group.
func (o *Observer) keep(g *life, m *metrics.Measured) {
	g.Flying--
	g.Scored++
	g.LastNS = o.s.Now - g.BegunNS
	environment := min(m.EnvironmentNS, g.LastNS) // the rest of it was before the group began anew
	g.MadeNS = max(g.MadeNS, g.LastNS-environment)
	g.EndsNS += g.LastNS
	g.EnvironmentNS += environment
}

// firstToken may bring the beginning of a group forward: it lives from its first token on, and
// what waited until then at its engine was not generating. A token of an older version that is told
// late takes its birth back.
func (o *Observer) firstToken(ev *loop.Event) {
	at := o.run.At(ev)
	if at == nil || at.Aborted {
		return
	}
	g := o.groups.Get(ev.Group)
	if g == nil {
		return
	}
	if v := ev.Version; v >= 0 && v < g.Born {
		g.Born, g.Seen = v, true
		return
	}
	if g.Seen || g.Scored > 0 {
		return
	}
	g.Seen = true
	g.Begun, g.Due, g.BegunNS = o.run.Version, o.s.Due, o.s.Now
	g.Born = max(g.Born, min(ev.Version, o.run.MinServed()))
}

// ready splits what a group has lived through up to being ready, the first time it is: one that
// was held is queued later, and one that a lease gave back may be held again.
func (o *Observer) ready(a *loop.Action) {
	g := o.groups.Get(a.Group)
	switch {
	case g == nil || a.StartVersion < 0:
		return
	case g.Held && a.Kind == loop.GroupQueued:
		g.Held, g.Waited = false, o.run.Version-a.ReadyVersion
		return
	case g.Ready:
		return
	}
	g.Ready, g.ReadyLease, g.Held = true, o.run.Lease.ID, a.Kind == loop.GroupHeld
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
	above = max(above, o.run.Version-remembered)
	for v := upTo; v > above && o.s.Made[int(v)%remembered].NS > ns; v-- {
		n++
	}
	return n
}

// train splits the staleness of a group that was trained.
func (o *Observer) train(a *loop.Action) {
	g := o.groups.Get(a.Group)
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
	step.Lived += int64(o.run.Version - 1 - g.Born) // the newest version is what became of it
	if o.OnGroup != nil {
		o.OnGroup(Group{ID: a.Group, Version: a.Version, Staleness: total, Split: split.split(1)})
	}
	if o.cfg.Policy != loop.PolicyReplay {
		o.groups.Remove(a.Group)
	}
}

// madeWithout counts the versions above one and up to another that no step of a lease after the
// given one made: those of the step that ran when a group became ready, and those that the trainer
// went back to.
func (o *Observer) madeWithout(after loop.LeaseID, above, upTo loop.Version) (n loop.Version) {
	above = max(above, o.run.Version-remembered)
	for v := above + 1; v <= upTo; v++ {
		if o.s.Made[int(v)%remembered].Lease <= after {
			n++
		}
	}
	return n
}
