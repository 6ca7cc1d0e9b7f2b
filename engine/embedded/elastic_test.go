package embedded

import (
	"errors"
	"reflect"
	"testing"

	"github.com/headway-rl/headway/loop/port"
)

// An elastic engine is down until it is started and after it was stopped, samples like any other in
// between, and knows each time whether the trainer is at work.
func TestElastic(t *testing.T) {
	store, _ := policies(t)
	want := generate(t, start(t, options(store, 1)), request(3))
	e, err := NewElastic(options(store, 1))
	if err != nil {
		t.Fatal(err)
	}
	f := Fleet{e}
	e.SetTrainerBusy(true)
	for range 2 {
		_, failed := e.Generate(t.Context(), request(3))
		_, greedy := e.Greedy(t.Context(), 0, nil, 1)
		for _, err := range []error{failed, greedy, e.Load(t.Context(), 0), e.Switch(t.Context(), 0, false)} {
			if !errors.Is(err, port.ErrEngineDown) {
				t.Errorf("it is not there, and says %v", err)
			}
		}
		if err := errors.Join(f.Start(t.Context(), 0), f.Start(t.Context(), 0), f.Alive(t.Context(), 0), e.Load(t.Context(), 0), e.Switch(t.Context(), 0, false)); err != nil {
			t.Fatal(err)
		}
		if got, err := e.Generate(t.Context(), request(3)); err != nil || !reflect.DeepEqual(got, want) || !e.there.busy.Load() {
			t.Errorf("%+v, %v, want %+v; busy %v", got, err, want, e.there.busy.Load())
		}
		if len(e.TakeDecodeTimes()) == 0 || e.TakePace() != (port.Pace{}) {
			t.Error("it measures nothing")
		}
		if err := errors.Join(f.Stop(t.Context(), 0), f.Stop(t.Context(), 0)); err != nil {
			t.Error(err)
		}
	}
	if e.Name() != "test" || e.Slots() != 1 || e.TakeDecodeTimes() != nil || f.Close() != nil || e.Close() != nil {
		t.Error("a stopped engine")
	}
	if _, err := NewElastic(Options{}); err == nil {
		t.Error("options that cannot be were taken")
	}
}
