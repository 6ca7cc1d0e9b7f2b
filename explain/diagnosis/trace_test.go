package diagnosis_test

import (
	"bytes"
	"context"
	"errors"
	"io"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/explain/diagnosis"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/attribution"
)

// simulated is the trace of a simulation: 64 slots, groups of 4, batches of 32, a queue of four,
// train steps of so many seconds.
func simulated(t *testing.T, steps int, stepS float64, end bool) []byte {
	t.Helper()
	return recording{steps: steps, warmup: min(30, steps-1), acceptance: 1, stepS: stepS, torn: !end}.trace(t, "queue.factor=4")
}

// recording is a simulation whose trace is kept: 64 slots, groups of 4, 32 a batch, and what keys say. The train step
// at halts, if it is not 0, is 60 times as long; a torn trace lacks its end.
type recording struct {
	steps, warmup     int
	acceptance, stepS float64
	halts             loop.LeaseID
	torn              bool
}

func (r recording) trace(t *testing.T, keys ...string) []byte {
	t.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 400, Tailness: 50, CapTokens: 4000}.Build()
	if err != nil {
		t.Fatal(err)
	}
	accept, err := workload.NewAcceptance(r.acceptance)
	if err != nil {
		t.Fatal(err)
	}
	document, err := config.Load("", append([]string{"rollout.concurrency=64", "rollout.group_size=4", "train.batch=32"}, keys...)...)
	if err != nil {
		t.Fatal(err)
	}
	rules := document.LoopConfig()
	var out bytes.Buffer
	header := trace.Header{Program: "headway test", Source: "simulation", Loop: rules, Config: string(document.YAML()), Warmup: loop.Version(r.warmup)}
	header.Loop.TrainSteps = loop.Version(r.steps)
	w, err := trace.NewWriter(&out, header)
	if err != nil {
		t.Fatal(err)
	}
	_, err = sim.Run(sim.Config{Loop: rules, Work: halting{sim.NewModelled(5, lengths, nil, accept, int64(r.stepS*1e9)), r.halts, 60}, NSPerToken: 2e7, SyncNS: int64(document.Modelled.Sync.TimeS * 1e9), Warmup: r.warmup, Measured: r.steps - r.warmup,
		Observe: func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
			w.Event(trace.Event{Event: ev, GenerateNS: generateNS, EnvironmentNS: environmentNS}, actions)
		}})
	if err == nil && !r.torn {
		err = w.End(nil)
	}
	if err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// judged diagnoses a trace.
func judged(t *testing.T, text []byte, options diagnosis.Options) (diagnosis.Report, error) {
	t.Helper()
	return diagnosis.OfTrace(context.Background(), func() (io.ReadCloser, int64, error) {
		return io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
	}, options)
}

// found is the finding of a code, nil for none.
func found(r diagnosis.Report, code string) *diagnosis.Finding {
	for i := range r.Findings {
		if r.Findings[i].Code == code {
			return &r.Findings[i]
		}
	}
	return nil
}

func TestATraceIsJudged(t *testing.T) {
	r, err := judged(t, simulated(t, 300, 12, true), diagnosis.Options{Run: "r"})
	if err != nil {
		t.Fatal(err)
	}
	if !r.Settled.OK || r.Settled.Steps < 150 || r.Source != "simulation" || len(r.Warnings) > 0 {
		t.Fatalf("%+v, %v", r.Settled, r.Warnings)
	}
	if r.Attribution == nil || math.Abs(r.Attribution.Little.Mismatch) > 0.01 {
		t.Errorf("attribution %+v", r.Attribution)
	}
	for _, c := range r.Compared {
		if c.What == "staleness_mean" && math.Abs(c.Predicted/c.Measured-1) > 0.05 {
			t.Errorf("%+v", c)
		}
	}
	one := found(r, "queue_factor_one")
	if one == nil || one.Change == nil || one.Change.Set != "queue.factor=1" || one.Change.Method != "resimulation" || one.Change.Gain < 0.1 || one.Fails == "" {
		t.Errorf("queue_factor_one: %+v", one)
	}
	if found(r, "dominant_source") == nil || found(r, "move_to_rollout") != nil || found(r, "little_mismatch") != nil || found(r, "ledger_unbalanced") != nil {
		t.Errorf("findings %+v", r.Findings)
	}
	for i := 1; i < len(r.Findings); i++ {
		if r.Findings[i].Severity == "defect" && r.Findings[i-1].Severity != "defect" {
			t.Errorf("defect %s is behind %s", r.Findings[i].Code, r.Findings[i-1].Code)
		}
	}
}

// What a resimulation says, the closed form says too, where one holds.
func TestClosedFormsAlone(t *testing.T) {
	text := simulated(t, 300, 12, true)
	slow, err := judged(t, text, diagnosis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	quick, err := judged(t, text, diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	a, b := found(slow, "queue_factor_one"), found(quick, "queue_factor_one")
	if a == nil || b == nil || a.Change == nil || b.Change == nil {
		t.Fatalf("%+v and %+v", a, b)
	}
	if b.Change.Method != "closed_form" || math.Abs(a.Change.Gain/b.Change.Gain-1) > 0.1 {
		t.Errorf("%+v and %+v", a, b)
	}
}

// What weight syncs cost, where no change of them is priced, is what the split above it says of them.
func TestSyncTimeCostsItsPartOfTheSplit(t *testing.T) {
	text := recording{steps: 200, warmup: 30, acceptance: 1, stepS: 12}.trace(t, "queue.factor=4", "modelled.sync.time_s=3")
	r, err := judged(t, text, diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	f := found(r, "sync_time")
	if f == nil || f.Change != nil {
		t.Fatalf("sync_time: %+v", f)
	}
	part := r.Attribution.Parts[attribution.Sync]
	if part.Source != "sync" || part.Versions <= 0 || f.CostVersions != part.Versions {
		t.Errorf("it costs %g versions, and its part of the split is %+v", f.CostVersions, part)
	}
}

// A run that has not settled is not judged, and says for how long.
func TestAShortRunIsNotJudged(t *testing.T) {
	r, err := judged(t, simulated(t, 45, 12, true), diagnosis.Options{})
	if err != nil {
		t.Fatal(err)
	}
	if r.Settled.OK || r.Settled.MoreSteps < 1 || r.Settled.Why == "" || len(r.Compared) > 0 {
		t.Errorf("%+v", r.Settled)
	}
	for _, f := range r.Findings {
		if f.Change != nil {
			t.Errorf("%s suggests %s", f.Code, f.Change.Set)
		}
	}
}

func TestTracesThatAreNotWhole(t *testing.T) {
	whole := simulated(t, 300, 12, true)
	cut := bytes.LastIndexByte(whole[:len(whole)-200], '\n')
	torn := whole[:cut+40]
	r, err := judged(t, torn, diagnosis.Options{})
	if err != nil || !r.Settled.OK || len(r.Warnings) == 0 || !strings.Contains(r.Warnings[0], "in the middle of line") {
		t.Errorf("torn: %v, %v, %v", err, r.Settled, r.Warnings)
	}
	if c := found(r, "queue_factor_one"); c == nil || c.Change == nil || c.Change.Method != "resimulation" {
		t.Errorf("torn: %+v", c)
	}
	if r, err = judged(t, whole[:cut+1], diagnosis.Options{ClosedForms: true}); err != nil || len(r.Warnings) == 0 || !strings.Contains(r.Warnings[0], "no end note") {
		t.Errorf("without its end: %v, %v", err, r.Warnings)
	}
	header := whole[:bytes.IndexByte(whole, '\n')+1]
	if _, err = judged(t, header, diagnosis.Options{Run: "r"}); !errors.Is(err, diagnosis.ErrEmpty) || !strings.Contains(err.Error(), "r has nothing to judge") {
		t.Errorf("header alone: %v", err)
	}
	if _, err = judged(t, nil, diagnosis.Options{}); err == nil || !strings.Contains(err.Error(), "empty") {
		t.Errorf("nothing: %v", err)
	}
	changed := bytes.Clone(whole)
	changed[len(changed)/2+bytes.IndexByte(changed[len(changed)/2:], '\n')+len(`.{"n":`)] ^= 1 // of a line's figures
	if _, err = judged(t, changed, diagnosis.Options{}); err == nil || !errors.Is(err, trace.ErrChecksum) {
		t.Errorf("a changed byte: %v", err)
	}
	enc := &trace.Encoder{}
	other, err := enc.AppendNote(nil, trace.NoteHeader, map[string]any{"format": trace.Format + 1, "program": "headway 99"})
	if err != nil {
		t.Fatal(err)
	}
	if _, err = judged(t, other, diagnosis.Options{}); err == nil || !strings.Contains(err.Error(), "headway 99") {
		t.Errorf("another version: %v", err)
	}
}

// An interrupted diagnosis ends.
func TestTheContextEnds(t *testing.T) {
	text := simulated(t, 200, 12, true)
	ctx, cancel := context.WithCancel(context.Background())
	opened := 0
	_, err := diagnosis.OfTrace(ctx, func() (io.ReadCloser, int64, error) {
		if opened++; opened == 1 {
			cancel()
		}
		return io.NopCloser(bytes.NewReader(text)), int64(len(text)), nil
	}, diagnosis.Options{})
	if !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
}

// A forward pass that disagrees is a defect, first of all findings, until a later batch agrees.
func TestForwardPass(t *testing.T) {
	text := simulated(t, 300, 12, true)
	verdicts := []diagnosis.Learned{{Step: 1, Forward: &diagnosis.Forward{Agrees: true}}, {Step: 4, Forward: &diagnosis.Forward{Says: "at version 3 0.35 nats: temperature"}}}
	r, err := judged(t, text, diagnosis.Options{Learned: verdicts, ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	f := found(r, "forward_pass")
	if f == nil || f.Severity != "defect" || f.Evidence[0] != "at version 3 0.35 nats: temperature" || f.Evidence[1] != "1 of 2 train steps that could be judged disagree" {
		t.Fatalf("forward_pass: %+v", f)
	}
	if a := diagnosis.First(r).Advice; len(a) == 0 || !strings.Contains(a[0].Do+a[0].Why, "forward pass") || !strings.Contains(a[0].Why, "temperature") {
		t.Errorf("the answer begins with %+v", a)
	}
	if found(r, "clip_fraction") != nil || found(r, "log_ratio") != nil {
		t.Error("a trainer that said no clip fraction is judged by one")
	}
	verdicts = append(verdicts, diagnosis.Learned{Step: 9, Forward: &diagnosis.Forward{Agrees: true}})
	if r, err = judged(t, text, diagnosis.Options{Learned: verdicts, ClosedForms: true}); err != nil || found(r, "forward_pass") != nil {
		t.Errorf("mended, and still found: %v", err)
	}
}

// What the trainer said is judged with the steps it said it of.
func TestOffPolicyFigures(t *testing.T) {
	var learned []diagnosis.Learned
	for step := range 300 {
		learned = append(learned, diagnosis.Learned{Step: loop.Version(step + 1), ClipFraction: 0.3, MeanLogRatio: 0.2, EffectiveSampleSize: 0.4})
	}
	r, err := judged(t, simulated(t, 300, 12, true), diagnosis.Options{Learned: learned, ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	if f := found(r, "clip_fraction"); f == nil || f.Severity != "defect" {
		t.Errorf("clip_fraction: %+v", f)
	}
	if f := found(r, "log_ratio"); f == nil || !strings.Contains(strings.Join(f.Evidence, " "), "+0.200") {
		t.Errorf("log_ratio: %+v", f)
	}
}
