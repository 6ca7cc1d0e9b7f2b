package schedule

import (
	"context"
	"errors"
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
)

// work is the workload with train steps as long as their tokens ask for.
type work struct {
	*sim.Modelled
	fixedNS, tokenNS float64
	// siblings above 1 has one rollout stand for a whole group, by its longest.
	siblings int
	lengths  *workload.Lengths
	source   workload.Source
}

// Rollout implements sim.Work.
func (w work) Rollout(r sim.Rollout) sim.Response {
	if w.siblings <= 1 {
		return w.Modelled.Rollout(r)
	}
	longest := 0
	for k := range w.siblings {
		longest = max(longest, w.lengths.Draw(w.source, uint64(r.Group), uint32(k), uint32(r.Attempt)))
	}
	return sim.Response{Tokens: int32(longest)}
}

// StepNS implements sim.Work.
func (w work) StepNS(_ loop.LeaseID, _, tokens int64) int64 {
	return int64(w.fixedNS + w.tokenNS*float64(tokens))
}

// Outcome is one schedule simulated.
type Outcome struct {
	// Arm is the schedule.
	Arm Arm
	// Parts are the step's time, in seconds a batch.
	Parts Parts
	// Summary is what the loop's figures say of the window: staleness in versions, of which a
	// batch has Arm.Pieces, idle ratios, lengths.
	Summary metrics.Summary
	// SlotsBusy is the mean share of slots that hold a rollout.
	SlotsBusy float64
	// Waits are the trainer's times without a step, in seconds a batch.
	WaitS float64
	// Gantt is the end of the window.
	Gantt Gantt
	// Works are the same batches as work that waits for other work.
	Works Works
}

// TokensPerS returns the response tokens trained a second.
func (o Outcome) TokensPerS(in Input) float64 {
	bias := o.Summary.Length.TrainedMeanTokens / in.holders().lengths.Mean()
	return float64(in.rollouts()) * in.Lengths.Mean() * bias / o.Parts.StepS
}

// ErrTooMuch is wrapped by SimulateWithin's error where the events did not do.
var ErrTooMuch = errors.New("more would have had to be simulated than was allowed")

// Simulate runs one schedule of an input, which must have defaults, through the
// production loop. Errors are those of the simulation.
func Simulate(in Input, a Arm) (Outcome, error) {
	return SimulateWithin(context.Background(), in, a, math.MaxInt64)
}

// SimulateWithin is Simulate for no more than so many events, and until ctx ends. Its error wraps ErrTooMuch
// or the context's then.
func SimulateWithin(ctx context.Context, in Input, a Arm, eventsMax int64) (Outcome, error) {
	fixed, shared, logProbs := in.trainS(a)
	h := in.holders()
	one := in.stepS(h, 1)
	curve := make([]float64, h.slots+1)
	for n := range curve {
		curve[n] = one / in.stepS(h, float64(n))
	}
	w := newWatch(a, in.Warmup, in.Batches)
	all, err := workload.NewAcceptance(1)
	if err != nil {
		return Outcome{}, fmt.Errorf("schedule: %w", err)
	}
	model := work{
		Modelled: sim.NewModelled(in.Seed, in.Lengths, in.Environment, all, 0),
		fixedNS:  1e9 * fixed / float64(a.Pieces), tokenNS: 1e9 * shared / (float64(h.batch) * h.lengths.Mean()),
	}
	if in.WholeGroups {
		model.siblings, model.lengths, model.source = in.GroupSize, in.Lengths, workload.NewSource(in.Seed, workload.StreamLength)
	}
	cfg := sim.Config{
		Loop:       a.Rules,
		Work:       model,
		NSPerToken: 1e9 * one,
		Speed:      func(active int, _ bool) float64 { return curve[min(active, len(curve)-1)] },
		SyncNS:     int64(1e9 * a.SyncS), LoadNS: int64(1e9 * a.LoadS),
		Warmup: in.Warmup * a.Pieces, Measured: in.Batches * a.Pieces,
		Observe: w.observe,
		Stop:    stopAfter(ctx, eventsMax),
	}
	if in.PrefillTokensPerS > 0 {
		cfg.PrefillNSPerToken = 1e9 * h.alive / in.PrefillTokensPerS
	}
	result, err := sim.Run(cfg)
	if err != nil {
		return Outcome{}, fmt.Errorf("schedule: %s: %w", a.Name, err)
	}
	o := Outcome{Arm: a, Summary: result.Summary}
	span := float64(w.end - w.start)
	slots := a.Rules.Concurrency()
	o.SlotsBusy = float64(w.slotNS) / (span * float64(slots))
	o.Parts = w.parts(in, a, logProbs/(fixed+shared))
	o.WaitS = (span - float64(w.trained)) / 1e9 / float64(in.Batches)
	o.Gantt = w.gantt.drawn(slots, ganttCells)
	o.Works = w.works.drawn(logProbs / (fixed + shared))
	return o, nil
}

// stopAfter returns a simulation's Stop. The context is asked only every so many events.
func stopAfter(ctx context.Context, eventsMax int64) func() error {
	const every = 1 << 10
	events := int64(0)
	return func() error {
		if events++; events > eventsMax {
			return fmt.Errorf("%w: %d events", ErrTooMuch, eventsMax)
		}
		if events%every == 1 {
			return ctx.Err()
		}
		return nil
	}
}

// ganttCells is how fine a Gantt is.
const ganttCells = 360
