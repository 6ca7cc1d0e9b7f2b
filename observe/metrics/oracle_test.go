package metrics_test

import (
	"math"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/metrics"
)

// life is all that happened to one attempt.
type life struct {
	slot                  int32 // -1 while it stands interrupted
	engine                int   // the last that it left
	over, aborted, failed bool
	since, inSlot         float64
	tokens                float64
	interruptions         int
	first, last           loop.Version
	reward                float64
	solved                bool
}

type attempt struct {
	group  loop.GroupID
	sample int32
	number int32
}

// oracle recomputes a run's figures from the raw record, in the most direct way
// that comes to mind and with nothing of the recorder's.
type oracle struct {
	cfg    loop.Config
	l      *loop.Loop
	now    int64
	lives  map[attempt]*life
	scored map[loop.GroupID][]*life
	synced []loop.Version
	ready  map[loop.GroupID]bool
	uses   map[loop.GroupID]int
	// occupied counts slots, waiting attempts in the backlog.
	occupied, waiting int
	training, asked   bool

	idle, slots, busySlots, still, backlog                float64 // slots: of engines that are not the pool's, by time
	pqs, iqs, syncs, durations, longest, sampledTokens    []float64
	spans, reuse                                          []float64
	trainedRollouts, spanning, staleGroups, staleRollouts float64
	spanMax, backlogMax, interruptions, resumed, limited  float64
	pruned, redundant, surplusGroups, surplusRollouts     float64
	filtered                                              map[loop.Reason]float64
	groups, tokens                                        map[loop.End]float64
	slotted                                               map[int32]attempt
	// lost are the engines that were lost before the actions of a step.
	lost map[int]bool
	// served is the version that each engine served last, lost ones too.
	served                                                  map[int]loop.Version
	allSolved, noneSolved, solvedRollouts, completeRollouts float64
}

func newOracle(t *testing.T, cfg loop.Config) *oracle {
	t.Helper()
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return &oracle{cfg: cfg, l: l, lives: map[attempt]*life{}, scored: map[loop.GroupID][]*life{}, ready: map[loop.GroupID]bool{}, uses: map[loop.GroupID]int{},
		filtered: map[loop.Reason]float64{}, groups: map[loop.End]float64{}, tokens: map[loop.End]float64{}, slotted: map[int32]attempt{}, served: map[int]loop.Version{}}
}

// engineOf returns the engine of a slot.
func (o *oracle) engineOf(slot int32) int {
	for e, n := range o.cfg.EngineSlots {
		if slot < int32(n) {
			return e
		}
		slot -= int32(n)
	}
	panic("no such slot")
}

// ends says that a restart of the run's process ends what an engine has.
func (o *oracle) ends(engine int) bool {
	return len(o.cfg.EngineCells) == 0 || o.cfg.EngineCells[engine] == 0
}

// over says that all of an engine's cell is lost, which its rollouts cannot leave.
func (o *oracle) over(engine int) bool {
	if !o.cfg.StaysInCell || o.ends(engine) {
		return false
	}
	for e, cell := range o.cfg.EngineCells {
		if cell == o.cfg.EngineCells[engine] && !o.l.Lost(e) {
			return false
		}
	}
	return true
}

func (o *oracle) observe(rec looptest.Record) {
	dt := float64(rec.Event.Time - o.now)
	o.lost = map[int]bool{}
	for i, e := range o.l.Status().Engines {
		o.lost[i] = o.l.Lost(i) || rec.Event.Kind == loop.EngineLost && int(rec.Event.Engine) == i || rec.Event.Kind == loop.Recovered && o.ends(i)
		o.served[i] = max(o.served[i], e.Version)
		if e.State != "away" && e.State != "starting" {
			o.slots += dt * float64(e.Slots)
		}
	}
	o.now = rec.Event.Time
	o.busySlots += dt * float64(o.occupied)
	o.backlog += dt * float64(o.waiting)
	if o.occupied == 0 {
		o.still += dt
	}
	if !o.training && (o.asked || !o.cfg.TrainerAsks) {
		o.idle += dt
	}
	ev, named := rec.Event, int(rec.Event.Engine)
	late := ev.Kind == loop.EngineLost && (named < 0 || named >= len(o.cfg.EngineSlots) || o.l.Lost(named))
	serves := ev.Kind == loop.SyncFailed && named >= 0 && named < len(o.cfg.EngineSlots) && !o.l.Lost(named)
	o.l.Step(ev)
	if serves && o.l.Lost(named) { // the loop has given it up
		ev.Kind, ev.Reason = loop.EngineLost, loop.ReasonEngine
	}
	if !late {
		o.completion(ev)
	}
	for _, a := range rec.Actions {
		o.effect(a, rec.Actions)
		o.notice(a)
	}
	o.backlogMax = max(o.backlogMax, float64(o.waiting))
	o.training, o.asked = o.l.Status().Lease != 0, o.l.Status().Asked
}

// leave takes an attempt out of its slot.
func (o *oracle) leave(c *life) {
	c.engine = o.engineOf(c.slot)
	delete(o.slotted, c.slot)
	o.occupied--
	c.inSlot += float64(o.now) - c.since
	c.slot = -1
}

// givenBack fails what waits in the cell of an engine that was given back, if nothing is left there.
func (o *oracle) givenBack(engine int) {
	if !o.cfg.StaysInCell {
		return
	}
	left := false
	for i, e := range o.l.Status().Engines {
		left = left || o.cfg.EngineCells[i] == o.cfg.EngineCells[engine] && e.State != "away" && e.State != "starting"
	}
	over := o.over(engine) && !o.lost[engine]
	for _, c := range o.lives {
		switch {
		case c.over:
		case over && c.slot >= 0 && o.cfg.EngineCells[o.engineOf(c.slot)] == o.cfg.EngineCells[engine]:
			o.leave(c)
			o.finish(c, loop.EndFailed, c.tokens)
		case (over || !left) && c.slot < 0 && o.cfg.EngineCells[c.engine] == o.cfg.EngineCells[engine]:
			o.waiting--
			o.finish(c, loop.EndFailed, c.tokens)
		}
	}
}

// finish ends an attempt with the tokens it has.
func (o *oracle) finish(c *life, end loop.End, tokens float64) {
	switch {
	case c.failed:
		end = loop.EndFailed
	case c.aborted:
		end = loop.EndCancelled
	}
	c.over = true
	o.tokens[end] += tokens
}

func (o *oracle) completion(ev loop.Event) {
	at := attempt{ev.Group, ev.Sample, ev.Attempt}
	switch ev.Kind {
	case loop.EngineLost, loop.Recovered:
		over := ev.Kind == loop.EngineLost && o.over(int(ev.Engine))
		stands := o.cfg.ResumeRestart && (ev.Kind == loop.Recovered || ev.Reason == loop.ReasonRestart && !o.ends(int(ev.Engine)))
		if ev.Kind == loop.EngineLost && o.cfg.ResumeLost && !over && !stands {
			return // each is interrupted by an event of its own
		}
		with := func(engine int) bool { return over && o.cfg.EngineCells[engine] == o.cfg.EngineCells[ev.Engine] }
		for slot, at := range o.slotted {
			if ev.Kind == loop.Recovered && o.ends(o.engineOf(slot)) || ev.Kind == loop.EngineLost && o.engineOf(slot) == int(ev.Engine) || with(o.engineOf(slot)) {
				c := o.lives[at]
				o.leave(c)
				if stands && !c.aborted {
					o.waiting++
				} else {
					o.finish(c, loop.EndFailed, c.tokens)
				}
			}
		}
		if stands {
			return
		}
		for _, c := range o.lives {
			if !c.over && c.slot < 0 && (ev.Kind == loop.Recovered && o.ends(c.engine) || with(c.engine)) {
				o.waiting--
				o.finish(c, loop.EndFailed, c.tokens)
			}
		}
	case loop.RolloutScored, loop.RolloutFailed, loop.RolloutAborted, loop.RolloutInterrupted:
		c := o.lives[at]
		if c == nil || c.over || c.slot < 0 || c.slot != ev.Slot || o.slotted[ev.Slot] != at {
			return
		}
		engine := o.engineOf(c.slot)
		o.leave(c)
		tokens := float64(ev.Tokens)
		switch {
		case c.aborted:
			o.finish(c, loop.EndCancelled, max(tokens, c.tokens*b2f(ev.Kind == loop.RolloutFailed || ev.Kind == loop.RolloutAborted)))
		case ev.Kind == loop.RolloutFailed || ev.Kind == loop.RolloutAborted:
			o.finish(c, loop.EndFailed, max(tokens, c.tokens))
		case ev.Kind == loop.RolloutInterrupted:
			o.interrupt(c, tokens)
		case ev.Mark == loop.MarkPruned:
			o.pruned++
			o.finish(c, loop.EndPruned, tokens)
		case math.IsNaN(float64(ev.Reward)) || math.IsInf(float64(ev.Reward), 0):
			o.finish(c, loop.EndFailed, tokens)
		default:
			c.over, c.tokens, c.reward, c.solved = true, tokens, float64(ev.Reward), ev.Mark == loop.MarkSolved
			c.last = o.served[engine]
			o.scored[ev.Group] = append(o.scored[ev.Group], c)
			o.durations = append(o.durations, c.inSlot)
			o.sampledTokens = append(o.sampledTokens, tokens)
			o.spans = append(o.spans, float64(1+c.interruptions))
		}
	}
}

func b2f(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

func (o *oracle) interrupt(c *life, tokens float64) {
	if tokens > c.tokens {
		c.interruptions++
	}
	c.tokens = tokens
	o.interruptions++
	o.waiting++
}

func (o *oracle) effect(a loop.Action, all []loop.Action) {
	at := attempt{a.Group, a.Sample, a.Attempt}
	switch a.Kind {
	case loop.StartRollout:
		o.lives[at] = &life{slot: a.Slot, since: float64(o.now), first: a.Version}
		o.slotted[a.Slot] = at
		o.occupied++
	case loop.ResumeRollout:
		c := o.lives[at]
		c.slot, c.since = a.Slot, float64(o.now)
		o.slotted[a.Slot] = at
		o.occupied++
		o.waiting--
		o.resumed++
	case loop.AbortRollout:
		if c := o.lives[at]; c.over { // it would have ended with its cell, and its group ended first
			o.tokens[loop.EndFailed] -= c.tokens
			o.tokens[loop.EndCancelled] += c.tokens
		} else {
			c.aborted, c.failed = true, a.Reason != loop.ReasonNone && a.Slot >= 0
			if a.Slot < 0 {
				o.waiting--
				o.finish(c, loop.EndCancelled, c.tokens)
			}
		}
		if a.Reason == loop.ReasonSpans {
			o.limited++
		}
		if a.Reason != loop.ReasonNone {
			break
		}
		for _, n := range all {
			if n.Group != a.Group {
				continue
			}
			switch {
			case n.Kind == loop.GroupQueued || n.Kind == loop.GroupHeld || n.Kind == loop.GroupEnded && n.End == loop.EndFiltered:
				o.redundant++
			case n.Kind == loop.GroupEnded && n.Reason == loop.ReasonSurplus:
				o.surplusRollouts++
			}
		}
	case loop.ReleaseEngine:
		o.givenBack(int(a.Engine))
	case loop.LoadWeights:
		if a.Version > 0 && !slices.Contains(o.synced, a.Version) {
			o.synced = append(o.synced, a.Version)
		}
	}
}

// syncsIn counts the syncs of versions after one and up to another.
func (o *oracle) syncsIn(after, upTo loop.Version) (n float64) {
	for _, v := range o.synced {
		if v > after && v <= upTo {
			n++
		}
	}
	return n
}

func (o *oracle) notice(a loop.Action) {
	switch a.Kind {
	case loop.GroupQueued, loop.GroupHeld:
		if !o.ready[a.Group] { // a held group is ready once, though it is queued later
			o.complete(a.Group)
		}
		o.ready[a.Group] = true
	case loop.GroupTrained:
		o.trained(a)
	case loop.GroupEnded:
		o.groups[a.End]++
		if a.End == loop.EndFiltered {
			o.filtered[a.Reason]++
			o.complete(a.Group)
		}
		if a.Reason == loop.ReasonSurplus {
			o.surplusGroups++
			o.surplusRollouts += float64(len(o.scored[a.Group]))
		}
		if a.End == loop.EndTrained {
			o.reuse = append(o.reuse, float64(o.uses[a.Group]))
			return
		}
		for _, c := range o.scored[a.Group] {
			o.tokens[a.End] += c.tokens
		}
	}
}

func (o *oracle) complete(g loop.GroupID) {
	longest, solved := 0.0, 0.0
	for _, c := range o.scored[g] {
		longest = max(longest, c.inSlot)
		solved += b2f(c.solved)
		o.completeRollouts++
	}
	o.longest = append(o.longest, longest)
	o.solvedRollouts += solved
	o.allSolved += b2f(solved == float64(len(o.scored[g])))
	o.noneSolved += b2f(solved == 0)
}

func (o *oracle) trained(a loop.Action) {
	o.pqs = append(o.pqs, float64(a.ReadyVersion-a.StartVersion))
	o.iqs = append(o.iqs, float64(a.Version-a.ReadyVersion))
	o.syncs = append(o.syncs, o.syncsIn(a.StartVersion, a.Version))
	stale := true
	for _, c := range o.scored[a.Group] {
		o.trainedRollouts++
		o.spanning += b2f(c.last > c.first)
		o.spanMax = max(o.spanMax, float64(c.last-c.first))
		if o.syncsIn(c.last, a.Version) > 0 {
			o.staleRollouts++
		} else {
			stale = false
		}
		if o.uses[a.Group] == 0 {
			o.tokens[loop.EndTrained] += c.tokens
		}
	}
	o.staleGroups += b2f(stale)
	o.uses[a.Group]++
	if o.cfg.Policy != loop.PolicyReplay {
		o.groups[loop.EndTrained]++
		o.reuse = append(o.reuse, 1)
	}
}

func mean(values []float64) float64 {
	sum := 0.0
	for _, v := range values {
		sum += v
	}
	return sum / math.Max(float64(len(values)), 1)
}

func share(a, b float64) float64 {
	if b == 0 {
		return 0
	}
	return a / b
}

// figures pairs what is reported with what was recomputed.
func (o *oracle) figures(s metrics.Summary) map[string][2]float64 {
	end, n := float64(o.now), float64(o.l.Config().Concurrency())
	p, w := s.Partial, s.Waste
	f := map[string][2]float64{
		"PQS": {s.PQS.Mean, mean(o.pqs)}, "IQS": {s.IQS.Mean, mean(o.iqs)},
		"staleness": {s.Staleness.Mean, mean(o.pqs) + mean(o.iqs)}, "staleness in syncs": {s.Staleness.MeanSyncs, mean(o.syncs)},
		"trainer idle": {s.TrainerIdleRatio, share(o.idle, end)}, "sampled tokens": {s.Length.SampledMeanTokens, mean(o.sampledTokens)},
		"rollout still": {s.RolloutStillS, o.still / 1e9}, "slot idle": {s.SlotIdleS, (o.slots - o.busySlots) / n / 1e9},
		"rollout idle":  {s.RolloutIdleRatio, 1 - share(o.busySlots, o.slots)},
		"interruptions": {float64(p.Interruptions), o.interruptions}, "resumed": {float64(p.Resumed), o.resumed}, "limited": {float64(p.LimitedRollouts), o.limited},
		"backlog, mean": {p.BacklogMean, share(o.backlog, end)}, "backlog, most": {float64(p.BacklogMax), o.backlogMax}, "backlog, end": {float64(p.BacklogEnd), float64(o.waiting)},
		"spans": {p.SpansMean, mean(o.spans)}, "partial rollouts": {float64(p.PartialRollouts), o.spanning}, "partial ratio": {p.PartialRatio, share(o.spanning, o.trainedRollouts)},
		"version span": {float64(p.VersionSpanMax), o.spanMax}, "stale groups": {float64(p.StaleGroups), o.staleGroups}, "stale rollouts": {float64(p.StaleRollouts), o.staleRollouts},
		"trained tokens": {float64(w.TrainedTokens), o.tokens[loop.EndTrained]}, "evicted tokens": {float64(w.EvictedTokens), o.tokens[loop.EndEvicted]},
		"discarded tokens": {float64(w.DiscardedTokens), o.tokens[loop.EndDiscarded]}, "filtered tokens": {float64(w.FilteredTokens), o.tokens[loop.EndFiltered]},
		"pruned tokens": {float64(w.PrunedTokens), o.tokens[loop.EndPruned]}, "cancelled tokens": {float64(w.CancelledTokens), o.tokens[loop.EndCancelled]},
		"failed tokens": {float64(w.FailedTokens), o.tokens[loop.EndFailed]},
		"groups":        {float64(w.GroupsEnded.Trained), o.groups[loop.EndTrained]}, "groups failed": {float64(w.GroupsEnded.Failed), o.groups[loop.EndFailed]},
		"groups pruned": {float64(w.GroupsEnded.Pruned), o.groups[loop.EndPruned]}, "groups cancelled": {float64(w.GroupsEnded.Cancelled), o.groups[loop.EndCancelled]},
		"pruned rollouts": {float64(w.PrunedRollouts), o.pruned}, "redundant rollouts": {float64(w.RedundantRollouts), o.redundant},
		"surplus groups": {float64(w.SurplusGroups), o.surplusGroups}, "surplus rollouts": {float64(w.SurplusRollouts), o.surplusRollouts},
		"reuse": {s.Reuse.Mean, mean(o.reuse)}, "solve rate": {s.Signal.SolveRate, share(o.solvedRollouts, o.completeRollouts)},
		"rollout time": {s.RolloutS.Mean, mean(o.durations) / 1e9},
	}
	if o.solvedRollouts > 0 {
		f["all solved"] = [2]float64{s.Signal.AllSolvedShare, o.allSolved / float64(len(o.longest))}
		f["none solved"] = [2]float64{s.Signal.NoneSolvedShare, o.noneSolved / float64(len(o.longest))}
	}
	if len(o.longest) > 0 && mean(o.durations) > 0 {
		f["tail multiplier"] = [2]float64{s.TailMultiplier, mean(o.longest) / mean(o.durations)}
		left := float64(len(o.longest))
		for _, filter := range []struct {
			name   string
			passed float64
			reason loop.Reason
		}{{"verdicts", s.FilterAcceptance.Verdict, loop.ReasonRejected}, {"zero advantage", s.FilterAcceptance.ZeroAdvantage, loop.ReasonZeroAdvantage}, {"solve rates", s.FilterAcceptance.SolveRate, loop.ReasonSolveRate}} {
			if left > 0 {
				f["accepted by "+filter.name] = [2]float64{filter.passed, 1 - o.filtered[filter.reason]/left}
			}
			left -= o.filtered[filter.reason]
		}
		f["acceptance"] = [2]float64{s.Acceptance, left / float64(len(o.longest))}
	}
	return f
}

// TestSummaryAgainstRecomputation drives loops of all kinds through faults, stalls
// and restarts and compares every figure with the oracle's.
func TestSummaryAgainstRecomputation(t *testing.T) {
	trained, reused := 0, 0
	seen := map[string]float64{}
	for seed := range uint64(900) {
		plan := looptest.Draw(seed).WithCells()
		plan.Faults.Garbage, plan.Faults.Reversed = 0, 0
		w, err := looptest.NewWorld(plan)
		if err != nil {
			t.Fatal(err)
		}
		w.Keep = true
		if err := w.Run(500); err != nil {
			t.Fatal(err)
		}
		rec, o := metrics.NewRecorder(plan.Config), newOracle(t, plan.Config)
		var left float64 // scored rollouts of groups of which too many were pruned
		for _, r := range w.Log {
			rec.Observe(r.Event, metrics.Measured{}, r.Actions)
			o.observe(r)
			for _, a := range r.Actions {
				if a.Kind == loop.GroupEnded && a.End == loop.EndPruned {
					left += float64(a.Count)
				}
			}
		}
		for what, pair := range o.figures(rec.Summary()) {
			if math.Abs(pair[0]-pair[1]) > 1e-9*math.Max(1, math.Abs(pair[1])) {
				t.Errorf("seed %d: %s is %.12g, recomputed %.12g\n%v", seed, what, pair[0], pair[1], plan)
			}
			seen[what] += math.Abs(pair[1])
		}
		trained += len(o.pqs)
		if len(o.reuse) > 0 && slices.Max(o.reuse) > 1 {
			reused++
		}
		if l := o.l.Ledger(); int64(o.pruned+left) != l.Pruned {
			t.Errorf("seed %d: %g rollouts pruned and %g scored beside them, the ledger has %d", seed, o.pruned, left, l.Pruned)
		}
		if t.Failed() {
			return
		}
	}
	if trained < 2000 || reused == 0 {
		t.Errorf("%d groups trained in all seeds, and any of them again in %d runs: too few to say anything", trained, reused)
	}
	for what, sum := range seen {
		if sum == 0 {
			t.Errorf("%s is 0 in every run: nothing was compared", what)
		}
	}
}
