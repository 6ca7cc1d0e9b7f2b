package study

import (
	"bytes"
	"encoding/csv"
	"encoding/json"
	"math"
	"strings"
	"testing"
)

// quick is the corner of the study that tests make.
func quick(t *testing.T) HoldResult {
	t.Helper()
	r, err := Hold(t.Context(), HoldOptions{Seeds: 2, Warmup: 50, Measured: 120, Quick: true}, Simulator{})
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func TestQuickHold(t *testing.T) {
	r := quick(t)
	if len(r.Grid) != 2*31 || len(r.Claims) < 10 || len(r.IdeaRows) == 0 {
		t.Fatalf("%d rows, %d claims, %d rows of ideas", len(r.Grid), len(r.Claims), len(r.IdeaRows))
	}
	for _, row := range r.Grid {
		if row.Failed != "" || !(row.Staleness.Mean > 0) || !(row.Period.Mean >= 0.999) || math.Abs(row.Length.Mean-1) > 0.05 {
			t.Errorf("%s in %s: %+v", row.Rule, row.Cell.name(), row)
		}
		switch row.Rule {
		case Drop(2).Name:
			if row.VersusQ2.Staleness.Mean != 1 || row.VersusQ2.Staleness.Half != 0 {
				t.Errorf("queue-drop beside itself: %v", row.VersusQ2.Staleness)
			}
		case best().Name:
			if row.VersusQ2.Staleness.Mean > 0.97 {
				t.Errorf("hold and newest first against queue-drop in %s: %v", row.Cell.name(), row.VersusQ2.Staleness)
			}
		}
	}
	var text bytes.Buffer
	if err := HoldMarkdown(&text, r, Provenance{Command: "go run ./cmd/lab study hold"}); err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"no result", "Newest first, q = 2", "What else was tried", "go run ./cmd/lab study hold"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("the document lacks %q", want)
		}
	}
	if strings.Contains(text.String(), "NaN") {
		t.Error("a figure that is no number is printed")
	}
	for number, line := range strings.Split(text.String(), "\n") {
		if strings.HasPrefix(line, "|") && strings.Count(line, "|") < 3 {
			t.Errorf("line %d is no row of a table: %s", number+1, line)
		}
	}
	text.Reset()
	if err := IdeasMarkdown(&text, r, Provenance{}); err != nil || !strings.Contains(text.String(), "drop q=2 newest hold 0.3") {
		t.Errorf("%v: the document of ideas lacks the rule", err)
	}
	text.Reset()
	if err := HoldCSV(&text, r); err != nil {
		t.Fatal(err)
	}
	lines, err := csv.NewReader(&text).ReadAll()
	if err != nil || len(lines) != 1+len(r.Grid)+len(r.Bias)+len(r.IdeaRows) {
		t.Errorf("%v, %d lines", err, len(lines))
	}
	if _, err := json.Marshal(r); err != nil {
		t.Error(err)
	}
}

// The verdict follows from the interval and the tolerance.
func TestVerdicts(t *testing.T) {
	for _, c := range []struct {
		printed, tolerance, mean, half float64
		atMost                         bool
		want                           string
	}{
		{-6, 1.5, -6.9, 0.1, false, "confirmed"},
		{-6, 1.5, -8.2, 0.1, false, "refuted"},
		{-6, 1.5, -7.5, 0.3, false, "open"},
		{2, 0.1, 1.6, 0.1, true, "confirmed"},
		{2, 0.1, -1.6, 0.1, true, "confirmed"},
		{2, 0.1, 2.6, 0.1, true, "refuted"},
		{2, 0.1, 2.1, 0.2, true, "open"},
		{1, 0.1, math.NaN(), math.NaN(), false, "open"},
		{1, 0.1, 1, math.NaN(), false, "confirmed"},
	} {
		claim := Claim{Printed: c.printed, Tolerance: c.tolerance, Measured: Estimate{c.mean, c.half}, AtMost: c.atMost}.judged()
		if claim.Verdict != c.want {
			t.Errorf("%+v: %s", c, claim.Verdict)
		}
	}
}

// Student's interval of two values: half their difference times 12.706.
func TestEstimates(t *testing.T) {
	e := estimateOf([]float64{1, 2})
	if want := 12.7062 * 0.5; e.Mean != 1.5 || math.Abs(e.Half-want) > 1e-3 {
		t.Errorf("%v, want 1.5 ± %g", e, want)
	}
	if e := estimateOf([]float64{3}); e.Mean != 3 || !math.IsNaN(e.Half) || e.print(1) != "3.0" {
		t.Errorf("one seed: %v", e)
	}
	if text, err := json.Marshal(estimateOf(nil)); err != nil || string(text) != `{"mean":null,"interval_95":null}` {
		t.Errorf("%s %v", text, err)
	}
	ratio := point{{Staleness: 2}, {Staleness: 6}}.ratio(point{{Staleness: 1}, {Staleness: 2}}, staleness)
	if ratio.Mean != 2.5 {
		t.Errorf("ratio %v, want the mean of 2 and 3", ratio)
	}
}

// A rule is on the frontier unless an unbiased one of its cell beats it by more than noise.
func TestFrontier(t *testing.T) {
	at := func(staleness, period, length float64) Row {
		return Row{Cell: Cell{Rho: 1}, Staleness: Estimate{Mean: staleness}, Period: Estimate{Mean: period}, Length: Estimate{Mean: length}}
	}
	rows := []Row{at(5, 1, 1), at(4, 1, 1), at(3, 1, 0.9), at(3.9, 1.02, 1), at(4.001, 1, 1), at(4.5, 1.05, 1)}
	rows = append(rows, Row{Cell: Cell{Rho: 2}, Staleness: Estimate{Mean: 9}, Period: Estimate{Mean: 9}, Length: Estimate{Mean: 1}})
	markFrontier(rows)
	for i, want := range []bool{false, true, false, true, true, false, true} {
		if rows[i].Frontier != want {
			t.Errorf("row %d: on the frontier %v, want %v", i, rows[i].Frontier, want)
		}
	}
}
