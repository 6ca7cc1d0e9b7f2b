package replay

import (
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/sim"
)

// overhead is the time per rollout that the modelled engine leaves out.
type overhead struct {
	// startNS lies before the engine takes a rollout up: the wait for a processor, a
	// prefill that decoding does not wait for. It is at least 0.
	startNS int64
	// outsideNS lies after its last token; it is negative where decode steps in a crowd
	// were faster than their mean says.
	outsideNS int64
}

const (
	// calibrationRounds bounds the fit, which mostly needs two or three.
	calibrationRounds = 8
	// calibrationError is how near the fit has to come, as a share.
	calibrationError = 0.003
)

// calibrate fits the overhead: with it, rollouts under the run's own settings take
// as long to their first token, and to their reward, as they took in the run.
func (r *Recording) calibrate() error {
	r.fitting.Do(func() { r.fitError = r.fit() })
	return r.fitError
}

// fit is calibrate, the first time.
func (r *Recording) fit() error {
	wantSpent := float64(r.spentNS) / float64(r.scored)
	wantFirst := 0.0
	if r.firstTokenNS.n > 0 && len(r.cells) > 0 {
		wantFirst = float64(r.firstTokenNS.ns())
	}
	var at, best overhead
	least := math.Inf(1)
	steps := 0
	for range calibrationRounds {
		spent, first, lasted, err := r.meanTimes(at, steps)
		if lasted > 0 && steps == 0 {
			steps = lasted // what comes after that is made up
		}
		if err != nil && lasted == 0 {
			return err
		}
		offSpent, offFirst := wantSpent-spent, 0.0
		if wantFirst > 0 {
			offFirst = wantFirst - first
			if at.startNS == 0 {
				offFirst = max(offFirst, 0) // it cannot start before it was asked to
			}
		}
		if off := math.Abs(offSpent) + math.Abs(offFirst); off < least {
			least, best = off, at
		}
		if least < calibrationError*wantSpent {
			break
		}
		start := max(at.startNS+int64(offFirst), 0)
		at.outsideNS += int64(offSpent) - (start - at.startNS)
		at.startNS = start
	}
	r.fitted = &best
	return nil
}

// meanTimes returns how long rollouts take in the resimulation of the run under its
// own settings, with an overhead: to their reward and to their first token, in ns.
// It also returns for how many train steps the recorded groups lasted, 0 if to the end.
func (r *Recording) meanTimes(o overhead, steps int) (spent, first float64, lasted int, err error) {
	cfg, w, err := r.config(Settings{Steps: steps})
	if err != nil {
		return 0, 0, 0, err
	}
	cfg.StartNS, w.overheadNS = o.startNS, o.outsideNS
	// starts is when the rollout in each slot would have started had it never been interrupted,
	// parked the time in slots of those that stand interrupted, as Measure has it of the run.
	starts := make([]int64, cfg.Loop.Concurrency())
	parked := map[parkedID]int64{}
	var toReward, toToken mean
	cfg.Observe = func(ev loop.Event, _, _ int64, actions []loop.Action) {
		switch ev.Kind {
		case loop.RolloutScored:
			toReward.add(ev.Time - starts[ev.Slot])
		case loop.FirstToken:
			toToken.add(ev.Time - starts[ev.Slot])
		case loop.RolloutInterrupted:
			parked[parkedID{ev.Group, ev.Sample}] = ev.Time - starts[ev.Slot]
		}
		for i := range actions {
			switch a := &actions[i]; a.Kind {
			case loop.StartRollout:
				starts[a.Slot] = ev.Time
			case loop.ResumeRollout:
				id := parkedID{a.Group, a.Sample}
				starts[a.Slot] = ev.Time - parked[id]
				delete(parked, id)
			case loop.AbortRollout:
				delete(parked, parkedID{a.Group, a.Sample})
			}
		}
	}
	_, err = sim.Run(cfg)
	return float64(toReward.ns()), float64(toToken.ns()), w.lasted, err
}
