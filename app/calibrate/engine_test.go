package calibrate

import (
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop/port"
	measure "github.com/headway-rl/headway/predict/calibrate"
)

// roomy is an engine with slots, which is asked for nothing.
type roomy struct{ port.Engine }

func (roomy) Slots() int { return 2 }

// A server that keeps places of its context free is asked for nothing that it would refuse: SGLang's last
// prompt is two tokens shorter than its context less one.
func TestCalibrationFitsTheContext(t *testing.T) {
	server := &Engine{engine: roomy{}, slots: 2, vocabulary: 64, context: 254, spare: 2}
	asked := measure.Options{PromptTokens: 128, ResponseTokens: 128, Point: time.Second, Repeats: 1, Samples: 1, LengthMax: 1}
	o, err := server.Options(t.Context(), asked, "")
	if err != nil {
		t.Fatal(err)
	}
	if last := o.PrefillTokens[len(o.PrefillTokens)-1]; last != 253 || o.PromptTokens+o.ResponseTokens != 254 {
		t.Errorf("prompts of up to %d tokens, and %d with %d tokens of response, for a room of 254", last, o.PromptTokens, o.ResponseTokens)
	}
	asked.ResponseTokens = 200
	if _, err := server.Options(t.Context(), asked, ""); err == nil || !strings.Contains(err.Error(), "do not fit in the engine's context of 254") {
		t.Errorf("responses that cannot fit: %v", err)
	}
}
