package main

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/app/record"
)

// goalProgress is a run's progress with a goal, in one of the controller's states.
func goalProgress(state string) record.Progress {
	return record.Progress{Step: 40, Steps: 100, Reward: math.NaN(), Accuracy: math.NaN(), Staleness: 2.3, PQS: 1.5, IQS: 0.8, TrainerIdle: math.NaN(), ClipFraction: math.NaN(), TokensPerS: math.NaN(),
		Control: controlledStatus(state).Control}
}

// The live view, plain lines and top say of a goal what status says, in the room they have.
func TestProgressOfAController(t *testing.T) {
	for state, want := range map[string][2]string{
		"keeping":     {"held: mean 2.41, 91.2 % within 4", "target held: mean 2.41, 91.2 % within 4 concurrency=96 live_groups=30 hold=0.3"},
		"unreachable": {"out of reach: mean 2.41", "target OUT OF REACH: mean 2.41, 91.2 % within 4, hold binds"},
		"silent":      {"no measurement: no train step has ended", "target NOT MEASURED"},
	} {
		p := goalProgress(state)
		view := liveView{state: p, started: true, width: widthMax, styles: stylesOf(true)}
		if text := view.text(); !strings.Contains(text, "settings") || state != "keeping" && !strings.Contains(text, want[0]) || !strings.Contains(text, "mean staleness at most 2") {
			t.Errorf("%s: the live view shows\n%s", state, text)
		}
		if line := progressLine(p); !strings.Contains(line, want[1]) {
			t.Errorf("%s: the line is %q, want %q in it", state, line, want[1])
		}
		top := newTopView("x", time.Now, 1, true)
		top.width, top.status = 160, controlledStatus(state)
		if text := strings.Join(top.control(), "\n"); !strings.Contains(text, want[0]) || !strings.Contains(text, "held in 480 of 512") {
			t.Errorf("%s: top shows\n%s", state, text)
		}
	}
	if rows := (&topView{status: busyStatus()}).control(); rows != nil {
		t.Errorf("top shows a target where there is none: %q", rows)
	}
}
