package serving

import (
	"fmt"
	"math"
)

// Load is what an engine does in one step.
type Load struct {
	// Decoding sequences get a token each; Resident is the sum of the tokens of their contexts. Distinct of them are
	// different ones: sequences that share a prefix have it in the cache once.
	Decoding           int
	Resident, Distinct float64
	// Prefill are the tokens of prompts that the step reads. PrefillPairs are the pairs of such a token and
	// one of its context, which attention computes.
	Prefill      int
	PrefillPairs float64
}

// Engine is one replica: the time of its steps, and the limits of its memory.
type Engine struct {
	// StepS is the time of a step in seconds: positive, and not falling in any of the load's figures.
	StepS func(Load) float64
	// BatchedTokens is the most tokens of a step, prompts' and decoding sequences' together; Sequences the most
	// calls at once.
	BatchedTokens, Sequences int
	// CacheTokens is what the cache holds, in blocks of BlockTokens. Where sessions name blocks, it is their size.
	CacheTokens, BlockTokens int
	// HostTokens is what host memory keeps beside the cache of what this engine computed; 0 for none. HostTokenS is the
	// time to load a token's cache from there, in seconds.
	HostTokens int
	HostTokenS float64
	// HostHidden says that placement does not know what the host has.
	HostHidden bool
	// PrefillAlone says that a step which reads prompts decodes nothing, as SGLang has it.
	PrefillAlone bool
	// NoPrefixCache says that no prompt finds anything.
	NoPrefixCache bool
}

// Placement is the rule by which a call goes to a replica.
type Placement string

// The placement rules. Ties go to the replica after the one that was chosen last.
const (
	// RoundRobin takes the replicas in turn, call by call.
	RoundRobin Placement = "round-robin"
	// LeastLoaded takes the replica with the fewest calls in flight.
	LeastLoaded Placement = "least-loaded"
	// Sticky takes the replicas in turn for sessions, and keeps a session where it is.
	Sticky Placement = "sticky"
	// StickyLeastLoaded starts a session where the fewest calls are in flight, and keeps it there.
	StickyLeastLoaded Placement = "sticky-least-loaded"
	// GroupLeastLoaded keeps all rollouts of a group on one replica: the one with the fewest prompt tokens in flight.
	GroupLeastLoaded Placement = "group-least-loaded"
	// PrefixWeighted weighs the share of the prompt that a replica's caches have with its queue and its free cache.
	PrefixWeighted Placement = "prefix-weighted"
	// ConsistentHash hashes the session onto a ring of replicas.
	ConsistentHash Placement = "consistent-hash"
)

// Placements lists the rules.
func Placements() []Placement {
	return []Placement{RoundRobin, LeastLoaded, Sticky, StickyLeastLoaded, GroupLeastLoaded, PrefixWeighted, ConsistentHash}
}

// Prefill is a pool of replicas that read prompts apart from those that decode.
type Prefill struct {
	Replicas  int
	Engine    Engine
	Placement Placement
	// TokenS is the time in which a replica's link moves the cache of one token to where it is decoded, in seconds.
	// StartS is what each such transfer takes besides.
	TokenS, StartS float64
}

// Config is a group of replicas and how sessions come to it.
type Config struct {
	// Replicas that decode, and read prompts unless Prefill does.
	Replicas  int
	Engine    Engine
	Placement Placement
	// Prefill reads prompts apart; nil for none.
	Prefill *Prefill
	// AtOnce is how many sessions run at once, each followed by the next that waits; 0 lets every session begin at its time.
	AtOnce int
	// SwitchesS are the times in seconds at which weights change, rising. No call finds blocks of weights before
	// unless KeepBlocks.
	SwitchesS  []float64
	KeepBlocks bool
}

// Validate says what is wrong with the settings.
func (c *Config) Validate() error {
	if err := validPool("serving", c.Replicas, &c.Engine, c.Placement); err != nil {
		return err
	}
	if c.AtOnce < 0 {
		return fmt.Errorf("serving: %d sessions at once: expected 0 for all at their times, or more", c.AtOnce)
	}
	for i, at := range c.SwitchesS {
		if !(at >= 0) || at > most || i > 0 && at < c.SwitchesS[i-1] {
			return fmt.Errorf("serving: switch %d of weights at %g s: expected rising times from 0 to %g", i+1, at, most)
		}
	}
	if c.Prefill == nil {
		return nil
	}
	if !(c.Prefill.TokenS >= 0 && c.Prefill.TokenS <= 1) || !(c.Prefill.StartS >= 0 && c.Prefill.StartS <= most) {
		return fmt.Errorf("serving: a transfer takes %g s and %g s a token: expected 0 to %g, and 0 to 1", c.Prefill.StartS, c.Prefill.TokenS, most)
	}
	if c.Prefill.Engine.BlockTokens != c.Engine.BlockTokens {
		return fmt.Errorf("serving: blocks of %d tokens where prompts are read and of %d where they are decoded: expected the same", c.Prefill.Engine.BlockTokens, c.Engine.BlockTokens)
	}
	return validPool("serving: prefill", c.Prefill.Replicas, &c.Prefill.Engine, c.Prefill.Placement)
}

// most bounds times in seconds and counts of tokens, so that sums stay exact.
const most = 1e9

// validPool checks one kind of replica.
func validPool(what string, replicas int, e *Engine, p Placement) error {
	if replicas < 1 || replicas > 1e5 {
		return fmt.Errorf("%s: %d replicas: expected 1 to 100000", what, replicas)
	}
	if !known(p) {
		return fmt.Errorf("%s: placement %q: expected one of %v", what, p, Placements())
	}
	switch {
	case e.StepS == nil:
		return fmt.Errorf("%s: no time of a step is given", what)
	case e.Sequences < 1 || e.BatchedTokens < e.Sequences || e.BatchedTokens > most:
		return fmt.Errorf("%s: %d sequences at once and %d tokens a step: expected at least one, and no fewer tokens than sequences", what, e.Sequences, e.BatchedTokens)
	case e.BlockTokens < 1 || e.CacheTokens < e.BlockTokens || e.CacheTokens > most:
		return fmt.Errorf("%s: a cache of %d tokens in blocks of %d: expected at least one block, and at most %g tokens", what, e.CacheTokens, e.BlockTokens, most)
	case e.HostTokens < 0 || e.HostTokens > most || !(e.HostTokenS >= 0 && e.HostTokenS <= 1):
		return fmt.Errorf("%s: %d tokens in host memory, loaded in %g s each: expected 0 to %g tokens, 0 to 1 s", what, e.HostTokens, e.HostTokenS, most)
	}
	return nil
}

// known reports whether a rule is one of the list.
func known(p Placement) bool {
	for _, one := range Placements() {
		if p == one {
			return true
		}
	}
	return false
}

// nanoseconds rounds a time in seconds to the clock's unit, at least one, so that time goes on.
func nanoseconds(seconds float64) int64 {
	return max(int64(math.Round(seconds*1e9)), 1)
}
