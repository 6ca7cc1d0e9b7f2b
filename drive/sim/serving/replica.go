package serving

import "math"

// call is a request that runs.
type call struct {
	result int32 // of Result.Calls
	talk   int32 // its session
	chain  chain
	input  int32
	output int32
	// made are the tokens that it has generated before it last joined the decoding ones.
	made int32
	// computed are the tokens whose cache it has, target those that it needs for its next token. While it decodes, both are
	// as they were when it joined, at the replica's clock joined.
	computed, target int32
	joined, until    int64
	heap             int32 // its place among those that decode, from 0; -1 for none
	// leaf is the last run of blocks that it uses, path how many blocks those runs have.
	leaf, path int32
	// external tokens are on their way: found on the host, or computed by a replica apart.
	external   int32
	next, last *call // after and before it in the order of admission
	// from is the replica apart that has its prompt's cache, nil once it was moved, and has those runs.
	from               *replica
	fromLeaf, fromPath int32
	version            int32 // of the weights when it was admitted
	started            bool  // it has looked for its prompt in a cache
	loading            bool
}

// chunk is a part of a prompt that the present step reads.
type chunk struct {
	call   *call
	tokens int32
}

// step is what a replica does now: rows of like steps, or one that reads prompts too.
type step struct {
	begin, end int64
	count      int64 // of decode steps
	// first and slope are a step's time in ns and how much longer each next one is.
	first, slope float64
	chunks       []chunk
}

// replica is one engine.
type replica struct {
	run     *run
	engine  *Engine
	index   int32
	prefill bool // it reads prompts and hands them on
	cache   *cache
	host    *cache
	// clock counts decode steps. Calls that decode are advanced by it alone.
	clock    int64
	decoding decoders
	resident int64
	// phases count decoding calls by where in a block they are, on the clock.
	phases []int32
	// running are all admitted calls in that order.
	oldest, newest *call
	running        int
	partial        *call // it has read a part of its prompt
	waiting        queue
	ready          queue // calls whose cache was loaded
	// blocked says that the first that waits does not fit, until blocks come back.
	blocked bool
	busy    bool
	stamp   uint32
	step    step
	hostAt  int64 // when its way from the host is free; linkAt that to other replicas
	linkAt  int64
	// flight are the calls placed here that have not ended, promised their prompts' tokens.
	flight   int
	promised int64
	seen     Replica
	busyNS   int64
	endNS    int64
	peak     int32
}

func newReplica(r *run, e *Engine, index int, prefill bool) *replica {
	one := &replica{run: r, engine: e, index: int32(index), prefill: prefill, phases: make([]int32, e.BlockTokens)}
	one.cache = newCache(int32(e.CacheTokens / e.BlockTokens))
	if e.HostTokens >= e.BlockTokens {
		one.host = newCache(int32(e.HostTokens / e.BlockTokens))
	}
	return one
}

// blocks is how many blocks so many tokens take.
func (r *replica) blocks(tokens int32) int32 {
	b := int32(r.engine.BlockTokens)
	return (tokens + b - 1) / b
}

// turn ends the present step, if there is one, and begins the next.
func (r *replica) turn(now int64) {
	if r.busy {
		r.finish(now)
	}
	r.schedule(now)
}

// finish applies the step that ends now.
func (r *replica) finish(now int64) {
	s := &r.step
	r.busy = false
	r.busyNS += now - s.begin
	r.endNS = now
	r.run.steps += max(s.count, 1)
	if s.count > 0 {
		r.advance(s.count)
		for len(r.decoding) > 0 && r.decoding[0].until == r.clock {
			r.end(r.decoding[0], now)
		}
	}
	for _, one := range s.chunks {
		r.read(one, now)
	}
	s.chunks = s.chunks[:0]
}

// advance gives every decoding call so many tokens.
func (r *replica) advance(steps int64) {
	n := int64(len(r.decoding))
	r.cache.take(int32(r.crossed(steps)))
	r.peak = max(r.peak, r.cache.active)
	r.resident += n * steps
	r.seen.Output += n * steps
	r.clock += steps
}

// crossed counts the blocks that so many further decode steps begin.
func (r *replica) crossed(steps int64) int64 {
	b := int64(len(r.phases))
	n := steps / b * int64(len(r.decoding))
	for i := int64(0); i < steps%b; i++ {
		n += int64(r.phases[mod(-(r.clock+i), b)])
	}
	return n
}

// mod is the remainder from 0.
func mod(a, b int64) int64 {
	if a %= b; a < 0 {
		a += b
	}
	return a
}

// read ends the reading of a chunk.
func (r *replica) read(one chunk, now int64) {
	c := one.call
	c.computed += one.tokens
	r.seen.Prefilled += int64(one.tokens)
	if c.computed < c.target {
		return
	}
	if r.partial == c {
		r.partial = nil
	}
	if r.prefill {
		r.leaveRunning(c)
		r.run.handOver(r, c, now)
		return
	}
	c.made++
	r.seen.Output++
	if c.made == 1 {
		r.run.result.Calls[c.result].FirstS = seconds(now)
		r.run.events++
	}
	if c.made == c.output {
		r.end(c, now)
		return
	}
	c.joined = r.clock
	c.until = r.clock + int64(c.output-c.made)
	r.phases[mod(int64(c.computed)-r.clock, int64(len(r.phases)))]++
	r.resident += int64(c.computed)
	r.decoding.push(c)
}

// leaveDecoding settles what a decoding call has generated since it joined.
func (r *replica) leaveDecoding(c *call) {
	r.decoding.remove(c)
	r.phases[mod(int64(c.computed)-c.joined, int64(len(r.phases)))]--
	done := int32(r.clock - c.joined)
	c.computed += done
	c.made += done
	r.resident -= int64(c.computed)
}

// leaveRunning takes a call out of the order of admission.
func (r *replica) leaveRunning(c *call) {
	if c.last == nil {
		r.oldest = c.next
	} else {
		c.last.next = c.next
	}
	if c.next == nil {
		r.newest = c.last
	} else {
		c.next.last = c.last
	}
	c.next, c.last = nil, nil
	r.running--
}

// enterRunning adds a call to it.
func (r *replica) enterRunning(c *call) {
	c.last = r.newest
	if r.newest == nil {
		r.oldest = c
	} else {
		r.newest.next = c
	}
	r.newest = c
	r.running++
}

// end ends a call.
func (r *replica) end(c *call, now int64) {
	if c.heap >= 0 {
		r.leaveDecoding(c)
	}
	r.leaveRunning(c)
	r.release(c)
	r.seen.Calls++
	r.flight--
	r.promised -= int64(c.input)
	r.run.ended(r, c, now)
}

// release gives a call's blocks back: whole ones stay findable.
func (r *replica) release(c *call) {
	r.publish(c, c.computed)
	r.giveBack(c, c.leaf, c.path, c.computed)
	c.leaf, c.path, c.computed = none, 0, 0
}

// publish makes a call's whole blocks findable, unless the weights have changed since it was admitted.
func (r *replica) publish(c *call, computed int32) {
	whole := computed / int32(r.engine.BlockTokens)
	if r.engine.NoPrefixCache || whole <= c.path || c.version != r.run.version {
		return
	}
	c.leaf = r.cache.extend(c.leaf, &c.chain, c.path, whole)
	c.path = whole
}

// giveBack ends the use of runs of blocks, and of the blocks behind them that so many computed tokens take.
func (r *replica) giveBack(c *call, leaf, path, computed int32) {
	if r.host != nil && path > 0 && c.version == r.run.version {
		r.host.store(&c.chain, path)
	}
	r.cache.give(r.blocks(computed) - path)
	r.cache.release(leaf)
	r.blocked = false
}

// preempt takes its blocks from the call that was admitted last; it waits before all others.
func (r *replica) preempt() {
	c := r.newest
	if c.heap >= 0 {
		r.leaveDecoding(c)
	}
	if r.partial == c {
		r.partial = nil
	}
	r.leaveRunning(c)
	r.release(c)
	r.waiting.putFirst(c)
	r.run.result.Calls[c.result].Preemptions++
	r.seen.Preemptions++
	r.run.events++
}

// schedule begins the next step. As in vLLM, no call is admitted in a step that preempts one, but where nothing else would be done.
func (r *replica) schedule(now int64) {
	preempted := r.makeRoom()
	pairs := 0.0
	budget := int32(r.engine.BatchedTokens)
	if !r.engine.PrefillAlone {
		budget -= int32(len(r.decoding))
	}
	if r.partial != nil {
		before := r.running
		budget -= r.readMore(r.partial, budget, &pairs)
		preempted = preempted || r.running < before
	}
	if preempted && len(r.decoding)+len(r.step.chunks) > 0 {
		r.begin(now, pairs, 1)
		return
	}
	for budget > 0 && r.running < r.engine.Sequences {
		c := r.ready.takeFirst()
		if c == nil {
			if c = r.admit(now); c == nil {
				break
			}
			if c.loading {
				continue
			}
		}
		r.enterRunning(c)
		budget -= r.readMore(c, budget, &pairs)
	}
	r.begin(now, pairs, math.MaxInt64)
}

// makeRoom preempts until the next step's blocks can be had.
func (r *replica) makeRoom() bool {
	preempted := false
	for len(r.decoding) > 0 && r.crossed(1) > int64(r.cache.room()) {
		r.preempt()
		preempted = true
	}
	return preempted
}

// readMore schedules as much of a running call's prompt as the step has tokens for, and returns how much that is. Blocks
// that the decoding calls begin in this step are left to them.
func (r *replica) readMore(c *call, budget int32, pairs *float64) int32 {
	tokens := min(c.target-c.computed, budget)
	need := r.blocks(c.computed+tokens) - r.blocks(c.computed)
	if need > r.cache.room()-r.reserved() {
		r.preempt() // which is this one: nothing is admitted behind a prompt that is not read
		return 0
	}
	if need > 0 {
		r.cache.take(need)
	}
	after := c.computed + tokens
	r.publish(c, after)
	r.peak = max(r.peak, r.cache.active)
	if r.partial = nil; after < c.target {
		r.partial = c
	}
	*pairs += float64(tokens) * (float64(c.computed) + float64(tokens)/2)
	r.step.chunks = append(r.step.chunks, chunk{c, tokens})
	return tokens
}

// reserved are the blocks that decoding calls begin in their next step.
func (r *replica) reserved() int32 { return int32(r.crossed(1)) }

// begin starts the step that schedule has made up, or a row of at most so many.
func (r *replica) begin(now int64, pairs float64, steps int64) {
	s := &r.step
	n := len(r.decoding)
	load := Load{Decoding: n, Resident: float64(r.resident)}
	load.Distinct = math.Min(load.Resident, float64(r.cache.active)*float64(r.engine.BlockTokens))
	for _, one := range s.chunks {
		load.Prefill += int(one.tokens)
	}
	load.PrefillPairs = pairs
	switch {
	case load.Prefill > 0:
		s.count = 0
		if n > 0 && !r.engine.PrefillAlone {
			s.count = 1
		} else {
			load.Decoding, load.Resident, load.Distinct = 0, 0, 0
		}
		s.begin, s.end = now, now+nanoseconds(r.engine.StepS(load))
	case n > 0:
		r.leap(now, load, steps)
	default:
		return
	}
	r.busy = true
	r.run.events++
	r.run.wake(r, s.end)
}

// leap makes a row of decode steps: as many as nothing but the length of contexts changes in.
func (r *replica) leap(now int64, load Load, steps int64) {
	s := &r.step
	count := min(r.decoding[0].until-r.clock, steps)
	room := int64(r.cache.room())
	if int64(load.Decoding)*(count/int64(len(r.phases))+1) > room {
		count = r.fitting(count, room)
	}
	cost := func(after int64) float64 {
		at := load
		at.Resident += float64(after) * float64(load.Decoding)
		at.Distinct += float64(after) * float64(load.Decoding)
		return r.engine.StepS(at) * 1e9
	}
	s.first, s.slope = cost(0), 0
	for count > 1 {
		last := cost(count - 1)
		s.slope = (last - s.first) / float64(count-1)
		if count < 3 {
			break
		}
		half := (count - 1) / 2
		middle := cost(half)
		if math.Abs(s.first+s.slope*float64(half)-middle) <= affine*middle {
			break
		}
		count = max(count/2, 1)
	}
	s.begin, s.count = now, count
	s.end = now + s.after(count)
}

// affine is the relative error of a step's time within which a cost counts as affine in the resident tokens.
const affine = 1e-3

// after is the time of a row's first steps.
func (s *step) after(count int64) int64 {
	k := float64(count)
	return max(int64(math.Round(k*s.first+s.slope*k*(k-1)/2)), count)
}

// fitting is the largest number of steps, at most so many and at least one, whose blocks fit.
func (r *replica) fitting(count, room int64) int64 {
	low := int64(1)
	for low < count {
		middle := (low + count + 1) / 2
		if r.crossed(middle) <= room {
			low = middle
		} else {
			count = middle - 1
		}
	}
	return low
}

// interrupt shortens a row of steps to the first end of a step from now on, so that what came is looked at.
func (r *replica) interrupt(now int64) {
	if !r.busy {
		r.run.wake(r, now)
		return
	}
	s := &r.step
	if len(s.chunks) > 0 || s.count < 2 || r.running == r.engine.Sequences || r.blocked && r.ready.empty() {
		return
	}
	low, high := int64(1), s.count
	for low < high {
		if middle := (low + high) / 2; s.begin+s.after(middle) >= now {
			high = middle
		} else {
			low = middle + 1
		}
	}
	if low < s.count {
		s.count = low
		s.end = s.begin + s.after(low)
		r.run.wake(r, s.end)
	}
}
