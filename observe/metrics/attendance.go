package metrics

import (
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Attendance follows whether a trainer that asks for its batches (loop.Config.TrainerAsks) is there. While it neither
// has a batch nor asks for one, it is absent or does something of its own. Work of its own (it saves, evaluates or
// hands weights on) is part of how it trains:
//   - before it first asks, and after the run's process was started anew, until it asks;
//   - from when it got a batch of which nothing came, until it asks;
//   - and after a train step, where that lasts longer than AbsentPeriods train periods.
//
// Every figure that leaves absences out asks here. The diagnosis tells the long ones by rules of its own, from the
// whole run's periods and without the time of a restart. The zero value is of a trainer that never asks, and is
// always there.
type Attendance struct {
	asks, asked bool
	// lease and attempt are of the batch that it has, 0 for none, since leased.
	lease   loop.LeaseID
	attempt int32
	leased  int64
	// made is the newest version.
	made loop.Version
	// gone: it has neither, since then; sure says that it is absent, however short that is.
	gone, sure bool
	since      int64
	// periods are the newest train periods, absences left out, of steps in all; ended is when the last one ended, and
	// missing how long the trainer has been absent since.
	periods        [attendancePeriods]int64
	steps          int64
	ended, missing int64
}

// AbsentPeriods is the most train periods of the run that a trainer takes for something of its own after a step.
// Beyond, it is absent. A run of fewer steps does not know its period yet.
const AbsentPeriods = 4

// attendancePeriods is of how many of the newest train periods the median is taken.
const attendancePeriods = 32

// Away is a stretch in which a trainer neither had a batch nor asked for one; Absent says that it was not there.
type Away struct {
	FromNS, ToNS int64
	Absent       bool
}

// LengthNS is how long it lasted.
func (a Away) LengthNS() int64 { return a.ToNS - a.FromNS }

// NewAttendance returns the attendance of the trainer of a loop with these rules, from time 0 on.
func NewAttendance(cfg loop.Config) Attendance {
	return Attendance{asks: cfg.TrainerAsks, gone: cfg.TrainerAsks, sure: true}
}

// Observe takes an event with what followed from it. It returns the stretch that it ended, the zero value where it ended none.
func (a *Attendance) Observe(ev *loop.Event, actions []loop.Action) (ended Away) {
	if !a.asks {
		return Away{}
	}
	holds := a.lease != 0 && ev.Lease == a.lease && ev.Attempt == a.attempt
	switch ev.Kind {
	case loop.TrainerReady:
		ended, a.asked = a.back(ev.Time), true
	case loop.TrainStepEnded:
		if holds {
			a.lease = 0
			a.made++
			a.stepped(ev.Time)
		}
	case loop.LeaseReturned:
		if holds {
			ended = a.returned(ev.Time)
		}
	case loop.TrainStepFailed:
		if holds {
			a.lease = 0
		}
	case loop.TrainerRestored: // which it says itself
		if ev.Version == a.made+1 {
			ended, a.lease, a.made = a.back(ev.Time), 0, ev.Version
		}
	case loop.Recovered:
		ended, a.asked = a.back(ev.Time), false
	}
	for i := range actions {
		if actions[i].Kind == loop.StartTrainStep {
			a.takes(ev.Time, &actions[i])
		}
	}
	if !a.gone && !a.asked && a.lease == 0 {
		a.gone, a.since = true, ev.Time
		a.sure = ev.Kind == loop.Recovered || ev.Kind == loop.LeaseReturned
	}
	return ended
}

// Now is the stretch that goes on at a time, the zero value for none.
func (a *Attendance) Now(now int64) Away {
	if !a.gone || now <= a.since {
		return Away{}
	}
	return Away{a.since, now, a.sure || a.long(now-a.since)}
}

// takes has the trainer get a batch, or the one that it has as another attempt.
func (a *Attendance) takes(now int64, s *loop.Action) {
	if a.lease != s.Lease {
		a.leased = now
	}
	a.gone, a.asked, a.lease, a.attempt = false, false, s.Lease, s.Attempt
}

// back ends a stretch.
func (a *Attendance) back(now int64) (ended Away) {
	ended = a.Now(now)
	a.gone = false
	if ended.Absent {
		a.missing += ended.LengthNS()
	}
	return ended
}

// returned takes back a batch of which nothing came.
func (a *Attendance) returned(now int64) Away {
	a.lease = 0
	a.missing += now - a.leased
	return Away{a.leased, now, true}
}

// stepped ends a train period.
func (a *Attendance) stepped(now int64) {
	a.periods[a.steps%attendancePeriods] = now - a.ended - a.missing
	a.steps++
	a.ended, a.missing = now, 0
}

// long says that a stretch after a step is longer than a trainer takes for something of its own.
func (a *Attendance) long(ns int64) bool {
	n := min(a.steps, attendancePeriods)
	if n < AbsentPeriods {
		return false
	}
	last := a.periods
	slices.Sort(last[:n])
	return ns >= AbsentPeriods*max(last[n/2], 1)
}

// missed counts a stretch in which the trainer was absent; as far as it waited for a validation it was there, and idle.
func (r *Recorder) missed(away Away) {
	if !away.Absent {
		return
	}
	from := max(away.FromNS, min(r.trainFrom, away.ToNS))
	for _, w := range [...]*window{&r.window, &r.step} {
		w.absentNS += away.ToNS - max(from, min(w.start, away.ToNS))
	}
}

// TrainerAway is the stretch in which the trainer neither has a batch nor asks for one, up to a time; the zero value for
// none.
func (r *Recorder) TrainerAway(now int64) Away { return r.attends.Now(now) }

// absent is how long the trainer was absent in the window, up to now.
func (r *Recorder) absent() int64 {
	ns := r.window.absentNS
	if away := r.attends.Now(r.run.NowNS); away.Absent {
		ns += away.ToNS - max(away.FromNS, r.window.start)
	}
	return ns
}

func (a *Attendance) fields(c *codec) {
	c.truths(&a.asked, &a.gone, &a.sure)
	whole(c, &a.lease)
	whole(c, &a.made)
	whole(c, &a.attempt)
	whole(c, &a.leased, &a.since, &a.steps, &a.ended, &a.missing)
	for i := range a.periods {
		whole(c, &a.periods[i])
	}
}
