package control

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// The end of a run says in how many steps its goal was held, and where its settings went and why.
func TestControlRows(t *testing.T) {
	rows := Rows(&metrics.Control{State: "unreachable", TargetShare: 0.95, Within: 4, Of: "tokens", Window: 16, MeasuredMean: 3, MeasuredShare: 0.9, Steps: 200, HeldSteps: 150, HeldBatches: 100,
		UnreachableSteps: 30, Silences: 2, Nearest: 0.93, Binding: "concurrency", Moves: 4, Reasons: map[string]int64{"room": 1, "above-target": 3},
		Settings: []metrics.ControlSetting{{Name: "concurrency", Start: 64, Value: 8, Least: 8, Most: 64, Moves: 4, Why: "above-target"}, {Name: "hold", Most: 0.3}}})
	var text strings.Builder
	for _, r := range rows {
		text.WriteString(r.Name + "|" + r.Value + "|" + r.Note + "\n")
	}
	want := `target|at least 95 % of tokens within 4 versions|over 16 train steps
held|75.0 % of train steps|150 of 200; single batches in 50.0 %
at the end|out of reach|90.0 % within 4; 93.0 % at best: concurrency is at the end of its limits. Ask for a target that can be reached, or widen control.limits.concurrency
out of reach|30 train steps|no setting within control.limits would have held it
not measured|2 times|settings stayed where they were
moves|4|the goal did not hold: 3; the goal held with room: 1
concurrency|8 of 8 to 64|from 64 in 4 moves; the last: the goal did not hold
hold|0 of 0 to 0.3|not moved
`
	if text.String() != want {
		t.Errorf("the rows are\n%s\nwant\n%s", text.String(), want)
	}
	if rows := Rows(nil); rows != nil {
		t.Errorf("without a goal: %v", rows)
	}
}

// Every reason that a move can have, and every setting that can bind, has words of its own.
func TestControlWordsAreWhole(t *testing.T) {
	for r := loop.ReasonStart; !strings.HasPrefix(r.String(), "unknown"); r++ {
		if moves := r != loop.ReasonData && r != loop.ReasonScorer; moves && Why(r.String()) == r.String() {
			t.Errorf("no words for the reason %q", r)
		}
	}
	for i := range (loop.Control{}).Ranges {
		if name := loop.Setting(i).String(); !strings.HasPrefix(unreachableAdvice(name), "Ask") || limitKeys[name] == "" {
			t.Errorf("no limits are named for %q", name)
		}
	}
	if got := (Goal{Mean: 1, Window: 8}).Sentence(&loop.ControlStatus{State: Settling, MeasuredMean: -1, MeasuredShare: -1}); !strings.Contains(got, "nothing measured yet") {
		t.Error(got)
	}
}
