package timeline

import (
	"slices"

	"github.com/headway-rl/headway/loop"
)

// Arrows says from which rollouts an arrow leads to the train step that consumed them.
type Arrows uint8

// Kinds of arrows. A group that is trained several times has them to every step; one that ends untrained
// has none.
const (
	// LastArrows: of every group the rollout that was scored last, for which the group waited.
	LastArrows Arrows = iota
	// AllArrows: every scored rollout.
	AllArrows
	// NoArrows: none, and none for weight syncs either.
	NoArrows
)

// arrowsMax bounds the arrows into a train step: viewers draw a few hundred at once, no more can be told
// apart, and each is two lines of the file.
const arrowsMax = 1000

// Names of the arrows, as viewers list them.
const (
	rolloutArrow = "rollout to step"
	stepArrow    = "step to sync"
	engineArrow  = "sync to engine"
)

// moment is a place within a drawn span, at which an arrow begins or ends.
type moment struct {
	pid, tid int
	at       int64
}

// arrows is what arrows may come from.
type arrows struct {
	ids   int64                   // given so far
	tails map[loop.GroupID][]tail // of rollouts whose groups may be trained yet; never walked through
	made  []madeVersion           // by train steps, and not shipped yet
	ships []shipment              // what engines did for the running sync of the fleet, in order
	drawn int64
	left  int64
}

// madeVersion is a version and the end of the train step that made it.
type madeVersion struct {
	version loop.Version
	end     moment
}

// shipment is a load or a switch of an engine.
type shipment struct {
	engine  int32
	version loop.Version
	start   moment
}

// What waits for a sync of the fleet to end is bounded: the versions (with syncs every k-th step, k of
// them wait), and what its engines did, where they try again and again.
const (
	madeMax  = 256
	shipsMax = 4096
)

// within is a moment just after a span's start: at the start itself, the span before it could be meant.
func within(pid, tid int, from, to int64) moment {
	return moment{pid, tid, min(from+1, max(to-1, from))}
}

// tail is the end of a rollout, from which an arrow may lead.
type tail struct {
	moment
	sample, attempt int32
	scored          bool
}

// keep keeps the place from which an arrow of a rollout begins that has just been drawn: scored, or
// interrupted and perhaps scored as soon as it goes on.
func (d *Drawing) keep(r rollout, scored bool, pid, tid int, from int64, parts []stretch) {
	if d.opt.Arrows == NoArrows || r.unwanted {
		return
	}
	of := d.arrows.tails[r.group]
	t := tail{moment{pid, tid, bare(from, d.now, parts)}, r.sample, r.attempt, scored}
	if i := slices.IndexFunc(of, func(u tail) bool { return u.sample == r.sample }); i >= 0 {
		if t.at < 0 && of[i].attempt == r.attempt {
			t.moment = of[i].moment
		}
		of = slices.Delete(of, i, i+1)
	}
	if scored && d.opt.Arrows == LastArrows {
		of = slices.DeleteFunc(of, func(u tail) bool { return u.scored })
	}
	if t.at >= 0 {
		of = append(of, t)
	}
	d.arrows.tails[r.group] = of
}

// bare is a moment of a span to which no part of it can lay claim: the last before the first part begins,
// since of the spans that have begun Perfetto takes the last, ended or not, and Chrome the innermost. Where
// a part begins with the span, both take the last part just before its end. It is -1 for a span without
// length, which could not be told from the next.
func bare(from, to int64, parts []stretch) int64 {
	switch {
	case from >= to:
		return -1
	case len(parts) == 0:
		return to - 1
	case parts[0].from > from:
		return parts[0].from - 1
	}
	return parts[len(parts)-1].to - 1
}

// drop forgets a rollout that stands interrupted and is no longer wanted.
func (a *arrows) drop(group loop.GroupID, sample, attempt int32) {
	of := slices.DeleteFunc(a.tails[group], func(t tail) bool { return t.sample == sample && t.attempt == attempt && !t.scored })
	if len(of) == 0 {
		delete(a.tails, group)
	} else {
		a.tails[group] = of
	}
}

// into lists where the arrows into a train step begin, and how many more there would be.
func (d *Drawing) into(groups []loop.GroupID) (tails []moment, left int64) {
	if d.opt.Arrows == NoArrows {
		return nil, 0
	}
	for _, g := range groups {
		for _, t := range d.arrows.tails[g] {
			switch {
			case !t.scored:
			case len(tails) < arrowsMax:
				tails = append(tails, t.moment)
			default:
				left++
			}
		}
	}
	return tails, left
}

// join draws an arrow through two moments or more.
func (d *Drawing) join(name string, through ...moment) {
	d.arrows.ids++
	for i, m := range through {
		phase := "t"
		switch i {
		case 0:
			phase = "s"
		case len(through) - 1:
			phase = "f"
		}
		d.out.arrow(phase, name, d.arrows.ids, m)
	}
	d.arrows.drawn += int64(len(through) - 1)
}

// made keeps the end of a train step, from which the arrow to the sync of its version begins.
func (d *Drawing) made(version loop.Version, end moment) {
	a := &d.arrows
	if d.opt.Arrows == NoArrows {
		return
	}
	if len(a.made) == madeMax {
		a.made = slices.Delete(a.made, 0, 1)
	}
	a.made = append(a.made, madeVersion{version, end})
}

// ship keeps what an engine did for the running sync.
func (d *Drawing) ship(s shipment) {
	if a := &d.arrows; d.opt.Arrows != NoArrows && len(a.ships) < shipsMax {
		a.ships = append(a.ships, s)
	}
}

// shipped draws the arrows of a sync of the fleet that has just been drawn: from the step that made its
// version, and to what every engine did.
func (d *Drawing) shipped(version loop.Version, start moment) {
	a := &d.arrows
	for _, m := range a.made {
		if m.version == version {
			d.join(stepArrow, m.end, start)
		}
	}
	for i, s := range a.ships {
		if s.version != version || a.shippedBefore(i) {
			continue
		}
		through := []moment{start, s.start}
		for _, later := range a.ships[i+1:] {
			if later.engine == s.engine && later.version == version {
				through = append(through, later.start)
			}
		}
		d.join(engineArrow, through...)
	}
}

// shippedBefore reports whether an earlier one is of the same engine and version.
func (a *arrows) shippedBefore(i int) bool {
	return slices.ContainsFunc(a.ships[:i], func(s shipment) bool {
		return s.engine == a.ships[i].engine && s.version == a.ships[i].version
	})
}

// settle forgets what a sync of the fleet has dealt with, drawn or not.
func (a *arrows) settle(version loop.Version) {
	a.ships = slices.DeleteFunc(a.ships, func(s shipment) bool { return s.version <= version })
	a.made = slices.DeleteFunc(a.made, func(m madeVersion) bool { return m.version <= version })
}
