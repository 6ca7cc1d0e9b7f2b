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

// Scorers that take about as long for a token as engines do are uncovered, and fast ones are not.
func TestSlowScorersAreUncovered(t *testing.T) {
	for tokensPerS, covered := range map[string]bool{"5000": true, "150": false} {
		c, err := config.Load("", "queue.policy=drop", "modelled.decode_tokens_per_s=40", "modelled.scorer.tokens_per_s="+tokensPerS)
		if err == nil {
			c, err = c.Resolve()
		}
		if err != nil {
			t.Fatal(err)
		}
		if why := Uncovered(c); (why == "") != covered {
			t.Errorf("%s tokens a second: %q", tokensPerS, why)
		}
	}
}

// A load is in the time of a sync once.
func TestTimeOfASync(t *testing.T) {
	for mode, want := range map[string]float64{"in_flight": 3.5, "pause": 0.5} {
		c, err := config.Load("", "sync.mode="+mode, "modelled.sync={time_s: 0.5, load_s: 3}", "modelled.train.step_s=5")
		if err == nil {
			c, err = c.Resolve()
		}
		if err != nil {
			t.Fatal(err)
		}
		if in, err := Input(c); err != nil || in.SyncTimeS != want {
			t.Errorf("%s: %v s, want %v (%v)", mode, in.SyncTimeS, want, err)
		}
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
