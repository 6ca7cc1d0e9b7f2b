package looptest

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"

	"github.com/headway-rl/headway/loop"
)

// Script runs the commands of a datadriven file against one loop, and has the checker watch. Every
// command that is an event prints the actions that follow, one a line. A command takes missing
// words from the effect that is outstanding: "scored g1/0" names the slot and attempt in flight.
//
//	new [policy= group= batch= queue= engines=(4,4) cells=(0,1) select= start= placement= sync= every= steps=]
//	    [max-staleness= attempts= train-attempts= on-failure= group-min= abort blocked asks rolling filter manual]
//	    [eta= threshold= uses= gamma= balance evict= seed= pause= hold= interrupt spans=]
//	    [mean= share=(0.9,2) tokens window= range-NAME=(least,most) start-engines=]
//	    [extra= redundancy= band=(low,high) filter-solve levels= explore= prompts= requeue]
//	run-started | recover | stop | tick
//	first-token g1/0 … [v=]            its engine's version unless said
//	scored g1/0 g2 … [reward=(1,0)] [tokens=] [reject | solved=(1,0) | pruned]   g2 means all that run of g2
//	interrupted g1/0 … [tokens=]       after one token unless said
//	measured g1 g2 … drift=            the drift that the train step found
//	failed | aborted g1/0 … [reason=]
//	train-done | train-fail | lease-return
//	trainer-ready | trainer-restored    as the next version unless v= says otherwise
//	loaded | switched | sync-fail e0 e1 …
//	lose-engine | join-engine e0 …
//	unknown                             an event of no known kind
//	stabilize                           ends the train steps and syncs under way until none is left
//	play v=3                            ends the oldest effect, whatever it is, until the trainer has v3; it asks whenever it may
//	request live_groups=5               somebody asks for a setting's value
//	refuse-engine e0 …                  the pool cannot give what was asked for
//	snapshot-restore                    goes on with the loop restored from its own snapshot
//	status | ledger
//
// Each event may say at=40ms, attempt=, slot=, lease= and v=, to name something else than what is
// outstanding. An instant ends with its command, so that a Tick that the loop asks for at that
// instant is delivered at once. A later Tick, and with "manual" every one, is printed, and the
// script delivers it.
type Script struct {
	loop    *loop.Loop
	checker *Checker
	now     int64
	manual  bool
	effects []loop.Action
	served  []loop.Version
	out     strings.Builder
	play    bool
	t       testing.TB
}

// Run executes one command and returns its output.
func (s *Script) Run(t testing.TB, d *datadriven.TestData) string {
	s.out.Reset()
	s.t = t
	if d.Cmd == "new" {
		return s.create(t, d)
	}
	if s.loop == nil {
		d.Fatalf(t, "the script does not begin with new")
	}
	var at string
	if d.HasArg("at") {
		d.ScanArgs(t, "at", &at)
		when, err := time.ParseDuration(at)
		if err != nil {
			d.Fatalf(t, "%v", err)
		}
		s.now = when.Nanoseconds()
	}
	switch d.Cmd {
	case "status":
		return s.status()
	case "ledger":
		return fmt.Sprintf("%+v\n", s.loop.Ledger())
	case "snapshot-restore":
		return s.restore()
	case "stabilize":
		s.stabilize()
	case "play":
		var v int
		d.ScanArgs(t, "v", &v)
		s.playUntil(loop.Version(v))
	default:
		for _, ev := range s.events(t, d) {
			s.deliver(ev)
		}
	}
	if s.out.Len() == 0 {
		return "nothing\n"
	}
	return s.out.String()
}

func (s *Script) create(t testing.TB, d *datadriven.TestData) string {
	cfg, err := scriptConfig(t, d)
	if err != nil {
		return err.Error() + "\n"
	}
	l, err := loop.New(cfg)
	if err != nil {
		return err.Error() + "\n"
	}
	*s = Script{loop: l, checker: NewChecker(cfg), manual: d.HasArg("manual"), served: make([]loop.Version, len(cfg.EngineSlots))}
	return "ok\n"
}

// deliver steps the loop, prints what follows and keeps track of what is outstanding.
func (s *Script) deliver(ev loop.Event) {
	actions, tick := s.loop.Step(ev)
	actions = slices.Clone(actions)
	for _, a := range actions {
		if !s.play || s.shows(a.Kind) {
			fmt.Fprintln(&s.out, a)
		}
	}
	if err := s.checker.Observe(ev, actions, tick); err != nil {
		s.t.Errorf("checker: %v", err)
	} else if err := s.checker.Compare(s.loop.Status()); err != nil {
		s.t.Errorf("checker: after %v: %v", ev, err)
	}
	s.effects = slices.DeleteFunc(s.effects, func(a loop.Action) bool {
		return s.completes(ev, a) || a.Kind == loop.StartTrainStep && s.checker.lease.id != a.Lease || a.Kind != loop.StartTrainStep && a.Kind != loop.AcquireEngine && s.checker.engines[a.Engine].state == gone
	})
	if ev.Kind == loop.WeightsSwitched && int(ev.Engine) < len(s.served) {
		s.served[ev.Engine] = ev.Version
	}
	for _, a := range actions {
		if a.Kind.IsEffect() && a.Kind != loop.FinishRun && a.Kind != loop.ReleaseEngine && a.Slot >= 0 {
			s.effects = slices.DeleteFunc(s.effects, func(b loop.Action) bool { return replaces(a, b) })
			s.effects = append(s.effects, a)
		}
	}
	switch {
	case tick == loop.NoTick:
	case s.play && tick > s.now && s.checker.cfg.Control != nil:
	case s.manual, tick > s.now:
		fmt.Fprintf(&s.out, "wants tick at %v\n", time.Duration(tick))
	default:
		s.deliver(loop.Event{Time: tick, Kind: loop.Tick})
	}
}

// shows reports whether play prints an action of this kind: what became of groups, or what a controller does.
func (s *Script) shows(k loop.ActionKind) bool {
	if s.checker.cfg.Control != nil {
		return steers(k) || k == loop.AcquireEngine || k == loop.ReleaseEngine
	}
	return k == loop.GroupTrained || k == loop.GroupEnded
}

// completes reports whether an event ends an effect.
func (s *Script) completes(ev loop.Event, a loop.Action) bool {
	if ev.Kind == loop.Recovered { // other cells go on
		return a.Kind == loop.StartTrainStep || !s.checker.elsewhere(a.Engine)
	}
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout, loop.InterruptRollout, loop.AbortRollout:
		return ev.Kind >= loop.RolloutScored && ev.Group == a.Group && ev.Sample == a.Sample && ev.Attempt == a.Attempt && ev.Slot == a.Slot
	case loop.StartTrainStep:
		return ev.Kind >= loop.TrainStepEnded && ev.Kind <= loop.LeaseReturned && ev.Lease == a.Lease && ev.Attempt == a.Attempt
	case loop.AcquireEngine:
		return (ev.Kind == loop.EngineJoined || ev.Kind == loop.EngineUnavailable) && ev.Engine == a.Engine && ev.Attempt == a.Attempt
	case loop.LoadWeights, loop.SwitchWeights:
		return isSync(ev.Kind) && ev.Engine == a.Engine && ev.Attempt == a.Attempt
	}
	return false
}

// holdsSlot reports whether an effect of this kind takes a slot until it ends.
func holdsSlot(k loop.ActionKind) bool { return k >= loop.StartRollout && k <= loop.AbortRollout }

// replaces reports whether an effect takes the place of an outstanding one.
func replaces(a, b loop.Action) bool {
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout, loop.InterruptRollout, loop.AbortRollout:
		return holdsSlot(b.Kind) && a.Slot == b.Slot
	case loop.StartTrainStep:
		return b.Kind == loop.StartTrainStep
	}
	if a.Kind == loop.AcquireEngine {
		return b.Kind == a.Kind && a.Engine == b.Engine
	}
	return (b.Kind == loop.LoadWeights || b.Kind == loop.SwitchWeights) && a.Engine == b.Engine
}

// Completion is the event that ends an effect well: a rollout after one token, of the version that it began under.
func Completion(a loop.Action, now int64) loop.Event {
	ev := loop.Event{Time: now, Engine: a.Engine, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Lease: a.Lease, Version: a.Version}
	switch a.Kind {
	case loop.StartRollout, loop.ResumeRollout:
		ev.Kind, ev.Version, ev.Reward, ev.Tokens = loop.RolloutScored, 0, float32(a.Sample), 1
		ev.Made = []loop.VersionTokens{{Version: a.Version, Tokens: 1}}
	case loop.InterruptRollout:
		ev.Kind, ev.Version, ev.Tokens = loop.RolloutInterrupted, 0, 1
	case loop.AbortRollout:
		ev.Kind = loop.RolloutAborted
	case loop.StartTrainStep:
		ev.Kind, ev.Version = loop.TrainStepEnded, a.Version+1
	case loop.AcquireEngine:
		ev.Kind = loop.EngineJoined
	case loop.LoadWeights:
		ev.Kind = loop.WeightsLoaded
	case loop.SwitchWeights:
		ev.Kind = loop.WeightsSwitched
	}
	return ev
}

func (s *Script) stabilize() {
	for range 10000 {
		i := slices.IndexFunc(s.effects, func(a loop.Action) bool { return !places(a.Kind) })
		if i < 0 {
			return
		}
		s.deliver(Completion(s.effects[i], s.now))
	}
	fmt.Fprintln(&s.out, "never stable")
}

func (s *Script) playUntil(v loop.Version) {
	s.play = true
	defer func() { s.play = false }()
	for range 10000 {
		if s.loop.Version() >= v {
			return
		}
		if s.checker.mayAsk() {
			s.deliver(loop.Event{Time: s.now, Kind: loop.TrainerReady})
			continue
		}
		if len(s.effects) == 0 {
			break
		}
		s.now += millisecond
		s.deliver(Completion(s.effects[0], s.now))
	}
	fmt.Fprintf(&s.out, "stuck: %s\n", s.checker.Blocker())
}

func (s *Script) restore() string {
	data, err := s.loop.Snapshot()
	if err != nil {
		return err.Error() + "\n"
	}
	if s.loop, err = loop.Restore(data); err != nil {
		return err.Error() + "\n"
	}
	return "ok\n"
}

func (s *Script) status() string {
	st := s.loop.Status()
	fmt.Fprintf(&s.out, "%v v%d queue %d/%d held %d live %d retries %d lease %d", time.Duration(st.TimeNS), st.Version,
		st.QueueGroups, st.QueueCapacityGroups, st.HeldGroups, st.LiveGroups, st.Retries, st.Lease)
	if st.Asked {
		s.out.WriteString(" asked")
	}
	if st.SyncTarget != loop.NoVersion {
		fmt.Fprintf(&s.out, " sync to v%d", st.SyncTarget)
	}
	if st.Backlog > 0 {
		fmt.Fprintf(&s.out, " backlog %d", st.Backlog)
	}
	if st.Requeued > 0 {
		fmt.Fprintf(&s.out, " requeued %d", st.Requeued)
	}
	if st.Holding {
		s.out.WriteString(" holding")
	}
	if len(st.Levels) > 0 {
		fmt.Fprintf(&s.out, " levels %v", st.Levels)
	}
	if st.Stopping {
		s.out.WriteString(" stopping")
	}
	if st.Finished != loop.ReasonNone {
		fmt.Fprintf(&s.out, " finished (%s)", st.Finished)
	}
	s.out.WriteString("\n")
	for i, e := range st.Engines {
		version := "without weights"
		if e.Version != loop.NoVersion {
			version = fmt.Sprintf("v%d", e.Version)
		}
		fmt.Fprintf(&s.out, "engine %d %s %s active %d/%d\n", i, e.State, version, e.Active, e.Slots)
	}
	l := st.Ledger
	fmt.Fprintf(&s.out, "admitted %d = in flight %d + waiting %d + queued %d + leased %d + ended %d\n", l.Admitted, l.InFlight, l.Waiting, l.Queued, l.Leased, l.Ended())
	fmt.Fprintf(&s.out, "trained %d evicted %d discarded %d filtered %d cancelled %d failed %d\n", l.Trained, l.Evicted, l.Discarded, l.Filtered, l.Cancelled, l.Failed)
	if l.Pruned > 0 {
		fmt.Fprintf(&s.out, "pruned %d\n", l.Pruned)
	}
	if k := st.Control; k != nil {
		fmt.Fprintf(&s.out, "control %s held %d of %d, moves %d:", k.State, k.HeldSteps, k.Steps, k.Moves)
		for _, set := range k.Settings {
			fmt.Fprintf(&s.out, " %s %g", set.Name, set.Value)
		}
		s.out.WriteString("\n")
	}
	if c := st.Counts; c != (loop.Counts{}) {
		fmt.Fprintf(&s.out, "late %d unknown %d time reversed %d\n", c.Late, c.Unknown, c.TimeReversed)
	}
	return s.out.String()
}
