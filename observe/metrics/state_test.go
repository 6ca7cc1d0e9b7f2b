package metrics

import (
	"bytes"
	"encoding/json"
	"math/rand/v2"
	"reflect"
	"strconv"
	"testing"
	"unsafe"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/track"
)

// observations are a random run's, with measurements drawn beside them.
type observations struct {
	plan     looptest.Plan
	log      []looptest.Record
	measured []Measured
}

func draw(t *testing.T, seed uint64, steps int) observations {
	t.Helper()
	plan := looptest.Draw(seed).WithCells()
	w, err := looptest.NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(steps); err != nil {
		t.Fatal(err)
	}
	o := observations{plan: plan, log: w.Log}
	rng := rand.New(rand.NewPCG(seed, 1))
	for range o.log {
		m := Measured{QueueGroups: rng.IntN(5), VersionTokens: rng.Int64N(1000), EnvironmentNS: rng.Int64N(1e7), Spans: rng.IntN(3), Resumed: rng.IntN(5) == 0, StateLag: rng.Int64N(4)}
		if rng.IntN(4) == 0 {
			m.Parts, m.ToolCalls = &Parts{PartQueue: rng.Int64N(1e6), PartTool: rng.Int64N(1e6)}, int32(rng.IntN(3))
		}
		o.measured = append(o.measured, m)
	}
	return o
}

// observe gives a recorder the observations from one to another, and what a simulator
// says beside them.
func (o *observations) observe(r *Recorder, from, to int) {
	for i := from; i < to; i++ {
		rec := o.log[i]
		r.Observe(rec.Event, o.measured[i], rec.Actions)
		now := rec.Event.Time
		switch i % 17 {
		case 0:
			r.SandboxesLive(now, i%7)
		case 3:
			r.SandboxStarted(int64(i), loop.Reason(i%3))
		case 5:
			r.EnginesDown(now, i%2)
		case 7:
			r.EnginesHeld(now, i%2, i%3)
		case 9:
			r.TrainerValidates(int64(i) * 1000)
		case 11:
			r.ToolFailed()
			r.SandboxLost()
		}
	}
}

// A recorder that is restored goes on as the one its state is of: wherever that was,
// both end with the same bytes, the same summary and the same series.
func TestRestoredGoesOn(t *testing.T) {
	runs := uint64(150)
	steps := 0
	for seed := range runs {
		o := draw(t, seed, 600)
		whole := NewRecorder(o.plan.Config)
		whole.Warmup, whole.CapTokens, whole.StepsMax = loop.Version(seed%7), 3, int(seed%3)*4
		rng := rand.New(rand.NewPCG(seed, 2))
		restored := NewRecorder(o.plan.Config)
		restored.Warmup, restored.CapTokens, restored.StepsMax = whole.Warmup, whole.CapTokens, whole.StepsMax
		for at := 0; at < len(o.log); {
			next := min(at+1+rng.IntN(150), len(o.log))
			o.observe(whole, at, next)
			o.observe(restored, at, next)
			at = next
			state := restored.State()
			if !bytes.Equal(state, whole.State()) {
				t.Fatalf("seed %d: after %d events the states differ\n%v", seed, at, o.plan)
			}
			var err error
			if restored, err = Restore(o.plan.Config, state); err != nil {
				t.Fatalf("seed %d: after %d events: %v", seed, at, err)
			}
			if again := restored.State(); !bytes.Equal(again, state) {
				t.Fatalf("seed %d: after %d events a restored state is another", seed, at)
			}
		}
		if a, b := summaryText(t, whole), summaryText(t, restored); a != b {
			t.Fatalf("seed %d:\n%s\n%s", seed, a, b)
		}
		if len(whole.Steps) != len(restored.Steps) || len(whole.Steps) > 0 && !reflect.DeepEqual(whole.Steps, restored.Steps) {
			t.Fatalf("seed %d: the series differ", seed)
		}
		steps += len(whole.Steps)
	}
	if steps < 500 {
		t.Errorf("%d train steps in %d runs: too few to say anything", steps, runs)
	}
}

func summaryText(t *testing.T, r *Recorder) string {
	t.Helper()
	text, err := json.Marshal(r.Summary())
	if err != nil {
		t.Fatal(err)
	}
	return string(text)
}

// Nothing that a recorder remembers is left out of its state: every field, however
// deep, is filled with a number of its own, and comes back.
func TestStateHasEveryField(t *testing.T) {
	cfg := loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2, 1}, EngineCells: []int{0, 1}, QueueGroups: 1, Control: &loop.Control{Mean: 1}}
	r := NewRecorder(cfg)
	r.control.last = make([]moved, 2)
	r.Steps = make([]Step, 1)
	next := int64(0)
	fill(reflect.ValueOf(r).Elem(), &next)
	// What NewRecorder knows, and indices.
	fresh := NewRecorder(cfg)
	r.keep, r.asks, r.cells, r.attends.asks = fresh.keep, fresh.asks, fresh.cells, fresh.attends.asks
	r.control.goal = fresh.control.goal
	r.window.histogram, r.step.histogram = fresh.window.histogram, nil
	r.window.histogram[7] = 3
	for _, id := range []loop.GroupID{4, 7, 4 + 1<<10} { // the last comes to the place of the first
		g, _ := r.groups.Put(id)
		fill(reflect.ValueOf(g).Elem(), &next)
	}
	parked := make([]track.Parked, 2)
	fill(reflect.ValueOf(&parked).Elem(), &next)
	r.run.Parked = track.BacklogOf(parked)
	filled := r.run.State
	if r.run = fresh.run; !r.run.Restore(filled) { // which makes indices and sums what they can be
		t.Fatal("a run of its own rules was refused")
	}
	restored, err := Restore(cfg, r.State())
	if err != nil {
		t.Fatal(err)
	}
	if !reflect.DeepEqual(restored, r) {
		t.Errorf("restored\n%+v\nwant\n%+v", restored, r)
	}
	if next < 200 {
		t.Errorf("%d fields were filled", next)
	}
}

// fill gives every field a number of its own.
func fill(v reflect.Value, next *int64) {
	v = reflect.NewAt(v.Type(), unsafe.Pointer(v.UnsafeAddr())).Elem() // so that unexported ones can be set
	if v.Type() == reflect.TypeFor[Beside]() || v.Type() == reflect.TypeFor[told]() {
		return // whoever observes beside has a state of its own
	}
	switch v.Type() {
	case reflect.TypeFor[track.Groups[liveGroup]](), reflect.TypeFor[track.Backlog]():
		return // filled through their methods
	case reflect.TypeFor[track.Run]():
		fill(v.FieldByName("State"), next)
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), next)
		}
	case reflect.Slice, reflect.Array:
		if v.Len() > StalenessMax {
			return
		}
		for i := range v.Len() {
			fill(v.Index(i), next)
		}
	case reflect.Pointer:
		fill(v.Elem(), next)
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Uint8:
		*next++
		v.SetUint(uint64(*next % 5))
	case reflect.String:
		*next++
		v.SetString(strconv.FormatInt(*next, 10))
	case reflect.Float64:
		*next++
		v.SetFloat(float64(*next) + 0.25)
	case reflect.Int, reflect.Int32, reflect.Int64:
		*next++
		v.SetInt(*next)
	default:
		panic("a recorder remembers a " + v.Kind().String() + ": take it into its state and into this test")
	}
}

// What is no state of this recorder is refused, wherever it is cut or changed.
func TestRestoreRefuses(t *testing.T) {
	o := draw(t, 3, 300)
	r := NewRecorder(o.plan.Config)
	o.observe(r, 0, len(o.log))
	state := r.State()
	for n := range state {
		if _, err := Restore(o.plan.Config, state[:n]); err == nil {
			t.Fatalf("cut to %d of %d bytes, it was restored", n, len(state))
		}
	}
	if _, err := Restore(o.plan.Config, append(bytes.Clone(state), 0)); err == nil {
		t.Error("with a byte more it was restored")
	}
	other := bytes.Clone(state)
	other[0]++
	if _, err := Restore(o.plan.Config, other); err == nil {
		t.Error("another version was restored")
	}
	more := o.plan.Config
	more.EngineSlots = append([]int{3}, more.EngineSlots...)
	if _, err := Restore(more, state); err == nil {
		t.Error("it was restored under other rules")
	}
	// Damage that a checksum would find is survived, whether or not it shows.
	for i := range state {
		damaged := bytes.Clone(state)
		damaged[i] ^= 0x41
		if r, err := Restore(o.plan.Config, damaged); err == nil {
			_ = r.State()
		}
	}
}
