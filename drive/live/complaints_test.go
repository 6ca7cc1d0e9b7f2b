package live_test

import (
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// TestFailuresThatAreAlikeAreSaidOnceInAWhile: rollouts that fail in one way are a line a minute, which counts them;
// another way is said at once.
func TestFailuresThatAreAlikeAreSaidOnceInAWhile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.TrainSteps = 800
		w := newWorld(cfg)
		began := time.Now()
		var failures atomic.Int64
		for _, e := range w.engines {
			e.fail = func(id port.RolloutID) error {
				if id.Attempt > 1 || id.Sample != 0 {
					return nil
				}
				failed := failures.Add(1)
				if failed == 7 {
					return errors.New("its disk is full")
				}
				return fmt.Errorf("worker w%d was silent", failed)
			}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v: %v", res.Reason, err)
		}
		said := strings.Join(w.logged, "\n")
		failed, lines, minutes := int(failures.Load()), strings.Count(said, "was silent"), int(time.Since(began)/time.Minute)+1
		if failed < 10*minutes || lines == 0 || lines > minutes || strings.Count(said, "its disk is full") != 1 || minutes > 1 && !strings.Contains(said, " more like it in the last 1m") {
			t.Errorf("%d failures in %d minutes were said in %d lines:\n%s", failed, minutes, lines, said)
		}
	})
}
