package loop_test

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// TestNamesParseBack goes through every kind, reason and end: each has a name of
// its own that parses back, and what has none says so.
func TestNamesParseBack(t *testing.T) {
	roundTrip(t, "event", loop.RunStarted, loop.RolloutInterrupted, loop.EventKind.String, loop.ParseEventKind)
	roundTrip(t, "action", loop.StartRollout, loop.ControlChanged, loop.ActionKind.String, loop.ParseActionKind)
	roundTrip(t, "reason", loop.ReasonNone, loop.ReasonScorer, loop.Reason.String, loop.ParseReason)
	roundTrip(t, "verdict", loop.MarkNone, loop.MarkPruned, loop.Mark.String, loop.ParseMark)
	roundTrip(t, "setting", loop.SettingSlots, loop.SettingEngines, loop.Setting.String, loop.ParseSetting)
	roundTrip(t, "state of the controller", loop.ControlOff, loop.ControlSilent, loop.ControlState.String, loop.ParseControlState)
	roundTrip(t, "end", loop.EndNone, loop.EndFailed, loop.End.String, loop.ParseEnd)
}

func roundTrip[K ~uint8](t *testing.T, what string, first, last K, name func(K) string, parse func(string) (K, error)) {
	t.Helper()
	seen := map[string]bool{}
	for k := first; k <= last; k++ {
		text := name(k)
		back, err := parse(text)
		if err != nil || back != k || seen[text] || strings.HasPrefix(text, "unknown") {
			t.Errorf("%s %d is called %q, which parses as %d, %v", what, k, text, back, err)
		}
		seen[text] = true
	}
	if beyond := name(last + 1); !strings.HasPrefix(beyond, "unknown") {
		t.Errorf("%s %d is called %q: this test misses kinds", what, last+1, beyond)
	}
	if _, err := parse("no such name"); err == nil || !strings.Contains(err.Error(), " "+name(first)) || !strings.Contains(err.Error(), name(last)) {
		t.Errorf("parsing an unknown %s says %v, want the known names", what, err)
	}
}

// TestEventLine pins the line of an event, which traces, bundles and messages show.
func TestEventLine(t *testing.T) {
	lines := map[string]loop.Event{
		"0s run-started": {Kind: loop.RunStarted},
		"40ms rollout-scored g3/1 attempt 2 slot 5 tokens 9 reward 0.5 rejected": {Time: 40e6, Kind: loop.RolloutScored, Group: 3,
			Sample: 1, Attempt: 2, Slot: 5, Tokens: 9, Reward: 0.5, Mark: loop.MarkReject},
		"1500us train-step-ended lease 2 attempt 1 v3":          {Time: 1.5e6, Kind: loop.TrainStepEnded, Lease: 2, Attempt: 1, Version: 3},
		"7ns sync-failed engine 1 v4 attempt 2 (timeout)":       {Time: 7, Kind: loop.SyncFailed, Engine: 1, Version: 4, Attempt: 2, Reason: loop.ReasonTimeout},
		"2s engine-lost engine 3 (engine)":                      {Time: 2e9, Kind: loop.EngineLost, Engine: 3, Reason: loop.ReasonEngine},
		"3us first-token g1/0 attempt 1 slot 0 v2":              {Time: 3000, Kind: loop.FirstToken, Group: 1, Attempt: 1, Version: 2},
		"0s rollout-failed g1/0 attempt 1 slot 0 (data)":        {Kind: loop.RolloutFailed, Group: 1, Attempt: 1, Reason: loop.ReasonData},
		"0s rollout-failed g1/0 attempt 1 slot 0 (environment)": {Kind: loop.RolloutFailed, Group: 1, Attempt: 1, Reason: loop.ReasonEnvironment},
		"0s unknown-99": {Kind: 99},
		"0s lease-returned lease 1 attempt 1 (timeout)": {Kind: loop.LeaseReturned, Lease: 1, Attempt: 1, Reason: loop.ReasonTimeout},
	}
	for want, ev := range lines {
		if got := ev.String(); got != want {
			t.Errorf("event line is %q, want %q", got, want)
		}
	}
}

// TestBeforeIsAnOrder compares events that differ in one field each: the earlier
// field decides, and no two different subjects tie.
func TestBeforeIsAnOrder(t *testing.T) {
	rising := []loop.Event{
		{Time: 1, Kind: 1, Group: 1, Sample: 1, Attempt: 1, Slot: 1, Engine: 1},
		{Time: 1, Kind: 1, Group: 1, Sample: 1, Attempt: 1, Slot: 1, Engine: 2},
		{Time: 1, Kind: 1, Group: 1, Sample: 1, Attempt: 1, Slot: 2, Engine: 1},
		{Time: 1, Kind: 1, Group: 1, Sample: 1, Attempt: 2, Slot: 1, Engine: 1},
		{Time: 1, Kind: 1, Group: 1, Sample: 2, Attempt: 1, Slot: 1, Engine: 1},
		{Time: 1, Kind: 1, Group: 2, Sample: 1, Attempt: 1, Slot: 1, Engine: 1},
		{Time: 1, Kind: 2, Group: 1, Sample: 1, Attempt: 1, Slot: 1, Engine: 1},
		{Time: 2, Kind: 1, Group: 1, Sample: 1, Attempt: 1, Slot: 1, Engine: 1},
	}
	for i, a := range rising {
		for k, b := range rising {
			if a.Before(b) != (i < k) {
				t.Errorf("%+v before %+v: %t, want %t", a, b, a.Before(b), i < k)
			}
		}
	}
}
