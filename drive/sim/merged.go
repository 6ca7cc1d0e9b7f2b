package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
)

// merged runs the rollouts of a simulation in which the end of a whole rollout is
// known when it starts: engines neither change their speed nor stand still, and
// nothing is interrupted (Config.merged). A rollout is then one entry in a calendar;
// what remains is which versions made its tokens, and that is worked out from the
// engine's switches when it ends.
//
// It gives the same results, byte for byte, as the general path.
type merged struct {
	slots    []rollout
	calendar calendar
	// switches are those of every engine, served what each serves.
	switches []switches
	// ns is the time of a token, nsWhole the same as a whole number, 0 if it is none.
	ns      float64
	nsWhole int64
	// tokensMax is the length beyond which a rollout is pruned.
	tokensMax int32
	// plain draws where lengths are all there is to the workload, nil elsewhere; draws are
	// those of the group drawn.
	plain *Modelled
	drawn loop.GroupID
	draws workload.Members
	// byVersion are the tokens of the rollout that ends, by version.
	byVersion []metrics.VersionTokens
	// bound is the time before which no other event than a rollout's end comes.
	bound int64
	ev    loop.Event
	m     metrics.Measured
	// wide says that there are so many slots that readAhead pays. It reads what keepers have for the slots in ahead;
	// touched keeps what it read.
	wide    bool
	keepers []keeper
	ahead   []int32
	touched int32
}

// wideSlots is from how many slots on their records lie outside a core's own caches; aheadMost is of how many ends at
// most the records are read ahead: all of a common day's, and few enough to stay near until they are needed.
const (
	wideSlots = 4096
	aheadMost = 32
)

// rollout is a rollout in a slot of a merged run. It fills one cache line at most.
type rollout struct {
	group loop.GroupID // 0: the slot is free
	// end is when it is scored, environmentNS of that after the last token.
	end           int64
	environmentNS int64
	// from is the number of the first switch of its engine after its start.
	from    int64
	tokens  int32
	sample  int32
	attempt int32
	next    int32 // in its bucket
	reward  float32
	engine  int32 // the slot's
	verdict loop.Mark
}

func (s *rollout) before(o *rollout) bool {
	return s.group < o.group || s.group == o.group && s.sample < o.sample
}

// switches is what an engine served, and until when.
type switches struct {
	served loop.Version
	// count is how many there were. The last two are apart: hardly a rollout sees more.
	count              int64
	beforeLast, latest switched
	// log has the switches from number first on: those that a running rollout has seen.
	first int64
	log   []switched
}

// switched is a switch of weights: when, and by how many versions.
type switched struct {
	at float64 // ns
	by int64
}

// longAgo is before anything: no rollout has made a token then, however long it takes.
const longAgo = -(1 << 61)

func newMerged(cfg *Config) *merged {
	c := cfg.Loop.Concurrency()
	m := &merged{slots: make([]rollout, c), switches: make([]switches, len(cfg.Loop.EngineSlots)), ns: cfg.NSPerToken}
	m.calendar = newCalendar(m.slots)
	first := 0
	for i, n := range cfg.Loop.EngineSlots {
		m.switches[i] = switches{beforeLast: switched{at: longAgo}, latest: switched{at: longAgo}, log: make([]switched, 0, 64)}
		for range n {
			m.slots[first].engine = int32(i)
			first++
		}
	}
	if whole := int64(cfg.NSPerToken); float64(whole) == cfg.NSPerToken && whole < 1<<31 {
		m.nsWhole = whole
	}
	if w, ok := cfg.Work.(*Modelled); ok && w.plain {
		m.plain = w
	}
	m.tokensMax = math.MaxInt32
	if cfg.PruneTokens > 0 {
		m.tokensMax = cfg.PruneTokens
	}
	m.ev.Kind = loop.RolloutScored
	m.wide, m.ahead = len(m.slots) >= wideSlots, make([]int32, 0, aheadMost)
	return m
}

// runMerged is run where rollouts are merged.
func (r *runner) runMerged() error {
	m := r.merged
	c := &m.calendar
	r.deliver(loop.Event{Kind: loop.RunStarted}, 0, metrics.Measured{})
	r.startSteering()
	r.ask()
	m.bound = r.bound()
	for !r.done {
		if err := r.cfg.stopped(); err != nil {
			return err
		}
		if c.next < len(c.due) || r.turn() {
			if d := &c.due[c.next]; d.end < m.bound {
				c.next++
				r.now = d.end
				r.endMerged(d.slot)
				if r.sinceStep > r.stallAfter {
					return r.stalled(false)
				}
				continue
			}
		}
		if !r.other() {
			return r.stalled(true)
		}
		m.bound = r.bound()
		if r.sinceStep > r.stallAfter {
			return r.stalled(false)
		}
	}
	return nil
}

// turn goes on to the next day of the calendar, as the calendar's own does.
func (r *runner) turn() bool {
	if !r.merged.calendar.turn() {
		return false
	}
	if r.merged.wide {
		r.merged.readAhead()
	}
	return true
}

// readAhead reads the records that the ends of today will need. With so many slots that they lie outside the nearest
// caches, each end waits for eight of them otherwise, and for some only after others. Read in two passes, those of all ends
// are on their way at once.
func (m *merged) readAhead() {
	c := &m.calendar
	slots := m.ahead[:0]
	for i := range min(len(c.due)-c.next, cap(slots)) {
		slots = append(slots, c.due[c.next+i].slot)
	}
	for _, k := range m.keepers {
		m.touched += k.TouchSlots(slots)
	}
	for _, k := range m.keepers {
		m.touched += k.TouchGroups(slots)
	}
}

// keeper keeps records of slots and of the groups of their rollouts. Its methods read them and return what keeps the
// reads from being left out.
type keeper interface {
	TouchSlots(slots []int32) int32
	TouchGroups(slots []int32) int32
}

// bound returns the time before which no scheduled event and no tick comes; an event that
// follows the rollouts of its instant counts for the next.
func (r *runner) bound() int64 {
	bound := r.tick
	if p := r.nextPending(); p != nil {
		at := p.Time
		if p.Kind >= loop.RolloutScored {
			at++
		}
		bound = min(bound, at)
	}
	return bound
}

// other delivers the next scheduled event or tick. It reports false if there is none.
func (r *runner) other() bool {
	switch {
	case r.pendingFirst(math.MaxInt64):
		r.deliverPending()
	case r.tick != loop.NoTick:
		r.now = max(r.now, r.tick)
		r.deliver(loop.Event{Time: r.now, Kind: loop.Tick}, 0, metrics.Measured{})
	default:
		return false
	}
	return true
}

// endMerged ends the rollout in a slot, whose place most often another takes at once.
func (r *runner) endMerged(slot int32) {
	m := r.merged
	s := &m.slots[slot]
	ev := &m.ev
	ev.Time, ev.Slot, ev.Group, ev.Sample, ev.Attempt = r.now, slot, s.group, s.sample, s.attempt
	ev.Tokens, ev.Reward, ev.Mark = s.tokens, s.reward, s.verdict
	m.m.VersionTokens, m.m.Spans = m.versionTokens(s)
	m.m.EnvironmentNS = s.environmentNS
	if r.cfg.TokenVersions {
		m.m.ByVersion = m.tokensByVersion(s)
	}
	if r.cfg.countsTokens() {
		ev.Made = m.m.ByVersion
	}
	s.group = 0
	r.events++
	r.sinceStep++
	actions, tick := r.l.StepEvent(ev)
	m.m.QueueGroups = r.l.QueueGroups()
	r.rec.ObserveEvent(ev, &m.m, actions)
	if r.cfg.Observe != nil {
		r.cfg.Observe(*ev, m.generateNS(ev.Tokens), m.m.EnvironmentNS, actions)
	}
	if len(actions) == 1 && tick == r.tick && actions[0].Kind == loop.StartRollout {
		r.startMerged(&actions[0])
		return
	}
	r.tick = tick
	for i := range actions {
		r.execute(&actions[i])
	}
	m.bound = r.bound()
}

// startMerged starts a rollout.
func (r *runner) startMerged(a *loop.Action) {
	m := r.merged
	s := &m.slots[a.Slot]
	// Sample and attempt apart: halves that were stored one by one are slow to read as one.
	s.group, s.sample, s.from, s.attempt = a.Group, a.Sample, m.switches[a.Engine].count, a.Attempt
	if m.plain != nil {
		if a.Group != m.drawn {
			m.drawn, m.draws = a.Group, m.plain.length.Group(uint64(a.Group))
		}
		s.tokens = int32(m.plain.lengths.DrawMember(m.draws, uint32(a.Sample), uint32(a.Attempt)))
		s.environmentNS, s.reward, s.verdict = 0, 0, loop.MarkNone
	} else {
		w := r.cfg.Work.Rollout(Rollout{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Level: a.Level, Prompt: a.Prompt, Version: a.Version})
		s.tokens, s.environmentNS, s.reward, s.verdict = w.Tokens, w.EnvironmentNS, w.Reward, w.Mark
	}
	if s.tokens > m.tokensMax {
		s.tokens, s.environmentNS, s.reward, s.verdict = m.tokensMax, 0, 0, loop.MarkPruned
	}
	s.end = r.now + m.generateNS(s.tokens) + s.environmentNS
	m.calendar.add(a.Slot, s)
}

// generateNS returns how long so many tokens take.
func (m *merged) generateNS(tokens int32) int64 {
	if m.nsWhole > 0 {
		return int64(tokens) * m.nsWhole
	}
	return int64(min(math.Round(float64(tokens)*m.ns), 1<<61))
}

// abortMerged stops a rollout at once.
func (r *runner) abortMerged(a *loop.Action) {
	m := r.merged
	s := &m.slots[a.Slot]
	if s.group != a.Group || s.sample != a.Sample || s.attempt != a.Attempt {
		return
	}
	m.calendar.remove(a.Slot)
	made := int32(m.made(int64(s.tokens), s.lastToken(), float64(r.now)))
	s.group = 0
	r.schedule(loop.Event{Time: r.now, Kind: loop.RolloutAborted, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Tokens: made})
}

// made returns how many tokens a rollout has at a time, of so many, when it makes
// the last one at the time last.
func (m *merged) made(tokens int64, last, now float64) int64 {
	rest := (last-now)/m.ns - aStep
	left := int64(rest)
	if float64(left) < rest {
		left++ // math.Ceil
	}
	return tokens - max(min(left, tokens), 0)
}

// lastToken returns when a rollout makes its last token.
func (s *rollout) lastToken() float64 { return float64(s.end - s.environmentNS) }

// versionTokens returns the sum over a rollout's tokens, at its end, of the version
// that made each, and of how many runs of tokens of one version it is made.
//
// Every switch that the rollout has seen found so many tokens made, which were of
// versions lower by its step. The last two switches are always looked at: those
// before the rollout began found none made, and how many it has seen is chance, so
// that a loop's end would be guessed wrong more often than not.
func (m *merged) versionTokens(s *rollout) (sum int64, runs int) {
	w := &m.switches[s.engine]
	tokens, last := int64(s.tokens), s.lastToken()
	sum = int64(w.served) * tokens
	if s.from+2 >= w.count {
		before := m.made(tokens, last, w.beforeLast.at)
		made := m.made(tokens, last, w.latest.at)
		sum -= before*w.beforeLast.by + made*w.latest.by
		return sum, fewer(0, before) + fewer(before, made) + fewer(made, tokens)
	}
	made := int64(0)
	for _, x := range w.log[s.from-w.first:] {
		before := made
		made = m.made(tokens, last, x.at)
		sum -= made * x.by
		runs += fewer(before, made)
	}
	return sum, runs + fewer(made, tokens)
}

// tokensByVersion are a rollout's tokens, at its end, by the version that made them.
func (m *merged) tokensByVersion(s *rollout) []metrics.VersionTokens {
	w := &m.switches[s.engine]
	seen := w.log[max(s.from-w.first, 0):]
	v := w.served
	for _, x := range seen {
		v -= loop.Version(x.by)
	}
	m.byVersion = m.byVersion[:0]
	add := func(tokens int64) {
		if tokens > 0 {
			m.byVersion = append(m.byVersion, metrics.VersionTokens{Version: v, Tokens: tokens})
		}
	}
	made := int64(0)
	for _, x := range seen {
		before := made
		made = m.made(int64(s.tokens), s.lastToken(), x.at)
		add(made - before)
		v += loop.Version(x.by)
	}
	add(int64(s.tokens) - made)
	return m.byVersion
}

// fewer is 1 if a is less than b and 0 if not.
func fewer(a, b int64) int { return int(uint64(a-b) >> 63) }

// switchMerged has an engine serve a version from now on.
func (r *runner) switchMerged(engine int32, v loop.Version) {
	m := r.merged
	w := &m.switches[engine]
	if len(w.log) == cap(w.log) {
		m.forget(engine)
	}
	w.beforeLast, w.latest = w.latest, switched{at: float64(r.now), by: int64(v - w.served)}
	w.log = append(w.log, w.latest)
	w.served = v
	w.count++
}

// forget drops the switches that every running rollout of an engine has come after,
// and doubles the room if most are still needed.
func (m *merged) forget(engine int32) {
	w := &m.switches[engine]
	needed := w.count
	for i := range m.slots {
		if s := &m.slots[i]; s.group != 0 && s.engine == engine {
			needed = min(needed, s.from)
		}
	}
	log := w.log
	if w.count-needed > int64(cap(log)/2) {
		log = make([]switched, 0, 2*cap(log))
	}
	w.log = append(log[:0], w.log[needed-w.first:]...)
	w.first = needed
}
