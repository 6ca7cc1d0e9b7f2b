package sim_test

import (
	"math"
	"math/rand/v2"
	"testing"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
)

// recordedSessions are prompts of rollouts of any shape. No two generate the same number of tokens.
func recordedSessions(tb testing.TB, rng *rand.Rand, prompts, samples int) *workload.Recorded {
	tb.Helper()
	all := make([][][]workload.RecordedTurn, prompts)
	for p := range all {
		for k := range samples {
			turns := make([]workload.RecordedTurn, 1+rng.IntN(5))
			sum, want := int32(0), int32(100*(1+p*samples+k)) // of all but the last, and in all
			for i := range turns {
				turns[i] = workload.RecordedTurn{GapNS: int64(rng.IntN(4)) * 1e9, ContextTokens: int32(1000 + rng.IntN(9000)), ReadTokens: int32(rng.IntN(1000)), Tokens: int32(1 + rng.IntN(20))}
				if i == len(turns)-1 {
					turns[i].Tokens = want - sum
				}
				sum += turns[i].Tokens
			}
			turns[0].GapNS = 0
			all[p] = append(all[p], turns)
		}
	}
	r, err := workload.NewRecorded(all)
	if err != nil {
		tb.Fatal(err)
	}
	return r
}

// scores hands every scored rollout to a function.
type scores func(ev *loop.Event, m *metrics.Measured)

func (f scores) Observe(ev *loop.Event, m *metrics.Measured, _ []loop.Action) {
	if ev.Kind == loop.RolloutScored {
		f(ev, m)
	}
}
func (scores) EnginesDown(int64, int)      {}
func (scores) EnginesHeld(int64, int, int) {}
func (scores) TrainerValidates(int64)      {}

// Every simulated rollout has the tokens, the calls, the gaps and the reading of one recorded rollout, counted from the
// record itself. Siblings are of one prompt, and every recorded rollout is played about as often as any other.
func TestSessionsArePlayed(t *testing.T) {
	const prompts, samples, prefillNS = 10, 4, 1e6
	record := recordedSessions(t, rand.New(rand.NewPCG(1, 2)), prompts, samples)
	byTokens := map[int32][]workload.RecordedTurn{}
	for i := range record.Rollouts() {
		turns := record.Rollout(i)
		byTokens[int32(workload.RecordedTokens(turns))] = turns
	}
	s := small
	s.steps = 400
	cfg := s.config(t)
	cfg.Work = cfg.Work.(*sim.Modelled).WithSessions(record)
	cfg.Agents = &sim.Agents{Seed: s.seed, Prefill: sim.PrefillSlot, PrefillNSPerToken: prefillNS, Sessions: record, SessionTimes: true}
	prompt, times, scored := map[loop.GroupID]int32{}, map[int32]int{}, 0
	cfg.Beside = scores(func(ev *loop.Event, m *metrics.Measured) {
		turns, ok := byTokens[ev.Tokens]
		if !ok {
			t.Fatalf("a rollout of %d tokens was recorded nowhere", ev.Tokens)
		}
		gaps, read := int64(0), 0.0
		for i, turn := range turns {
			read += float64(turn.ReadTokens)
			if i > 0 {
				gaps += turn.GapNS
			}
		}
		decodeNS := float64(ev.Tokens) * cfg.NSPerToken
		if int(m.ToolCalls) != len(turns)-1 || m.Parts[metrics.PartTool] != gaps || math.Abs(float64(m.Parts[metrics.PartPrefill])-read*prefillNS) > 1 || math.Abs(float64(m.Parts[metrics.PartDecode])-decodeNS) > 10 {
			t.Fatalf("a rollout of %d tokens made %d calls, %v; it was recorded as %+v", ev.Tokens, m.ToolCalls, m.Parts, turns)
		}
		of := (ev.Tokens/100 - 1) / samples
		if have, seen := prompt[ev.Group]; seen && have != of {
			t.Fatalf("siblings of group %d play prompts %d and %d", ev.Group, have, of)
		}
		prompt[ev.Group] = of
		times[ev.Tokens]++
		scored++
	})
	run(t, cfg)
	mean := float64(scored) / (prompts * samples)
	if len(times) != prompts*samples || mean < 100 {
		t.Fatalf("%d rollouts played %d of %d", scored, len(times), prompts*samples)
	}
	for tokens, n := range times { // a prompt's rollouts come together
		if math.Abs(float64(n)-mean) > 5*math.Sqrt(mean) {
			t.Errorf("the rollout of %d tokens was played %d times, others %.0f times", tokens, n, mean)
		}
	}
}

// Tools' own times count where the record has none.
func TestSessionsWithoutTimes(t *testing.T) {
	record := recordedSessions(t, rand.New(rand.NewPCG(1, 2)), 10, 4)
	cfg := small.config(t)
	cfg.Work = cfg.Work.(*sim.Modelled).WithSessions(record)
	cfg.Agents = &sim.Agents{Seed: small.seed, Sessions: record, Tools: tools(t, workload.ToolsSpec{Calls: 1, Time: workload.TimesSpec{Kind: workload.KindFixed, MeanS: 7}})}
	cfg.Beside = scores(func(ev *loop.Event, m *metrics.Measured) {
		if m.Parts[metrics.PartTool] != int64(m.ToolCalls)*7e9 {
			t.Fatalf("%d calls took %d ns", m.ToolCalls, m.Parts[metrics.PartTool])
		}
	})
	run(t, cfg)
}
