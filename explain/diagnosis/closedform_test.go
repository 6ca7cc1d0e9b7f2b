package diagnosis_test

import (
	"bytes"
	"math"
	"testing"

	"github.com/headway-rl/headway/drive/replay"
	"github.com/headway-rl/headway/explain/diagnosis"
)

// The closed form at measured inputs is one figure, whether a diagnosis or anybody else with the run's summary
// asks for it.
func TestOneClosedForm(t *testing.T) {
	text := simulated(t, 300, 12, true)
	r, err := judged(t, text, diagnosis.Options{ClosedForms: true})
	if err != nil {
		t.Fatal(err)
	}
	recording, err := replay.Measure(bytes.NewReader(text))
	if err != nil {
		t.Fatal(err)
	}
	if r.Settled.FromStep != int64(recording.Header.Warmup) {
		t.Fatalf("judged from %d on, measured from %d on", r.Settled.FromStep, recording.Header.Warmup)
	}
	in, unfit := diagnosis.MeasuredInput(recording.Header.Loop, recording.Measured)
	mean, ok := diagnosis.ClosedMean(in)
	if unfit != "" || !ok {
		t.Fatalf("%q, %v", unfit, ok)
	}
	found := false
	for _, c := range r.Compared {
		if c.What == "staleness_mean" && c.Method == "closed_form" {
			if found = true; math.Abs(c.Predicted-mean) > 1e-12 {
				t.Errorf("diagnosed %v, asked %v", c.Predicted, mean)
			}
		}
	}
	if !found {
		t.Errorf("not compared: %+v", r.Compared)
	}
}
