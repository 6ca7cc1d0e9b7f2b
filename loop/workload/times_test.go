package workload

import (
	"fmt"
	"math"
	"testing"
)

func buildTimes(t testing.TB, s TimesSpec) *Times {
	t.Helper()
	service, err := s.Build()
	if err != nil {
		t.Fatalf("build %+v: %v", s, err)
	}
	return service
}

// TestServiceMeansMatchDraws compares the closed means, with and without a
// cap, with the mean of many draws.
func TestServiceMeansMatchDraws(t *testing.T) {
	const draws = 1 << 18
	for _, spec := range []TimesSpec{
		{Kind: KindFixed, MeanS: 0.25},
		{Kind: KindLognormal, MeanS: 2, Tailness: 50},
		{Kind: KindLognormal, MeanS: 2, Tailness: 90, CapS: 3},
		{Kind: KindLognormal, MeanS: 2},
		{Kind: KindExponential, MeanS: 0.5},
		{Kind: KindExponential, MeanS: 0.5, CapS: 0.6},
		{Kind: KindEmpirical, Groups: [][]float64{{1}, {2}, {7.5}}},
		{Kind: KindEmpirical, CapS: 5, Groups: [][]float64{{1, 2, 3}, {2}, {7.5, 0}}},
	} {
		service := buildTimes(t, spec)
		src := NewSource(4, StreamEnvironment)
		var sum, square float64
		for i := range draws {
			ns := float64(service.Draw(src, uint64(i), 0, 1))
			sum += ns
			square += ns * ns
		}
		mean := sum / draws
		spread := math.Sqrt(max(square/draws-mean*mean, 0) / draws)
		if math.Abs(mean-service.Mean()) > 5*spread+1 {
			t.Errorf("%+v: drawn mean %.0f ns, computed %.0f ± %.0f", spec, mean, service.Mean(), spread)
		}
	}
}

func TestNoneTakesNoTime(t *testing.T) {
	for _, spec := range []TimesSpec{{}, {Kind: KindNone}, {Kind: KindFixed}, {Kind: KindLognormal, Tailness: 40}} {
		service := buildTimes(t, spec)
		if !service.Zero() || service.Mean() != 0 || service.Draw(NewSource(1, StreamEnvironment), 1, 2, 3) != 0 {
			t.Errorf("%+v takes time", spec)
		}
	}
	var nothing *Times
	if !nothing.Zero() {
		t.Error("a nil service takes time")
	}
}

// TestTimesMatchDraws compares the quadrature of generation plus environment
// with whole groups drawn from both models.
func TestTimesMatchDraws(t *testing.T) {
	const groups, nsPerToken = 1 << 15, 2e7
	lengths := tailed(1400, 50)
	grouped := LengthSpec{Kind: KindEmpirical, Groups: [][]int{{100, 200, 300, 400}, {1000, 1200, 1400, 1600}}}
	for _, c := range []struct {
		name    string
		lengths LengthSpec
		env     TimesSpec
		s       int
	}{
		{"no environment", lengths, TimesSpec{}, 8},
		{"fixed", lengths, TimesSpec{Kind: KindFixed, MeanS: 20}, 8},
		{"lognormal", lengths, TimesSpec{Kind: KindLognormal, MeanS: 28, Tailness: 70}, 8},
		{"lognormal, one rollout a group", lengths, TimesSpec{Kind: KindLognormal, MeanS: 28, Tailness: 70}, 1},
		{"exponential", lengths, TimesSpec{Kind: KindExponential, MeanS: 10}, 16},
		{"measured times", lengths, TimesSpec{Kind: KindEmpirical, Groups: [][]float64{{1}, {50}, {10}}}, 4},
		{"measured groups", grouped, TimesSpec{Kind: KindExponential, MeanS: 10}, 4},
	} {
		l, env := build(t, c.lengths), buildTimes(t, c.env)
		times := NewRolloutTimes(l, nsPerToken, env, c.s)
		tokens, service := NewSource(9, StreamLength), NewSource(9, StreamEnvironment)
		var one, longest, square float64
		for g := range uint64(groups) {
			most := 0.0
			for i := range uint32(c.s) {
				ns := float64(l.Draw(tokens, g, i, 1))*nsPerToken + float64(env.Draw(service, g, i, 1))
				one += ns
				most = max(most, ns)
			}
			longest += most
			square += most * most
		}
		mean := longest / groups
		error := math.Sqrt((square/groups-mean*mean)/groups) / mean
		near(t, c.name+": longest sibling", times.Group.Mean(), mean, 4*error+0.002)
		near(t, c.name+": one rollout", times.Rollout.Mean(), one/groups/float64(c.s), 0.01)
		near(t, c.name+": one rollout, exact", times.Rollout.Mean(), l.Mean()*nsPerToken+env.Mean(), 0.01)
	}
}

// TestTimesAreFixed: the seeded estimate gives the same bytes on every call.
func TestTimesAreFixed(t *testing.T) {
	l := build(t, LengthSpec{Kind: KindEmpirical, Groups: [][]int{{10, 20}, {30, 90}}})
	env := buildTimes(t, TimesSpec{Kind: KindExponential, MeanS: 1})
	if a, b := NewRolloutTimes(l, 1e7, env, 2), NewRolloutTimes(l, 1e7, env, 2); a.Group.Mean() != b.Group.Mean() {
		t.Error("two estimates of the same models differ")
	}
}

func TestAcceptanceRate(t *testing.T) {
	const groups = 1 << 18
	for _, rate := range []float64{0.01, 0.5, 0.9, 1} {
		a, err := NewAcceptance(rate)
		if err != nil {
			t.Fatal(err)
		}
		src := NewSource(6, StreamAcceptance)
		accepted := 0
		for g := range uint64(groups) {
			if a.Accept(src, g) {
				accepted++
			}
		}
		if got, spread := float64(accepted)/groups, math.Sqrt(rate*(1-rate)/groups); math.Abs(got-rate) > 5*spread {
			t.Errorf("rate %g: accepted a share of %g", rate, got)
		}
	}
	for _, rate := range []float64{0, -1, 1.01, math.NaN(), math.Inf(1)} {
		if _, err := NewAcceptance(rate); err == nil {
			t.Errorf("a rate of %v is accepted", rate)
		}
	}
}

func TestDistribution(t *testing.T) {
	d, err := NewDistribution([]float64{3, 1, 3, 2}, []float64{1, 2, 1, 4})
	if err != nil {
		t.Fatal(err)
	}
	got := fmt.Sprintf("%d values, mean %g, square %g, quartiles %g %g %g, P(<=2) %g, P(<=0) %g",
		d.Len(), d.Mean(), d.MeanSquare(), d.Quantile(0.25), d.Quantile(0.5), d.Quantile(1), d.CDF(2.5), d.CDF(0))
	if want := "3 values, mean 2, square 4.5, quartiles 1 2 3, P(<=2) 0.75, P(<=0) 0"; got != want {
		t.Errorf("got  %s\nwant %s", got, want)
	}
	// E[max·sum] of two draws, by hand: Σ p(x)p(y)·max(x,y)·(x+y).
	byHand := 0.0
	for i := range d.Len() {
		for j := range d.Len() {
			x, p := d.At(i)
			y, q := d.At(j)
			byHand += p * q * max(x, y) * (x + y)
		}
	}
	near(t, "E[max·sum]", d.MeanMaxSum(2), byHand, 1e-12)
	near(t, "scaled", d.Scale(3).MeanMax(5), 3*d.MeanMax(5), 1e-12)
	for i := range d.Len() {
		v, _ := d.At(i)
		for _, x := range []float64{v * 0.3, math.Nextafter(v*0.3, 0)} {
			if got, want := d.ScaledCDF(0.3, x), d.Scale(0.3).CDF(x); got != want {
				t.Errorf("P(0.3·X <= %g) is %g, scaled %g", x, got, want)
			}
		}
	}
	for _, c := range []struct{ values, weights []float64 }{
		{nil, nil}, {[]float64{1}, []float64{0}}, {[]float64{1}, []float64{-1}},
		{[]float64{math.NaN()}, []float64{1}}, {[]float64{1, 2}, []float64{1}}, {[]float64{1}, []float64{math.Inf(1)}},
	} {
		if _, err := NewDistribution(c.values, c.weights); err == nil {
			t.Errorf("values %v with weights %v are accepted", c.values, c.weights)
		}
	}
}

// TestThinningKeepsMeansAndMaxima: the cells that convolution works on lose
// nothing that a group's longest sibling needs.
func TestThinningKeepsMeansAndMaxima(t *testing.T) {
	for _, tailness := range []float64{30, 50, 90} {
		full := build(t, tailed(1400, tailness)).Distribution()
		thin := full.thinned(timeCells)
		if thin.Len() > 3*timeCells {
			t.Errorf("tailness %g: thinned to %d values", tailness, thin.Len())
		}
		near(t, "mean", thin.Mean(), full.Mean(), 1e-9)
		for _, s := range []int{4, 16, 128} {
			near(t, fmt.Sprintf("tailness %g, max of %d", tailness, s), thin.MeanMax(s), full.MeanMax(s), 1e-3)
		}
	}
}
