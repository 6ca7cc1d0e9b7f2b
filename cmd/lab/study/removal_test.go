package study_test

import (
	"context"
	"errors"
	"math"
	"os"
	"strings"
	"testing"

	"github.com/headway-rl/headway/cmd/lab/study"
	"github.com/headway-rl/headway/observe/attribution"
)

// TestDominantSourceIsTheOneToRemove: on random simulated runs the source that the attribution names is
// the one whose removal by resimulation lowers staleness most, in at least 95 %, ties within 5 %
// included. 200 runs with HEADWAY_LONG; a few without, of which one may differ.
func TestDominantSourceIsTheOneToRemove(t *testing.T) {
	o, want := study.AttributionOptions{Runs: 12, Steps: 200, First: 1}, 11.0/12
	if os.Getenv("HEADWAY_LONG") != "" {
		o, want = study.AttributionOptions{Runs: 200, Steps: 600, First: 1}, 0.95
	}
	a, err := study.RunAttribution(context.Background(), o, nil)
	if err != nil {
		t.Fatal(err)
	}
	var page strings.Builder
	if err := study.AttributionMarkdown(&page, a, study.Provenance{}); err != nil {
		t.Fatal(err)
	}
	t.Logf("%s", page.String())
	if a.Agrees+a.Ties+a.Differs != o.Runs || len(a.Runs) != o.Runs {
		t.Errorf("%d agree, %d tie and %d differ of %d", a.Agrees, a.Ties, a.Differs, o.Runs)
	}
	if a.Share() < want {
		t.Errorf("the named source is the right one in %.3f of the runs, want %.3f", a.Share(), want)
	}
	named := map[string]bool{}
	for _, r := range a.Runs {
		named[r.Attribution.Dominant] = true
		sum := 0.0
		for _, part := range r.Attribution.Parts {
			sum += part.Versions
		}
		if math.Abs(sum-r.Attribution.StalenessMean) > 1e-9*sum {
			t.Errorf("%s: parts add up to %g of %g", r.Case, sum, r.Attribution.StalenessMean)
		}
		if r.Attribution.Little.Mismatch != 0 {
			t.Errorf("%s: %+v", r.Case, r.Attribution.Little)
		}
	}
	if len(named) < 4 {
		t.Errorf("only %v were ever named: the runs are too much alike", named)
	}
}

// A broken-off study says so and keeps to what was finished.
func TestAttributionStudyStops(t *testing.T) {
	ctx, stop := context.WithCancel(context.Background())
	stop()
	if _, err := study.RunAttribution(ctx, study.AttributionOptions{Runs: 3, Steps: 10, First: 1}, nil); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v, want the context's error", err)
	}
}

// The parts of a removal are named in the order of the sources.
func TestRemovalSourcesAreAll(t *testing.T) {
	r, err := study.DrawRemoval(5, 60).Run()
	if err != nil {
		t.Fatal(err)
	}
	if len(r.Attribution.Parts) != int(attribution.Sources) {
		t.Fatalf("%d parts", len(r.Attribution.Parts))
	}
	for s := range attribution.Sources {
		if r.Attribution.Parts[s].Source != s.String() {
			t.Errorf("part %d is %s, want %s", s, r.Attribution.Parts[s].Source, s)
		}
	}
}
