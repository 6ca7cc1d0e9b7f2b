package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
)

// phase is where a rollout is.
type phase uint8

const (
	generating phase = iota
	// starting is not yet taken up by its engine.
	starting
	// prefilling has its first token still to come.
	prefilling
	// outside is in its environment.
	outside
)

// slot is a rollout in a slot of an engine.
type slot struct {
	group         loop.GroupID // 0: the slot is free
	sample        int32
	attempt       int32
	tokens        int32
	counted       int32 // tokens whose version is accounted for
	engine        int32
	reward        float32
	spans         int32 // interruptions after which it had tokens
	runs          int32 // of tokens of one version, between interruptions, that are accounted for
	phase         phase
	verdict       loop.Verdict
	versionTokens int64
	environmentNS int64
	start         int64 // of its present span
	generatedNS   int64 // before that, or before its environment
	// work is the amount on its engine's clock at which generation ends. While it is
	// starting or stands interrupted, it is what remains to be done; outside, it is the
	// time at which the environment ends.
	work float64
	// firstVersion sampled the first token, once weights have changed since; NoVersion before.
	firstVersion loop.Version
	// oldest is the lowest version of the tokens accounted for, stateLag by how many versions
	// it was behind what the rollout was last resumed under.
	oldest   loop.Version
	stateLag loop.Version
}

// is reports whether the slot holds that attempt.
func (s *slot) is(group loop.GroupID, sample, attempt int32) bool {
	return s.group == group && s.sample == sample && s.attempt == attempt
}

// before orders two rollouts that end at one instant.
func (s *slot) before(o *slot) bool {
	return s.group < o.group || s.group == o.group && s.sample < o.sample
}

// engine advances all its rollouts at one speed, so that one clock of work done serves them all.
type engine struct {
	// running holds the ends of generation, in work done.
	running tree
	// slots are its own part of the runner's.
	slots  []slot
	served loop.Version
	clock  float64 // work done by the time at, in ns at speed 1
	at     int64
	speed  float64
	held   bool
	active int
	// origin is the work at which some decode step of the present ones began.
	origin float64
}

// aStep is the share of a decode step within which work counts as being at its
// boundary: times are whole nanoseconds, work is not.
const aStep = 1e-6

// stepAfter returns the number of the next decode step to begin, from the origin,
// and restarts the count in an idle engine, which begins a step at once.
func (e *engine) stepAfter(now int64, nsPerToken float64) float64 {
	work := e.workDone(now)
	if e.active == 0 {
		e.origin = work
		return 0
	}
	return math.Ceil((work-e.origin)/nsPerToken - aStep)
}

// stepEnd returns when the running decode step ends.
func (e *engine) stepEnd(now int64, nsPerToken float64) int64 {
	return e.timeOf(keyOf(e.origin + e.stepAfter(now, nsPerToken)*nsPerToken))
}

// account adds the tokens that a generating rollout has made under the version now
// served and that are not accounted for yet.
func (e *engine) account(s *slot, now int64, nsPerToken float64) {
	made := s.tokens - int32(math.Ceil((s.work-e.workDone(now))/nsPerToken-aStep))
	s.add(min(made, s.tokens), e.served)
}

// add accounts for the tokens up to a number, made under a version.
func (s *slot) add(made int32, v loop.Version) {
	if made <= s.counted {
		return
	}
	s.versionTokens += int64(v) * int64(made-s.counted)
	s.counted = made
	if s.runs++; s.runs == 1 || v < s.oldest {
		s.oldest = v
	}
}

// timeOf returns when the clock will show an amount of work.
func (e *engine) timeOf(key uint64) int64 {
	work := valueOf(key) - e.clock
	if e.speed != 1 {
		work /= e.speed
	}
	return e.at + int64(math.Ceil(work))
}

// workDone returns the engine's clock at a time.
func (e *engine) workDone(now int64) float64 {
	if e.held {
		return e.clock
	}
	return e.clock + float64(now-e.at)*e.speed
}

// settle brings the clock up to now, so that the speed may change.
func (e *engine) settle(now int64) {
	e.clock = e.workDone(now)
	e.at = now
}

// hold has the engine stand still, or go on.
func (e *engine) hold(now int64, held bool) {
	e.settle(now)
	e.held = held
}

// switched serves a version from now on, and accounts for the tokens that running
// rollouts have made under the one before.
func (e *engine) switched(now int64, v loop.Version, nsPerToken float64) {
	e.hold(now, false)
	for i := range e.slots {
		s := &e.slots[i]
		if s.group == 0 || s.phase == starting || s.phase == outside {
			continue
		}
		if s.phase == prefilling && s.firstVersion == loop.NoVersion && s.work-float64(s.tokens)*nsPerToken < e.clock-nsPerToken/2 {
			s.firstVersion = e.served
		}
		e.account(s, now, nsPerToken)
	}
	e.served = v
}
