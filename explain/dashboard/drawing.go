package dashboard

import (
	"fmt"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// lanesMax bounds the rows of the queue; groups that find no free one are counted, and not drawn.
const lanesMax = 32

// drawing turns events and actions into spans.
type drawing struct {
	rows   rows
	arrows flows
	tracks []Track
	now    int64

	slotTrack  []int // of every slot
	loadTrack  []int // of every engine
	laneTrack  int   // of the first lane
	trainTrack int
	syncTrack  int

	run track.Run
	// fleet is the sync of the fleet, which loads of engines that join begin too.
	fleet track.Sync
	lanes []waiting
	// syncs counts those of the fleet, syncNS their time.
	syncs, syncNS int64
}

// waiting is a group in a lane of the queue; 0 for none.
type waiting struct {
	group   loop.GroupID
	from    int64
	version loop.Version
}

func newDrawing(rules loop.Config, engines []string, spansMax int) *drawing {
	d := &drawing{run: track.New(rules), arrows: flows{max: 1 << 15}}
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
			d.slotTrack = append(d.slotTrack, add(fmt.Sprintf("slot %d", len(d.slotTrack)), "slot", "rollout", name))
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
	d.rows = newRows(len(d.tracks), spansMax)
	return d
}

// event takes an event, and ends the spans that it ends.
func (d *drawing) event(ev *loop.Event, environmentNS int64) {
	d.now = max(d.now, ev.Time)
	switch ev.Kind {
	case loop.WeightsLoaded, loop.WeightsSwitched, loop.SyncFailed:
		if d.run.Reports(ev) != nil {
			d.drawPhase(ev.Engine, ev.Kind == loop.SyncFailed)
		}
	case loop.EngineLost, loop.Recovered:
		for e, goOn := range d.run.Loses(ev) {
			d.lose(e, goOn)
		}
	}
	trains := d.run.Lease.Runs
	left := d.run.Event(ev)
	if ev.Kind == loop.Recovered && !d.run.Sync.Runs {
		d.endFleet()
	}
	for _, slot := range left {
		switch ev.Kind {
		case loop.RolloutScored:
			d.drawSlot(slot, SpanGenerate, environmentNS)
		case loop.RolloutFailed:
			d.drawSlot(slot, SpanFailed, 0)
		case loop.RolloutAborted, loop.RolloutInterrupted:
			d.drawSlot(slot, SpanInterrupted, 0)
		}
	}
	if trains && !d.run.Lease.Runs {
		d.drawStep(map[bool]SpanKind{true: SpanTrain, false: SpanFailed}[ev.Kind == loop.TrainStepEnded])
	}
}

// action takes an action. What it replaces ends, which is nothing unless events were missed.
func (d *drawing) action(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		if d.run.Slots[a.Slot].Runs {
			d.drawSlot(a.Slot, SpanInterrupted, 0)
		}
	case loop.StartTrainStep:
		if d.run.Lease.Runs {
			d.drawStep(SpanFailed)
		}
	case loop.LoadWeights:
		if !d.fleet.Runs {
			d.fleet = track.Sync{Runs: true, Version: a.Version, SinceNS: d.now}
		}
	case loop.SyncCompleted:
		d.endFleet()
	}
	for _, slot := range d.run.Action(a) {
		d.drawSlot(slot, SpanFailed, 0)
	}
}

// done ends a step.
func (d *drawing) done(ev *loop.Event) {
	for _, slot := range d.run.Done(ev) {
		d.drawSlot(slot, SpanFailed, 0)
	}
}

// drawSlot draws the rollout that leaves a slot. Of the environment's time only the sum is known: it is drawn at the end.
func (d *drawing) drawSlot(slot int32, kind SpanKind, environmentNS int64) {
	from, version := d.run.Entered(slot)
	group := int32(d.run.Slots[slot].Group)
	row, turn := d.slotTrack[slot], max(from, d.now-environmentNS)
	d.rows.add(row, span{from, turn, group, int32(version), 1, kind, 0})
	if environmentNS > 0 {
		d.rows.add(row, span{turn, d.now, group, int32(version), 1, SpanEnvironment, 0})
	}
}

// lose draws what ends with an engine that is about to be lost. Its rollouts end by events of their own where goOn says
// so.
func (d *drawing) lose(engine int32, goOn bool) {
	slots, first := d.run.On(&d.run.Engines[engine])
	for i := range slots {
		if slots[i].Runs && !goOn {
			d.drawSlot(first+int32(i), SpanFailed, 0)
		}
	}
	d.drawPhase(engine, true)
}

// phase is the span of an engine that loads or switches.
func phase(e *track.Engine) (kind SpanKind, on bool) {
	if e.Phase == track.Switching {
		return SpanSwitch, true
	}
	return SpanLoad, e.Phase == track.Loading
}

// drawPhase draws the load or the switch of an engine that ends.
func (d *drawing) drawPhase(engine int32, failed bool) {
	e := &d.run.Engines[engine]
	kind, on := phase(e)
	if failed {
		kind = SpanFailed
	}
	if on {
		d.rows.add(d.loadTrack[engine], span{e.SinceNS, d.now, int32(e.Loading), int32(e.Loading), 1, kind, 0})
	}
}

func (d *drawing) endFleet() {
	if f := d.fleet; f.Runs {
		d.syncs++
		d.syncNS += d.now - f.SinceNS
		d.rows.add(d.syncTrack, span{f.SinceNS, d.now, int32(f.Version), int32(f.Version), 1, SpanSync, 0})
	}
	d.fleet = track.Sync{}
}

// drawStep draws the train step that ends.
func (d *drawing) drawStep(kind SpanKind) {
	next := int32(d.run.Lease.Version) + 1
	d.rows.add(d.trainTrack, span{d.run.Lease.SinceNS, d.now, next, next, 1, kind, 0})
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
	for slot := range d.run.Slots {
		if at := &d.run.Slots[slot]; at.Runs {
			from, version := d.run.Entered(int32(slot))
			show(d.slotTrack[slot], from, int64(at.Group), int64(version), SpanGenerate)
		}
	}
	for i := range d.run.Engines {
		e := &d.run.Engines[i]
		if kind, on := phase(e); on {
			show(d.loadTrack[i], e.SinceNS, int64(e.Loading), int64(e.Loading), kind)
		}
	}
	if f := d.fleet; f.Runs {
		show(d.syncTrack, f.SinceNS, int64(f.Version), int64(f.Version), SpanSync)
	}
	for i, w := range d.lanes {
		if w.group != 0 {
			show(d.laneTrack+i, w.from, int64(w.group), int64(w.version), SpanQueued)
		}
	}
	if s := d.run.Lease; s.Runs {
		show(d.trainTrack, s.SinceNS, int64(s.Version)+1, int64(s.Version)+1, SpanTrain)
	}
	return spans, earliest
}
