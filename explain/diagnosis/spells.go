package diagnosis

import (
	"cmp"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
)

// spell is a stretch of a run in which something that it needs was not there.
type spell struct {
	fromNS, toNS int64
	// version is what the trainer had reached when it began, made how many versions came meanwhile.
	version, made loop.Version
	// dropped counts the groups evicted or discarded meanwhile, idleNS slots that stood empty by time.
	dropped, idleNS int64
	// failed counts the syncs of an engine that failed meanwhile; switching says that it had the weights already.
	failed    int64
	switching bool
	// ending says what a standstill waited for.
	ending ending
}

func (s *spell) lengthNS() int64 { return s.toNS - s.fromNS }

// spellsMax is how many are kept: the longest.
const spellsMax = 64

// spells are the longest of their kind.
type spells []spell

// add keeps a spell where it is one of the longest, and returns what a further one has to exceed for that, in ns.
func (s *spells) add(p spell) (floorNS int64) {
	if p.lengthNS() <= 0 {
		return 0
	}
	if len(*s) < spellsMax {
		*s = append(*s, p)
		return 0
	}
	shortest := 0
	for i := range *s {
		if (*s)[i].lengthNS() < (*s)[shortest].lengthNS() {
			shortest = i
		}
	}
	if (*s)[shortest].lengthNS() < p.lengthNS() {
		(*s)[shortest] = p
	}
	return (*s)[shortest].lengthNS()
}

// least are those of at least so long, in order of time.
func (s spells) least(ns int64) spells {
	var long spells
	for _, p := range s {
		if p.lengthNS() >= ns {
			long = append(long, p)
		}
	}
	slices.SortFunc(long, func(a, b spell) int { return cmp.Compare(a.fromNS, b.fromNS) })
	return long
}

// longest are so many of them at most, in order of time.
func (s spells) longest(n int) spells {
	by := slices.Clone(s)
	slices.SortStableFunc(by, func(a, b spell) int { return cmp.Compare(b.lengthNS(), a.lengthNS()) })
	return by[:min(n, len(by))].least(0)
}

// covers reports whether one of them takes more than half of another spell.
func (s spells) covers(p spell) bool {
	return slices.ContainsFunc(s, func(o spell) bool {
		return 2*(min(o.toNS, p.toNS)-max(o.fromNS, p.fromNS)) > p.lengthNS()
	})
}

// within are those that the periods of some steps hold.
func (s spells) within(steps []metrics.Step) (list spells) {
	if len(steps) == 0 {
		return nil
	}
	first, last := steps[0].Step, steps[len(steps)-1].Step
	for _, p := range s {
		if p.version+1 >= first && p.version < last {
			list = append(list, p)
		}
	}
	return list
}

// sums of all of them, one after another from 0 on.
func (s spells) sums() (all spell) {
	for _, p := range s {
		all.toNS += p.lengthNS()
		all.made += p.made
		all.dropped += p.dropped
		all.idleNS += p.idleNS
		all.failed += p.failed
	}
	return all
}

// spellPeriods is how many train periods a spell takes at least to be told: what is shorter is a run's own pace.
const spellPeriods = 4

// longNS is how long a spell has to be, in ns: some of the run's median train periods. 0 where it has too few.
func longNS(steps []metrics.Step) int64 {
	if len(steps) < spellPeriods {
		return 0
	}
	periods := make([]int64, len(steps))
	for i := range steps {
		periods[i] = steps[i].PeriodNS
	}
	slices.Sort(periods)
	return max(spellPeriods*periods[len(periods)/2], 1)
}

// counts are totals of the run so far, by which a spell's are told.
type counts struct {
	version         loop.Version
	dropped, idleNS int64
}

// counts are those up to now.
func (o *observer) counts() counts {
	return counts{version: o.tally.fleet.newest, dropped: o.tally.dropped, idleNS: o.attribution.SlotsIdleNS()}
}

// begin is when something began.
type begin struct {
	ns int64
	counts
}

// since is the spell that began then and ends now. The idle time begins anew with the
// measured window.
func (b *begin) since(toNS int64, now counts) spell {
	idle := now.idleNS - b.idleNS
	if idle < 0 {
		idle = now.idleNS
	}
	return spell{fromNS: b.ns, toNS: toNS, version: b.version, made: now.version - b.version, dropped: now.dropped - b.dropped, idleNS: idle}
}

// attendance follows a trainer: its longest steps and those that failed, and of one that asks for its batches
// (loop.Config.TrainerAsks) when it neither asks for one nor has one. What is before it first asks is the run's start, and
// no absence.
type attendance struct {
	asks, seen, asked bool
	// lease and attempt are of the batch that it has, 0 for none; leased is when it got it.
	lease   loop.LeaseID
	attempt int32
	leased  begin
	// away: it is absent, since gone.
	away bool
	gone begin
	kept spells
	// steps are the longest train steps, from the first attempt on; failed counts attempts that failed, failedNS is the
	// time that they took; tried is when the running attempt began.
	steps            spells
	failed, failedNS int64
	tried            int64
	// at is the time of the last event.
	at int64
}

// observe takes an event with what followed from it; count says what was counted so far.
func (a *attendance) observe(ev *trace.Event, actions []loop.Action, count func() counts) {
	switch ev.Kind {
	case loop.TrainStepFailed:
		if ev.Lease == a.lease && ev.Attempt == a.attempt {
			a.failed, a.failedNS = a.failed+1, a.failedNS+ev.Time-a.tried
		}
	case loop.TrainerReady:
		a.back(ev.Time, count)
		a.seen, a.asked = true, true
	case loop.TrainStepEnded:
		if ev.Lease == a.lease && ev.Attempt == a.attempt {
			a.steps.add(a.leased.since(ev.Time, count()))
			a.leaves(begin{ev.Time, count()})
		}
	case loop.LeaseReturned:
		if ev.Lease == a.lease && ev.Attempt == a.attempt {
			a.returned(ev.Time, count)
		}
	case loop.TrainerRestored:
		a.back(ev.Time, count)
		a.leaves(begin{ev.Time, count()})
	case loop.Recovered: // while the run was down nobody could ask
		a.back(a.at, count)
		a.asked = false
		a.leaves(begin{ev.Time, count()})
	}
	a.at = ev.Time
	for i := range actions {
		switch s := &actions[i]; s.Kind {
		case loop.StartTrainStep:
			a.takes(ev.Time, s, count)
		case loop.FinishRun:
			a.back(ev.Time, count)
		}
	}
}

// takes has the trainer get a batch, or the one that it has as another attempt.
func (a *attendance) takes(now int64, s *loop.Action, count func() counts) {
	a.back(now, count)
	if a.lease != s.Lease {
		a.leased = begin{now, count()}
	}
	a.asked, a.lease, a.attempt, a.tried = false, s.Lease, s.Attempt, now
}

// leaves has the trainer be without a batch from a time on; it is absent unless it has asked for the next.
func (a *attendance) leaves(from begin) {
	a.lease, a.attempt = 0, 0
	if a.asks && a.seen && !a.asked {
		a.away, a.gone = true, from
	}
}

// returned takes back a batch of which nothing came. Whoever asks already is there again.
func (a *attendance) returned(now int64, count func() counts) {
	if a.asked {
		a.kept.add(a.leased.since(now, count()))
	}
	a.leaves(a.leased)
}

// back ends an absence.
func (a *attendance) back(now int64, count func() counts) {
	if a.away {
		a.kept.add(a.gone.since(now, count()))
	}
	a.away = false
}

// longSteps are the train steps that took long, with the one that lasts.
func (o *observer) longSteps() spells {
	a, least := &o.attendance, longNS(o.recorder.Steps)
	if least == 0 {
		return nil
	}
	all := slices.Clone(a.steps)
	if a.lease != 0 {
		all = append(all, a.leased.since(a.at, o.counts()))
	}
	return all.least(least)
}

// absences are the trainer's that are long, in order of time, with the one that lasts; now says that
// it is absent as the trace ends, which may have been for long: where everything waits nothing is recorded.
func (o *observer) absences() (list spells, now bool) {
	a, least := &o.attendance, longNS(o.recorder.Steps)
	if least == 0 || !a.asks {
		return nil, false
	}
	all := slices.Clone(a.kept)
	if a.away {
		all = append(all, a.gone.since(a.at, o.counts()))
	}
	return all.least(least), a.away
}
