package theory

import (
	"errors"
	"fmt"
	"math"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/headway-rl/headway/loop/workload"
)

func lengths(t testing.TB, mean, tailness float64) *workload.Lengths {
	t.Helper()
	l, err := workload.LengthSpec{
		Kind: workload.KindLognormal, MeanTokens: mean, Tailness: tailness, CapTokens: int(2.2*mean + 100*tailness),
	}.Build()
	if err != nil {
		t.Fatal(err)
	}
	return l
}

func service(t testing.TB, spec workload.TimesSpec) *workload.Times {
	t.Helper()
	s, err := spec.Build()
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPredict(t testing.TB, in Input) Prediction {
	t.Helper()
	p, err := Predict(in)
	if err != nil {
		t.Fatalf("%+v: %v", in, err)
	}
	return p
}

// TestTables renders the tables of testdata: the grid a reader wants to see
// whole, and how single settings are answered.
func TestTables(t *testing.T) {
	datadriven.Walk(t, "testdata", func(t *testing.T, path string) {
		if strings.Contains(filepath.ToSlash(path), "/fuzz/") {
			return // inputs of a fuzz target
		}
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			switch d.Cmd {
			case "grid":
				return gridCase(t, d)
			case "multipliers":
				return multiplierCase(t)
			case "predict":
				return predictCase(t, d)
			}
			t.Fatalf("unknown command %s", d.Cmd)
			return ""
		})
	})
}

// gridCase prints ρ × q for one tailness.
func gridCase(t *testing.T, d *datadriven.TestData) string {
	var tailness, load float64
	d.ScanArgs(t, "tailness", &tailness)
	d.ScanArgs(t, "load", &load) // C/B
	l := lengths(t, 1400, tailness)
	var b strings.Builder
	fmt.Fprintf(&b, "%5s %3s │ %6s %6s %9s %4s %4s %4s │ %6s %9s │ %s\n", "ρ", "q", "pqs", "iqs", "staleness", "p50", "p95", "p99", "T/step", "corrected", "T/step")
	for _, rho := range []float64{0.5, 0.7, 0.9, 1, 1.1, 1.3, 1.5, 3} {
		for _, q := range []float64{1, 2, 4} {
			p := mustPredict(t, Input{
				ConcurrencyRollouts: 128 * load, BatchRollouts: 128, GroupSize: 8, QueueFactor: q, Utilization: rho, Lengths: l,
			})
			fmt.Fprintf(&b, "%5.2f %3.0f │ %6s %6s %9s %4s %4s %4s │ %6s %9s │ %s\n", rho, q,
				p.PQS.Format(2), p.IQS.Format(2), p.Staleness.Mean.Format(2),
				p.Staleness.P50.Format(0), p.Staleness.P95.Format(0), p.Staleness.P99.Format(0),
				p.Period.RelativeToStep.Format(3), p.Corrected.Mean.Format(2), p.Corrected.Period.RelativeToStep.Format(3))
		}
	}
	return b.String()
}

// multiplierCase prints M by tailness and group size.
func multiplierCase(t *testing.T) string {
	var b strings.Builder
	fmt.Fprintf(&b, "tailness │ E[L]    S=4    S=8    S=16   batch of 128\n")
	for _, tailness := range []float64{0, 30, 50, 70, 90} {
		l := lengths(t, 1400, tailness)
		fmt.Fprintf(&b, "%8.0f │ %.1f  %.3f  %.3f  %.3f  %.2f\n", tailness, l.Mean(),
			l.TailMultiplier(4), l.TailMultiplier(8), l.TailMultiplier(16), l.TailMultiplier(128))
	}
	return b.String()
}

// predictCase predicts one setting given as name=value arguments.
func predictCase(t *testing.T, d *datadriven.TestData) string {
	in := Input{ConcurrencyRollouts: 128, BatchRollouts: 128, GroupSize: 8, QueueFactor: 2, Utilization: 1.3}
	tailness := 50.0
	number := func(text string) float64 {
		var v float64
		if _, err := fmt.Sscan(text, &v); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return v
	}
	for _, arg := range d.CmdArgs {
		v := arg.Vals[0]
		switch arg.Key {
		case "C":
			in.ConcurrencyRollouts = number(v)
		case "B":
			in.BatchRollouts = number(v)
		case "S":
			in.GroupSize = int(number(v))
		case "q":
			in.QueueFactor = number(v)
		case "rho":
			in.Utilization = number(v)
		case "M":
			in.TailMultiplier = number(v)
			tailness = -1
		case "tailness":
			tailness = number(v)
		case "policy":
			in.Policy = v
		case "budget":
			in.MaxStaleness = int(number(v))
		case "select":
			in.Select = v
		case "start":
			in.Start = v
		case "acceptance":
			in.Acceptance = number(v)
		case "step":
			in.StepS = number(v)
		case "sync":
			in.SyncTimeS = number(v)
		case "mode":
			in.SyncMode = v
		case "trainer":
			in.SyncTrainer = v
		case "every":
			in.SyncEvery = int(number(v))
		case "levers": // printed below
		case "env":
			in.Environment = service(t, workload.TimesSpec{Kind: workload.KindLognormal, MeanS: number(v), Tailness: 50})
		default:
			t.Fatalf("unknown argument %s", arg.Key)
		}
	}
	if tailness >= 0 {
		in.Lengths = lengths(t, 1400, tailness)
	}
	p, err := Predict(in)
	if err != nil {
		var field *workload.FieldError
		if !errors.As(err, &field) {
			t.Errorf("%v is not a FieldError", err)
		}
		return "refused: " + err.Error() + "\n"
	}
	var b strings.Builder
	fmt.Fprintf(&b, "%s ρ %.3f · pqs %s + iqs %s = %s · p50 %s p95 %s p99 %s · tokens %s · T/step %s · corrected %s, T/step %s · dominant %s\n",
		p.Regime, p.Utilization, p.PQS.Format(2), p.IQS.Format(2), p.Staleness.Mean.Format(2),
		p.Staleness.P50.Format(0), p.Staleness.P95.Format(0), p.Staleness.P99.Format(0), p.TokenStaleness.Format(2),
		p.Period.RelativeToStep.Format(3), p.Corrected.Mean.Format(2), p.Corrected.Period.RelativeToStep.Format(3), p.Dominant)
	if d.HasArg("levers") {
		for _, l := range p.Levers {
			fmt.Fprintf(&b, "lever %s: %s: staleness %s, corrected %s, period × %s (fixed: %s)\n", l.Name, l.Change, l.StalenessMean.Format(2), l.CorrectedMean.Format(2), l.PeriodRatio.Format(2), l.HoldsFixed)
		}
	}
	for _, w := range p.Warnings {
		fmt.Fprintf(&b, "warning: %s\n", w)
	}
	return b.String()
}

// TestPredictionIsTheClosedForm: plain settings give exactly the published
// formulas.
func TestPredictionIsTheClosedForm(t *testing.T) {
	for _, rho := range []float64{0.4, 0.9, 1, 1.07, 2} {
		p := mustPredict(t, Input{ConcurrencyRollouts: 120, BatchRollouts: 240, GroupSize: 8, QueueFactor: 2, Utilization: rho, TailMultiplier: 1.42})
		near(t, "PQS", p.PQS.Or(-1), 120*1.42/(240*max(1, rho)), 1e-12)
		near(t, "IQS", p.IQS.Or(-1), InQueue(2, rho), 1e-12)
		near(t, "sum", p.Staleness.Mean.Or(-1), p.PQS.Or(-1)+p.IQS.Or(-1), 1e-12)
		near(t, "period", p.Period.RelativeToStep.Or(-1), max(1, 1/rho), 1e-12)
		near(t, "corrected sum", p.Corrected.Mean.Or(-1), p.Corrected.PQS.Or(-1)+p.Corrected.IQS.Or(-1), 1e-12)
	}
}

// TestBareMultiplierIsFound: the assumed lognormal has the multiplier asked for.
func TestBareMultiplierIsFound(t *testing.T) {
	for _, s := range []int{2, 4, 8, 64} {
		for _, m := range []float64{1, 1.05, 1.42, 1.9, 2.8, 6, 20} {
			if m >= 0.95*float64(s) {
				continue
			}
			shape, err := assumedTail(m, s)
			if err != nil {
				t.Errorf("M=%g S=%d: %v", m, s, err)
				continue
			}
			near(t, "mean", shape.rollout.Mean(), 1, 1e-6)
			near(t, "M", shape.group.Mean(), m, 1e-9)
			near(t, "M of the shape", shape.rollout.MeanMax(s), m, 1e-6)
			if most := mustPredict(t, Input{ConcurrencyRollouts: 64, BatchRollouts: 64, GroupSize: s, Utilization: 0.5, TailMultiplier: float64(s)}); most.PQS.Or(-1) != float64(s) {
				t.Errorf("S=%d: with one long rollout a group PQS is %v, want S", s, most.PQS)
			}
		}
	}
}

// TestScaleInvariance: scaling every length and the train step changes nothing
// but seconds; so does counting slots and batches in twice as many rollouts.
func TestScaleInvariance(t *testing.T) {
	for _, tailness := range []float64{30, 70} {
		for _, rho := range []float64{0.6, 1.4} {
			base := Input{ConcurrencyRollouts: 256, BatchRollouts: 128, GroupSize: 8, QueueFactor: 2, Utilization: rho, StepS: 10}
			base.Lengths = lengths(t, 1400, tailness)
			scaled := base
			l, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 4200, Tailness: tailness, CapTokens: 3 * base.Lengths.Quantile(1)}.Build()
			if err != nil {
				t.Fatal(err)
			}
			scaled.Lengths, scaled.StepS = l, 30
			a, b := mustPredict(t, base), mustPredict(t, scaled)
			near(t, "staleness", b.Staleness.Mean.Or(-1), a.Staleness.Mean.Or(-2), 1e-3)
			near(t, "corrected", b.Corrected.Mean.Or(-1), a.Corrected.Mean.Or(-2), 1e-3)
			near(t, "token staleness", b.TokenStaleness.Or(-1), a.TokenStaleness.Or(-2), 1e-3)
			near(t, "period", b.Period.S.Or(-1), 3*a.Period.S.Or(-2), 1e-12)
		}
	}
}

// TestDistributionAgreesWithTheMean: below ρ = 1 the wait is uniform over one
// period and E⌊·⌋ is the closed form exactly; the CDF sums to the same mean.
func TestDistributionAgreesWithTheMean(t *testing.T) {
	for _, rho := range []float64{0.3, 0.5, 1.5, 3} {
		p := mustPredict(t, Input{ConcurrencyRollouts: 256, BatchRollouts: 128, GroupSize: 4, QueueFactor: 2, Utilization: rho, Lengths: lengths(t, 1400, 60)})
		sum := 0.0
		for k := range 200 {
			sum += p.Distribution.ShareAbove(k)
		}
		near(t, "Σ P(S>k)", sum, meanOf(p.Distribution), 1e-9)
		if rho < 0.4 {
			near(t, "mean", meanOf(p.Distribution), p.Staleness.Mean.Or(-1), 5e-3)
		}
		for _, q := range []float64{0.05, 0.5, 0.95, 0.999} {
			k := p.Distribution.Quantile(q)
			if p.Distribution.CDF(k) < q-1e-6 || p.Distribution.CDF(k-1) >= q {
				t.Errorf("ρ=%g: quantile %g is %d with CDF %g, below it %g", rho, q, k, p.Distribution.CDF(k), p.Distribution.CDF(k-1))
			}
		}
	}
}

// TestPublishedRows: the printed sums of cases/ follow from the printed inputs
// up to their rounding, where they say M (up to 0.37 off).
func TestPublishedRows(t *testing.T) {
	for _, c := range []struct{ concurrency, batch, q, rho, tail, printed float64 }{
		{120, 240, 2, 0.63, 1.42, 1.34},
		{128, 128, 2, 1.07, 1.44, 3.29},
		{240, 120, 1, 0.86, 1.42, 3.34},
		{120, 120, 1, 0.67, 1.42, 1.95},
	} {
		p := mustPredict(t, Input{ConcurrencyRollouts: c.concurrency, BatchRollouts: c.batch, GroupSize: 4, QueueFactor: c.q, Utilization: c.rho, TailMultiplier: c.tail})
		if got := p.Staleness.Mean.Or(-1); math.Abs(got-c.printed) > 0.37 {
			t.Errorf("C=%g B=%g q=%g ρ=%g: %.3f, printed %.2f", c.concurrency, c.batch, c.q, c.rho, got, c.printed)
		}
	}
}

// TestBarrier: with C ≥ B the barrier is the longest of the batch; with one
// slot it is the sum; in between at least both bounds.
func TestBarrier(t *testing.T) {
	l := lengths(t, 1400, 50)
	one := l.Distribution().Scale(1 / l.Mean())
	group := one.Max(8)
	covered, exact := Barrier(one, group, 128, 128, 8)
	if !exact {
		t.Error("a covered batch is not exact")
	}
	near(t, "covered", covered, l.TailMultiplier(128), 1e-9)
	serial, _ := Barrier(one, group, 1, 128, 8)
	near(t, "serial", serial, 128, 0.01)
	half, exact := Barrier(one, group, 64, 128, 8)
	if exact || half < 2 || half > 2+covered {
		t.Errorf("half the slots: barrier %.3f (exact %v), want between the work 2 and the work plus the longest", half, exact)
	}
}

// TestSynchronousIsNeverStale: its price is the barrier.
func TestSynchronousIsNeverStale(t *testing.T) {
	p := mustPredict(t, Input{ConcurrencyRollouts: 128, BatchRollouts: 128, GroupSize: 8, Utilization: 1, Lengths: lengths(t, 1400, 50), Policy: PolicySynchronous, StepS: 10, SyncTimeS: 1})
	if p.Staleness.Mean.Or(-1) != 0 || p.Staleness.P99.Or(-1) != 0 {
		t.Errorf("staleness %v", p.Staleness)
	}
	near(t, "period", p.Period.S.Or(-1), 10*lengths(t, 1400, 50).TailMultiplier(128)+10+1, 1e-9)
}

// FuzzPredict: any input is either refused by a FieldError, or every figure in
// the answer is finite, non-negative and adds up.
func FuzzPredict(f *testing.F) {
	f.Add(128.0, 128.0, 8, 2.0, 1.3, 2.2, 1.0, 0.0, 10.0, uint8(0))
	f.Add(1.0, 1.0, 1, 1.0, 1.0, 1.0, 0.5, 3.0, 2.0, uint8(7))
	f.Add(1e8, 3.0, 2, 1e6, 1e-6, 1.999, 1e-6, 1e9, 1e-9, uint8(133))
	f.Add(-1.0, math.NaN(), -3, math.Inf(1), 0.0, 0.5, 2.0, -1.0, 0.0, uint8(255))
	f.Fuzz(func(t *testing.T, c, b float64, s int, q, rho, m, acceptance, sync, step float64, pick uint8) {
		in := Input{ConcurrencyRollouts: c, BatchRollouts: b, GroupSize: s, QueueFactor: q, Utilization: rho,
			TailMultiplier: m, Acceptance: acceptance, SyncTimeS: sync, StepS: step,
			Policy:      []string{PolicyDrop, PolicyMax, PolicyBlock, PolicySynchronous}[pick&3],
			SyncMode:    []string{SyncInFlight, SyncPause, SyncDrain, SyncRestart}[pick>>2&3],
			SyncTrainer: []string{TrainerFree, TrainerBlocked}[pick>>4&1],
			Select:      []string{SelectOldest, SelectNewest}[pick>>5&1],
			SyncEvery:   1 + int(pick>>6), MaxStaleness: 3, BudgetVersions: 4,
		}
		p, err := Predict(in)
		if err != nil {
			var field *workload.FieldError
			if !errors.As(err, &field) {
				t.Errorf("%+v: %v is not a FieldError", in, err)
			}
			return
		}
		figures := map[string]Figure{"pqs": p.PQS, "iqs": p.IQS, "mean": p.Staleness.Mean, "p50": p.Staleness.P50, "p99": p.Staleness.P99,
			"tokens": p.TokenStaleness, "period": p.Period.RelativeToStep, "period_s": p.Period.S, "share": p.Staleness.ShareAboveBudget,
			"corrected": p.Corrected.Mean, "corrected period": p.Corrected.Period.RelativeToStep}
		for _, l := range p.Levers {
			figures["staleness of "+l.Change] = l.StalenessMean
			figures["period of "+l.Change] = l.PeriodRatio
		}
		for name, figure := range figures {
			if v := figure.Or(0); math.IsNaN(v) || math.IsInf(v, 0) || v < -1e-9 {
				t.Errorf("%+v: %s is %v", in, name, v)
			}
		}
		if mean, known := p.Staleness.Mean.Value(); known {
			near(t, "PQS + IQS", p.PQS.Or(-1)+p.IQS.Or(-1), mean, 1e-9)
		} else if len(p.Warnings) == 0 {
			t.Errorf("%+v: staleness is unknown without a warning", in)
		}
	})
}

// meanOf is the mean of a distribution of staleness, as an estimate sums it.
func meanOf(d *Distribution) float64 {
	var e Estimate
	d.sum(&e)
	return e.Mean
}
