package watchdog

import (
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// Watchdog remembers since when a run has made no progress. Progress brings the next train step nearer:
// a new version, or more scored rollouts towards a batch than there have been since the last
// version. So does an engine that serves a newer version. Rollouts beside a queued batch are none, nor are those that end
// otherwise, however many: a run that filters every group is stalled. The zero value is not ready; a Watchdog is
// not safe for concurrent use.
type Watchdog struct {
	opt Options

	began   bool
	lastS   float64
	sinceS  float64
	mark    mark
	ledger  protocol.Ledger
	engines map[string]engineSince
	holdS   float64
	holding bool
}

// mark is how far a run has come.
type mark struct {
	version int64
	// filled is the most scored rollouts that waited for a train step since the last version.
	filled int64
	served int64
	// full: a batch is queued. What comes beside it brings no step nearer, and may set records for hours.
	full bool
}

// engineSince is since when an engine has been in a state. One that serves another version has been in others
// meanwhile, however short.
type engineSince struct {
	state   string
	version loop.Version
	sinceS  float64
}

// New returns a watchdog that has seen nothing.
func New(o Options) *Watchdog { return &Watchdog{opt: o, engines: make(map[string]engineSince)} }

// Look takes a view and returns the part that the run waits for. It is nil while the run makes
// progress, is not running, or has not stood still for long enough. The flag stop says that it has
// for ten times as long.
func (d *Watchdog) Look(v View) (stall *protocol.Stall, stop bool) {
	d.remember(v)
	still := v.NowS - d.sinceS
	if patience := d.opt.patience(v); still < patience {
		return nil, false
	} else {
		stop = still >= stopFactor*patience
	}
	return &protocol.Stall{SinceS: still, Findings: findings(d.facts(v, still), d.opt)}, stop
}

// remember notes progress, and since when engines are in their states.
func (d *Watchdog) remember(v View) {
	s := &v.Status
	over := s.Steps > 0 && int64(s.Version) >= int64(s.Steps)
	if !d.began || v.NowS < d.lastS || s.State != "running" || over {
		d.begin(v)
	}
	d.lastS = v.NowS
	now := markOf(s)
	if now.version != d.mark.version || now.filled > d.mark.filled && !(now.full && d.mark.full) || now.served > d.mark.served {
		if now.version == d.mark.version {
			now.filled, now.served = max(now.filled, d.mark.filled), max(now.served, d.mark.served)
		}
		d.mark, d.sinceS, d.ledger = now, v.NowS, s.Ledger
	}
	d.mark.full = now.full
	for _, e := range s.Engines {
		if known, ok := d.engines[e.Name]; !ok || known.state != e.State || known.version != e.Version {
			d.engines[e.Name] = engineSince{e.State, e.Version, v.NowS}
		}
	}
	if v.Holding && !d.holding {
		d.holdS = v.NowS
	}
	d.holding = v.Holding
}

// begin forgets: from here on time counts anew.
func (d *Watchdog) begin(v View) {
	d.began, d.sinceS, d.mark, d.ledger = true, v.NowS, markOf(&v.Status), v.Status.Ledger
	clear(d.engines)
	d.holdS = v.NowS
}

func markOf(s *protocol.Status) mark {
	m := mark{version: int64(s.Version), filled: s.Ledger.Waiting + s.Ledger.Queued + s.Ledger.Leased,
		full: s.Queue.BatchGroups > 0 && s.Queue.Groups >= s.Queue.BatchGroups}
	for _, e := range s.Engines {
		m.served += int64(max(e.Version, 0))
	}
	return m
}

// facts adds to a view what only time has shown.
func (d *Watchdog) facts(v View, still float64) facts {
	f := facts{View: v, stillS: still, engineS: make([]float64, len(v.Status.Engines))}
	for i, e := range v.Status.Engines {
		f.engineS[i] = v.NowS - d.engines[e.Name].sinceS
	}
	if v.Holding {
		f.holdS = v.NowS - d.holdS
	}
	now, then := v.Status.Ledger, d.ledger
	f.lost = ends{filtered: now.Filtered - then.Filtered, discarded: now.Discarded - then.Discarded, evicted: now.Evicted - then.Evicted,
		pruned: now.Pruned - then.Pruned, failed: now.Failed - then.Failed}
	return f
}
