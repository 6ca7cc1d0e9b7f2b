package study

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"math"
	"path/filepath"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
)

// curveThrough is a curve with a point every ten steps.
func curveThrough(accuracies ...float64) Learned {
	var l Learned
	for i, a := range accuracies {
		l.Curve = append(l.Curve, LagPoint{Step: 10 * i, Accuracy: a, Reward: a / 2, KL: 0.01})
	}
	return l
}

func equal64(a, b float64) bool { return math.Abs(a-b) < 1e-9 }

// A curve's figures are those of the line through its points; a curve that ends early goes on
// with what it had.
func TestLearnedFigures(t *testing.T) {
	l := curveThrough(0, 0.4, 0.8, 1)
	for step, want := range map[float64]float64{0: 0, 5: 0.2, 10: 0.4, 25: 0.9, 30: 1, 50: 1} {
		if got := l.accuracyAt(step); !equal64(got, want) {
			t.Errorf("accuracy at step %g is %g, want %g", step, got, want)
		}
	}
	for end, want := range map[float64]float64{10: 0.2, 15: (10*0.2 + 5*0.5) / 15, 30: (2 + 6 + 9) / 30.0, 60: (2 + 6 + 9 + 30) / 60.0} {
		if got := l.area(end); !equal64(got, want) {
			t.Errorf("mean accuracy up to step %g is %g, want %g", end, got, want)
		}
	}
	if s, ok := l.reaches(0.5); !ok || !equal64(s, 12.5) {
		t.Errorf("reaches 0.5 at %g, %v, want 12.5", s, ok)
	}
	if _, ok := l.reaches(1.1); ok || l.best() != 1 {
		t.Errorf("reaches what it does not, or best is %g", l.best())
	}
	if got := l.lastReward(); !equal64(got, 0.5) {
		t.Errorf("reward of the last quarter is %g, want 0.5", got)
	}
	broke := curveThrough(0.3)
	if !math.IsNaN(broke.lastReward()) || !math.IsNaN(broke.mean(func(p *LagPoint) float64 { return p.KL })) || broke.area(40) != 0.3 {
		t.Error("a run that broke before its first point has figures of train steps, or lost its accuracy")
	}
	if a, ok := powerOf([]float64{1, 2, 4, 8}, []float64{3, 3 * math.Pow(2, 1.5), 24, 3 * math.Pow(8, 1.5)}); !ok || !equal64(a, 1.5) {
		t.Errorf("the power of x^1.5 is %g, %v", a, ok)
	}
	if _, ok := powerOf([]float64{1, 2}, []float64{0, 1}); ok {
		t.Error("a power from one point")
	}
}

// Without lag there is one arm a rate; every arm is a document that the config accepts.
func TestStalenessArms(t *testing.T) {
	var names []string
	for _, c := range StalenessCorrections() {
		names = append(names, c.Name)
	}
	o := StalenessOptions{Task: "reverse", Lags: StalenessLags(), Corrections: names, Seeds: 1, Steps: 50}
	arms := stalenessArms(o)
	if want := 1 + 5*len(names) + len(stalenessRates)*(1+len(rateCorrections)) + 2*len(miniCorrections); len(arms) != want {
		t.Errorf("%d arms, want %d", len(arms), want)
	}
	keys := map[string]bool{}
	for _, a := range arms {
		keys[a.key()] = true
		for _, task := range StalenessTasks() {
			l, err := a.lagRun(task, o, 3)
			if err != nil {
				t.Fatal(err)
			}
			c := l.Document.Trainer
			if want := a.correction; want == "icepop" && !(c.Correction.DropOverCap && c.Correction.DropUnderFloor) || want == "dppo" && c.Correction.Penalty != 1e-3 {
				t.Errorf("%s has the correction %+v", a.key(), c.Correction)
			}
			if l.Document.Seed != 3 || l.Lag != a.lag || c.Steps != 50 || c.Minibatches != a.minis || !equal64(c.LearningRate, task.Rate*a.rate) || l.WarmupRate != task.Rate ||
				(l.DriftEvery > 0) != (a.correction == stalenessReference) {
				t.Errorf("%s is the lesson %+v", a.key(), l)
			}
		}
	}
	if len(keys) != len(arms) {
		t.Errorf("%d arms have %d names", len(arms), len(keys))
	}
	if o.Quick = true; len(stalenessArms(o)) != 1+5*len(names) {
		t.Errorf("%d arms of a quick study", len(stalenessArms(o)))
	}
}

// The price of a step falls with lag to that of the train step alone, and the simulated
// staleness is the lag.
func TestStalenessPrices(t *testing.T) {
	hardware, err := prices(t.Context(), []int{0, 1, 4, 16}, 80)
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range hardware {
		for i, p := range h.Prices {
			if math.Abs(p.Staleness-float64(p.Lag)) > 0.05*float64(p.Lag)+1e-9 {
				t.Errorf("%s: staleness %g at lag %d", h.Name, p.Staleness, p.Lag)
			}
			if i > 0 && p.Period > h.Prices[i-1].Period+1e-9 || p.Period < 1-1e-9 {
				t.Errorf("%s: lag %d costs %g train steps, the lag before %+v", h.Name, p.Lag, p.Period, h.Prices)
			}
		}
		// A synchronous step waits for the longest of its rollouts, and takes turns.
		lengths, err := lengthsOf(priceTailness)
		if err != nil {
			t.Fatal(err)
		}
		barrier := lengths.Distribution().MeanMax(stalenessBatch) / lengths.Mean() * h.slow / priceTail
		first, last := h.Prices[0], h.Prices[len(h.Prices)-1]
		for name, got := range map[string][2]float64{
			"apart": {first.Period, barrier + 1}, "colocated": {h.Colocated, barrier + trainShare}, "colocated, at best": {h.ColocatedFaster, barrier*(1-trainShare) + trainShare},
			"apart, with a forward pass": {first.PeriodPass, barrier + 1 + ForwardShare}, "the largest lag, with a forward pass": {last.PeriodPass, 1 + ForwardShare},
		} {
			if math.Abs(got[0]-got[1]) > 0.05*got[1] {
				t.Errorf("%s: a step %s costs %g train steps, the closed form %g", h.Name, name, got[0], got[1])
			}
		}
	}
}

// At equal time an arm that is no worse than chance allows is told of beside the best, a correction pays for
// its forward pass, and the period at which fresh data would do as well is that of equal means.
func TestStalenessEqualTime(t *testing.T) {
	o := StalenessOptions{Task: "reverse", Lags: []int{0, 4}, Corrections: []string{"none", "tis", "decoupled-ppo"}, Seeds: 3, Steps: 40}
	teach := func(_ context.Context, l LagRun) (Learned, error) {
		seed, kind := float64(l.Document.Seed), l.Document.Trainer.Correction.Kind
		less := map[string]float64{"none": 0.2 + 0.001*seed, "tis": 0.001 * (seed - 1.8)}[kind]
		if l.Lag == 0 {
			less = 0
		}
		return curveThrough(0.1, 0.3-less/2, 0.5-less, 0.7-less, 0.9-less), nil
	}
	r, err := Staleness(t.Context(), o, Teacher{Teach: teach})
	if err != nil {
		t.Fatal(err)
	}
	h := &r.Hardware[0]
	best, like := h.best()
	if best.Correction != "tis" || best.Lag != 4 || len(like) != 0 {
		t.Errorf("%s is the best, like it are %d arms", best.Name, len(like))
	}
	for _, a := range h.Arms {
		if pays := a.Correction == "decoupled-ppo"; pays != (a.Pass.Mean > 0.05) || pays != (a.Period > 1.3 && a.Lag > 0) {
			t.Errorf("%s: period %g, of which forward passes cost %g", a.Name, a.Period, a.Pass.Mean)
		}
	}
	period, ok := r.breakEven(h, best)
	if fresh := areas(r.runs[0], h.Time/period); !ok || math.Abs(estimateOf(fresh).Mean-best.Area.Mean) > 1e-6 {
		t.Errorf("fresh data does as well at a period of %g, %v: %v, the best %g", period, ok, fresh, best.Area.Mean)
	}
	for k := range h.Arms { // without its pass decoupled PPO has the same curve
		if a := &h.Arms[k]; a.Correction == "decoupled-ppo" {
			a.areas = slices.Clone(best.areas)
			a.areas[0] -= 0.01
			a.areas[1] += 0.005
		}
	}
	if text := strings.Join(r.timeFindings(), "\n"); !strings.Contains(text, "Not told apart from it: lag 4: decoupled-ppo.") || !strings.Contains(text, "colocated, decoding twice as fast") {
		t.Errorf("found at equal time:\n%s", text)
	}
}

// Where another learning rate turns the order of two corrections around, the study says so.
func TestStalenessTurnsAround(t *testing.T) {
	o := StalenessOptions{Task: "reverse", Lags: []int{0, 2}, Corrections: []string{"ppo-clip", "tis"}, Seeds: 3, Steps: 40}
	teach := func(_ context.Context, l LagRun) (Learned, error) {
		less := 0.01 + 0.001*float64(l.Document.Seed)
		if clip, fast := l.Document.Trainer.Correction.Kind == "ppo-clip", l.Document.Trainer.LearningRate > 3e-3; l.Lag > 0 && clip != fast {
			less *= 10
		}
		return curveThrough(0.1, 0.5-less, 0.9-less), nil
	}
	r, err := Staleness(t.Context(), o, Teacher{Teach: teach})
	if err != nil {
		t.Fatal(err)
	}
	if told := r.turnedAround(); len(told) != 1 || !strings.Contains(told[0], "with tis is 0.0") || !strings.Contains(told[0], "at × 4") {
		t.Errorf("turned around: %q", told)
	}
}

// What the study says of its limits is of the arms and seeds that it has.
func TestStalenessLimits(t *testing.T) {
	for _, o := range []StalenessOptions{
		{Task: "reverse", Lags: []int{0, 2}, Corrections: []string{"none", "dppo"}, Seeds: 3, Steps: 40},
		{Task: "sort", Lags: []int{0, 2, 8}, Corrections: []string{"dppo"}, Seeds: 1, Steps: 40, Quick: true},
	} {
		r, err := Staleness(t.Context(), o, Teacher{Teach: func(context.Context, LagRun) (Learned, error) { return curveThrough(0.1, 0.5, 1), nil }})
		if err != nil {
			t.Fatal(err)
		}
		text := strings.Join(r.limits(), "\n")
		want, not := []string{"3 to 6 tokens", "over 3 seeds", "Of the 6 differences", "4, 2, 0.5, 0.25 times", "lag 0 and 2 alone, with none.", "in 3 of the 3 arms"}, "One seed"
		if o.Task == "sort" {
			want, not = []string{"3 to 4 tokens", "in 3 of the 3 arms"}, "seeds"
		}
		for _, w := range want {
			if !strings.Contains(text, w) || strings.Contains(text, not) {
				t.Errorf("%s: the limits lack %q, or have %q:\n%s", o.Task, w, not, text)
			}
		}
	}
}

// The study runs every lesson once, adds up what they come to, keeps it, and goes on from it.
func TestStaleness(t *testing.T) {
	o := StalenessOptions{Task: "reverse", Lags: []int{0, 2, 8}, Corrections: []string{"none", "ppo-clip"}, Seeds: 3, Steps: 40}
	var taught atomic.Int32
	// Curves that are known: every version of lag and every seed costs a little.
	teach := func(_ context.Context, l LagRun) (Learned, error) {
		taught.Add(1)
		slow := 0.02*float64(l.Lag) + 0.01*float64(l.Document.Seed)
		out := curveThrough(0.1, 0.5-slow, 0.9-slow, 1-slow, 1-slow)
		for i := range out.Curve {
			out.Curve[i].KL = 0.001 * math.Pow(float64(max(l.Lag, 1)), 1.5)
		}
		if l.DriftEvery > 0 {
			for _, lag := range DriftLags {
				out.Drift = append(out.Drift, DriftPoint{Lag: lag, Tokens: 100, KL: float64(lag) * float64(lag)})
			}
		}
		if l.Lag == 8 && l.Document.Trainer.Correction.Kind == "none" && l.Document.Seed == 2 {
			out.Broke, out.Curve = "a gradient", out.Curve[:2]
		}
		return out, nil
	}
	path := filepath.Join(t.TempDir(), "kept.jsonl")
	run := func() StalenessResult {
		kept, err := OpenKept(path, "this one")
		if err != nil {
			t.Fatal(err)
		}
		defer kept.Close()
		r, err := Staleness(t.Context(), o, Teacher{Teach: teach, Kept: kept})
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	r := run()
	runs := int32(len(stalenessArms(o)) * 3)
	if taught.Load() != runs {
		t.Errorf("%d lessons taught, want %d", taught.Load(), runs)
	}
	a := r.find(stalenessArm{8, "ppo-clip", 1, 1})
	if !equal64(a.AreaChange.Mean, -0.16*0.875) || a.AreaChange.Half > 1e-9 || !a.lost() || a.Reached90 != 0 || a.Reached50 != 3 || !equal64(a.Final.Mean, 1-0.16-0.02) {
		t.Errorf("lag 8, ppo-clip: %+v", *a)
	}
	if b := r.find(stalenessArm{8, "none", 1, 1}); b.Broke != 1 || b.Runs != 3 {
		t.Errorf("lag 8, none: %d of %d broke", b.Broke, b.Runs)
	}
	if !equal64(r.DriftExponent.Mean, 2) || len(r.Exponents) != 2 || !equal64(r.Exponents[1].Exponent.Mean, 1.5) {
		t.Errorf("exponents %+v and %+v", r.DriftExponent, r.Exponents)
	}
	for _, h := range r.Hardware {
		if fresh := h.Arms[0]; fresh.Lag != 0 || fresh.Steps >= float64(o.Steps) || fresh.Schedule != scheduleColocated || !equal64(fresh.Steps*h.Colocated, h.Time) || !equal64(fresh.Change.Mean, 0) {
			t.Errorf("%s: fresh data at equal time: %+v", h.Name, fresh)
		}
	}
	first, err := json.Marshal(r)
	if err != nil {
		t.Fatal(err)
	}
	again, err := json.Marshal(run())
	if err != nil || taught.Load() != runs || !bytes.Equal(first, again) {
		t.Errorf("%v: %d lessons taught in all, the kept study is another: %v", err, taught.Load(), !bytes.Equal(first, again))
	}
	if by, err := KeptBy(path); by != "this one" || err != nil {
		t.Errorf("kept by %q, %v", by, err)
	}
	if _, err := OpenKept(path, "another one"); !errors.Is(err, ErrOtherProgram) {
		t.Errorf("another program's runs: %v", err)
	}
	var text, page, table bytes.Buffer
	if err := errors.Join(StalenessMarkdown(&text, r, Provenance{}, "x.html"), StalenessHTML(&page, r, Provenance{}), StalenessCSV(&table, r)); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"the first lag that costs more than its interval is 2", "1 of 3 runs ended early", "seeds 1 to 3", "cannot", "-0.140 ± 0.000 *",
		"lag 0, on-policy × 1, not told apart from × 4 and × 2 and × 0.5 and × 0.25", "lag 8, none × 1, not"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the document lacks %q:\n%s", want, text.String())
		}
	}
	if lines := strings.Count(table.String(), "\n"); lines != 1+int(runs)*5-5*3 {
		t.Errorf("%d lines of curves, want a head and 5 for each of %d runs, 2 for the five that broke", lines, runs)
	}
	if n := strings.Count(page.String(), "<svg"); n < 12 {
		t.Errorf("%d pictures on the page", n)
	}
}

// A lesson that cannot be run ends the study with its name; an unknown task is refused.
func TestStalenessRefuses(t *testing.T) {
	fault := errors.New("no such vocabulary")
	o := StalenessOptions{Task: "reverse", Lags: []int{0}, Corrections: []string{"tis"}, Seeds: 1, Steps: 5, Quick: true}
	_, err := Staleness(t.Context(), o, Teacher{Teach: func(context.Context, LagRun) (Learned, error) { return Learned{}, fault }})
	if !errors.Is(err, fault) || !strings.Contains(err.Error(), "lag 0, on-policy|seed 1") {
		t.Errorf("got %v", err)
	}
	o.Task = "chess"
	if _, err := Staleness(t.Context(), o, Teacher{}); err == nil || !strings.Contains(err.Error(), "chess") {
		t.Errorf("got %v", err)
	}
}

// Every arm of the live comparison is a document.
func TestStalenessLive(t *testing.T) {
	c := StalenessLive(StalenessOptions{Task: "sort", Lags: []int{0, 1, 16}, Corrections: []string{"none", "ppo-clip", "dppo"}}, []uint64{1}, 1)
	documents, err := c.Documents()
	if err != nil {
		t.Fatal(err)
	}
	if len(documents) != 1+2*2 || documents[0].Schedule != "synchronous" || documents[2].Queue.Eta != 16 || documents[2].Trainer.Correction.Kind != "none" {
		t.Errorf("%d arms, the third %+v", len(documents), documents[2].Queue)
	}
}
