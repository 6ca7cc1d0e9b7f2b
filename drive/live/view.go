package live

import (
	"slices"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// viewEvery is the least time between two views, in nanoseconds; a train step's end
// makes one at once.
const viewEvery = int64(100e6)

// View is what a run looks like from outside: copies, as of AtNS.
type View struct {
	// AtNS is when it was made, NowNS when it was asked for, both in the run's time: nanoseconds
	// since the loop began.
	AtNS, NowNS int64
	// Began: the loop has begun. Until then version 0 is waited for, or engines load.
	Began bool
	// Status is the loop's state.
	Status loop.Status
	// Step is the newest point of the series, the zero value before the first. Summary is
	// that of the measured window, made anew at most once a second.
	Step    metrics.Step
	Summary metrics.Summary
	// Attribution says where the staleness and the idle time of the last train periods came from.
	Attribution attribution.Summary
	// Staleness is that of the groups trained last, and of how many.
	Staleness RecentStaleness
	// Rates are those of the last train periods.
	Rates Rates
	// PeriodNS is the median of the last train periods, the trainer's absences left out; 0 before the first step.
	PeriodNS int64
	// TrainerIdle and RolloutIdle are the idle shares of the last train periods.
	TrainerIdle, RolloutIdle float64
	// Last is when something of each kind happened last.
	Last Progress
	// Engines has one entry an engine, in the order of Status.Engines.
	Engines []EngineView
	// Offered: a batch is at the trainer, or waits for one to take it, since OfferedNS.
	Offered   bool
	OfferedNS int64
	// QueueFull: the queue takes no more, since QueueFullNS.
	QueueFull   bool
	QueueFullNS int64
	// DiskFull: the run waits for room in its store, since DiskFullNS.
	DiskFull   bool
	DiskFullNS int64
}

// RecentStaleness is the staleness, in versions, of the groups that were trained last.
type RecentStaleness struct {
	// Groups is how many, up to 512; all is 0 where it is 0.
	Groups         int
	Mean, PQS, IQS float64
	P50, P95, Max  loop.Version
}

// Progress is when something of each kind happened last, in the run's time; -1 for never.
type Progress struct {
	// TrainStepNS is the end of a train step, LeaseNS a batch being selected, SyncNS the end of
	// a weight sync.
	TrainStepNS, LeaseNS, SyncNS int64
	// ScoredNS is a rollout being scored, FirstTokenNS a rollout's first token, StartedNS a
	// rollout being started or resumed.
	ScoredNS, FirstTokenNS, StartedNS int64
	// AskedNS is the trainer asking for a batch, where it has to.
	AskedNS int64
}

// EngineView is what the runtime knows of an engine beside its status.
type EngineView struct {
	// Name is the engine's.
	Name string
	// Oldest is the attempt that has been at the engine, or in its environment, longest, since
	// OldestNS; the zero RolloutID if there is none.
	Oldest   port.RolloutID
	OldestNS int64
	// Lost counts how often the engine was lost since it served last; RejoinNS is when it is tried
	// again, loop.NoTick for never.
	Lost     int
	RejoinNS int64
	// Error is what its last load or switch failed by, while it is lost; empty for none.
	Error string
}

// recentGroups is how many trained groups RecentStaleness looks back on, recentSteps how
// many train periods the idle shares do.
const (
	recentGroups = 512
	recentSteps  = 32
)

// viewer makes views. All but newest belong to the goroutine that owns the loop.
type viewer struct {
	newest atomic.Pointer[View]
	// dirty: something happened since the newest view, which was made at; stepped: a train step
	// ended since. timer fires, and disarm stops it, when the next one is due.
	dirty   bool
	at      int64
	stepped bool
	timer   <-chan time.Time
	disarm  func() bool
	last    Progress
	// staleness is a ring of the groups trained last, of which there were so many.
	staleness [recentGroups][3]loop.Version
	trained   int
	rates     rates
	// summary was made at summaryAt; unsummed: a train step has ended since.
	summary   metrics.Summary
	summaryAt int64
	unsummed  bool
}

// View returns the newest view of the run. Any goroutine may call it, at any time, before
// Run, during it and after it. It costs a copy; the slices are shared, and not to be changed.
func (r *Runtime) View() View {
	v := *r.view.newest.Load()
	v.NowNS = r.clock()
	v.DiskFullNS, v.DiskFull = r.space.Full()
	return v
}

// watchProgress notes when something of each kind happened last.
func (r *Runtime) watchProgress(ev loop.Event, actions []loop.Action) {
	v := &r.view
	v.dirty = true
	v.rates.observe(&ev, actions)
	switch ev.Kind {
	case loop.TrainStepEnded:
		if n := len(r.rec.Steps); n > 0 && int64(r.rec.Steps[n-1].Step) != v.rates.version {
			v.rates.step(r.rec.Steps[n-1])
		}
		v.last.TrainStepNS = ev.Time
		v.stepped, v.unsummed = true, true
	case loop.RolloutScored:
		v.last.ScoredNS = ev.Time
	case loop.FirstToken:
		v.last.FirstTokenNS = ev.Time
	case loop.TrainerReady:
		v.last.AskedNS = ev.Time
	}
	for i := range actions {
		switch a := &actions[i]; a.Kind {
		case loop.StartRollout, loop.ResumeRollout:
			v.last.StartedNS = ev.Time
		case loop.StartTrainStep:
			v.last.LeaseNS = ev.Time
		case loop.SyncCompleted:
			v.last.SyncNS = ev.Time
		case loop.GroupTrained:
			total, pqs, iqs := a.Staleness()
			v.staleness[v.trained%recentGroups] = [3]loop.Version{total, pqs, iqs}
			v.trained++
		}
	}
}

// publishIfDue makes a view now and then, and whenever a train step has ended. What
// happens in between is seen when the timer fires, of which there is one at a time.
func (r *Runtime) publishIfDue() {
	v := &r.view
	left := v.at + viewEvery - r.clock()
	switch {
	case !v.dirty:
	case left <= 0, v.stepped:
		r.publish()
	case v.timer == nil:
		v.timer, v.disarm = r.opt.Timer(time.Duration(left))
	}
}

// publish makes a view.
func (r *Runtime) publish() {
	v, now := &r.view, r.clock()
	if v.newest.Load() == nil {
		v.last = Progress{-1, -1, -1, -1, -1, -1, -1}
	}
	view := &View{AtNS: now, Began: r.began, Status: r.l.Status(), Last: v.last, Engines: make([]EngineView, len(r.opt.Engines))}
	steps := r.rec.Steps
	if n := len(steps); n > 0 {
		view.Step = steps[n-1]
	}
	if v.unsummed && (v.summaryAt == 0 || now-v.summaryAt >= int64(1e9)) {
		v.summary, v.summaryAt, v.unsummed = r.rec.Summary(), now, false
	}
	view.Summary, view.Attribution = v.summary, r.source.Recent()
	view.TrainerIdle, view.RolloutIdle = idle(steps[max(0, len(steps)-recentSteps):])
	view.Staleness, view.Rates, view.PeriodNS = v.recent(), v.rates.recent(), usualPeriod(steps[max(0, len(steps)-recentSteps):])
	view.Offered, view.OfferedNS = view.Status.Lease != 0, v.last.LeaseNS
	if st := &view.Status; st.QueueCapacityGroups > 0 && st.QueueGroups >= st.QueueCapacityGroups {
		view.QueueFull, view.QueueFullNS = true, now
		if before := v.newest.Load(); before != nil && before.QueueFull {
			view.QueueFullNS = before.QueueFullNS
		}
	}
	r.viewEngines(view.Engines)
	v.newest.Store(view)
	v.dirty, v.stepped, v.at = false, false, now
	if v.timer != nil {
		v.disarm()
		v.timer = nil
	}
}

// idle returns the idle shares over train periods.
func idle(steps []metrics.Step) (trainer, rollout float64) {
	sum := 0.0
	for i := range steps {
		period := float64(steps[i].PeriodNS)
		trainer += steps[i].TrainerIdle * period
		rollout += steps[i].RolloutIdle * period
		sum += period
	}
	if sum == 0 {
		return 0, 0
	}
	return trainer / sum, rollout / sum
}

// usualPeriod is the median of train periods without the trainer's absences. A mean would count the wait for a trainer
// that came late, and a step that hung for an hour.
func usualPeriod(steps []metrics.Step) int64 {
	if len(steps) == 0 {
		return 0
	}
	periods := make([]int64, len(steps))
	for i := range steps {
		periods[i] = steps[i].PeriodNS - steps[i].AbsentNS
	}
	slices.Sort(periods)
	return periods[len(periods)/2]
}

// recent sums the ring up.
func (v *viewer) recent() RecentStaleness {
	n := min(v.trained, recentGroups)
	if n == 0 {
		return RecentStaleness{}
	}
	s := RecentStaleness{Groups: n}
	totals := make([]loop.Version, n)
	for i := range n {
		g := &v.staleness[i]
		totals[i] = g[0]
		s.Mean += float64(g[0]) / float64(n)
		s.PQS += float64(g[1]) / float64(n)
		s.IQS += float64(g[2]) / float64(n)
	}
	slices.Sort(totals)
	s.P50, s.P95, s.Max = totals[(n-1)/2], totals[(n-1)*95/100], totals[n-1]
	return s
}

// viewEngines fills in what the runtime knows of each engine.
func (r *Runtime) viewEngines(to []EngineView) {
	for i, e := range r.opt.Engines {
		q := &r.engines[i]
		to[i] = EngineView{Name: e.Name(), Lost: q.tries, RejoinNS: q.due}
		if q.err != nil && r.l.Lost(i) {
			to[i].Error = q.err.Error()
		}
	}
	for e, h := range r.started.running() {
		v := &to[e]
		if v.Oldest == (port.RolloutID{}) || h.since < v.OldestNS || h.since == v.OldestNS && before(h.id, v.Oldest) {
			v.Oldest, v.OldestNS = h.id, h.since
		}
	}
}

// before orders attempts, so that of equally old ones the same is named.
func before(id, o port.RolloutID) bool {
	if id.Group != o.Group {
		return id.Group < o.Group
	}
	return id.Sample < o.Sample
}
