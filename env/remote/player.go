package remote

import (
	"encoding/json"
	"fmt"

	"github.com/headway-rl/headway/loop/port"
)

// plays reports whether a claim's worker is a player in this process.
func (e *Dispatcher) plays(worker string) bool { return worker != "" && worker == e.opt.Player }

// playsAgain reports whether a player is to be told a recorded turn next.
func (e *Dispatcher) playsAgain(s *session) bool { return e.plays(s.worker) && len(s.untold) > 0 }

// mayPlay reports whether a worker may be given an offer. One that is to be played again is for players here, which know its notes.
func (e *Dispatcher) mayPlay(worker string, s *session) bool {
	return len(s.untold) == 0 || e.plays(worker)
}

// Note has a note be kept with the next turn of a rollout, for the player of the process after this one (Options.Player).
func (e *Dispatcher) Note(id string, note json.RawMessage) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil && e.opt.Turns != nil {
		s.note = note
	}
}

// againsMax is how often a rollout is played again without a turn more: what it does may have ended the process.
const againsMax = 2

// Notes are those that were kept with the turns of a rollout, one a turn, if a process before this one played it. Its player asks
// for these turns again, in their order, and gets the responses that were recorded.
func (e *Dispatcher) Notes(id string) []json.RawMessage {
	e.mu.Lock()
	s := e.sessions[id]
	if s == nil || len(s.notes) == 0 {
		e.mu.Unlock()
		return nil
	}
	notes := s.notes
	s.notes = nil
	number, keeps := s.nextKept()
	e.mu.Unlock()
	if data, err := json.Marshal(kept{Again: true}); keeps && err == nil {
		_ = e.opt.Turns.KeepTurn(s.task.ID, number, data) // without it the rollout may be played again once more
	}
	return notes
}

// Forsake ends a rollout that cannot go on from its notes. It is tried again as another attempt.
func (e *Dispatcher) Forsake(id string, why error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if s := e.sessions[id]; s != nil && s.state == stateClaimed {
		e.forsake(s, why)
	}
}

// forsake ends a rollout that a restart has ended. e.mu must be held.
func (e *Dispatcher) forsake(s *session, why error) {
	s.err = fmt.Errorf("env/remote: %w: %s: %w", port.ErrUnkept, s.id, why)
	e.fail(s, outcome{kind: outcomeUnkept, reason: why.Error()})
}
