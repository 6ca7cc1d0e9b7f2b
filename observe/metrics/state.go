package metrics

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

// stateVersion changes when what a state holds does, or what it means.
const stateVersion = 6

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
	slots, engines := len(r.slotsOf), len(r.served)
	r.fields(c)
	if len(c.data) > 0 {
		c.fail()
	}
	if c.bad || len(r.slotsOf) != slots || len(r.pasts) != slots || len(r.served) != engines || len(r.loading) != engines || !r.plausible() {
		return nil, errors.New("metrics: the recorder's state is damaged, or of other rules: observe the events again")
	}
	return r, nil
}

// plausible reports whether every index that a state brought is one.
func (r *Recorder) plausible() bool {
	if len(r.syncsUpTo) == 0 || len(r.groups.places) == 0 || len(r.groups.places)&(len(r.groups.places)-1) != 0 || len(r.window.histogram) != StalenessMax+1 || r.attends.steps < 0 {
		return false
	}
	for i := range r.slotsOf {
		if e := r.slotsOf[i].engine; e < 0 || int(e) >= len(r.served) {
			return false
		}
	}
	return true
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
	list(c, &r.slotsOf, func(u *slotUse) { u.fields(c) })
	list(c, &r.pasts, func(p *past) { whole(c, &p.interruptions, &p.tokens) })
	list(c, &r.served, func(v *loop.Version) { whole(c, v) })
	list(c, &r.loading, func(n *int32) { whole(c, n) })
	r.pool.fields(c)
	r.attends.fields(c)
	r.groups.fields(c)
	r.backlog.fields(c)
	whole(c, &r.active, &r.now, &r.settled, &r.leaseStart, &r.trainFrom)
	whole(c, &r.version, &r.syncsFrom, &r.Warmup)
	whole(c, &r.lease)
	whole(c, &r.leaseAttempt, &r.CapTokens)
	whole(c, &r.StepsMax)
	c.truths(&r.syncing, &r.asked)
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

func (u *slotUse) fields(c *codec) {
	whole(c, &u.group)
	if u.group == 0 {
		return // what is left of an attempt that is gone says nothing
	}
	whole(c, &u.sample, &u.attempt, &u.first, &u.engine)
	whole(c, &u.start)
	c.truths(&u.past, &u.aborted, &u.failed)
}

// fields takes the live groups alone, and how large the table is.
func (t *table) fields(c *codec) {
	places := len(t.places)
	whole(c, &places)
	if !c.writing {
		if places < 1 || places > 1<<30 {
			c.fail()
			return
		}
		t.places = make([]liveGroup, places)
	}
	var live []liveGroup
	for i := range t.places {
		if t.places[i].id != 0 {
			live = append(live, t.places[i])
		}
	}
	list(c, &live, func(g *liveGroup) { g.fields(c) })
	list(c, &t.aside, func(g *liveGroup) { g.fields(c) })
	whole(c, &t.last)
	if c.writing {
		return
	}
	for i := range live {
		p := t.place(live[i].id)
		if live[i].id == 0 || p.id != 0 {
			c.fail()
			return
		}
		*p = live[i]
	}
}

func (g *liveGroup) fields(c *codec) {
	whole(c, &g.id)
	whole(c, &g.tokens, &g.versionTokens, &g.longest)
	c.reals(&g.reward, &g.resumedReward)
	whole(c, &g.tokensMax, &g.scored, &g.solved, &g.newest, &g.atNewest, &g.spanning, &g.spanMax, &g.cancelled, &g.uses, &g.resumed)
	c.truths(&g.ready)
}

func (b *backlog) fields(c *codec) {
	entries := b.entries[b.head:]
	list(c, &entries, func(p *paused) {
		whole(c, &p.group)
		whole(c, &p.sample, &p.attempt, &p.interruptions, &p.tokens, &p.first)
		whole(c, &p.slotNS)
	})
	if !c.writing {
		b.entries, b.head = entries, 0
	}
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
	whole(c, &w.failures.Engine, &w.failures.Environment, &w.failures.Timeout, &w.failures.Other)
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
