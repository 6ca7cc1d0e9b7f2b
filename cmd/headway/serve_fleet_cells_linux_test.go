package main

import (
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/internal/failure"
)

// fleetScripted is in the environment of this program where it is an engine of a fleet that plays chats. Its last argument is
// the port.
const fleetScripted = "HEADWAY_TEST_FLEET_SCRIPTED"

// init plays such an engine, which serves until it is killed.
func init() {
	if os.Getenv(fleetScripted) == "" || len(os.Args) < 2 {
		return
	}
	if _, err := strconv.Atoi(os.Args[len(os.Args)-1]); err != nil {
		return
	}
	fmt.Println("engine", os.Getpid())
	log.SetOutput(io.Discard) // of responses that were given up
	front := scriptedFront(newScriptedPolicy(), func(*http.Request, string) string { return "I cannot say" })
	panic(http.ListenAndServe("127.0.0.1:"+os.Args[len(os.Args)-1], front))
}

// fleetCellsDocument is a run whose fleet starts each engine with a cell of its own.
const fleetCellsDocument = `
model: {path: %s}
store: {samples_every: 0, nats: {listen: %q, writer_s: 1}}
engines: [{kind: vllm, slots: 4, cell: "c-{index}"}]
fleet:
  driver: process
  most: 2
  port: %d
  grace_s: 5
  command: [%q, "{port}"]
  cell_command: [%q, cell, "{cell}", %q, --name, r, --dir, %q]
environment: {kind: tasks, prompt_tokens_max: 3072, response_tokens_max: 512, tasks: {file: %s}}
rollout: {group_size: 4}
train: {batch: 8}
queue: {policy: bounded, eta: 1}
trainer: {steps: %d}
failures: {max_attempts: 20}
`

// newFleetOfCells starts the control plane of such a run.
func newFleetOfCells(t *testing.T, steps int) *served {
	t.Helper()
	t.Setenv(fleetScripted, "1")
	engine, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	dir, nats := t.TempDir(), freeAddress(t)
	_, text, _ := net.SplitHostPort(nats)
	port, err := strconv.Atoi(text)
	if err != nil {
		t.Fatal(err)
	}
	document := fmt.Sprintf(fleetCellsDocument, scriptedModel(t), nats, port+1, engine, program(t), filepath.Join(dir, "run.yaml"), filepath.Join(dir, "runs"), taskFile(t), steps)
	return startServe(t, dir, document, "--json")
}

// TestServeStartsItsCells: a control plane has no engine of its own, and its fleet starts each with a cell. One more comes when it is asked
// for, is started again after it was killed, leaves with its cell, and comes once more. The ledger balances, and the run replays.
func TestServeStartsItsCells(t *testing.T) {
	const steps = 12
	s := newFleetOfCells(t, steps)
	s.connect()
	s.steps(2)
	s.serving(0, 1)
	if e := s.status().Engines; e[0].Cell != "c-0" || e[1].Cell != "c-1" || e[1].State != "away" {
		t.Errorf("the status has the engines %+v", e)
	}
	if code, text, _ := headway(t, "status", s.url, "--full"); code != failure.ExitDone || !strings.Contains(text, "c-1 · 1 engine, 4 slots · away") {
		t.Errorf("the status is %d:\n%s", code, text)
	}
	s.wantEngines(`{"value":2}`, http.StatusOK)
	s.serving(1, 1)
	s.steps(2)
	killed := s.engineProgram(1)
	if err := unix.PidfdSendSignal(killed, unix.SIGKILL, nil, 0); err != nil {
		t.Fatal(err)
	}
	over(t, killed)
	s.steps(2)
	s.serving(1, 2)

	second := s.engineProgram(1)
	s.wantEngines(`{"value":1}`, http.StatusOK)
	s.engineIs(1, "away", func(e protocol.Engine) bool { return e.State == "away" })
	over(t, second)
	s.engineIs(1, "given back", func(e protocol.Engine) bool { return e.Started.State == "away" })
	if text := s.cellLog("c-1"); !strings.Contains(text, "cell c-1 ends: it was interrupted") {
		t.Errorf("the cell of the engine that has left says\n%s", text)
	}
	s.steps(2)
	s.wantEngines(`{"value":2}`, http.StatusOK)
	s.serving(1, 3)
	s.steps(steps - 8)
	s.trained(8 * steps)
}

// trained waits for the end of a run that has trained so many rollouts. The ledger balances, and the run replays.
func (s *served) trained(rollouts int64) {
	s.t.Helper()
	if status := s.final(); !status.Ledger.Balanced || status.Ledger.Trained != rollouts {
		s.t.Errorf("the ledger is %+v", status.Ledger)
	}
	if code, _, stderr := headway(s.t, "replay", filepath.Join(s.dir, "runs", "r")); code != failure.ExitDone {
		s.t.Errorf("replay: %s", stderr)
	}
}

// cellLog is what a fleet's cell has said.
func (s *served) cellLog(cell string) string {
	s.t.Helper()
	text, err := os.ReadFile(filepath.Join(s.dir, "runs", "r", parts.EnginesDir, "cell."+cell+".log"))
	if err != nil {
		s.t.Fatal(err)
	}
	return string(text)
}
