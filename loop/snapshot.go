package loop

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
)

// snapshotVersion changes when a snapshot's meaning does.
const snapshotVersion = 5

type snapshot struct {
	Snapshot int
	Config   Config
	State    state
}

// Snapshot returns the whole state as JSON, for Restore.
func (l *Loop) Snapshot() ([]byte, error) {
	return json.Marshal(snapshot{snapshotVersion, l.cfg, l.s})
}

// Capture returns a function that says what Snapshot says now, once and from any goroutine. To copy the state takes a small part of
// the time that it takes to write it down.
func (l *Loop) Capture() func() ([]byte, error) {
	s := snapshot{snapshotVersion, l.cfg, l.s.clone()}
	return func() ([]byte, error) { return json.Marshal(s) }
}

// clone returns a copy that shares nothing that changes.
func (s *state) clone() state {
	c := *s
	c.Groups, c.Extras, c.Samples, c.FreeGroups = slices.Clone(s.Groups), slices.Clone(s.Extras), slices.Clone(s.Samples), slices.Clone(s.FreeGroups)
	c.Opens, c.Slots, c.Requeue, c.Levels = slices.Clone(s.Opens), slices.Clone(s.Slots), slices.Clone(s.Requeue), slices.Clone(s.Levels)
	c.Retries, c.Backlog = waiting{entries: slices.Clone(s.Retries.all())}, waiting{entries: slices.Clone(s.Backlog.all())}
	c.Engines, c.Lease.Groups = slices.Clone(s.Engines), slices.Clone(s.Lease.Groups)
	for i := range c.Engines {
		c.Engines[i].Free = slices.Clone(c.Engines[i].Free)
	}
	if s.Control != nil {
		ctl := *s.Control
		ctl.Steps, ctl.Ages, ctl.Began, ctl.Tokens = slices.Clone(ctl.Steps), slices.Clone(ctl.Ages), slices.Clone(ctl.Began), slices.Clone(ctl.Tokens)
		c.Control = &ctl
	}
	return c
}

// Restore returns the loop a snapshot was taken of. It refuses a snapshot of another version of the
// loop, one whose config a loop cannot run with, and one whose parts contradict each other. The
// events of the run, replayed, give the same loop.
func Restore(data []byte) (*Loop, error) {
	var snap snapshot
	if err := json.Unmarshal(data, &snap); err != nil {
		return nil, fmt.Errorf("loop: not a snapshot: %w", err)
	}
	if snap.Snapshot != snapshotVersion {
		return nil, fmt.Errorf("loop: snapshot version %d, this program reads %d: replay the trace instead", snap.Snapshot, snapshotVersion)
	}
	cfg := snap.Config.WithDefaults()
	if err := cfg.Validate(); err != nil {
		return nil, err
	}
	l := &Loop{cfg: cfg, s: snap.State}
	l.derive()
	if err := l.plausibleControl(); err != nil {
		return nil, fmt.Errorf("loop: damaged snapshot: %w; replay the trace instead", err)
	}
	l.adopt()
	if err := l.plausible(); err != nil {
		return nil, fmt.Errorf("loop: damaged snapshot: %w; replay the trace instead", err)
	}
	return l, nil
}

// plausible refuses a state whose parts contradict each other: sizes, indices
// and links first, then every count that can be had in two ways.
func (l *Loop) plausible() error {
	s := &l.s
	if len(s.Engines) != len(l.cfg.EngineSlots) || len(s.Slots) != l.cfg.Concurrency() || len(s.Samples) != len(s.Groups)*l.stride || len(s.Extras) != len(s.Groups) || len(s.Levels) != l.cfg.Levels {
		return fmt.Errorf("%d engines, %d slots, %d samples of %d groups do not fit the config", len(s.Engines), len(s.Slots), len(s.Samples), len(s.Groups))
	}
	if s.Finished >= reasonCount || s.Trained < 0 || s.Sync.Target < NoVersion || s.Sync.Target > s.Trained || s.Sync.Completed < 0 || s.Sync.Completed > s.Trained || s.Restored < 0 || s.Restored > s.Trained {
		return fmt.Errorf("trainer at v%d, sync to v%d, synced v%d, finished %d", s.Trained, s.Sync.Target, s.Sync.Completed, s.Finished)
	}
	return errors.Join(l.plausibleEngines(), l.plausibleSamples(), l.plausiblePlaces(), l.plausibleRules())
}

// plausibleRules checks what single rules remember.
func (l *Loop) plausibleRules() error {
	s := &l.s
	t := &s.Times
	switch {
	case s.Taken < 0 || int64(s.Taken) > int64(s.Trained-s.Sync.Completed+1)*int64(l.cfg.BatchGroups):
		return fmt.Errorf("%d groups leased since the sync to v%d, the trainer is at v%d", s.Taken, s.Sync.Completed, s.Trained)
	case min(t.Step, t.Period, t.Sync) < 0 || min(t.LeaseAt, t.SyncAt, t.EndAt, s.Hold.Since) < unknownTime || max(t.LeaseAt, t.SyncAt, t.EndAt, s.Hold.Since) > s.Now:
		return fmt.Errorf("times %+v, hold %+v at %d", *t, s.Hold, s.Now)
	case s.Cursor < 0 || s.Slope < 0 || s.FreshFrom < 0 || s.FreshFrom > s.NextTurn || s.Fresh < 0 || s.Fresh > s.NextTurn:
		return fmt.Errorf("%d prompts played, slope %d, %d fresh groups from turn %d of %d", s.Cursor, s.Slope, s.Fresh, s.FreshFrom, s.NextTurn)
	}
	if err := s.Cost.plausible(&l.cfg); err != nil {
		return err
	}
	for _, lv := range s.Levels {
		if lv.Rate < 0 || lv.Rate > solveOne {
			return fmt.Errorf("a level with the solve rate %d of %d", lv.Rate, solveOne)
		}
	}
	for _, p := range s.Requeue {
		if p.Prompt < 1 || p.Level < 0 || int(p.Level) > l.cfg.Levels || l.cfg.Prompts > 0 && p.Prompt > int64(l.cfg.Prompts) {
			return fmt.Errorf("prompt %d of level %d is to be played again", p.Prompt, p.Level)
		}
	}
	return nil
}

// plausibleEngines checks the engines and their free slots.
func (l *Loop) plausibleEngines() error {
	s := &l.s
	free := make([]bool, len(s.Slots))
	for i := range s.Engines {
		e := &s.Engines[i]
		if e.State > engineLost || e.Phase > phaseSwitching || e.Served < NoVersion || e.Served > s.Trained || (e.State == engineServing) != (e.Served >= 0) && s.Started {
			return fmt.Errorf("engine %d in state %d, phase %d serves v%d", i, e.State, e.Phase, e.Served)
		}
		for _, k := range e.Free {
			if k < 0 || int(k) >= len(s.Slots) || free[k] || s.Slots[k].State != slotFree || s.Slots[k].Engine != int32(i) {
				return fmt.Errorf("engine %d calls slot %d free", i, k)
			}
			free[k] = true
		}
		if n := int(e.Active) + len(e.Free); n != l.cfg.EngineSlots[i] && (e.Away != engineLeaving || len(e.Free) != 0) && (e.State != engineLost || len(e.Free) != 0 || n != 0 && !l.cfg.ResumeLost) {
			return fmt.Errorf("engine %d has %d of %d slots", i, n, l.cfg.EngineSlots[i])
		}
	}
	next := 0
	for i, n := range l.cfg.EngineSlots {
		for range n {
			if s.Slots[next].Engine != int32(i) || s.Slots[next].State > slotAborting {
				return fmt.Errorf("slot %d in state %d at engine %d", next, s.Slots[next].State, s.Slots[next].Engine)
			}
			if s.Slots[next].State == slotFree && !free[next] && s.Engines[i].State != engineLost && s.Engines[i].Away != engineLeaving {
				return fmt.Errorf("slot %d is free and has no owner", next)
			}
			next++
		}
	}
	return nil
}

// plausibleSamples checks that slots and samples in flight name each other, and
// each group's counts.
func (l *Loop) plausibleSamples() error {
	s := &l.s
	inFlight := make([]int32, len(s.Groups))
	for i := range s.Slots {
		sl := &s.Slots[i]
		if !sl.holdsAttempt() {
			continue
		}
		if !l.isGroup(sl.Group, groupRunning) || sl.Sample < 0 || int(sl.Sample) >= l.stride ||
			s.Groups[sl.Group].ID != sl.ID || l.sample(sl.Group, sl.Sample).Slot != int32(i) {
			return fmt.Errorf("slot %d holds g%d/%d, which does not know of it", i, sl.ID, sl.Sample)
		}
		inFlight[sl.Group]++
	}
	waits := map[retry]bool{}
	for _, r := range s.Backlog.all() {
		if r.Cached < 0 || int(r.Cached) > len(s.Opens) {
			return fmt.Errorf("sample %d of group %d is cached at engine %d", r.Sample, r.Group, r.Cached-1)
		}
		if r.Cell != 0 && !slices.Contains(l.cfg.EngineCells, int(r.Cell)) {
			return fmt.Errorf("sample %d of group %d is interrupted in cell %d, which has no engine", r.Sample, r.Group, r.Cell)
		}
		r.Cached, r.Cell = 0, 0
		if waits[r] || !l.isGroup(r.Group, groupRunning) || r.Sample < 0 || int(r.Sample) >= l.stride || l.sample(r.Group, r.Sample).Slot != parked {
			return fmt.Errorf("sample %d of group %d is not interrupted", r.Sample, r.Group)
		}
		waits[r] = true
		inFlight[r.Group]++
	}
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.State == groupFree {
			continue
		}
		claimed := int32(0)
		for k := range l.stride {
			if l.sample(int32(i), int32(k)).Slot != none {
				claimed++
			}
		}
		waiting := g.Issued - g.InFlight - g.Scored - g.Lost
		if g.InFlight != inFlight[i] || claimed != inFlight[i] || min(g.Issued, g.InFlight, g.Scored, g.Lost, waiting) < 0 || int(g.Issued) > l.sizeOf(int32(i)) {
			return fmt.Errorf("g%d has %d issued, %d in flight, %d scored, %d lost", g.ID, g.Issued, g.InFlight, g.Scored, g.Lost)
		}
		if x := &s.Extras[i]; x.Failed < 0 || x.Failed > g.Lost || x.Solved < 0 || x.Solved > g.Scored || x.Level < 0 || int(x.Level) > l.cfg.Levels || x.Prompt < 0 || l.cfg.Prompts > 0 && (x.Prompt < 1 || x.Prompt > int64(l.cfg.Prompts)) || x.Uses < 0 || int(x.Uses) > l.cfg.MaxUses {
			return fmt.Errorf("g%d has %d failed, %d solved, %d uses at level %d", g.ID, x.Failed, x.Solved, x.Uses, x.Level)
		}
		if g.Start < NoVersion || g.Start > s.Trained || g.Ready < NoVersion || g.Ready > s.Trained || g.State != groupRunning && (g.Ready < g.Start || g.Start < 0 || g.Scored == 0) {
			return fmt.Errorf("g%d in state %d has start v%d, ready v%d, %d scored", g.ID, g.State, g.Start, g.Ready, g.Scored)
		}
	}
	return nil
}

// plausiblePlaces checks where groups are, and that the ledger says the same.
func (l *Loop) plausiblePlaces() error {
	s := &l.s
	if err := errors.Join(l.plausibleList("queue", &s.Queue, groupQueued), l.plausibleList("held", &s.Held, groupHeld)); err != nil {
		return err
	}
	if s.Lease.ID != 0 && len(s.Lease.Groups) != l.cfg.BatchGroups || s.Queue.Len > l.rules.queue {
		return fmt.Errorf("%d groups leased, %d queued", len(s.Lease.Groups), s.Queue.Len)
	}
	var count [groupLeased + 1]int
	var want Ledger
	retries := 0
	for i := range s.Groups {
		g := &s.Groups[i]
		if g.State > groupLeased {
			return fmt.Errorf("g%d in state %d", g.ID, g.State)
		}
		count[g.State]++
		switch scored := int64(g.Scored); g.State {
		case groupRunning:
			want.InFlight += int64(g.InFlight)
			want.Waiting += scored
			retries += int(g.Issued - g.InFlight - g.Scored - g.Lost)
		case groupHeld:
			want.Waiting += scored
		case groupQueued:
			want.Queued += scored
		case groupLeased:
			want.Leased += scored
		}
	}
	if lg := &s.Ledger; !lg.balanced() || lg.InFlight != want.InFlight || lg.Waiting != want.Waiting || lg.Queued != want.Queued || lg.Leased != want.Leased {
		return fmt.Errorf("ledger %+v, counted %+v", *lg, want)
	}
	leased := 0
	if s.Lease.ID != 0 {
		leased = len(s.Lease.Groups)
	}
	if count[groupLeased] != leased || count[groupQueued] != s.Queue.Len || count[groupHeld] != s.Held.Len || count[groupFree] != len(s.FreeGroups) ||
		len(s.Groups)-count[groupFree] != s.LiveGroups || retries != s.Retries.len() {
		return fmt.Errorf("groups are not where they are said to be: %v counted, %d live, %d retries", count, s.LiveGroups, s.Retries.len())
	}
	return l.plausibleNames(leased)
}

// plausibleNames checks the remaining places that name a group, each at most once.
func (l *Loop) plausibleNames(leased int) error {
	s := &l.s
	seen := make([]bool, len(s.Groups))
	once := func(i int32, state groupState) bool {
		ok := l.isGroup(i, state) && !seen[i]
		if ok {
			seen[i] = true
		}
		return ok
	}
	for _, i := range s.FreeGroups {
		if !once(i, groupFree) {
			return fmt.Errorf("group %d is not free, or twice", i)
		}
	}
	for _, i := range s.Lease.Groups[:leased] {
		if !once(i, groupLeased) {
			return fmt.Errorf("group %d is not leased, or twice", i)
		}
	}
	tried := map[retry]bool{}
	for _, r := range s.Retries.all() {
		if tried[r] || r.Cached != 0 || r.Cell != 0 || !l.isGroup(r.Group, groupRunning) || r.Sample < 0 || r.Sample >= s.Groups[r.Group].Issued || l.sample(r.Group, r.Sample).Slot != none {
			return fmt.Errorf("sample %d of group %d is not to be tried again", r.Sample, r.Group)
		}
		tried[r] = true
	}
	return l.plausibleOpen()
}

// plausibleOpen checks the groups whose rollouts are being issued: one, or one of each engine.
func (l *Loop) plausibleOpen() error {
	s := &l.s
	each := l.cfg.Placement == PlaceCacheAware
	if each && (s.Open != none || len(s.Opens) != len(s.Engines)) || !each && len(s.Opens) > 0 {
		return fmt.Errorf("group %d is open, and %d of engines", s.Open, len(s.Opens))
	}
	seen := make([]bool, len(s.Groups))
	for _, i := range append([]int32{s.Open}, s.Opens...) {
		switch {
		case i == none:
		case !l.isGroup(i, groupRunning) || int(s.Groups[i].Issued) >= l.sizeOf(i) || seen[i]:
			return fmt.Errorf("group %d is not open, or twice", i)
		default:
			seen[i] = true
		}
	}
	return nil
}

func (l *Loop) isGroup(i int32, state groupState) bool {
	return i >= 0 && int(i) < len(l.s.Groups) && l.s.Groups[i].State == state
}

// plausibleList walks a list in both directions' links.
func (l *Loop) plausibleList(name string, list *list, state groupState) error {
	prev, n := none, 0
	for i := list.Head; i != none; i = l.s.Groups[i].Next {
		if n >= len(l.s.Groups) || !l.isGroup(i, state) || l.s.Groups[i].Prev != prev {
			return fmt.Errorf("the %s list is broken after %d groups", name, n)
		}
		prev = i
		n++
	}
	if list.Tail != prev || list.Len != n {
		return fmt.Errorf("the %s list has %d groups of %d", name, n, list.Len)
	}
	return nil
}
