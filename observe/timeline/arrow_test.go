package timeline

import (
	"bytes"
	"cmp"
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// joint is an arrow from one span to the next.
type joint struct{ from, to string }

// bind finds the spans that arrows lead through, and fails where viewers would differ: in Chrome an end
// belongs to the innermost span of its track that holds its time, in Perfetto to the last that has begun
// (of two that begin at once the shorter). An arrow begins before it goes on, and ends once. A category
// names spans whose place the one around them takes, "" for none.
func bind(t *testing.T, events []event, but string) []joint {
	t.Helper()
	ns := func(us float64) int64 { return int64(math.Round(us * 1000)) }
	spans := map[[2]int][]event{}
	byID := map[int64][]event{}
	for _, e := range events {
		switch at := [2]int{e.PID, e.TID}; e.Phase {
		case "X":
			spans[at] = append(spans[at], e)
		case "s", "t", "f":
			byID[e.ID] = append(byID[e.ID], e)
		}
	}
	holds := func(e event) string {
		var inner, outer, last *event
		for _, s := range spans[[2]int{e.PID, e.TID}] {
			begin, end, at := ns(s.TS), ns(s.TS+s.Dur), ns(e.TS)
			if begin <= at && (last == nil || cmp.Or(cmp.Compare(begin, ns(last.TS)), cmp.Compare(ns(last.Dur), ns(s.Dur))) >= 0) {
				last = &s
			}
			if begin <= at && at < end && (inner == nil || ns(s.Dur) <= ns(inner.Dur)) {
				inner = &s
			}
			if begin <= at && at < end && s.Category != but {
				outer = &s
			}
		}
		if inner == nil || inner != last && label(*inner) != label(*last) {
			t.Fatalf("%+v is held by %+v, the last to begin is %+v", e, inner, last)
		}
		return label(*outer)
	}
	var joints []joint
	for _, id := range slices.Sorted(maps.Keys(byID)) {
		arrow := byID[id]
		if n := len(arrow); n < 2 || arrow[0].Phase != "s" || arrow[n-1].Phase != "f" {
			t.Fatalf("arrow %d is %+v", id, arrow)
		}
		if !slices.IsSortedFunc(arrow, func(a, b event) int { return cmp.Compare(a.TS, b.TS) }) {
			t.Errorf("arrow %d goes back in time: %+v", id, arrow)
		}
		for i, e := range arrow {
			if i > 0 && (e.Name != arrow[0].Name || i < len(arrow)-1 && e.Phase != "t") {
				t.Errorf("arrow %d is %+v", id, arrow)
			}
			if i > 0 {
				joints = append(joints, joint{holds(arrow[i-1]), holds(e)})
			}
		}
	}
	return joints
}

// label names a span for comparison.
func label(e event) string {
	switch e.Category {
	case "rollout":
		return fmt.Sprintf("%s/%v/%v", e.Name, e.Args["sample"], e.Args["attempt"])
	case "sync":
		return fmt.Sprintf("%d: %s", e.PID, e.Name)
	}
	return e.Name
}

// follow says which arrows from rollouts there should be, from the loop's own actions: from the score of
// every rollout, within the window, to the step that trains its group.
type follow struct {
	scored map[loop.GroupID][]string
	all    bool
	replay bool
	want   []joint
}

func (f *follow) observe(ev loop.Event, actions []loop.Action) {
	if ev.Kind == loop.RolloutScored {
		of := f.scored[ev.Group]
		if !f.all {
			of = of[:0]
		}
		f.scored[ev.Group] = append(of, fmt.Sprintf("g%d/%d/%d", ev.Group, ev.Sample, ev.Attempt))
	}
	for _, a := range actions {
		if a.Kind != loop.GroupTrained {
			continue
		}
		for _, from := range f.scored[a.Group] {
			f.want = append(f.want, joint{from, fmt.Sprintf("step to v%d", a.Version+1)})
		}
		if !f.replay {
			delete(f.scored, a.Group)
		}
	}
}

// Every trained rollout has its arrow to every step that trained it, and no other rollout has one; the
// step has one to the sync of its version, and that to what every engine did for it.
func TestArrows(t *testing.T) {
	for name, change := range settings {
		for mode, every := range map[Arrows]bool{LastArrows: false, AllArrows: true} {
			t.Run(fmt.Sprint(name, mode), func(t *testing.T) {
				cfg := setting(t, change)
				cfg.Warmup, cfg.Measured = 0, 30
				f := &follow{scored: map[loop.GroupID][]string{}, all: every, replay: cfg.Loop.Policy == loop.PolicyReplay}
				var out bytes.Buffer
				d := New(&out, Options{Rules: cfg.Loop, Arrows: mode})
				cfg.Observe = func(ev loop.Event, _, environmentNS int64, actions []loop.Action) {
					d.Observe(ev, environmentNS, actions)
					f.observe(ev, actions)
				}
				if _, err := sim.Run(cfg); err != nil {
					t.Fatal(err)
				}
				if err := d.Close(); err != nil {
					t.Fatal(err)
				}
				events := read(t, out.Bytes())
				joints := bind(t, events, "environment")
				if got := d.Totals(); got.Arrows != int64(len(joints)) || got.ArrowsLeftOut != 0 {
					t.Errorf("the totals are %+v, %d arrows are drawn", got, len(joints))
				}
				compareArrows(t, events, joints, f.want)
			})
		}
	}
}

// compareArrows holds the arrows from rollouts to those that should be there, and those of syncs to the spans.
func compareArrows(t *testing.T, events []event, joints, want []joint) {
	t.Helper()
	ended := map[string]bool{} // steps that trained, by name
	syncs, ships, starts := 0, 0, 0
	for _, e := range events {
		if e.Category == "train" && e.Args["end"] == trained {
			ended[e.Name] = true
		}
		if e.Category == "sync" && e.PID == trainerProcess {
			syncs++
		}
		if e.Category == "sync" && e.PID != trainerProcess {
			ships++
		}
	}
	var got []joint
	for _, j := range joints {
		switch {
		case ended[j.to]:
			got = append(got, j)
		case ended[j.from]:
			starts++
		}
	}
	order := func(a, b joint) int { return cmp.Or(cmp.Compare(a.to, b.to), cmp.Compare(a.from, b.from)) }
	slices.SortFunc(got, order)
	slices.SortFunc(want, order)
	if !slices.Equal(got, want) || len(want) == 0 {
		t.Errorf("%d arrows from rollouts to steps, want %d", len(got), len(want))
	}
	if starts != syncs {
		t.Errorf("%d syncs have an arrow from the step that made the version, of %d", starts, syncs)
	}
	into := map[string]bool{}
	for _, j := range joints {
		if !ended[j.to] && !ended[j.from] {
			into[j.to] = true
		}
	}
	if syncs > 0 && len(into) < ships {
		t.Errorf("%d of the engines' %d loads and switches have an arrow", len(into), ships)
	}
}

// More arrows than can be told apart are left out, and the step says how many.
func TestManyArrows(t *testing.T) {
	var out bytes.Buffer
	const groups = arrowsMax + 7
	d := New(&out, Options{Rules: loop.Config{EngineSlots: []int{1}, GroupSize: 1, BatchGroups: groups, QueueGroups: groups}})
	at := int64(0)
	var leased []loop.Action
	for g := loop.GroupID(1); g <= groups; g++ {
		d.Observe(loop.Event{Time: at, Kind: loop.EngineJoined}, 0, []loop.Action{{Kind: loop.StartRollout, Group: g, Attempt: 1}})
		at += 1000
		d.Observe(loop.Event{Time: at, Kind: loop.RolloutScored, Group: g, Attempt: 1}, 0, []loop.Action{{Kind: loop.GroupQueued, Group: g}})
		leased = append(leased, loop.Action{Kind: loop.GroupLeased, Group: g, Lease: 1, Count: 1})
	}
	d.Observe(loop.Event{Time: at, Kind: loop.TrainerReady}, 0, append(leased, loop.Action{Kind: loop.StartTrainStep, Lease: 1, Count: groups}))
	d.Observe(loop.Event{Time: at + 500, Kind: loop.TrainStepEnded, Lease: 1, Version: 1}, 0, nil)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	joints := bind(t, read(t, out.Bytes()), "")
	if got := d.Totals(); len(joints) != arrowsMax || got.Arrows != arrowsMax || got.ArrowsLeftOut != 7 {
		t.Errorf("%d arrows, totals %+v", len(joints), got)
	}
	if !bytes.Contains(out.Bytes(), []byte(`"arrows_left_out":7`)) {
		t.Error("the step does not say that arrows were left out")
	}
}

// An arrow begins in the rollout before its first part; where a part begins with it, in the last part.
func TestArrowsPassParts(t *testing.T) {
	var out bytes.Buffer
	d := New(&out, Options{Rules: loop.Config{EngineSlots: []int{1}, GroupSize: 1, BatchGroups: 2, QueueGroups: 4}, Parts: func(a Attempt) []Part {
		if a.Group == 1 {
			return []Part{{Name: "tool", FromNS: 200, ToNS: 400}, {Name: "sandbox_wait", FromNS: 600, ToNS: 700}, {Name: "verifier", FromNS: 700, ToNS: 1000}}
		}
		return []Part{{Name: "sandbox_start", FromNS: 500, ToNS: 1200}, {Name: "verifier", FromNS: 1500, ToNS: 1900}}
	}})
	for g := loop.GroupID(1); g <= 2; g++ {
		end := int64(g) * 1000
		d.Observe(loop.Event{Time: end - 1000, Kind: loop.EngineJoined}, 0, []loop.Action{{Kind: loop.StartRollout, Group: g, Attempt: 1}})
		d.Observe(loop.Event{Time: end, Kind: loop.RolloutScored, Group: g, Attempt: 1}, 0, nil)
	}
	d.Observe(loop.Event{Time: 2000, Kind: loop.TrainerReady}, 0, []loop.Action{
		{Kind: loop.GroupLeased, Group: 1, Lease: 1}, {Kind: loop.GroupLeased, Group: 2, Lease: 1}, {Kind: loop.StartTrainStep, Lease: 1}})
	d.Observe(loop.Event{Time: 3000, Kind: loop.TrainStepEnded, Lease: 1, Version: 1}, 0, nil)
	if err := d.Close(); err != nil {
		t.Fatal(err)
	}
	events := read(t, out.Bytes())
	if got, want := bind(t, events, ""), []joint{{"g1/0/1", "step to v1"}, {"verifier", "step to v1"}}; !slices.Equal(got, want) {
		t.Errorf("arrows %v, want %v", got, want)
	}
	for _, e := range events {
		if e.Phase == "s" && e.TS != 0.199 && e.TS != 1.899 {
			t.Errorf("the arrow begins at %g µs", e.TS)
		}
	}
}

// ask has Perfetto's own trace processor load a file and answer questions in SQL.
func ask(t *testing.T, text []byte, questions ...string) [][]map[string]any {
	t.Helper()
	assets := os.Getenv("HEADWAY_TRACE_PROCESSOR")
	if assets == "" {
		t.Skip("HEADWAY_TRACE_PROCESSOR does not name the folder of Perfetto's trace processor; docs/timeline.md")
	}
	file := filepath.Join(t.TempDir(), "timeline.json")
	if err := os.WriteFile(file, text, 0o600); err != nil {
		t.Fatal(err)
	}
	arguments := append([]string{filepath.Join("testdata", "trace_processor.mjs"), assets, file}, questions...)
	command := exec.Command("node", arguments...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	if err := command.Run(); err != nil {
		t.Fatalf("%v: %s", err, stderr.String())
	}
	// The module's own warnings stand before the answers.
	lines := bytes.Split(bytes.TrimSpace(stdout.Bytes()), []byte("\n"))
	var answers [][]map[string]any
	if err := json.Unmarshal(lines[len(lines)-1], &answers); err != nil {
		t.Fatalf("%v: %s", err, stdout.String())
	}
	return answers
}

// Perfetto's trace processor takes every drawing without a word, and finds the spans and the arrows that
// were drawn, bound to the spans that they were drawn to.
func TestPerfetto(t *testing.T) {
	for name, change := range settings {
		t.Run(name, func(t *testing.T) {
			cfg := setting(t, change)
			text, totals, _ := draw(t, cfg, Options{From: loop.Version(cfg.Warmup), Arrows: AllArrows})
			events := read(t, text)
			answers := ask(t, text,
				"select name, value from stats where severity != 'info' and value != 0",
				"select count(*) as n, sum(dur) as ns from slice where category = 'rollout'",
				"select count(*) as n from slice where category = 'train'",
				"select count(*) as n from slice where category = 'environment' and parent_id is null",
				`select a.category || ' ' || a.name || ' ' || a.ts || ' > ' || b.category || ' ' || b.name || ' ' || b.ts as joint
				 from flow join slice a on flow.slice_out = a.id join slice b on flow.slice_in = b.id order by joint`,
				"select distinct thread.name as name from flow join slice on flow.slice_in = slice.id join thread_track on slice.track_id = thread_track.id join thread using (utid)",
			)
			if len(answers[0]) > 0 {
				t.Errorf("the import complains: %v", answers[0])
			}
			if got := answers[1][0]; got["n"] != float64(totals.Rollouts) || got["ns"] != float64(totals.RolloutNS) {
				t.Errorf("rollouts are %v, drawn were %+v", got, totals)
			}
			if answers[2][0]["n"] != float64(totals.TrainSteps) || answers[3][0]["n"] != 0.0 {
				t.Errorf("%v train steps, %v environments outside of rollouts", answers[2], answers[3])
			}
			if len(answers[4]) != int(totals.Arrows) || totals.Arrows == 0 {
				t.Fatalf("%d arrows, drawn were %d", len(answers[4]), totals.Arrows)
			}
			t.Logf("%d events, %d rollouts, %d arrows into %v", totals.Events, totals.Rollouts, len(answers[4]), answers[5])
			comparePerfetto(t, events, answers[4])
		})
	}
}

// comparePerfetto holds the arrows that Perfetto made to those that the rules give, span by span.
func comparePerfetto(t *testing.T, events []event, found []map[string]any) {
	t.Helper()
	named := slices.Clone(events)
	for i := range named {
		if e := &named[i]; e.Phase == "X" {
			e.Name = fmt.Sprintf("%s %s %d", e.Category, e.Name, int64(math.Round(e.TS*1000)))
			e.Category = "as Perfetto names it"
		}
	}
	var want []string
	for _, j := range bind(t, named, "") {
		want = append(want, j.from+" > "+j.to)
	}
	var got []string
	for _, row := range found {
		got = append(got, fmt.Sprint(row["joint"]))
	}
	slices.Sort(want)
	slices.Sort(got)
	if !slices.Equal(got, want) {
		t.Errorf("%d arrows, %d drawn", len(got), len(want))
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("there is %s, want %s", got[i], want[i])
			}
		}
	}
}
