package diagnosis_test

import (
	"strings"
	"testing"
)

// An engine that is lost again and again is named, with how long it was gone.
func TestEnginesThatAreLostAreNamed(t *testing.T) {
	report := (&rig{stepS: 1.1, untilS: 300, loses: []float64{100, 150, 200}, back: []float64{140, 190, 240}}).judged(t)
	f := found(report, "engines_lost")
	if f == nil || f.Title != "Engines were lost 3 times." || !strings.Contains(said(f), "b 3 times, gone for 120 s") || f.Severity != "defect" {
		t.Errorf("%+v", f)
	}
}

// An engine that is slower than the others is what groups wait for: the tail is its doing.
func TestASlowEngineIsNamed(t *testing.T) {
	for _, slow := range []float64{1, 4} {
		report := (&rig{stepS: 1.1, untilS: 400, slow: slow}).judged(t)
		f := found(report, "engine_slow")
		if slow == 1 {
			if f != nil {
				t.Errorf("engines that are alike: %+v", f)
			}
			continue
		}
		if f == nil || report.Findings[0].Code != "engine_slow" || !strings.Contains(said(f), "b takes 80") || !strings.Contains(said(f), "usual is 20") {
			t.Errorf("%+v", report.Findings)
		}
	}
}

// An engine that was lost before a restart joins by the restart, and is gone no more.
func TestLostBeforeARestart(t *testing.T) {
	report := (&rig{stepS: 1.1, untilS: 400, recovers: 150, loses: []float64{100}, back: []float64{1000}}).judged(t)
	// From 100 to the restart at 200, and its load.
	if f := found(report, "engines_lost"); f == nil || !strings.Contains(said(f), "b once, gone for 100 s") {
		t.Errorf("%+v", f)
	}
}
