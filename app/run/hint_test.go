package run

import (
	"errors"
	"fmt"
	"testing"

	"github.com/headway-rl/headway/drive/live"
)

// A run that no resume can bring further is not said to go on.
func TestResumeHint(t *testing.T) {
	for err, said := range map[error]bool{errors.New("x"): true, live.ErrTrainer: true, live.ErrPayloadsLost: false, live.ErrLogLost: false} {
		if hint := ResumeHint("runs/a", fmt.Errorf("live: %w", err)); (hint != "") != said {
			t.Errorf("%v: %q", err, hint)
		}
	}
}
