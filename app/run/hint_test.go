package run

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/live"
)

// A run that no resume can bring further is not said to go on.
func TestResumeHint(t *testing.T) {
	for err, said := range map[error]bool{errors.New("x"): true, live.ErrTrainer: true, live.ErrPayloadsLost: false, live.ErrLogLost: false} {
		if hint := ResumeHint("runs/a", "runs/a", fmt.Errorf("live: %w", err)); (hint != "") != said {
			t.Errorf("%v: %q", err, hint)
		}
	}
	if hint := ResumeHint("runs/my run", "'runs/my run'", errors.New("x")); !strings.Contains(hint, "--resume 'runs/my run' goes on") {
		t.Errorf("of a name with a space: %q", hint)
	}
}
