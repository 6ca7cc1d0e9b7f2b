package metrics

import (
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
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
	keep      bool // trained groups may be trained again
	asks      bool // the trainer asks for a batch before it is idle
	cells     bool // engines are in several
	attends   Attendance
	groups    track.Groups[liveGroup]
	run       track.Run
	settled   int64 // the time up to which what is counted by time has been
	trainFrom int64 // when the step that waits for a validation goes on
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
	syncIdleNS                        int64 // trainer idle for a sync
	validatesIdleNS                   int64 // a train step waits for a validation
	truncated                         int64 // scored rollouts of CapTokens and more
	failures                          Failures
	waste                             waste
	partial                           partial
	signal                            signal
}

// NewRecorder returns a recorder for a loop with these rules.
func NewRecorder(cfg loop.Config) *Recorder {
	r := &Recorder{keep: cfg.Policy == loop.PolicyReplay, asks: cfg.TrainerAsks, cells: cfg.EngineCells != nil}
	r.run, r.groups, r.attends = track.New(cfg), track.NewGroups[liveGroup](&cfg), NewAttendance(cfg)
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
	r.window = window{start: r.run.NowNS, histogram: h}
	r.window.partial.backlogMax = r.run.Parked.Len()
	r.outside.reset(r.run.NowNS)
	if r.control != nil {
		r.control.reset()
	}
}

// Version returns the trainer's version as observed.
func (r *Recorder) Version() loop.Version { return r.run.Version }

// Observe takes one event and the actions that followed from it.
func (r *Recorder) Observe(ev loop.Event, m Measured, actions []loop.Action) {
	r.ObserveEvent(&ev, &m, actions)
}

// TouchSlots reads what is kept of slots, as the method of loop.Loop does.
func (r *Recorder) TouchSlots(slots []int32) int32 { return r.run.Touch(slots) }

// TouchGroups reads what is kept of the groups of the rollouts in slots, as the method of loop.Loop does.
func (r *Recorder) TouchGroups(slots []int32) (sum int32) {
	for _, slot := range slots {
		if g := r.groups.Get(r.run.Slots[slot].Group); g != nil {
			sum += g.scored + g.spanMax // one at each end of what a rollout needs
		}
	}
	return sum
}

// ObserveEvent is Observe without copying what it is given, which it only reads.
func (r *Recorder) ObserveEvent(ev *loop.Event, m *Measured, actions []loop.Action) {
	r.run.NowNS = max(r.run.NowNS, ev.Time)
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
	r.event(ev, m, r.run.Event(ev))
	for i := range actions {
		if a := &actions[i]; a.Kind == loop.StartRollout { // nearly all
			r.groups.Open(a.Group)
			r.run.Action(a)
		} else {
			r.observeAction(a)
		}
	}
	switch {
	case ev.Kind == loop.SyncFailed:
		r.lost(r.run.Done(ev), &r.window.failures)
	case ev.Kind == loop.TrainerRestored:
		r.warmedUp()
	case ev.Kind == loop.RolloutInterrupted || r.run.Stand(ev): // what is resumed at once never waited
		r.window.partial.backlogMax = max(r.window.partial.backlogMax, r.run.Parked.Len())
	case ev.Kind == loop.TrainStepEnded && r.step.rollouts > 0:
		r.endStep(m)
	}
}

// event takes an event that took the attempts in these slots out of them.
func (r *Recorder) event(ev *loop.Event, m *Measured, left []int32) {
	switch ev.Kind {
	case loop.RolloutScored:
		r.scored(ev, m, left)
	case loop.RolloutFailed, loop.RolloutAborted:
		for _, slot := range left {
			at := &r.run.Slots[slot]
			if ev.Kind == loop.RolloutFailed && !at.Aborted {
				r.window.failures.add(ev.Reason)
			}
			r.window.waste.add(endOf(at, loop.EndFailed), max(ev.Tokens, r.run.Past(slot).Tokens))
		}
	case loop.RolloutInterrupted:
		r.interrupted(ev, left)
	case loop.Recovered:
		r.syncing = r.syncing && r.run.Synced != loop.NoVersion
		r.lost(r.given(ev, left), nil)
	case loop.EngineLost:
		if r.run.Stand(ev) {
			r.lost(r.given(ev, left), nil)
		} else {
			r.lost(left, &r.window.failures)
		}
	case loop.TrainStepEnded, loop.TrainerRestored:
		r.madeNow(ev.Version)
	}
}

// turnover takes what nearly all steps are: a rollout is scored, and the next one starts in
// its slot, so that no clock goes slower or faster. It reports false, with nothing
// changed, for any other.
func (r *Recorder) turnover(ev *loop.Event, m *Measured, a *loop.Action) bool {
	if a.Kind != loop.StartRollout || a.Slot != ev.Slot {
		return false
	}
	at := r.run.At(ev)
	if at == nil || at.Aborted || ev.Mark == loop.MarkPruned || ev.Reward-ev.Reward != 0 {
		return false
	}
	g := r.groups.Get(ev.Group)
	if g == nil {
		return false
	}
	r.made(ev, m, g, at)
	r.groups.Open(a.Group)
	r.run.Turn(at, a)
	return true
}

// settle brings what is counted by time up to now.
func (r *Recorder) settle() {
	if dt := r.run.NowNS - r.settled; dt > 0 {
		r.advance(dt)
		r.settled = r.run.NowNS
	}
}

func (r *Recorder) advance(dt int64) {
	r.window.activeNS += r.run.Active * dt
	r.step.activeNS += r.run.Active * dt
	r.window.awayNS += r.run.AwaySlots * dt
	r.step.awayNS += r.run.AwaySlots * dt
	if n := r.run.Parked.Len(); n > 0 {
		r.window.partial.backlogNS += int64(n) * dt
	}
	if r.run.Active == 0 {
		r.window.stillNS += dt
	}
	if !r.run.Lease.Runs {
		if r.asks && !r.run.Asked {
			return // it does something of its own: it saves, evaluates or starts
		}
		r.window.trainerIdleNS += dt
		r.step.trainerIdleNS += dt
		if r.syncing && r.run.SyncHolds() {
			r.window.syncIdleNS += dt
		}
	} else if validates := min(r.trainFrom-r.settled, dt); validates > 0 {
		r.window.trainerIdleNS += validates
		r.step.trainerIdleNS += validates
		r.window.validatesIdleNS += validates
	}
}

// endOf says how an attempt ended: as told, unless it had been aborted before.
func endOf(at *track.Attempt, end loop.End) loop.End {
	switch {
	case at.Failed:
		return loop.EndFailed
	case at.Aborted:
		return loop.EndCancelled
	}
	return end
}

// lost counts attempts that left these slots with their engine, those that stood interrupted in its cell, and those that
// failed by it; nil counts no failures.
func (r *Recorder) lost(left []int32, failures *Failures) {
	for _, slot := range left {
		at := &r.run.Slots[slot]
		if failures != nil && !at.Aborted {
			failures.Engine++
		}
		r.window.waste.add(endOf(at, loop.EndFailed), r.run.Past(slot).Tokens)
	}
	for _, p := range r.run.Dropped() {
		if failures != nil {
			failures.Engine++
		}
		r.window.waste.add(loop.EndFailed, p.Tokens)
	}
}

// given are the slots of attempts that had been given up, where all others stand interrupted.
func (r *Recorder) given(ev *loop.Event, left []int32) []int32 {
	if !r.run.Stand(ev) {
		return left
	}
	return slices.DeleteFunc(left, func(slot int32) bool { return !r.run.Slots[slot].Aborted })
}

// scored counts a completion.
func (r *Recorder) scored(ev *loop.Event, m *Measured, left []int32) {
	if len(left) == 0 {
		return
	}
	at, g := &r.run.Slots[ev.Slot], r.groups.Get(ev.Group)
	switch {
	case at.Aborted || g == nil:
		r.window.waste.add(endOf(at, loop.EndCancelled), ev.Tokens)
	case ev.Mark == loop.MarkPruned:
		r.window.waste.add(loop.EndPruned, ev.Tokens)
		r.window.waste.prunedRollouts++
	case ev.Reward-ev.Reward != 0: // no finite number
		r.window.waste.add(loop.EndFailed, ev.Tokens) // a failure to the loop, which tries again
	default:
		r.made(ev, m, g, at)
	}
}

// made counts a rollout that its group keeps.
func (r *Recorder) made(ev *loop.Event, m *Measured, g *liveGroup, at *track.Attempt) {
	tokens, d, reward := int64(ev.Tokens), r.run.NowNS-at.StartNS, float64(ev.Reward)
	g.tokens += tokens
	g.tokensMax = max(g.tokensMax, ev.Tokens)
	g.versionTokens += m.VersionTokens
	g.reward += reward
	g.longest = max(g.longest, d)
	g.scored++
	if ev.Mark == loop.MarkSolved {
		g.solved++
	}
	g.endsAt(int32(r.run.Engines[at.Engine].Served), at.First)
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
	if at.Resumed || m.Resumed {
		w.partial.made(g, r.run.Past(ev.Slot), reward, m)
	}
}

func (r *Recorder) observeAction(a *loop.Action) {
	switch a.Kind {
	case loop.ResumeRollout:
		r.run.Action(a)
		r.window.partial.resumed++
	case loop.AbortRollout:
		r.aborted(a) // before: it needs to know the tokens of one that stands interrupted
		r.run.Action(a)
	case loop.GroupQueued, loop.GroupHeld:
		r.groupReady(a)
	case loop.SyncCompleted:
		r.run.Action(a)
		r.syncing = false
		r.servedByAll(a.Version)
	case loop.LoadWeights:
		r.run.Action(a)
		r.loads(a.Version)
	case loop.StartTrainStep, loop.SwitchWeights:
		r.run.Action(a)
	case loop.ReleaseEngine:
		r.lost(r.run.Action(a), nil)
	case loop.GroupTrained:
		r.trained(a)
	case loop.GroupEnded:
		r.groupEnded(a)
	case loop.SettingChanged, loop.ControlChanged:
		r.controlled(a)
	}
}

// groupReady counts a group that is ready for the first time: one that was held
// is queued later, and one that a lease gave back may be held again.
func (r *Recorder) groupReady(a *loop.Action) {
	g := r.groups.Get(a.Group)
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
	g := r.groups.Get(a.Group)
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
	r.groups.Remove(a.Group)
}

func (r *Recorder) trained(a *loop.Action) {
	total, pqs, iqs := a.Staleness()
	if a.StartVersion < 0 || total < 0 {
		return
	}
	r.window.stalenessSyncs += r.syncsBetween(a.StartVersion, a.Version)
	g := r.groups.Get(a.Group)
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
		r.groups.Remove(a.Group)
	}
}

// endStep closes the period that a train step's end ends. The trainer may have
// been given its next batch in the same instant.
func (r *Recorder) endStep(m *Measured) {
	w := &r.step
	period := r.run.NowNS - w.start
	train := period - w.trainerIdleNS - w.absentNS
	r.window.steps++
	r.window.trainNS += train
	p := Step{
		Step: r.run.Version, TimeNS: r.run.NowNS, PeriodNS: period, TrainNS: train, AbsentNS: w.absentNS,
		PQS: ratio(w.pqs, w.groups), IQS: ratio(w.iqs, w.groups), StalenessMax: w.stalenessMax,
		TokenStaleness: ratio(w.versionTokens, w.trainedTokens), Tokens: w.trainedTokens,
		Reward: w.reward / float64(max(w.rollouts, 1)), TrainerIdle: ratio(w.trainerIdleNS, period),
		RolloutIdle: w.slotsIdle(r.slots() * period), QueueGroups: m.QueueGroups, BacklogRollouts: r.run.Parked.Len(),
	}
	p.Staleness = p.PQS + p.IQS
	if r.control != nil {
		p.Control = r.control.stepped(m.Control)
	}
	if r.StepsMax > 0 && len(r.Steps) >= 2*r.StepsMax-1 {
		r.Steps = append(r.Steps[:0], r.Steps[len(r.Steps)-r.StepsMax+1:]...)
	}
	r.Steps = append(r.Steps, p)
	r.step = window{start: r.run.NowNS}
	r.warmedUp()
}
