package experiment

import (
	"testing"

	"github.com/headway-rl/headway/observe/metrics"
)

// The window's steps are those after the warm-up.
func TestWindowOfSteps(t *testing.T) {
	steps := []metrics.Step{{Step: 1}, {Step: 2}, {Step: 3}}
	if w := Window(steps, 2); len(w) != 1 || w[0].Step != 3 {
		t.Errorf("%v", w)
	}
	if w := Window(steps, 3); w != nil {
		t.Errorf("%v", w)
	}
}
