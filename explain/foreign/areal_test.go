package foreign

import (
	"slices"
	"strconv"
	"testing"
)

// manyOfAReaL is a log of AReaL with more single rollouts than are kept: dumps of all groups, one a step, and sessions. The
// staleness of step s is s mod 3.
func manyOfAReaL(t *testing.T, sessionsFirst bool) *Log {
	t.Helper()
	const size = 1 << 10
	const steps = RolloutsMax/size/2 + 4
	c := newCollector(areal, Options{Given: map[string]float64{"group_size": size, "batch_rollouts": size}}, 0)
	c.stepped = true
	half := func(sessions bool) {
		for step := range steps {
			for range size {
				r := Rollout{Group: strconv.Itoa(step), Start: Figure{float64(step - step%3), Logged, ""}, End: Figure{float64(step), Logged, ""}}
				if sessions {
					r = Rollout{Group: r.Group, StartS: Figure{float64(step), Logged, ""}, EndS: Figure{float64(step + 10), Logged, ""}}
				}
				c.Rollout(r)
			}
		}
	}
	half(sessionsFirst)
	half(!sessionsFirst)
	for step := range steps {
		if err := c.Row(Row{File: "stats", Step: int64(step), HasStep: true, Values: map[string]float64{"timeperf/rollout": 30}}); err != nil {
			t.Fatal(err)
		}
	}
	log, err := c.log(&files{})
	if err != nil {
		t.Fatal(err)
	}
	if !slices.ContainsFunc(log.Warnings, func(w Warning) bool { return w.Text == tooManyRollouts && w.Count == 8*size }) {
		t.Errorf("warnings %+v", log.Warnings)
	}
	return log
}

// Dumps that were dropped move no group to another step.
func TestDroppedDumpsOfAReaL(t *testing.T) {
	for i, s := range manyOfAReaL(t, false).Series {
		if known := i >= 8; s.StalenessMean.Known() != known || known && s.StalenessMean.Value != float64(i%3) {
			t.Fatalf("step %d: staleness %+v", i, s.StalenessMean)
		}
	}
}

// Without the first groups' sessions no group can be told to be of a step.
func TestDroppedSessionsOfAReaL(t *testing.T) {
	for i, s := range manyOfAReaL(t, true).Series {
		if s.StalenessMean.Known() {
			t.Fatalf("step %d: staleness %+v", i, s.StalenessMean)
		}
	}
}
