package diagnosis

import (
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// The part of a weight sync that an engine is in, for which nobody but it and its road are to blame: waiting for the
// other engines is neither.
const (
	partNone = iota
	partLoading
	partSwitching
)

// delivery is what is remembered of one engine's weights.
type delivery struct {
	part int
	from begin
	// attempt is that of the newest load.
	attempt int32
	// joins: it is lost, or loads its first weights since: nobody waits for it. own: a restart ends it.
	joins, own bool
	// failed counts syncs that failed in this part.
	failed int64
	kept   spells
}

// deliveries follow how long engines take for the weights that they are told to load.
type deliveries struct {
	engines []delivery
	// usual are the newest of these times, in ns, of all engines; next is where the next is put.
	usual []int64
	next  int
}

// usualMost is how many are remembered to know the usual time by.
const usualMost = 1 << 10

func newDeliveries(cfg *loop.Config) deliveries {
	d := deliveries{engines: make([]delivery, len(cfg.EngineSlots))}
	for i := range d.engines { // what a pool gives later, and other cells
		own := cfg.Owns(int32(i))
		d.engines[i].own, d.engines[i].joins = own, !own || cfg.EnginesStart > 0 && i >= cfg.EnginesStart
	}
	return d
}

// observe takes an event with what followed from it; count says what was counted so far.
func (d *deliveries) observe(ev *trace.Event, actions []loop.Action, count func() counts) {
	switch ev.Kind {
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed, loop.EngineLost:
		if ev.Engine >= 0 && int(ev.Engine) < len(d.engines) {
			d.event(ev, count)
		}
	case loop.Recovered:
		for i := range d.engines {
			if d.engines[i].own {
				d.engines[i].part, d.engines[i].joins = partNone, true
			}
		}
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.LoadWeights:
			d.engines[a.Engine].begins(partLoading, ev.Time, count)
			d.engines[a.Engine].attempt = a.Attempt
		case loop.SwitchWeights:
			d.engines[a.Engine].begins(partSwitching, ev.Time, count)
		case loop.ReleaseEngine:
			d.engines[a.Engine].part, d.engines[a.Engine].joins = partNone, true
		}
	}
}

func (d *deliveries) event(ev *trace.Event, count func() counts) {
	e := &d.engines[ev.Engine]
	switch {
	case ev.Kind == loop.EngineLost:
		d.ends(e, ev.Time, count)
		e.joins = true
	case ev.Attempt != e.attempt: // late
	case ev.Kind == loop.SyncFailed && e.part != partNone:
		e.failed++ // and goes on where it loads again
	case ev.Kind == loop.WeightsLoaded && e.part == partLoading:
		d.ends(e, ev.Time, count)
	case ev.Kind == loop.WeightsSwitched && e.part == partSwitching:
		d.ends(e, ev.Time, count)
		e.joins = false
	}
}

// begins has an engine load or switch; one that does so already tries again.
func (e *delivery) begins(part int, now int64, count func() counts) {
	if e.part == partNone {
		e.from, e.failed = begin{now, count()}, 0
	}
	e.part = part
}

// ends has an engine be done with its part.
func (d *deliveries) ends(e *delivery, now int64, count func() counts) {
	if e.part != partNone && !e.joins {
		p := e.spell(now, count())
		e.kept.add(p)
		if len(d.usual) < usualMost {
			d.usual = append(d.usual, p.lengthNS())
		} else {
			d.usual[d.next] = p.lengthNS()
			d.next = (d.next + 1) % usualMost
		}
	}
	e.part = partNone
}

func (e *delivery) spell(now int64, c counts) spell {
	p := e.from.since(now, c)
	p.failed, p.switching = e.failed, e.part == partSwitching
	return p
}

// late are the times that an engine took for weights that are long for the run and beyond what is usual there, with
// that which lasts.
func (o *observer) late(engine int) spells {
	d := &o.deliveries
	least := longNS(o.recorder.Steps)
	if least == 0 {
		return nil
	}
	if len(d.usual) > 0 {
		usual := slices.Clone(d.usual)
		slices.Sort(usual)
		least = max(least, spellPeriods*usual[len(usual)/2])
	}
	e := &d.engines[engine]
	all := slices.Clone(e.kept)
	if e.part != partNone && !e.joins {
		all = append(all, e.spell(o.tally.fleet.at, o.counts()))
	}
	return all.least(least)
}
