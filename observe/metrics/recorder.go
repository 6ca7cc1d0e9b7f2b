package metrics

import (
	"github.com/headway-rl/headway/loop"
)

// StalenessMax is the largest staleness the histogram tells apart; larger values count there.
const StalenessMax = 4095

// VersionTokens are tokens that one version sampled in one go.
type VersionTokens = loop.VersionTokens

// Measured is what a driver knows beside the event: of a scored rollout what the
// loop does not see, and the state of the queue.
type Measured struct {
	// QueueGroups is the loop's queue after the event.
	QueueGroups int
	// VersionTokens is the sum over the response's tokens of the version that sampled them.
	VersionTokens int64
	// ByVersion are the response's tokens by the version that sampled them, in the order they were made;
	// nil where the driver does not say. It is valid during the call.
	ByVersion []VersionTokens
	// EnvironmentNS is the part of the rollout's time that its environment took.
	EnvironmentNS int64
	// Spans is how many runs of tokens of one version, between interruptions, the response is
	// made of; 0 where the driver does not say.
	Spans int
	// Resumed says that the rollout was resumed after an interruption.
	Resumed bool
	// StateLag is the age in versions of the oldest tokens that made the state of a resumed rollout's
	// environment, counted to its last resumption. It is 0 if the rollout never was resumed.
	StateLag int64
	// Parts splits the latency of a scored rollout and ToolCalls counts its tool calls, where
	// the driver tells them apart; nil where it does not.
	Parts     *Parts
	ToolCalls int32
	// Control is what the loop says of its controller after the end of a train step; nil for other
	// events, and without a goal.
	Control *loop.ControlStatus
}

// Recorder observes every event of a run with the actions that follow from it.
// It does not allocate in the steady state beyond the series of steps, and with
// StepsMax what it remembers does not grow with the run.
type Recorder struct {
	slots    int64
	keep     bool // trained groups may be trained again
	asks     bool // the trainer has asked for a batch before it is idle
	resumes  bool // a lost engine's rollouts say themselves that they were interrupted
	asked    bool // it has since its last step began
	attends  Attendance
	groups   table
	slotsOf  []slotUse
	pasts    []past
	engineOf []int32
	// served is the version each engine serves, loading the attempt of its load or switch that has not
	// ended, 0 for none; backlog is what stands interrupted.
	served       []loop.Version
	loading      []int32
	pool         pool
	backlog      backlog
	active       int64
	version      loop.Version
	now          int64
	settled      int64 // the time up to which what is counted by time has been
	leaseStart   int64 // of the running step; -1 while the trainer is idle
	trainFrom    int64 // when the step that waits for a validation goes on
	lease        loop.LeaseID
	leaseAttempt int32
	// syncing: a weight sync has begun and not ended.
	syncing bool
	// syncsUpTo[i] counts the versions up to syncsFrom+i that a sync brought to the engines.
	syncsUpTo []int32
	syncsFrom loop.Version
	// madeAt is when the newest versions were made that no sync has brought yet, by the version's low bits.
	madeAt [madeKept]madeVersion

	// Warmup is the version at which the measured window begins; 0 measures from the start.
	Warmup loop.Version

	// Beside, if not nil, is told all that the recorder is told, after it.
	Beside Beside
	told   told

	// CapTokens is the length at which responses are cut, 0 for no count of those that were.
	CapTokens int32

	window  window
	step    window // since the last step's end
	outside outside
	control *control // nil without a goal
	// Steps is the series, one point a train step, in order. It has all steps, or at least the newest
	// StepsMax points and less than twice as many.
	Steps []Step
	// StepsMax bounds what is remembered of the series, for a driver that runs without an end and
	// writes it down elsewhere; 0 for no bound. The summary's confidence interval rests on what is
	// remembered, so set it before the first event and leave it.
	StepsMax int
}

// slotUse is the attempt that runs in a slot; group 0 means none does. It is kept
// small: every rollout writes one and reads it again.
type slotUse struct {
	group   loop.GroupID
	sample  int32
	attempt int32
	// start is when its time in slots began, the time it stood interrupted left out.
	start int64
	// first is the version that its engine served when it started.
	first, engine int32
	// past says that the slot's entry in Recorder.pasts is this attempt's.
	past bool
	// aborted: it ended when it was to stop, failed if it did not end with its group; the slot
	// waits for the engine's word.
	aborted, failed bool
}

// past is what is remembered of a resumed attempt: how often it was interrupted with
// tokens, and how many it had then.
type past struct {
	interruptions, tokens int32
}

// window sums what happens between two instants.
type window struct {
	start                             int64
	groups, rollouts                  int64 // trained
	pqs, iqs                          int64
	stalenessMax                      loop.Version
	trainedTokens, trainedMaxTokens   int64
	versionTokens                     int64 // Σ tokens·(train version − token version)
	reward                            float64
	steps                             int64
	trainNS                           int64
	trainerIdleNS                     int64
	absentNS                          int64 // the trainer was absent (Attendance)
	activeNS, awayNS                  int64 // Σ active slots · time, Σ slots of engines that are the pool's · time
	sampled, sampledTokens, sampleMax int64
	durationNS, environmentNS         int64 // Σ over scored rollouts
	durationMaxNS                     int64
	ready, readyMaxNS                 int64 // groups ready, Σ of their longest rollout
	accepted                          int64 // groups not filtered
	stalenessSyncs                    int64 // Σ over trained groups, counted in syncs
	brought, broughtNS                int64 // versions that every engine came to serve, Σ of the times since they were made
	histogram                         []int64
	stillNS                           int64 // no rollout in any slot
	syncIdleNS                        int64 // trainer idle during a sync
	validatesIdleNS                   int64 // a train step waits for a validation
	truncated                         int64 // scored rollouts of CapTokens and more
	failures                          Failures
	waste                             waste
	partial                           partial
	signal                            signal
}

// NewRecorder returns a recorder for a loop with these rules.
func NewRecorder(cfg loop.Config) *Recorder {
	r := &Recorder{slots: int64(cfg.Concurrency()), keep: cfg.Policy == loop.PolicyReplay, asks: cfg.TrainerAsks, resumes: cfg.ResumeLost, leaseStart: -1}
	r.served, r.loading = make([]loop.Version, len(cfg.EngineSlots)), make([]int32, len(cfg.EngineSlots))
	r.pool, r.attends = newPool(&cfg), NewAttendance(cfg)
	r.slotsOf, r.pasts = make([]slotUse, cfg.Concurrency()), make([]past, cfg.Concurrency())
	for engine, n := range cfg.EngineSlots {
		for range n {
			r.engineOf = append(r.engineOf, int32(engine))
		}
	}
	r.groups.init(4 * (cfg.Concurrency()/cfg.GroupSize + cfg.QueueGroups + cfg.BatchGroups + 4))
	r.window.histogram = make([]int64, StalenessMax+1)
	r.control = newControl(cfg.Control)
	r.syncsUpTo = make([]int32, 1, 64)
	return r
}

// Grow reserves room for a number of steps, so that the series does not grow while it is measured.
func (r *Recorder) Grow(steps int) {
	r.Steps = append(make([]Step, 0, len(r.Steps)+steps), r.Steps...)
	r.syncsUpTo = append(make([]int32, 0, min(len(r.syncsUpTo)+steps+1, 2*syncsKept)), r.syncsUpTo...)
}

// Reset begins the measured window at the time of the last event. Everything before was warm-up.
// The series keeps its points.
func (r *Recorder) Reset() {
	r.settle()
	h := r.window.histogram
	clear(h)
	r.window = window{start: r.now, histogram: h}
	r.window.partial.backlogMax = r.backlog.len()
	r.outside.reset(r.now)
	if r.control != nil {
		r.control.reset()
	}
}

// Version returns the trainer's version as observed.
func (r *Recorder) Version() loop.Version { return r.version }

// Observe takes one event and the actions that followed from it.
func (r *Recorder) Observe(ev loop.Event, m Measured, actions []loop.Action) {
	r.ObserveEvent(&ev, &m, actions)
}

// ObserveEvent is Observe without copying what it is given, which it only reads.
func (r *Recorder) ObserveEvent(ev *loop.Event, m *Measured, actions []loop.Action) {
	r.now = max(r.now, ev.Time)
	if len(actions) != 1 || ev.Kind != loop.RolloutScored || !r.turnover(ev, m, &actions[0]) { // hardly ever
		r.observe(ev, m, actions)
	}
	if r.Beside != nil {
		r.told.event, r.told.measured = *ev, *m
		r.Beside.Observe(&r.told.event, &r.told.measured, actions)
	}
}

// observe takes any event; the time of it has been noted.
func (r *Recorder) observe(ev *loop.Event, m *Measured, actions []loop.Action) {
	r.settle()
	r.missed(r.attends.Observe(ev, actions))
	failed := false // a load or switch of the engine
	switch ev.Kind {
	case loop.RolloutScored:
		r.scored(ev, m)
	case loop.RolloutFailed, loop.RolloutAborted:
		if use := r.vacate(ev); use != nil {
			if ev.Kind == loop.RolloutFailed && !use.aborted {
				r.window.failures.add(ev.Reason)
			}
			r.window.waste.add(use.end(loop.EndFailed), max(ev.Tokens, r.pastOf(ev.Slot).tokens))
		}
	case loop.RolloutInterrupted:
		r.interrupted(ev)
	case loop.WeightsSwitched:
		if ev.Engine >= 0 && int(ev.Engine) < len(r.served) {
			r.served[ev.Engine] = max(r.served[ev.Engine], ev.Version) // a late event may name an older one
		}
		r.loaded(ev)
	case loop.SyncFailed:
		failed = r.loaded(ev)
	case loop.Recovered:
		r.syncing, r.asked = false, false
		clear(r.loading)
		r.vacateAll(-1)
		r.window.waste.tokens[loop.EndFailed] += r.backlog.clear()
	case loop.EngineLost:
		r.lost(ev.Engine)
	case loop.TrainStepFailed, loop.LeaseReturned:
		if ev.Lease == r.lease && ev.Attempt == r.leaseAttempt {
			r.leaseStart = -1
		}
	case loop.TrainerReady:
		r.asked = true
	case loop.TrainStepEnded:
		r.madeNow(ev.Version)
	case loop.TrainerRestored:
		r.madeNow(ev.Version)
		r.restored(ev)
	}
	for i := range actions {
		if a := &actions[i]; a.Kind == loop.StartRollout { // nearly all
			r.groups.put(a.Group)
			r.occupy(a)
		} else {
			r.observeAction(a)
		}
	}
	switch {
	case ev.Kind == loop.TrainerRestored:
		r.warmedUp()
	case failed:
		r.givenUp(ev.Engine)
	case ev.Kind == loop.RolloutInterrupted: // what is resumed at once never waited
		r.window.partial.backlogMax = max(r.window.partial.backlogMax, r.backlog.len())
	case ev.Kind == loop.TrainStepEnded && r.step.rollouts > 0:
		r.endStep(m)
	}
}

// turnover takes what nearly all steps are: a rollout is scored, and the next one starts in
// its slot, so that no clock goes slower or faster. It reports false, with nothing
// changed, for any other.
func (r *Recorder) turnover(ev *loop.Event, m *Measured, a *loop.Action) bool {
	if a.Kind != loop.StartRollout || a.Slot != ev.Slot || uint(ev.Slot) >= uint(len(r.slotsOf)) {
		return false
	}
	use := &r.slotsOf[ev.Slot]
	if !use.is(ev) || use.aborted || ev.Verdict == loop.VerdictPruned || ev.Reward-ev.Reward != 0 {
		return false
	}
	g := r.groups.get(ev.Group)
	if g == nil {
		return false
	}
	r.made(ev, m, g, use)
	r.groups.put(a.Group)
	r.use(use, a)
	return true
}

// settle brings what is counted by time up to now.
func (r *Recorder) settle() {
	if dt := r.now - r.settled; dt > 0 {
		r.advance(dt)
		r.settled = r.now
	}
}

func (r *Recorder) advance(dt int64) {
	r.window.activeNS += r.active * dt
	r.step.activeNS += r.active * dt
	r.window.awayNS += r.pool.slots * dt
	r.step.awayNS += r.pool.slots * dt
	if n := r.backlog.len(); n > 0 {
		r.window.partial.backlogNS += int64(n) * dt
	}
	if r.active == 0 {
		r.window.stillNS += dt
	}
	if r.leaseStart < 0 {
		if r.asks && !r.asked {
			return // it does something of its own: it saves, evaluates or starts
		}
		r.window.trainerIdleNS += dt
		r.step.trainerIdleNS += dt
		if r.syncing {
			r.window.syncIdleNS += dt
		}
	} else if validates := min(r.trainFrom-r.settled, dt); validates > 0 {
		r.window.trainerIdleNS += validates
		r.step.trainerIdleNS += validates
		r.window.validatesIdleNS += validates
	}
}

// vacate frees the slot that an event's attempt runs in and returns what ran
// there; nil for a late event, whose attempt runs nowhere.
func (r *Recorder) vacate(ev *loop.Event) *slotUse {
	if ev.Slot < 0 || int(ev.Slot) >= len(r.slotsOf) {
		return nil
	}
	use := &r.slotsOf[ev.Slot]
	if !use.is(ev) {
		return nil
	}
	use.group = 0
	r.active--
	return use
}

// is reports whether it is the attempt that an event names.
func (u *slotUse) is(ev *loop.Event) bool {
	return u.group == ev.Group && u.group != 0 && u.sample == ev.Sample && u.attempt == ev.Attempt
}

// end says how the attempt ended: as told, unless it had been aborted before.
func (u *slotUse) end(end loop.End) loop.End {
	switch {
	case u.failed:
		return loop.EndFailed
	case u.aborted:
		return loop.EndCancelled
	}
	return end
}

// vacateAll frees every slot of an engine, of all engines for a negative one.
func (r *Recorder) vacateAll(engine int32) {
	for i := range r.slotsOf {
		if use := &r.slotsOf[i]; use.group != 0 && (engine < 0 || r.engineOf[i] == engine) {
			use.group = 0
			r.active--
			if engine >= 0 && !use.aborted {
				r.window.failures.Engine++
			}
			r.window.waste.add(use.end(loop.EndFailed), r.pastOf(int32(i)).tokens)
		}
	}
}

// scored counts a completion.
func (r *Recorder) scored(ev *loop.Event, m *Measured) {
	use := r.vacate(ev)
	if use == nil {
		return
	}
	g := r.groups.get(ev.Group)
	switch {
	case use.aborted || g == nil:
		r.window.waste.add(use.end(loop.EndCancelled), ev.Tokens)
	case ev.Verdict == loop.VerdictPruned:
		r.window.waste.add(loop.EndPruned, ev.Tokens)
		r.window.waste.prunedRollouts++
	case ev.Reward-ev.Reward != 0: // no finite number
		r.window.waste.add(loop.EndFailed, ev.Tokens) // a failure to the loop, which tries again
	default:
		r.made(ev, m, g, use)
	}
}

// made counts a rollout that its group keeps.
func (r *Recorder) made(ev *loop.Event, m *Measured, g *liveGroup, use *slotUse) {
	tokens, d, reward := int64(ev.Tokens), r.now-use.start, float64(ev.Reward)
	g.tokens += tokens
	g.tokensMax = max(g.tokensMax, ev.Tokens)
	g.versionTokens += m.VersionTokens
	g.reward += reward
	g.longest = max(g.longest, d)
	g.scored++
	if ev.Verdict == loop.VerdictSolved {
		g.solved++
	}
	g.endsAt(int32(r.served[use.engine]), use.first)
	w := &r.window
	w.sampled++
	w.sampledTokens += tokens
	w.sampleMax = max(w.sampleMax, tokens)
	w.durationNS += d
	w.environmentNS += min(m.EnvironmentNS, d) // the rest of it went on without a slot
	if m.Parts != nil {
		r.outside.latencyOf(m, d)
	}
	if r.CapTokens > 0 && ev.Tokens >= r.CapTokens {
		w.truncated++
	}
	if spans := int64(m.Spans); spans > 0 {
		w.partial.spanned++
		w.partial.spans += spans
		w.partial.spansMax = max(w.partial.spansMax, spans)
	}
	if use.past || m.Resumed {
		w.partial.made(g, r.pastOf(ev.Slot), reward, m)
	}
}

func (r *Recorder) observeAction(a *loop.Action) {
	switch a.Kind {
	case loop.ResumeRollout:
		r.resumed(a)
	case loop.AbortRollout:
		r.aborted(a)
	case loop.GroupQueued, loop.GroupHeld:
		r.groupReady(a)
	case loop.StartTrainStep:
		r.leaseStart, r.lease, r.leaseAttempt, r.asked = r.now, a.Lease, a.Attempt, false
	case loop.SyncCompleted:
		r.syncing = false
		r.servedByAll(a.Version)
	case loop.LoadWeights:
		r.loading[a.Engine] = a.Attempt
		r.loads(a.Version)
		r.pool.gone(a.Engine, false)
	case loop.ReleaseEngine:
		r.pool.gone(a.Engine, true)
	case loop.GroupTrained:
		r.trained(a)
	case loop.GroupEnded:
		r.groupEnded(a)
	case loop.SettingChanged, loop.ControlChanged:
		r.controlled(a)
	}
}

// occupy has an attempt run in a slot from now on. The fields are set one by one: a
// composite literal is built aside and copied.
func (r *Recorder) occupy(a *loop.Action) *slotUse {
	use := &r.slotsOf[a.Slot]
	if use.group == 0 {
		r.active++
	}
	r.use(use, a)
	return use
}

func (r *Recorder) use(use *slotUse, a *loop.Action) {
	// Sample and attempt apart: halves that were stored one by one are slow to read as one.
	use.group, use.sample, use.start, use.attempt = a.Group, a.Sample, r.now, a.Attempt
	use.first, use.engine, use.past, use.aborted, use.failed = int32(a.Version), a.Engine, false, false, false
}

// pastOf returns what is remembered of the attempt in a slot, nothing if it was never resumed.
func (r *Recorder) pastOf(slot int32) past {
	if !r.slotsOf[slot].past {
		return past{}
	}
	return r.pasts[slot]
}

// groupReady counts a group that is ready for the first time: one that was held
// is queued later, and one that a lease gave back may be held again.
func (r *Recorder) groupReady(a *loop.Action) {
	g := r.groups.get(a.Group)
	if g == nil || g.ready {
		return
	}
	g.ready = true
	r.window.accepted++
	r.complete(g)
}

// complete counts a group whose last rollout is scored, filtered or not. What was
// cancelled of it until now was beyond the rollouts it needed.
func (r *Recorder) complete(g *liveGroup) {
	w := &r.window
	w.ready++
	w.readyMaxNS += g.longest
	w.durationMaxNS = max(w.durationMaxNS, g.longest)
	w.partial.complete(g)
	w.waste.redundantRollouts += int64(g.cancelled)
	g.cancelled = 0
	w.signal.add(g)
}

func (r *Recorder) groupEnded(a *loop.Action) {
	w := &r.window.waste
	g := r.groups.get(a.Group)
	w.groups[a.End]++
	w.filtered(a)
	if g == nil {
		return
	}
	if a.End == loop.EndFiltered {
		r.complete(g)
	}
	if a.End == loop.EndTrained {
		w.uses(g.uses)
	} else {
		w.tokens[a.End] += g.tokens
	}
	if a.Reason == loop.ReasonSurplus {
		w.surplusGroups++
		w.surplusRollouts += int64(a.Count + g.cancelled)
	}
	r.groups.remove(a.Group)
}

func (r *Recorder) trained(a *loop.Action) {
	r.leaseStart = -1
	total, pqs, iqs := a.Staleness()
	if a.StartVersion < 0 || total < 0 {
		return
	}
	r.window.stalenessSyncs += r.syncsBetween(a.StartVersion, a.Version)
	g := r.groups.get(a.Group)
	if g == nil {
		return
	}
	for _, w := range [...]*window{&r.window, &r.step} {
		w.groups++
		w.rollouts += int64(a.Count)
		w.pqs += int64(pqs)
		w.iqs += int64(iqs)
		w.stalenessMax = max(w.stalenessMax, total)
		w.trainedTokens += g.tokens
		w.trainedMaxTokens = max(w.trainedMaxTokens, int64(g.tokensMax))
		w.versionTokens += int64(a.Version)*g.tokens - g.versionTokens
		w.reward += g.reward
	}
	r.window.histogram[min(int64(total), StalenessMax)]++
	r.window.partial.trained(g, r.syncsBetween(loop.Version(g.newest), a.Version) > 0)
	if g.uses++; g.uses == 1 {
		r.window.waste.tokens[loop.EndTrained] += g.tokens
	}
	if !r.keep {
		r.window.waste.uses(g.uses)
		r.window.waste.groups[loop.EndTrained]++
		r.groups.remove(a.Group)
	}
}

// endStep closes the period that a train step's end ends. The trainer may have
// been given its next batch in the same instant.
func (r *Recorder) endStep(m *Measured) {
	w := &r.step
	r.version++
	period := r.now - w.start
	train := period - w.trainerIdleNS - w.absentNS
	r.window.steps++
	r.window.trainNS += train
	p := Step{
		Step: r.version, TimeNS: r.now, PeriodNS: period, TrainNS: train, AbsentNS: w.absentNS,
		PQS: ratio(w.pqs, w.groups), IQS: ratio(w.iqs, w.groups), StalenessMax: w.stalenessMax,
		TokenStaleness: ratio(w.versionTokens, w.trainedTokens), Tokens: w.trainedTokens,
		Reward: w.reward / float64(max(w.rollouts, 1)), TrainerIdle: ratio(w.trainerIdleNS, period),
		RolloutIdle: w.slotsIdle(r.slots * period), QueueGroups: m.QueueGroups, BacklogRollouts: r.backlog.len(),
	}
	p.Staleness = p.PQS + p.IQS
	if r.control != nil {
		p.Control = r.control.stepped(m.Control)
	}
	if r.StepsMax > 0 && len(r.Steps) >= 2*r.StepsMax-1 {
		r.Steps = append(r.Steps[:0], r.Steps[len(r.Steps)-r.StepsMax+1:]...)
	}
	r.Steps = append(r.Steps, p)
	r.step = window{start: r.now}
	r.warmedUp()
}
