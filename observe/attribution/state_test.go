package attribution_test

import (
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
)

// TestRestoredGoesOnAlike interrupts observers of loops of all kinds at any event. What comes back
// must go on as the one that was not interrupted.
func TestRestoredGoesOnAlike(t *testing.T) {
	for seed := range uint64(25) {
		cfg, log := world(t, seed, 400)
		whole, interrupted := attribution.New(cfg), attribution.New(cfg)
		whole.Warmup, interrupted.Warmup = 2, 2
		var want, got []attribution.Group
		whole.OnGroup = func(g attribution.Group) { want = append(want, g) }
		for i, r := range log {
			whole.Observe(&r.Event, &metrics.Measured{QueueGroups: i % 3}, r.Actions)
			interrupted.OnGroup = func(g attribution.Group) { got = append(got, g) }
			interrupted.Observe(&r.Event, &metrics.Measured{QueueGroups: i % 3}, r.Actions)
			if i%11 != int(seed%11) {
				continue
			}
			state, err := interrupted.State()
			if err != nil {
				t.Fatal(err)
			}
			if interrupted, err = attribution.Restore(cfg, state); err != nil {
				t.Fatal(err)
			}
			if again, err := interrupted.State(); err != nil || string(again) != string(state) {
				t.Fatalf("seed %d: restored as something else (%v):\n%s\n%s", seed, err, state, again)
			}
		}
		if !reflect.DeepEqual(got, want) || !reflect.DeepEqual(interrupted.Summary(), whole.Summary()) ||
			!reflect.DeepEqual(interrupted.Recent(), whole.Recent()) || interrupted.Last() != whole.Last() {
			t.Errorf("seed %d: interrupted and restored: %+v, want %+v", seed, interrupted.Summary(), whole.Summary())
		}
	}
}

// A state that is damaged, of another version or of other rules is an error that says what to do.
func TestRestoreRefuses(t *testing.T) {
	cfg := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1}
	state, err := attribution.New(cfg).State()
	if err != nil {
		t.Fatal(err)
	}
	other := cfg
	other.EngineSlots = []int{1, 1}
	for name, tried := range map[string]struct {
		cfg   loop.Config
		state string
	}{
		"other rules":   {other, string(state)},
		"half":          {cfg, string(state[:len(state)/2])},
		"other version": {cfg, strings.Replace(string(state), `"StateVersion":4`, `"StateVersion":99`, 1)},
		"no group":      {cfg, strings.Replace(string(state), `"Groups":null`, `"Groups":[{"ID":0}]`, 1)},
		"too much":      {cfg, strings.Replace(string(state), `"Made":null,"Last"`, `"Made":[{"NS":1,"Lease":1}],"Last"`, 1)},
	} {
		if tried.state == string(state) && name != "other rules" {
			t.Errorf("%s: nothing was changed in %s", name, state)
		}
		if _, err := attribution.Restore(tried.cfg, []byte(tried.state)); err == nil || !strings.Contains(err.Error(), "observe the events again") {
			t.Errorf("%s: %v", name, err)
		}
	}
}
