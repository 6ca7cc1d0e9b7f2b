package replay

import (
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// A switch lies before the first token that was made under its version: at most half a
// decode step after it.
func TestSwitchesAreWhereTheTokensSay(t *testing.T) {
	r := &Recording{syncs: map[loop.Version]recordedSync{1: {1000, 500}, 2: {1000, 500}, 3: {1000, 500}, 4: {1000, 500}},
		sights: []sight{
			{version: 1, told: 5000, seen: 5100},  // a full step later: nothing to correct
			{version: 2, told: 9000, seen: 8900},  // before the run was told: 150 too late
			{version: 3, told: 12000, seen: 9000}, // 3050 too late: more than the switch took
			{engine: 0, version: 4, told: 20000, seen: 19000}, {engine: 1, version: 4, told: 20000, seen: 20030},
		}}
	r.correctSyncs(100)
	for v, want := range map[loop.Version]recordedSync{1: {1000, 500}, 2: {1000, 350}, 3: {0, 0}, 4: {1000, 480}} {
		if r.syncs[v] != want {
			t.Errorf("version %d: %+v, want %+v", v, r.syncs[v], want)
		}
	}
}

// Engines stand still for as long as they make nothing.
func TestStillShare(t *testing.T) {
	paused := func(madeHeld int64) *Recording {
		r := &Recording{holds: [][]interval{{{0, 100}, {500, 600}}}, lastNS: 1000, made: 800 + madeHeld, madeHeld: madeHeld}
		r.Header.Loop.Sync = loop.SyncPause
		return r
	}
	for madeHeld, want := range map[int64]float64{0: 1, 50: 0.75, 200: 0, 400: 0} {
		if got := paused(madeHeld).stillShare(100); math.Abs(got-want) > 1e-9 {
			t.Errorf("%d made in switches: %g, want %g", madeHeld, got, want)
		}
	}
	inFlight := &Recording{syncs: map[loop.Version]recordedSync{1: {0, 200}, 2: {0, 20}}}
	if got, want := inFlight.stillShare(100), 1-(50.0+20)/220; math.Abs(got-want) > 1e-9 {
		t.Errorf("in flight: %g, want %g", got, want)
	}
}

// The same recording gives the same figures to the last bit, however often they are computed.
func TestSumsDoNotDependOnTheirOrder(t *testing.T) {
	r := &Recording{cells: map[cell]measured{}, syncs: map[loop.Version]recordedSync{}}
	for i := range 40 {
		r.cells[cell{i / 2, i%2 > 0}] = measured{int64(1 + i), int64(1)<<(2*i%60) + int64(i)}
		r.syncs[loop.Version(i)] = recordedSync{0, int64(1 + i*i)}
	}
	const nsPerToken = 100 * math.Pi
	token, still := r.NSPerToken(), r.stillShare(nsPerToken)
	for range 100 {
		if got := r.NSPerToken(); got != token {
			t.Fatalf("%v ns a token, and %v", token, got)
		}
		if got := r.stillShare(nsPerToken); got != still {
			t.Fatalf("a share of %v of a switch, and %v", still, got)
		}
	}
}

// What slowed the machine between two train steps is told from what the slots explain.
func TestEpochFactors(t *testing.T) {
	cells := func(active int, steps, ns int64) []trimmedCell {
		return []trimmedCell{{cell{active, true}, measured{steps, ns}}}
	}
	table := speedTable(&[2][]float64{{1, 2, 1, 1}, {1, 2, 1, 1}}) // one slot twice as fast as two
	r := &Recording{epochs: []epoch{{10, cells(2, 10, 1000)}, {20, cells(1, 10, 500)}, {30, cells(2, 10, 2000)}, {40, cells(2, 3, 900)}, {50, cells(2, 6, 900)}, {60, nil}}}
	want := []float64{1, 1, 0.5, 0.5, 0.5, 1} // the two after the slow one have too few steps alone
	for i, got := range r.epochFactors(table, 100) {
		if math.Abs(got-want[i]) > 1e-9 {
			t.Errorf("epoch %d: %g, want %g", i, got, want[i])
		}
	}
}

// An engine's work is the integral of its speed over a stay.
func TestWorkIsTheIntegralOfSpeed(t *testing.T) {
	r := &Recording{
		spans: []span{{group: 1, took: 0, first: 10, to: 50}, {group: 1, sample: 1, took: 20, first: 20, to: 40}},
		busy:  []interval{{30, 45}}, holds: [][]interval{{{12, 16}}}, epochs: []epoch{{45, nil}},
		factors: []float64{1, 4},
	}
	r.Header.Loop.EngineSlots = []int{4}
	r.integrate(&[2][]float64{{1, 1, 0.5}, {1, 0.8, 0.4}})
	// The first: to its token 10; then 6 alone (4 held), 10 with two, 10 with two and busy, 5 alone and busy, 5 in the second epoch.
	if got, want := r.spans[0].work, 6+5+4+4+20.0; math.Abs(got-want) > 1e-9 || r.spans[0].firstWork != 10 {
		t.Errorf("work %g and %g, want 10 and %g", r.spans[0].firstWork, got, want)
	}
	if got, want := r.spans[1].work, 5+4.0; math.Abs(got-want) > 1e-9 || r.spans[1].firstWork != 0 {
		t.Errorf("work %g and %g, want 0 and %g", r.spans[1].firstWork, got, want)
	}
}
