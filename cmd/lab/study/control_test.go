package study

import (
	"context"
	"math"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
)

// lagged is a series of so many steps, all groups of step i with the staleness lag(i), one second a step.
func lagged(n int, lag func(i int) uint8) *controlSeries {
	s := &controlSeries{}
	for i := range n {
		for range controlGroups {
			s.lags = append(s.lags, lag(i))
		}
		s.endNS = append(s.endNS, int64(i+1)*1e9)
		s.values = append(s.values, full())
	}
	return s
}

// A step is held by the mean over its window; a batch by its own.
func TestControlGoalHeld(t *testing.T) {
	drift := ControlDrifts[0]
	c := course{begin: 100, drifting: 100, rest: 100, settle: 64}
	// Staleness 1 and 3 by turns: the mean of every window is 2.
	s := lagged(c.steps(), func(i int) uint8 { return uint8(1 + 2*(i%2)) })
	got := score(s, ControlGoal{Mean: 2}, drift, c)
	if got.Held != 1 || got.HeldBatches != 0.5 || got.Value != 2 || got.RolloutsPerS != controlGroups*controlGroupSize || got.Swing != 0 {
		t.Errorf("%+v, want every step held, every second batch, 2 versions, a batch a second", got)
	}
	if got := score(s, ControlGoal{Mean: 1.99}, drift, c); got.Held != 0 {
		t.Errorf("below the mean %v of the steps are held", got.Held)
	}
	if got := score(s, ControlGoal{Share: 0.5, Within: 1}, drift, c); got.Held != 1 || got.Value != 0.5 {
		t.Errorf("half of the rollouts within 1: %+v", got)
	}
	// From step 200 on everything is stale: of the 236 settled steps, those from the 184th settled window on fail.
	s = lagged(c.steps(), func(i int) uint8 { return uint8(4 * (i / 200)) })
	got = score(s, ControlGoal{Mean: 2}, drift, c)
	// The mean passes 2 with the 17th stale step of 32.
	if want := float64(236-(100-16)) / 236; math.Abs(got.Held-want) > 1e-12 {
		t.Errorf("held %v, want %v", got.Held, want)
	}
}

// An abrupt change leaves out as many steps after it as the start does.
func TestControlSettled(t *testing.T) {
	c := course{begin: 100, drifting: 100, rest: 100, settle: 10}
	for made, want := range map[int]bool{10: false, 11: true, 100: true, 101: false, 110: false, 111: true, 200: true, 210: false, 211: true} {
		if got := (ControlDrift{Name: driftEngines, Abrupt: true}).settled(c, made); got != want {
			t.Errorf("step %d settled: %v, want %v", made, got, want)
		}
		if !(ControlDrift{Name: driftLengths}).settled(c, made) && made > c.settle {
			t.Errorf("step %d of a slow drift does not count", made)
		}
	}
}

// Swing is of the steps at rest alone, the worst of slots, groups and queue; hold's stands apart.
func TestControlSwing(t *testing.T) {
	values := make([]settings, 4)
	for i := range values {
		values[i] = full()
		values[i][loop.SettingSlots] = []float64{100, 100, 120, 80}[i]
		values[i][loop.SettingLive] = 30
		values[i][loop.SettingHold] = []float64{0.1, 0.2, 0.1, 0.2}[i]
	}
	relative, hold := swings(values)
	if math.Abs(relative-0.2) > 1e-12 || math.Abs(hold-0.05) > 1e-12 {
		t.Errorf("swing %v and %v, want 0.2 and 0.05", relative, hold)
	}
}

// Goals are read as they are written on a command line.
func TestParseControlGoal(t *testing.T) {
	for text, want := range map[string]ControlGoal{"2": {Mean: 2}, "0.5": {Mean: 0.5}, "tokens:0.95:4": {Share: 0.95, Within: 4, Tokens: true}, "rollouts:0.9:0": {Share: 0.9}} {
		if got, err := ParseControlGoal(text); err != nil || got != want {
			t.Errorf("%s: %+v, %v", text, got, err)
		}
	}
	for _, text := range []string{"", "0", "-1", "NaN", "tokens", "tokens:1:4", "tokens:0:4", "words:0.9:3", "tokens:0.9:-1", "tokens:0.9:99"} {
		if _, err := ParseControlGoal(text); err == nil || !strings.Contains(err.Error(), "is no goal") {
			t.Errorf("%q: %v", text, err)
		}
	}
}

// The search finds the fastest settings that hold: here throughput is slots, and the goal allows 60 of them, a
// hold of 0.2 sixteen more and nothing else anything.
func TestControlSearch(t *testing.T) {
	tries := 0
	tried := func(s settings) planned {
		tries++
		allowed := 60 + 80*min(s[loop.SettingHold], 0.2)
		held := 1.0
		if over := s[loop.SettingSlots] - allowed; over > 0 {
			held = 0.94 - over/1000
		}
		return planned{Settings: s, Held: held, RolloutsPerS: s[loop.SettingSlots] - s[loop.SettingHold]}
	}
	got := search(tried, tried)
	if s := got.Settings; s[loop.SettingSlots] != 76 || s[loop.SettingHold] != 0.2 || !got.keeps() {
		t.Errorf("found %+v, want 76 slots and a hold of 0.2", got)
	}
	if tries > 300 {
		t.Errorf("%d settings tried", tries)
	}
	// Where the check does not confirm more than 70 slots, the fastest it confirms is taken.
	got = search(tried, func(s settings) planned {
		p := tried(s)
		if s[loop.SettingSlots] > 70 {
			p.Held = 0.9
		}
		return p
	})
	if s := got.Settings[loop.SettingSlots]; s > 70 || s < 64 || !got.keeps() {
		t.Errorf("found %v slots, want what the check confirms", s)
	}
}

// The search comes to an eighth of a group, from what the controller starts from, too, and past what it has seen where
// the check holds it.
func TestControlSearchFine(t *testing.T) {
	limit := func(most float64) func(settings) planned {
		return func(s settings) planned {
			held := 1.0
			if s[loop.SettingLive] > most {
				held = 0.9
			}
			return planned{Settings: s, Held: held, RolloutsPerS: s[loop.SettingLive]}
		}
	}
	if got := search(limit(15.9), limit(15.9)).Settings[loop.SettingLive]; got != 15.875 {
		t.Errorf("found %v live groups, want 15.875", got)
	}
	if got := search(limit(15.9), limit(16.3)).Settings[loop.SettingLive]; got != 16.25 {
		t.Errorf("found %v live groups, want the 16.25 that the check holds", got)
	}
	// What holds lies between the settings of every kind that are tried first.
	narrow := func(s settings) planned {
		p := planned{Settings: s, Held: 0.5, RolloutsPerS: s[loop.SettingLive]}
		if s[loop.SettingLive] >= 20.25 && s[loop.SettingLive] <= 20.75 && s[loop.SettingQueue] == controlQueue {
			p.Held = 1
		}
		return p
	}
	if got := search(narrow, narrow, ControlGoal{Mean: 20.25 / controlGroups}.start()); !got.keeps() || got.Settings[loop.SettingLive] != 20.75 {
		t.Errorf("found %+v, want 20.75 live groups from the controller's start", got)
	}
}

// AReaL's best η is the largest eighth that the check holds, too, or a smaller one that is as fast; 0 where none holds.
func TestBestEta(t *testing.T) {
	limit := func(most float64) func(float64) planned {
		return func(eta float64) planned {
			if eta <= most {
				return planned{Held: 1, RolloutsPerS: min(eta, 10)}
			}
			return planned{Held: 0.94, RolloutsPerS: min(eta, 10)}
		}
	}
	for _, c := range []struct{ try, check, want float64 }{{1.95, 5, 1.875}, {2, 2, 2}, {2, 1.7, 1.625}, {100, 100, 10}, {-1, 3, 0}, {3, -1, 0}} {
		if got := bestEta(limit(c.try), limit(c.check)); got != c.want {
			t.Errorf("η %v, where %v holds in the search and %v in its check, want %v", got, c.try, c.check, c.want)
		}
	}
}

// Hindsight chooses from the plan's settings and the smallest of each, under the longest hold.
func TestHindsights(t *testing.T) {
	a, b := full(), full()
	a[loop.SettingLive], a[loop.SettingHold] = 15.5, 0.1
	b[loop.SettingSlots], b[loop.SettingLive] = 64, 20
	got := hindsights([]plannedLevel{{0, planned{Settings: a}}, {0.5, planned{Settings: b}}, {1, planned{Settings: a}}})
	least := a
	least[loop.SettingSlots] = 64
	if len(got) != 3 || !slices.Contains(got, a) || !slices.Contains(got, b) || !slices.Contains(got, least) {
		t.Errorf("%v, want %v, %v and %v", got, a, b, least)
	}
}

// A seed that swings too far is counted beside the mean, and AIMD's throughput is judged nowhere.
func TestControlVerdicts(t *testing.T) {
	worst, within := worstSwing([]judgement{{ControlScore: ControlScore{Swing: 0.02}}, {ControlScore: ControlScore{Swing: 0.14}}, {ControlScore: ControlScore{Swing: 0.9, Failed: "x"}}})
	if worst != 0.14 || within != 1 {
		t.Errorf("worst swing %v, %d seeds within, want 0.14 and 1", worst, within)
	}
	c := ControlCase{World: ControlWorlds[0].Name, Drift: driftStep, Goal: "mean ≤ 2", Reachable: true}
	for _, name := range controlArms {
		c.Arms = append(c.Arms, ControlArm{Arm: name, Held: Estimate{Mean: 1}, HeldBatches: Estimate{Mean: 0.6}, OverOracle: Estimate{Mean: 0.4321}, Swing: Estimate{Mean: 0.08}, SwingWorst: 0.14})
	}
	c.Arms[0].OverOracle.Mean = 1.012
	v := armWorstOf(ControlResult{Cases: []ControlCase{c}}, driftStep, armController)
	if v.good != 1 || v.every != 0 || v.cases != 1 || v.seed != 0.14 {
		t.Errorf("%+v, want all three in the mean and not in every seed", v)
	}
	var text strings.Builder
	if err := ControlMarkdown(&text, ControlResult{Seeds: 2, WindowSteps: 32, Cases: []ControlCase{c}}, Provenance{}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"| step | prime-rl AIMD | 100.0 % | 60.0 % | n/a | 8.0 % | 14.0 % | n/a | n/a |", "controller 60 to 60 %",
		"misses its goal in 0 of 1 cases. In no world and under no goal is it broken by step", "is 101.2 % (controller, step, rollout-bound, mean ≤ 2)"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the page lacks %q", want)
		}
	}
	if strings.Contains(text.String(), "rollout-bound-crowded") {
		t.Error("the page lists a world that was not simulated")
	}
}

// prime-rl's rule by hand.
func TestAIMD(t *testing.T) {
	a := newAIMD(aimdMaxLen * 40.5)
	want := func(step string, limit int) {
		t.Helper()
		if a.limit != limit {
			t.Fatalf("%s: limit %d, want %d", step, a.limit, limit)
		}
	}
	want("start: what fits at full length", 40)
	a.completed(40)
	want("no growth before a poll has shown the engines clear", 40)
	a.poll(0.5, 40)
	for range 40 {
		a.completed(40) // one turnover: × 1.25, once 40 rollouts have ended
	}
	want("growth by 1.25 a turnover, while at least 0.9 of the cap is in flight", 45) // 0.9·45 > 40 stops it
	a.completed(30)
	want("the cap does not bind", 45)
	a.poll(0.7, 44)
	a.completed(44)
	want("no growth above 0.6", 45)
	a.poll(0.88, 44)
	want("trimmed to 44·0.7/0.88", 35)
	a.poll(0.88, 44)
	want("no second trim within six polls", 35)
	for range 5 {
		a.poll(0.88, 40)
	}
	want("40·0.7/0.88 at the sixth", 31)
	a.poll(1.2, 31)
	want("a preemption leaves 0.8 of what is in flight", 24)
	a.poll(1.2, 31)
	want("draining", 24)
	a.poll(0.5, 24)
	a.poll(1.2, 24)
	want("another within six polls of having drained leaves half", 12)
	a.poll(0.5, 12)
	for range 6 {
		a.poll(0.5, 12)
	}
	a.poll(1.2, 12)
	want("later ones leave 0.8 again", 9)
	a.poll(0.5, 9)
	a.poll(1.2, 9)
	want("never below the floor", aimdFloor)
}

// The oracle plays what lies between two levels of its plan, and the nearer where the two are of different kinds.
func TestOracleArm(t *testing.T) {
	c := course{begin: 10, drifting: 100, rest: 10}
	plan := []plannedLevel{{Level: 0}, {Level: 0.5}, {Level: 1}}
	for i := range plan {
		plan[i].Settings[loop.SettingSlots] = float64(10 + i)
	}
	steer := oracleArm(plan, ControlDrifts[0], c).steer
	var slots []float64
	for _, made := range []loop.Version{0, 34, 36, 60, 84, 86, 119} {
		for _, request := range steer(sim.Seen{Made: made}) {
			if request.Setting == loop.SettingSlots {
				slots = append(slots, request.Value)
			}
		}
	}
	if len(slots) != 3 || slots[0] != 10 || slots[1] != 11 || slots[2] != 12 {
		t.Errorf("slots %v, want each plan's once", slots)
	}
	kinds := []plannedLevel{{Level: 0}, {Level: 1}}
	kinds[0].Settings, kinds[1].Settings = full(), full()
	kinds[0].Settings[loop.SettingSlots], kinds[1].Settings[loop.SettingLive] = 64, 20
	for level, want := range map[float64]settings{0: kinds[0].Settings, 0.4: kinds[0].Settings, 0.6: kinds[1].Settings, 1: kinds[1].Settings} {
		if got := between(kinds, level); got != want {
			t.Errorf("at %v: %v, want %v", level, got, want)
		}
	}
}

// A drift end to end, every arm: lengths grow, and the controller and AReaL's bound keep the mean.
func TestControlSmall(t *testing.T) {
	if os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("TestStudyControl of cmd/lab asks the same of another drift: make test-long has this one too, and whoever sets HEADWAY_LONG")
	}
	opt := ControlOptions{Seeds: 1, Quick: true, Worlds: ControlWorlds[:1], Drifts: ControlDrifts[:1], Goals: []ControlGoal{{Mean: 3}, {Share: 0.9, Within: 4, Tokens: true}}}
	r, err := Control(context.Background(), opt, Simulator{})
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Cases) != len(opt.Goals) || len(r.Cases[0].Arms) != len(controlArms) {
		t.Fatalf("%d cases", len(r.Cases))
	}
	for _, c := range r.Cases {
		for _, a := range c.Arms {
			if a.Failed != "" || !(a.RolloutsPerS.Mean > 0) || a.Held.Mean < 0 || a.Held.Mean > 1 {
				t.Errorf("%s, %s: %+v", c.Goal, a.Arm, a)
			}
		}
		if got := c.arm(armOracle).OverOracle.Mean; got != 1 {
			t.Errorf("the oracle over itself is %v", got)
		}
	}
	mean := r.Cases[0]
	for _, name := range []string{armController, armBounded, armTuned} {
		if got := mean.arm(name).Staleness.Mean; got > 3.1 {
			t.Errorf("%s: mean staleness %v, want about 3 at most", name, got)
		}
	}
	var text strings.Builder
	if err := ControlMarkdown(&text, r, Provenance{}); err != nil || !strings.Contains(text.String(), "At a glance") {
		t.Errorf("%v: %s", err, text.String())
	}
}
