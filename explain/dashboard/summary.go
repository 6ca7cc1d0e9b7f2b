package dashboard

import (
	"cmp"
	"fmt"
	"math"
	"time"

	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// Info returns what does not change while the run is watched.
func (m *Model) Info() Info {
	m.mu.Lock()
	defer m.mu.Unlock()
	info := m.opt.Info
	if info.Engines == nil {
		info.Engines = []string{}
	}
	return info
}

// Summary returns the state of the run in figures.
func (m *Model) Summary() Summary {
	s, measured, expected := m.observed()
	if m.opt.Stall != nil && !s.Ended {
		if s.Stall = m.opt.Stall(); s.Stall != "" {
			s.Health.stands()
		}
	}
	expected.ClosedFormMean = m.closedForm(measured, s.Ended)
	if expected != (Predicted{}) {
		s.Predicted = &expected
	}
	return s
}

// observed is the summary as far as the model has it, what was measured, and what was expected.
func (m *Model) observed() (s Summary, measured metrics.Summary, expected Predicted) {
	var status *loop.Status
	if m.opt.Status != nil {
		now := m.opt.Status() // which may wait for the run: not under the lock
		status = &now
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if status != nil {
		m.status = *status
	}
	measured = m.rec.Summary()
	s = Summary{AtNS: m.now(), Ended: m.ended, State: m.state, Version: m.rec.Version(),
		Staleness: measured.Staleness, PQS: measured.PQS.Mean, IQS: measured.IQS.Mean,
		Ledger: m.status.Ledger, Balanced: m.status.Ledger.Balanced(), Reward: m.reward, Signal: measured.Signal, Length: measured.Length,
		Latency: measured.Latency, Waste: measured.Waste, ClipFraction: m.off.clip, MeanLogRatio: m.off.logRatio, ESS: m.off.ess,
		HeldOut: m.off.heldOut, HeldOutStep: m.off.heldOutStep, Reading: m.read, Missed: m.missed, Problem: m.problem}
	if m.ended && s.State == "running" {
		s.State = "stopped"
	}
	s.Queue = m.queueState()
	s.Health, s.Control = m.health(measured, s.Queue), m.controlState(measured)
	s.Engines = m.engines()
	if from := m.source.Summary(); from.Groups > 0 {
		s.Attribution = &from
	}
	return s, measured, m.expected
}

// closedForm is the mean staleness that the closed form gives at measured inputs, nil where none does. It is computed
// again when what was measured has moved.
func (m *Model) closedForm(measured metrics.Summary, ended bool) *float64 {
	if m.opt.Setting == nil || measured.Steps == 0 {
		return nil
	}
	m.closed.Lock()
	defer m.closed.Unlock()
	if moved := measured.Steps >= m.closedAt+max(m.closedAt/50, 16); m.closedAt > 0 && !moved && (!ended || measured.Steps == m.closedAt) {
		return m.closedMean
	}
	m.closedAt, m.closedMean = measured.Steps, nil
	s, known := m.opt.Setting(measured)
	if !known || s.Uncovered != "" {
		return nil
	}
	if mean, ok := diagnosis.ClosedMean(s.Input); ok {
		m.closedMean = &mean
	}
	return m.closedMean
}

func (m *Model) queueState() QueueState {
	q := QueueState{Capacity: m.opt.Rules.QueueGroups, Batch: m.opt.Rules.BatchGroups}
	for _, g := range m.groups.live {
		switch g.place {
		case placeOpen:
			q.Open++
		case placeQueued:
			q.Groups++
		case placeHeld:
			q.Held++
		}
	}
	return q
}

func (m *Model) engines() []EngineState {
	out := []EngineState{}
	for i, e := range m.status.Engines {
		name := fmt.Sprintf("engine-%d", i)
		if i < len(m.opt.Info.Engines) {
			name = m.opt.Info.Engines[i]
		}
		cell := ""
		if i < len(m.opt.Info.Cells) {
			cell = m.opt.Info.Cells[i]
		}
		out = append(out, EngineState{Name: name, Cell: cell, State: e.State, Version: e.Version, Active: e.Active, Slots: e.Slots})
	}
	return out
}

// health says what enters the queue, what leaves it and what binds, all of the same steps: of the last train periods
// while the run goes on, and of the measured window once it has ended.
func (m *Model) health(s metrics.Summary, queue QueueState) Health {
	h := Health{Throughput: s.Throughput, TrainerIdle: s.TrainerIdleRatio, TrainerAbsent: s.TrainerAbsentRatio, RolloutIdle: s.RolloutIdleRatio,
		PeriodS: s.PeriodS.Mean, StepS: s.StepS.Mean, Acceptance: s.Acceptance, DroppedShare: dropped(s), QueueTrendGroupsPerStep: m.trend(), WindowS: s.WindowS}
	if s.Steps > 0 {
		h.FromStep, h.ToStep = m.rec.Version()-loop.Version(s.Steps)+1, m.rec.Version()
	}
	if s.WindowS > 0 {
		h.TokensPerS = s.Throughput.ConsumptionRolloutsPerWallS * s.Length.TrainedMeanTokens
	}
	idle := m.source.Summary()
	if r, known := m.healthOf.Figures(m.rec); known && !m.ended {
		idle = m.source.Recent()
		h = Health{Throughput: r.Throughput, TrainerIdle: r.TrainerIdle, TrainerAbsent: r.TrainerAbsent, RolloutIdle: r.RolloutIdle, PeriodS: r.PeriodS, StepS: r.StepS,
			TokensPerS: r.TokensPerS, Acceptance: r.Acceptance, DroppedShare: r.Dropped, QueueTrendGroupsPerStep: h.QueueTrendGroupsPerStep,
			FromStep: r.FromStep, ToStep: r.ToStep, WindowS: r.WindowS}
	}
	h.IdleTrainer, h.IdleEngines = idle.Trainer, idle.Engines
	away := m.rec.TrainerAway(m.now())
	absent := away.Absent && !m.ended
	if h.outage() || absent || h.ToStep == 0 {
		h.Binding = ""
	}
	h.Sentence = h.sentence(m.opt.Rules.BatchGroups, m.rec.Version() == 0)
	if absent {
		h.Sentence = h.withoutTrainer(queue, time.Duration(away.LengthNS()))
	}
	return h
}

// now is the run's time: of its last event, or of the moment while it goes on and its status says.
func (m *Model) now() int64 {
	if m.ended {
		return m.draw.now
	}
	return max(m.draw.now, m.status.TimeNS)
}

// withoutTrainer says what waits for a trainer that is not there, and since when it is not.
func (h *Health) withoutTrainer(q QueueState, away time.Duration) string {
	full := fmt.Sprintf("The queue holds %d of %d groups", q.Groups, q.Capacity)
	if q.Groups >= q.Capacity && q.Capacity > 0 {
		full += ": it is full, and engines wait for a trainer"
	}
	away = away.Round(time.Second)
	if h.ToStep == 0 {
		return fmt.Sprintf("No trainer has asked for a batch in %s. %s.", away, full)
	}
	return fmt.Sprintf("No trainer has been there for %s. %s. The figures below are of train steps %d to %d, before it.", away, full, h.FromStep, h.ToStep)
}

// outage says that the trainer waited mostly because no engine served: then none of the sides binds.
func (h *Health) outage() bool {
	return h.TrainerIdle >= outageTold && 2*h.IdleTrainer.Blocked > h.IdleTrainer.Total
}

// outageTold is the share of the time from which on it is told that the trainer waited for engines that were gone.
const outageTold = 0.02

// stands takes that the run makes no progress: what its last steps say is not so now.
func (h *Health) stands() {
	if h.ToStep == 0 {
		return
	}
	h.Binding = ""
	h.Sentence = fmt.Sprintf("Nothing enters the queue and nothing leaves it now: the run makes no progress. The figures below are of train steps %d to %d, before it.", h.FromStep, h.ToStep)
}

// dropped is the share of finished groups' tokens that the queue dropped: evicted or over the budget.
func dropped(s metrics.Summary) float64 {
	w := s.Waste
	gone := w.EvictedTokens + w.DiscardedTokens
	if all := gone + w.TrainedTokens + w.FilteredTokens; all > 0 {
		return float64(gone) / float64(all)
	}
	return 0
}

// trend is how the queue's content moved over the last periods, in groups a step.
func (m *Model) trend() float64 {
	n := len(m.recent)
	if n < 2 {
		return 0
	}
	// The slope of the least squares line over 0..n-1.
	meanX, sumXY, sumXX := float64(n-1)/2, 0.0, 0.0
	for i, groups := range m.recent {
		dx := float64(i) - meanX
		sumXY += dx * float64(groups)
		sumXX += dx * dx
	}
	return sumXY / sumXX
}

// sentence says what binds and what that means.
func (h Health) sentence(batchGroups int, nothing bool) string {
	if nothing {
		return "No train step has ended yet: nothing can be said of the rates."
	}
	enters, leaves := h.EffectiveRolloutsPerS, h.ConsumptionRolloutsPerWallS
	rates := fmt.Sprintf("%s rollouts/s enter the queue, %s leave it to be trained", rate(enters), rate(leaves))
	return rates + "; " + h.binds(batchGroups)
}

// sides are what rollouts can spend their time on, in words with their verb.
var sides = map[string]string{"rollout": "generation binds", "environment": "environments bind", "sandbox": "sandboxes bind", "verifier": "the verifier binds", "scorer": "scorers bind", "prefill": "reading prompts binds"}

func (h Health) binds(batchGroups int) string {
	idle := func(share float64) string { return fmt.Sprintf("%.0f %%", 100*share) }
	busy := idle(max(1-h.TrainerIdle-h.TrainerAbsent, 0))
	switch h.Binding {
	case "train":
		if h.DroppedShare > 0.01 {
			return fmt.Sprintf("the trainer binds: it is busy %s of the time, and %s of what is made is dropped from the queue.", busy, idle(h.DroppedShare))
		}
		if math.Abs(h.QueueTrendGroupsPerStep) > float64(batchGroups)/20 && h.QueueTrendGroupsPerStep > 0 {
			return fmt.Sprintf("the trainer binds, and the queue grows by %.2g groups a step.", h.QueueTrendGroupsPerStep)
		}
		return fmt.Sprintf("the trainer binds: it is busy %s of the time.", busy)
	case "sync":
		return fmt.Sprintf("weight syncs bind: the trainer waits %s of the time, mostly for them.", idle(h.TrainerIdle))
	case "admission":
		return fmt.Sprintf("a rule of the loop binds: engines stand idle %s of the time, and so does the trainer %s.", idle(h.RolloutIdle), idle(h.TrainerIdle))
	case "validation":
		return fmt.Sprintf("validation binds: the trainer is idle %s of the time.", idle(h.TrainerIdle))
	case "":
		if h.outage() {
			return fmt.Sprintf("the trainer waits %s of the time, mostly because no engine served: what binds is not to be seen from these steps.", idle(h.TrainerIdle))
		}
		return "what binds is not known yet."
	}
	what := cmp.Or(sides[h.Binding], h.Binding+" binds")
	return fmt.Sprintf("%s: the trainer waits %s of the time for a batch.", what, idle(h.TrainerIdle))
}

// rate writes a rate with three digits.
func rate(v float64) string {
	if v >= 100 {
		return fmt.Sprintf("%.0f", v)
	}
	return fmt.Sprintf("%.3g", v)
}

// Series returns the run step by step, from one step to another (0 for the last), in at most so many points.
func (m *Model) Series(from, to int64, points int) *Series {
	m.mu.Lock()
	defer m.mu.Unlock()
	if to <= 0 {
		to = math.MaxInt64
	}
	return m.series.between(from, to, points)
}
