package bias

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/track"
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
	version loop.Version
	run     track.Run
	groups  track.Groups[liveGroup]
	// spare are the lists of rollouts of groups that have ended.
	spare  [][]rollout
	series series
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
		reuse: cfg.Policy == loop.PolicyReplay, run: track.New(cfg), groups: track.NewGroups[liveGroup](&cfg)}
	o.series = series{blocks: make([]block, 0, blocksMax), steps: 1}
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
	left := o.run.Event(&ev)
	if ev.Kind == loop.RolloutScored && len(left) > 0 && !o.run.Slots[ev.Slot].Aborted {
		o.scored(&ev, &m)
	}
	for i := range actions {
		o.run.Action(&actions[i])
		o.observeAction(&actions[i])
	}
	o.run.Done(&ev)
}

// scored takes the end of a rollout that its group may keep.
func (o *Observer) scored(ev *loop.Event, m *metrics.Measured) {
	g, reward := o.groups.Get(ev.Group), float64(ev.Reward)
	if g == nil || ev.Mark == loop.MarkPruned || math.IsNaN(reward) || math.IsInf(reward, 0) {
		return
	}
	r := &g.rollouts[ev.Sample]
	r.done, r.tokens, r.environment = true, ev.Tokens, m.EnvironmentNS/1000
	if o.known == nil {
		r.startedTokens, r.startedEnvironment, r.known = r.tokens, r.environment, true
	}
	g.scored++
	if ev.Mark == loop.MarkSolved {
		g.solved++
	}
}

func (o *Observer) observeAction(a *loop.Action) {
	switch a.Kind {
	case loop.StartRollout:
		o.start(a)
	case loop.GroupLeased:
		o.leased(a)
	case loop.StartTrainStep:
		o.position = 0
	case loop.GroupTrained:
		o.trained(a)
	case loop.GroupEnded:
		if g := o.groups.Get(a.Group); g != nil {
			o.end(a.Group, g)
		}
	}
}

func (o *Observer) start(a *loop.Action) {
	g, opened := o.groups.Put(a.Group)
	if opened {
		*g = liveGroup{prompt: a.Prompt, level: a.Level, birth: o.version - o.warmup, rollouts: o.list()}
		if g.birth >= 0 {
			o.series.of(g.birth).live++
		}
	}
	r := &g.rollouts[a.Sample]
	if !r.issued && o.known != nil {
		tokens, ns := o.known(*a)
		r.startedTokens, r.startedEnvironment, r.known = tokens, ns/1000, true
	}
	r.issued, r.done = true, false
}

// list returns an empty list of a group's rollouts.
func (o *Observer) list() []rollout {
	n := len(o.spare)
	if n == 0 {
		return make([]rollout, o.stride)
	}
	l := o.spare[n-1]
	o.spare = o.spare[:n-1]
	clear(l)
	return l
}

// leased notes where in its batch a group stands; a step tried again names the
// same batch in the same order.
func (o *Observer) leased(a *loop.Action) {
	i := o.position
	o.position++
	g := o.groups.Get(a.Group)
	if g == nil || a.Attempt > 1 || i >= o.batch || g.scored == 0 || o.version < o.warmup {
		return
	}
	tokens := int64(0)
	for _, r := range g.rollouts {
		if r.done {
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
	g := o.groups.Get(a.Group)
	if g == nil {
		return
	}
	g.uses++
	if !o.reuse {
		o.end(a.Group, g)
	}
}
