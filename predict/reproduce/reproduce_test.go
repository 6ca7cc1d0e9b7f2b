package reproduce

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/predict/theory"
)

// quick computes a case once for all tests.
var quick = func() func(t *testing.T, name string) Case {
	var mu sync.Mutex
	done := map[string]Case{}
	return func(t *testing.T, name string) Case {
		t.Helper()
		mu.Lock()
		defer mu.Unlock()
		c, ok := done[name]
		if !ok {
			result, err := Run(context.Background(), Options{Quick: true}, name)
			if err != nil {
				t.Fatal(err)
			}
			c = result.Cases[0]
			done[name] = c
		}
		return c
	}
}()

// tables are the cases that need nothing handed in.
var tables = []string{"validation_runs", "batch_size", "queue_factor", "tail_subsets", "length_bias_tailness50", "throughput_matching"}

// Every row of every table is in the output, with what was printed of it.
func TestEveryPublishedRowIsCompared(t *testing.T) {
	measured := map[string]string{"validation_runs": "measured_staleness", "batch_size": "measured_staleness", "queue_factor": "measured_staleness",
		"tail_subsets": "measured_staleness", "length_bias_tailness50": "trained_mean", "throughput_matching": "trainer_samples_per_s"}
	for _, name := range tables {
		table, err := readTable(name)
		if err != nil {
			t.Fatal(err)
		}
		c := quick(t, name)
		if !strings.Contains(c.Source, "202") || c.Title == "" || len(c.Setup) == 0 || len(c.Findings) == 0 {
			t.Errorf("%s: source %q, title %q, %d setup lines, %d findings", name, c.Source, c.Title, len(c.Setup), len(c.Findings))
		}
		for i := range table.rows {
			want, err := table.value(i, measured[name])
			if err != nil {
				t.Fatal(err)
			}
			found := slices.ContainsFunc(c.Quantities, func(q Quantity) bool { v, ok := q.Measured.Value(); return ok && v == want })
			if !found {
				t.Errorf("%s: row %d: the measured %g is nowhere", name, i+1, want)
			}
		}
		for _, q := range c.Quantities {
			if _, measured := q.Measured.Value(); !measured {
				continue
			}
			if _, ours := q.Best().Value(); ours == (q.Missing != "") {
				t.Errorf("%s: %s, %s: a figure of ours %t, missing inputs %q: exactly one must be", name, q.Row, q.Name, ours, q.Missing)
			}
		}
	}
}

// The printed predictions that do not follow from the printed inputs, by how much.
func TestPrintedArithmetic(t *testing.T) {
	want := map[string]float64{ // ours less printed, of every check that differs
		"validation_runs/C 128, B 128, q 2, ρ 1.07, M 1.44/predicted_staleness": 3.2477 - 3.29,
		"validation_runs/C 240, B 120, q 1, ρ 0.86, M 1.42/predicted_staleness": 3.70 - 3.34,
		"validation_runs/C 120, B 120, q 1, ρ 0.67, M 1.42/predicted_staleness": 2.09 - 1.95,
		"queue_factor/C 128, B 128, q 2, ρ 1.07/predicted_iqs":                  1.9019 - 1.93,
	}
	agreed := 0
	for _, name := range []string{"validation_runs", "batch_size", "queue_factor"} {
		for _, check := range quick(t, name).Checks {
			key := name + "/" + check.Row + "/" + check.Name
			difference, differs := want[key]
			if check.Agrees() == differs {
				t.Errorf("%s: printed %g, redone %g: agrees %t, want %t", key, check.Printed, check.Redone, check.Agrees(), !differs)
			}
			if differs && math.Abs(check.Redone-check.Printed-difference) > 1e-3 {
				t.Errorf("%s: differs by %g, want %g", key, check.Redone-check.Printed, difference)
			}
			if check.Agrees() {
				agreed++
			}
			delete(want, key)
		}
	}
	if len(want) > 0 || agreed < 10 {
		t.Errorf("not checked: %v; %d agree", want, agreed)
	}
}

// The closed form column is the published one, from the row's own inputs.
func TestClosedFormIsThePublishedOne(t *testing.T) {
	c := quick(t, "validation_runs")
	want := []float64{120*1.42/240 + 0.63, 128*1.44/(128*1.07) + (4+0.07)/2.14, 240*1.42/120 + 0.86, 1.42 + 0.67}
	for i, w := range want {
		q := c.Quantities[3*i]
		if got, _ := q.Closed.Value(); q.Name != "staleness" || math.Abs(got-w) > 1e-12 {
			t.Errorf("%s: %s %g, want staleness %g", q.Row, q.Name, got, w)
		}
	}
}

// The case: the trainer's wait and both rates within a tenth of what was measured.
func TestThroughputMatchingWithinATenth(t *testing.T) {
	c := quick(t, "throughput_matching")
	seen := 0
	for _, q := range c.Quantities {
		if _, relative := q.Residual(); q.Name == "trainer_samples_per_s" || q.Name == "generator_samples_per_s" || q.Name == "trainer_wait_share" {
			seen++
			if v, ok := relative.Value(); !ok || math.Abs(v) > 0.1 {
				t.Errorf("%s: %s, measured %s: off by %g", q.Name, printInterval(q.Simulated, 3), q.Measured.Format(3), v)
			}
		}
	}
	if seen != 3 {
		t.Errorf("%d of 3 figures are there", seen)
	}
}

// Queue-max must be seen to train on shorter rollouts, the more the smaller its budget,
// and queue-drop not.
func TestLengthBiasHasThePrintedSign(t *testing.T) {
	last := 0.0
	for _, q := range quick(t, "length_bias_tailness50").Quantities {
		if q.Name != "trained/sampled mean" {
			continue
		}
		got := q.Simulated.Mean
		if strings.HasPrefix(q.Row, "drop") {
			if math.Abs(got-1) > 0.02 {
				t.Errorf("%s: ratio %g, want 1", q.Row, got)
			}
			continue
		}
		if got <= last || got > 0.99 {
			t.Errorf("%s: ratio %g after %g: want it to rise with the budget, below 1", q.Row, got, last)
		}
		last = got
	}
}

// What agrees because of what went in is marked, and has no error in the overview.
func TestOverviewSumsEvidenceAlone(t *testing.T) {
	r := Result{Cases: []Case{{Name: "a", Quantities: []Quantity{
		{Row: "fitted", Name: "x", Measured: theory.Known(2), Closed: theory.Known(2), Basis: AssumedToMatch},
		{Row: "compared", Name: "x", Measured: theory.Known(2), Closed: theory.Known(3)},
	}}}}
	want := []string{"a", "x", "1", "50.0 %", "+50.0 %", "compared", "1: " + AssumedToMatch, "0"}
	if got := r.Overview().Rows[0]; !slices.Equal(got, want) {
		t.Errorf("the overview has %q, want %q", got, want)
	}
	for _, name := range []string{"length_bias_tailness50", "throughput_matching"} {
		for _, q := range quick(t, name).Quantities {
			if q.Name == quick(t, name).Quantities[0].Name && q.Basis == "" {
				t.Errorf("%s, %s: %s is taken for evidence", name, q.Row, q.Name)
			}
		}
	}
}

// Scaling every length and the train step by ten leaves staleness as it is, group by
// group, and makes every period ten times as long.
func TestScalingTimeLeavesStaleness(t *testing.T) {
	for _, rho := range []float64{0.6, 1, 1.7} {
		for _, q := range []float64{1, 3} {
			for _, budget := range []int{-1, 3} {
				lengths, err := lognormal(1400, 50, 8080)
				if err != nil {
					t.Fatal(err)
				}
				s := setting{slots: 96, batch: 64, group: 8, queue: q, rho: rho, lengths: lengths, budget: budget}
				once, tenfold := simulated(t, s), setting{}
				tenfold = s
				tenfold.times = 10
				ten := simulated(t, tenfold)
				if !slices.Equal(once.Summary.Staleness.Histogram, ten.Summary.Staleness.Histogram) || once.Summary.Staleness.Mean != ten.Summary.Staleness.Mean {
					t.Errorf("ρ %g, q %g, budget %d: staleness %v, scaled %v", rho, q, budget, once.Summary.Staleness, ten.Summary.Staleness)
				}
				for i := range once.Series {
					if a, b := once.Series[i], ten.Series[i]; a.Staleness != b.Staleness || 10*a.TimeNS != b.TimeNS {
						t.Fatalf("ρ %g, q %g, budget %d: step %d: staleness %g at %d ns, scaled %g at %d", rho, q, budget, i, a.Staleness, a.TimeNS, b.Staleness, b.TimeNS)
					}
				}
			}
		}
	}
}

func simulated(t *testing.T, s setting) sim.Result {
	t.Helper()
	cfg, err := s.simulation(1, 50, 200)
	if err != nil {
		t.Fatal(err)
	}
	result, err := sim.Run(cfg)
	if err != nil {
		t.Fatal(err)
	}
	return result
}

// A second run gives the same bytes, in every form.
func TestASecondRunIsTheSame(t *testing.T) {
	render := func() string {
		result, err := Run(context.Background(), Options{Quick: true}, "queue_factor", "tail_subsets", "figures")
		if err != nil {
			t.Fatal(err)
		}
		var b bytes.Buffer
		text, err := json.Marshal(result)
		if err := errors.Join(err, result.Text(&b), result.Markdown(&b), result.HTML(&b)); err != nil {
			t.Fatal(err)
		}
		return b.String() + string(text)
	}
	if one, two := render(), render(); one != two {
		t.Error("two runs differ")
	}
}

func TestFiguresHaveLinesAndPoints(t *testing.T) {
	drawn, err := figures(context.Background(), Options{Quick: true})
	if err != nil {
		t.Fatal(err)
	}
	want := []string{"staleness-tail", "staleness-queue", "sensitivity-length", "sensitivity-tail", "balance-staleness", "balance-period",
		"frontier-split", "frontier-batch", "frontier-concurrency", "frontier-concurrency-saturated"}
	var got []string
	for _, f := range drawn {
		got = append(got, f.Name)
		lines, points := 0, 0
		for _, c := range f.Curves {
			if len(c.X) != len(c.Y) || len(c.X) == 0 {
				t.Errorf("%s, %s: %d x and %d y", f.Name, c.Name, len(c.X), len(c.Y))
			}
			if c.Points {
				points++
				if len(c.Low) != len(c.X) || len(c.High) != len(c.X) {
					t.Errorf("%s, %s: points without intervals", f.Name, c.Name)
				}
			} else {
				lines++
			}
		}
		if lines == 0 || points == 0 || f.Caption == "" {
			t.Errorf("%s: %d lines, %d sets of points, caption %q", f.Name, lines, points, f.Caption)
		}
		if f.Name == "sensitivity-length" {
			for _, c := range f.Curves {
				for _, y := range c.Y {
					if y != c.Y[0] {
						t.Errorf("%s: staleness changes with the length: %v", c.Name, c.Y)
					}
				}
			}
		}
	}
	if !slices.Equal(got, want) {
		t.Errorf("figures %v, want %v", got, want)
	}
}

func TestAnUnknownCaseIsTheCallersMistake(t *testing.T) {
	_, err := Run(context.Background(), Options{Quick: true}, "validation")
	var unknown *UnknownCase
	if !errors.As(err, &unknown) || !strings.Contains(err.Error(), `did you mean "validation_runs"`) {
		t.Fatalf("%v", err)
	}
}

func TestTablesNameTheirSource(t *testing.T) {
	err := fs.WalkDir(cases, "cases", func(at string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() || !strings.HasSuffix(at, ".csv") {
			return err
		}
		name := strings.TrimSuffix(strings.TrimPrefix(at, "cases/"), ".csv")
		table, err := readTable(name)
		if err == nil && len(table.source) < 20 {
			err = fmt.Errorf("%s: source %q", at, table.source)
		}
		return err
	})
	if err != nil {
		t.Error(err)
	}
	for text, want := range map[string]string{"a,b\n1,2\n": "names the source", "# s\na,b\n": "at least one row", "# s\na,b\n1\n": "record on line"} {
		if _, err := parseTable("t", text); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", text, err, want)
		}
	}
}

func TestResidualsAreOursLessTheMeasured(t *testing.T) {
	q := Quantity{Measured: theory.Known(2), Closed: theory.Known(3), Printed: theory.Known(4), Simulated: Interval{Mean: 2.5, Low: 2.4, High: 2.6, Seeds: 5}}
	a, r := q.Residual()
	if a.Or(0) != 0.5 || r.Or(0) != 0.25 {
		t.Errorf("residual %v, %v", a, r)
	}
	if a, r := q.PrintedResidual(); a.Or(0) != -1 || r.Or(0) != -0.25 {
		t.Errorf("closed less printed %v, %v", a, r)
	}
	q.Simulated = Interval{}
	if v := q.Best().Or(0); v != 3 {
		t.Errorf("without a simulation the best is %g", v)
	}
	q.Closed = theory.Figure{}
	if _, ok := q.Best().Value(); ok {
		t.Error("a figure from nothing")
	}
}

func TestMatchedLengthsHaveTheMultiplier(t *testing.T) {
	for _, tail := range []float64{1.29, 1.42, 1.68} {
		for _, group := range []int{3, 4, 8} {
			lengths, err := matched(tail, group)
			if err != nil {
				t.Fatal(err)
			}
			if got := lengths.TailMultiplier(group); math.Abs(got-tail) > 1e-3 {
				t.Errorf("M %g in groups of %d: %g", tail, group, got)
			}
		}
	}
	if _, err := matched(1.9, 2); err == nil {
		t.Error("two siblings cannot have that multiplier at tailness 100 and below")
	}
	if _, err := cappedMean(31000, 50, 32768); err == nil {
		t.Error("no lognormal of that tailness has a mean that near its cap")
	}
}

func TestIntervalIsStudents(t *testing.T) {
	i := interval([]float64{1, 2, 3})
	if half := 4.302652729911275 / math.Sqrt(3); math.Abs(i.Mean-2) > 1e-12 || math.Abs(i.High-2-half) > 1e-9 || math.Abs(2-i.Low-half) > 1e-9 {
		t.Errorf("%+v", i)
	}
	if i := interval([]float64{1}); !i.Known() || !math.IsNaN(i.Low) {
		t.Errorf("one seed: %+v", i)
	}
	text, err := json.Marshal([]Interval{{}, interval([]float64{1}), interval([]float64{1, 3})})
	if want := `[null,{"mean":1,"interval_95":null,"seeds":1},{"mean":2,`; err != nil || !strings.HasPrefix(string(text), want) {
		t.Errorf("%s, %v", text, err)
	}
}
