package doctor

import (
	"errors"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
)

// The size of the simulation behind findings: enough groups for shares of a
// percent, few enough that nobody waits.
const (
	probeGroups   = 4000
	probeStepsMin = 40
	probeWarmup   = 400
	// probeRolloutsMax bounds a simulation, whose cost is by rollout.
	probeRolloutsMax = 1_500_000
	// wasteful is the load, in rollouts for one trained, from which on a third of them is enough.
	wasteful = 3
	// probeSlotsMax bounds its memory.
	probeSlotsMax = 1 << 16
)

// probe is what a short simulation of the case showed, warm-up included where it
// is about the ledger or about extremes.
type probe struct {
	result sim.Result
	// stalled is the simulator's word where train steps ceased, else nil.
	stalled error
	// groups have ended, trained or not.
	groups int64
	// trained counts the groups of train steps, every use of a replayed one.
	trained int64
	// uses counts the train steps of groups that policy replay has let go, unused such
	// groups without one: those still in the buffer may be used again.
	uses, unused int64
	// ending counts by reason the groups that ended without a use since the last train step.
	ending map[loop.Reason]int64
	// ended counts groups that ended untrained, or as trained under replay.
	ended [loop.EndFailed + 1]int64
	// stale counts groups that a staleness budget ended, aborted those of them that were still
	// generating, and siblings the rollouts of those that had been scored.
	stale, aborted, siblings int64
	// starts counts the groups started, bounded those of them with which as many were live as
	// admission lets be.
	starts, bounded int64
	// scored counts rollouts that ran to their end or until pruned, which pruned of them were.
	scored, pruned int64
	// interrupts counts rollouts interrupted.
	interrupts int64
	// stalest is the largest staleness a group was trained at, in the whole simulation.
	stalest loop.Version
}

// probe returns the simulation of the case, made at the first call; nil where
// the case gives no speeds or is too large for a short one.
func (e *examination) probe() *probe {
	if e.simulate == nil || e.err != nil {
		return nil
	}
	if e.probed == nil {
		cfg, ok := e.probeConfig()
		if !ok {
			return nil
		}
		p, err := simulate(cfg)
		if err != nil {
			e.err = err
			return nil
		}
		e.probed = &p
	}
	return e.probed
}

// probeConfig gives the simulation its window.
func (e *examination) probeConfig() (cfg sim.Config, ok bool) {
	cfg = *e.simulate
	g := e.rules.BatchGroups
	cfg.Measured = max((probeGroups+g-1)/g, probeStepsMin)
	cfg.Warmup = 20
	if e.beside != "" { // nothing says how long it takes to settle
		cfg.Warmup = min(probeWarmup/4, max(probeGroups/g, 2*probeStepsMin))
	}
	load := 1.0 // rollouts generated for one trained
	if p, ok := e.predict(); ok {
		cfg.Warmup = min(max(cfg.Warmup, int(p.SettlingSteps)), probeWarmup, max(probeGroups/g, 2*probeStepsMin))
		load = max(1, p.Utilization)
		if e.rules.Policy == loop.PolicyReplay { // a group ends after several train steps, behind a full buffer
			uses := min(float64(max(e.rules.MaxUses, 1)), max(1, 1/p.Utilization))
			cfg.Measured = int(uses*float64(cfg.Measured)) + e.rules.QueueGroups/g + 1
		}
	}
	most := float64(probeRolloutsMax)
	if e.beside != "" {
		most /= 4 // with turns, a rollout costs several times as much
		if load = e.pilotLoad(cfg); e.err != nil {
			return cfg, false
		}
	}
	if load > wasteful && e.beside == "" { // a share that large is plain after fewer
		most /= wasteful
	}
	perStep := load * float64(g*e.stride())
	if steps := int(most / perStep); cfg.Warmup+cfg.Measured > steps {
		cfg.Warmup, cfg.Measured = steps/4, steps-steps/4
	}
	return cfg, cfg.Measured >= 10 && e.rules.Concurrency() <= probeSlotsMax
}

// pilotSteps is the length of the simulation that says what the probe will cost,
// where nothing else does.
const pilotSteps = 8

// pilotLoad is how many rollouts are started for one trained, by a few train steps.
func (e *examination) pilotLoad(cfg sim.Config) float64 {
	if e.piloted > 0 {
		return e.piloted
	}
	cfg.Warmup, cfg.Measured = 0, pilotSteps
	p, err := simulate(cfg)
	if err != nil {
		e.err = err
		return 1
	}
	e.piloted = 1
	if ledger := p.result.Ledger; p.stalled == nil && ledger.Trained > 0 {
		e.piloted = max(1, float64(ledger.Admitted)/float64(ledger.Trained))
	}
	return e.piloted
}

// simulate runs a simulation and counts what its summary does not say.
func simulate(cfg sim.Config) (probe, error) {
	p := probe{ending: map[loop.Reason]int64{}}
	used := map[loop.GroupID]int64{}
	live, most := 0, cfg.Loop.WithDefaults().LiveGroupsMax()
	observe := cfg.Observe
	cfg.Observe = func(ev loop.Event, generateNS, environmentNS int64, actions []loop.Action) {
		if ev.Kind == loop.RolloutScored {
			p.scored++
			if ev.Mark == loop.MarkPruned {
				p.pruned++
			}
		}
		for i := range actions {
			switch a := &actions[i]; a.Kind {
			case loop.StartRollout:
				if a.Sample == 0 && a.Attempt == 1 {
					live++
					p.starts++
					if live >= most {
						p.bounded++
					}
				}
			case loop.GroupTrained:
				live--
				p.trained++
				clear(p.ending)
				if cfg.Loop.Policy == loop.PolicyReplay {
					used[a.Group]++
				} else {
					p.groups++
				}
				p.stalest = max(p.stalest, a.Version-a.StartVersion)
			case loop.GroupEnded:
				live--
				p.groups++
				p.ended[a.End]++
				p.ending[a.Reason]++
				if cfg.Loop.Policy == loop.PolicyReplay {
					p.uses += used[a.Group]
					if used[a.Group] == 0 {
						p.unused++
					}
					delete(used, a.Group)
				}
				if a.Reason == loop.ReasonStale {
					p.stale++
					if int(a.Count) < cfg.Loop.GroupSize {
						p.aborted++
						p.siblings += int64(a.Count)
					}
				}
			case loop.InterruptRollout:
				p.interrupts++
			}
		}
		if observe != nil {
			observe(ev, generateNS, environmentNS, actions)
		}
	}
	result, err := sim.Run(cfg)
	if errors.Is(err, sim.ErrStalled) {
		p.stalled = err
		return p, nil
	}
	p.result = result
	return p, err
}

// newSources returns the sources of seeded estimates of lengths and environment times.
func newSources() (lengths, environment workload.Source) {
	return workload.NewSource(0, workload.StreamEstimate), workload.NewSource(1, workload.StreamEstimate)
}

// lost returns the share of groups made ready, or given up over the budget, that
// the queue's rule threw away.
func (p *probe) lost() float64 {
	thrown := p.ended[loop.EndEvicted] + p.ended[loop.EndDiscarded]
	if p.groups == 0 {
		return 0
	}
	return float64(thrown) / float64(p.groups)
}

// shareAbove returns the share of trained groups staler than a number of versions.
func (p *probe) shareAbove(versions int) float64 {
	above, total := int64(0), int64(0)
	for k, n := range p.result.Summary.Staleness.Histogram {
		total += n
		if k > versions {
			above += n
		}
	}
	return float64(above) / float64(max(total, 1))
}

// lengthRatio returns the mean trained length over the mean sampled one.
func (p *probe) lengthRatio() (ratio float64, ok bool) {
	l := p.result.Summary.Length
	return l.TrainedMeanTokens / l.SampledMeanTokens, l.SampledMeanTokens > 0
}
