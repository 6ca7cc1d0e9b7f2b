package main

import (
	"fmt"
	"net/http"
	"os"
	"slices"
	"strings"
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

// restartPrompt is that of the worker's first turn.
var restartPrompt = []int32{5, 6, 7}

// upheld are rollouts of a worker and an agent that go on over restarts of the process that they play at.
type upheld struct {
	worker, agent protocol.Claim
	first         protocol.SampleReply // of the worker's first turn
}

// uphold begins them.
func (s *served) uphold() (u upheld) {
	s.t.Helper()
	u.worker, u.agent = s.claim(), s.claim()
	u.first = s.turn(u.worker, 0, restartPrompt...)
	if code, text := s.chat(u.agent.Key); code != http.StatusOK {
		s.t.Fatalf("an agent: %d %s", code, text)
	}
	return u
}

// goOn requires that they go on at the process that was started last.
func (u *upheld) goOn(s *served, restart int) {
	s.t.Helper()
	s.says("2 of 4 rollouts that were under way go on from their turns")
	s.ready()
	if again := s.turn(u.worker, 0, restartPrompt...); fmt.Sprint(again) != fmt.Sprint(u.first) {
		s.t.Errorf("restart %d: the first turn is answered with %+v, and was with %+v", restart+1, again, u.first)
	}
	if code, text := s.chat(u.agent.Key); code != http.StatusOK {
		s.t.Errorf("restart %d: the agent: %d %s", restart+1, code, text)
	}
}

// end requires that they count.
func (u *upheld) end(s *served) {
	s.t.Helper()
	s.turn(u.worker, 1, slices.Concat(restartPrompt, u.first.Tokens, []int32{9})...)
	var counted [2]protocol.FinishReply
	var playing sync.WaitGroup
	playing.Go(func() { counted[0] = s.finish(u.worker) })
	playing.Go(func() { counted[1] = s.finish(u.agent) })
	playing.Wait()
	if !counted[0].Counted || !counted[1].Counted {
		s.t.Errorf("rollouts that were played over two restarts: %+v", counted)
	}
}

// trainedAll requires that so many rollouts were trained, and none failed. Nobody had begun with the rest of those that a restart
// found: they were tried anew, which counts as no failure.
func trainedAll(t *testing.T, status *protocol.Status, rollouts int64) {
	t.Helper()
	if !status.Ledger.Balanced || status.Ledger.Trained != rollouts || status.Failures.Environment+status.Failures.Engine+status.Failures.Timeout > 0 {
		t.Errorf("the ledger is %+v after the failures %+v", status.Ledger, status.Failures)
	}
}

// TestRolloutsGoOnAfterARestart: a control plane that is killed, or stopped, costs rollouts of workers and agents nothing but
// the turn under way. The next one answers under the same keys, and what was sampled before counts.
func TestRolloutsGoOnAfterARestart(t *testing.T) {
	const steps = 2
	dir, policy := t.TempDir(), newHeldPolicy(t)
	document := fmt.Sprintf(restartDocument, scriptedModel(t), policy.url, steps)
	s := startServe(t, dir, document, "--json")
	u := s.uphold()
	for restart, end := range []func(){s.kill, func() {
		if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
			t.Error(err)
		}
		s.ends(0, "draining")
	}} {
		end()
		s = startServe(t, dir, document, "--json")
		u.goOn(s, restart)
	}
	u.end(s)
	var playing sync.WaitGroup
	playing.Go(s.play)
	s.train(steps)
	status := s.outcome(&playing)
	trainedAll(t, &status, 4*steps)
}

// TestRolloutsOfACellGoOn: a cell that is killed, or stopped, and started again costs its rollouts no more than the turn under
// way, with the control plane there or away meanwhile.
func TestRolloutsOfACellGoOn(t *testing.T) {
	n := newNATSServer(t)
	const steps = 2
	dir, a, b := t.TempDir(), newHeldPolicy(t), newHeldPolicy(t)
	document := fmt.Sprintf(cellsDocument, scriptedModel(t), n.server.ClientURL(), a.url, b.url, "remote", steps)
	document = strings.Replace(document, "max_attempts: 20", "max_attempts: 1", 1)
	s := startServe(t, dir, document, "--json")
	start := func() *served {
		c := startCell(t, dir, "b", "--listen", "127.0.0.1:0")
		c.says("the run has it join")
		return c
	}
	c := start()
	u := c.uphold()
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
		u.goOn(c, restart)
	}
	u.end(c)
	var playing sync.WaitGroup
	playing.Go(s.play)
	playing.Go(c.play)
	s.train(steps)
	status := s.outcome(&playing)
	trainedAll(t, &status, 8*steps)
}
