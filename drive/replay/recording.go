package replay

import (
	"cmp"
	"maps"
	"slices"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/metrics"
)

// Recording is what a run's rollouts, steps and syncs took.
type Recording struct {
	// Header of the trace.
	Header trace.Header
	// Version the run reached.
	Version loop.Version
	// Ended: the trace ends with its end note, the run finished in order.
	Ended bool
	// Torn is the line, from 1, in whose middle the trace ends. The trace of a run that goes on or was killed ends so;
	// the lines before it were measured. 0 for none.
	Torn int
	// Measured is what the run measured of itself, Series its train steps, warm-up included, Ledger its
	// rollout attempts.
	Measured metrics.Summary
	Series   []metrics.Step
	Ledger   loop.Ledger
	// groups by id, from 1; steps in the order of their leases.
	groups []recordedGroup
	steps  []recordedStep
	cells  map[cell]measured
	// syncs are the slowest engine's times, by the version that it brought.
	syncs map[loop.Version]recordedSync
	// asks and askedNS are how often, and how long after its step before, a trainer asked for its batch; lateNS is
	// when it asked first, absentNS how long it was absent later on (metrics.Attendance), which no simulated one is.
	asks, askedNS, lateNS, absentNS int64
	// sampledTokens and generateNS are of all scored rollouts.
	sampledTokens, generateNS int64
	// still is the share of a switch through which engines stand still under pause.
	still float64
	// factors are the engines' speed between the ends of train steps, relative to the table of cells.
	factors []float64

	// What follows is only needed until the paces of the samples are known: stays at engines,
	// train steps, and by engine when it stood still.
	spans  []span
	busy   []interval
	holds  [][]interval
	epochs []epoch
	sights []sight
	// made are first tokens and ends of responses, madeHeld those during switches under pause;
	// lastNS is the last event's time.
	made, madeHeld, lastNS int64
}

// recordedGroup is one prompt's rollouts as far as they finished.
type recordedGroup struct {
	samples []recordedSample
	scored  int
	ended   bool
	// whole: it ended with as many scored rollouts as it trains on.
	whole bool
}

type recordedSample struct {
	// startNS is the time until its engine took it up, firstNS and tokenNS the engine's work on its first
	// token and on each one after it, in ns at the mean speed.
	startNS          int64
	firstNS, tokenNS float32
	// outsideNS is the time its slot was held behind that: its environment, and what lies
	// between the runtime and the ports.
	outsideNS int64
	tokens    int32
	number    int32 // of the attempt that was scored
	reward    float32
	mark      loop.Mark
	scored    bool
	begun     bool // its first span is in it
}

// longest returns the scored rollout with the most tokens, which stands for one
// that was cancelled because enough others were ready.
func (g *recordedGroup) longest() *recordedSample {
	best := &g.samples[0]
	for i := range g.samples {
		if s := &g.samples[i]; s.scored && (!best.scored || s.tokens > best.tokens) {
			best = s
		}
	}
	return best
}

// recordedStep is one train step.
type recordedStep struct {
	tokens int64 // response tokens of its batch
	ns     int64 // from its start to the version it produced
}

// cell is a kind of decode step.
type cell struct {
	active int
	busy   bool
}

// compare orders kinds by slots, without a train step first.
func (c cell) compare(other cell) int {
	switch by := cmp.Compare(c.active, other.active); {
	case by != 0 || c.busy == other.busy:
		return by
	case other.busy:
		return -1
	}
	return 1
}

type measured struct{ steps, ns int64 }

// askNS is the mean time that a trainer took to ask for its next batch.
func (r *Recording) askNS() int64 { return r.askedNS / max(r.asks, 1) }

// NSPerToken returns the mean time of one token in one slot: of the decode steps
// where the engines measured them, otherwise of all generation.
func (r *Recording) NSPerToken() float64 {
	slotSteps, slotNS := 0.0, 0.0
	for _, key := range slices.SortedFunc(maps.Keys(r.cells), cell.compare) { // sums depend on their order
		m := r.cells[key]
		slotSteps += float64(key.active) * float64(m.steps)
		slotNS += float64(key.active) * float64(m.ns)
	}
	if slotSteps > 0 {
		return slotNS / slotSteps
	}
	return float64(r.generateNS) / float64(max(r.sampledTokens, 1))
}

// pool lists the groups to resample from: the last quarter of those that were
// opened before the first one that is not wholly known. Later ones would favour
// short rollouts, which had time to end.
func (r *Recording) pool() []int {
	var whole []int
	for i := range r.groups {
		g := &r.groups[i]
		if !g.whole && !g.ended {
			break
		}
		if g.whole {
			whole = append(whole, i)
		}
	}
	if len(whole) == 0 { // a run that ended early: better biased than nothing
		for i := range r.groups {
			if r.groups[i].whole {
				whole = append(whole, i)
			}
		}
	}
	return slices.Clone(whole[len(whole)-(len(whole)+3)/4:])
}
