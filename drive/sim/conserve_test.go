package sim

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// conserved reports what does not add up among agents, their slots and what serves them.
func (r *runner) conserved() error {
	w := r.agents
	var in [failed + 1]int
	all, sandboxes, handed := 0, 0, 0
	count := func(a *agent, slot int32) error {
		if a.slot != slot {
			return fmt.Errorf("g%d/%d is in slot %d and believes it is in %d", a.group, a.sample, slot, a.slot)
		}
		all++
		in[a.state]++
		handed += on(a.handed)
		if a.sandbox {
			sandboxes++
		}
		return nil
	}
	for i := range r.slots {
		s := &r.slots[i]
		if (s.agent != nil) != (s.group != 0) {
			return fmt.Errorf("slot %d has g%d and an agent: %v", i, s.group, s.agent != nil)
		}
		if s.agent == nil {
			continue
		}
		if err := count(s.agent, int32(i)); err != nil {
			return err
		}
		if (s.phase <= prefilling) != (s.agent.state == decodes) {
			return fmt.Errorf("g%d is in phase %d and state %d", s.group, s.phase, s.agent.state)
		}
	}
	for i := range r.backlog.rollouts[r.backlog.head:] {
		if s := &r.backlog.rollouts[r.backlog.head+i]; s.group != 0 {
			if err := count(s.agent, -1); err != nil {
				return err
			}
		}
	}
	active := 0
	for i := range r.engines {
		active += r.engines[i].active
	}
	for _, c := range []struct {
		what       string
		have, want int
	}{
		{"agents", w.live, all}, {"generating", active, in[decodes]}, {"sandboxes", w.sandboxes, sandboxes},
		{"sandboxes held", w.stations[atSandbox].busy * on(w.cfg.Sandboxes != nil), sandboxes + len(w.ready) + w.filling},
		{"starting", w.stations[atStarter].busy, in[starts] - handed + w.filling}, {"at tools", w.stations[atTool].busy, in[calls]},
		{"judged", w.stations[atVerifier].busy, in[judged]}, {"scored", w.stations[atScorer].busy, in[scored]},
		{"in the pool", w.stations[atPool].busy, in[prefills] * on(w.cfg.Prefill == PrefillPool)},
	} {
		if c.have != c.want {
			return fmt.Errorf("%d %s, counted %d", c.have, c.what, c.want)
		}
	}
	if waiting := in[waitsSandbox] + in[waitsStart]; len(w.ready) > 0 && waiting > 0 {
		return fmt.Errorf("%d sandboxes are ready while %d rollouts wait for one", len(w.ready), waiting)
	}
	for i := range w.contexts {
		if err := r.cacheHolds(&w.contexts[i], int32(i)); err != nil {
			return err
		}
	}
	for at, waiting := range map[place]int{atSandbox: in[waitsSandbox], atTool: in[waitsTool], atVerifier: in[waitsVerifier], atScorer: in[waitsScorer], atStarter: in[waitsStart],
		atPool: in[waitsPrefill] * on(w.cfg.Prefill == PrefillPool)} {
		s := &w.stations[at]
		if s.limit > 0 && s.busy > s.limit || waiting > 0 && (s.limit == 0 || s.busy < s.limit) {
			return fmt.Errorf("station %d serves %d of at most %d while %d wait", at, s.busy, s.limit, waiting)
		}
	}
	return nil
}

// cacheHolds checks that an engine's cache has what the rollouts in its slots, and those interrupted there, have there, and loses no more than it must.
func (r *runner) cacheHolds(k *contexts, engine int32) error {
	held, left, prompts := int64(0), 0, map[sharedPrompt]promptUse{}
	for _, s := range append(slices.Clone(r.slots), r.backlog.rollouts[r.backlog.head:]...) {
		a := s.agent
		if a == nil || s.group == 0 || a.context.in != k {
			continue
		}
		if s.engine != engine {
			return fmt.Errorf("g%d is on engine %d and has its context on %d", a.group, s.engine, engine)
		}
		held += a.context.own
		left += on(a.context.left)
		key := sharedPrompt{a.group, a.context.by}
		prompts[key] = promptUse{a.context.prompt, prompts[key].users + 1}
	}
	for _, prompt := range prompts {
		held += prompt.tokens
	}
	for a := k.oldest; a != nil; a = a.context.newer {
		left--
	}
	switch {
	case held != k.held || left != 0 || !maps.Equal(prompts, k.prompts):
		return fmt.Errorf("the cache of engine %d holds %d tokens of %v, counted %d of %v; its list is off by %d", engine, k.held, k.prompts, held, prompts, left)
	case k.held > r.agents.cfg.CacheTokens && k.oldest != nil:
		return fmt.Errorf("the cache of engine %d holds %d tokens of at most %d, and nothing has gone", engine, k.held, r.agents.cfg.CacheTokens)
	}
	return nil
}

func on(yes bool) int {
	if yes {
		return 1
	}
	return 0
}

// Whatever happens, agents, slots, sandboxes and servers add up after every event,
// no service serves more than it may, and none is idle while somebody waits.
func TestAgentsAreConserved(t *testing.T) {
	rng := rand.New(rand.NewPCG(31, 32))
	chance := func(n int) bool { return rng.IntN(n) == 0 }
	lengths, err := workload.LengthSpec{Kind: workload.KindLognormal, MeanTokens: 600, Tailness: 60, CapTokens: 3000}.Build()
	if err != nil {
		t.Fatal(err)
	}
	accept, err := workload.NewAcceptance(1)
	if err != nil {
		t.Fatal(err)
	}
	exponential := func(meanS float64) *workload.Times {
		s, err := workload.TimesSpec{Kind: workload.KindExponential, MeanS: meanS}.Build()
		if err != nil {
			t.Fatal(err)
		}
		return s
	}
	for i := range 60 {
		model, err := workload.ToolsSpec{Calls: 3, CallsKind: workload.KindGeometric, Split: workload.SplitRandom,
			Time: workload.TimesSpec{Kind: workload.KindExponential, MeanS: 3}, FailureRate: 0.1, Retries: 1}.Build()
		if err != nil {
			t.Fatal(err)
		}
		cfg := Config{
			Loop: loop.Config{GroupSize: 3, BatchGroups: 4, EngineSlots: []int{8, 9}, QueueGroups: 6, MaxAttempts: 3, Redundancy: rng.IntN(2),
				Sync: loop.SyncMode(rng.IntN(4)), InterruptAtBatch: chance(3), MaxSpans: rng.IntN(3), Policy: loop.PolicyDrop, MaxStaleness: 4},
			Work: NewModelled(uint64(i), lengths, exponential(5), accept, 20e9), NSPerToken: 20e6, SyncNS: int64(rng.IntN(3)) * 2e9, LoadNS: 1e9,
			Agents: &Agents{Seed: uint64(i), PromptTokens: 400, Prefill: PrefillMode(rng.IntN(3)), PrefillNSPerToken: 1e6, PrefillWorkers: 2,
				Tools: model, ToolWorkers: rng.IntN(5), ToolTokens: 100, Verifier: Review{Time: exponential(3), Workers: rng.IntN(4)},
				Scorer: Review{Time: exponential(2), NSPerToken: 1e6, Workers: rng.IntN(4)}},
			Faults:   Faults{Seed: uint64(i), MTBFNS: 300e9, DownNS: 30e9},
			Measured: 20,
		}
		if chance(2) {
			cfg.Agents.Sandboxes = &Sandboxes{Early: chance(2), Start: exponential(6), Limit: rng.IntN(3) * 6, Starting: rng.IntN(3), TimeoutNS: 20e9, FailureRate: 0.05, MTBFNS: 200e9, Retries: 3}
		}
		if chance(2) {
			cfg.Validation = Validation{Every: 3, Rollouts: 20}
		}
		if i%2 == 1 {
			cfg.Agents.CacheTokens = int64(1000 * (1 + i%9))
		}
		var r *runner
		cfg.Loop.TrainSteps = 20
		var wrong error
		cfg.Observe = func(ev loop.Event, _, _ int64, _ []loop.Action) {
			// The event's own slot is between what was and what comes.
			if wrong == nil {
				if wrong = r.conserved(); wrong != nil {
					wrong = fmt.Errorf("%v: %w", ev, wrong)
				}
			}
		}
		if r, err = newRunner(cfg); err != nil {
			t.Fatal(err)
		}
		if err := r.run(); err != nil {
			t.Fatalf("setting %d: %v", i, err)
		}
		if wrong != nil {
			t.Fatalf("setting %d: %v\n%+v", i, wrong, cfg.Agents)
		}
	}
}
