package main

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// cellsDocument is a run with an engine of the control plane and one of the cell b.
const cellsDocument = `
model: {path: %s}
store: {samples_every: 0, nats: {url: %q, writer_s: 1}}
engines:
  - {kind: vllm, name: a, url: %q, slots: 4}
  - {kind: vllm, name: b, url: %q, slots: 4, cell: b}
environment: {kind: %s, prompt_tokens_max: 3072, response_tokens_max: 512}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d}
failures: {max_attempts: 20}
`

// newNATSServer starts a server for the processes of a run.
func newNATSServer(t *testing.T) *natsServer {
	t.Helper()
	n := &natsServer{t: t, options: server.Options{Host: "127.0.0.1", Port: -1, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true, JetStreamMaxStore: 1 << 50}}
	n.start()
	t.Cleanup(func() { n.stop() })
	return n
}

// heldPolicy is a server whose responses may be held.
type heldPolicy struct {
	*enginetest.PolicyServer
	url     string
	mu      sync.Mutex
	held    chan struct{} // nil while none is
	entered chan struct{} // one for each response that is held, as far as there is room
}

// heldMax is how many held responses are counted.
const heldMax = 64

func newHeldPolicy(t *testing.T) *heldPolicy {
	p := &heldPolicy{entered: make(chan struct{}, heldMax)}
	p.url, p.PolicyServer = scriptedPolicy(t, func(r *http.Request, _ string) string {
		p.await(r)
		return "I cannot say"
	})
	return p
}

// await waits while responses are held. It reports whether the caller is still there.
func (p *heldPolicy) await(r *http.Request) bool {
	p.mu.Lock()
	held := p.held
	p.mu.Unlock()
	if held != nil {
		select {
		case p.entered <- struct{}{}:
		default:
		}
		select {
		case <-held:
		case <-r.Context().Done():
		}
	}
	return r.Context().Err() == nil
}

// hold has responses held until release is called.
func (p *heldPolicy) hold() (release func()) {
	held := make(chan struct{})
	for len(p.entered) > 0 { // of an earlier time
		<-p.entered
	}
	p.mu.Lock()
	p.held = held
	p.mu.Unlock()
	return func() {
		p.mu.Lock()
		p.held = nil
		p.mu.Unlock()
		close(held)
	}
}

// stepsInto makes a train step whose end has rollouts begin at both engines, where they are held. It returns when one is held at
// the second.
func (s *served) stepsInto(a, b *heldPolicy) (release func()) {
	batch := s.leased()
	releaseA, releaseB := a.hold(), b.hold() // the groups that the step admits fill the slots of both
	s.publish(batch, byte(batch.Lease.Version))
	b.awaitHeld(s.t)
	return func() { releaseA(); releaseB() }
}

// startCell starts the program as a cell of a document.
func startCell(t *testing.T, dir, name string, arguments ...string) *served {
	t.Helper()
	return startCellOf(t, program(t), dir, name, arguments...)
}

// startCellOf starts one build of the program.
func startCellOf(t *testing.T, build, dir, name string, arguments ...string) *served {
	t.Helper()
	c := &served{t: t, dir: dir, heard: make(chan struct{}, 1), over: make(chan struct{}), ended: make(chan struct{})}
	c.cmd = exec.Command(build, append([]string{"cell", name, filepath.Join(dir, "run.yaml"), "--name", "r"}, arguments...)...)
	c.cmd.Dir = dir
	c.cmd.SysProcAttr = withTheTest
	stderr, err := c.cmd.StderrPipe()
	if err == nil {
		err = c.cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	listening := make(chan string, 1)
	go c.read(stderr, listening)
	t.Cleanup(c.kill)
	if slices.Contains(arguments, "--listen") {
		select {
		case c.url = <-listening:
		case <-c.ended:
		}
	}
	return c
}

// ends requires that a cell ends with an exit code, and says something.
func (s *served) ends(code int, text string) {
	s.t.Helper()
	<-s.ended
	if got := s.cmd.ProcessState.ExitCode(); got != code || !strings.Contains(s.text(), text) {
		s.t.Errorf("it ends with code %d, want %d and %q:\n%s", got, code, text, s.text())
	}
}

// says returns when a cell says something, or has ended.
func (s *served) says(text string) {
	s.t.Helper()
	for !strings.Contains(s.text(), text) {
		select {
		case <-s.heard:
		case <-s.ended:
			if !strings.Contains(s.text(), text) {
				s.t.Fatalf("it ended without %q:\n%s", text, s.text())
			}
			return
		case <-s.t.Context().Done():
			s.t.Fatalf("it does not say %q:\n%s", text, s.text())
		}
	}
}

// TestServeCells: a run trains with the engines of a cell in another process, which the control plane's own NATS server takes in.
// The control plane is killed while the cell plays, and
// nothing of the cell is lost. The cell is killed, and another process of it goes on. Both end with the run.
func TestServeCells(t *testing.T) {
	const steps = 8
	dir, a, b := t.TempDir(), newHeldPolicy(t), newHeldPolicy(t)
	document := fmt.Sprintf(strings.Replace(cellsDocument, "url: %q", "listen: %q", 1), scriptedModel(t), freeAddress(t), a.url, b.url, fmt.Sprintf("tasks, tasks: {file: %s}", taskFile(t)), steps)
	s := startServe(t, dir, document, "--json")
	c := startCell(t, dir, "b")
	c.says("the run has it join")
	s.connect()
	s.steps(1)
	if e := s.status().Engines; len(e) != 2 || e[0].Cell != "" || e[1].Cell != "b" || e[1].Server != nil || e[0].Server == nil {
		t.Errorf("the status has the engines %+v", e)
	}
	if c := s.status().Cells; len(c) != 1 || c[0].Name != "b" || c[0].Slots != 4 || c[0].Build == "" || c[0].SilentS < 0 || !slices.ContainsFunc(c[0].Bounds, func(b protocol.Bound) bool { return b.Name == protocol.BoundProcessor && b.Max > 0 }) {
		t.Errorf("the status has the cells %+v", c)
	}

	release := s.stepsInto(a, b)
	s.kill()
	s = startServe(t, dir, document, "--json")
	s.connect()
	release()
	s.steps(1)
	if loads := b.Updates(); len(loads) == 0 || len(slices.Compact(slices.Sorted(slices.Values(loads)))) != len(loads) {
		t.Errorf("the engine of the cell has loaded %v over a restart of the control plane, want no version twice", loads)
	}

	release = s.stepsInto(a, b)
	c.kill()
	release()
	c = startCell(t, dir, "b")
	c.says("the run has it join")
	s.steps(1)
	startCell(t, dir, "b").ends(1, "one process at a time is cell b")
	elsewhere := startCell(t, dirBeside(t, dir, document), "b") // as on another machine
	elsewhere.says("the run has it join")
	c.ends(1, "is replaced by incarnation")
	for change, want := range map[string]string{
		"group_size: 2": `rollout.group_size began as "4", now "2"`,
		"group_size: 4, channels: [routed_experts]": "rollout.channels",
	} {
		startCell(t, dirBeside(t, dir, strings.Replace(document, "group_size: 4", change, 1)), "b").ends(2, want)
	}
	s.steps(steps - 5)
	status := s.final()
	elsewhere.ends(0, "the run has made all of its train steps")
	if !status.Ledger.Balanced || status.Ledger.Trained != 8*steps || status.Recovery == nil {
		t.Errorf("the ledger is %+v after the recovery %+v", status.Ledger, status.Recovery)
	}
	checkCellLog(t, filepath.Join(dir, "runs", "r"))
	startCell(t, dir, "b").ends(0, "the run has made all of its train steps")
	startCell(t, dir, "z").ends(2, `the document has no cell "z"; its cells are b`)
}

// freeAddress is a port of this machine that nothing listens on. It is below those that the kernel gives to connections, so that
// it stays free while its process is started again.
func freeAddress(t *testing.T) string {
	t.Helper()
	for port := 20_000 + os.Getpid()%5_000; port < 32_000; port++ {
		if l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port)); err == nil {
			if err := l.Close(); err != nil {
				t.Fatal(err)
			}
			return l.Addr().String()
		}
	}
	t.Fatal("no port is free")
	return ""
}

// dirBeside is a directory with a document, in which the run of another has its versions.
func dirBeside(t *testing.T, dir, document string) string {
	t.Helper()
	beside := t.TempDir()
	err := os.MkdirAll(filepath.Join(beside, "runs", "r"), 0o700)
	if err == nil {
		err = os.Symlink(filepath.Join(dir, "runs", "r", "weights"), filepath.Join(beside, "runs", "r", "weights"))
	}
	own := filepath.Join("runs", "r", "cells", "b")
	if file, missing := os.ReadFile(filepath.Join(dir, own, "nats.pem")); err == nil && missing == nil { // the disk is of both
		err = errors.Join(os.MkdirAll(filepath.Join(beside, own), 0o700), os.WriteFile(filepath.Join(beside, own, "nats.pem"), file, 0o600))
	}
	if err == nil {
		err = os.WriteFile(filepath.Join(beside, "run.yaml"), []byte(document), 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
	return beside
}

// checkCellLog holds a log against what may happen to the engine of the cell, which has the slots from 4 on. What played there when
// the control plane was killed is scored as the same attempts. The engine is lost with a process that was killed or replaced.
func checkCellLog(t *testing.T, dir string) {
	t.Helper()
	reader := logOf(t, dir)
	var happened []string
	playing, survivors := map[port.RolloutID]bool{}, map[port.RolloutID]bool{}
	for rec, err := reader.Next(); err == nil; rec, err = reader.Next() {
		if a := rec.Action; a != nil && a.Kind == loop.StartRollout && a.Slot >= 4 {
			playing[port.RolloutID{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}] = true
		}
		ev := rec.Event
		if ev == nil {
			continue
		}
		id := port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt}
		switch {
		case ev.Kind == loop.Recovered:
			happened, survivors = append(happened, "recovered"), maps.Clone(playing)
		case ev.Kind == loop.EngineJoined && ev.Engine == 1:
			happened = append(happened, "joined")
		case ev.Kind == loop.EngineLost && ev.Engine == 1:
			happened = append(happened, "lost")
			clear(playing)
		case ev.Kind == loop.RolloutScored && survivors[id]:
			happened = append(happened, "scored")
			fallthrough
		default:
			delete(playing, id)
		}
	}
	scored := 0
	for _, what := range happened {
		if what == "scored" {
			scored++
		}
	}
	if got, want := slices.Compact(happened), []string{"joined", "recovered", "scored", "lost", "joined", "lost", "joined"}; !slices.Equal(got, want) {
		t.Errorf("in the log %v, want %v", got, want)
	}
	if scored != len(survivors) {
		t.Errorf("%d rollouts of the cell played when the control plane was killed, and %d of them are scored", len(survivors), scored)
	}
}
