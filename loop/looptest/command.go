package looptest

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"

	"github.com/headway-rl/headway/loop"
)

var scriptKinds = map[string]loop.EventKind{
	"run-started": loop.RunStarted, "recover": loop.Recovered, "stop": loop.StopRequested, "tick": loop.Tick,
	"train-done": loop.TrainStepEnded, "train-fail": loop.TrainStepFailed, "lease-return": loop.LeaseReturned,
	"trainer-restored": loop.TrainerRestored, "trainer-ready": loop.TrainerReady,
	"loaded": loop.WeightsLoaded, "switched": loop.WeightsSwitched, "sync-fail": loop.SyncFailed,
	"lose-engine": loop.EngineLost, "join-engine": loop.EngineJoined, "refuse-engine": loop.EngineUnavailable, "request": loop.SettingRequested,
	"first-token": loop.FirstToken, "scored": loop.RolloutScored, "failed": loop.RolloutFailed, "aborted": loop.RolloutAborted,
	"interrupted": loop.RolloutInterrupted, "measured": loop.GroupMeasured,
	"unknown": 0,
}

// events returns the events a command stands for.
func (s *Script) events(t testing.TB, d *datadriven.TestData) []loop.Event {
	kind, ok := scriptKinds[d.Cmd]
	if !ok {
		d.Fatalf(t, "unknown command %q", d.Cmd)
	}
	base := loop.Event{Time: s.now, Kind: kind}
	var reason string
	if d.MaybeScanArgs(t, "reason", &reason); reason != "" {
		r, err := loop.ParseReason(reason)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		base.Reason = r
	}
	var events []loop.Event
	switch {
	case kind == loop.GroupMeasured:
		events = s.measuredEvents(t, d, base)
	case isRollout(kind):
		events = s.rolloutEvents(t, d, base)
	case kind >= loop.TrainStepEnded && kind <= loop.LeaseReturned:
		events = []loop.Event{s.trainEvent(base)}
	case kind == loop.TrainerRestored:
		base.Version = s.loop.Version() + 1
		events = []loop.Event{base}
	case kind == loop.SettingRequested:
		events = []loop.Event{s.requestEvent(t, d)}
	case isSync(kind), kind == loop.EngineLost, kind == loop.EngineJoined, kind == loop.EngineUnavailable:
		events = s.engineEvents(t, d, base)
	default:
		events = []loop.Event{base}
	}
	for i := range events {
		override(t, d, &events[i])
	}
	return events
}

// override applies what the command says of the effect itself.
func override(t testing.TB, d *datadriven.TestData, ev *loop.Event) {
	number := func(key string, set func(int)) {
		if d.HasArg(key) {
			var n int
			d.ScanArgs(t, key, &n)
			set(n)
		}
	}
	number("attempt", func(n int) { ev.Attempt = int32(n) })
	number("slot", func(n int) { ev.Slot = int32(n) })
	number("lease", func(n int) { ev.Lease = loop.LeaseID(n) })
	number("v", func(n int) { ev.Version = loop.Version(n) })
	number("tokens", func(n int) { ev.Tokens = int32(n) })
	if made := scanInts(t, d, "made"); len(made) > 0 { // version, tokens, version, tokens
		ev.Made = nil
		for pair := range slices.Chunk(made, 2) {
			ev.Made = append(ev.Made, loop.VersionTokens{Version: loop.Version(pair[0]), Tokens: int64(pair[1])})
		}
	}
}

func (s *Script) rolloutEvents(t testing.TB, d *datadriven.TestData, base loop.Event) []loop.Event {
	rewards := []float32{1, 0}
	if d.HasArg("reward") {
		rewards = nil
		for _, a := range d.CmdArgs {
			for _, v := range a.Vals {
				if f, err := strconv.ParseFloat(v, 32); a.Key == "reward" && err == nil {
					rewards = append(rewards, float32(f))
				}
			}
		}
	}
	var events []loop.Event
	for _, subject := range subjects(d, "g") {
		group, sample, one := strings.Cut(subject, "/")
		g := loop.GroupID(atoi(t, d, group))
		for _, a := range s.outstanding(t, d, g, sample, one) {
			ev := base
			ev.Engine, ev.Slot, ev.Group, ev.Sample, ev.Attempt = a.Engine, a.Slot, a.Group, a.Sample, a.Attempt
			switch base.Kind {
			case loop.FirstToken:
				ev.Version = s.served[a.Engine]
			case loop.RolloutScored:
				ev.Tokens, ev.Reward = 1, rewards[int(a.Sample)%len(rewards)]
				ev.Mark = verdict(t, d, int(a.Sample))
			case loop.RolloutInterrupted:
				ev.Tokens = 1
			}
			events = append(events, ev)
		}
	}
	return events
}

// verdict is what a command says of the sample it scores.
func verdict(t testing.TB, d *datadriven.TestData, sample int) loop.Mark {
	switch {
	case d.HasArg("reject"):
		return loop.MarkReject
	case d.HasArg("pruned"):
		return loop.MarkPruned
	}
	if solved := scanInts(t, d, "solved"); len(solved) > 0 && solved[sample%len(solved)] > 0 {
		return loop.MarkSolved
	}
	return loop.MarkNone
}

// measuredEvents are the measurements of groups at the trainer.
func (s *Script) measuredEvents(t testing.TB, d *datadriven.TestData, base loop.Event) []loop.Event {
	var text string
	d.ScanArgs(t, "drift", &text)
	drift, err := strconv.ParseFloat(text, 32)
	if err != nil {
		d.Fatalf(t, "drift: %v", err)
	}
	var events []loop.Event
	for _, subject := range subjects(d, "g") {
		ev := base
		ev.Group, ev.Drift = loop.GroupID(atoi(t, d, subject)), float32(drift)
		events = append(events, ev)
	}
	return events
}

// outstanding returns the rollouts under way of a group, or of one of its
// samples; for one that is not under way, an action that names it all the same.
func (s *Script) outstanding(t testing.TB, d *datadriven.TestData, g loop.GroupID, sample string, one bool) []loop.Action {
	var found []loop.Action
	for k := range s.loop.Config().GroupSize + s.loop.Config().Redundancy {
		if one && k != atoi(t, d, sample) {
			continue
		}
		n := len(found)
		for _, a := range s.effects {
			if holdsSlot(a.Kind) && a.Group == g && int(a.Sample) == k {
				found = append(found, a)
			}
		}
		if one && len(found) == n {
			found = append(found, loop.Action{Group: g, Sample: int32(k), Attempt: 1})
		}
	}
	return found
}

func (s *Script) trainEvent(base loop.Event) loop.Event {
	for _, a := range s.effects {
		if a.Kind == loop.StartTrainStep {
			base.Lease, base.Attempt = a.Lease, a.Attempt
			if base.Kind == loop.TrainStepEnded {
				base.Version = a.Version + 1
			}
		}
	}
	return base
}

// requestEvent asks for a setting's value: "request hold=0.2".
func (s *Script) requestEvent(t testing.TB, d *datadriven.TestData) loop.Event {
	for _, a := range d.CmdArgs {
		if set, err := loop.ParseSetting(a.Key); err == nil && len(a.Vals) == 1 {
			v, err := strconv.ParseFloat(a.Vals[0], 64)
			if err != nil {
				d.Fatalf(t, "%s: %v", a.Key, err)
			}
			return loop.Request(set, v, s.now)
		}
	}
	d.Fatalf(t, "request names no setting")
	return loop.Event{}
}

func (s *Script) engineEvents(t testing.TB, d *datadriven.TestData, base loop.Event) []loop.Event {
	var events []loop.Event
	for _, subject := range subjects(d, "e") {
		ev := base
		ev.Engine = int32(atoi(t, d, subject))
		if e := ev.Engine; (base.Kind == loop.EngineJoined || base.Kind == loop.EngineUnavailable) && s.checker.engines[e].pool == starting {
			ev.Attempt = s.checker.engines[e].asked
		}
		for _, a := range s.effects {
			if isSync(base.Kind) && a.Engine == ev.Engine && (a.Kind == loop.LoadWeights || a.Kind == loop.SwitchWeights) {
				ev.Version, ev.Attempt = a.Version, a.Attempt
			}
		}
		events = append(events, ev)
	}
	if len(events) == 0 {
		d.Fatalf(t, "%s names no engine", d.Cmd)
	}
	return events
}

// subjects returns the arguments that name a group or an engine, without the letter.
func subjects(d *datadriven.TestData, letter string) []string {
	var found []string
	for _, a := range d.CmdArgs {
		if rest, ok := strings.CutPrefix(a.Key, letter); ok && len(a.Vals) == 0 && rest != "" && rest[0] >= '0' && rest[0] <= '9' {
			found = append(found, rest)
		}
	}
	return found
}

func scanInts(t testing.TB, d *datadriven.TestData, key string) []int {
	var found []int
	for _, a := range d.CmdArgs {
		if a.Key == key {
			for _, v := range a.Vals {
				found = append(found, atoi(t, d, v))
			}
		}
	}
	return found
}

func atoi(t testing.TB, d *datadriven.TestData, text string) int {
	n, err := strconv.Atoi(text)
	if err != nil {
		d.Fatalf(t, "%v", fmt.Errorf("%s: %w", d.Cmd, err))
	}
	return n
}
