package plane

import (
	"context"
	"encoding/json"
	"io"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/parts"
	"github.com/headway-rl/headway/app/record"
	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/steps"
)

// silent is a view of nothing.
type silent struct{}

func (silent) Update(record.Progress) {}
func (silent) Message(string)         {}

// answering answers every prompt with nothing.
type answering struct{}

func (answering) Greedy(_ context.Context, _ loop.Version, prompts [][]int32, _ int) ([][]int32, error) {
	return make([][]int32, len(prompts)), nil
}

// embeddedPlane is the control plane of a document of embedded engines, whose record is open.
func embeddedPlane(t *testing.T, document string) *Plane {
	t.Helper()
	cfg, err := config.Parse("test", []byte(document))
	if err != nil {
		t.Fatal(err)
	}
	if cfg, err = cfg.Resolve(); err != nil {
		t.Fatal(err)
	}
	process := &app.Process{Stderr: io.Discard, Now: time.Now, Getenv: func(string) string { return "" }}
	around := record.Surroundings{Lines: func(string) record.View { return silent{} }}
	p := &Plane{Record: record.New(process, around)}
	p.setState(StateRunning)
	if p.Parts, err = parts.New(cfg, t.TempDir(), parts.ServeRules(cfg), t.Logf); err != nil {
		t.Fatal(err)
	}
	if err := p.OpenRecord(0); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := p.Close(); err != nil {
			t.Error(err)
		}
	})
	return p
}

// The stream of train steps has the held-out accuracy of the steps that metrics.jsonl has it of.
func TestTheStreamHasHeldOutAccuracy(t *testing.T) {
	p := embeddedPlane(t, "environment: {held_out: 8}\nevaluate: {every: 1, prompts: 4}\ntrainer: {steps: 9, kind: embedded}\n")
	p.Greedy = answering{}
	stream := p.Subscribe(t.Context())
	opt := p.runtimeOptions(t.Context(), nil)
	for step := range loop.Version(2) {
		opt.OnStep(live.StepDone{Point: metrics.Step{Step: step + 1}})
		p.WaitEvaluations()
		var line steps.Line
		if err := json.Unmarshal(<-stream, &line); err != nil || line.Step != step+1 {
			t.Fatalf("step %d is told as step %d: %v", step+1, line.Step, err)
		}
		if evaluated := step > 0; evaluated != (line.HeldOutAccuracy != nil) || evaluated && *line.HeldOutStep != 1 {
			t.Errorf("step %d has the held-out accuracy %v of version %v", line.Step, line.HeldOutAccuracy, line.HeldOutStep)
		}
	}
}

// A control plane loses embedded engines as its document plans.
func TestAControlPlaneLosesEnginesAsPlanned(t *testing.T) {
	p := embeddedPlane(t, "engines: [{name: a, slots: 4}, {name: b, slots: 4}]\nrollout: {concurrency: 8}\nfailures: {engine_plan: [{engine: b, at_step: 2, back_step: 3}]}\ntrainer: {kind: embedded}\n")
	opt := p.runtimeOptions(t.Context(), nil)
	if len(opt.Losses) != 1 || opt.Losses[0] != (live.EngineLoss{Engine: 1, AtStep: 2, BackStep: 3}) {
		t.Errorf("the runtime is told of the losses %+v", opt.Losses)
	}
}
