package loop

import "math"

// rules are the settings that may move, as the loop acts by them now: Config's own, or where a
// controller has put them. They follow from Config and the controller's part of the state.
type rules struct {
	// slots is the number of rollouts that may be in flight, live that of groups open or ready just after an
	// update, infinite without a limit.
	slots      int
	live, hold float64
	// passes is the share of groups that pass the filters: what a group that runs counts for in live.
	passes     float64
	queue      int
	redundancy int
	syncEvery  int
	// size is the number of rollouts that a group which opens now is to have.
	size int
}

// adopt computes the rules, and what follows from them.
func (l *Loop) adopt() {
	c := &l.cfg
	l.rules = rules{slots: c.Concurrency(), live: math.Inf(1), passes: 1, queue: c.QueueGroups, redundancy: c.Redundancy, syncEvery: c.SyncEvery, hold: c.Hold}
	if c.HoldAdaptive {
		l.rules.hold = l.s.Cost.At
	}
	l.alarm, l.sizes = NoTick, false
	if ctl := l.s.Control; ctl != nil {
		l.adoptMoved(ctl)
	}
	l.rules.size = c.GroupSize + l.rules.redundancy
	l.handsOver = !c.InterruptAtBatch && l.rules.hold == 0 && c.Start != StartGang && c.Policy != PolicyMax
}

// adoptMoved takes the settings that a controller may move from where it has them.
func (l *Loop) adoptMoved(ctl *controller) {
	moves := &l.cfg.Control.Ranges
	for _, r := range [...]struct {
		set Setting
		to  *int
	}{{SettingSlots, &l.rules.slots}, {SettingQueue, &l.rules.queue},
		{SettingRedundancy, &l.rules.redundancy}, {SettingSyncEvery, &l.rules.syncEvery}} {
		if moves[r.set].Moves() {
			*r.to = int(ctl.At[r.set])
		}
	}
	if moves[SettingHold].Moves() {
		l.rules.hold = ctl.At[SettingHold]
	}
	if moves[SettingLive].Moves() {
		l.rules.live, l.rules.passes = ctl.At[SettingLive], l.passing()
	}
	l.sizes = moves[SettingRedundancy].Moves()
	l.alarm = l.nextAlarm()
}

// belowLive reports whether SettingLive lets a group open. Those at the trainer leave with the next update, so
// that they may be live beside; engines that lag behind stamp older versions, which counts against it. The
// limit is a whole number for each version that is served, and its mean over versions is SettingLive.
func (l *Loop) belowLive() bool { return l.expected()+l.rules.passes/2 <= l.liveLimit() }

// liveLimit is the number of groups that may be live now and expected to be trained.
func (l *Loop) liveLimit() float64 {
	served := l.minServed()
	v, lag := float64(served), int(l.s.Trained-served)
	live := int(math.Floor(float64((v+1)*l.rules.live)) - math.Floor(float64(v*l.rules.live)))
	live = max(live, (l.rules.syncEvery-1)*l.cfg.BatchGroups) // less, and no step would end before the next sync
	return float64(live + (1-lag)*l.cfg.BatchGroups)
}

// stood is what SettingLive amounts to just after an update: groups that are live and expected to be trained, and a
// batch for every version by which engines lag behind, the one just made aside. It is at most what the setting
// permits: what filters pass beyond what was expected is no reason to think that fewer may be live.
func (l *Loop) stood() float64 {
	live, behind := l.expected(), float64((int(l.s.Trained-l.minServed())-1)*l.cfg.BatchGroups)
	if l.rules.live < math.MaxInt64 {
		live = min(live, l.liveLimit())
	}
	return max(live+behind, 0)
}

// expected is the number of live groups that are expected to be trained: of those that run, a share passes the filters.
func (l *Loop) expected() float64 {
	s := &l.s
	known := s.Queue.Len + s.Held.Len + l.leasedGroups()
	return float64(known) + float64(l.rules.passes*float64(s.LiveGroups-known))
}

// passing is the share of groups that pass the filters now: a line through that of the newest windows, 1 where nothing
// is known.
func (l *Loop) passing() float64 {
	c, n := l.s.Control, l.cfg.Control.Window
	all := l.window(windowsKept * n)
	if all.Accepted == 0 {
		return 1
	}
	mean := float64(all.Accepted) / float64(all.Ready)
	k := min(int(c.Count)/n, windowsKept)
	if k < 2 {
		return mean
	}
	var at [windowsKept]float64
	for i := range k {
		w := l.windowBefore(c.Count-int64(i*n), n)
		if w.Accepted == 0 {
			return mean
		}
		at[i] = float64(w.Accepted) / float64(w.Ready)
	}
	slope := line(at[:k], (1-mean)*float64(k)/float64(all.Accepted))
	ahead := float64(k-1) / 2
	if slope > 0 {
		ahead += 0.5
	}
	return min(max(mean+float64(slope*ahead), mean/2), 1)
}

// sizeOf is the number of rollouts of a group, those beyond GroupSize included.
func (l *Loop) sizeOf(gi int32) int {
	if !l.sizes {
		return l.stride
	}
	return int(l.s.Extras[gi].Size)
}

// move puts a setting to a value, says so and does what follows from it. What runs goes on:
// fewer slots and fewer groups come about as rollouts end.
func (l *Loop) move(set Setting, value float64, why Reason) {
	s, c := &l.s, l.s.Control
	if c.At[set] == value {
		return
	}
	c.At[set], c.Why[set], c.MovedAt[set] = value, why, s.Trained
	c.Moves++
	l.emit(Action{Kind: SettingChanged, Setting: set, Value: value, Reason: why, Version: s.Trained})
	l.adopt()
	switch set {
	case SettingHold:
		if value == 0 {
			s.Hold = hold{Since: unknownTime}
		}
	case SettingQueue:
		l.fitQueue()
	case SettingSyncEvery:
		if s.Finished == ReasonNone && !s.Stopping {
			l.startSync()
		}
	case SettingEngines:
		l.fitFleet()
	}
}

// fitQueue has the queue keep within a capacity that has changed. What exceeds it goes as from a
// full queue; PolicyBlock, which drops nothing, holds the newest outside.
func (l *Loop) fitQueue() {
	s := &l.s
	for s.Queue.Len > l.rules.queue {
		switch {
		case l.cfg.Policy == PolicyBlock:
			l.putOutside()
		case l.fresh() && s.Groups[s.Queue.Head].Turn >= s.FreshFrom:
			l.endGroup(l.before(s.Queue.Tail, l.draw(uint64(s.Queue.Len))), EndEvicted, ReasonFull)
		default:
			l.evict()
		}
	}
	l.admitHeld()
}
