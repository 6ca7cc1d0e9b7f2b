package theory

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/loop/workload"
)

// groupTimes50 is the longest of 8 lengths at tailness 50, in units in which the mean rollout is 1.
func groupTimes50(t *testing.T) workload.Distribution {
	t.Helper()
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: 50, CapTokens: 8080}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return lengths.MaxDistribution(8).Scale(1 / lengths.Mean())
}

// TestHeldStalenessIsCounted holds the sums to counting: a clock of updates, starts
// at random phases, and the versions between a start's and its batch's.
func TestHeldStalenessIsCounted(t *testing.T) {
	times := groupTimes50(t)
	for _, c := range []struct {
		rhythm Rhythm
		theta  float64
	}{
		{Rhythm{Period: 1, Step: 1}, 0},
		{Rhythm{Period: 0.75, Step: 0.75}, 0.3},
		{Rhythm{Period: 0.75, Step: 0.75}, 1},
		{Rhythm{Period: 1.5, Step: 1}, 0.5},
		{Rhythm{Period: 8, Step: 1}, 0.25},
		{Rhythm{Period: 1, Step: 1, Publish: 0.1}, 0.7},
		{Rhythm{Period: 3, Step: 2, Publish: 0.4}, 0},
	} {
		random := rand.New(rand.NewPCG(1, uint64(100*c.theta)))
		const n = 400_000
		sum := 0.0
		for range n {
			// Update 0 is made at 0 and served from Publish on; batch k is taken k·T + (T − t_step) after it.
			start := c.rhythm.Publish
			if phase := random.Float64(); phase < 1-c.theta {
				start += phase * c.rhythm.Period
			}
			ready := start + times.Quantile(random.Float64())
			batch := 0.0
			for batch*c.rhythm.Period+c.rhythm.Period-c.rhythm.Step < ready {
				batch++
			}
			sum += batch
		}
		got, want := HeldStaleness(times, c.rhythm, c.theta), sum/n
		if math.Abs(got-want) > 0.008 {
			t.Errorf("%+v, theta %g: %.4f, counted %.4f", c.rhythm, c.theta, got, want)
		}
	}
}

// TestLeastStalenessGolden holds it to figures made once by summation in another program, and to
// the reference figure 3.46 at rho 1.5 and C/B 2, whose groups begin over S−1 starts.
func TestLeastStalenessGolden(t *testing.T) {
	times := groupTimes50(t)
	unit := 2 / 1.5 // a mean rollout in train steps, at C/B 2 and rho 1.5
	staggered := times.Mean()*unit + unit*7/128
	for _, c := range []struct {
		name      string
		got, want float64
	}{
		{"bound", LeastStaleness(times.Scale(unit), Rhythm{Period: 1, Step: 1}), 3.4},
		{"uniform phase is E[D]/T + 1", HeldStaleness(times.Scale(unit), Rhythm{Period: 1, Step: 1}, 0), times.Mean()*unit + 1},
		{"smooth", LeastStaleness(times.Scale(10*unit), Rhythm{Period: 1, Step: 1}), 10*times.Mean()*unit + 0.5},
		{"staggered, smooth", staggered + 0.5, 3.47},
	} {
		if math.Abs(c.got-c.want) > 0.05 {
			t.Errorf("%s: %.4f, want %.4f", c.name, c.got, c.want)
		}
	}
	if got := LeastStaleness(times, Rhythm{}); !math.IsNaN(got) {
		t.Errorf("no period: %g", got)
	}
}

// holdSaving returns what a start saves on average that waits for the next
// switch of weights instead of starting the given share of a period before it,
//
//	P(frac((D + t_s + t_step − T)/T) > share),   frac in (0, 1]
//
// in versions. It falls with the share and the wait it costs is in proportion to
// the share: so what pays best is to hold the last part of every period, a hold, and
// no other choice of phases that is blind to D does better. For smooth D it is 1 − share.
//
// The argument of docs/queue-bound.md is held by it; no command needs it.
func holdSaving(times workload.Distribution, r Rhythm, share float64) float64 {
	if !(r.Period > 0) {
		return math.NaN()
	}
	ahead, saved := r.ahead(), 0.0
	for i := range times.Len() {
		d, p := times.At(i)
		x := d/r.Period + ahead
		if x > share-1 && x-math.Ceil(x)+1 > share { // at x below share − 1 either start is ready for the batch of its own version
			saved += p
		}
	}
	return saved
}

// TestHoldSavingPays: what is saved per wait falls with the wait, and adds up to what hold gains.
func TestHoldSavingPays(t *testing.T) {
	times := groupTimes50(t)
	for _, rhythm := range []Rhythm{{Period: 0.4, Step: 0.4}, {Period: 2, Step: 2}, {Period: 4, Step: 1}, {Period: 2, Step: 2, Publish: 0.3}} {
		last, gained := math.Inf(1), 0.0
		const parts = 2000
		for i := range parts / 2 { // the last half of the period
			share := (float64(i) + 0.5) / parts
			saving := holdSaving(times, rhythm, share)
			if saving/share > last+1e-9 {
				t.Fatalf("%+v: a start %g of a period before the switch saves %g, more for its wait than a later one", rhythm, share, saving)
			}
			last = saving / share
			gained += saving / parts
		}
		want := HeldStaleness(times, rhythm, 0) - HeldStaleness(times, rhythm, 0.5)
		if math.Abs(gained-want) > 0.002 {
			t.Errorf("%+v: savings add up to %.4f, hold 0.5 gains %.4f", rhythm, gained, want)
		}
	}
}
