package live

import (
	"github.com/headway-rl/headway/loop"
)

// SyncDone is a weight sync that is complete: every serving engine serves Version. No engine may serve it, where all of
// them were lost on the way; Engines is empty then. All times are durations in nanoseconds as the loop saw them.
type SyncDone struct {
	// Version that was brought to the engines.
	Version loop.Version
	// LoadNS is from the first load's start to the last one's end. WaitNS is from there to the first switch (0 where
	// engines switch each for itself). SwitchNS is from there to the last one's end.
	LoadNS, WaitNS, SwitchNS int64
	// TotalNS is from the version's publication until every engine serves it. It is 0 where the loop did not see the
	// publication, as after a restart of the run.
	TotalNS int64
	// Failed counts loads and switches that failed on the way.
	Failed int
	// Engines took part, in the order of Options.Engines.
	Engines []EngineSync
}

// EngineSync is one engine's part in a sync.
type EngineSync struct {
	Name string
	// LoadNS and SwitchNS are from the first try to the success.
	LoadNS, SwitchNS int64
	// Failed counts the tries that failed.
	Failed int
}

// engineSync is when an engine went through the phases of a sync to version, in the
// run's time; -1 for not yet.
type engineSync struct {
	version             loop.Version
	load, loaded        int64
	switching, switched int64
	failed              int
}

// publications remembers when versions were published, the newest of them.
type publications struct {
	version, last loop.Version
	at            [64]int64
}

// add notes that a version is there, if it is new.
func (p *publications) add(v loop.Version, now int64) {
	if v == p.last {
		return
	}
	p.last = v
	p.at[int(v)%len(p.at)] = now
}

// since returns the time since a version was published, 0 if that is not known.
func (p *publications) since(v loop.Version, now int64) int64 {
	if v <= p.version || p.last-v >= loop.Version(len(p.at)) {
		return 0
	}
	return now - p.at[int(v)%len(p.at)]
}

// watchSync follows the engines through loads and switches.
func (r *Runtime) watchSync(ev loop.Event, actions []loop.Action) {
	if !r.began { // versions before this process are of unknown age
		r.published = publications{version: r.l.Version(), last: r.l.Version()}
	}
	r.published.add(r.l.Version(), ev.Time)
	if ev.Kind >= loop.WeightsLoaded && ev.Kind <= loop.SyncFailed && ev.Engine >= 0 && int(ev.Engine) < len(r.syncs) {
		if s := &r.syncs[ev.Engine]; s.version == ev.Version {
			s.event(ev)
		}
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.LoadWeights:
			s := &r.syncs[a.Engine]
			if s.version != a.Version || s.switched >= 0 {
				*s = engineSync{version: a.Version, load: ev.Time, loaded: -1, switching: -1, switched: -1}
			}
		case loop.SwitchWeights:
			if s := &r.syncs[a.Engine]; s.version == a.Version && s.switching < 0 {
				s.switching = ev.Time
			}
		case loop.SyncCompleted:
			if r.opt.OnSync == nil {
				break
			}
			if done := r.syncDone(a.Version, ev.Time); len(done.Engines) > 0 || !r.servesUnseen(a.Version) {
				r.opt.OnSync(done)
			}
		}
	}
}

// servesUnseen reports whether an engine of a cell serves a version whose load was decided by the writer before, so that its
// times are not known.
func (r *Runtime) servesUnseen(v loop.Version) bool {
	for i, e := range r.l.Status().Engines {
		if e.Version == v && !r.l.Lost(i) && r.syncs[i].version != v {
			return true
		}
	}
	return false
}

func (s *engineSync) event(ev loop.Event) {
	switch ev.Kind {
	case loop.WeightsLoaded:
		s.loaded = ev.Time
	case loop.WeightsSwitched:
		s.switched = ev.Time
	case loop.SyncFailed:
		s.failed++
	}
}

// syncDone sums a sync up.
func (r *Runtime) syncDone(v loop.Version, now int64) SyncDone {
	done := SyncDone{Version: v, TotalNS: r.published.since(v, now)}
	var load, loaded, switching, switched int64
	for i := range r.syncs {
		s := &r.syncs[i]
		if s.version != v {
			continue
		}
		done.Failed += s.failed
		if s.switched < 0 || r.l.Lost(i) {
			continue
		}
		if len(done.Engines) == 0 {
			load, loaded, switching, switched = s.load, s.loaded, s.switching, s.switched
		}
		load, switching = min(load, s.load), min(switching, s.switching)
		loaded, switched = max(loaded, s.loaded), max(switched, s.switched)
		done.Engines = append(done.Engines, EngineSync{Name: r.opt.Engines[i].Name(), LoadNS: s.loaded - s.load, SwitchNS: s.switched - s.switching, Failed: s.failed})
	}
	done.LoadNS, done.WaitNS, done.SwitchNS = loaded-load, max(switching-loaded, 0), switched-switching
	return done
}
