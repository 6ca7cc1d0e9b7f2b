package theory

import (
	"math"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop/workload"
)

// points are settings of every kind that an estimator meets in a search.
func points() []Point {
	var list []Point
	for _, rho := range []float64{0.4, 0.9, 1, 1.1, 2.5} {
		for _, q := range []float64{1, 2, 5} {
			for _, load := range []float64{0.5, 1, 4} {
				p := Point{ConcurrencyRollouts: 256 * load, BatchRollouts: 256, QueueFactor: q, Utilization: rho, StepS: 30, BudgetVersions: 3}
				list = append(list, p)
				p.SyncTimeS, p.SyncEvery = 6, 2
				list = append(list, p)
				p.SyncMode, p.SyncTrainer, p.Acceptance = SyncPause, TrainerBlocked, 0.7
				list = append(list, p)
			}
		}
	}
	return list
}

// TestEstimatorIsThePrediction: both answer alike, figure by figure.
func TestEstimatorIsThePrediction(t *testing.T) {
	l := lengths(t, 1400, 60)
	tools := service(t, workload.TimesSpec{Kind: workload.KindLognormal, MeanS: 9, Tailness: 60})
	for _, environment := range []*workload.Times{nil, tools} {
		e, err := NewEstimator(Input{GroupSize: 8, Lengths: l, Environment: environment})
		if err != nil {
			t.Fatal(err)
		}
		tolerance := 1e-12
		if environment != nil {
			tolerance = 0.01 // the shape of times is that of a neighbouring speed
		}
		for i, p := range points() {
			if environment != nil && i%12 != 0 {
				continue // each costs a prediction of its own tables
			}
			got := e.Estimate(p)
			want := mustPredict(t, Input{GroupSize: 8, Lengths: l, Environment: environment,
				ConcurrencyRollouts: p.ConcurrencyRollouts, BatchRollouts: p.BatchRollouts, QueueFactor: p.QueueFactor, Utilization: p.Utilization,
				StepS: p.StepS, SyncTimeS: p.SyncTimeS, SyncEvery: p.SyncEvery, SyncMode: p.SyncMode, SyncTrainer: p.SyncTrainer,
				Acceptance: p.Acceptance, BudgetVersions: p.BudgetVersions})
			if got.Covered != want.Covered || got.Reason != want.Reason {
				t.Fatalf("%+v: covered %v (%s), predicted %v (%s)", p, got.Covered, got.Reason, want.Covered, want.Reason)
			}
			near(t, "mean", got.Mean, want.Corrected.Mean.Or(-1), tolerance)
			near(t, "IQS", got.IQS, want.Corrected.IQS.Or(-1), max(tolerance, 1e-9))
			near(t, "period", got.PeriodS, want.Corrected.Period.S.Or(-1), tolerance)
			near(t, "published", got.Published.Mean, want.Staleness.Mean.Or(-1), tolerance)
			if environment == nil && (float64(got.P99) != want.Staleness.P99.Or(-1) || got.ShareAboveBudget != want.Staleness.ShareAboveBudget.Or(-1)) {
				t.Errorf("%+v: p99 %d, share %g, predicted %s and %s", p, got.P99, got.ShareAboveBudget, want.Staleness.P99.Format(0), want.Staleness.ShareAboveBudget.Format(4))
			}
		}
	}
}

// TestEstimateSumsItsDistribution: mean and quantiles of the sweep are those of the
// distribution that a prediction hands out, in a long one as in a short one.
func TestEstimateSumsItsDistribution(t *testing.T) {
	for _, load := range []float64{0.5, 2, 50} {
		p := mustPredict(t, Input{GroupSize: 8, Lengths: lengths(t, 1400, 70), ConcurrencyRollouts: 256 * load, BatchRollouts: 256, QueueFactor: 2, Utilization: 1.05, SyncEvery: 3})
		sum := 0.0
		for k := range 5000 {
			sum += p.Distribution.ShareAbove(k)
		}
		near(t, "mean", p.Corrected.Mean.Or(-1), sum, 2e-3)
		for share, figure := range map[float64]Figure{0.5: p.Staleness.P50, 0.95: p.Staleness.P95, 0.99: p.Staleness.P99} {
			if got := figure.Or(-1); got != float64(p.Distribution.Quantile(share)) {
				t.Errorf("C/B %g: quantile %g is %g, of the distribution %d", load, share, got, p.Distribution.Quantile(share))
			}
		}
	}
}

// TestEstimateDoesNotAllocate: a search asks for it a hundred thousand times.
func TestEstimateDoesNotAllocate(t *testing.T) {
	e, err := NewEstimator(Input{GroupSize: 8, Lengths: lengths(t, 1400, 60)})
	if err != nil {
		t.Fatal(err)
	}
	list := points()
	next := 0
	if n := testing.AllocsPerRun(3*len(list), func() { e.Estimate(list[next%len(list)]); next++ }); n >= 0.5 {
		t.Errorf("%g allocations an estimate", n)
	}
}

// TestEstimatorIsSharedSafely: goroutines that fill its tables together get what
// one gets alone.
func TestEstimatorIsSharedSafely(t *testing.T) {
	l := lengths(t, 1400, 60)
	tools := service(t, workload.TimesSpec{Kind: workload.KindExponential, MeanS: 5})
	for _, environment := range []*workload.Times{nil, tools} {
		shared, err := NewEstimator(Input{GroupSize: 4, Lengths: l, Environment: environment})
		if err != nil {
			t.Fatal(err)
		}
		p := Point{ConcurrencyRollouts: 96, BatchRollouts: 64, QueueFactor: 2, Utilization: 1.1, StepS: 20}
		var wait sync.WaitGroup
		answers := make([]Estimate, 8)
		for i := range answers {
			wait.Go(func() { answers[i] = shared.Estimate(p) })
		}
		wait.Wait()
		for _, a := range answers {
			if a != answers[0] || !a.Covered {
				t.Errorf("%+v, another goroutine %+v", a, answers[0])
			}
		}
	}
}

// TestEstimateOfExtremes: whatever is valid has finite figures that add up.
func TestEstimateOfExtremes(t *testing.T) {
	fixed, err := workload.LengthSpec{Kind: workload.KindEmpirical, Groups: [][]int{{700}}}.Build()
	if err != nil {
		t.Fatal(err)
	}
	for name, l := range map[string]*workload.Lengths{"tail 90": lengths(t, 1400, 90), "one value": fixed} {
		for _, size := range []int{1, 16, 1000} {
			e, err := NewEstimator(Input{GroupSize: size, Lengths: l})
			if err != nil {
				t.Fatal(err)
			}
			for _, rho := range []float64{1e-6, 0.999999, 1, 1.000001, 1e6} {
				for _, q := range []float64{1, 1.0001, 64, 1e6} {
					for _, load := range []float64{1e-3, 1, 1e5} {
						b := float64(2 * size)
						p := Point{ConcurrencyRollouts: max(load*b, 1), BatchRollouts: b, QueueFactor: q, Utilization: rho, BudgetVersions: 5, Acceptance: 0.5}
						got := e.Estimate(p)
						for what, v := range map[string]float64{"PQS": got.PQS, "IQS": got.IQS, "mean": got.Mean, "period": got.PeriodRelative,
							"dropped": got.DroppedShare, "share": got.ShareAboveBudget, "settling": got.SettlingSteps} {
							if math.IsNaN(v) || math.IsInf(v, 0) || v < -1e-9 {
								t.Errorf("%s, S %d, %+v: %s is %v", name, size, p, what, v)
							}
						}
						if math.Abs(got.PQS+got.IQS-got.Mean) > 1e-9*max(got.Mean, 1) || got.P50 > got.P95 || got.P95 > got.P99 {
							t.Errorf("%s, S %d, %+v: %+v does not add up", name, size, p, got)
						}
					}
				}
			}
		}
	}
}

// TestEstimateOfNonsense: what is not a setting says so.
func TestEstimateOfNonsense(t *testing.T) {
	e, err := NewEstimator(Input{GroupSize: 8, Lengths: lengths(t, 1400, 60)})
	if err != nil {
		t.Fatal(err)
	}
	good := Point{ConcurrencyRollouts: 128, BatchRollouts: 128, Utilization: 1.2}
	if got := e.Estimate(good); !got.Covered {
		t.Fatalf("a good point is not covered: %+v", got)
	}
	for name, spoil := range map[string]func(*Point){
		"no slots":          func(p *Point) { p.ConcurrencyRollouts = 0 },
		"half a group":      func(p *Point) { p.BatchRollouts = 4 },
		"unknown policy":    func(p *Point) { p.Policy = "newest" },
		"NaN":               func(p *Point) { p.Utilization = math.NaN() },
		"negative":          func(p *Point) { p.Utilization = -1 },
		"infinite queue":    func(p *Point) { p.QueueFactor = math.Inf(1) },
		"sync, but no step": func(p *Point) { p.SyncTimeS = 3 },
		"nothing at all":    func(p *Point) { *p = Point{} },
	} {
		p := good
		spoil(&p)
		if got := e.Estimate(p); got.Covered || got.Reason != ReasonInvalid {
			t.Errorf("%s: covered %v, reason %s", name, got.Covered, got.Reason)
		}
	}
}

// BenchmarkEstimate is one point of a search.
func BenchmarkEstimate(b *testing.B) {
	e, err := NewEstimator(Input{GroupSize: 8, Lengths: lengths(b, 1400, 60)})
	if err != nil {
		b.Fatal(err)
	}
	list := points()
	b.ReportAllocs()
	i := 0
	for b.Loop() {
		e.Estimate(list[i%len(list)])
		i++
	}
}
