package main

import (
	"fmt"
	"maps"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// buildBefore is another build of the program: that of HEADWAY_BEFORE, which make test-upgrade builds of another commit, or else
// this source under another version.
var buildBefore = sync.OnceValues(func() (string, error) {
	if path := os.Getenv("HEADWAY_BEFORE"); path != "" {
		return path, nil
	}
	return buildProgram("-ldflags", "-X github.com/headway-rl/headway/app/command.origin=wheel -X github.com/headway-rl/headway/app/command.version=0.0.0-before")
})

// gives has another process take the place of one, which is told to end. No call to it is lost.
func (s *served) gives(start func() *served) *served {
	s.t.Helper()
	next := &successor{ready: make(chan struct{})}
	s.next.Store(next)
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		s.t.Fatal(err)
	}
	<-s.ended
	next.served = start()
	close(next.ready)
	return next.served
}

// playChats plays rollouts as an agent does, until the run has ended.
func (s *served) playChats() {
	s.playBy(func(c protocol.Claim) bool {
		request := map[string]any{"messages": []map[string]string{{"role": "user", "content": "a"}}, "max_tokens": 8}
		return s.ask("/v1/chat/completions", request, nil, "Authorization", "Bearer "+c.Key) == http.StatusOK
	})
}

// TestUpgradeUnderLoad: the control plane and a cell of a run are replaced one after the other by another build, and back again,
// while workers play and a trainer trains. Each pair of builds plays together. No attempt fails, though a rollout has one alone.
func TestUpgradeUnderLoad(t *testing.T) {
	before, err := buildBefore()
	if err != nil {
		t.Fatal(err)
	}
	after := program(t)
	n := newNATSServer(t)
	const steps = 14
	dir, a, b := t.TempDir(), newHeldPolicy(t), newHeldPolicy(t)
	document := fmt.Sprintf(cellsDocument, scriptedModel(t), n.server.ClientURL(), a.url, b.url, "remote", steps)
	document = strings.Replace(document, "max_attempts: 20", "max_attempts: 1", 1)
	serve := func(build string) func() *served {
		return func() *served { return startServeOf(t, build, dir, document, "--json") }
	}
	cell := func(build string) func() *served {
		return func() *served {
			c := startCellOf(t, build, dir, "b", "--listen", "127.0.0.1:0")
			c.says("the run has it join")
			return c
		}
	}
	s := serve(before)()
	c := cell(before)()
	s.connect()
	trainer, player := s, c
	var workers, ofCell sync.WaitGroup
	for range 8 {
		workers.Go(s.playChats)
		ofCell.Go(c.playChats)
	}
	for _, change := range []func(){
		func() { c = c.gives(cell(after)) },
		func() { s = s.gives(serve(after)) },
		func() { c = c.gives(cell(before)) },
		func() { s = s.gives(serve(before)) },
	} {
		trainer.steps(1)
		release := trainer.stepsInto(a, b)
		var training sync.WaitGroup
		training.Go(func() { trainer.steps(1) })
		change()
		release()
		training.Wait()
	}
	trainer.steps(steps - 12)
	<-c.over
	ofCell.Wait()
	status := s.outcome(&workers)
	trainedAll(t, &status, 8*steps)
	claimed := func(id port.RolloutID) bool {
		_, atPlane := trainer.claimed.Load(id)
		_, atCell := player.claimed.Load(id)
		return atPlane || atCell
	}
	checkRestarts(t, filepath.Join(dir, "runs", "r"), claimed)
}

// checkRestarts requires of a log that a restart costs no rollout that a worker has claimed: each that was under way is scored.
func checkRestarts(t *testing.T, dir string, claimed func(port.RolloutID) bool) {
	t.Helper()
	reader := logOf(t, dir)
	playing, held := map[port.RolloutID]bool{}, map[port.RolloutID]bool{} // held: over a restart
	for rec, err := reader.Next(); err == nil; rec, err = reader.Next() {
		if a := rec.Action; a != nil && a.Kind == loop.StartRollout {
			playing[port.RolloutID{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}] = true
		}
		ev := rec.Event
		if ev == nil {
			continue
		}
		id := port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}
		switch ev.Kind {
		case loop.Recovered, loop.EngineJoined:
			maps.Copy(held, playing)
		case loop.RolloutScored, loop.RolloutFailed:
			if ev.Kind == loop.RolloutFailed && claimed(id) {
				t.Errorf("a rollout that a worker played failed: %s", ev)
			}
			delete(playing, id)
			delete(held, id)
		}
	}
	for id := range held {
		if claimed(id) {
			t.Errorf("%v was under way over a restart, and nothing came of it", id)
		}
	}
}
