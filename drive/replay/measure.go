package replay

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/track"
)

// Measure extracts a recording from a trace, with or without its end note, or up to its last whole
// line. Each of beside, given the run's
// rules and warm-up, makes what observes the run beside its recorder.
func Measure(r io.Reader, beside ...Beside) (*Recording, error) {
	p, err := newPlayer(r)
	if err != nil {
		return nil, err
	}
	m := newMeasurer(p.header, p.loop.Config())
	recorder := metrics.NewRecorder(p.loop.Config())
	recorder.Warmup = p.header.Warmup
	for _, b := range beside {
		recorder.Beside = b(p.loop.Config(), p.header.Warmup)
	}
	p.OnNote, p.OnEvent = m.note, func(ev *trace.Event, seq int64, actions []loop.Action) {
		recorder.Observe(ev.Event, p.measured(ev), actions)
		m.event(ev, seq, actions)
	}
	var at *trace.Error
	if err := p.Play(); errors.As(err, &at) && at.Torn {
		m.rec.Torn = at.Line
	} else if err != nil {
		return nil, err
	}
	if d := p.Tally().Difference; d != nil {
		return nil, fmt.Errorf("replay: %v", d)
	}
	m.rec.Version, m.rec.Measured, m.rec.Series = p.loop.Version(), recorder.Summary(), recorder.Steps
	m.rec.Ledger, m.rec.Ended = p.loop.Ledger(), p.Tally().Ended
	for slot := range m.stays {
		m.leaves(int32(slot), p.loop.Status().TimeNS)
	}
	m.rec.pace(p.loop.Config())
	return m.rec, nil
}

const sourceLive = "live"

// measurer fills a recording.
type measurer struct {
	rec *Recording
	cfg loop.Config
	run track.Run
	// stays are those of the attempts in the slots. stepStart is when the train step began.
	stays     []stay
	stepStart int64
	tokens    int64 // of the groups just trained
	attends   metrics.Attendance
	// noted: the step about to end was really made. A restarted run finds some that
	// had been made before, and they say nothing about time.
	noted bool
	// pauses: engines stand still while they switch.
	pauses  bool
	engines []engine
	cells   []trimmedCell // since the last train step
	// slowestLoad and slowestSwap are of the running sync.
	slowestLoad, slowestSwap int64
}

// stay is the stay of an attempt in a slot, of which the run says the rest. It ends with its generation, with an abort,
// with the process that played it, or with a late word of an attempt that was lost with its engine; without such a word when
// the slot is taken again.
type stay struct {
	lasts bool
	// entered is when it came into its slot, first when it had its first token there, 0 for not.
	entered, first int64
}

// engine is what the measurer follows of one.
type engine struct {
	// served since the run was told at that time, unseen as long as no first token has been made
	// under it; newest is the newest version of a first token, made before the run was told.
	served, newest loop.Version
	told, newestAt int64
	unseen         bool
}

func newMeasurer(h trace.Header, cfg loop.Config) *measurer {
	return &measurer{
		rec:     &Recording{Header: h, cells: map[cell]measured{}, syncs: map[loop.Version]recordedSync{}, holds: make([][]interval, len(cfg.EngineSlots))},
		run:     track.New(cfg),
		stays:   make([]stay, cfg.Concurrency()),
		cfg:     cfg,
		noted:   h.Source != sourceLive,
		attends: metrics.NewAttendance(cfg),
		pauses:  cfg.Sync == loop.SyncPause,
		engines: slices.Repeat([]engine{{served: loop.NoVersion, newest: loop.NoVersion}}, len(cfg.EngineSlots)),
	}
}

func (m *measurer) event(ev *trace.Event, _ int64, actions []loop.Action) {
	m.rec.lastNS = ev.Time
	away := m.attends.Observe(&ev.Event, actions)
	at := m.at(ev)
	switch ev.Kind {
	case loop.RolloutScored:
		if at != nil {
			m.scored(at, ev)
		}
	case loop.TrainerReady:
		switch { // an absence says nothing of how long it takes when it is there
		case away.Absent && away.FromNS == 0:
			m.rec.lateNS = away.LengthNS()
		case away.Absent:
			m.rec.absentNS += away.LengthNS()
		default:
			m.rec.asks++
			m.rec.askedNS += away.LengthNS()
		}
	case loop.LeaseReturned:
		m.rec.absentNS += away.LengthNS()
	case loop.RolloutFailed, loop.RolloutInterrupted:
		if at != nil {
			m.leaves(ev.Slot, ev.Time)
		}
	case loop.FirstToken:
		if at != nil {
			m.stays[ev.Slot].first = ev.Time
			m.see(at.Engine, ev)
		}
	case loop.WeightsLoaded:
		m.slowestLoad = max(m.slowestLoad, m.loaded(ev))
	case loop.WeightsSwitched:
		m.slowestSwap = max(m.slowestSwap, m.loaded(ev))
	}
	stepStart := m.stepStart
	left := m.run.Event(&ev.Event)
	if ev.Kind == loop.Recovered || m.run.Stand(&ev.Event) {
		for _, slot := range left {
			m.leaves(slot, ev.Time)
		}
	}
	if ev.Kind == loop.Recovered && !m.run.Sync.Runs {
		m.slowestLoad, m.slowestSwap = 0, 0
	}
	for i := range actions {
		m.action(ev.Time, &actions[i])
		m.run.Action(&actions[i])
	}
	m.run.Done(&ev.Event)
	if m.tokens > 0 {
		m.rec.busy = append(m.rec.busy, interval{stepStart, ev.Time})
		m.rec.epochs = append(m.rec.epochs, epoch{ev.Time, m.cells})
		m.cells = nil
		if m.noted {
			m.rec.steps = append(m.rec.steps, recordedStep{tokens: m.tokens, ns: ev.Time - stepStart})
		}
		m.tokens = 0
		m.noted = m.rec.Header.Source != sourceLive
	}
}

func (m *measurer) action(now int64, a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		m.leaves(a.Slot, now) // whose engine was lost
		m.stays[a.Slot] = stay{lasts: true, entered: now}
		m.group(a.Group)
	case loop.AbortRollout: // what it ends with says nothing of a whole rollout
		if a.Slot >= 0 {
			m.leaves(a.Slot, now)
		}
	case loop.StartTrainStep:
		m.stepStart = now
	case loop.GroupTrained:
		g := m.group(a.Group)
		g.ended, g.whole = true, g.scored >= m.cfg.GroupSize
		for _, s := range g.samples {
			if s.mark != loop.MarkPruned {
				m.tokens += int64(s.tokens)
			}
		}
	case loop.GroupEnded:
		g := m.group(a.Group)
		g.ended = true
		g.whole = g.whole || g.scored >= m.cfg.GroupSize
	case loop.SyncCompleted:
		m.rec.syncs[a.Version] = recordedSync{m.slowestLoad, m.slowestSwap}
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
	reports := m.run.Reports(&ev.Event)
	if reports == nil {
		return 0
	}
	if ev.Kind == loop.WeightsSwitched {
		if m.pauses {
			m.rec.holds[ev.Engine] = append(m.rec.holds[ev.Engine], interval{reports.SinceNS, ev.Time})
		}
		e := &m.engines[ev.Engine]
		e.served, e.told = ev.Version, ev.Time
		if e.newest >= ev.Version && e.newest != loop.NoVersion {
			m.rec.sights = append(m.rec.sights, sight{ev.Engine, ev.Version, ev.Time, e.newestAt})
		} else {
			e.unseen = true
		}
	}
	return ev.Time - reports.SinceNS
}

// see notes what a first token says of the switch to its version.
func (m *measurer) see(engine int32, ev *trace.Event) {
	e := &m.engines[engine]
	m.made(engine)
	switch {
	case ev.Version > e.served && (e.newest < ev.Version || e.newest == loop.NoVersion): // before the run was told
		e.newest, e.newestAt = ev.Version, ev.Time
	case ev.Version == e.served && e.unseen:
		m.rec.sights = append(m.rec.sights, sight{engine, ev.Version, e.told, ev.Time})
		e.unseen = false
	}
}

// made counts what an engine made.
func (m *measurer) made(engine int32) {
	m.rec.made++
	if m.pauses && m.run.Engines[engine].Phase == track.Switching {
		m.rec.madeHeld++
	}
}

// leaves ends the stay in a slot, if one lasts.
func (m *measurer) leaves(slot int32, now int64) {
	s := m.stays[slot]
	m.stays[slot] = stay{}
	if !s.lasts {
		return
	}
	at := &m.run.Slots[slot]
	first := s.entered
	if s.first > 0 {
		first = s.first
	}
	m.rec.spans = append(m.rec.spans, span{group: at.Group, sample: at.Sample, number: at.Number, engine: at.Engine,
		took: s.entered, first: min(first, now), to: now})
}

// at returns the attempt that an event names if its stay lasts, else nil.
func (m *measurer) at(ev *trace.Event) *track.Attempt {
	if ev.Kind < loop.FirstToken || uint(ev.Slot) >= uint(len(m.stays)) || !m.stays[ev.Slot].lasts {
		return nil
	}
	if at := &m.run.Slots[ev.Slot]; at.Group == ev.Group && at.Sample == ev.Sample && at.Number == ev.Attempt {
		return at
	}
	return nil
}

func (m *measurer) scored(at *track.Attempt, ev *trace.Event) {
	if ev.Mark != loop.MarkPruned && math.IsNaN(float64(ev.Reward)) {
		return
	}
	if ev.EnvironmentNS == 0 {
		m.made(at.Engine)
	}
	ends := m.generatedUntil(at, ev)
	m.leaves(ev.Slot, ends)
	g := m.group(at.Group)
	if g.samples[at.Sample].scored {
		return
	}
	g.samples[at.Sample] = recordedSample{outsideNS: ev.Time - ends, tokens: ev.Tokens, number: at.Number,
		reward: ev.Reward, mark: ev.Mark, scored: true}
	g.scored++
	g.whole = g.scored == len(g.samples)
	m.rec.sampledTokens += int64(ev.Tokens)
	m.rec.generateNS += ev.GenerateNS
}

// generatedUntil is when a scored rollout's engine was done with it. Behind its first token
// it generated for no longer than its engine was asked, and not while it was in its environment.
func (m *measurer) generatedUntil(at *track.Attempt, ev *trace.Event) int64 {
	s := m.stays[ev.Slot]
	from := max(s.entered, s.first)
	until := ev.Time - max(ev.EnvironmentNS, 0)
	if !at.Resumed && ev.GenerateNS > 0 { // in one span
		until = min(until, from+ev.GenerateNS)
	}
	if s.first > 0 && ev.Tokens == 1 {
		until = s.first
	}
	return min(max(until, from), ev.Time)
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
			if c.Steps > 0 && c.NS > 0 {
				m.cells = append(m.cells, trimmedCell{key, measured{c.Steps, c.NS}})
			}
		}
	}
	return nil
}
