package timeline

import (
	"bytes"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// The parts of an attempt lie within its stays in slots, whatever they say of themselves, and take the
// place of the environment's one span.
func TestParts(t *testing.T) {
	rules := loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 2}.WithDefaults()
	var out bytes.Buffer
	asked := []Attempt{}
	d := New(&out, Options{Rules: rules, Parts: func(a Attempt) []Part {
		asked = append(asked, a)
		if a.Attempt != 1 {
			return nil
		}
		return []Part{{"sandbox_start", "", "", 50, 150}, {"tool", `ru"n`, "timeout", 150, 400}, {"verifier", "", "", 900, 1200}, {"tool", "", "", 2000, 3000}}
	}})
	start := func(at int64, attempt int32) {
		d.Observe(loop.Event{Time: at, Kind: loop.EngineJoined}, 0, []loop.Action{{Kind: loop.StartRollout, Group: 7, Sample: 2, Attempt: attempt}})
	}
	end := func(at int64, kind loop.EventKind, attempt int32, environmentNS int64) {
		d.Observe(loop.Event{Time: at, Kind: kind, Group: 7, Sample: 2, Attempt: attempt}, environmentNS, nil)
	}
	start(100, 1)
	end(300, loop.RolloutInterrupted, 1, 0)
	start(600, 1)
	end(1000, loop.RolloutScored, 1, 500)
	start(1000, 2)
	end(1600, loop.RolloutScored, 2, 500)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	if want := (Attempt{7, 2, 1}); asked[0] != want {
		t.Errorf("asked for %v, want %v", asked[0], want)
	}
	type span struct {
		name    string
		ts, dur float64
	}
	var got []span
	for _, e := range read(t, out.Bytes()) {
		if e.Category == "environment" {
			got = append(got, span{e.Name, e.TS * 1000, e.Dur * 1000})
			if e.Name == "tool" && (e.Args["tool"] != "ru_n" || e.Args["class"] != "timeout") {
				t.Errorf("the tool's arguments are %v", e.Args)
			}
		}
	}
	want := []span{{"sandbox_start", 100, 50}, {"tool", 150, 150}, {"verifier", 900, 100}, {"environment", 1100, 500}}
	if !slices.Equal(got, want) {
		t.Errorf("drawn %v, want %v", got, want)
	}
}
