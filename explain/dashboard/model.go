package dashboard

import (
	"cmp"
	"context"
	"math"
	"sync"
	"sync/atomic"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// Defaults of Options.
const (
	spansDefault   = 1 << 20
	groupsDefault  = 1 << 16
	payloadDefault = 64 << 20
	// recorderSteps is how many points the recorder remembers; the series has its own.
	recorderSteps = 1 << 12
	// recentSteps is how many train periods the rates of a live run are of.
	recentSteps = metrics.RecentSteps
)

// Options say what run a model is of. Rules are needed; the rest may be zero.
type Options struct {
	// Info is what does not change; the bounds of the timeline are filled in.
	Info Info
	// Rules are those of the run's loop.
	Rules loop.Config
	// Warmup is the version at which the measured window begins, CapTokens the length at which responses are cut.
	Warmup    loop.Version
	CapTokens int32
	// Status, if not nil, is the loop's state now. Without it SetStatus says it.
	Status func() loop.Status
	// Stall, if not nil, is what the run waits for, empty for nothing.
	Stall func() string
	// Setting, if not nil, is the run as the closed forms have it, at measured rates; false where nothing is known yet.
	Setting func(metrics.Summary) (Setting, bool)
	// Diagnose, if not nil, diagnoses the run, within Context; a nil Context never ends.
	Diagnose Diagnose
	Context  context.Context
	// Recorder and Attribution, if not nil, have observed the run until now: they go on, and belong to the model.
	Recorder    *metrics.Recorder
	Attribution *attribution.Observer
	// SpansMax bounds the spans of the timeline, GroupsMax the groups whose figures are kept, PayloadBytesMax the bytes
	// of their rollouts. The value 0 means 1,048,576, 65,536 and 64 MiB.
	SpansMax, GroupsMax int
	PayloadBytesMax     int64
}

// Model is a run as far as it has been observed. Any number of goroutines may ask while one observes.
type Model struct {
	mu     sync.Mutex
	opt    Options
	rec    *metrics.Recorder
	source *attribution.Observer
	draw   *drawing
	groups *groups
	reads  *readings
	series *series
	status loop.Status
	// period sums what happened since the last step, recent has the queue's groups after the last steps, healthOf the
	// rates of their periods and what bound.
	period   period
	recent   []int
	healthOf metrics.Recent
	off      offPolicy
	ended    bool
	state    string
	reward   Trend
	read     *Reading
	missed   int64
	// expected is what was predicted before the run.
	expected Predicted
	// problem says why no more can be shown.
	problem string
	// changed is closed, and made anew, when there is something new to see;
	changed chan struct{}
	dirty   bool
	told    int64
	last    latest
	// followers counts open streams.
	followers atomic.Int64
	forms     forms
	// moves are those of a controller.
	moves moves
	// computing computes what takes longer.
	computing *computeQueue
	// findings is the newest diagnosis.
	findings findings
	// closedMean is the closed form at what was measured over closedAt steps.
	closed     sync.Mutex
	closedAt   int64
	closedMean *float64
}

// period is what happened between the ends of two train steps.
type period struct {
	scored, trained int64 // rollouts
	ready, accepted int64 // groups
}

// offPolicy is what the trainer said of the newest step.
type offPolicy struct {
	clip, logRatio, ess float64
	heldOut             *float64
	heldOutStep         int64
}

// New returns a model of a run of which nothing has been observed.
func New(opt Options) *Model {
	or := func(p *int, otherwise int) {
		*p = cmp.Or(*p, otherwise)
	}
	or(&opt.SpansMax, spansDefault)
	or(&opt.GroupsMax, groupsDefault)
	opt.PayloadBytesMax = cmp.Or(opt.PayloadBytesMax, payloadDefault)
	if opt.Context == nil {
		opt.Context = context.Background()
	}
	opt.Info.TimelineLevelMin, opt.Info.TimelineLevelMax = levelMin, levelMax
	m := &Model{opt: opt, rec: opt.Recorder, series: newSeries(), state: "starting",
		reads: newReadings(opt.PayloadBytesMax), changed: make(chan struct{}), computing: newComputeQueue()}
	if m.rec == nil {
		m.rec = metrics.NewRecorder(opt.Rules)
		m.rec.Warmup, m.rec.CapTokens, m.rec.StepsMax = opt.Warmup, opt.CapTokens, recorderSteps
	}
	if m.source = opt.Attribution; m.source == nil {
		m.source = attribution.New(opt.Rules)
		m.source.Warmup = opt.Warmup
	}
	m.rec.Beside = m.source
	for _, s := range m.rec.Steps {
		m.point(s)
	}
	m.draw = newDrawing(opt.Rules, opt.Info.Engines, opt.SpansMax)
	m.groups = newGroups(opt.Rules, m.draw, opt.GroupsMax)
	m.source.OnGroup = m.groups.split
	return m
}

// Observe takes one event with its measurements and the actions that followed. It only reads them.
func (m *Model) Observe(ev *loop.Event, measured *metrics.Measured, actions []loop.Action) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.observe(ev, measured, actions)
}

func (m *Model) observe(ev *loop.Event, measured *metrics.Measured, actions []loop.Action) {
	m.state, m.dirty = "running", true
	steps := m.rec.Version()
	if measured.Control != nil {
		m.moves.status = measured.Control
	}
	m.rec.ObserveEvent(ev, measured, actions)
	m.draw.event(ev, measured.EnvironmentNS)
	m.groups.event(ev)
	if ev.Kind == loop.RolloutScored {
		m.period.scored++
	}
	for i := range actions {
		a := &actions[i]
		m.draw.action(a)
		m.groups.action(a, m.draw.now)
		m.count(a)
	}
	m.draw.done(ev)
	if m.rec.Version() != steps && len(m.rec.Steps) > 0 {
		m.healthOf.Stepped(m.rec)
		if p := m.rec.Steps[len(m.rec.Steps)-1]; p.Step == m.rec.Version() {
			m.point(p)
			m.sources(int64(p.Step), m.source.Last())
		}
	}
}

// sources puts down where a step's staleness and the idle time before it came from.
func (m *Model) sources(step int64, s attribution.Step) {
	for source, versions := range s.Split {
		m.series.set(step, "from_"+attribution.Source(source).String(), versions)
	}
	for side, idle := range map[string]attribution.Idle{"trainer_": s.Trainer, "engines_": s.Engines} {
		for cause, share := range map[string]float64{"starved": idle.Starved, "syncing": idle.Syncing, "validating": idle.Validating, "paused": idle.Paused, "blocked": idle.Blocked} {
			m.series.set(step, side+cause, share)
		}
	}
}

// count takes what an action says of the period.
func (m *Model) count(a *loop.Action) {
	p := &m.period
	switch a.Kind {
	case loop.GroupQueued, loop.GroupHeld:
		p.ready++
		p.accepted++
	case loop.GroupTrained:
		p.trained += int64(a.Count)
	case loop.GroupEnded:
		if a.End == loop.EndFiltered {
			p.ready++
		}
	case loop.SettingChanged:
		m.moves.move(a, m.draw.now)
	case loop.FinishRun:
		m.state = "stopped"
	}
}

// point ends a period with the step that the recorder made of it.
func (m *Model) point(s metrics.Step) {
	p := m.period
	m.period = period{}
	if len(m.recent) == recentSteps {
		m.recent = append(m.recent[:0], m.recent[1:]...)
	}
	m.recent = append(m.recent, s.QueueGroups)
	periodS, trainS := float64(s.PeriodNS)/1e9, float64(s.TrainNS)/1e9
	production := over(float64(p.scored), periodS)
	acceptance := over(float64(p.accepted), float64(p.ready))
	m.series.add(int64(s.Step), float64(s.TimeNS)/1e9, []float64{s.Reward, s.Staleness, s.PQS, s.IQS, float64(s.StalenessMax),
		s.TokenStaleness, periodS, trainS, s.TrainerIdle, s.RolloutIdle, float64(s.QueueGroups), over(float64(s.Tokens), periodS), float64(s.Tokens),
		production, production * acceptance, over(float64(p.trained), trainS), acceptance})
	m.controlPoint(&s)
	if len(m.series.steps) == 1 {
		m.reward.First, m.reward.Best = s.Reward, s.Reward
	}
	m.reward.Last, m.reward.Best = s.Reward, math.Max(m.reward.Best, s.Reward)
}

// over is a ratio, NaN where nothing is below.
func over(a, b float64) float64 {
	if b <= 0 {
		return math.NaN()
	}
	return a / b
}

// StepFigures are what others than the loop say of a train step. NaN is not known.
type StepFigures struct {
	Step                                            int64
	ClipFraction, MeanLogRatio, EffectiveSampleSize float64
	// HeldOut is an evaluation that was new at this step, of version HeldOutStep; nil for none.
	HeldOut     *float64
	HeldOutStep int64
}

// Figures takes what the trainer said of a step. The step's event has to be observed before.
func (m *Model) Figures(f StepFigures) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.dirty = true
	for name, v := range map[string]float64{"clip_fraction": f.ClipFraction, "mean_log_ratio": f.MeanLogRatio, "effective_sample_size": f.EffectiveSampleSize} {
		if v == v {
			m.series.set(f.Step, name, v)
		}
	}
	m.off.clip, m.off.logRatio, m.off.ess = f.ClipFraction, f.MeanLogRatio, f.EffectiveSampleSize
	if f.HeldOut != nil {
		m.off.heldOut, m.off.heldOutStep = f.HeldOut, f.HeldOutStep
		m.series.set(f.HeldOutStep, "held_out", *f.HeldOut)
	}
}

// Expect takes what was predicted before the first step.
func (m *Model) Expect(before Predicted) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.expected = before
}

// SetStatus says the loop's state, where Options.Status does not.
func (m *Model) SetStatus(st loop.Status) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.status, m.dirty = st, true
}

// SetReading says how far a recorded run has been read; the zero value, that it has been read whole.
func (m *Model) SetReading(r Reading) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.read, m.dirty = nil, true
	if r != (Reading{}) {
		m.read = &r
	}
}

// End says that nothing more comes; problem why not everything could be shown, empty for no reason.
func (m *Model) End(problem string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.ended, m.dirty, m.read = true, true, nil
	if problem != "" {
		m.problem = problem
	}
	m.tell()
}

// Changed returns a channel that is closed at the next Tell.
func (m *Model) Changed() <-chan struct{} {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.changed
}

// Tell wakes those who follow the run, if there is something new.
func (m *Model) Tell() {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.dirty {
		m.tell()
	}
}

func (m *Model) tell() {
	close(m.changed)
	m.changed, m.dirty = make(chan struct{}), false
	m.told++
}
