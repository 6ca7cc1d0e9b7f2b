package sim_test

import (
	"fmt"
	"math"
	"os"
	"testing"

	"gonum.org/v1/gonum/stat"
	"gonum.org/v1/gonum/stat/distuv"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// lengthRatio simulates a setting with several seeds and returns the mean of
// trained over started lengths with the half width of its 95 % interval.
func lengthRatio(t *testing.T, s setup, seeds int) (mean, half float64) {
	t.Helper()
	ratios := make([]float64, seeds)
	for i := range ratios {
		s.seed = uint64(i)
		length := run(t, s.config(t)).Summary.Length
		ratios[i] = length.TrainedMeanTokens / length.SampledMeanTokens
	}
	mean, sd := stat.MeanStdDev(ratios, nil)
	t95 := distuv.StudentsT{Mu: 0, Sigma: 1, Nu: float64(seeds - 1)}.Quantile(0.975)
	return mean, t95 * sd / math.Sqrt(float64(seeds))
}

// TestDropHasNoLengthBias: under queue-drop trained lengths have the mean of
// sampled ones, within 0.5 %, on both sides of ρ = 1 and whether the oldest or the
// newest are selected: what becomes of a ready group is decided by what becomes
// ready after it, not by how long it took.
func TestDropHasNoLengthBias(t *testing.T) {
	rhos, seeds := []float64{1.5}, 6
	if os.Getenv("HEADWAY_LONG") != "" {
		rhos, seeds = []float64{0.8, 1, 1.2, 1.5, 2, 3}, 20
	}
	for _, tailness := range []float64{50, 90} {
		for _, rho := range rhos {
			for _, selection := range []loop.Selection{loop.SelectOldest, loop.SelectNewest} {
				s := setup{c: 256, s: 8, b: 128, q: 2, rho: rho, tailness: tailness, warmup: 100, steps: 900,
					rules: func(c *loop.Config) { c.Select = selection }}
				mean, half := lengthRatio(t, s, seeds)
				t.Logf("tailness %g ρ %g selection %d: trained/sampled %.4f ± %.4f", tailness, rho, selection, mean, half)
				if math.Abs(mean-1) > 0.005 || half > 0.005 {
					t.Errorf("tailness %g ρ %g selection %d: trained/sampled mean length is %.4f ± %.4f, want 1 within 0.005", tailness, rho, selection, mean, half)
				}
			}
		}
	}
}

// TestMaxBiasGrowsAsTheBudgetFalls: what queue-max discards is what took long.
func TestMaxBiasGrowsAsTheBudgetFalls(t *testing.T) {
	for _, tailness := range []float64{50, 90} {
		last := 1.01
		for budget := 8; budget >= 1; budget /= 2 {
			s := setup{c: 256, s: 8, b: 128, q: 1, rho: 1.07, tailness: tailness, warmup: 100, steps: 300,
				rules: func(c *loop.Config) { c.Policy, c.MaxStaleness = loop.PolicyMax, loop.Version(budget) }}
			mean, half := lengthRatio(t, s, 3)
			t.Logf("tailness %g budget %d: trained/sampled %.4f ± %.4f", tailness, budget, mean, half)
			if mean > last-0.005 && budget < 8 {
				t.Errorf("tailness %g: budget %d has a ratio of %.4f, the next larger one %.4f", tailness, budget, mean, last)
			}
			last = mean
		}
		if last > 0.9 {
			t.Errorf("tailness %g: a budget of 1 has a ratio of %.4f, want a strong bias", tailness, last)
		}
	}
}

// firstOf returns E[mean of the lowest g of n independent draws]: the sum of the
// lowest g is Σ over lengths x of E[(g − N(x))⁺], N(x) the number up to x.
func firstOf(d workload.Distribution, g, n int) float64 {
	sum, last := 0.0, 0.0
	below := 0.0
	for i := range d.Len() {
		v, p := d.At(i)
		missing, prob := 0.0, math.Pow(1-below, float64(n)) // of k = 0 draws up to here
		for k := range g {
			missing += float64(g-k) * prob
			prob *= float64(n-k) / float64(k+1) * below / (1 - below)
		}
		sum += (v - last) * missing
		last = v
		below = min(below+p, 1)
		if below > 1-1e-12 {
			break
		}
	}
	return sum / float64(g)
}

// TestOversamplingTrainsOrderStatistics: with k·G groups started together and the
// first G kept, trained lengths are those of the G shortest of kG, half the mean
// at tailness 90 and k = 1.25.
func TestOversamplingTrainsOrderStatistics(t *testing.T) {
	const batch = 64
	for _, tailness := range []float64{50, 90} {
		for _, extra := range []int{batch / 4, batch} {
			s := setup{c: batch + extra, s: 1, b: batch, q: 1, rho: 1, tailness: tailness, warmup: 1, steps: 3000}
			s.rules = func(c *loop.Config) {
				c.Policy, c.ExtraGroups, c.QueueGroups = loop.PolicySynchronous, extra, batch+extra
			}
			res := run(t, s.config(t))
			lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 1400, Tailness: tailness, CapTokens: int(2.2*1400 + 100*tailness)}.Build()
			if err != nil {
				t.Fatal(err)
			}
			want := firstOf(lengths.Distribution(), batch, batch+extra)
			got := res.Summary.Length.TrainedMeanTokens
			name := fmt.Sprintf("tailness %g, k %g", tailness, 1+float64(extra)/batch)
			t.Logf("%s: trained mean %.1f tokens, order statistics %.1f, all %.1f: %.3f of it", name, got, want, lengths.Mean(), got/lengths.Mean())
			if !(math.Abs(got/want-1) <= 0.005) {
				t.Errorf("%s: trained mean length is %.1f tokens, order statistics give %.1f", name, got, want)
			}
		}
	}
}
