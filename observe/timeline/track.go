package timeline

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// Processes of the file, as viewers call a set of tracks. Engines come last.
const (
	trainerProcess = 1
	queueProcess   = 2
	engineProcess  = 3
)

// Tracks within a process.
const (
	stepTrack    = 1 // of the trainer
	syncTrack    = 2 // of the trainer: weight syncs of the whole fleet
	moveTrack    = 3 // of the trainer: what a controller moved, and what became of its goal
	endTrack     = 1 // of the queue: groups that end untrained
	weightsTrack = 1 // of an engine
	slotTrack    = 2 // of an engine: the first of its slots
)

// nameTracks tells the viewer what the tracks are, and their order.
func (d *Drawing) nameTracks() {
	o := d.out
	o.process(trainerProcess, "trainer")
	o.track(trainerProcess, stepTrack, "train steps")
	o.track(trainerProcess, syncTrack, "weight syncs")
	if d.opt.Rules.Control != nil {
		o.track(trainerProcess, moveTrack, "settings and target")
	}
	o.process(queueProcess, "queue")
	o.track(queueProcess, endTrack, "groups that end untrained")
	for e, n := range d.opt.Rules.EngineSlots {
		o.process(engineProcess+e, fmt.Sprintf("engine %d", e))
		o.track(engineProcess+e, weightsTrack, "weights")
		for k := range n {
			o.track(engineProcess+e, slotTrack+k, fmt.Sprintf("slot %d", int(d.run.Engines[e].First)+k))
		}
	}
}

// clip is where a span that began at a time begins in the window.
func (d *Drawing) clip(from int64) int64 { return max(from, d.totals.FromNS) }

// How a rollout ends that may go on; how train steps end whose groups have arrows to them.
const (
	interrupted = "interrupted"
	trained     = "trained"
	running     = "running"
)

// outcome is how a rollout left its slot.
type outcome struct {
	end           string
	tokens        int32
	reward        float32
	scored        bool
	environmentNS int64
}

// endRollout draws the rollout in a slot, which leaves it.
func (d *Drawing) endRollout(slot int32, o outcome) {
	if d.window != inside {
		return
	}
	at := &d.run.Slots[slot]
	r := rollout{group: at.Group, sample: at.Sample, attempt: at.Number, resumed: at.Resumed, unwanted: at.Aborted}
	r.from, r.version = d.run.Entered(slot)
	pid, tid := engineProcess+int(at.Engine), slotTrack+int(slot-d.run.Engines[at.Engine].First)
	var parts []stretch
	if d.clip(r.from) < d.now { // else it would be taken for a part of what begins there
		parts = d.drawRollout(pid, tid, r, o)
	}
	if o.scored || o.end == interrupted {
		d.keep(r, o.scored, pid, tid, d.clip(r.from), parts)
	}
}

// drawRollout draws what ran in a slot, and returns where the parts of it are.
func (d *Drawing) drawRollout(pid, tid int, r rollout, o outcome) []stretch {
	from := d.clip(r.from)
	d.totals.RolloutNS += d.now - from
	d.totals.Rollouts++
	e := d.out
	e.span(pid, tid, "rollout", from, d.now)
	e.nameGroup(r.group)
	e.colour(r.version)
	e.args()
	e.arg("group", int64(r.group))
	e.arg("sample", int64(r.sample))
	e.arg("attempt", int64(r.attempt))
	e.arg("version", int64(r.version))
	if r.resumed {
		e.arg("resumed", 1)
	}
	if o.tokens > 0 {
		e.arg("tokens", int64(o.tokens))
	}
	if o.scored {
		e.argFloat("reward", float64(o.reward))
	}
	e.argText("end", o.end)
	if from > r.from {
		e.argFloat("began_s", float64(r.from)/1e9)
	}
	e.close()
	return d.drawParts(pid, tid, r, from, o.environmentNS)
}

// endStep draws the running train step.
func (d *Drawing) endStep(how string) {
	s, lease := d.step, d.run.Lease
	d.step = step{}
	if d.window != inside {
		return
	}
	from := d.clip(lease.SinceNS)
	d.totals.TrainNS += d.now - from
	d.totals.TrainSteps++
	e := d.out
	e.span(trainerProcess, stepTrack, "train", from, d.now)
	e.nameVersion("step to v", lease.Version+1)
	e.colour(lease.Version + 1)
	e.args()
	e.arg("from_version", int64(lease.Version))
	e.arg("lease", int64(lease.ID))
	e.arg("groups", s.groups)
	e.arg("rollouts", s.rollouts)
	if s.groups > 0 {
		n := float64(s.groups)
		e.argFloat("staleness_mean", float64(s.staleness)/n)
		e.arg("staleness_max", int64(s.stalenessMax))
		e.argFloat("pqs_mean", float64(s.pqs)/n)
		e.argFloat("iqs_mean", float64(s.iqs)/n)
	}
	e.argText("end", how)
	if how != trained && how != running {
		e.close()
		return
	}
	var tails []moment
	var left int64
	if from < d.now {
		tails, left = d.into(s.batch)
	}
	if left > 0 {
		e.arg("arrows_left_out", left)
		d.arrows.left += left
	}
	e.close()
	start := within(trainerProcess, stepTrack, from, d.now)
	for _, tail := range tails {
		d.join(rolloutArrow, tail, start)
	}
	if how == trained && from < d.now {
		d.made(lease.Version+1, moment{trainerProcess, stepTrack, d.now - 1})
	}
}

// drawStaleness shows the staleness of the batch whose step begins.
func (d *Drawing) drawStaleness() {
	if s := &d.step; d.window == inside && s.groups > 0 {
		e := d.out
		e.counter(trainerProcess, "staleness of the batch", d.now)
		e.args()
		e.argFloat("mean", float64(s.staleness)/float64(s.groups))
		e.arg("max", int64(s.stalenessMax))
		e.close()
	}
}

// drawSync draws the phase of a sync that an engine is in, unless that took no time.
func (d *Drawing) drawSync(engine int32, how string) {
	s := &d.run.Engines[engine]
	from := d.clip(s.SinceNS)
	if d.window != inside || s.Phase != track.Loading && s.Phase != track.Switching || from >= d.now {
		return
	}
	e := d.out
	e.span(engineProcess+int(engine), weightsTrack, "sync", from, d.now)
	if s.Phase == track.Loading {
		e.nameVersion("load v", s.Loading)
	} else {
		e.nameVersion("switch to v", s.Loading)
	}
	e.colour(s.Loading)
	d.endedBy(how)
	d.ship(shipment{engine, s.Loading, within(engineProcess+int(engine), weightsTrack, from, d.now)})
}

// endedBy closes a span with how it ended, where that is worth a word.
func (d *Drawing) endedBy(how string) {
	if how != "" {
		d.out.args()
		d.out.argText("end", how)
	}
	d.out.close()
}

// endFleet draws the sync of the whole fleet.
func (d *Drawing) endFleet(how string) {
	s := d.fleet
	d.fleet = track.Sync{}
	defer d.arrows.settle(s.Version)
	if from := d.clip(s.SinceNS); s.Runs && d.window == inside && from < d.now {
		d.out.span(trainerProcess, syncTrack, "sync", from, d.now)
		d.out.nameVersion("sync v", s.Version)
		d.out.colour(s.Version)
		d.endedBy(how)
		d.shipped(s.Version, within(trainerProcess, syncTrack, from, d.now))
	}
}

// drawEnd marks a group that ends untrained.
func (d *Drawing) drawEnd(a *loop.Action) {
	e := d.out
	e.instant(queueProcess, endTrack, a.End.String(), d.now)
	e.nameText(a.End.String())
	e.args()
	e.arg("group", int64(a.Group))
	e.argText("reason", a.Reason.String())
	e.arg("scored_rollouts", int64(a.Count))
	e.arg("start_version", int64(a.StartVersion))
	e.arg("version", int64(a.Version))
	e.close()
}

// gauge is a number over time.
type gauge int

const (
	queueGroups gauge = iota
	inFlight
	trainedVersion
	servedVersion
	gaugeCount
)

// gauges draws the numbers that changed, once an instant at most for every event.
func (d *Drawing) gauges() {
	oldest := d.ahead
	for i := range d.run.Engines {
		if v := d.run.Engines[i].Served; v != loop.NoVersion { // one of another cell has never served
			oldest = min(oldest, v)
		}
	}
	level := [gaugeCount]int64{queueGroups: int64(len(d.queue.ready)), inFlight: d.run.Active, trainedVersion: int64(d.ahead), servedVersion: int64(oldest)}
	if d.shown && level == d.level {
		return
	}
	e := d.out
	show := func(pid int, name, series string, value gauge) {
		if !d.shown || level[value] != d.level[value] {
			e.counter(pid, name, d.now)
			e.args()
			e.arg(series, level[value])
			e.close()
		}
	}
	show(queueProcess, "ready groups", "groups", queueGroups)
	show(queueProcess, "rollouts in flight", "rollouts", inFlight)
	show(trainerProcess, "version trained", "version", trainedVersion)
	show(trainerProcess, "version served", "version", servedVersion)
	d.level, d.shown = level, true
}
