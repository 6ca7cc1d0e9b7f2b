package serving

import (
	"fmt"
	"math"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/workload/session"
)

// conversations are sessions that grow turn by turn, at random times over so many seconds.
func conversations(seed uint64, count int, overS float64) []session.Session {
	random := rand.New(rand.NewPCG(seed, 11))
	sessions := make([]session.Session, count)
	for i := range sessions {
		s := session.Session{ID: fmt.Sprint(i), StartS: overS * random.Float64()}
		context := 500 + random.IntN(6000)
		for range 1 + random.IntN(8) {
			out := 20 + random.IntN(600)
			s.Calls = append(s.Calls, session.Call{InputTokens: context, OutputTokens: out, GapS: 20 * random.Float64()})
			context += out + random.IntN(1500)
		}
		sessions[i] = s
	}
	return sessions
}

// usual is an engine of about the speed of a model of 8 billion parameters on one H100.
func usual(cacheTokens int) Engine {
	return Engine{
		StepS: func(l Load) float64 {
			return 0.006 + 2e-8*float64(l.Decoding) + 6e-8*l.Resident + 3e-5*float64(l.Prefill) + 2e-10*l.PrefillPairs
		},
		BatchedTokens: 8192, Sequences: 256, CacheTokens: cacheTokens, BlockTokens: 16,
	}
}

// conserved checks what must hold of any result.
func conserved(t *testing.T, c Config, sessions []session.Session, r *Result) {
	t.Helper()
	calls, output := 0, 0
	var count func([]session.Session)
	count = func(all []session.Session) {
		for i := range all {
			calls += len(all[i].Calls)
			for _, one := range all[i].Calls {
				output += max(one.OutputTokens, 1)
			}
			count(all[i].Agents)
		}
	}
	count(sessions)
	if len(r.Calls) != calls {
		t.Fatalf("%d calls of %d", len(r.Calls), calls)
	}
	made, ended := int64(0), 0
	for _, one := range r.Replicas {
		made += one.Output
		ended += one.Calls
		if one.PeakUse > 1 || one.BusyS > one.LastS+1e-9 {
			t.Errorf("a replica used %g of its cache and was busy for %g of %g s", one.PeakUse, one.BusyS, one.LastS)
		}
	}
	if made != int64(output) || ended != calls {
		t.Errorf("replicas made %d tokens of %d, and ended %d calls of %d", made, output, ended, calls)
	}
	for i := range r.Calls {
		one := &r.Calls[i]
		if !(one.ArriveS < one.FirstS && one.FirstS <= one.EndS && one.EndS <= r.EndS) || one.Found+one.Loaded >= one.Input || (one.Found+one.Loaded)%c.Engine.BlockTokens != 0 {
			t.Fatalf("call %d: %+v", i, *one)
		}
		if i > 0 && one.ArriveS < r.Calls[i-1].ArriveS {
			t.Fatalf("call %d came before the one before", i)
		}
	}
}

// whole checks a cache that nobody uses any more: its counts are those of its runs, and every run can be found after the one before it.
func whole(t *testing.T, c *cache) {
	t.Helper()
	blocks, runs, last := int32(0), 0, none
	for at := c.oldest; at != none; at = c.nodes[at].newer {
		n := &c.nodes[at]
		if n.users != 0 || n.to <= n.from || n.older != last {
			t.Fatalf("run %d: %+v", at, *n)
		}
		if n.parent != none && (c.nodes[n.parent].to != n.from || c.nodes[n.parent].children == 0) {
			t.Fatalf("run %d begins at %d, and the one before it ends at %d", at, n.from, c.nodes[n.parent].to)
		}
		blocks, runs, last = blocks+n.to-n.from, runs+1, at
	}
	if c.active != 0 || c.idle != blocks || blocks > c.capacity || runs != len(c.nodes)-len(c.unused) {
		t.Fatalf("%d active and %d idle blocks, %d in %d runs of %d", c.active, c.idle, blocks, runs, len(c.nodes)-len(c.unused))
	}
}

// TestEveryRuleConserves: whatever the rule, the pools and the host, all calls end, once, and the same again gives the same.
func TestEveryRuleConserves(t *testing.T) {
	sessions := conversations(1, 150, 20)
	sessions[3].Agents = conversations(2, 3, 1)
	for i := range sessions {
		sessions[i].Group, sessions[i].Sample = i/4, i%4
	}
	for _, rule := range Placements() {
		for _, apart := range []bool{false, true} {
			for _, host := range []int{0, 400000} {
				c := Config{Replicas: 3, Engine: usual(30000), Placement: rule, SwitchesS: []float64{5, 15}}
				c.Engine.HostTokens, c.Engine.HostTokenS = host, 1e-6
				if apart {
					c.Prefill = &Prefill{Replicas: 2, Engine: c.Engine, Placement: rule, TokenS: 1e-6, StartS: 0.001}
				}
				if host > 0 {
					c.AtOnce = 40
				}
				r, err := Run(c, sessions)
				if err != nil {
					t.Fatal(err)
				}
				conserved(t, c, sessions, r)
				again, err := Run(c, sessions)
				if err != nil || !reflect.DeepEqual(r, again) {
					t.Errorf("%s, apart %v, host %d: not the same again", rule, apart, host)
				}
			}
		}
	}
}

// TestLargerCacheFindsNoLess: on one replica that is asked for one call at a time, a larger cache has all that a smaller one has.
func TestLargerCacheFindsNoLess(t *testing.T) {
	sessions := conversations(5, 60, 0)
	var shuffled []session.Session // one call each, so that conversations interleave
	for turn := range 8 {
		for i := range sessions {
			if s := &sessions[i]; turn < len(s.Calls) {
				one := s.Calls[turn]
				one.GapS = 0
				for k := range one.InputTokens / 16 {
					one.Blocks = append(one.Blocks, uint64(i)<<32|uint64(k))
				}
				shuffled = append(shuffled, session.Session{Calls: []session.Call{one}})
			}
		}
	}
	last := -1
	for tokens := 16384; tokens <= 1<<20; tokens *= 2 {
		c := Config{Replicas: 1, Engine: usual(tokens), Placement: RoundRobin, AtOnce: 1}
		r, err := Run(c, shuffled)
		if err != nil {
			t.Fatal(err)
		}
		found := 0
		for i := range r.Calls {
			found += r.Calls[i].Found
		}
		if found < last {
			t.Errorf("a cache of %d tokens found %d, one of half found %d", tokens, found, last)
		}
		last = found
	}
	if last == 0 {
		t.Error("nothing was found at all")
	}
}

// TestSwitchIsolates: after weights change, the first call of the same context finds nothing, unless blocks are kept.
func TestSwitchIsolates(t *testing.T) {
	s := []session.Session{{Calls: []session.Call{{InputTokens: 1000, OutputTokens: 10}, {InputTokens: 1100, OutputTokens: 10, GapS: 10}, {InputTokens: 1200, OutputTokens: 10, GapS: 10}}}}
	for _, keep := range []bool{false, true} {
		r, err := Run(Config{Replicas: 1, Engine: usual(30000), Placement: RoundRobin, SwitchesS: []float64{5}, KeepBlocks: keep}, s)
		if err != nil {
			t.Fatal(err)
		}
		if found := r.Calls[1].Found > 0; found != keep {
			t.Errorf("blocks kept %v: found %d tokens", keep, r.Calls[1].Found)
		}
		if r.Calls[2].Found < 1000 {
			t.Errorf("the third call found %d tokens of weights of its own", r.Calls[2].Found)
		}
	}
}

// TestApartPaysTheLink: a call's first token waits for its prompt, the link and one step, and the prompt's blocks are free then.
func TestApartPaysTheLink(t *testing.T) {
	s := []session.Session{{Calls: []session.Call{{InputTokens: 1000, OutputTokens: 5}}}}
	flat := Engine{StepS: func(l Load) float64 { return 0.01 + 1e-4*float64(l.Prefill) }, BatchedTokens: 4000, Sequences: 10, CacheTokens: 2000, BlockTokens: 16}
	r, err := Run(Config{Replicas: 1, Engine: flat, Placement: RoundRobin, Prefill: &Prefill{Replicas: 1, Engine: flat, Placement: RoundRobin, TokenS: 1e-3, StartS: 0.5}}, s)
	if err != nil {
		t.Fatal(err)
	}
	if got, want := r.Calls[0].TTFT(), 0.11+0.5+0.999+0.0101; math.Abs(got-want) > 1e-9 {
		t.Errorf("first token after %g s, expected %g", got, want)
	}
	if got := r.Calls[0].TPOT(); math.Abs(got-0.01) > 1e-9 {
		t.Errorf("a token takes %g s, expected 0.01", got)
	}
}

// TestHostSavesReading: what the cache has lost comes back from the host at its bandwidth.
func TestHostSavesReading(t *testing.T) {
	var calls []session.Call
	for i := range 20 {
		one := session.Call{InputTokens: 1601, OutputTokens: 1}
		for k := range 100 {
			one.Blocks = append(one.Blocks, uint64(i%5)<<32|uint64(k))
		}
		calls = append(calls, one)
	}
	e := usual(1700)
	without, err := Run(Config{Replicas: 1, Engine: e, Placement: RoundRobin}, []session.Session{{Calls: calls}})
	if err != nil {
		t.Fatal(err)
	}
	e.HostTokens, e.HostTokenS = 16000, 1e-7
	with, err := Run(Config{Replicas: 1, Engine: e, Placement: RoundRobin}, []session.Session{{Calls: calls}})
	if err != nil {
		t.Fatal(err)
	}
	if without.HitRate() > 0 || with.HitRate() < 0.74 {
		t.Errorf("hit rates %g without a host and %g with one, expected 0 and 15 of 20", without.HitRate(), with.HitRate())
	}
	if a, b := Over(with.Calls[5:], (*Call).TTFT).Mean, Over(without.Calls[5:], (*Call).TTFT).Mean; a > b/3 {
		t.Errorf("first token after %g s with the host's cache, %g s without", a, b)
	}
}

// TestPlacementKeepsPrefixes: rules that keep a conversation where its cache is find what rules that do not lose.
func TestPlacementKeepsPrefixes(t *testing.T) {
	sessions := conversations(9, 400, 60)
	rates := map[Placement]float64{}
	for _, rule := range Placements() {
		r, err := Run(Config{Replicas: 8, Engine: usual(200000), Placement: rule}, sessions)
		if err != nil {
			t.Fatal(err)
		}
		rates[rule] = r.HitRate()
	}
	for _, rule := range []Placement{Sticky, StickyLeastLoaded, PrefixWeighted, ConsistentHash} {
		if rates[rule] < 2*rates[RoundRobin] || rates[rule] < 2*rates[LeastLoaded] {
			t.Errorf("%s finds %g, round robin %g and the least loaded %g", rule, rates[rule], rates[RoundRobin], rates[LeastLoaded])
		}
	}
}

// TestHashThrashes: a hash puts up to twice as many sessions on one replica as on another, whose cache then loses what the
// least loaded would have kept.
func TestHashThrashes(t *testing.T) {
	sessions := conversations(9, 400, 60)
	run := func(rule Placement) *Result {
		r, err := Run(Config{Replicas: 8, Engine: usual(60000), Placement: rule, AtOnce: 60}, sessions)
		if err != nil {
			t.Fatal(err)
		}
		return r
	}
	uneven := func(r *Result) float64 {
		least, largest := math.Inf(1), 0.0
		for _, one := range r.Replicas {
			least, largest = math.Min(least, float64(one.Calls)), math.Max(largest, float64(one.Calls))
		}
		return largest / least
	}
	hashed, balanced := run(ConsistentHash), run(StickyLeastLoaded)
	if uneven(hashed) < 1.3 || uneven(hashed) < uneven(balanced) {
		t.Errorf("replicas' calls differ by %g under a hash and %g under the least loaded", uneven(hashed), uneven(balanced))
	}
	if hashed.HitRate() > balanced.HitRate()-0.02 || hashed.EndS < balanced.EndS {
		t.Errorf("a hash finds %g and ends at %g s, the least loaded %g and %g s", hashed.HitRate(), hashed.EndS, balanced.HitRate(), balanced.EndS)
	}
}

// TestCurvedCost: rows of steps under a cost that is far from affine end within 0.1 % of step by step.
func TestCurvedCost(t *testing.T) {
	curved := func(l Load) float64 { return math.Max(0.005+1e-8*l.Resident*l.Resident/1e4, 0.03) }
	e := usual(100000)
	e.StepS = curved
	s := []session.Session{{Calls: []session.Call{{InputTokens: 100, OutputTokens: 30000}}}}
	r, err := Run(Config{Replicas: 1, Engine: e, Placement: RoundRobin}, s)
	if err != nil {
		t.Fatal(err)
	}
	sum := 0.0
	for i := range 29999 {
		sum += curved(Load{Decoding: 1, Resident: float64(100 + i)})
	}
	if got := r.Calls[0].EndS - r.Calls[0].FirstS; math.Abs(got/sum-1) > 1e-3 {
		t.Errorf("%g s, step by step %g", got, sum)
	}
	if r.Events > 2000 {
		t.Errorf("%d events for one call", r.Events)
	}
}

// TestRefusals: settings and sessions that cannot be served are errors that say why.
func TestRefusals(t *testing.T) {
	good := func() (Config, []session.Session) {
		return Config{Replicas: 1, Engine: usual(3000), Placement: RoundRobin}, []session.Session{{ID: "a", Calls: []session.Call{{InputTokens: 100, OutputTokens: 5}}}}
	}
	for words, change := range map[string]func(*Config, []session.Session){
		"0 replicas":          func(c *Config, _ []session.Session) { c.Replicas = 0 },
		"placement \"best\"":  func(c *Config, _ []session.Session) { c.Placement = "best" },
		"no time of a step":   func(c *Config, _ []session.Session) { c.Engine.StepS = nil },
		"fewer tokens":        func(c *Config, _ []session.Session) { c.Engine.BatchedTokens = 10 },
		"at least one block":  func(c *Config, _ []session.Session) { c.Engine.CacheTokens = 15 },
		"in host memory":      func(c *Config, _ []session.Session) { c.Engine.HostTokenS = math.NaN() },
		"-1 sessions at once": func(c *Config, _ []session.Session) { c.AtOnce = -1 },
		"switch 2 of weights": func(c *Config, _ []session.Session) { c.SwitchesS = []float64{2, 1} },
		"prefill: 0 replicas": func(c *Config, _ []session.Session) { c.Prefill = &Prefill{Engine: c.Engine} },
		"expected the same":   func(c *Config, _ []session.Session) { c.Prefill = &Prefill{Replicas: 1} },
		"a transfer takes":    func(c *Config, _ []session.Session) { c.Prefill = &Prefill{TokenS: -1} },
		"comes -1 s":          func(_ *Config, s []session.Session) { s[0].Calls[0].GapS = -1 },
		"begins at NaN s":     func(_ *Config, s []session.Session) { s[0].StartS = math.NaN() },
		"expected an input":   func(_ *Config, s []session.Session) { s[0].Calls[0].InputTokens = 0 },
		"the cache has 187":   func(_ *Config, s []session.Session) { s[0].Calls[0].OutputTokens = 2950 },
		"at most 6 whole":     func(_ *Config, s []session.Session) { s[0].Calls[0].Blocks = make([]uint64, 7) },
		"where prompts are re": func(c *Config, _ []session.Session) {
			c.Prefill = &Prefill{Replicas: 1, Placement: RoundRobin, Engine: usual(80)}
		},
	} {
		c, s := good()
		change(&c, s)
		if _, err := Run(c, s); err == nil || !strings.Contains(err.Error(), words) {
			t.Errorf("%q expected in %v", words, err)
		}
	}
	if c, s := good(); true {
		if _, err := Run(c, s); err != nil {
			t.Error(err)
		}
	}
}

// FuzzRun: no session makes the simulator panic, hang or lose a call.
func FuzzRun(f *testing.F) {
	f.Add([]byte{1, 200, 30, 7, 3, 1, 5, 100, 90, 1}, uint8(3), uint8(2), uint16(400))
	f.Add([]byte{255, 255, 0, 0, 9, 9, 9}, uint8(6), uint8(1), uint16(0))
	f.Fuzz(func(t *testing.T, bytes []byte, rule, kind uint8, cache uint16) {
		e := Engine{StepS: wholeCost, BatchedTokens: 64, Sequences: 1 + int(kind%5), CacheTokens: 600 + int(cache), BlockTokens: 1 + int(kind%7), PrefillAlone: kind&8 > 0, NoPrefixCache: kind&16 > 0}
		c := Config{Replicas: 1 + int(rule%3), Engine: e, Placement: Placements()[int(rule)%len(Placements())], AtOnce: int(kind % 3)}
		if kind&32 > 0 {
			c.Engine.HostTokens, c.Engine.HostTokenS = 300, 1e-6
		}
		if kind&64 > 0 {
			c.Prefill = &Prefill{Replicas: 2, Engine: e, Placement: c.Placement, TokenS: 1e-6}
		}
		if kind&128 > 0 {
			c.SwitchesS = []float64{0.01, 0.05}
		}
		var sessions []session.Session
		for i := 0; i+4 < len(bytes) && len(sessions) < 200; i += 5 {
			one := session.Call{InputTokens: 1 + int(bytes[i]), OutputTokens: int(bytes[i+1]), GapS: float64(bytes[i+2]) / 1000}
			if bytes[i+3]&1 > 0 { // names that may mean nothing
				for k := range one.InputTokens / e.BlockTokens {
					one.Blocks = append(one.Blocks, uint64(bytes[(i+k)%len(bytes)]%16))
				}
			}
			if bytes[i+3]&2 > 0 && len(sessions) > 0 {
				last := &sessions[len(sessions)-1]
				last.Calls = append(last.Calls, one)
				continue
			}
			sessions = append(sessions, session.Session{Group: int(bytes[i+4] % 4), Sample: int(bytes[i+4] >> 6), StartS: float64(bytes[i+4]) / 1000, Calls: []session.Call{one}})
		}
		r, err := newRun(&c, sessions)
		if err != nil {
			t.Skip(err)
		}
		r.start()
		r.work()
		conserved(t, c, sessions, r.finish())
		for _, one := range r.all {
			whole(t, one.cache)
			if one.host != nil {
				whole(t, one.host)
			}
		}
	})
}

// BenchmarkEvents serves conversations on eight replicas with caches that are too small.
func BenchmarkEvents(b *testing.B) {
	sessions := conversations(3, 20000, 3600)
	c := Config{Replicas: 8, Engine: usual(250000), Placement: StickyLeastLoaded}
	events, steps, calls := int64(0), int64(0), 0
	for b.Loop() {
		r, err := Run(c, sessions)
		if err != nil {
			b.Fatal(err)
		}
		events += r.Events
		steps += r.Steps
		calls += len(r.Calls)
	}
	s := b.Elapsed().Seconds()
	b.ReportMetric(float64(events)/s, "events/s")
	b.ReportMetric(float64(steps)/s, "steps/s")
	b.ReportMetric(float64(calls)/s, "calls/s")
}
