package loop

import (
	"fmt"
	"strings"
)

var eventNames = [eventKindCount]string{
	RunStarted: "run-started", Recovered: "recovered", StopRequested: "stop-requested",
	SettingRequested: "setting-requested", GroupMeasured: "group-measured", TrainStepEnded: "train-step-ended", TrainStepFailed: "train-step-failed", LeaseReturned: "lease-returned",
	TrainerRestored: "trainer-restored", TrainerReady: "trainer-ready",
	WeightsLoaded: "weights-loaded", WeightsSwitched: "weights-switched", SyncFailed: "sync-failed",
	EngineLost: "engine-lost", EngineJoined: "engine-joined", EngineUnavailable: "engine-unavailable", Tick: "tick", FirstToken: "first-token",
	RolloutScored: "rollout-scored", RolloutFailed: "rollout-failed", RolloutAborted: "rollout-aborted",
	RolloutInterrupted: "rollout-interrupted",
}

var actionNames = [actionKindCount]string{
	StartRollout: "start-rollout", ResumeRollout: "resume-rollout", InterruptRollout: "interrupt-rollout", AbortRollout: "abort-rollout", StartTrainStep: "start-train-step",
	LoadWeights: "load-weights", SwitchWeights: "switch-weights", AcquireEngine: "acquire-engine", ReleaseEngine: "release-engine", FinishRun: "finish-run",
	GroupQueued: "group-queued", GroupHeld: "group-held", GroupLeased: "group-leased",
	GroupTrained: "group-trained", GroupEnded: "group-ended", SyncCompleted: "sync-completed",
	SettingChanged: "setting-changed", ControlChanged: "control-changed",
}

var reasonNames = [reasonCount]string{
	ReasonNone: "", ReasonSteps: "steps", ReasonStopped: "stopped", ReasonTrainer: "trainer",
	ReasonEngine: "engine", ReasonSync: "sync", ReasonEnvironment: "environment", ReasonTimeout: "timeout",
	ReasonRestart: "restart", ReasonSibling: "sibling", ReasonStale: "stale", ReasonFull: "full",
	ReasonZeroAdvantage: "zero-advantage", ReasonRejected: "rejected",
	ReasonSolveRate: "solve-rate", ReasonPruned: "pruned", ReasonSurplus: "surplus", ReasonUses: "uses", ReasonSpans: "spans",
	ReasonStart: "start", ReasonAbove: "above-target", ReasonRoom: "room", ReasonForward: "expected", ReasonFree: "free", ReasonCapacity: "capacity", ReasonRequested: "requested", ReasonData: "data", ReasonScorer: "scorer",
}

var settingNames = [settingCount]string{
	SettingSlots: "concurrency", SettingLive: "live_groups", SettingHold: "hold", SettingQueue: "queue_groups",
	SettingRedundancy: "redundancy", SettingSyncEvery: "sync_every", SettingEngines: "engines",
}

var controlNames = [controlStateCount]string{
	ControlOff: "", ControlSettling: "settling", ControlKeeping: "keeping", ControlCorrecting: "correcting",
	ControlUnreachable: "unreachable", ControlSilent: "silent",
}

var markNames = [markCount]string{
	MarkNone: "", MarkReject: "rejected", MarkSolved: "solved", MarkPruned: "pruned",
}

var endNames = [endCount]string{
	EndNone: "", EndTrained: "trained", EndEvicted: "evicted", EndDiscarded: "discarded", EndFiltered: "filtered",
	EndPruned: "pruned", EndCancelled: "cancelled", EndFailed: "failed",
}

func name[K ~uint8](names []string, k K) string {
	if int(k) < len(names) && (names[k] != "" || k == 0) {
		return names[k]
	}
	return fmt.Sprintf("unknown-%d", uint8(k))
}

func parse[K ~uint8](what string, names []string, text string) (K, error) {
	for i, n := range names {
		if n == text && (n != "" || i == 0) {
			return K(i), nil
		}
	}
	known := names
	if names[0] == "" {
		known = names[1:]
	}
	return 0, fmt.Errorf("loop: unknown %s %q, known are %s", what, text, strings.Join(known, ", "))
}

// String returns the kind's name, as in traces and scripts.
func (k EventKind) String() string { return name(eventNames[:], k) }

// Known reports whether there is such a kind.
func (k EventKind) Known() bool { return k > 0 && k < eventKindCount }

// ParseEventKind is the inverse of String.
func ParseEventKind(text string) (EventKind, error) {
	return parse[EventKind]("event", eventNames[:], text)
}

// String returns the kind's name, as in traces and scripts.
func (k ActionKind) String() string { return name(actionNames[:], k) }

// Known reports whether there is such a kind.
func (k ActionKind) Known() bool { return k > 0 && k < actionKindCount }

// ParseActionKind is the inverse of String.
func ParseActionKind(text string) (ActionKind, error) {
	return parse[ActionKind]("action", actionNames[:], text)
}

// String returns the reason's name, empty for ReasonNone.
func (r Reason) String() string { return name(reasonNames[:], r) }

// ParseReason is the inverse of String.
func ParseReason(text string) (Reason, error) { return parse[Reason]("reason", reasonNames[:], text) }

// String returns the mark's name, empty for MarkNone.
func (v Mark) String() string { return name(markNames[:], v) }

// ParseMark is the inverse of String.
func ParseMark(text string) (Mark, error) {
	return parse[Mark]("verdict", markNames[:], text)
}

// String returns the end's name, as in the ledger, empty for EndNone.
func (e End) String() string { return name(endNames[:], e) }

// ParseEnd is the inverse of String.
func ParseEnd(text string) (End, error) { return parse[End]("end", endNames[:], text) }

// String returns the setting's name, as in traces and status.
func (s Setting) String() string { return name(settingNames[:], s) }

// ParseSetting is the inverse of String.
func ParseSetting(text string) (Setting, error) {
	return parse[Setting]("setting", settingNames[:], text)
}

// String returns the state's name, empty for ControlOff.
func (s ControlState) String() string { return name(controlNames[:], s) }

// ParseControlState is the inverse of String.
func ParseControlState(text string) (ControlState, error) {
	return parse[ControlState]("state of the controller", controlNames[:], text)
}

// String renders an event in one line: "40ms rollout-scored g3/1 attempt 1 slot 5 reward 0.5".
func (e Event) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s %s", formatTime(e.Time), e.Kind)
	switch e.Kind {
	case TrainStepEnded, TrainStepFailed, LeaseReturned:
		fmt.Fprintf(&b, " lease %d attempt %d", e.Lease, e.Attempt)
		if e.Kind == TrainStepEnded {
			fmt.Fprintf(&b, " v%d", e.Version)
		}
	case WeightsLoaded, WeightsSwitched, SyncFailed:
		fmt.Fprintf(&b, " engine %d v%d attempt %d", e.Engine, e.Version, e.Attempt)
	case TrainerRestored:
		fmt.Fprintf(&b, " v%d", e.Version)
	case EngineLost, EngineJoined, EngineUnavailable:
		fmt.Fprintf(&b, " engine %d", e.Engine)
		if e.Attempt != 0 {
			fmt.Fprintf(&b, " attempt %d", e.Attempt)
		}
	case SettingRequested:
		fmt.Fprintf(&b, " %s %g", e.Setting, e.Value())
	case GroupMeasured:
		fmt.Fprintf(&b, " g%d drift %g", e.Group, e.Drift)
	case FirstToken, RolloutScored, RolloutFailed, RolloutAborted, RolloutInterrupted:
		fmt.Fprintf(&b, " g%d/%d attempt %d slot %d", e.Group, e.Sample, e.Attempt, e.Slot)
		if e.Kind == FirstToken {
			fmt.Fprintf(&b, " v%d", e.Version)
		}
		if e.Kind == RolloutScored {
			fmt.Fprintf(&b, " tokens %d reward %g", e.Tokens, e.Reward)
			for _, made := range e.Made {
				fmt.Fprintf(&b, " %d of v%d", made.Tokens, made.Version)
			}
		}
		if e.Kind == RolloutInterrupted {
			fmt.Fprintf(&b, " tokens %d", e.Tokens)
		}
		if e.Mark != MarkNone {
			fmt.Fprintf(&b, " %s", e.Mark)
		}
	}
	if e.Reason != ReasonNone {
		fmt.Fprintf(&b, " (%s)", e.Reason)
	}
	return b.String()
}

// String renders an action in one line: "group-trained g3 v2 pqs=1 iqs=0".
func (a Action) String() string {
	var b strings.Builder
	b.WriteString(a.Kind.String())
	switch a.Kind {
	case StartRollout, ResumeRollout, InterruptRollout, AbortRollout:
		fmt.Fprintf(&b, " g%d/%d attempt %d slot %d engine %d", a.Group, a.Sample, a.Attempt, a.Slot, a.Engine)
		if a.Kind == StartRollout || a.Kind == ResumeRollout {
			fmt.Fprintf(&b, " v%d", a.Version)
		}
		if a.Prompt != 0 {
			fmt.Fprintf(&b, " prompt %d", a.Prompt)
		}
		if a.Level != 0 {
			fmt.Fprintf(&b, " level %d", a.Level)
		}
	case StartTrainStep:
		fmt.Fprintf(&b, " lease %d attempt %d v%d groups %d", a.Lease, a.Attempt, a.Version, a.Count)
	case LoadWeights, SwitchWeights:
		fmt.Fprintf(&b, " engine %d v%d attempt %d", a.Engine, a.Version, a.Attempt)
	case FinishRun, SyncCompleted:
		fmt.Fprintf(&b, " v%d", a.Version)
	case AcquireEngine, ReleaseEngine:
		fmt.Fprintf(&b, " engine %d", a.Engine)
		if a.Attempt != 0 {
			fmt.Fprintf(&b, " attempt %d", a.Attempt)
		}
	case SettingChanged:
		fmt.Fprintf(&b, " v%d %s %g", a.Version, a.Setting, a.Value)
	case ControlChanged:
		fmt.Fprintf(&b, " v%d %s %g", a.Version, a.Control, a.Value)
		if a.Control == ControlUnreachable {
			fmt.Fprintf(&b, " bound by %s", a.Setting)
		}
	case GroupQueued, GroupHeld:
		fmt.Fprintf(&b, " g%d pqs=%d", a.Group, a.ReadyVersion-a.StartVersion)
	case GroupLeased, GroupTrained:
		_, pqs, iqs := a.Staleness()
		fmt.Fprintf(&b, " g%d lease %d v%d pqs=%d iqs=%d", a.Group, a.Lease, a.Version, pqs, iqs)
	case GroupEnded:
		fmt.Fprintf(&b, " g%d %s scored %d", a.Group, a.End, a.Count)
	}
	if a.Reason != ReasonNone {
		fmt.Fprintf(&b, " (%s)", a.Reason)
	}
	return b.String()
}

// formatTime renders nanoseconds in the largest unit that loses nothing.
func formatTime(ns int64) string {
	for _, u := range []struct {
		ns   int64
		name string
	}{{1e9, "s"}, {1e6, "ms"}, {1e3, "us"}} {
		if ns%u.ns == 0 {
			return fmt.Sprintf("%d%s", ns/u.ns, u.name)
		}
	}
	return fmt.Sprintf("%dns", ns)
}
