package remote

import (
	"cmp"
	"fmt"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
)

// What a rollout holds is counted in bytes of memory, so that tokens, turns and branches have one bound.
const (
	// tokenBytes is of a recorded token, measured: 17 bytes in its branch, a quarter of them again for
	// growth, and what the gateway keeps for the chat to go on from.
	tokenBytes = 32
	// turnBytes is of a numbered turn, or of a call that waits, and branchBytes of a branch, tokens apart.
	turnBytes, branchBytes = 512, 512
	// branchesMax bounds the branches of a rollout: every call looks for its own among them.
	branchesMax = 4096
	// rolloutBytesDefault and roomBytesDefault hold where nothing else is said.
	rolloutBytesDefault, roomBytesDefault = 384 << 20, 3 << 30
)

// room counts what the rollouts under way hold together. The environment's mutex guards it.
type room struct {
	held, refused, overflowed int64
	// full is what was held when a call was last refused, 0 before.
	full int64
	// grants counts claims. eldest is the oldest of those under way, nil before it is asked for.
	grants int64
	eldest *session
}

// bytes is what a session holds.
func (s *session) bytes() int64 {
	r := &s.record
	return s.pending + int64(r.size)*tokenBytes + int64(len(r.branches))*branchBytes + int64(len(r.turns))*turnBytes
}

// count brings the sum up to date after a session's part changed. e.mu must be held.
func (e *Dispatcher) count(s *session) {
	now := s.bytes()
	if s.state == stateEnded {
		now = 0
	}
	e.room.held += now - s.counted
	s.counted = now
}

// promptBytes is what a call holds beside the record while it waits.
func promptBytes(tokens int) int64 { return turnBytes + 4*int64(tokens) }

// admit says whether a session may begin a turn with a prompt of so many tokens. A rollout that alone
// exceeds its bound fails. From half of the bound of all on, rollouts that hold more than their even
// share of that half wait, so that the others go on and end. The oldest claim always goes on: else all
// could wait for each other. e.mu must be held.
func (e *Dispatcher) admit(s *session, agent port.Agent, prompt []int32, items []media.Item) error {
	adds, r := promptBytes(len(prompt)), &s.record
	fit := r.fit(agent, prompt, items)
	known := 0
	if fit < len(r.branches) {
		known = len(r.branches[fit].tokens)
	}
	own := s.bytes() + adds + int64(len(prompt)-known)*tokenBytes
	switch half := e.opt.RoomBytesMax / 2; {
	case own > e.opt.RolloutBytesMax:
		return e.overflow(s, own)
	case fit == len(r.branches) && fit >= branchesMax:
		return protocol.Refuse(protocol.CodeTooLarge, "rollout %s has %d branches, as many as it may: go on with one of them, or finish it", s.id, fit).With("limit", branchesMax)
	case e.room.held+own-s.bytes() > half && own > half/int64(max(e.claimed, 1)) && e.oldest() != s:
		e.room.refused, e.room.full = e.room.refused+1, e.room.held
		return protocol.Refuse(protocol.CodeBusy, "bound %s: rollouts hold %d bytes together. Those above their share wait from %d on, and %s holds %d: send the call again", BoundRollouts, e.room.held, half, s.id, own).
			With("bound", BoundRollouts).With("bytes_max", e.opt.RoomBytesMax)
	}
	return nil
}

// overflow ends a rollout that alone holds more than it may.
func (e *Dispatcher) overflow(s *session, own int64) error {
	reason := fmt.Sprintf("bound %[5]s: it has %[1]d tokens in %[2]d branches, %[3]d bytes with its next call of %[4]d",
		s.record.size, len(s.record.branches), own, e.opt.RolloutBytesMax, BoundRollout)
	e.room.overflowed++
	s.err = fmt.Errorf("env/remote: %s was ended: %s", s.id, reason)
	e.fail(s, outcome{kind: outcomeOverflow, reason: reason})
	return e.refusal(&s.outcome, s.id)
}

// oldest is the session whose claim is the oldest of those under way.
func (e *Dispatcher) oldest() *session {
	if e.room.eldest == nil || e.room.eldest.state != stateClaimed {
		e.room.eldest = nil
		for _, s := range e.sessions {
			if s.state == stateClaimed && (e.room.eldest == nil || s.grant < e.room.eldest.grant) {
				e.room.eldest = s
			}
		}
	}
	return e.room.eldest
}

// Names of the bounds in refusals, status and metrics.
const (
	// BoundRollouts is on what all rollouts under way hold, BoundRollout on what one does.
	BoundRollouts = protocol.BoundRollouts
	BoundRollout  = "rollout_bytes"
)

// Bounds says how full the bounds are that hold for the rollouts under way.
func (e *Dispatcher) Bounds() []protocol.Bound {
	e.mu.Lock()
	defer e.mu.Unlock()
	fullest := int64(0)
	for _, s := range e.sessions {
		fullest = max(fullest, s.counted)
	}
	return []protocol.Bound{
		{Name: BoundRollouts, Held: e.room.held, Max: e.opt.RoomBytesMax, Binding: e.room.full > 0 && e.room.held >= e.room.full, Refused: e.room.refused},
		{Name: BoundRollout, Held: fullest, Max: e.opt.RolloutBytesMax, Binding: fullest >= e.opt.RolloutBytesMax/100*99, Refused: e.room.overflowed},
	}
}

// withRoom fills in the bounds that the options leave out.
func (o *Options) withRoom() {
	o.RoomBytesMax = cmp.Or(o.RoomBytesMax, roomBytesDefault)
	o.RolloutBytesMax = cmp.Or(o.RolloutBytesMax, min(rolloutBytesDefault, o.RoomBytesMax/2))
}
