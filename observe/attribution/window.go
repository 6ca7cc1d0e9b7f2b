package attribution

import (
	"slices"

	"github.com/headway-rl/headway/loop"
)

// recentSteps is how many train periods Recent looks back on.
const recentSteps = 32

// MismatchMax is the largest mismatch of Little's identity that is no finding.
const MismatchMax = 0.01

// tie is how close to the largest part another must come to be named beside it.
const tie = 0.05

// sums are what happened between two instants. Fields are exported for State alone.
type sums struct {
	// SpanNS is how long that was, up to the last step's end.
	SpanNS int64
	// Groups were trained; Split and Staleness are theirs, Lived the updates they lived through.
	Groups           int64
	Split            quanta
	Staleness, Lived int64
	// Trainer is time, Engines, the taken slots that stood still and those of engines that were away slots by
	// time; all in ns.
	Trainer, Engines                      idle
	StoodSyncing, StoodValidating, AwayNS int64
}

func (s *sums) add(o *sums) {
	s.SpanNS += o.SpanNS
	s.Groups += o.Groups
	for i, part := range o.Split {
		s.Split[i] += part
	}
	s.Staleness += o.Staleness
	s.Lived += o.Lived
	s.Trainer.add(o.Trainer)
	s.Engines.add(o.Engines)
	s.StoodSyncing += o.StoodSyncing
	s.StoodValidating += o.StoodValidating
	s.AwayNS += o.AwayNS
}

// slotNS is the time of all slots, but for those whose engine was away.
func (s *sums) slotNS(slots int) int64 { return s.SpanNS*int64(slots) - s.AwayNS }

// Step is one train step with the period that it ended.
type Step struct {
	// Version it produced, TimeNS when.
	Version loop.Version
	TimeNS  int64
	// Groups were trained on. Split is the mean over them, in versions.
	Groups int64
	Split  Split
	// Trainer and Engines say what they waited for in the period.
	Trainer, Engines Idle
}

// endStep closes the period that a train step ended.
func (o *Observer) endStep() {
	s := &o.s
	p := &s.Step
	p.SpanNS = s.Now - s.PeriodFrom
	o.last = Step{Version: o.run.Version, TimeNS: s.Now, Groups: p.Groups, Split: p.Split.split(p.Groups),
		Trainer: p.Trainer.of(p.SpanNS), Engines: p.Engines.of(p.slotNS(len(o.run.Slots)))}
	s.Window.add(p)
	s.Recent[int(s.Steps)%recentSteps] = *p
	s.Steps++
	s.Step, s.PeriodFrom = sums{}, s.Now
	if o.OnStep != nil {
		o.OnStep(o.last)
	}
	o.warmedUp()
}

// warmedUp begins the measured window at the version it is to begin at.
func (o *Observer) warmedUp() {
	if o.run.Version == o.Warmup {
		o.Reset()
	}
}

// Reset begins the measured window at the time of the last event. Everything before was warm-up.
func (o *Observer) Reset() {
	o.s.Window, o.s.Step, o.s.PeriodFrom = sums{}, sums{}, o.s.Now
}

// Last returns the newest train step, the zero value before the first.
func (o *Observer) Last() Step { return o.last }

// Summary returns the attribution of the measured window, up to the last event.
func (o *Observer) Summary() Summary {
	all := o.s.Window
	rest := o.s.Step
	rest.SpanNS = o.s.Now - o.s.PeriodFrom
	all.add(&rest)
	return all.summary(len(o.run.Slots))
}

// Recent returns the attribution of the newest train periods, up to 32.
func (o *Observer) Recent() Summary {
	all := sums{}
	for i := range min(o.s.Steps, recentSteps) {
		all.add(&o.s.Recent[i])
	}
	return all.summary(len(o.run.Slots))
}

// summary turns sums into what is reported.
func (s *sums) summary(slots int) Summary {
	sum := Summary{Groups: s.Groups, Ties: []string{}, Parts: make([]Part, Sources),
		Trainer: s.Trainer.of(s.SpanNS), Engines: s.Engines.of(s.slotNS(slots))}
	whole := s.slotNS(slots)
	if whole > 0 {
		sum.Standing = Standing{Syncing: float64(s.StoodSyncing) / float64(whole), Validating: float64(s.StoodValidating) / float64(whole)}
	}
	sum.Little = Little{Staleness: s.Staleness, Lived: s.Lived, Mismatch: mismatch(s.Staleness, s.Lived)}
	all := int64(0)
	for _, part := range s.Split {
		all += part
	}
	versions := s.Split.split(s.Groups)
	sum.StalenessMean = float64(all) / quantum / float64(max(s.Groups, 1))
	for i := range Sources {
		sum.Parts[i] = Part{Source: i.String(), Versions: versions[i]}
		if all > 0 {
			sum.Parts[i].Share = float64(s.Split[i]) / float64(all)
		}
	}
	sum.name()
	return sum
}

func mismatch(staleness, lived int64) float64 {
	apart := staleness - lived
	if apart < 0 {
		apart = -apart
	}
	return float64(apart) / float64(max(lived, 1))
}

// name says which source is the largest, and which come close.
func (s *Summary) name() {
	if s.StalenessMean == 0 {
		return
	}
	largest := slices.MaxFunc(s.Parts, func(a, b Part) int {
		switch {
		case a.Versions < b.Versions:
			return -1
		case a.Versions > b.Versions:
			return 1
		}
		return 0
	})
	s.Dominant, s.Share = largest.Source, largest.Share
	for _, p := range s.Parts {
		if p.Source != largest.Source && p.Versions >= (1-tie)*largest.Versions {
			s.Ties = append(s.Ties, p.Source)
		}
	}
}

// SlotsIdleNS is how long slots stood without a rollout since the measured window began, in slots by ns.
func (o *Observer) SlotsIdleNS() (ns int64) {
	for c := range causes {
		ns += o.s.Window.Engines[c] + o.s.Step.Engines[c]
	}
	return ns
}

// Running is how many slots hold a rollout.
func (o *Observer) Running() int { return int(o.run.Active) }
