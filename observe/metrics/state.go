package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/track"
)

// stateVersion changes when what a state holds does, or what it means.
const stateVersion = 9

// State returns all that the recorder remembers, for Restore: compact, and the same bytes for the
// same observations. It has no checksum; the caller that keeps it gives it one.
func (r *Recorder) State() []byte {
	r.settle() // which asking for a summary does too, and must leave no trace
	c := &codec{writing: true, data: binary.AppendUvarint(nil, stateVersion)}
	r.fields(c)
	return c.data
}

// Restore returns the recorder that State was called on, of a loop with these rules.
// It goes on as that one would have. A state of another version of the recorder, or
// of other rules, is an error: observe the events again instead.
func Restore(cfg loop.Config, state []byte) (*Recorder, error) {
	version, n := binary.Uvarint(state)
	if n <= 0 || version != stateVersion {
		return nil, fmt.Errorf("metrics: a recorder's state of version %d, this program reads %d: observe the events again", version, stateVersion)
	}
	r := NewRecorder(cfg)
	c := &codec{data: state[n:]}
	r.fields(c)
	if len(c.data) > 0 {
		c.fail()
	}
	if c.bad || len(r.syncsUpTo) == 0 || len(r.window.histogram) != StalenessMax+1 || r.attends.steps < 0 {
		return nil, errors.New("metrics: the recorder's state is damaged, or of other rules: observe the events again")
	}
	return r, nil
}

// codec writes or reads fields in turn: the one list of them serves both, so that
// they cannot disagree. Whole numbers are varints, others their bits.
type codec struct {
	writing bool
	// data is what has been written, or what is still to be read.
	data []byte
	bad  bool
}

func (c *codec) fail() { c.data, c.bad = nil, true }

func (c *codec) varint(v int64) int64 {
	if c.writing {
		c.data = binary.AppendVarint(c.data, v)
		return v
	}
	v, n := binary.Varint(c.data)
	if n <= 0 {
		c.fail()
		return 0
	}
	c.data = c.data[n:]
	return v
}

// whole takes numbers in turn.
func whole[T ~int | ~int32 | ~int64](c *codec, fields ...*T) {
	for _, p := range fields {
		v := c.varint(int64(*p))
		if *p = T(v); int64(*p) != v {
			c.fail()
		}
	}
}

func (c *codec) reals(fields ...*float64) {
	for _, p := range fields {
		switch {
		case c.writing:
			c.data = binary.LittleEndian.AppendUint64(c.data, math.Float64bits(*p))
		case len(c.data) < 8:
			c.fail()
			*p = 0
		default:
			*p = math.Float64frombits(binary.LittleEndian.Uint64(c.data))
			c.data = c.data[8:]
		}
	}
}

func (c *codec) truths(fields ...*bool) {
	for _, p := range fields {
		v := int64(0)
		if *p {
			v = 1
		}
		*p = c.varint(v) == 1
	}
}

// list takes a slice, element by element. Each takes a byte at least.
func list[T any](c *codec, s *[]T, element func(*T)) {
	n := c.varint(int64(len(*s)))
	if !c.writing {
		if n < 0 || n > int64(len(c.data)) {
			c.fail()
			n = 0
		}
		*s = make([]T, n)
	}
	for i := range *s {
		element(&(*s)[i])
	}
}

// fields takes everything that NewRecorder does not know.
func (r *Recorder) fields(c *codec) {
	r.runFields(c)
	r.attends.fields(c)
	r.groupFields(c)
	whole(c, &r.settled, &r.trainFrom)
	whole(c, &r.syncsFrom, &r.Warmup)
	whole(c, &r.CapTokens)
	whole(c, &r.StepsMax)
	c.truths(&r.syncing)
	list(c, &r.syncsUpTo, func(n *int32) { whole(c, n) })
	for i := range r.madeAt {
		whole(c, &r.madeAt[i].version)
		whole(c, &r.madeAt[i].at)
	}
	r.window.fields(c)
	r.step.fields(c)
	r.outside.fields(c)
	controlled := r.control != nil
	if r.control != nil {
		r.control.fields(c)
	}
	list(c, &r.Steps, func(s *Step) {
		s.fields(c)
		if controlled {
			s.Control.fields(c)
		}
	})
}

// runFields takes where everything runs.
func (r *Recorder) runFields(c *codec) {
	s := r.run.State
	list(c, &s.Slots, func(at *track.Attempt) {
		c.truths(&at.Runs)
		if !at.Runs {
			return // what is left of an attempt that is gone says nothing
		}
		whole(c, &at.Group)
		whole(c, &at.StartNS)
		whole(c, &at.Sample, &at.Number, &at.First)
		c.truths(&at.Resumed, &at.Aborted, &at.Failed)
	})
	past := func(p *track.Past) {
		whole(c, &p.Interruptions, &p.Tokens, &p.Version)
		whole(c, &p.SlotNS)
	}
	list(c, &s.Pasts, past)
	parked := s.Parked.Entries()
	list(c, &parked, func(p *track.Parked) {
		whole(c, &p.Group)
		whole(c, &p.Sample, &p.Number, &p.First)
		if r.cells { // states of other runs stay as they were
			whole(c, &p.Cell)
		}
		past(&p.Past)
	})
	list(c, &s.Engines, func(e *track.Engine) {
		whole(c, &e.Attempt)
		whole(c, &e.Loading, &e.Served)
		whole(c, &e.SinceNS)
		word(c, &e.Phase)
		c.truths(&e.Gone, &e.Failing, &e.Away)
	})
	whole(c, &s.NowNS, &s.Lease.SinceNS, &s.Sync.SinceNS)
	whole(c, &s.Version, &s.Lease.Version, &s.Sync.Version, &s.Synced)
	whole(c, &s.Lease.ID)
	whole(c, &s.Lease.Attempt)
	c.truths(&s.Lease.Runs, &s.Asked, &s.Sync.Runs)
	if !c.writing {
		if s.Parked = track.BacklogOf(parked); !r.run.Restore(s) {
			c.fail()
		}
	}
}

// groupFields takes the live groups.
func (r *Recorder) groupFields(c *codec) {
	live := r.groups.Entries()
	list(c, &live, func(g *track.Entry[liveGroup]) {
		whole(c, &g.ID)
		g.Of.fields(c)
	})
	for i := range live {
		if live[i].ID <= 0 {
			c.fail()
			return
		}
		of, _ := r.groups.Put(live[i].ID)
		*of = live[i].Of
	}
}

func (g *liveGroup) fields(c *codec) {
	whole(c, &g.tokens, &g.versionTokens, &g.longest)
	c.reals(&g.reward, &g.resumedReward)
	whole(c, &g.tokensMax, &g.scored, &g.solved, &g.newest, &g.atNewest, &g.spanning, &g.spanMax, &g.cancelled, &g.uses, &g.resumed)
	c.truths(&g.ready)
}

func (s *Step) fields(c *codec) {
	whole(c, &s.Step, &s.StalenessMax)
	whole(c, &s.TimeNS, &s.PeriodNS, &s.TrainNS, &s.AbsentNS, &s.Tokens)
	c.reals(&s.Staleness, &s.PQS, &s.IQS, &s.TokenStaleness, &s.Reward, &s.TrainerIdle, &s.RolloutIdle)
	whole(c, &s.QueueGroups, &s.BacklogRollouts)
}

func (w *window) fields(c *codec) {
	whole(c, &w.start, &w.groups, &w.rollouts, &w.pqs, &w.iqs, &w.trainedTokens, &w.trainedMaxTokens, &w.versionTokens,
		&w.steps, &w.trainNS, &w.trainerIdleNS, &w.absentNS, &w.activeNS, &w.awayNS, &w.sampled, &w.sampledTokens, &w.sampleMax,
		&w.durationNS, &w.environmentNS, &w.durationMaxNS, &w.ready, &w.readyMaxNS, &w.accepted, &w.stalenessSyncs, &w.brought, &w.broughtNS,
		&w.stillNS, &w.syncIdleNS, &w.validatesIdleNS, &w.truncated)
	whole(c, &w.stalenessMax)
	c.reals(&w.reward)
	w.histogramFields(c)
	whole(c, &w.failures.Engine, &w.failures.Environment, &w.failures.Timeout, &w.failures.Other, &w.failures.Data, &w.failures.Scorer)
	w.waste.fields(c)
	w.partial.fields(c)
	whole(c, &w.signal.groups, &w.signal.rollouts, &w.signal.solved, &w.signal.allSolved, &w.signal.noneSolved)
}

// histogramFields takes the histogram up to its last count; the rest is zeros.
func (w *window) histogramFields(c *codec) {
	counts := w.histogram
	for len(counts) > 0 && counts[len(counts)-1] == 0 {
		counts = counts[:len(counts)-1]
	}
	list(c, &counts, func(n *int64) { whole(c, n) })
	if !c.writing && copy(w.histogram, counts) < len(counts) {
		c.fail()
	}
}

func (w *waste) fields(c *codec) {
	for i := range w.tokens {
		whole(c, &w.tokens[i], &w.groups[i])
	}
	whole(c, &w.rejected, &w.zeroAdvantage, &w.solveRate, &w.prunedRollouts, &w.redundantRollouts,
		&w.surplusGroups, &w.surplusRollouts, &w.usedGroups, &w.usesSum, &w.usesMax)
}

func (p *partial) fields(c *codec) {
	whole(c, &p.interruptions, &p.resumed, &p.limited, &p.backlogNS, &p.rollouts, &p.interrupted, &p.interruptedMax,
		&p.stateLag, &p.stateLagMax, &p.resumedRollouts, &p.freshRollouts, &p.spanned, &p.spans, &p.spansMax,
		&p.spanning, &p.spanMax, &p.staleGroups, &p.staleRollouts)
	whole(c, &p.backlogMax)
	c.reals(&p.resumedReward, &p.freshReward)
}

func (g *gauge) fields(c *codec) { whole(c, &g.now, &g.most, &g.at, &g.sumNS) }

func (o *outside) fields(c *codec) {
	for _, g := range [...]*gauge{&o.sandboxes, &o.down, &o.reading, &o.validating} {
		g.fields(c)
	}
	for i := range o.parts {
		whole(c, &o.parts[i])
	}
	whole(c, &o.rollouts, &o.calls, &o.environmentNS, &o.slotNS, &o.toolFailures, &o.starts, &o.failed, &o.timeouts, &o.died,
		&o.startMaxNS, &o.validations, &o.validationNS, &o.lost)
}
