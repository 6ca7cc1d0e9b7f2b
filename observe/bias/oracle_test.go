package bias_test

import (
	"maps"
	"math"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/looptest"
	"github.com/headway-rl/headway/observe/bias"
	"github.com/headway-rl/headway/observe/metrics"
)

// history is what a group came to, kept for all groups of a run.
type history struct {
	birth   loop.Version
	started map[int32]bool
	// attempt that runs for each sample, and the tokens of those scored.
	runs   map[int32]loop.Action
	tokens map[int32]float64
	uses   int64
	over   bool
}

// recompute follows all groups of a log with nothing of the observer's.
func recompute(log []looptest.Record, cfg loop.Config) (all map[loop.GroupID]*history, version loop.Version) {
	all = map[loop.GroupID]*history{}
	l, err := loop.New(cfg)
	if err != nil {
		panic(err)
	}
	over := func(cell int) bool { // it has no engine left
		for e, c := range cfg.EngineCells {
			if c == cell && !l.Lost(e) {
				return false
			}
		}
		return cfg.StaysInCell && cell > 0
	}
	for _, rec := range log {
		ev := rec.Event
		if l.Step(ev); len(cfg.EngineCells) > 0 && (ev.Kind == loop.EngineLost || ev.Kind == loop.SyncFailed) {
			for _, g := range all {
				maps.DeleteFunc(g.runs, func(_ int32, run loop.Action) bool { return over(cfg.EngineCells[run.Engine]) })
			}
		}
		if ev.Kind == loop.Recovered || ev.Kind == loop.EngineLost && !cfg.ResumeLost {
			for _, g := range all {
				if ev.Kind == loop.Recovered && cfg.ResumeRestart {
					for k, run := range g.runs {
						if len(cfg.EngineCells) == 0 || cfg.EngineCells[run.Engine] == 0 {
							run.Slot = -1
							g.runs[k] = run
						}
					}
					continue
				}
				maps.DeleteFunc(g.runs, func(_ int32, run loop.Action) bool {
					if ev.Kind == loop.Recovered { // other cells go on
						return len(cfg.EngineCells) == 0 || cfg.EngineCells[run.Engine] == 0
					}
					return run.Slot >= 0 && run.Engine == ev.Engine
				})
			}
		}
		if g := all[ev.Group]; g != nil && !g.over {
			if run, ok := g.runs[ev.Sample]; ok && run.Attempt == ev.Attempt && run.Slot == ev.Slot {
				switch {
				case ev.Kind == loop.RolloutScored && ev.Mark != loop.MarkPruned && !math.IsNaN(float64(ev.Reward)) && !math.IsInf(float64(ev.Reward), 0):
					g.tokens[ev.Sample] = float64(ev.Tokens)
					delete(g.runs, ev.Sample)
				case ev.Kind == loop.RolloutScored || ev.Kind == loop.RolloutFailed || ev.Kind == loop.RolloutAborted:
					delete(g.runs, ev.Sample)
				case ev.Kind == loop.RolloutInterrupted:
					run.Slot = -1
					g.runs[ev.Sample] = run
				}
			}
		}
		for _, a := range rec.Actions {
			g := all[a.Group]
			switch a.Kind {
			case loop.StartRollout, loop.ResumeRollout:
				if g == nil {
					g = &history{birth: version, started: map[int32]bool{}, runs: map[int32]loop.Action{}, tokens: map[int32]float64{}}
					all[a.Group] = g
				}
				g.started[a.Sample] = true
				g.runs[a.Sample] = a
			case loop.AbortRollout:
				delete(g.runs, a.Sample)
			case loop.GroupTrained:
				version = max(version, a.Version+1)
				g.uses++
				g.over = cfg.Policy != loop.PolicyReplay
			case loop.GroupEnded:
				g.over = true
			}
		}
	}
	return all, version
}

// Under every rule and every fault the observer counts what a plain recomputation
// counts, and its means are of the groups it says.
func TestAgainstRecomputation(t *testing.T) {
	compared := 0
	for seed := range uint64(150) {
		plan := looptest.Draw(seed).WithCells()
		plan.Faults.Garbage, plan.Faults.Reversed, plan.Faults.SyncFails = 0, 0, 0
		w, err := looptest.NewWorld(plan)
		if err != nil {
			t.Fatal(err)
		}
		w.Keep = true
		if err := w.Run(600); err != nil {
			t.Fatal(err)
		}
		o := bias.NewObserver(plan.Config, bias.Options{})
		for _, rec := range w.Log {
			o.Observe(rec.Event, metrics.Measured{}, rec.Actions)
		}
		r := o.Report()
		all, version := recompute(w.Log, plan.Config)
		if version > 120 {
			continue // steps share blocks
		}
		var groups, trainedGroups, rollouts, scored int64
		cut := version + 1
		for _, g := range all {
			if !g.over {
				cut = min(cut, g.birth)
			}
		}
		var started, trained, startedTokens, trainedTokens float64
		for _, g := range all {
			if !g.over {
				continue
			}
			groups++
			trainedGroups += min(g.uses, 1)
			rollouts += int64(len(g.started))
			scored += int64(len(g.tokens))
			if g.birth >= cut {
				continue
			}
			for _, n := range g.tokens {
				started++
				startedTokens += n
				trained += float64(g.uses)
				trainedTokens += float64(g.uses) * n
			}
		}
		if r.Groups != groups || r.TrainedGroups != trainedGroups || r.Rollouts != rollouts || math.Abs(r.CensoredShare*float64(rollouts)-float64(rollouts-scored)) > 1e-6 {
			t.Fatalf("seed %d: %d groups, %d trained, %d rollouts, %g censored; recomputed %d, %d, %d and %d\n%v",
				seed, r.Groups, r.TrainedGroups, r.Rollouts, r.CensoredShare*float64(rollouts), groups, trainedGroups, rollouts, rollouts-scored, plan)
		}
		if cut <= (version+2)/2+1 || started == 0 || trained == 0 {
			continue // what is stuck is not waited for
		}
		compared++
		if l := r.Length; l == nil || float64(l.Started) != started || float64(l.Trained) != trained || math.Abs(l.StartedMean-startedTokens/started) > 1e-9 || math.Abs(l.TrainedMean-trainedTokens/trained) > 1e-9 {
			t.Fatalf("seed %d: %d of mean %g started, %d of mean %g trained; recomputed %g of mean %g and %g of mean %g", seed, l.Started, l.StartedMean, l.Trained, l.TrainedMean, started, startedTokens/started, trained, trainedTokens/trained)
		}
	}
	if compared < 40 {
		t.Errorf("means were compared in %d runs: too few to say anything", compared)
	}
}
