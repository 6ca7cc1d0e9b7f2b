package serving

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop/workload/session"
)

// run is a simulation under way.
type run struct {
	config   *Config
	talks    []talk
	top      []int32 // sessions that no other starts
	began    int     // of those, where so many run at once
	decode   *pool
	prefill  *pool // nil: the same
	all      []*replica
	pending  events
	loads    []load
	freeLoad []int32
	spare    []*call
	version  int32
	serial   uint64
	now      int64
	steps    int64
	events   int64
	left     int // sessions that have not ended
	result   Result
}

// talk is a session and how far it has come.
type talk struct {
	session *session.Session
	namer   namer
	next    int
	// agents are the talks that begin with it, from the next of the list on; top says that none starts it.
	agents []int32
	top    bool
}

// load is a cache on its way to a replica.
type load struct {
	to   *replica
	call *call
}

// Run serves sessions to their end. It refuses settings that make no sense, and sessions that no replica could hold.
func Run(c Config, sessions []session.Session) (*Result, error) {
	r, err := newRun(&c, sessions)
	if err != nil {
		return nil, err
	}
	r.start()
	r.work()
	return r.finish(), nil
}

// newRun makes the replicas and lists the sessions.
func newRun(c *Config, sessions []session.Session) (*run, error) {
	if err := c.Validate(); err != nil {
		return nil, err
	}
	r := &run{config: c}
	for i := range c.Replicas {
		r.all = append(r.all, newReplica(r, &c.Engine, i, false))
	}
	r.decode = newPool(r.all, c.Placement)
	if c.Prefill != nil {
		for i := range c.Prefill.Replicas {
			r.all = append(r.all, newReplica(r, &c.Prefill.Engine, c.Replicas+i, true))
		}
		r.prefill = newPool(r.all[c.Replicas:], c.Prefill.Placement)
	}
	together := grouped(sessions)
	for i := range sessions {
		at, err := r.add(&sessions[i], together)
		if err != nil {
			return nil, err
		}
		r.talks[at].top = true
		r.top = append(r.top, at)
	}
	return r, nil
}

// add lists a session and those of its sub-agents.
func (r *run) add(s *session.Session, together bool) (int32, error) {
	at := int32(len(r.talks))
	if at == math.MaxInt32 {
		return 0, fmt.Errorf("serving: more than %d sessions", math.MaxInt32)
	}
	t := talk{session: s, namer: namer{session: s}}
	if together && len(s.Calls) > 0 {
		t.namer.shared = sharedNames | uint64(s.Group)<<nameBits
		t.namer.common = int32(min(s.Calls[0].InputTokens, most) / r.config.Engine.BlockTokens)
	}
	if err := r.check(s, int(at)); err != nil {
		return 0, err
	}
	r.talks = append(r.talks, t)
	r.left++
	for i := range s.Agents {
		agent, err := r.add(&s.Agents[i], false)
		if err != nil {
			return 0, err
		}
		r.talks[at].agents = append(r.talks[at].agents, agent)
	}
	return at, nil
}

// check refuses a session that no replica could serve.
func (r *run) check(s *session.Session, at int) error {
	if !(s.StartS >= 0 && s.StartS <= most) || s.Group < 0 || s.Sample < 0 {
		return fmt.Errorf("serving: session %d (%s) begins at %g s as rollout %d of group %d: expected 0 to %g s, and no negative numbers", at, s.ID, s.StartS, s.Sample, s.Group, most)
	}
	block := r.config.Engine.BlockTokens
	for i := range s.Calls {
		c := &s.Calls[i]
		switch {
		case !(c.GapS >= 0 && c.GapS <= most):
			return fmt.Errorf("serving: session %d (%s), call %d comes %g s after the one before: expected 0 to %g", at, s.ID, i+1, c.GapS, most)
		case c.InputTokens < 1 || c.OutputTokens < 0 || c.InputTokens > r.config.Engine.CacheTokens || c.OutputTokens > r.config.Engine.CacheTokens:
			return fmt.Errorf("serving: session %d (%s), call %d of %d and %d tokens: expected an input, and no more than the cache's %d", at, s.ID, i+1, c.InputTokens, c.OutputTokens, r.config.Engine.CacheTokens)
		case len(c.Blocks) > c.InputTokens/block:
			return fmt.Errorf("serving: session %d (%s), call %d has %d blocks and %d tokens: expected at most %d whole blocks of %d tokens", at, s.ID, i+1, len(c.Blocks), c.InputTokens, c.InputTokens/block, block)
		}
		if need, has := (c.InputTokens+max(c.OutputTokens, 1)+block-1)/block, r.config.Engine.CacheTokens/block; need > has {
			return fmt.Errorf("serving: session %d (%s), call %d takes %d blocks, and the cache has %d", at, s.ID, i+1, need, has)
		}
		if p := r.config.Prefill; p != nil && (c.InputTokens+block-1)/block > p.Engine.CacheTokens/block {
			return fmt.Errorf("serving: session %d (%s), call %d has a prompt of %d tokens, and the cache where prompts are read %d", at, s.ID, i+1, c.InputTokens, p.Engine.CacheTokens)
		}
	}
	return nil
}

// start lists the first events.
func (r *run) start() {
	if !r.config.KeepBlocks {
		for _, at := range r.config.SwitchesS {
			r.pending.push(event{at: nanosecondsFrom(at), kind: weightsChange})
		}
	}
	if r.config.AtOnce == 0 {
		for _, at := range r.top {
			r.begin(at, nanosecondsFrom(r.talks[at].session.StartS))
		}
		return
	}
	for r.began < min(r.config.AtOnce, len(r.top)) {
		r.began++
		r.begin(r.top[r.began-1], 0)
	}
}

// nanosecondsFrom is a time on the clock.
func nanosecondsFrom(s float64) int64 { return int64(math.Round(s * 1e9)) }

// seconds is the reverse.
func seconds(ns int64) float64 { return float64(ns) / 1e9 }

// begin lets a session's first call come, and its sub-agents begin after it.
func (r *run) begin(at int32, when int64) {
	r.pending.push(event{at: when, kind: callComes, index: at})
}

// work takes events in their order until all sessions have ended.
func (r *run) work() {
	for r.left > 0 {
		e := r.pending.pop()
		r.now = e.at
		switch e.kind {
		case weightsChange:
			r.version++
			for _, one := range r.all {
				one.cache.forget()
				if one.host != nil {
					one.host.forget()
				}
			}
		case callComes:
			r.come(e.index)
		case cacheLoaded:
			l := r.loads[e.index]
			r.freeLoad = append(r.freeLoad, e.index)
			r.events++
			l.to.loaded(l.call, e.at)
		case engineTurns:
			if one := r.all[e.index]; one.stamp == e.stamp {
				one.turn(e.at)
			}
		}
	}
}

// wake sets a replica's next turn, in place of any that was set.
func (r *run) wake(one *replica, at int64) {
	one.stamp++
	r.pending.push(event{at: at, kind: engineTurns, index: one.index, stamp: one.stamp})
}

// load lets a cache come to a replica at a time.
func (r *run) load(to *replica, c *call, at int64) {
	index := int32(len(r.loads))
	if last := len(r.freeLoad) - 1; last >= 0 {
		index = r.freeLoad[last]
		r.freeLoad = r.freeLoad[:last]
		r.loads[index] = load{to, c}
	} else {
		r.loads = append(r.loads, load{to, c})
	}
	r.pending.push(event{at: at, kind: cacheLoaded, index: index})
}

// come places a session's next call.
func (r *run) come(at int32) {
	t := &r.talks[at]
	if t.next == 0 {
		for _, agent := range t.agents {
			r.begin(agent, r.now+nanosecondsFrom(r.talks[agent].session.StartS))
		}
	}
	if t.next == len(t.session.Calls) {
		r.over(at)
		return
	}
	r.serial++
	one := &t.session.Calls[t.next]
	c := r.newCall()
	*c = call{
		result: int32(len(r.result.Calls)), talk: at, heap: -1, leaf: none, fromLeaf: none,
		chain: t.namer.chain(t.next, r.config.Engine.BlockTokens, r.serial),
		input: int32(one.InputTokens), output: int32(max(one.OutputTokens, 1)),
	}
	r.result.Calls = append(r.result.Calls, Call{Session: int(at), Index: t.next, ArriveS: seconds(r.now), Input: int(c.input), Output: int(c.output)})
	r.events++
	t.next++
	to := r.decode
	if r.prefill != nil {
		to = r.prefill
	}
	chosen := to.choose(c, t)
	r.result.Calls[c.result].Prefill = int(chosen.index)
	if chosen.prefill {
		r.result.Calls[c.result].Prefill -= r.config.Replicas
	}
	chosen.enqueue(c, r.now)
}

// enqueue gives a replica a call.
func (r *replica) enqueue(c *call, now int64) {
	r.flight++
	r.promised += int64(c.input)
	r.waiting.putLast(c)
	r.interrupt(now)
}

// newCall returns a call to fill in.
func (r *run) newCall() *call {
	if last := len(r.spare) - 1; last >= 0 {
		c := r.spare[last]
		r.spare = r.spare[:last]
		return c
	}
	return &call{}
}

// handOver sends a call whose prompt a replica apart has read to one that decodes. Its blocks stay until they are moved.
func (r *run) handOver(from *replica, c *call, now int64) {
	from.flight--
	from.promised -= int64(c.input)
	from.seen.Calls++
	c.from, c.fromLeaf, c.fromPath = from, c.leaf, c.path
	c.leaf, c.path, c.computed = none, 0, 0
	r.decode.choose(c, &r.talks[c.talk]).enqueue(c, now)
}

// leave frees a call's blocks where its prompt was read.
func (r *run) leave(c *call) {
	from := c.from
	from.giveBack(c, c.fromLeaf, c.fromPath, c.input)
	c.from, c.fromLeaf, c.fromPath = nil, none, 0
	from.interrupt(r.now)
}

// ended ends a call and lets the session's next one come.
func (r *run) ended(by *replica, c *call, now int64) {
	one := &r.result.Calls[c.result]
	one.EndS, one.Replica = seconds(now), int(by.index)
	r.events++
	t := &r.talks[c.talk]
	at := c.talk
	r.spare = append(r.spare, c)
	if t.next < len(t.session.Calls) {
		r.pending.push(event{at: now + nanosecondsFrom(t.session.Calls[t.next].GapS), kind: callComes, index: at})
		return
	}
	r.over(at)
}

// over ends a session, and begins the next that waits where so many run at once.
func (r *run) over(at int32) {
	r.left--
	if r.config.AtOnce > 0 && r.talks[at].top && r.began < len(r.top) {
		r.began++
		r.begin(r.top[r.began-1], r.now)
	}
}

// finish sums up.
func (r *run) finish() *Result {
	r.result.EndS, r.result.Events, r.result.Steps = 0, r.events, r.steps
	for i := range r.result.Calls {
		r.result.EndS = max(r.result.EndS, r.result.Calls[i].EndS)
	}
	for _, one := range r.all {
		seen := one.seen
		seen.BusyS, seen.LastS = seconds(one.busyNS), seconds(one.endNS)
		seen.PeakUse = float64(one.peak) / float64(one.cache.capacity)
		seen.Evicted = one.cache.evicted
		if one.prefill {
			r.result.Prefill = append(r.result.Prefill, seen)
		} else {
			r.result.Replicas = append(r.result.Replicas, seen)
		}
	}
	return &r.result
}
