package record

import (
	"fmt"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/steps"
)

// A verdict on the trainer's forward pass is said when it is new, stands until a batch could tell otherwise, and is
// read again, in silence, of the lines of a run that goes on.
func TestForward(t *testing.T) {
	agrees := map[string]float64{"forward/agrees": 1}
	wrong := func(cause string) map[string]float64 {
		return map[string]float64{"forward/agrees": 0, "forward/difference": 0.35, "forward/cause/" + cause: 1}
	}
	r, said := &Record{}, []string(nil)
	say := func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }
	for step, metrics := range []map[string]float64{nil, agrees, wrong("template"), wrong("template"), {"forward/difference": 0.2}, wrong("cut"), agrees, agrees} {
		before := len(said)
		r.judge(&steps.Line{Step: loop.Version(step + 1), Metrics: metrics}, say)
		want := map[int]string{2: "Likely template", 5: "Likely cut", 6: "are the engines'"}[step]
		if text := strings.Join(said[before:], "; "); (text == "") != (want == "") || !strings.Contains(text, want) {
			t.Errorf("step %d: said %q, want %q", step, text, want)
		}
	}
	if f := r.Forward(); f == nil || !f.Agrees || f.Version != 7 {
		t.Errorf("the newest verdict is %+v", f)
	}
	resumed := &Record{}
	resumed.judge(&steps.Line{Step: 3, Metrics: wrong("cut")}, nil)
	if f := resumed.Forward(); f == nil || f.Agrees || f.Cause.Name != "cut" {
		t.Errorf("of the lines of a run that goes on: %+v", f)
	}
}
