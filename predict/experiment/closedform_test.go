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

// A rule of the queue that closed forms do not know is uncovered, whatever it does.
func TestAnUnknownPolicyIsUncovered(t *testing.T) {
	c, err := config.Load("", "queue.policy=drop")
	if err != nil {
		t.Fatal(err)
	}
	if why := Uncovered(c); why != "" {
		t.Fatalf("queue-drop has no closed form: %s", why)
	}
	c.Queue.Policy = "newest-first"
	if why := Uncovered(c); !strings.Contains(why, "policy newest-first") || !strings.Contains(why, "no closed form") {
		t.Errorf("says %q", why)
	}
}
