package main

import (
	"fmt"
	"net/http"
	"os"
	"sync"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

const restartDocument = `
model: {path: %s}
store: {samples_every: 0, nats: {writer_s: 1}}
engines:
  - {kind: vllm, name: a, url: %q, slots: 4}
environment: {kind: remote, prompt_tokens_max: 3072, response_tokens_max: 512}
rollout: {group_size: 4}
train: {batch: 4}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d}
failures: {max_attempts: 1}
`

// turn has a worker sample a turn of a claim.
func (s *served) turn(c protocol.Claim, turn int, prompt ...int32) (reply protocol.SampleReply) {
	s.t.Helper()
	s.ask("/api/v1/rollouts/"+c.ID+"/sample", protocol.SampleRequest{Worker: "w", Secret: c.Secret, Turn: turn, Prompt: prompt, MaxTokens: 64}, &reply)
	return reply
}

// TestRolloutsGoOnAfterARestart: a control plane that is killed, or stopped, costs rollouts of workers and agents nothing but
// the turn under way. The next one answers under the same keys, and what was sampled before counts.
func TestRolloutsGoOnAfterARestart(t *testing.T) {
	const steps = 2
	dir, policy := t.TempDir(), newHeldPolicy(t)
	document := fmt.Sprintf(restartDocument, scriptedModel(t), policy.url, steps)
	s := startServe(t, dir, document, "--json")
	worker, agent := s.claim(), s.claim()
	prompt := []int32{5, 6, 7}
	first := s.turn(worker, 0, prompt...)
	if code, text := s.chat(agent.Key); code != http.StatusOK {
		t.Fatalf("an agent: %d %s", code, text)
	}
	for restart, end := range []func(){s.kill, func() {
		if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		s.ends(0, "draining")
	}} {
		end()
		s = startServe(t, dir, document, "--json")
		s.says("2 of 4 rollouts that were under way go on from their turns")
		if again := s.turn(worker, 0, prompt...); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("restart %d: the first turn is answered with %+v, and was with %+v", restart+1, again, first)
		}
		if code, text := s.chat(agent.Key); code != http.StatusOK {
			t.Errorf("restart %d: the agent: %d %s", restart+1, code, text)
		}
	}
	s.turn(worker, 1, append(append(prompt, first.Tokens...), 9)...)
	var counted [2]protocol.FinishReply
	var playing sync.WaitGroup
	playing.Go(func() { counted[0] = s.finish(worker) })
	playing.Go(func() { counted[1] = s.finish(agent) })
	playing.Wait()
	if !counted[0].Counted || !counted[1].Counted {
		t.Errorf("rollouts that were played over two restarts: %+v", counted)
	}
	playing.Go(s.play)
	s.train(steps)
	status := s.final()
	playing.Wait()
	// Of the other two nobody had begun with any: they were tried anew, which counts as no failure.
	if !status.Ledger.Balanced || status.Ledger.Trained != 4*steps || status.Failures.Environment+status.Failures.Engine+status.Failures.Timeout > 0 {
		t.Errorf("the ledger is %+v after the failures %+v", status.Ledger, status.Failures)
	}
}

const cellRestartDocument = `
model: {path: %s}
store: {samples_every: 0, nats: {url: %q, writer_s: 1}}
engines:
  - {kind: vllm, name: a, url: %q, slots: 4}
  - {kind: vllm, name: b, url: %q, slots: 4, cell: b}
environment: {kind: remote, prompt_tokens_max: 3072, response_tokens_max: 512}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d}
failures: {max_attempts: 1}
`

// TestRolloutsOfACellGoOn: a cell that is killed, or stopped, and started again costs its rollouts no more than the turn under
// way, with the control plane there or away meanwhile.
func TestRolloutsOfACellGoOn(t *testing.T) {
	n := newNATSServer(t)
	const steps = 2
	dir, a, b := t.TempDir(), newHeldPolicy(t), newHeldPolicy(t)
	document := fmt.Sprintf(cellRestartDocument, scriptedModel(t), n.server.ClientURL(), a.url, b.url, steps)
	s := startServe(t, dir, document, "--json")
	start := func() *served {
		c := startCell(t, dir, "b", "--listen", "127.0.0.1:0")
		c.says("the run has it join")
		return c
	}
	c := start()
	worker, agent := c.claim(), c.claim()
	prompt := []int32{5, 6, 7}
	first := c.turn(worker, 0, prompt...)
	if code, text := c.chat(agent.Key); code != http.StatusOK {
		t.Fatalf("an agent: %d %s", code, text)
	}
	for restart, end := range []func(){func() { c.kill() }, func() {
		if err := c.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		c.ends(0, "it goes on with its rollouts")
		s.kill()
		s = startServe(t, dir, document, "--json")
	}} {
		end()
		c = start()
		c.says("2 of 4 rollouts that were under way go on from their turns")
		if again := c.turn(worker, 0, prompt...); fmt.Sprint(again) != fmt.Sprint(first) {
			t.Errorf("restart %d: the first turn is answered with %+v, and was with %+v", restart+1, again, first)
		}
		if code, text := c.chat(agent.Key); code != http.StatusOK {
			t.Errorf("restart %d: the agent: %d %s", restart+1, code, text)
		}
	}
	c.turn(worker, 1, append(append(prompt, first.Tokens...), 9)...)
	var counted [2]protocol.FinishReply
	var playing sync.WaitGroup
	playing.Go(func() { counted[0] = c.finish(worker) })
	playing.Go(func() { counted[1] = c.finish(agent) })
	playing.Wait()
	if !counted[0].Counted || !counted[1].Counted {
		t.Errorf("rollouts that were played over two restarts: %+v", counted)
	}
	playing.Go(s.play)
	playing.Go(c.play)
	s.train(steps)
	status := s.final()
	playing.Wait()
	// Nobody had begun with the other two: they were tried anew, which counts as no failure.
	if !status.Ledger.Balanced || status.Ledger.Trained != 8*steps || status.Failures.Environment+status.Failures.Engine+status.Failures.Timeout > 0 {
		t.Errorf("the ledger is %+v after the failures %+v", status.Ledger, status.Failures)
	}
}
