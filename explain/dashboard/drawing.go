package dashboard

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
)

// lanesMax bounds the rows of the queue; groups that find no free one are counted, and not drawn.
const lanesMax = 32

// drawing turns events and actions into spans. It follows what runs in each slot, what each engine loads, which
// groups wait and what the trainer does.
type drawing struct {
	rows   rows
	arrows flows
	tracks []Track
	now    int64

	engineOf   []int32 // of every slot
	slotTrack  []int   // of every slot
	loadTrack  []int   // of every engine
	laneTrack  int     // of the first lane
	trainTrack int
	syncTrack  int

	slots []running
	loads []loading
	fleet loading
	lanes []waiting
	step  training
	// syncs counts those of the fleet, syncNS their time.
	syncs, syncNS int64
	// trainFrom is when the step that ended last began.
	trainFrom int64
	// resumes: the rollouts of a lost engine say themselves that they were interrupted.
	resumes bool
}

// running is the attempt in a slot; group 0 for none.
type running struct {
	group           loop.GroupID
	from            int64
	version         loop.Version
	sample, attempt int32
}

// loading is a weight sync of an engine, or of all.
type loading struct {
	on      bool
	kind    SpanKind
	version loop.Version
	from    int64
	// done: what was loaded waits for its switch.
	done bool
}

// waiting is a group in a lane of the queue; 0 for none.
type waiting struct {
	group   loop.GroupID
	from    int64
	version loop.Version
}

// training is the running train step; lease 0 for none.
type training struct {
	lease   loop.LeaseID
	version loop.Version
	from    int64
}

func newDrawing(rules loop.Config, engines []string, spansMax int) *drawing {
	d := &drawing{resumes: rules.ResumeLost, arrows: flows{max: 1 << 15}}
	add := func(name, kind, row, group string) int {
		d.tracks = append(d.tracks, Track{ID: len(d.tracks), Name: name, Kind: kind, Row: row, Group: group})
		return len(d.tracks) - 1
	}
	for e, n := range rules.EngineSlots {
		name := fmt.Sprintf("engine-%d", e)
		if e < len(engines) {
			name = engines[e]
		}
		d.loadTrack = append(d.loadTrack, add("weights", "weights", "rollout", name))
		for range n {
			d.slotTrack = append(d.slotTrack, add(fmt.Sprintf("slot %d", len(d.engineOf)), "slot", "rollout", name))
			d.engineOf = append(d.engineOf, int32(e))
		}
	}
	d.lanes = make([]waiting, min(max(rules.QueueGroups, 1), lanesMax))
	for i := range d.lanes {
		track := add(fmt.Sprintf("place %d", i+1), "queue", "queue", "queue")
		if i == 0 {
			d.laneTrack = track
		}
	}
	d.trainTrack = add("train steps", "trainer", "train", "trainer")
	d.syncTrack = add("weight syncs", "sync", "train", "trainer")
	d.slots, d.loads = make([]running, len(d.engineOf)), make([]loading, len(rules.EngineSlots))
	d.rows = newRows(len(d.tracks), spansMax)
	return d
}

// event ends the spans that an event ends.
func (d *drawing) event(ev *loop.Event, environmentNS int64) {
	d.now = max(d.now, ev.Time)
	switch ev.Kind {
	case loop.RolloutScored:
		d.endAttempt(ev, SpanGenerate, environmentNS)
	case loop.RolloutFailed:
		d.endAttempt(ev, SpanFailed, 0)
	case loop.RolloutAborted, loop.RolloutInterrupted:
		d.endAttempt(ev, SpanInterrupted, 0)
	case loop.EngineLost:
		if !d.resumes {
			d.lose(ev.Engine)
		}
		d.endLoad(ev.Engine, SpanFailed)
	case loop.Recovered:
		d.recover()
	case loop.TrainStepEnded:
		d.endStep(ev.Lease, SpanTrain)
	case loop.TrainStepFailed, loop.LeaseReturned:
		d.endStep(ev.Lease, SpanFailed)
	case loop.TrainerRestored:
		if d.step.lease != 0 && ev.Version == d.step.version+1 {
			d.endStep(d.step.lease, SpanFailed)
		}
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed:
		d.weights(ev)
	}
}

// weights follows an engine's load and switch.
func (d *drawing) weights(ev *loop.Event) {
	if ev.Engine < 0 || int(ev.Engine) >= len(d.loads) || !d.loads[ev.Engine].on || d.loads[ev.Engine].version != ev.Version {
		return
	}
	switch ev.Kind {
	case loop.WeightsLoaded:
		if l := &d.loads[ev.Engine]; !l.done {
			d.drawLoad(ev.Engine, l.kind)
			l.done = true
		}
	case loop.WeightsSwitched:
		d.endLoad(ev.Engine, d.loads[ev.Engine].kind)
	default:
		d.endLoad(ev.Engine, SpanFailed)
	}
}

// action begins the spans that an action begins.
func (d *drawing) action(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		if a.Slot >= 0 && int(a.Slot) < len(d.slots) {
			d.endSlot(a.Slot, SpanInterrupted, 0) // nothing, unless events were missed
			d.slots[a.Slot] = running{a.Group, d.now, a.Version, a.Sample, a.Attempt}
		}
	case loop.StartTrainStep:
		d.endStep(d.step.lease, SpanFailed)
		d.step = training{a.Lease, a.Version, d.now}
	case loop.LoadWeights:
		d.loads[a.Engine] = loading{on: true, kind: SpanLoad, version: a.Version, from: d.now}
		if !d.fleet.on {
			d.fleet = loading{on: true, kind: SpanSync, version: a.Version, from: d.now}
		}
	case loop.SwitchWeights:
		d.loads[a.Engine] = loading{on: true, kind: SpanSwitch, version: a.Version, from: d.now}
	case loop.SyncCompleted:
		d.endFleet()
	}
}

func (d *drawing) endAttempt(ev *loop.Event, kind SpanKind, environmentNS int64) {
	if ev.Slot < 0 || int(ev.Slot) >= len(d.slots) {
		return
	}
	if r := &d.slots[ev.Slot]; r.group == ev.Group && r.sample == ev.Sample && r.attempt == ev.Attempt {
		d.endSlot(ev.Slot, kind, environmentNS)
	}
}

// endSlot draws what ran in a slot. Of the environment's time only the sum is known: it is drawn at the end.
func (d *drawing) endSlot(slot int32, kind SpanKind, environmentNS int64) {
	r := d.slots[slot]
	if r.group == 0 {
		return
	}
	d.slots[slot] = running{}
	track, turn := d.slotTrack[slot], max(r.from, d.now-environmentNS)
	d.rows.add(track, span{r.from, turn, int32(r.group), int32(r.version), 1, kind, 0})
	if environmentNS > 0 {
		d.rows.add(track, span{turn, d.now, int32(r.group), int32(r.version), 1, SpanEnvironment, 0})
	}
}

// lose ends everything in an engine's slots.
func (d *drawing) lose(engine int32) {
	for slot := range d.slots {
		if d.engineOf[slot] == engine {
			d.endSlot(int32(slot), SpanFailed, 0)
		}
	}
}

func (d *drawing) recover() {
	for e := range d.loads {
		d.lose(int32(e))
		d.endLoad(int32(e), SpanFailed)
	}
	d.endFleet()
}

func (d *drawing) drawLoad(engine int32, kind SpanKind) {
	if l := d.loads[engine]; l.on && !l.done {
		d.rows.add(d.loadTrack[engine], span{l.from, d.now, int32(l.version), int32(l.version), 1, kind, 0})
	}
}

func (d *drawing) endLoad(engine int32, kind SpanKind) {
	if engine >= 0 && int(engine) < len(d.loads) {
		d.drawLoad(engine, kind)
		d.loads[engine] = loading{}
	}
}

func (d *drawing) endFleet() {
	if f := d.fleet; f.on {
		d.syncs++
		d.syncNS += d.now - f.from
		d.rows.add(d.syncTrack, span{f.from, d.now, int32(f.version), int32(f.version), 1, SpanSync, 0})
	}
	d.fleet = loading{}
}

func (d *drawing) endStep(lease loop.LeaseID, kind SpanKind) {
	if s := d.step; s.lease != 0 && s.lease == lease {
		next := int32(s.version) + 1
		d.trainFrom = s.from
		d.rows.add(d.trainTrack, span{s.from, d.now, next, next, 1, kind, 0})
		d.step = training{}
	}
}

// waits puts a ready group into a free lane and returns it, -1 if there is none.
func (d *drawing) waits(g loop.GroupID, version loop.Version) int32 {
	for i := range d.lanes {
		if d.lanes[i].group == 0 {
			d.lanes[i] = waiting{g, d.now, version}
			return int32(i)
		}
	}
	return -1
}

// leaves takes a group out of its lane.
func (d *drawing) leaves(g loop.GroupID, lane int32, kind SpanKind) {
	if lane < 0 || d.lanes[lane].group != g {
		return
	}
	w := d.lanes[lane]
	d.lanes[lane] = waiting{}
	d.rows.add(d.laneTrack+int(lane), span{w.from, d.now, int32(g), int32(w.version), 1, kind, 0})
}

// open returns what has not ended, drawn up to now, and the earliest beginning of it.
func (d *drawing) open() (spans [][]span, earliest int64) {
	spans, earliest = make([][]span, len(d.tracks)), d.now
	show := func(track int, from int64, ref, version int64, kind SpanKind) {
		earliest = min(earliest, from)
		if from < d.now {
			spans[track] = append(spans[track], span{from, d.now, int32(ref), int32(version), 1, kind, 0})
		}
	}
	for slot, r := range d.slots {
		if r.group != 0 {
			show(d.slotTrack[slot], r.from, int64(r.group), int64(r.version), SpanGenerate)
		}
	}
	for e, l := range d.loads {
		if l.on && !l.done {
			show(d.loadTrack[e], l.from, int64(l.version), int64(l.version), l.kind)
		}
	}
	if d.fleet.on {
		show(d.syncTrack, d.fleet.from, int64(d.fleet.version), int64(d.fleet.version), SpanSync)
	}
	for i, w := range d.lanes {
		if w.group != 0 {
			show(d.laneTrack+i, w.from, int64(w.group), int64(w.version), SpanQueued)
		}
	}
	if s := d.step; s.lease != 0 {
		show(d.trainTrack, s.from, int64(s.version)+1, int64(s.version)+1, SpanTrain)
	}
	return spans, earliest
}
