package loop

// windowsKept is how many windows of train steps are kept: what comes is foreseen by a line through them.
const windowsKept = 4

// ages is the number of versions apart, from none, that staleness is counted by; older counts as the last.
const ages = 64

// controller is what the loop knows for the sake of a goal, and where it has put its settings.
type controller struct {
	// At is where the settings stand, Why and MovedAt what moved each last and the version it was then.
	At      [settingCount]float64
	Why     [settingCount]Reason
	MovedAt [settingCount]Version
	// Moves counts changes since the start.
	Moves int64
	State ControlState
	// Binding is what binds where the goal is unreachable, Nearest what can be reached.
	Binding Setting
	Nearest float64

	// Now is measured of the train step under way, Steps holds those before it: Count in all, the newest at
	// (Count-1) modulo their number.
	Now   figures
	Steps []figures
	Count int64
	// Ages counts what each of Steps trained by its staleness, ages of them a step; empty without Share.
	Ages []int64
	// Since is the Count at which the present regime began. Noise is the variance of what a live group stands for in a
	// window, as a part of it, about a straight line.
	Since int64
	Noise float64
	// QuietAt is since when no train step has ended: the last end, or the recovery or restore after it.
	QuietAt int64
	// Held counts the train steps whose window held the goal, HeldBatches those whose own batch did, of Judged.
	Held, HeldBatches, Judged int64

	// Began is when each slot's rollout began there. Tokens are by group of the arena, and in it by the version that
	// made them, ages of them a group; nil unless the goal counts them.
	Began  []int64
	Tokens []int64

	// Capacity is the number of slots of the engines that were there when the regime began, Refused the version at
	// which the pool could give no engine last, NoVersion for never, OthersAt that of the last move of a setting
	// beside the lever.
	Capacity          int
	Refused, OthersAt Version
}

// figures are what one train step and the time since the one before measured.
type figures struct {
	// Groups trained, and the sum of their staleness, in versions.
	Groups, Staleness int64
	// Weight is what was trained, rollouts or tokens, Within that which is within Control.Within versions.
	Weight, Within int64
	// Live is what SettingLive amounted to just after the step's end.
	Live float64
	// PeriodNS is the time since the step before ended, StepNS the step's own.
	PeriodNS, StepNS int64
	// BusyNS is the sum of the times that rollouts had their slots. Ready counts groups, Accepted those of them
	// that came to the queue, Dropped those that ended untrained.
	BusyNS, Ready, Accepted, Dropped int64
}

func newController(cfg *Config) *controller {
	ctl := cfg.Control
	c := &controller{State: ControlOff, Noise: noiseStart, Capacity: cfg.Concurrency(), Refused: NoVersion,
		Steps: make([]figures, windowsKept*ctl.Window), Began: make([]int64, cfg.Concurrency())}
	for i := range c.Began {
		c.Began[i] = unknownTime
	}
	if ctl.Share > 0 {
		c.Noise = noiseShare
		c.Ages = make([]int64, windowsKept*ages*ctl.Window)
	}
	if ctl.Tokens {
		c.Tokens = []int64{}
	}
	for set := range settingCount {
		c.At[set] = cfg.startOf(set)
	}
	return c
}

// grow follows the arena.
func (c *controller) grow(groups int) {
	for c.Tokens != nil && len(c.Tokens) < ages*groups {
		c.Tokens = append(c.Tokens, 0)
	}
}

// measureOpened prepares what is measured of a group.
func (l *Loop) measureOpened(gi int32) {
	c := l.s.Control
	l.s.Extras[gi].Size = int32(l.rules.size)
	if c.Tokens != nil {
		clear(c.Tokens[int(gi)*ages : (int(gi)+1)*ages])
	}
}

// measureSpan takes the end of a rollout's time in a slot.
func (l *Loop) measureSpan(slot int32) {
	c := l.s.Control
	if began := c.Began[slot]; began != unknownTime {
		c.Began[slot] = unknownTime
		c.Now.BusyNS += l.s.Now - began
	}
}

// measureTokens counts a scored response's tokens by the version that sampled them. What the event does not name was
// sampled by the group's first version, as far as anybody knows.
func (l *Loop) measureTokens(ev *Event, gi int32) {
	c := l.s.Control
	if c.Tokens == nil {
		return
	}
	by, first, left := c.Tokens[int(gi)*ages:(int(gi)+1)*ages], max(l.s.Groups[gi].Start, 0), int64(max(ev.Tokens, 0))
	for _, made := range ev.Made {
		n := min(max(made.Tokens, 0), left)
		by[min(max(made.Version, first), l.s.Trained)%ages] += n
		left -= n
	}
	by[first%ages] += left
}

// measureBatch takes the batch of a train step that ends.
func (l *Loop) measureBatch() {
	s, c := &l.s, l.s.Control
	now := &c.Now
	if s.Times.EndAt != unknownTime {
		now.PeriodNS = s.Now - s.Times.EndAt
	}
	if s.Times.LeaseAt != unknownTime {
		now.StepNS = s.Now - s.Times.LeaseAt
	}
	if c.Ages != nil {
		clear(c.agesAt(c.Count))
	}
	for _, gi := range s.Lease.Groups {
		g := &s.Groups[gi]
		stale := s.Lease.Version - g.Start
		now.Groups++
		now.Staleness += int64(stale)
		if c.Ages == nil {
			continue
		}
		switch {
		case c.Tokens == nil:
			c.age(stale, int64(g.Scored), l.cfg.Control.Within)
		case stale >= ages: // which version made what is no longer known
			for _, n := range c.Tokens[int(gi)*ages : (int(gi)+1)*ages] {
				c.age(stale, n, l.cfg.Control.Within)
			}
		default:
			for v := max(g.Start, 0); v <= s.Lease.Version; v++ {
				c.age(s.Lease.Version-v, c.Tokens[int(gi)*ages+int(v%ages)], l.cfg.Control.Within)
			}
		}
	}
}

// agesAt is the count by staleness of the step of that number.
func (c *controller) agesAt(count int64) []int64 {
	k := int(count % int64(len(c.Steps)))
	return c.Ages[k*ages : (k+1)*ages]
}

// age counts what was trained at a staleness.
func (c *controller) age(stale Version, weight int64, within Version) {
	c.Now.Weight += weight
	if stale <= within {
		c.Now.Within += weight
	}
	c.agesAt(c.Count)[min(max(stale, 0), ages-1)] += weight
}

// measureStep takes the moment just after an update, before the next batch is selected.
func (l *Loop) measureStep() {
	c := l.s.Control
	c.Now.Live, c.QuietAt = l.stood(), l.s.Now
	c.Steps[c.Count%int64(len(c.Steps))] = c.Now
	c.Count++
	c.Now = figures{}
	if l.cfg.Control.Ranges[SettingLive].Moves() {
		l.rules.passes = l.passing()
	}
}
