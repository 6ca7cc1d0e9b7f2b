package config

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
)

// Warning is something about a document that is allowed, and probably not what
// was meant.
type Warning struct {
	// File and Line are where the key was given; Line is 0 where it was not, or by an override.
	File string `json:"file"`
	Line int    `json:"line"`
	// Key is the dotted path of the key to look at.
	Key string `json:"key"`
	// Text says what follows from it, and what to do.
	Text string `json:"text"`
}

// String renders the warning on one line.
func (w Warning) String() string {
	where := ""
	switch {
	case w.Line > 0:
		where = fmt.Sprintf("%s:%d: ", w.File, w.Line)
	case w.File != "":
		where = w.File + ": "
	}
	return where + w.Key + ": " + w.Text
}

// Limits of the rule hold, past which it selects groups by their length.
// Measured on the simulator: beyond them the mean length of what is trained is
// off by a hundredth and more.
const (
	holdMax            = 0.3
	groupsInFlightHold = 16
)

// Warnings lists what is doubtful about a resolved Config that Validate accepts.
func (c Config) Warnings() []Warning {
	var found []Warning
	warn := c.warnInto(&found)
	c.replacedWarnings(warn)
	c.holdWarnings(warn)
	c.rolloutWarnings(warn)
	c.queueWarnings(warn)
	c.shapingWarnings(warn)
	c.controlWarnings(warn)
	c.agentWarnings(warn)
	c.engineWarnings(warn)
	c.environmentWarnings(warn)
	return found
}

// RunWarnings lists what is doubtful about a resolved Config that a run follows: its
// [Config.Warnings], and a wait that simulations alone have.
func (c Config) RunWarnings() []Warning {
	found := c.Warnings()
	_, modelled := c.givenUnder("modelled.environment")
	if _, real := c.givenUnder("environment.service_time"); modelled && !real && c.Modelled.Environment.Kind != "none" {
		c.warnInto(&found)("modelled.environment", "is of simulations, and rollouts of this run do not wait: a run waits by environment.service_time, which has the same keys")
	}
	return found
}

// warnInto returns a function that adds a warning about a key, at the place where the key was given.
func (c Config) warnInto(found *[]Warning) func(key, format string, args ...any) {
	return func(key, format string, args ...any) {
		at := c.placeOf(key)
		if c.origin != nil {
			if replaced, ok := c.origin.replaced[key]; ok {
				at = replaced
			}
		}
		*found = append(*found, Warning{File: at.file, Line: at.line, Key: c.origin.asWritten(key), Text: fmt.Sprintf(format, args...)})
	}
}

// replacedWarnings name keys that schedule synchronous has no use for.
func (c Config) replacedWarnings(warn func(key, format string, args ...any)) {
	if c.Schedule != synchronousSchedule || c.origin == nil {
		return
	}
	note := c.presetNote("schedule")
	for _, key := range slices.Sorted(maps.Keys(c.origin.replaced)) {
		if key == "control" || strings.HasPrefix(key, "control.") {
			warn(key, "has no effect with schedule synchronous%s: its batches have no staleness for a controller to keep; leave it out", note)
			continue
		}
		if key == "sync.every" {
			warn(key, "has no effect with schedule synchronous%s: every train step is followed by a sync; leave it out", note)
			continue
		}
		warn(key, "has no effect with schedule synchronous%s: the groups of one batch open for every version served, and nothing is dropped; leave it out", note)
	}
}

// rolloutWarnings name keys of the rollouts that change nothing.
func (c Config) rolloutWarnings(warn func(key, format string, args ...any)) {
	if groups := c.BatchGroups(); c.Rollout.Oversample > 1 && c.Schedule == synchronousSchedule && c.ExtraGroups() == 0 {
		warn("rollout.oversample", "%s has no effect: of %d groups a batch it opens no whole one more; the first comes at %s",
			number(c.Rollout.Oversample), groups, number(math.Ceil(1000*float64(groups+1)/float64(groups))/1000))
	}
	if p := c.Rollout.Partial; p.MaxSpans > 0 && p.Interrupt == "none" && c.Sync.Mode != "restart" {
		warn("rollout.partial.max_spans", "%d has no effect: nothing is interrupted without rollout.partial.interrupt batch or sync.mode restart", p.MaxSpans)
	}
}

// holdWarnings name the bias of the rule hold past its limits.
func (c Config) holdWarnings(warn func(key, format string, args ...any)) {
	hold := c.Queue.Hold
	if c.Queue.Select == "fresh" { // a random choice among those that opened together
		return
	}
	if hold > holdMax {
		warn("queue.hold", "%s is above %s: groups that open together behind a switch are selected by their length, a bias of a hundredth and more in what is trained; select: fresh draws among them and has none, at most %s keeps it small",
			number(hold), number(holdMax), number(holdMax))
	}
	if inFlight := float64(c.Rollout.Concurrency) / float64(c.Rollout.GroupSize); hold > 0 && inFlight < groupsInFlightHold {
		warn("queue.hold", "%s with %.3g groups in flight (rollout.concurrency over group_size): below %d every held start shows in the lengths, a bias of a hundredth and more in what is trained; select: fresh, more concurrency, or hold 0",
			number(hold), inFlight, groupsInFlightHold)
	}
}

// queueWarnings name keys of the queue that change nothing.
func (c Config) queueWarnings(warn func(key, format string, args ...any)) {
	if c.Schedule == synchronousSchedule {
		return
	}
	q := c.Queue
	if q.Policy == "threshold" && q.StalenessThreshold == 0 && c.Sync.Mode == "restart" {
		warn("sync.mode", "restart (verl's partial_rollout) does nothing with staleness_threshold 0: every rollout is trained on before the sync, and none is left to interrupt")
	}
	c.verlWarnings(warn)
	if at, held := int(math.Floor(q.PauseAt*float64(c.BatchGroups())+groupEpsilon)), c.QueueGroups(); q.PauseAt > 0 &&
		(at > held || at == held && q.Policy == "block") {
		warn("queue.pause_at", "%s has no effect: the queue never holds more than %d groups, and admission pauses at %d", number(q.PauseAt), held, at)
	}
	if q.Policy == "replay" && q.MaxUses == 1 && q.Gamma == 1 {
		warn("queue.max_uses", "1 with gamma 1 makes the buffer a queue that is drawn from at random: nothing is used again")
	}
}

// shapingWarnings name filters that let nothing through.
func (c Config) shapingWarnings(warn func(key, format string, args ...any)) {
	s := c.Rollout.GroupSize
	band := c.Filter.SolveRate
	if band.Drop || c.Filter.Curriculum.Levels > 0 {
		const tolerance = 1e-9
		if math.Floor(band.High*float64(s)+tolerance) < math.Ceil(band.Low*float64(s)-tolerance) {
			warn("filter.solve_rate", "no whole number of %d rollouts is a solve rate from %s to %s: the band excludes every group, and a run with it stalls", s, number(band.Low), number(band.High))
		}
	}
	if prune, limit := c.Rollout.Prune.Tokens, c.Modelled.Length.CapTokens; prune > 0 && limit > 0 && prune >= limit {
		warn("rollout.prune.tokens", "%d prunes nothing in a simulation: modelled.length.cap_tokens (%d) ends every rollout before", prune, limit)
	}
}
