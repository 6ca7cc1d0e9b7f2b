package looptest

import (
	"fmt"
	"os"
	"strconv"
	"testing"
)

// explore runs one seed: faults and safety checks first, then healing and progress.
func explore(seed uint64, events int) (err error) {
	plan := Draw(seed)
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
// runs one seed alone; HEADWAY_LONG is the number of seeds beyond the usual ones.
func TestSwarm(t *testing.T) {
	first, last := uint64(1), uint64(300)
	if s := os.Getenv("HEADWAY_SEED"); s != "" {
		seed, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HEADWAY_SEED is %q, want a number", s)
		}
		first, last = seed, seed
	} else if s := os.Getenv("HEADWAY_LONG"); s != "" {
		more, err := strconv.ParseUint(s, 10, 64)
		if err != nil {
			t.Fatalf("HEADWAY_LONG is %q, want a number of seeds", s)
		}
		last += more
	}
	for seed := first; seed <= last; seed++ {
		if err := explore(seed, 600); err != nil {
			t.Errorf("%v\n%v\nreproduce: HEADWAY_SEED=%d go test ./loop/looptest -run TestSwarm", err, Draw(seed), seed)
			return
		}
	}
}
