package timeline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"errors"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// setting is a small simulation: two engines, four rollouts a group.
func setting(t *testing.T, change func(*sim.Config)) sim.Config {
	t.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 200, Tailness: 60, CapTokens: 1500}.Build()
	if err != nil {
		t.Fatal(err)
	}
	tools, err := workload.TimesSpec{Kind: workload.KindExponential, MeanS: 1}.Build()
	if err != nil {
		t.Fatal(err)
	}
	accept, err := workload.NewAcceptance(0.9)
	if err != nil {
		t.Fatal(err)
	}
	cfg := sim.Config{
		Loop: loop.Config{GroupSize: 4, BatchGroups: 4, EngineSlots: []int{9, 7}, QueueGroups: 6},
		Work: sim.NewModelled(5, lengths, tools, accept, 5_000_000_000), NSPerToken: 20e6, Warmup: 10, Measured: 30,
	}
	if change != nil {
		change(&cfg)
	}
	return cfg
}

// settings are rules under which spans begin and end in every way there is.
var settings = map[string]func(*sim.Config){
	"drop":    nil,
	"block":   func(c *sim.Config) { c.Loop.Policy = loop.PolicyBlock },
	"max":     func(c *sim.Config) { c.Loop.Policy, c.Loop.MaxStaleness, c.Loop.Abort = loop.PolicyMax, 2, true },
	"pause":   func(c *sim.Config) { c.Loop.Sync, c.SyncNS, c.LoadNS = loop.SyncPause, 1_500_000_000, 300_000_000 },
	"drain":   func(c *sim.Config) { c.Loop.Sync, c.SyncNS = loop.SyncDrain, 500_000_000 },
	"restart": func(c *sim.Config) { c.Loop.Sync, c.SyncNS, c.PrefillNSPerToken = loop.SyncRestart, 500_000_000, 1e6 },
	"rolling": func(c *sim.Config) { c.Loop.RollingSwitch, c.SyncNS = true, 700_000_001 },
	"every":   func(c *sim.Config) { c.Loop.SyncEvery, c.SyncNS = 3, 200_000_000 },
	"redundant": func(c *sim.Config) {
		c.Loop.Redundancy, c.Loop.Prompts, c.Loop.Requeue = 2, 20, true
	},
	"batch": func(c *sim.Config) {
		c.Loop.Policy, c.Loop.InterruptAtBatch, c.Loop.QueueGroups, c.Loop.ExtraGroups = loop.PolicySynchronous, true, 5, 1
	},
	"replay": func(c *sim.Config) {
		c.Loop.Policy, c.Loop.QueueGroups, c.Loop.MaxUses, c.Loop.Gamma = loop.PolicyReplay, 12, 3, 0.9
	},
}

// event is a line of the file as a viewer reads it.
type event struct {
	Phase    string         `json:"ph"`
	PID, TID int            `json:",omitempty"`
	TS, Dur  float64        `json:",omitempty"`
	Name     string         `json:"name"`
	Category string         `json:"cat"`
	Scope    string         `json:"s"`
	Colour   string         `json:"cname"`
	ID       int64          `json:"id"`
	Binding  string         `json:"bp"`
	Args     map[string]any `json:"args"`
}

// read parses a file strictly: an object of the right keys, every event with what its phase needs.
func read(t *testing.T, text []byte) []event {
	t.Helper()
	var file struct {
		DisplayTimeUnit string            `json:"displayTimeUnit"`
		OtherData       map[string]string `json:"otherData"`
		TraceEvents     []event           `json:"traceEvents"`
	}
	decoder := json.NewDecoder(bytes.NewReader(text))
	decoder.DisallowUnknownFields()
	if err := decoder.Decode(&file); err != nil {
		t.Fatal(err)
	}
	tracks := map[[2]int]bool{}
	for _, e := range file.TraceEvents {
		if e.Phase == "M" && e.Name == "thread_name" {
			tracks[[2]int{e.PID, e.TID}] = true
		}
	}
	for _, e := range file.TraceEvents {
		ok := e.PID > 0 && e.Name != "" && e.TS >= 0 && e.Dur >= 0
		switch e.Phase {
		case "X":
			ok = ok && tracks[[2]int{e.PID, e.TID}] && e.Category != ""
		case "i":
			ok = ok && tracks[[2]int{e.PID, e.TID}] && e.Scope == "p"
		case "C":
			ok = ok && len(e.Args) > 0
			for _, v := range e.Args {
				_, number := v.(float64)
				ok = ok && number
			}
		case "M":
			ok = ok && len(e.Args) == 1
		case "s", "t", "f":
			ok = ok && tracks[[2]int{e.PID, e.TID}] && e.ID > 0 && e.Category == "arrow" && (e.Binding == "e") == (e.Phase == "f")
		default:
			ok = false
		}
		if !ok {
			t.Fatalf("not an event a viewer takes: %+v", e)
		}
	}
	return file.TraceEvents
}

// draw simulates and returns the file, with what was drawn and what was measured.
func draw(t *testing.T, cfg sim.Config, opt Options) ([]byte, Totals, sim.Result) {
	t.Helper()
	var out bytes.Buffer
	opt.Rules = cfg.Loop
	d := New(&out, opt)
	rules := cfg.Loop
	rules.TrainSteps = loop.Version(cfg.Warmup + cfg.Measured)
	mirror, err := loop.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	cfg.Observe = func(ev loop.Event, _, environmentNS int64, actions []loop.Action) {
		d.Observe(ev, environmentNS, actions)
		mirror.Step(ev)
		if have, want := len(d.queue.ready), mirror.QueueGroups(); have != want && d.window != after {
			t.Fatalf("%v: %d groups are ready, the loop has %d", ev, have, want)
		}
	}
	res, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes(), d.Totals(), res
}

// Spans of a track nest, whatever the rules, and over the measured window they add up
// to what the metrics say: the slots' time less their idle time, the time less the
// trainer's.
func TestSpansAddUp(t *testing.T) {
	for name, change := range settings {
		t.Run(name, func(t *testing.T) {
			cfg := setting(t, change)
			text, totals, res := draw(t, cfg, Options{From: loop.Version(cfg.Warmup)})
			events := read(t, text)
			nest(t, events)
			s := res.Summary
			slots := float64(cfg.Loop.Concurrency())
			window := float64(totals.ToNS-totals.FromNS) / 1e9
			if math.Abs(window-s.WindowS) > 1e-9 {
				t.Errorf("%g s are drawn, %g measured", window, s.WindowS)
			}
			if want := slots*s.WindowS - slots*s.SlotIdleS; math.Abs(float64(totals.RolloutNS)/1e9-want) > 1e-6*want {
				t.Errorf("rollouts of %g s are drawn, slots held some for %g s", float64(totals.RolloutNS)/1e9, want)
			}
			if want := s.WindowS - s.TrainerIdleS; math.Abs(float64(totals.TrainNS)/1e9-want) > 1e-6*want {
				t.Errorf("train steps of %g s are drawn, the trainer was busy for %g s", float64(totals.TrainNS)/1e9, want)
			}
			sum := map[string]float64{}
			for _, e := range events {
				if e.Phase == "X" {
					sum[e.Category] += e.Dur * 1000
				}
			}
			if math.Abs(sum["rollout"]-float64(totals.RolloutNS)) > 1 || math.Abs(sum["train"]-float64(totals.TrainNS)) > 1 {
				t.Errorf("the file's spans are %v ns, the totals %+v", sum, totals)
			}
			if strings.Contains("pause drain restart rolling every", name) && sum["sync"] == 0 {
				t.Error("no weight sync is drawn")
			}
		})
	}
}

// nest fails where two spans of a track overlap without one holding the other.
func nest(t *testing.T, events []event) {
	t.Helper()
	tracks := map[[2]int][]event{}
	for _, e := range events {
		if e.Phase == "X" {
			at := [2]int{e.PID, e.TID}
			tracks[at] = append(tracks[at], e)
		}
	}
	for at, spans := range tracks {
		slices.SortStableFunc(spans, func(a, b event) int {
			return cmp.Or(cmp.Compare(a.TS, b.TS), cmp.Compare(b.Dur, a.Dur))
		})
		var open []float64 // ends of what holds the next span
		for _, s := range spans {
			const rounding = 1e-3 // a nanosecond
			for len(open) > 0 && open[len(open)-1] <= s.TS+rounding {
				open = open[:len(open)-1]
			}
			if end := s.TS + s.Dur; len(open) > 0 && end > open[len(open)-1]+rounding {
				t.Fatalf("track %v: %+v lasts beyond the span that it began in, which ends at %g", at, s, open[len(open)-1])
			} else {
				open = append(open, end)
			}
		}
	}
}

// A window draws its steps alone, and their staleness is the recorder's.
func TestWindow(t *testing.T) {
	cfg := setting(t, nil)
	text, totals, res := draw(t, cfg, Options{From: 12, To: 17, Title: `a "title"`})
	steps := 0
	for _, e := range read(t, text) {
		if e.Category != "train" || e.Args["end"] != "trained" {
			continue
		}
		version := int(e.Args["from_version"].(float64)) + 1
		if want := res.Series[version-1].Staleness; math.Abs(e.Args["staleness_mean"].(float64)-want) > 1e-6 {
			t.Errorf("step to %d: staleness %v, the series has %g", version, e.Args["staleness_mean"], want)
		}
		if version < 13 || version > 17 {
			t.Errorf("step to %d is drawn", version)
		}
		steps++
	}
	if steps != 5 || totals.FromNS != res.Series[11].TimeNS || totals.ToNS != res.Series[16].TimeNS {
		t.Errorf("%d steps from %d to %d", steps, totals.FromNS, totals.ToNS)
	}
	again, _, _ := draw(t, cfg, Options{From: 12, To: 17, Title: `a "title"`})
	if !bytes.Equal(text, again) {
		t.Error("the same run gives other bytes")
	}
	whole, _, _ := draw(t, cfg, Options{})
	if len(whole) < 4*len(text) {
		t.Errorf("the whole run has %d bytes, five steps %d", len(whole), len(text))
	}
}

// A run that ends before the window is an error, and the file is still one.
func TestEmptyWindow(t *testing.T) {
	var out bytes.Buffer
	d := New(&out, Options{Rules: loop.Config{EngineSlots: []int{2}}, From: 5})
	d.Observe(loop.Event{Kind: loop.RunStarted}, 0, []loop.Action{{Kind: loop.StartRollout, Group: 1, Attempt: 1}})
	if err := d.Close(); !errors.Is(err, ErrEmpty) {
		t.Errorf("closing says %v", err)
	}
	read(t, out.Bytes())
}

// What a crash, a lost engine, a failed step and late events leave is drawn once.
func TestFailures(t *testing.T) {
	var out bytes.Buffer
	d := New(&out, Options{Rules: loop.Config{EngineSlots: []int{1, 2}, GroupSize: 1, BatchGroups: 1, QueueGroups: 2}})
	second := int64(1e9)
	start := func(group loop.GroupID, slot, engine int32) loop.Action {
		return loop.Action{Kind: loop.StartRollout, Group: group, Slot: slot, Engine: engine, Attempt: 1}
	}
	d.Observe(loop.Event{Kind: loop.RunStarted}, 0, []loop.Action{start(1, 0, 0), start(2, 1, 1), start(3, 2, 1)})
	scored := loop.Event{Time: second, Kind: loop.RolloutScored, Group: 1, Slot: 0, Attempt: 1, Tokens: 5, Reward: float32(math.NaN())}
	d.Observe(scored, 0, []loop.Action{
		{Kind: loop.GroupQueued, Group: 1}, {Kind: loop.GroupLeased, Group: 1, Lease: 1, Count: 1},
		{Kind: loop.StartTrainStep, Lease: 1, Count: 1}, start(4, 0, 0)})
	d.Observe(scored, 0, nil) // late: the slot has another rollout
	d.Observe(loop.Event{Time: 2 * second, Kind: loop.EngineLost, Engine: 1}, 0, nil)
	d.Observe(loop.Event{Time: 3 * second, Kind: loop.TrainStepFailed, Lease: 1, Reason: loop.ReasonTrainer}, 0, []loop.Action{
		{Kind: loop.GroupLeased, Group: 1, Lease: 1, Attempt: 2, Count: 1}, {Kind: loop.StartTrainStep, Lease: 1, Attempt: 2, Count: 1}})
	d.Observe(loop.Event{Time: 5 * second, Kind: loop.Recovered}, 0, nil)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	nest(t, read(t, out.Bytes()))
	if got := d.Totals(); got.Rollouts != 4 || got.RolloutNS != 9*second || got.TrainSteps != 2 || got.TrainNS != 4*second || got.ToNS != 5*second {
		t.Errorf("totals %+v", got)
	}
	for _, want := range []string{`"end":"lost"`, `"end":"failed: trainer"`, `"end":"running"`} {
		if !strings.Contains(out.String(), want) {
			t.Errorf("lacks %s:\n%s", want, out.String())
		}
	}
}

// A trainer that goes back to an earlier state ends the step it was at, and the batch
// is ready again; a version that is late ends nothing.
func TestRestoredTrainer(t *testing.T) {
	var out bytes.Buffer
	rules := loop.Config{EngineSlots: []int{3}, GroupSize: 1, BatchGroups: 1, QueueGroups: 4, TrainerAsks: true}
	d := New(&out, Options{Rules: rules})
	l, err := loop.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	for i, ev := range []loop.Event{
		{Kind: loop.RunStarted},
		{Kind: loop.RolloutScored, Group: 1, Slot: 0, Attempt: 1, Tokens: 3},
		{Kind: loop.TrainerReady},
		{Kind: loop.TrainerRestored, Version: 9},
		{Kind: loop.TrainerRestored, Version: 1},
		{Kind: loop.TrainerReady},
		{Kind: loop.TrainStepEnded, Lease: 2, Attempt: 1, Version: 2},
	} {
		ev.Time = int64(i) * 1e9
		actions, _ := l.Step(ev)
		d.Observe(ev, 0, actions)
		if have, want := len(d.queue.ready), l.QueueGroups(); have != want {
			t.Errorf("%v: %d groups are ready, the loop has %d", ev, have, want)
		}
	}
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	nest(t, read(t, out.Bytes()))
	if got := d.Totals(); got.TrainSteps != 2 || got.TrainNS != 3e9 || l.Version() != 2 {
		t.Errorf("totals %+v at version %d", got, l.Version())
	}
	if n := strings.Count(out.String(), "went back to an earlier state"); n != 1 {
		t.Errorf("%d steps ended by it, want 1:\n%s", n, out.String())
	}
}
