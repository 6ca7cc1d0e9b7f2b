package main

import (
	"bytes"
	"errors"
	"io"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// controlledRules are a goal for the run of TestKill, longer answers and slower tools under way, and
// an engine that is lost and back.
const controlledRules = `
control: {target: 1.5, window: 16}
model: {layers: 1, width: 16, heads: 2, context: 32}
engines: [{kind: embedded, name: a, slots: 12, decode_step_s: 0.0005}, {kind: embedded, name: b, slots: 12, decode_step_s: 0.0005}]
rollout: {concurrency: 24, group_size: 4, drift: {begin: 20, steps: 60, length_factor: 2, environment_factor: 4}}
failures: {engine_plan: [{engine: a, at_step: 60, back_step: 90}]}
`

// controlledKills is how often it is killed.
const controlledKills = 5

// TestKillControlled kills a controlled run that drifts, again and again. Every resume goes on with the
// settings where they were, the engine that is gone by its plan is gone again, and the whole replays. On
// a busy machine a run may have ended before it is killed, and another is begun.
func TestKillControlled(t *testing.T) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 2))
	t.Logf("seed %d", seed)
	const runsMost = 5
	kills, moved := 0, 0
	for run := 0; run < runsMost && (kills < controlledKills || moved == 0); run++ {
		dir := t.TempDir()
		runDir := filepath.Join(dir, "runs", "k")
		if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(withRules(controlledRules)), 0o644); err != nil {
			t.Fatal(err)
		}
		p := startProgram(t, dir, "run", "c.yaml", "--name", "k", "--json")
		killed := 0
		for killed < controlledKills && p.signalAt(t, runDir, size(t, runDir)+5_000+rng.Int64N(95_000), syscall.SIGKILL) {
			ended := hasEnded(t, runDir)
			p = startProgram(t, dir, "run", "--resume", "runs/k", "--json")
			if ended { // nothing was left to recover
				break
			}
			killed++
		}
		p.end(t)
		checkRun(t, dir, p, 150)
		m, recovered, lost := settingsKept(t, runDir)
		if recovered != killed || lost == 0 {
			t.Errorf("%d of %d kills were recovered from; the engine was lost %d times", recovered, killed, lost)
		}
		kills, moved = kills+killed, moved+m
	}
	if moved == 0 {
		t.Errorf("of %d kills in up to %d runs none came when settings had moved", kills, runsMost)
	}
}

// hasEnded reports whether a run's trace has its end.
func hasEnded(t *testing.T, runDir string) bool {
	t.Helper()
	file, err := trace.Open(runDir)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	text, _ := io.ReadAll(trace.NewText(file)) // the end may be torn
	return bytes.Contains(text, []byte(`"note":"`+trace.NoteEnd+`"`))
}

// settingsKept reads a run's log: no recovery changes a setting. It counts those that came when
// settings had moved, all of them, and the losses of an engine.
func settingsKept(t *testing.T, runDir string) (moved, recovered, lost int) {
	t.Helper()
	reader := logOf(t, runDir)
	now, start, last := map[loop.Setting]float64{}, map[loop.Setting]float64{}, loop.EventKind(0)
	for {
		record, err := reader.Next()
		if errors.Is(err, io.EOF) {
			return moved, recovered, lost
		}
		if err != nil {
			t.Fatal(err)
		}
		if ev := record.Event; ev != nil {
			last = ev.Kind
			switch ev.Kind {
			case loop.Recovered:
				recovered++
				if !maps.Equal(now, start) {
					moved++
				}
			case loop.EngineLost:
				lost++
			}
		}
		if a := record.Action; a != nil && a.Kind == loop.SettingChanged {
			if last == loop.Recovered && now[a.Setting] != a.Value {
				t.Errorf("line %d: a recovery takes %v from %g to %g", record.Line, a.Setting, now[a.Setting], a.Value)
			}
			if a.Reason == loop.ReasonStart {
				start[a.Setting] = a.Value
			}
			now[a.Setting] = a.Value
		}
	}
}

// TestRunRefusesDrifts names what of a drift a run cannot do.
func TestRunRefusesDrifts(t *testing.T) {
	for want, sets := range map[string][]string{
		"calls no tools":       {"modelled.tools.calls=2", "rollout.drift={steps: 5, tool_calls_factor: 2}"},
		"of another length":    {"environment.task=addition", "rollout.drift={steps: 5, length_factor: 2}"},
		"multiplies trainer.s": {"rollout.drift={steps: 5, step_factor: 2}"},
		"model.context":        {"rollout.drift={steps: 5, length_factor: 9}"},
	} {
		arguments := []string{"run", "--dir", t.TempDir()}
		for _, set := range sets {
			arguments = append(arguments, "--set", set)
		}
		code, _, stderr := headway(t, arguments...)
		if code != failure.ExitUsage || !strings.Contains(stderr, want) {
			t.Errorf("%v: code %d, %q, want %q", sets, code, stderr, want)
		}
	}
}
