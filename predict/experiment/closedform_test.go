package experiment

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
)

// No closed form is there for replay, which admits freely.
func TestReplayIsUncovered(t *testing.T) {
	c, err := config.Load("", "queue.policy=replay")
	if err != nil {
		t.Fatal(err)
	}
	if why := Uncovered(c); !strings.Contains(why, "draws from a buffer") || strings.Contains(why, "admits by counts") {
		t.Errorf("says %q", why)
	}
}
