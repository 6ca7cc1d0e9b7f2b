package main

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/explain/compare"
	"github.com/headway-rl/headway/internal/failure"
)

// unsettling is a queue that wanders over more steps than are measured: ρ = 1 and
// room for many batches.
var unsettling = []string{"--set=modelled.train.utilization=1", "--set=queue.factor=8"}

// A mean that has not settled is refused: exit 1, with what, why and what to set, and
// in JSON without the means; --accept-unsettled gives them, marked.
func TestUnsettledIsRefused(t *testing.T) {
	file := document(t, simulated)
	code, stdout, stderr := headway(t, append([]string{"simulate", file}, unsettling...)...)
	if code != failure.ExitFailure || stdout != "" {
		t.Errorf("code %d, stdout %q", code, stdout)
	}
	for _, want := range []string{"not settled: the mean staleness", "--set steps.measured=", "--accept-unsettled"} {
		if !strings.Contains(stderr, want) {
			t.Errorf("lacks %q: %s", want, stderr)
		}
	}
	code, stdout, stderr = headway(t, append([]string{"simulate", file, "--json"}, unsettling...)...)
	var doc struct {
		Settled   *bool
		Unsettled []struct {
			Figure, Cause, Why string
			MoreSteps          *float64 `json:"more_steps"`
		}
		Staleness struct{ Mean *float64 }
		PQS       struct{ Mean *float64 }
		PeriodS   struct{ Mean *float64 } `json:"period_s"`
		Ledger    struct{ Trained int64 }
	}
	if err := json.Unmarshal([]byte(stdout), &doc); err != nil {
		t.Fatal(err)
	}
	if code != failure.ExitFailure || !strings.Contains(stderr, "not settled") || doc.Settled == nil || *doc.Settled || len(doc.Unsettled) == 0 ||
		doc.Unsettled[0].Figure != "staleness" || doc.Unsettled[0].Why == "" || doc.Staleness.Mean != nil || doc.PQS.Mean != nil || doc.PeriodS.Mean != nil || doc.Ledger.Trained != 250*32 {
		t.Errorf("code %d, %s\n%+v", code, stderr, doc)
	}
	code, stdout, stderr = headway(t, append([]string{"simulate", file, "--accept-unsettled"}, unsettling...)...)
	if code != failure.ExitDone || stderr != "" || !strings.Contains(stdout, "NOT SETTLED") || !strings.Contains(stdout, "staleness, mean") {
		t.Errorf("accepted: code %d, %s\n%s", code, stderr, stdout)
	}
	accepted := first(t, append([]string{"simulate", file, "--accept-unsettled", "--json"}, unsettling...)...)
	if err := json.Unmarshal([]byte(accepted), &doc); err != nil || *doc.Settled || doc.Staleness.Mean == nil {
		t.Errorf("accepted: %v %+v", err, doc)
	}
	if code, _, stderr := headway(t, "simulate", file, "--set", "steps.measured=10"); code != failure.ExitFailure || !strings.Contains(stderr, "at least 20") {
		t.Errorf("ten steps: code %d: %s", code, stderr)
	}
}

// What cannot settle is told why: the workload changes, or the queue is too long.
func TestHopelessIsToldWhy(t *testing.T) {
	for _, test := range []struct {
		want      []string
		arguments []string
	}{
		{[]string{"the workload itself changes until step 3 000 (rollout.drift)", "--set steps.warmup=3000"}, []string{"--set=rollout.drift={steps: 3000, length_factor: 9}"}},
		{[]string{"which no run has", "smaller queue"}, []string{"--set=modelled.train.utilization=1", "--set=queue.factor=20000"}},
		{[]string{"at least 20", "steps.measured=20"}, []string{"--set=steps.measured=3"}},
	} {
		code, _, stderr := headway(t, append([]string{"simulate", document(t, simulated)}, test.arguments...)...)
		for _, want := range test.want {
			if code != failure.ExitFailure || !strings.Contains(stderr, want) {
				t.Errorf("%q: code %d, lacks %q: %s", test.arguments, code, want, stderr)
			}
		}
	}
}

// As many steps as the refusal asks for do settle.
func TestRefusalSaysWhatWorks(t *testing.T) {
	file := document(t, simulated)
	arguments := append([]string{"simulate", file, "--set=queue.factor=4", "--set=steps.measured=100"}, unsettling[0])
	code, _, stderr := headway(t, arguments...)
	_, after, ok := strings.Cut(stderr, "--set steps.measured=")
	if code != failure.ExitFailure || !ok {
		t.Fatalf("code %d: %s", code, stderr)
	}
	number := func(text string) string {
		return text[:strings.IndexFunc(text, func(r rune) bool { return r < '0' || r > '9' })]
	}
	for range 3 { // what a few steps say may have to be said again
		code, _, stderr = headway(t, append(arguments, "--set", "steps.measured="+number(after), "--set", "steps.warmup=null")...)
		if code == failure.ExitDone {
			return
		}
		if _, after, ok = strings.Cut(stderr, "--set steps.measured="); !ok {
			break
		}
	}
	t.Errorf("still refused: %s", stderr)
}

// Without steps.warmup the beginning is left out by itself, for longer where it takes
// longer; with it, the document's word is kept.
func TestAutomaticWarmup(t *testing.T) {
	read := func(arguments ...string) (w struct {
		Steps     int
		Automatic bool
		Tries     int
	}, mean float64) {
		var doc struct {
			Warmup    any
			Staleness struct{ Mean float64 }
			Series    []any
		}
		doc.Warmup = &w
		// The full queue wanders slowly: a shorter window is worth too few independent steps.
		text := first(t, append([]string{"simulate", document(t, simulated), "--json", "--set=steps.measured=2000"}, arguments...)...)
		if err := json.Unmarshal([]byte(text), &doc); err != nil {
			t.Fatal(err)
		}
		if len(doc.Series) != w.Steps+2000 {
			t.Errorf("%q: %d steps with a warm-up of %d", arguments, len(doc.Series), w.Steps)
		}
		return w, doc.Staleness.Mean
	}
	if w, _ := read(); w.Steps != 50 || w.Automatic {
		t.Errorf("the document's warm-up became %+v", w)
	}
	if w, _ := read("--set=steps.warmup=0"); w.Steps != 0 || w.Automatic {
		t.Errorf("a warm-up of 0 became %+v", w)
	}
	short, _ := read("--set=steps.warmup=null")
	if short.Steps != 300 || !short.Automatic || short.Tries != 1 {
		t.Errorf("nothing said: %+v", short)
	}
	// A queue of 100 batches fills for some 99/0.5 steps, and what it holds is as stale.
	full := []string{"--set=modelled.train.utilization=1.5", "--set=queue.factor=100"}
	long, mean := read(append(full, "--set=steps.warmup=null")...)
	if long.Steps <= 300 || !long.Automatic {
		t.Errorf("a queue that fills slowly: %+v", long)
	}
	again, same := read(append(full, "--set=steps.warmup="+jsonNumber(long.Steps))...)
	if again.Automatic || mean != same {
		t.Errorf("mean %g with the same warm-up given, %g with it found", same, mean)
	}
}

func jsonNumber(n int) string {
	text, _ := json.Marshal(n)
	return string(text)
}

// A trace of an automatic warm-up says what it came to, so that a replay measures the
// same window.
func TestAutomaticWarmupInTrace(t *testing.T) {
	path := t.TempDir() + "/trace.ndjson"
	text := first(t, "simulate", document(t, simulated), "--json", "--set=steps.warmup=null", "--trace", path)
	var doc struct{ Staleness struct{ Mean float64 } }
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	recording, _, err := compare.Measure(t.Context(), path, nil)
	if err != nil {
		t.Fatal(err)
	}
	if measured := recording.Measured; measured.Staleness.Mean != doc.Staleness.Mean || doc.Staleness.Mean == 0 {
		t.Errorf("the trace has %g, the simulation said %g", measured.Staleness.Mean, doc.Staleness.Mean)
	}
}

// The interval holds what many other seeds give.
func TestConfidenceIsHonest(t *testing.T) {
	var doc struct {
		Runs []struct {
			Staleness  struct{ Mean float64 }
			PeriodS    struct{ Mean float64 } `json:"period_s"`
			Confidence struct {
				Staleness *[2]float64 `json:"staleness_mean_95"`
				PeriodS   *[2]float64 `json:"period_s_mean_95"`
			}
		}
		Points []struct {
			Staleness struct {
				Mean     float64
				Interval [2]float64 `json:"interval_95"`
			}
		}
	}
	const seeds = 60
	text := first(t, "simulate", document(t, simulated), "--json", "--accept-unsettled", "--seeds=60", "--set=steps.measured=400", "--set=modelled.train.utilization=0.95", "--set=queue.factor=1")
	if err := json.Unmarshal([]byte(text), &doc); err != nil {
		t.Fatal(err)
	}
	staleness, period := 0.0, 0.0
	for _, r := range doc.Runs {
		staleness += r.Staleness.Mean / seeds
		period += r.PeriodS.Mean / seeds
	}
	held, heldPeriod := 0, 0
	for _, r := range doc.Runs {
		if i := r.Confidence.Staleness; i[0] <= staleness && staleness <= i[1] {
			held++
		}
		if i := r.Confidence.PeriodS; i[0] <= period && period <= i[1] {
			heldPeriod++
		}
	}
	// 95 % of 60 are 57; fewer than 51 come by chance once in a thousand times.
	if held < 51 || heldPeriod < 51 {
		t.Errorf("%d and %d of %d intervals hold the mean over all seeds", held, heldPeriod, seeds)
	}
	p := doc.Points[0].Staleness
	if math.Abs(p.Mean-staleness) > 1e-9 || !(p.Interval[0] < p.Mean && p.Mean < p.Interval[1]) || p.Interval[1]-p.Interval[0] > 0.1 {
		t.Errorf("over seeds: %+v", p)
	}
}
