package dashboard

import (
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// movesMax bounds the moves of a controller that are kept, the newest of them.
const movesMax = 1 << 12

// ControlState is the goal that a run keeps by moving its own settings, and how that goes.
type ControlState struct {
	metrics.Control
	// MovesInAll counts the moves since the run began; its moves are of the measured window.
	MovesInAll int64 `json:"moves_in_all"`
	// HeldInAll, BatchesInAll and StepsInAll are those since the controller began.
	HeldInAll    int64 `json:"held_in_all"`
	BatchesInAll int64 `json:"batches_in_all"`
	StepsInAll   int64 `json:"steps_in_all"`
}

// Moves are the newest changes of settings that a controller made, in order.
type Moves struct {
	// Earlier counts moves before these, which are not kept.
	Earlier int64         `json:"earlier"`
	Moves   []ControlMove `json:"moves"`
}

// ControlMove is one of them.
type ControlMove struct {
	AtNS    int64        `json:"at_ns"`
	Step    loop.Version `json:"step"`
	Setting string       `json:"setting"`
	// From is where it stood, null where that is not known: the first word of a setting.
	From   *float64 `json:"from"`
	To     float64  `json:"to"`
	Reason string   `json:"reason"`
}

// moves are what a model keeps of a controller.
type moves struct {
	at      map[loop.Setting]float64
	newest  []ControlMove
	earlier int64
	status  *loop.ControlStatus
}

// move keeps a change of a setting.
func (m *moves) move(a *loop.Action, now int64) {
	if m.at == nil {
		m.at = map[loop.Setting]float64{}
	}
	made := ControlMove{AtNS: now, Step: a.Version, Setting: a.Setting.String(), To: a.Value, Reason: a.Reason.String()}
	was, known := m.at[a.Setting]
	m.at[a.Setting] = a.Value
	if !known { // where it stands as the run begins
		return
	}
	made.From = &was
	if len(m.newest) == movesMax {
		m.newest = append(m.newest[:0], m.newest[1:]...)
		m.earlier++
	}
	m.newest = append(m.newest, made)
}

// Moves returns what the run's controller moved.
func (m *Model) Moves() Moves {
	m.mu.Lock()
	defer m.mu.Unlock()
	return Moves{Earlier: m.moves.earlier, Moves: append([]ControlMove{}, m.moves.newest...)}
}

// controlState is the goal of the run, nil without one.
func (m *Model) controlState(measured metrics.Summary) *ControlState {
	c := measured.Control
	if c == nil || c.TargetMean == 0 && c.TargetShare == 0 {
		return nil
	}
	out := &ControlState{Control: *c, MovesInAll: m.moves.earlier + int64(len(m.moves.newest))}
	if s := m.moves.status; s != nil {
		out.HeldInAll, out.BatchesInAll, out.StepsInAll = s.HeldSteps, s.HeldBatches, s.Steps
	}
	return out
}

// controlPoint puts down what a controller measured at a step, and where its settings stand.
func (m *Model) controlPoint(s *metrics.Step) {
	goal := m.opt.Rules.Control
	if goal == nil || s.Control.State == loop.ControlOff {
		return
	}
	step := int64(s.Step)
	if s.Control.Mean >= 0 {
		m.series.set(step, "control_mean", s.Control.Mean)
	}
	if s.Control.Share >= 0 {
		m.series.set(step, "control_share", s.Control.Share)
	}
	for i, r := range goal.Ranges {
		if r.Moves() {
			m.series.set(step, "setting_"+loop.Setting(i).String(), s.Control.Settings[i])
		}
	}
}
