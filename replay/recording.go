package replay

import (
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/trace"
)

// Recording is what a run's rollouts, steps and syncs took.
type Recording struct {
	// Header of the trace.
	Header trace.Header
	// Version the run reached.
	Version loop.Version
	// groups by id, from 1; steps in the order of their leases.
	groups []recordedGroup
	steps  []recordedStep
	cells  map[cell]measured
	loads  mean // of a sync's slowest engine, ns
	swaps  mean
	// sampledTokens, generateNS and spentNS (from its start to its reward) of all scored
	// rollouts, and how many there were.
	sampledTokens, generateNS, spentNS, scored int64
	// firstTokenNS is the time from a start to its first token, where that was reported.
	firstTokenNS mean
	// fitted is what calibrate found, nil before; fitError why it found nothing.
	fitted   *overhead
	fitError error
	fitting  sync.Once
}

// recordedGroup is one prompt's rollouts as far as they finished.
type recordedGroup struct {
	samples []recordedSample
	scored  int
	ended   bool
	// whole: it ended with as many scored rollouts as it trains on.
	whole bool
}

type recordedSample struct {
	tokens int32
	// outsideNS is the time its slot was held and the engine did not generate for it:
	// environment, and what lies between the runtime and the ports.
	outsideNS int64
	reward    float32
	verdict   loop.Verdict
	scored    bool
}

// longest returns the scored rollout with the most tokens, which stands for one
// that was cancelled because enough others were ready.
func (g *recordedGroup) longest() *recordedSample {
	best := &g.samples[0]
	for i := range g.samples {
		if s := &g.samples[i]; s.scored && (!best.scored || s.tokens > best.tokens) {
			best = s
		}
	}
	return best
}

// recordedStep is one train step.
type recordedStep struct {
	tokens int64 // response tokens of its batch
	ns     int64 // from its start to the version it produced
}

// cell is a kind of decode step.
type cell struct {
	active int
	busy   bool
}

type measured struct{ steps, ns int64 }

// mean is a running mean.
type mean struct {
	sum float64
	n   int
}

func (m *mean) add(v int64) {
	m.sum += float64(v)
	m.n++
}

func (m *mean) ns() int64 {
	if m.n == 0 {
		return 0
	}
	return int64(m.sum / float64(m.n))
}

// Measure extracts a recording from a trace, with or without its end note.
func Measure(r io.Reader) (*Recording, error) {
	p, err := newPlayer(r)
	if err != nil {
		return nil, err
	}
	m := measurer{
		rec:     &Recording{Header: p.header, cells: map[cell]measured{}},
		running: make([]attempt, p.loop.Config().Concurrency()),
		cfg:     p.loop.Config(),
		parked:  map[parkedID]int64{},
		noted:   p.header.Source != sourceLive,
		pauses:  p.loop.Config().Sync == loop.SyncPause,
		engines: make([]engine, len(p.loop.Config().EngineSlots)),
	}
	p.OnEvent, p.OnNote = m.event, m.note
	if err := p.Play(); err != nil {
		return nil, err
	}
	if d := p.Tally().Difference; d != nil {
		return nil, fmt.Errorf("replay: %v", d)
	}
	m.rec.Version = p.loop.Version()
	return m.rec, nil
}

const sourceLive = "live"

// measurer fills a recording.
type measurer struct {
	rec *Recording
	cfg loop.Config
	// parked is how long an interrupted rollout has held slots so far.
	parked map[parkedID]int64
	// running is what runs in each slot, stepStart when the train step began.
	running   []attempt
	stepStart int64
	tokens    int64 // of the groups just trained
	// noted: the step about to end was really made. A restarted run finds some that
	// had been made before, and they say nothing about time.
	noted bool
	// pauses: engines stand still while they switch.
	pauses  bool
	engines []engine
	// slowestLoad and slowestSwap are of the running sync.
	slowestLoad, slowestSwap int64
}

// parkedID names an interrupted rollout.
type parkedID struct {
	group  loop.GroupID
	sample int32
}

// attempt is a rollout in a slot; its zero value is none.
type attempt struct {
	group   loop.GroupID
	sample  int32
	number  int32
	engine  int32
	started int64
	heldNS  int64 // of its engine, when it started
}

// engine is what the measurer follows of one.
type engine struct {
	// number and started are of the load or switch under way.
	number    int32
	switching bool
	started   int64
	// heldNS is how long it has stood still for switches so far.
	heldNS int64
}

func (m *measurer) event(ev *trace.Event, _ int64, actions []loop.Action) {
	switch ev.Kind {
	case loop.RolloutScored:
		m.scored(ev)
	case loop.RolloutInterrupted:
		if at := m.runningAt(ev); at.group != 0 {
			m.parked[parkedID{at.group, at.sample}] = ev.Time - at.started
			m.running[ev.Slot] = attempt{}
		}
	case loop.FirstToken:
		if at := m.runningAt(ev); at.group != 0 {
			m.rec.firstTokenNS.add(ev.Time - at.started)
		}
	case loop.WeightsLoaded:
		m.slowestLoad = max(m.slowestLoad, m.loaded(ev))
	case loop.WeightsSwitched:
		m.slowestSwap = max(m.slowestSwap, m.loaded(ev))
	case loop.Recovered:
		m.slowestLoad, m.slowestSwap = 0, 0
	}
	stepStart := m.stepStart
	for i := range actions {
		m.action(ev.Time, &actions[i])
	}
	if m.tokens > 0 {
		if m.noted {
			m.rec.steps = append(m.rec.steps, recordedStep{tokens: m.tokens, ns: ev.Time - stepStart})
		}
		m.tokens = 0
		m.noted = m.rec.Header.Source != sourceLive
	}
}

func (m *measurer) action(now int64, a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout:
		m.running[a.Slot] = attempt{group: a.Group, sample: a.Sample, number: a.Attempt, engine: a.Engine, started: now, heldNS: m.engines[a.Engine].heldNS}
		m.group(a.Group)
	case loop.ResumeRollout:
		id := parkedID{a.Group, a.Sample}
		m.running[a.Slot] = attempt{group: a.Group, sample: a.Sample, number: a.Attempt, engine: a.Engine, started: now - m.parked[id], heldNS: m.engines[a.Engine].heldNS}
		delete(m.parked, id)
	case loop.AbortRollout: // what it ends with says nothing of a whole rollout
		if a.Slot >= 0 {
			m.running[a.Slot] = attempt{}
		}
		delete(m.parked, parkedID{a.Group, a.Sample})
	case loop.StartTrainStep:
		m.stepStart = now
	case loop.GroupTrained:
		g := m.group(a.Group)
		g.ended, g.whole = true, g.scored >= m.cfg.GroupSize
		for _, s := range g.samples {
			if s.verdict != loop.VerdictPruned {
				m.tokens += int64(s.tokens)
			}
		}
	case loop.GroupEnded:
		g := m.group(a.Group)
		g.ended = true
		g.whole = g.whole || g.scored >= m.cfg.GroupSize
	case loop.LoadWeights, loop.SwitchWeights:
		e := &m.engines[a.Engine]
		e.number, e.started, e.switching = a.Attempt, now, a.Kind == loop.SwitchWeights
	case loop.SyncCompleted:
		m.rec.loads.add(m.slowestLoad)
		m.rec.swaps.add(m.slowestSwap)
		m.slowestLoad, m.slowestSwap = 0, 0
	}
}

// group returns the record of a group; ids rise by one, so the list has no gaps.
func (m *measurer) group(id loop.GroupID) *recordedGroup {
	for len(m.rec.groups) < int(id) {
		m.rec.groups = append(m.rec.groups, recordedGroup{samples: make([]recordedSample, m.cfg.GroupSize+m.cfg.Redundancy)})
	}
	return &m.rec.groups[id-1]
}

// loaded returns how long a load or switch took that an event ends; 0 if it ends none.
func (m *measurer) loaded(ev *trace.Event) int64 {
	if ev.Engine < 0 || int(ev.Engine) >= len(m.engines) || m.engines[ev.Engine].number != ev.Attempt {
		return 0
	}
	e := &m.engines[ev.Engine]
	spent := ev.Time - e.started
	if e.switching {
		e.heldNS += spent
	}
	return spent
}

// generated returns how long a rollout really generated: its time at the engine
// without its share of what that stood still. The simulation holds it again.
func (m *measurer) generated(at attempt, ev *trace.Event) int64 {
	if !m.pauses || ev.GenerateNS <= 0 {
		return ev.GenerateNS
	}
	held := float64(m.engines[at.engine].heldNS - at.heldNS)
	share := float64(ev.GenerateNS) / float64(ev.GenerateNS+ev.EnvironmentNS)
	return max(ev.GenerateNS-int64(held*share), 0)
}

// runningAt returns the attempt that an event names, none if it is late and runs nowhere.
func (m *measurer) runningAt(ev *trace.Event) attempt {
	if ev.Slot < 0 || int(ev.Slot) >= len(m.running) {
		return attempt{}
	}
	at := m.running[ev.Slot]
	if at.group != ev.Group || at.sample != ev.Sample || at.number != ev.Attempt {
		return attempt{}
	}
	return at
}

func (m *measurer) scored(ev *trace.Event) {
	at := m.runningAt(ev)
	if at.group == 0 || ev.Verdict != loop.VerdictPruned && math.IsNaN(float64(ev.Reward)) {
		return
	}
	m.running[ev.Slot] = attempt{}
	g := m.group(at.group)
	if g.samples[at.sample].scored {
		return
	}
	spent := ev.Time - at.started
	outside := max(spent-ev.GenerateNS, ev.EnvironmentNS, 0)
	g.samples[at.sample] = recordedSample{tokens: ev.Tokens, outsideNS: outside, reward: ev.Reward, verdict: ev.Verdict, scored: true}
	g.scored++
	g.whole = g.scored == len(g.samples)
	m.rec.sampledTokens += int64(ev.Tokens)
	m.rec.generateNS += m.generated(at, ev)
	m.rec.spentNS += spent
	m.rec.scored++
}

func (m *measurer) note(name string, data []byte) error {
	switch name {
	case trace.NoteStep:
		m.noted = true
	case trace.NoteService:
		var s trace.Service
		if err := json.Unmarshal(data, &s); err != nil {
			return fmt.Errorf("unreadable service note: %w", err)
		}
		for _, c := range s.Cells {
			if c.Active < 1 || c.Steps < 0 || c.NS < 0 {
				return fmt.Errorf("service note with %d active slots, %d steps and %d ns, want at least 1, 0 and 0", c.Active, c.Steps, c.NS)
			}
			key := cell{c.Active, c.TrainerBusy}
			sum := m.rec.cells[key]
			m.rec.cells[key] = measured{sum.steps + c.Steps, sum.ns + c.NS}
		}
	}
	return nil
}

// Groups returns how many groups were started, and how many of them are wholly known.
func (r *Recording) Groups() (started, complete int) {
	for i := range r.groups {
		if r.groups[i].whole {
			complete++
		}
	}
	return len(r.groups), complete
}

// NSPerToken returns the mean time of one token in one slot: of the decode steps
// where the engines measured them, otherwise of all generation.
func (r *Recording) NSPerToken() float64 {
	slotSteps, slotNS := 0.0, 0.0
	for key, m := range r.cells {
		slotSteps += float64(key.active) * float64(m.steps)
		slotNS += float64(key.active) * float64(m.ns)
	}
	if slotSteps > 0 {
		return slotNS / slotSteps
	}
	return float64(r.generateNS) / float64(max(r.sampledTokens, 1))
}

// pool lists the groups to resample from: the last quarter of those that were
// opened before the first one that is not wholly known. Later ones would favour
// short rollouts, which had time to end.
func (r *Recording) pool() []int {
	var whole []int
	for i := range r.groups {
		g := &r.groups[i]
		if !g.whole && !g.ended {
			break
		}
		if g.whole {
			whole = append(whole, i)
		}
	}
	if len(whole) == 0 { // a run that ended early: better biased than nothing
		for i := range r.groups {
			if r.groups[i].whole {
				whole = append(whole, i)
			}
		}
	}
	return slices.Clone(whole[len(whole)-(len(whole)+3)/4:])
}
