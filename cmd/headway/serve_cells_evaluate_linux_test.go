package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/observe/steps"
)

// heldOutPolicy is a server that answers held-out tasks rightly, may hold them, and counts them.
type heldOutPolicy struct {
	*heldPolicy
	answered chan struct{}
}

func newHeldOutPolicy(t *testing.T) *heldOutPolicy {
	p := &heldOutPolicy{heldPolicy: &heldPolicy{entered: make(chan struct{}, heldMax)}, answered: make(chan struct{}, 1000)}
	p.url, p.PolicyServer = scriptedPolicy(t, func(r *http.Request, chat string) string {
		if !strings.Contains(chat, "held out") {
			return "I cannot say"
		}
		if !p.await(r) {
			return ""
		}
		p.answered <- struct{}{}
		return "42"
	})
	return p
}

// heldOutTasks is a file of tasks for evaluation alone, all but the first with the answer of a heldOutPolicy.
func heldOutTasks(t *testing.T, n int) string {
	t.Helper()
	var text strings.Builder
	for i := range n {
		fmt.Fprintf(&text, `{"id": "h%d", "prompt": "task %d, held out", "answer": "%d"}`+"\n", i, i, 41+min(i, 1))
	}
	path := filepath.Join(t.TempDir(), "held.jsonl")
	if err := os.WriteFile(path, []byte(text.String()), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// evaluated makes train steps until a line of them has an evaluation of a version from one on.
func (s *served) evaluated(from int) *protocol.HeldOut {
	s.t.Helper()
	for {
		if h := s.status().HeldOut; h != nil && int(h.Version) >= from {
			return h
		}
		s.steps(1)
	}
}

// TestCellsEvaluateHeldOutTasks: a run whose engines are all in cells evaluates held-out tasks. A cell is killed while it plays
// some of them, and the others play these. The control plane is killed while it evaluates, and the next one evaluates again.
func TestCellsEvaluateHeldOutTasks(t *testing.T) {
	const prompts = 8
	n := newNATSServer(t)
	dir, a, b := t.TempDir(), newHeldOutPolicy(t), newHeldOutPolicy(t)
	environment := fmt.Sprintf("tasks, tasks: {file: %s, held_out_file: %s}", taskFile(t), heldOutTasks(t, prompts))
	document := fmt.Sprintf(strings.Replace(cellsDocument, "slots: 4}", "slots: 4, cell: a}", 1), scriptedModel(t), n.server.ClientURL(), a.url, b.url, environment, 1_000_000) +
		"evaluate: {every: 1, prompts: 8, slots: 4}\n"
	s := startServe(t, dir, document, "--json")
	cell := startCell(t, dir, "b")
	startCell(t, dir, "a").says("the run has it join")
	cell.says("the run has it join")

	releaseA, release := a.hold(), b.hold()
	s.connect()
	s.steps(1)
	for range 2 { // all that the cell plays at once
		b.awaitHeld(t)
	}
	releaseA()
	for range prompts - 2 {
		<-a.answered
	}
	cell.kill()
	if h := s.status().HeldOut; h != nil {
		t.Errorf("the status has %+v while two prompts are under way", h)
	}
	release()
	startCell(t, dir, "b")
	whole := func(h *protocol.HeldOut) {
		t.Helper()
		if h.Scored != prompts || h.Failed != 0 || h.Accuracy != 7./8 || h.Reward != 7./8 || h.Newest < h.Oldest || h.Oldest < 0 {
			t.Errorf("the run evaluates %+v", h)
		}
	}
	whole(s.evaluated(1))
	if !strings.Contains(s.text(), "cell b is another process now, and had 2 held-out prompts under way") {
		t.Errorf("the operator is not told of the prompts of the cell that was killed:\n%s", s.text())
	}
	if text, err := exec.Command(program(t), "status", s.url, "--full").CombinedOutput(); err != nil || !strings.Contains(string(text), "87.5 % wholly right, of 8 prompts") {
		t.Errorf("headway status: %v\n%s", err, text)
	}

	release = a.hold()
	for len(a.entered) == 0 { // a step evaluates nothing while an evaluation is under way
		s.steps(1)
	}
	s.kill()
	before := s.lineHeldOut()
	s = startServe(t, dir, document, "--json")
	release()
	s.connect()
	whole(s.evaluated(int(*before.HeldOutStep) + 1))
	if line := s.lineHeldOut(); *line.HeldOutAccuracy != 7./8 || line.HeldOut.Scored != prompts {
		t.Errorf("the newest line of metrics.jsonl with an evaluation is %+v", line)
	}
}

// awaitHeld returns when a response is held.
func (p *heldPolicy) awaitHeld(t *testing.T) {
	t.Helper()
	select {
	case <-p.entered:
	case <-t.Context().Done():
		t.Fatal("no response is held")
	}
}

// lineHeldOut is the newest line of a run's train steps that has an evaluation.
func (s *served) lineHeldOut() (newest steps.Line) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "runs", "r", "metrics.jsonl"))
	if err != nil {
		s.t.Fatal(err)
	}
	for line := range bytes.Lines(text) {
		var l steps.Line
		if json.Unmarshal(line, &l) == nil && l.HeldOut != nil { // the last line may be cut
			newest = l
		}
	}
	if newest.HeldOut == nil {
		s.t.Fatal("no line has an evaluation")
	}
	return newest
}
