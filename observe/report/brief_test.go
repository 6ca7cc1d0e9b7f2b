package report

import (
	"fmt"
	"strings"
	"testing"
	"unicode/utf8"
)

// A brief report fits a screen of 80 columns, breaks no word, and begins with what was predicted and measured.
func TestBriefFitsAScreen(t *testing.T) {
	run := Run{
		Summary: strings.Repeat("reverse trained by GRPO, asynchronous, 600 train steps in 9 s. ", 3),
		Headline: []Row{{Name: "tokens wasted", Predicted: "0.0 %", Value: "0.1 %", Note: "made and never trained"}, {Name: "staleness, mean", Predicted: "1.00", Value: "0.98"},
			{Name: "engines idle", Value: "47.0 %"}},
		Health: "2 290 rollouts/s made -> 2 290/s trained; the trainer binds: more rollouts would only wait, or be dropped",
		Files:  []Row{{Name: "report", Value: "runs/first/report.html"}}, Next: []Row{{Name: "next", Value: "headway diagnose runs/first"}},
	}
	for i := range 7 {
		run.Notes = append(run.Notes, fmt.Sprintf("note %d says something at length that does not fit one line of eighty columns, whatever the reader's window", i))
	}
	var text strings.Builder
	if err := Brief(&text, run); err != nil {
		t.Fatal(err)
	}
	lines := strings.Split(strings.TrimSuffix(text.String(), "\n"), "\n")
	if len(lines) > 24 {
		t.Errorf("%d lines, want a screen of 24:\n%s", len(lines), text.String())
	}
	words := map[string]bool{}
	for _, line := range lines {
		if utf8.RuneCountInString(line) > 80 {
			t.Errorf("wider than 80 columns: %q", line)
		}
		for _, word := range strings.Fields(line) {
			words[word] = true
		}
	}
	for _, word := range strings.Fields(run.Summary + " " + run.Health + " " + run.Notes[0]) {
		if !words[word] {
			t.Errorf("%q is broken or missing:\n%s", word, text.String())
		}
	}
	for _, want := range []string{"predicted  measured\n", "tokens wasted        0.0 %     0.1 %  made and never trained\n", "engines idle                  47.0 %\n", "! 4 more notes in the report\n"} {
		if !strings.Contains(text.String(), want) {
			t.Errorf("lacks %q:\n%s", want, text.String())
		}
	}
}

// A long series is drawn as means, and a short one as it is.
func TestLongSeriesAreSmoothed(t *testing.T) {
	series := Series{}
	for i := range 600 {
		series.X, series.Y = append(series.X, float64(i+1)), append(series.Y, float64(i%5))
	}
	series.Y[0] = Unknown
	got := series.smoothed()
	if len(got.X) != 60 || got.X[0] != 10 || got.X[59] != 600 || got.Y[0] != 20./9 || got.Y[1] != 2 {
		t.Errorf("%d points, the first (%g, %g), (%g, %g)", len(got.X), got.X[0], got.Y[0], got.X[1], got.Y[1])
	}
	short := Series{X: series.X[:60], Y: series.Y[:60]}
	if got := short.smoothed(); len(got.X) != 60 || got.X[0] != 1 {
		t.Errorf("a series of 60 points has %d, from %g", len(got.X), got.X[0])
	}
}
