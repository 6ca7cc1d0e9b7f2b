package loop_test

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
)

// recorded returns the steps of a random run with faults, but without snapshots.
func recorded(t *testing.T, seed uint64, events int) (loop.Config, []looptest.Record) {
	t.Helper()
	return recordedAs(t, seed, events, func(*loop.Config) {})
}

// recordedAs is recorded with a change to the config that the seed draws.
func recordedAs(t *testing.T, seed uint64, events int, change func(*loop.Config)) (loop.Config, []looptest.Record) {
	t.Helper()
	plan := looptest.Draw(seed).WithCells()
	plan.Faults.Snapshots = 0
	change(&plan.Config)
	w, err := looptest.NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(events); err != nil {
		t.Fatal(err)
	}
	return plan.Config, w.Log
}

// TestSameEventsSameActions feeds recorded events to a second loop.
func TestSameEventsSameActions(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		cfg, log := recorded(t, seed, 300)
		replay(t, fmt.Sprintf("seed %d", seed), cfg, log, func(ev loop.Event) loop.Event { return ev }, func(tick int64) int64 { return tick })
	}
}

// TestTimeScales multiplies every time by a constant: no decision but the hold's
// and the controller's depends on how long anything takes, only on what came first.
func TestTimeScales(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		cfg, log := recordedAs(t, seed, 300, func(c *loop.Config) {
			c.Hold, c.HoldAdaptive, c.HoldCost, c.Control, c.EnginesStart = 0, false, 0, nil, 0
		})
		for _, factor := range []int64{3, 1000} {
			slower := func(ev loop.Event) loop.Event {
				ev.Time *= factor
				return ev
			}
			replay(t, fmt.Sprintf("seed %d times %d", seed, factor), cfg, log, slower, func(tick int64) int64 { return tick * factor })
		}
	}
}

// TestRewardsShift adds a constant to every reward: filtering looks at
// differences alone.
func TestRewardsShift(t *testing.T) {
	for seed := uint64(1); seed <= 40; seed++ {
		cfg, log := recorded(t, seed, 300)
		shift := func(ev loop.Event) loop.Event {
			if ev.Kind == loop.RolloutScored {
				ev.Reward -= 2
			}
			return ev
		}
		replay(t, fmt.Sprintf("seed %d", seed), cfg, log, shift, func(tick int64) int64 { return tick })
	}
}

func replay(t *testing.T, name string, cfg loop.Config, log []looptest.Record, change func(loop.Event) loop.Event, scale func(int64) int64) {
	t.Helper()
	l, err := loop.New(cfg)
	if err != nil {
		t.Fatal(err)
	}
	for i, r := range log {
		actions, tick := l.Step(change(r.Event))
		want := r.Tick
		if want != loop.NoTick {
			want = scale(want)
		}
		if !slices.Equal(actions, r.Actions) || tick != want {
			t.Fatalf("%s, step %d, %v: %v, tick %d instead of %v, tick %d", name, i, r.Event, actions, tick, r.Actions, want)
		}
	}
}

// naiveBalanced is what a balanced ledger means, word for word.
func naiveBalanced(l loop.Ledger) bool {
	v := reflect.ValueOf(l)
	sum := int64(0)
	for i := range v.NumField() {
		n := v.Field(i).Int()
		if n < 0 {
			return false
		}
		if v.Type().Field(i).Name != "Admitted" {
			sum += n
		}
	}
	return sum == l.Admitted
}

// TestLedgerAgainstNaive compares the ledger's arithmetic with a field by field
// sum, on ledgers that are nearly balanced.
func TestLedgerAgainstNaive(t *testing.T) {
	r := rand.New(rand.NewPCG(1, 2))
	seen := map[bool]int{}
	for range 20000 {
		var l loop.Ledger
		v := reflect.ValueOf(&l).Elem()
		for i := 1; i < v.NumField(); i++ {
			v.Field(i).SetInt(r.Int64N(6) - r.Int64N(2)*r.Int64N(2)*r.Int64N(2))
			l.Admitted += v.Field(i).Int()
		}
		if r.IntN(2) == 0 {
			l.Admitted += r.Int64N(3) - 1
		}
		want := naiveBalanced(l)
		seen[want]++
		if l.Balanced() != want {
			t.Fatalf("Balanced is %t of %+v, want %t", l.Balanced(), l, want)
		}
		if ended := l.Admitted - l.InFlight - l.Waiting - l.Queued - l.Leased; want && l.Ended() != ended {
			t.Fatalf("Ended is %d of %+v, want %d", l.Ended(), l, ended)
		}
	}
	if seen[true] < 1000 || seen[false] < 1000 {
		t.Errorf("%d balanced and %d unbalanced ledgers drawn, want many of both", seen[true], seen[false])
	}
}

// attemptKey names an attempt for good.
type attemptKey struct {
	group   loop.GroupID
	sample  int32
	attempt int32
}

// TestLedgerFollowsAttempts keeps a list of attempts by what the actions and
// events say of each, and compares its totals with the loop's ledger at the end
// of random runs: in flight, and every end.
func TestLedgerFollowsAttempts(t *testing.T) {
	for seed := uint64(1); seed <= 60; seed++ {
		cfg, log := recorded(t, seed, 300)
		l, err := loop.New(cfg)
		if err != nil {
			t.Fatal(err)
		}
		started, ended := map[attemptKey]bool{}, map[loop.End]int64{}
		for _, r := range log {
			l.Step(r.Event)
			for _, a := range r.Actions {
				switch a.Kind {
				case loop.StartRollout:
					key := attemptKey{a.Group, a.Sample, a.Attempt}
					if started[key] {
						t.Fatalf("seed %d: attempt started twice: %v", seed, a)
					}
					started[key] = true
				case loop.GroupTrained:
					if cfg.Policy != loop.PolicyReplay { // there it ends later, and once
						ended[loop.EndTrained] += int64(a.Count)
					}
				case loop.GroupEnded:
					ended[a.End] += int64(a.Count)
				}
			}
		}
		got := l.Ledger()
		if got.Admitted != int64(len(started)) || got.Trained != ended[loop.EndTrained] || got.Evicted != ended[loop.EndEvicted] ||
			got.Discarded != ended[loop.EndDiscarded] || got.Filtered != ended[loop.EndFiltered] || got.Failed < ended[loop.EndFailed] ||
			got.Cancelled < ended[loop.EndCancelled] || got.Pruned < ended[loop.EndPruned] || cfg.GroupMin < 2 && ended[loop.EndPruned] != 0 {
			t.Fatalf("seed %d: ledger is %+v, the actions say %d admitted and %v", seed, got, len(started), ended)
		}
	}
}

// FuzzStep lets bytes choose a config and then events, mostly such that name
// something outstanding. Nothing may panic, and the checker must agree.
func FuzzStep(f *testing.F) {
	f.Add([]byte{})
	f.Add([]byte("\x00\x01\x02\x01\x02\x03" + strings.Repeat("\x01\x00", 60)))
	for seed := range byte(24) {
		data := make([]byte, 400)
		r := rand.New(rand.NewPCG(uint64(seed), 3))
		for i := range data {
			data[i] = byte(r.UintN(256))
		}
		data[0] = seed
		f.Add(data)
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		b := &bytesReader{data}
		cfg := b.config()
		if cfg.WithDefaults().Validate() != nil {
			return
		}
		l, err := loop.New(cfg)
		if err != nil {
			t.Fatalf("New refuses what Validate accepts: %v", err)
		}
		checker := looptest.NewChecker(cfg)
		var effects []loop.Action
		for ev := (loop.Event{Kind: loop.RunStarted}); ; ev = b.event(ev.Time, effects) {
			actions, tick := l.Step(ev)
			if err := checker.Observe(ev, actions, tick); err != nil {
				t.Fatal(err)
			}
			if err := checker.Compare(l.Status()); err != nil {
				t.Fatalf("after %v: %v", ev, err)
			}
			for _, a := range actions {
				if a.Kind.IsEffect() {
					effects = append(effects, a)
				}
			}
			if n := len(effects) - 32; n > 0 {
				effects = slices.Delete(effects, 0, n)
			}
			if len(b.data) == 0 {
				break
			}
		}
		snapshot, err := l.Snapshot()
		if err != nil {
			t.Fatal(err)
		}
		if _, err := loop.Restore(snapshot); err != nil {
			t.Fatalf("the loop's own snapshot is refused: %v", err)
		}
	})
}

type bytesReader struct{ data []byte }

// n returns a number from 0 to n-1, 0 once the bytes have run out.
func (b *bytesReader) n(n int) int {
	if len(b.data) == 0 {
		return 0
	}
	v := int(b.data[0])
	b.data = b.data[1:]
	return v % n
}

func (b *bytesReader) config() loop.Config {
	c := loop.Config{
		Policy: loop.Policy(b.n(7)), GroupSize: 1 + b.n(3), BatchGroups: 1 + b.n(3), Select: loop.Selection(b.n(3)),
		MaxStaleness: loop.Version(b.n(3)), Start: loop.StartOrder(b.n(2)), Sync: loop.SyncMode(b.n(4)), SyncEvery: b.n(3),
		MaxAttempts: b.n(3), OnFailure: loop.FailureRule(b.n(2)), TrainAttempts: b.n(3), TrainSteps: loop.Version(10 * b.n(2)),
	}
	flags := b.n(256)
	c.Abort, c.TrainerBlocked, c.RollingSwitch, c.FilterZeroAdvantage = flags&1 > 0, flags&2 > 0, flags&4 > 0, flags&8 > 0
	c.InterruptAtBatch, c.FilterSolveRate, c.Requeue, c.Balance = flags&16 > 0, flags&32 > 0, flags&64 > 0, flags&128 > 0
	b.further(&c)
	switch least := c.LiveGroupsMax(); {
	case c.Policy == loop.PolicySynchronous:
		c.ExtraGroups = b.n(3)
		c.QueueGroups = c.BatchGroups + c.ExtraGroups
	default:
		c.QueueGroups = max(c.BatchGroups, least) + b.n(3)
	}
	for range 1 + b.n(3) {
		c.EngineSlots = append(c.EngineSlots, 1+b.n(4))
	}
	c.TrainerAsks = b.n(2) > 0
	if c.OnFailure == loop.ShrinkGroup {
		c.GroupMin = b.n(c.GroupSize + 1)
	}
	return c
}

// further chooses what keeps back, interrupts and shapes.
func (b *bytesReader) further(c *loop.Config) {
	c.Seed, c.Redundancy, c.MaxSpans = uint64(b.n(256)), b.n(3), b.n(3)
	c.Prompts, c.Levels, c.Explore = b.n(4), b.n(4), float64(b.n(3))/2
	if c.Levels > 0 || c.FilterSolveRate {
		c.SolveHigh = float64(1+b.n(4)) / 4
		c.SolveLow = c.SolveHigh * float64(b.n(4)) / 4
	}
	if b.n(2) > 0 {
		c.PauseGroups = c.BatchGroups + b.n(2)
	}
	c.Hold = float64(b.n(4)) / 4
	switch c.Policy {
	case loop.PolicyBounded:
		c.Eta = float64(b.n(8)) / 2
	case loop.PolicyThreshold:
		c.StalenessThreshold = float64(b.n(8)) / 4
	case loop.PolicyReplay:
		c.MaxUses, c.Gamma, c.Evict = b.n(4), float64(b.n(5))/4, loop.Eviction(b.n(2))
	}
	c.Balance = c.Balance && c.Policy == loop.PolicyReplay && c.Prompts > 0
}

// event returns the next event: the end of an outstanding effect, an engine's or
// the run's fate, or something made up field by field.
func (b *bytesReader) event(now int64, effects []loop.Action) loop.Event {
	ev := loop.Event{Time: now + int64(b.n(3)), Reward: float32(b.n(2))}
	switch what := b.n(16); {
	case what < 11 && len(effects) > 0:
		a := effects[b.n(len(effects))]
		ends := endings(a)
		if len(ends) == 0 {
			break
		}
		end := ends[b.n(8)*b.n(2)%len(ends)]
		end.Time, end.Reward = ev.Time, ev.Reward
		if a.Kind == loop.StartTrainStep && b.n(4) == 0 {
			return loop.Event{Time: ev.Time, Kind: loop.GroupMeasured, Group: a.Group + loop.GroupID(b.n(20)), Drift: float32(b.n(9)-1) / 8}
		}
		if end.Kind == loop.RolloutScored {
			switch b.n(8) {
			case 0, 1:
				end.Kind, end.Version = loop.FirstToken, loop.Version(b.n(4))
			case 2:
				end.Kind, end.Tokens = loop.RolloutInterrupted, int32(b.n(3))
			case 3:
				end.Mark = loop.Mark(b.n(5))
			}
		}
		return end
	case what == 11 && b.n(2) > 0:
		ev.Kind = loop.TrainerReady
		if b.n(4) == 0 {
			ev.Kind, ev.Version = loop.TrainerRestored, loop.Version(b.n(8))
		}
	case what < 13:
		ev.Kind, ev.Engine = loop.EngineLost+loop.EventKind(b.n(2)), int32(b.n(4))
	case what == 13 && b.n(4) == 0:
		ev.Kind = []loop.EventKind{loop.Recovered, loop.StopRequested, loop.RunStarted}[b.n(3)]
	case what == 14:
		ev.Kind = loop.EventKind(b.n(256))
		ev.Engine, ev.Slot, ev.Sample, ev.Attempt = int32(b.n(6)-1), int32(b.n(12)-1), int32(b.n(5)-1), int32(b.n(5)-1)
		ev.Group, ev.Lease, ev.Version = loop.GroupID(b.n(20)), loop.LeaseID(b.n(10)), loop.Version(b.n(10)-1)
		ev.Mark, ev.Reason, ev.Time = loop.Mark(b.n(256)), loop.Reason(b.n(256)), ev.Time-int64(b.n(4))
	default:
		ev.Kind = loop.Tick
	}
	return ev
}

// TestDamagedSnapshots changes every number of a snapshot in several ways. Each
// must be refused, or give a loop that can be driven on: it may find itself
// inconsistent and say so by an InvariantError, but never run off its tables.
func TestDamagedSnapshots(t *testing.T) {
	t.Run("plain", func(t *testing.T) { damageSnapshots(t, nil) })
	t.Run("controlled", func(t *testing.T) {
		damageSnapshots(t, &loop.Control{Share: 0.9, Within: 1, Tokens: true, Window: 2, Ranges: [...]loop.Range{
			loop.SettingSlots: {Least: 2, Most: 5}, loop.SettingLive: {Least: 2, Most: 20}, loop.SettingHold: {Most: 0.5}, loop.SettingEngines: {Least: 1, Most: 2}}})
	})
}

func damageSnapshots(t *testing.T, ctl *loop.Control) {
	plan := looptest.Draw(3)
	plan.Config.EngineSlots, plan.Config.EngineCells = []int{3, 2}, []int{0, 1}
	plan.Config.Control, plan.Config.EnginesStart = ctl, 0
	if ctl != nil {
		plan.Config = loop.Config{GroupSize: 2, BatchGroups: 2, QueueGroups: 4, EngineSlots: []int{3, 2}, Control: ctl}
	}
	w, err := looptest.NewWorld(plan)
	if err != nil {
		t.Fatal(err)
	}
	if err := w.Run(200); err != nil {
		t.Fatal(err)
	}
	data, err := w.Loop().Snapshot()
	if err != nil {
		t.Fatal(err)
	}
	w.Keep = true
	if err := w.Run(100); err != nil {
		t.Fatal(err)
	}
	tried, refused := 0, 0
	for _, span := range numbers(data) {
		for _, with := range []string{"-1", "0", "1", "7", "99999"} {
			if string(data[span[0]:span[1]]) == with {
				continue
			}
			tried++
			damaged := slices.Concat(data[:span[0]], []byte(with), data[span[1]:])
			if !survives(t, damaged, w.Log) {
				refused++
			}
		}
	}
	if tried < 500 || refused < tried/5 {
		t.Errorf("%d of %d damaged snapshots refused, want a good part of many", refused, tried)
	}
	t.Logf("%d of %d damaged snapshots refused", refused, tried)
	for _, bad := range []string{"", "{}", "null", `{"Snapshot":1}`, string(data[:len(data)-3])} {
		if _, err := loop.Restore([]byte(bad)); err == nil {
			t.Errorf("Restore accepts %.40q", bad)
		}
	}
}

// numbers returns where the numbers of a JSON document stand.
func numbers(data []byte) [][2]int {
	var found [][2]int
	for i := 0; i < len(data); i++ {
		if data[i] != ':' && data[i] != '[' && data[i] != ',' {
			continue
		}
		j := i + 1
		for j < len(data) && strings.IndexByte("-.0123456789e", data[j]) >= 0 {
			j++
		}
		if j > i+1 {
			found = append(found, [2]int{i + 1, j})
		}
	}
	return found
}

// survives drives a damaged snapshot's loop on; false if it is refused.
func survives(t *testing.T, damaged []byte, log []looptest.Record) (accepted bool) {
	l, err := loop.Restore(damaged)
	if err != nil {
		return false
	}
	defer func() {
		var broken *loop.InvariantError
		if r := recover(); r != nil {
			if err, ok := r.(error); !ok || !errors.As(err, &broken) {
				t.Errorf("panic: %v\nof %s", r, damaged)
			}
		}
	}()
	for _, r := range log {
		l.Step(r.Event)
	}
	return true
}
