package diagnosis

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/track"
)

// The variation of arrivals is 1 for a Poisson stream, 0 for a regular one, whatever the bins
// have become.
func TestVariationOfArrivals(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	var poisson, regular arrivals
	at := 0.0
	for i := range 200_000 {
		at += 1e6 * rng.ExpFloat64()
		poisson.add(int64(at))
		regular.add(int64(i) * 1e6)
	}
	if len(poisson.bins) > binsMax {
		t.Fatalf("%d bins", len(poisson.bins))
	}
	if c := poisson.variation(0, 2e8); math.Abs(c-1) > 0.1 {
		t.Errorf("Poisson: %g, want 1", c)
	}
	if c := regular.variation(0, 2e8); c > 0.1 {
		t.Errorf("regular: %g, want 0", c)
	}
	if c := regular.variation(0, 1); !math.IsNaN(c) {
		t.Errorf("finer than a bin: %g", c)
	}
}

// An engine that serves nothing is apart from no other, and one of the pool's is not gone.
func TestFleet(t *testing.T) {
	f := fleet{engines: make([]engineTally, 3)}
	pools := track.Engine{Away: true, Gone: true}
	f.to(100, []track.Engine{{}, {}, pools})
	f.to(150, []track.Engine{{Served: 1}, {}, pools})
	f.to(200, []track.Engine{{Served: 1}, {Served: 1}, pools})
	f.lost(1)
	f.to(300, []track.Engine{{Served: 2}, {Served: 1, Gone: true}, pools})
	share, skew := f.figures()
	if share != 50.0/300 || skew != 1 || f.losses != 1 || f.goneNS != 100 || f.engines[1].goneNS != 100 || f.skewMax != 1 {
		t.Errorf("share %g, skew %g, %+v", share, skew, f)
	}
	f.lost(-1)
	f.lost(7)
	if f.losses != 1 {
		t.Error("an engine that is none was lost")
	}
}

// Rows are put together when there are too many, and lose nothing.
func TestRowsAreBounded(t *testing.T) {
	tl := newTally(loop.Config{GroupSize: 1, BatchGroups: 1, EngineSlots: []int{1}, QueueGroups: 1})
	for i := range 3 * rowsMax {
		tl.now.scored, tl.now.timeNS = 1, int64(i)
		tl.endStep()
	}
	scored := tl.now.scored
	for i := range tl.rows {
		scored += tl.rows[i].scored
	}
	if len(tl.rows) >= rowsMax || tl.steps < 4 {
		t.Errorf("%d rows of %d steps", len(tl.rows), tl.steps)
	}
	if want := int64(len(tl.rows)) * 1; scored < want {
		t.Errorf("%d scored in %d rows", scored, len(tl.rows))
	}
}

// Attempts that fail by their task are another finding than those that fail by a machine.
func TestFailuresByKind(t *testing.T) {
	found := func(failed metrics.Failures) (machines, tasks *Finding) {
		f := &facts{own: &own{summary: metrics.Summary{Failures: failed}, rows: []row{{scored: 80, failed: 20}}}}
		return f.environmentFailures(), f.brokenTasks()
	}
	if machines, tasks := found(metrics.Failures{Environment: 2, Timeout: 3, Data: 1}); machines == nil || machines.Severity != severityWarning || machines.CostRatio != 0.05 || tasks != nil {
		t.Errorf("5 of 100 by machines, 1 by its task: %+v, %+v", machines, tasks)
	}
	if machines, tasks := found(metrics.Failures{Environment: 1, Data: 19}); machines != nil || tasks == nil || tasks.Severity != severityDefect || tasks.CostRatio != 0.19 {
		t.Errorf("19 of 100 by their task, 1 by a machine: %+v, %+v", machines, tasks)
	}
}

// What drifts has a name and a unit in sentences.
func TestDriftsHaveUnits(t *testing.T) {
	for what, want := range map[string]string{driftLength: "412 tokens", driftStep: "412 s", driftStaleness: "412 versions", driftTail: "412", driftReward: "412"} {
		if got := driftFig(what, 412); got != want || driftWords[what].name == "" {
			t.Errorf("%s: %q %q, want %q", what, driftWords[what].name, got, want)
		}
	}
	if got := driftFig(driftSolve, 0.25); got != "25.0 %" {
		t.Errorf("solve rate %q", got)
	}
}
