package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/train/batch/batchtest"
)

// fleetContext is in the environment of this program where it is an engine of a fleet: how many tokens its context
// holds. Its last argument is the port.
const fleetContext = "HEADWAY_TEST_FLEET_CONTEXT"

// init plays an engine of a fleet, which serves until it is killed.
func init() {
	context, err := strconv.Atoi(os.Getenv(fleetContext))
	if err != nil || len(os.Args) < 2 {
		return
	}
	port, err := strconv.Atoi(os.Args[len(os.Args)-1])
	if err != nil {
		return
	}
	fmt.Println("engine", os.Getpid())
	enginetest.NewPolicyServer(enginetest.PolicyOptions{Policy: servedPolicy, Listen: port, Context: context, Weights: "as started", Spans: true, Named: versionOfView})
	select {}
}

// fleetDocument is servedDocument with programs of a fleet for engines, the first of them there from the start.
func fleetDocument(t *testing.T, context, steps int) string {
	t.Helper()
	t.Setenv(fleetContext, strconv.Itoa(context))
	engine, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	return fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), "{kind: vllm, slots: 4}", steps) +
		fmt.Sprintf("fleet: {driver: process, most: 2, grace_s: 1, command: [%q, \"{port}\"]}\n", engine)
}

// engineIs waits until the status of an engine is as wanted.
func (s *served) engineIs(engine int, what string, wanted func(protocol.Engine) bool) protocol.Engine {
	s.t.Helper()
	for {
		if engines := s.status().Engines; engine < len(engines) && wanted(engines[engine]) {
			return engines[engine]
		}
		select {
		case <-s.ended:
			s.t.Fatalf("the control plane ended before engine %d was %s", engine, what)
		case <-s.t.Context().Done():
			s.t.Fatalf("engine %d never was %s", engine, what)
		default:
		}
	}
}

// serving waits until an engine serves that was started so many times.
func (s *served) serving(engine, starts int) {
	s.t.Helper()
	s.engineIs(engine, fmt.Sprintf("serving after %d starts", starts), func(e protocol.Engine) bool {
		return e.State == "serving" && e.Started != nil && e.Started.Starts == starts
	})
}

// wantEngines asks for so many engines.
func (s *served) wantEngines(body string, want int) {
	s.t.Helper()
	if status, text := s.call("/api/v1/settings/engines", "application/json", []byte(body)); status != want {
		s.t.Errorf("%s: %d %s, want %d", body, status, text, want)
	}
}

// engineProgram is the program of an engine as it was started last, by a descriptor that outlives it.
func (s *served) engineProgram(engine int) (process int) {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "runs", "r", parts.EnginesDir, fmt.Sprintf("engine-%d.log", engine)))
	if err != nil {
		s.t.Fatal(err)
	}
	words := strings.Fields(string(text))
	pid, err := strconv.Atoi(words[len(words)-1])
	if err != nil {
		s.t.Fatalf("engine %d says %q", engine, text)
	}
	if process, err = unix.PidfdOpen(pid, 0); err != nil {
		s.t.Fatalf("engine %d, process %d: %v", engine, pid, err)
	}
	s.t.Cleanup(func() { _ = unix.Close(process) })
	return process
}

// over waits for the end of a process.
func over(t *testing.T, process int) {
	t.Helper()
	for {
		_, err := unix.Poll([]unix.PollFd{{Fd: int32(process), Events: unix.POLLIN}}, -1)
		if err == nil {
			return
		}
		if !errors.Is(err, syscall.EINTR) {
			t.Fatal(err)
		}
	}
}

// A control plane starts its engines: one more of them when it is asked to, that one again when it was killed, and
// one fewer at the end, while rollouts run. Every token is what the weights of its version sample, the ledger
// balances, and the run replays.
func TestServeStartsItsEngines(t *testing.T) {
	const steps = 10
	s := startServe(t, t.TempDir(), fleetDocument(t, 256, steps), "--json")
	s.serving(0, 1)
	var workers sync.WaitGroup
	for range 8 {
		workers.Go(s.play)
	}
	s.connect()
	batches := s.steps(2)
	for _, body := range []string{`{}`, `{"value":1.5}`, `{"value":3}`} {
		s.wantEngines(body, http.StatusBadRequest)
	}
	s.wantEngines(`{"value":2}`, http.StatusOK)
	s.serving(1, 1)
	batches = append(batches, s.steps(2)...)
	s.engineIs(1, "used", func(e protocol.Engine) bool { return e.Server != nil && e.Server.Tokens > 0 })

	killed := s.engineProgram(1)
	if err := unix.PidfdSendSignal(killed, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	over(t, killed)
	batches = append(batches, s.steps(2)...)
	s.serving(1, 2)
	batches = append(batches, s.steps(2)...)

	first, second := s.engineProgram(0), s.engineProgram(1)
	s.wantEngines(`{"value":1}`, http.StatusOK)
	s.engineIs(1, "away", func(e protocol.Engine) bool { return e.State == "away" })
	over(t, second)
	batches = append(batches, s.steps(steps-len(batches))...)
	workers.Wait()
	status := s.final()
	over(t, first)
	s.checkFleetRun(status, batches)
}

// checkFleetRun holds a run that has ended against its batches, its ledger and its trace.
func (s *served) checkFleetRun(status protocol.Status, batches []*batchtest.Tensors) {
	s.t.Helper()
	if versions := checkBatches(s.t, batches); len(versions) < 2 {
		s.t.Errorf("tokens of the versions %v were trained on: were weights ever changed?", versions)
	}
	if !status.Ledger.Balanced || status.Version != loop.Version(len(batches)) {
		s.t.Errorf("after %d steps the status has version %d and ledger %+v", len(batches), status.Version, status.Ledger)
	}
	if e := status.Engines; len(e) != 2 || e[0].Started.Starts != 1 || e[1].Started.Starts != 2 || e[1].State != "away" {
		said, _ := json.Marshal(e)
		s.t.Errorf("the status has engines %s", said)
	}
	if code, _, stderr := headway(s.t, "replay", filepath.Join(s.dir, "runs", "r")); code != failure.ExitDone {
		s.t.Errorf("replay: %s", stderr)
	}
}

// A server that cannot be used is said at once, not waited for.
func TestServeRefusesUnfitEngines(t *testing.T) {
	s := startServe(t, t.TempDir(), fleetDocument(t, 8, 3))
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code == failure.ExitDone || !strings.Contains(s.text(), "cannot be used") {
		t.Errorf("ends with %d and says\n%s", code, s.text())
	}
}
