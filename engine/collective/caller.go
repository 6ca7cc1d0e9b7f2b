package collective

import (
	"strings"

	"github.com/headway-rl/headway/api/protocol"
)

const (
	// ownPrefix begins the names of the meetings of engines with the sender, which the control plane makes.
	ownPrefix = "broadcast-"
	// engineMeetingsMax is how many collectives may wait that engines have begun: the rest of MeetingsMax is
	// for trainers and the control plane itself.
	engineMeetingsMax = MeetingsMax / 2
	// tokenMeetingsMax is how many of them may be of one token.
	tokenMeetingsMax = 64
	roleAdmin        = "admin"
)

// outside reports whether an engine's request came over the API. Those of the control plane itself
// have no peer.
func outside(req *protocol.RendezvousRequest) bool {
	return req.Role == roleEngine && req.Caller.Peer.IsValid()
}

// checkCaller refuses a member that claims more than its token gives.
func checkCaller(name string, req *protocol.RendezvousRequest) error {
	if role := req.Caller.Role; role != "" && role != roleAdmin && role != req.Role {
		return protocol.Refuse(protocol.CodeForbidden, "rendezvous %s: member %s comes as %s, and its token is of role %s: a member joins by the role of its token", name, req.Member, req.Role, role).With("role", role)
	}
	if outside(req) && strings.HasPrefix(name, ownPrefix) {
		return protocol.Refuse(protocol.CodeForbidden, "rendezvous %s: the control plane joins for its engine: choose a name that does not begin with %s", name, ownPrefix)
	}
	return nil
}

// roomFor refuses to begin a collective where engines have too many that wait. r.mu must be held.
func (r *Rendezvous) roomFor(req *protocol.RendezvousRequest) error {
	if !outside(req) {
		return nil
	}
	all, same := 0, 0
	for _, t := range r.rounds {
		if t.round.epoch > 0 || t.kept || !t.caller.Peer.IsValid() || t.caller.Role == roleTrainer {
			continue
		}
		all++
		if t.caller.Token == req.Caller.Token {
			same++
		}
	}
	switch {
	case same >= tokenMeetingsMax:
		return protocol.Refuse(protocol.CodeBusy, "%d collectives wait that this token has begun, the most there may be: let a trainer come to one of them", same)
	case all >= engineMeetingsMax:
		return protocol.Refuse(protocol.CodeBusy, "%d collectives wait that engines have begun, the most there may be: let a trainer come to one of them", all)
	}
	return nil
}

// taken refuses a member under whose name a call of another token waits.
func (t *openRound) taken(name string, req *protocol.RendezvousRequest) error {
	if old := t.waiters[req.Member]; old != nil && old.token != req.Caller.Token {
		return protocol.Refuse(protocol.CodeConflict, "rendezvous %s: member %s waits already, with another token: choose another name", name, req.Member)
	}
	return nil
}
