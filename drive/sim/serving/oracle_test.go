package serving

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop/workload/session"
)

// The oracle serves sessions on one replica step by step and block by block: every block is an entry of its own, every
// token a step. It is written apart from the package, after what vLLM's scheduler does, and knows neither trees nor rows of steps.

type oracleBlock struct {
	name  uint64 // 0: nobody may find it
	users int
}

type oracleCall struct {
	session, index, result int
	names                  func(int) uint64
	input, output          int
	made, computed, target int
	blocks                 []*oracleBlock
	started                bool
	version                int
}

type oracle struct {
	engine   Engine
	sessions []session.Session
	free     []*oracleBlock // by last use, oldest first
	found    map[uint64]*oracleBlock
	running  []*oracleCall
	waiting  []*oracleCall
	switches []int64
	version  int
	coming   []oracleComing
	calls    []Call
	serial   uint64
	namers   []namer
}

type oracleComing struct {
	at      int64
	session int
	fresh   bool // it follows from the step that has just ended, too late for the next one
}

func newOracle(e Engine, sessions []session.Session, switches []float64) *oracle {
	o := &oracle{engine: e, sessions: sessions, found: map[uint64]*oracleBlock{}}
	for range e.CacheTokens / e.BlockTokens {
		o.free = append(o.free, &oracleBlock{})
	}
	for _, s := range switches {
		o.switches = append(o.switches, nanosecondsFrom(s))
	}
	together := grouped(sessions)
	for i := range sessions {
		n := namer{session: &sessions[i]}
		if together {
			n.shared, n.common = sharedNames|uint64(sessions[i].Group)<<nameBits, int32(sessions[i].Calls[0].InputTokens/e.BlockTokens)
		}
		o.namers = append(o.namers, n)
		o.coming = append(o.coming, oracleComing{nanosecondsFrom(sessions[i].StartS), i, false})
	}
	return o
}

// arrive takes in all that has come by now.
func (o *oracle) arrive(now int64) {
	for len(o.switches) > 0 && o.switches[0] <= now {
		o.switches = o.switches[1:]
		o.version++
		o.found = map[uint64]*oracleBlock{}
		for _, b := range o.free {
			b.name = 0
		}
		for _, c := range o.running {
			for _, b := range c.blocks {
				b.name = 0
			}
		}
	}
	slices.SortStableFunc(o.coming, func(a, b oracleComing) int {
		if a.at != b.at {
			return int(a.at - b.at)
		}
		return a.session - b.session
	})
	for {
		first := slices.IndexFunc(o.coming, func(x oracleComing) bool { return !x.fresh && x.at <= now })
		if first < 0 {
			return
		}
		next := o.coming[first]
		o.coming = slices.Delete(o.coming, first, first+1)
		at := 0
		for _, c := range o.calls {
			if c.Session == next.session {
				at++
			}
		}
		one := o.sessions[next.session].Calls[at]
		o.serial++
		ch := o.namers[next.session].chain(at, o.engine.BlockTokens, o.serial)
		o.waiting = append(o.waiting, &oracleCall{session: next.session, index: at, result: len(o.calls), input: one.InputTokens, output: max(one.OutputTokens, 1),
			names: func(i int) uint64 { return ch.at(int32(i)) }})
		o.calls = append(o.calls, Call{Session: next.session, Index: at, ArriveS: seconds(next.at), Input: one.InputTokens, Output: max(one.OutputTokens, 1)})
	}
}

// newBlock takes the block that was not used for longest.
func (o *oracle) newBlock() *oracleBlock {
	b := o.free[0]
	o.free = o.free[1:]
	if b.name != 0 && o.found[b.name] == b {
		delete(o.found, b.name)
	}
	b.name, b.users = 0, 1
	return b
}

// publish names a call's whole blocks.
func (o *oracle) publish(c *oracleCall, computed int) {
	if o.engine.NoPrefixCache || c.version != o.version {
		return
	}
	for i := range computed / o.engine.BlockTokens {
		b, there := c.blocks[i], o.found[c.names(i)]
		switch {
		case b.name != 0:
		case there == nil:
			b.name = c.names(i)
			o.found[b.name] = b
		default: // computed by another, too
			if there.users == 0 {
				o.free = slices.Delete(o.free, slices.Index(o.free, there), slices.Index(o.free, there)+1)
			}
			there.users++
			b.users = 0
			o.free = slices.Insert(o.free, 0, b)
			c.blocks[i] = there
		}
	}
}

// free gives a call's blocks back, the last first. Unfindable ones are used again at once.
func (o *oracle) giveBack(c *oracleCall) {
	for i := len(c.blocks) - 1; i >= 0; i-- {
		b := c.blocks[i]
		if b.users--; b.users > 0 {
			continue
		}
		if b.name == 0 {
			o.free = slices.Insert(o.free, 0, b)
		} else {
			o.free = append(o.free, b)
		}
	}
	c.blocks = nil
}

func (o *oracle) need(tokens int) int {
	return (tokens + o.engine.BlockTokens - 1) / o.engine.BlockTokens
}

func (o *oracle) preempt() {
	c := o.running[len(o.running)-1]
	o.running = o.running[:len(o.running)-1]
	o.publish(c, c.computed)
	o.giveBack(c)
	c.computed = 0
	o.waiting = slices.Insert(o.waiting, 0, c)
	o.calls[c.result].Preemptions++
}

// decodes reports whether it has read all that it must, since it was admitted.
func (c *oracleCall) decodes() bool { return c.computed >= c.target }

// growth counts blocks that decoding calls need in the next step.
func (o *oracle) growth() int {
	n := 0
	for _, c := range o.running {
		if c.decodes() && o.need(c.computed+1) > len(c.blocks) {
			n++
		}
	}
	return n
}

func (o *oracle) decoding() int {
	n := 0
	for _, c := range o.running {
		if c.decodes() {
			n++
		}
	}
	return n
}

// step does one step from now and returns its end; false where there is nothing to do.
func (o *oracle) step(now int64) (int64, bool) {
	preempted := false
	for o.growth() > len(o.free) {
		o.preempt()
		preempted = true
	}
	n := o.decoding()
	var load Load
	for _, c := range o.running {
		if c.decodes() {
			load.Decoding++
			load.Resident += float64(c.computed)
		}
	}
	budget, reserve := o.engine.BatchedTokens-n, o.growth()
	alone := o.engine.PrefillAlone
	if alone {
		budget = o.engine.BatchedTokens
	}
	tokens := map[*oracleCall]int{}
	schedule := func(c *oracleCall) bool {
		t := min(c.target-c.computed, budget)
		more := o.need(c.computed+t) - len(c.blocks)
		if more > len(o.free)-reserve {
			return false
		}
		for range more {
			c.blocks = append(c.blocks, o.newBlock())
		}
		o.publish(c, c.computed+t)
		load.Prefill += t
		load.PrefillPairs += float64(t) * (float64(c.computed) + float64(t)/2)
		budget -= t
		tokens[c] = t
		return true
	}
	for _, c := range slices.Clone(o.running) {
		if !c.decodes() && !schedule(c) {
			o.preempt()
			preempted = true
		}
	}
	for (!preempted || n+len(tokens) == 0) && budget > 0 && len(o.running) < o.engine.Sequences && len(o.waiting) > 0 {
		c := o.waiting[0]
		c.target = c.input + c.made
		var hit []*oracleBlock
		for i := 0; !o.engine.NoPrefixCache && i < (c.target-1)/o.engine.BlockTokens; i++ {
			b := o.found[c.names(i)]
			if b == nil {
				break
			}
			hit = append(hit, b)
		}
		idle := 0
		for _, b := range hit {
			if b.users == 0 {
				idle++
			}
		}
		if o.need(c.target)-len(hit) > len(o.free)-idle-reserve {
			break
		}
		o.waiting = o.waiting[1:]
		c.version = o.version
		for _, b := range hit {
			if b.users == 0 {
				o.free = slices.Delete(o.free, slices.Index(o.free, b), slices.Index(o.free, b)+1)
			}
			b.users++
		}
		c.blocks, c.computed = hit, len(hit)*o.engine.BlockTokens
		if !c.started {
			c.started = true
			o.calls[c.result].Found = c.computed
		}
		o.running = append(o.running, c)
		if !schedule(c) {
			panic("an admitted call does not fit")
		}
	}
	if n+len(tokens) == 0 {
		return now, false
	}
	stands := alone && len(tokens) > 0
	if stands {
		load.Decoding, load.Resident = 0, 0
	}
	end := now + nanoseconds(o.engine.StepS(load))
	for _, c := range slices.Clone(o.running) {
		if t, reads := tokens[c]; reads {
			c.computed += t
			if c.computed < c.target {
				continue
			}
		} else if stands {
			continue
		} else {
			if o.need(c.computed+1) > len(c.blocks) {
				c.blocks = append(c.blocks, o.newBlock())
			}
			c.computed++
		}
		c.made++
		if c.made == 1 {
			o.calls[c.result].FirstS = seconds(end)
		}
	}
	// Calls that decode end before those that have just read their prompts, each in the order in which they came.
	var ended []*oracleCall
	for _, c := range o.running {
		if c.made == c.output {
			ended = append(ended, c)
		}
	}
	slices.SortStableFunc(ended, func(a, b *oracleCall) int {
		_, x := tokens[a]
		_, y := tokens[b]
		if x != y {
			if y {
				return -1
			}
			return 1
		}
		if x {
			return 0
		}
		return a.result - b.result
	})
	for _, c := range ended {
		o.calls[c.result].EndS = seconds(end)
		o.publish(c, c.computed)
		o.giveBack(c)
		o.running = slices.DeleteFunc(o.running, func(x *oracleCall) bool { return x == c })
		if s := o.sessions[c.session]; c.index+1 < len(s.Calls) {
			o.coming = append(o.coming, oracleComing{end + nanosecondsFrom(s.Calls[c.index+1].GapS), c.session, s.Calls[c.index+1].GapS == 0})
		}
	}
	return end, true
}

func (o *oracle) run() []Call {
	now := int64(0)
	for {
		o.arrive(now)
		already := len(o.coming)
		end, did := o.step(now)
		for i := range already {
			o.coming[i].fresh = false
		}
		if did {
			now = end
			continue
		}
		if len(o.coming) == 0 {
			return o.calls
		}
		now = slices.MinFunc(o.coming, func(a, b oracleComing) int { return int(a.at - b.at) }).at
	}
}

// wholeCost is affine, in whole ns, so that sums of steps do not depend on how they are rounded.
func wholeCost(l Load) float64 {
	return (1e6 + 20*float64(l.Decoding) + 2*l.Resident + 1000*float64(l.Prefill) + 2*l.PrefillPairs) / 1e9
}

// drawn makes sessions that grow, with groups, and settings under which little fits.
func drawn(seed uint64) (Config, []session.Session) {
	random := rand.New(rand.NewPCG(seed, 7))
	block := []int{1, 4, 16}[random.IntN(3)]
	c := Config{Replicas: 1, Placement: RoundRobin, Engine: Engine{
		StepS: wholeCost, BlockTokens: block, Sequences: 1 + random.IntN(12), PrefillAlone: random.IntN(4) == 0, NoPrefixCache: random.IntN(6) == 0,
	}}
	c.Engine.BatchedTokens = c.Engine.Sequences + random.IntN(200)
	var sessions []session.Session
	group, samples, largest := 0, 1, 0
	if random.IntN(2) == 0 {
		samples = 4
	}
	prompt := 0
	for i := range 3 + random.IntN(30) {
		if i%samples == 0 {
			group, prompt = i/samples, 1+random.IntN(120)
		}
		s := session.Session{ID: fmt.Sprint(i), Group: group, Sample: i % samples, StartS: float64(random.IntN(40)) / 1000}
		context := prompt
		for range 1 + random.IntN(4) {
			out := 1 + random.IntN(60)
			if random.IntN(5) == 0 {
				context = 1 + context/3 // the conversation was cut
			}
			s.Calls = append(s.Calls, session.Call{InputTokens: context, OutputTokens: out, GapS: float64(random.IntN(3)) / 200})
			context += out
			largest = max(largest, context)
			context += random.IntN(50)
		}
		sessions = append(sessions, s)
	}
	c.Engine.CacheTokens = (largest/block + 2 + random.IntN(60)) * block
	if random.IntN(4) == 0 {
		c.SwitchesS = []float64{0.0213, 0.0555}
	}
	return c, sessions
}

// TestLikeTheOracle: the same times, hits and preemptions as step by step and block by block.
func TestLikeTheOracle(t *testing.T) {
	preempted, found := 0, 0
	for seed := range uint64(400) {
		c, sessions := drawn(seed)
		got, err := Run(c, sessions)
		if err != nil {
			t.Fatalf("seed %d: %v", seed, err)
		}
		want := newOracle(c.Engine, sessions, c.SwitchesS).run()
		if len(got.Calls) != len(want) {
			t.Fatalf("seed %d: %d calls, the oracle has %d", seed, len(got.Calls), len(want))
		}
		for i := range want {
			if got.Calls[i] != want[i] {
				t.Fatalf("seed %d, call %d:\n%+v, the oracle has\n%+v\n%+v", seed, i, got.Calls[i], want[i], c.Engine)
			}
		}
		preempted += got.Preemptions()
		for i := range got.Calls {
			found += got.Calls[i].Found
		}
	}
	if preempted < 100 || found < 10000 {
		t.Errorf("%d preemptions and %d tokens found in all: too few to be a test", preempted, found)
	}
}
