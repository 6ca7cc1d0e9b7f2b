package bias

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Options name the known properties and those to compare.
type Options struct {
	// Known returns the length and the environment's time of the attempt that a StartRollout
	// starts, as a simulation knows them. Nil where they become known at the rollout's end alone.
	Known func(start loop.Action) (tokens int32, environmentNS int64)
	// Warmup is the version at which the compared window begins; 0 compares from the start.
	Warmup loop.Version
}

// Limits of what is told apart; what is beyond shares cells.
const (
	promptsMax = 1 << 16
	levelsMax  = 1 << 10
	// positions are the parts of a batch, in selection order.
	positions = 10
	// solveCells are solve rates 0, above 0 to 0.1, …, above 0.8 below 1, and 1.
	solveCells = 11
)

// Observer takes the stream of a run: the same events, measurements and actions as
// metrics.Recorder. It does not allocate in the steady state.
type Observer struct {
	known   func(start loop.Action) (int32, int64)
	warmup  loop.Version
	stride  int
	size    int
	batch   int
	reuse   bool // trained groups may be trained again
	resumes bool // a lost engine's rollouts say themselves that they were interrupted
	version loop.Version
	// engineOf is the engine of every slot.
	engineOf []int32
	groups   table
	series   series
	counts
	// position is that of the next group to be leased in its batch.
	position int
}

// counts are of all groups that were opened in the window and have ended.
type counts struct {
	groups, rollouts, censored int64
	// Histograms of all started, of trained (as often as they were) and of untrained rollouts.
	length, environment [3]histogram
	// What the correlation of siblings is estimated from.
	lengthSpread, environmentSpread spread
	prompts, levels, solved         []share
	solvedSum                       [2]float64 // of solve rates: started, trained
	trainedGroups                   int64
	order                           [positions]sums
}

// Histogram indices.
const (
	started = iota
	trained
	untrained
)

// NewObserver returns an observer of a loop with these rules.
func NewObserver(cfg loop.Config, opt Options) *Observer {
	o := &Observer{known: opt.Known, warmup: opt.Warmup, stride: cfg.GroupSize + cfg.Redundancy, size: cfg.GroupSize, batch: cfg.BatchGroups,
		reuse: cfg.Policy == loop.PolicyReplay, resumes: cfg.ResumeLost}
	for engine, n := range cfg.EngineSlots {
		for range n {
			o.engineOf = append(o.engineOf, int32(engine))
		}
	}
	o.series = series{blocks: make([]block, 0, blocksMax), steps: 1}
	o.groups.init(4*(cfg.Concurrency()/cfg.GroupSize+cfg.QueueGroups+cfg.BatchGroups+4), o.stride)
	if cfg.Prompts > 0 {
		o.prompts = make([]share, min(cfg.Prompts, promptsMax))
	}
	if cfg.Levels > 0 {
		o.levels = make([]share, min(cfg.Levels, levelsMax))
	}
	o.solved = make([]share, solveCells)
	return o
}

// Observe takes one event and the actions that followed from it.
func (o *Observer) Observe(ev loop.Event, m metrics.Measured, actions []loop.Action) {
	switch ev.Kind {
	case loop.RolloutScored:
		o.scored(&ev, &m)
	case loop.RolloutFailed, loop.RolloutAborted:
		if r := o.running(&ev); r != nil {
			r.state = gone
		}
	case loop.RolloutInterrupted:
		if r := o.running(&ev); r != nil {
			r.slot = -1
		}
	case loop.EngineLost:
		if !o.resumes {
			o.lose(ev.Engine)
		}
	case loop.Recovered:
		o.lose(-1)
	}
	for i := range actions {
		o.observeAction(&actions[i])
	}
}

// lose ends every attempt on an engine, on all of them and interrupted ones too for a
// negative one.
func (o *Observer) lose(engine int32) {
	for i := range o.groups.places {
		if g := &o.groups.places[i]; g.id != 0 {
			rollouts := o.groups.rollouts(g)
			for k := range rollouts {
				r := &rollouts[k]
				if r.state == running && (engine < 0 || r.slot >= 0 && o.engineOf[r.slot] == engine) {
					r.state = gone
				}
			}
		}
	}
}

// running returns the rollout whose attempt an event completes, nil for a late event.
func (o *Observer) running(ev *loop.Event) *rollout {
	g := o.groups.get(ev.Group)
	if g == nil || ev.Sample < 0 || int(ev.Sample) >= o.stride {
		return nil
	}
	r := &o.groups.rollouts(g)[ev.Sample]
	if r.state != running || r.attempt != ev.Attempt || r.slot != ev.Slot {
		return nil
	}
	return r
}

func (o *Observer) scored(ev *loop.Event, m *metrics.Measured) {
	r := o.running(ev)
	if r == nil {
		return
	}
	reward := float64(ev.Reward)
	if ev.Verdict == loop.VerdictPruned || math.IsNaN(reward) || math.IsInf(reward, 0) {
		r.state = gone
		return
	}
	r.state, r.tokens, r.environment = done, ev.Tokens, m.EnvironmentNS/1000
	if o.known == nil {
		r.startedTokens, r.startedEnvironment, r.known = r.tokens, r.environment, true
	}
	g := o.groups.get(ev.Group)
	g.scored++
	if ev.Verdict == loop.VerdictSolved {
		g.solved++
	}
}

func (o *Observer) observeAction(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout:
		o.start(a)
	case loop.ResumeRollout:
		if g := o.groups.get(a.Group); g != nil {
			o.groups.rollouts(g)[a.Sample].slot = a.Slot
		}
	case loop.AbortRollout:
		if g := o.groups.get(a.Group); g != nil {
			o.groups.rollouts(g)[a.Sample].state = gone
		}
	case loop.GroupLeased:
		o.leased(a)
	case loop.StartTrainStep:
		o.position = 0
	case loop.GroupTrained:
		o.trained(a)
	case loop.GroupEnded:
		if g := o.groups.get(a.Group); g != nil {
			o.end(g)
		}
	}
}

func (o *Observer) start(a *loop.Action) {
	g := o.groups.get(a.Group)
	if g == nil {
		g = o.groups.put(a.Group)
		g.prompt, g.level, g.birth = a.Prompt, a.Level, o.version-o.warmup
		if g.birth >= 0 {
			o.series.of(g.birth).live++
		}
	}
	r := &o.groups.rollouts(g)[a.Sample]
	if r.attempt == 0 {
		r.attempt = a.Attempt
		if o.known != nil {
			tokens, ns := o.known(*a)
			r.startedTokens, r.startedEnvironment, r.known = tokens, ns/1000, true
		}
	}
	r.attempt, r.slot, r.state = a.Attempt, a.Slot, running
}

// leased notes where in its batch a group stands; a step tried again names the
// same batch in the same order.
func (o *Observer) leased(a *loop.Action) {
	i := o.position
	o.position++
	g := o.groups.get(a.Group)
	if g == nil || a.Attempt > 1 || i >= o.batch || g.scored == 0 || o.version < o.warmup {
		return
	}
	tokens := int64(0)
	for _, r := range o.groups.rollouts(g) {
		if r.state == done {
			tokens += int64(r.tokens)
		}
	}
	x, y := 0.5, float64(tokens)/float64(g.scored)
	if o.batch > 1 {
		x = float64(i) / float64(o.batch-1)
	}
	at := &o.order[i*min(positions, o.batch)/o.batch]
	at.trained++
	at.trainedX += y
	m := &o.series.of(o.version - o.warmup).order
	m.scale(&moments{1, x, x * x, y, x * y, y * y}, 1)
}

func (o *Observer) trained(a *loop.Action) {
	o.version = max(o.version, a.Version+1)
	g := o.groups.get(a.Group)
	if g == nil {
		return
	}
	g.uses++
	if !o.reuse {
		o.end(g)
	}
}
