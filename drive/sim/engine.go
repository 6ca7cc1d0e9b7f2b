package sim

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/metrics"
)

// phase is where a rollout is.
type phase uint8

const (
	generating phase = iota
	// prefilling has its first token still to come.
	prefilling
	// starting is not yet taken up by its engine.
	starting
	// outside is in its environment.
	outside
)

// slot is a rollout in a slot of an engine. A switch of weights goes through all of
// them: what it reads comes first.
type slot struct {
	group loop.GroupID // 0: the slot is free
	// work is the amount on its engine's clock at which generation ends. While it is
	// starting or stands interrupted, it is what remains to be done; outside, it is the
	// time at which the environment ends.
	work          float64
	versionTokens int64
	tokens        int32
	counted       int32 // tokens whose version is accounted for
	runs          int32 // of tokens of one version, between interruptions, that are accounted for
	oldest        int32 // the lowest version of those tokens
	newest        int32 // the version of the last of them
	// firstNS and tokenNS are the engine's times for its first token and for each one after it, at speed 1.
	firstNS, tokenNS float64
	phase            phase
	mark             loop.Mark
	engine           int32
	sample           int32
	attempt          int32
	environmentNS    int64
	start            int64 // of its present span
	generatedNS      int64 // before that, or before its environment
	begunNS          int64 // when its attempt started
	readNS           int64 // of all that, reading what it had when it was resumed
	// firstVersion sampled the first token, once weights have changed since; NoVersion before.
	firstVersion loop.Version
	reward       float32
	spans        int32 // interruptions after which it had tokens
	cut          bool  // interrupted since tokens were last accounted for
	resumed      bool
	stateLag     int32 // by how much oldest was behind what it was last resumed under
	// made are its tokens by the version that sampled them, nil but under Config.TokenVersions.
	made []metrics.VersionTokens
	// agent is what it does beside generating, under Config.Agents: it is outside whenever it does not generate.
	agent *agent
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
	// relative is its part of the speed that never changes.
	relative float64
	held     holds
	active   int
	lost     bool
	attempt  int32 // of its last load
	// origin is the work at which some decode step of the present ones began.
	origin float64
}

// holds are the reasons for which an engine stands still.
type holds uint8

const (
	heldBySync holds = 1 << iota
	// heldByPrefill: it reads for one of its rollouts.
	heldByPrefill
	// heldByValidation: it generates for something else.
	heldByValidation
)

// does is what an engine that stands still does instead of generating for rollouts.
type does uint8

const (
	generates does = iota // or waits
	reads
	validates
	doesCount
)

// does says what the engine does.
func (e *engine) does() does {
	switch {
	case e.held&heldByValidation != 0:
		return validates
	case e.held == heldByPrefill:
		return reads
	}
	return generates
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

// account adds the tokens that a generating rollout has made by now, under the
// version still served, to what is accounted for.
func (e *engine) account(s *slot) {
	if left := int32(min(math.Ceil((s.work-e.clock)/s.tokenNS-aStep), float64(s.tokens))); left < s.tokens-s.counted {
		s.add(s.tokens-max(left, 0), e.served)
	}
}

// firstAt is the amount of work at which a rollout that is in an engine has its first token.
func (s *slot) firstAt() float64 { return s.work - float64(s.tokens-1)*s.tokenNS }

// add accounts for the tokens up to a larger number, made under a version.
func (s *slot) add(made int32, v loop.Version) {
	if s.made != nil && made > s.counted {
		s.made = append(s.made, metrics.VersionTokens{Version: v, Tokens: int64(made - s.counted)})
	}
	s.versionTokens += int64(v) * int64(made-s.counted)
	s.counted = made
	if s.runs == 0 || s.cut || int32(v) != s.newest {
		s.runs++
	}
	if s.newest, s.cut = int32(v), false; s.runs == 1 || int32(v) < s.oldest {
		s.oldest = int32(v)
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
	if e.held != 0 {
		return e.clock
	}
	return e.clock + float64(now-e.at)*e.speed
}

// settle brings the clock up to now, so that the speed may change.
func (e *engine) settle(now int64) {
	e.clock = e.workDone(now)
	e.at = now
}

// hold has the engine stand still for a reason, or no longer for that one.
func (e *engine) hold(now int64, why holds, on bool) {
	e.settle(now)
	if e.held &^= why; on {
		e.held |= why
	}
}

// stands reports whether the engine stands still for something else than a prefill.
func (e *engine) stands() bool { return e.held&^heldByPrefill != 0 }

// switched serves a version from now on, and accounts for the tokens that running
// rollouts have made under the one before.
func (e *engine) switched(now int64, v loop.Version) {
	e.settle(now)
	for i := range e.slots {
		s := &e.slots[i]
		if s.group == 0 || s.phase > prefilling {
			continue
		}
		if s.phase == prefilling && s.firstVersion == loop.NoVersion && s.firstAt() < e.clock+s.firstNS/2 {
			s.firstVersion = e.served
		}
		e.account(s)
	}
	e.served = v
}
