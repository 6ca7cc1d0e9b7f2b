package collective

import (
	"cmp"
	"fmt"
	"maps"
	"net"
	"slices"
	"strconv"

	"github.com/headway-rl/headway/api/protocol"
)

const (
	roleTrainer = "trainer"
	roleEngine  = "engine"
)

// round is one collective: a deterministic state machine without a clock.
type round struct {
	// engines is how many are expected, 0 while nobody has said.
	engines int
	// epoch counts how often the members have met.
	epoch int64
	// standing has what each member of the epoch was told; nil once it is over, because of why.
	standing map[string]place
	why      string
	// last names the members that met last, by their role.
	last map[string]string
	// waiting has the members that have come for the next epoch.
	waiting map[string]protocol.RendezvousRequest
}

// place is a member of an epoch.
type place struct {
	member protocol.RendezvousRequest
	reply  protocol.RendezvousReply
}

func newRound(engines int) *round {
	return &round{engines: engines, waiting: make(map[string]protocol.RendezvousRequest)}
}

// ask returns what a member of the epoch that stands was told, if it is unchanged.
func (m *round) ask(req *protocol.RendezvousRequest) (protocol.RendezvousReply, bool) {
	p, ok := m.standing[req.Member]
	if !ok || req.Epoch != m.epoch || p.member.Role != req.Role || p.member.Ranks != req.Ranks || p.member.Backend != req.Backend ||
		req.Engines > 0 && req.Engines != m.engines {
		return protocol.RendezvousReply{}, false
	}
	return p.reply, true
}

// join lets a member wait for the next epoch, which ends the one that stands. One that
// waits already under this name is replaced.
func (m *round) join(req *protocol.RendezvousRequest) error {
	engines := m.engines
	if req.Engines > 0 {
		engines = req.Engines
	}
	if req.Role == roleTrainer && engines == 0 {
		return protocol.Refuse(protocol.CodeInvalid, "engines is 0 and this run has no number of them: say how many engines trainer %s expects", req.Member)
	}
	others := 0 // engines that wait beside this member
	for _, name := range m.names() {
		other := m.waiting[name]
		switch {
		case name == req.Member:
			continue
		case other.Backend != req.Backend:
			return protocol.Refuse(protocol.CodeConflict, "backend is %s, and %s %s waits with %s: all members of a collective use the same", req.Backend, other.Role, name, other.Backend).With("backend", other.Backend)
		case other.Role == roleTrainer && req.Role == roleTrainer:
			return protocol.Refuse(protocol.CodeConflict, "trainer %s waits already: a collective has one", name).With("trainer", name)
		case other.Role == roleEngine:
			others++
		}
	}
	if req.Role == roleEngine {
		others++
	}
	if engines == 0 && others > enginesMax {
		return protocol.Refuse(protocol.CodeBusy, "%d engines wait, and no trainer: the most there may be are %d", others-1, enginesMax)
	}
	if engines > 0 && others > engines {
		return protocol.Refuse(protocol.CodeConflict, "%d engines are there, and %d are expected: stop one, or have the trainer expect more", others, engines).With("engines", engines)
	}
	m.engines = engines
	m.waiting[req.Member] = *req
	if m.standing != nil {
		m.standing, m.why = nil, fmt.Sprintf("%s %s has joined anew", req.Role, req.Member)
	}
	return nil
}

// leave lets a member go that waits no longer.
func (m *round) leave(member string) { delete(m.waiting, member) }

// complete reports whether everybody is there.
func (m *round) complete() bool {
	return m.engines > 0 && len(m.waiting) == m.engines+1 && m.trainer() != ""
}

// trainer is the name of the trainer that waits.
func (m *round) trainer() string {
	for name, member := range m.waiting {
		if member.Role == roleTrainer {
			return name
		}
	}
	return ""
}

// meet begins the next epoch with those who wait: trainer first, engines in the order
// of their names. The epoch is above any that a member has been in, so that it also
// rises when this process has forgotten it.
func (m *round) meet() map[string]place {
	names, trainer := m.names(), m.waiting[m.trainer()]
	slices.SortStableFunc(names, func(a, b string) int {
		return cmp.Compare(rankOf(m.waiting[a].Role), rankOf(m.waiting[b].Role))
	})
	host, text, _ := net.SplitHostPort(trainer.Address)
	port, _ := strconv.Atoi(text)
	reply := protocol.RendezvousReply{MasterAddress: host, MasterPort: port, Backend: trainer.Backend, Members: names}
	for _, member := range m.waiting {
		m.epoch = max(m.epoch, member.Epoch)
		reply.WorldSize += member.Ranks
	}
	m.epoch++
	reply.Epoch = m.epoch
	m.why, m.standing, m.last = "", make(map[string]place), make(map[string]string)
	for _, name := range names {
		member := m.waiting[name]
		m.standing[name], m.last[name] = place{member, reply}, member.Role
		reply.RankOffset += member.Ranks
	}
	clear(m.waiting)
	return m.standing
}

func rankOf(role string) int {
	if role == roleTrainer {
		return 0
	}
	return 1
}

// names are those who wait, in order.
func (m *round) names() []string { return slices.Sorted(maps.Keys(m.waiting)) }

// missing says who is not there: by name, where those who met last are the ones expected.
func (m *round) missing() []string {
	absent := map[string][]string{}
	for _, name := range slices.Sorted(maps.Keys(m.last)) {
		if _, here := m.waiting[name]; !here {
			role := m.last[name]
			absent[role] = append(absent[role], role+" "+name)
		}
	}
	var out []string
	engines := len(m.waiting)
	if m.trainer() == "" {
		if out = absent[roleTrainer]; len(out) == 0 {
			out = []string{"the trainer"}
		}
	} else {
		engines--
	}
	switch wanted := m.engines - engines; {
	case m.engines == 0:
		out = append(out, "engines, of which the trainer says how many")
	case wanted > 0 && wanted == len(absent[roleEngine]):
		out = append(out, absent[roleEngine]...)
	case wanted > 0:
		out = append(out, fmt.Sprintf("%d of %d engines", wanted, m.engines))
	}
	return out
}
