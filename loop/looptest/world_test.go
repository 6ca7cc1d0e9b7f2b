package looptest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// explore runs one plan: faults and safety checks first, then healing and progress.
func explore(plan Plan, events int) (err error) {
	w, err := NewWorld(plan)
	if err != nil {
		return err
	}
	defer func() {
		if r := recover(); r != nil {
			err = fmt.Errorf("panic: %v", r)
		}
	}()
	if err := w.Run(events); err != nil {
		return err
	}
	return w.Heal(4)
}

// TestSwarm drives loops of random settings through random faults. HEADWAY_SEED
// runs one seed alone. HEADWAY_LONG runs many more than the usual ones, as many
// as it says if it is a number above 1.
func TestSwarm(t *testing.T) {
	// Beyond the usual ones, those that have found something: engines given back in the middle of a sync, a hold
	// that somebody had asked to be lower than it began, a hold beside an engine that leaves, and one that was the last of its
	// cell, where rollouts stood interrupted.
	seeds := append(upTo(1, 300), 501, 622, 772, 926, 2169, 5002)
	if s := os.Getenv("HEADWAY_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HEADWAY_SEED is %q, want a number", s)
		}
		seeds = upTo(seed, seed)
	} else if s := os.Getenv("HEADWAY_LONG"); s != "" {
		last := uint64(10000)
		if n, err := strconv.ParseUint(s, 10, 64); err == nil && n > 1 {
			last = n
		}
		seeds = upTo(1, last)
	}
	for _, seed := range seeds {
		plans := []Plan{Draw(seed)}
		if with := plans[0].WithCells(); with.Config.EngineCells != nil {
			plans = append(plans, with)
		}
		for _, plan := range plans {
			if err := explore(plan, 600); err != nil {
				t.Errorf("%v\n%v\nreproduce: HEADWAY_SEED=%d go test ./loop/looptest -run TestSwarm", err, plan, seed)
				return
			}
		}
	}
}

func upTo(first, last uint64) (seeds []uint64) {
	for seed := first; seed <= last; seed++ {
		seeds = append(seeds, seed)
	}
	return seeds
}
