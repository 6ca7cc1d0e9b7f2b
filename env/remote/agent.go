package remote

import (
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// agentOf is the agent that a call names; train is nil where it does not say whether it is trained.
func agentOf(name string, train *bool) (port.Agent, error) {
	switch {
	case name == "" && train != nil:
		return port.Agent{}, protocol.Refuse(protocol.CodeInvalid, "it says whether an agent is trained, and names none: name the agent, or leave train out").With("field", "agent")
	case name == "":
		return port.Agent{}, nil
	}
	if err := protocol.CheckName(name); err != nil {
		return port.Agent{}, protocol.Refuse(protocol.CodeInvalid, "the agent's name is %.40q: %v", name, err).With("field", "agent")
	}
	return port.Agent{Name: name, Untrained: train != nil && !*train}, nil
}

// checkAgent refuses an agent that the rollout's other calls contradict: either all name one or none does, and
// each is trained or not in all of its calls. A client would repeat a conflict, so it is none. e.mu must be held.
func (s *session) checkAgent(a port.Agent) error {
	for other := range s.agents {
		switch {
		case a.Name == "" && other.Name != "":
			return protocol.Refuse(protocol.CodeInvalid, "the call names no agent, and others of rollout %s do, such as %s: name one in every call, or in none", s.id, other.Name).With("field", "agent")
		case a.Name != "" && other.Name == "":
			return protocol.Refuse(protocol.CodeInvalid, "the call names the agent %s, and an earlier one of rollout %s names none: name one in every call, or in none", a.Name, s.id).With("field", "agent")
		case a.Name == other.Name && a.Untrained != other.Untrained:
			return protocol.Refuse(protocol.CodeInvalid, "agent %s of rollout %s is trained in one call and not in another: say the same in all of them", a.Name, s.id).With("field", "train")
		}
	}
	return nil
}

// agents visits those of the calls that are recorded and of those that somebody waits for.
func (s *session) agents(visit func(port.Agent) bool) {
	for _, b := range s.record.branches {
		if !visit(b.agent) {
			return
		}
	}
	if s.running != nil && !s.running.isDropped() && !visit(s.running.agent) {
		return
	}
	for _, t := range s.queue {
		if !visit(t.agent) {
			return
		}
	}
}

// checkTrained refuses to end a rollout of which nothing could be trained on.
func (r *record) checkTrained(id string) error {
	for _, b := range r.branches {
		if !b.agent.Untrained {
			return nil
		}
	}
	return protocol.Refuse(protocol.CodeInvalid, "no agent of rollout %s is trained: train one, or end the rollout by failed", id).With("field", "train")
}

// history is what the next numbered prompt of an agent begins with.
func (r *record) history(a port.Agent) []int32 {
	for _, b := range r.branches {
		if b.agent == a {
			return b.tokens
		}
	}
	return nil
}
