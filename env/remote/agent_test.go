package remote

import (
	"errors"
	"slices"
	"strings"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/port"
)

// speak makes a call of a named agent.
func speak(t *testing.T, e *Dispatcher, id, agent string, train *bool, prompt ...int32) (protocol.TurnReply, error) {
	t.Helper()
	return e.Turn(t.Context(), id, protocol.TurnRequest{Prompt: prompt, Agent: agent, Train: train}, nil)
}

// refusedFor fails unless a call is refused as invalid for a field, in words.
func refusedFor(t *testing.T, err error, field, words string) {
	t.Helper()
	refusal, ok := errors.AsType[*protocol.Refusal](err)
	if !ok || refusal.Code != protocol.CodeInvalid || refusal.Detail["field"] != field || !strings.Contains(refusal.Message, words) {
		t.Errorf("%v, want it refused as invalid for %s with %q", err, field, words)
	}
}

// TestAgentsBranches: what one agent says is never joined to what another said, though its prompt goes on from it.
func TestAgentsBranches(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		for _, call := range []struct {
			agent  string
			train  *bool
			prompt []int32
			branch int
		}{
			{"solver", nil, []int32{20}, 0},                               // answered with 1 2
			{"referee", new(false), []int32{20, 1, 2, 21}, 1},             // with 2 3
			{"solver", new(true), []int32{20, 1, 2, 22}, 0},               // with 3 4
			{"referee", new(false), []int32{20, 1, 2, 21, 2, 3, 23}, 1},   // with 4 5
			{"referee", new(false), []int32{20, 1, 2, 22, 3, 4}, 2},       // the solver's words whole
			{"solver", nil, []int32{20, 1, 2, 21, 2, 3, 23, 4, 5, 24}, 3}, // and the referee's
		} {
			reply, err := speak(t, e, c.ID, call.agent, call.train, call.prompt...)
			if err != nil || reply.Branch != call.branch {
				t.Errorf("%s after %v is added to branch %d, want %d: %v", call.agent, call.prompt, reply.Branch, call.branch, err)
			}
		}
		_, err := speak(t, e, c.ID, "", nil, 20)
		refusedFor(t, err, "agent", "names no agent, and others of rollout g1-s0-a1 do, such as solver")
		_, err = speak(t, e, c.ID, "referee", nil, 20)
		refusedFor(t, err, "train", "is trained in one call and not in another")
		_, err = speak(t, e, c.ID, "a b", nil, 20)
		refusedFor(t, err, "agent", "want letters")
		_, err = speak(t, e, c.ID, "", new(false), 20)
		refusedFor(t, err, "agent", "names none")
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		<-p.done
		s := p.sample
		referee, solver := port.Agent{Name: "referee", Untrained: true}, port.Agent{Name: "solver"}
		if want := []port.Agent{solver, referee, referee, solver}; !slices.Equal(s.Agents, want) || s.CheckAgents() != nil {
			t.Errorf("agents %v, want %v: %v", s.Agents, want, s.CheckAgents())
		}
		trained := s.Trained()
		if want := []int32{20, 1, 2, 22, 3, 4}; !slices.Equal(trained.Tokens[:6], want) || len(trained.Breaks) != 1 || trained.ResponseTokens() != 6 {
			t.Errorf("trained on %v with breaks %v", trained.Tokens, trained.Breaks)
		}
		e.Logged(id(1, 0, 1), true)
		synctest.Wait()
		empty(t, e)
	})
}

// TestAgentAfterNone: a label comes in all calls or in none, and a call that was taken back counts for nothing.
func TestAgentAfterNone(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		ask(t, e, c.ID, 20)
		_, err := speak(t, e, c.ID, "solver", nil, 20)
		refusedFor(t, err, "agent", "an earlier one of rollout g1-s0-a1 names none")
	})
}

// TestNothingTrained: a rollout of which nothing is trained has no end but a failure.
func TestNothingTrained(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		if _, err := speak(t, e, c.ID, "referee", new(false), 20); err != nil {
			t.Fatal(err)
		}
		_, err := e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		refusedFor(t, err, "train", "no agent of rollout g1-s0-a1 is trained")
	})
}

// TestNumberedAgents: a worker's numbered calls go on from the agent's own turns, and the numbers from all.
func TestNumberedAgents(t *testing.T) {
	inBubble(t, func(t *testing.T) {
		e := open(t, nil)
		p := play(t, e, id(1, 0, 1))
		c := claim(t, e, "w")
		sample := func(turn int, agent string, prompt ...int32) error {
			_, err := e.Sample(t.Context(), c.ID, protocol.SampleRequest{Worker: "w", Turn: turn, Prompt: prompt, Agent: agent})
			return err
		}
		for turn, call := range []struct {
			agent  string
			prompt []int32
		}{{"a", []int32{20}}, {"b", []int32{25}}, {"a", []int32{20, 1, 2, 21}}, {"b", []int32{25, 2, 3, 22}}} {
			for range 2 { // the second asks for the answer again
				if err := sample(turn, call.agent, call.prompt...); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := sample(3, "a", 25, 2, 3, 22); err == nil || !strings.Contains(err.Error(), "another prompt, agent") {
			t.Errorf("a turn of another agent: %v", err)
		}
		if err := sample(4, "a", 25, 2, 3, 22); err == nil || !strings.Contains(err.Error(), "changed history") {
			t.Errorf("one agent's history under another's name: %v", err)
		}
		refusedFor(t, sample(4, "", 20), "agent", "names no agent")
		go e.Finish(t.Context(), c.ID, protocol.FinishRequest{Worker: "w", Reward: new(float32(1))})
		<-p.done
		if want := []int32{20, 1, 2, 21, 3, 4, 25, 2, 3, 22, 4, 5}; !slices.Equal(p.sample.Tokens, want) || !slices.Equal(p.sample.Breaks, []int32{6}) {
			t.Errorf("tokens %v with breaks %v", p.sample.Tokens, p.sample.Breaks)
		}
		e.Logged(id(1, 0, 1), true)
		synctest.Wait()
	})
}
