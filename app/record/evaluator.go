package record

import (
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/observe/steps"
)

// evaluator measures held-out accuracy beside the run, one version at a time.
type evaluator struct {
	sync.WaitGroup
	mu    sync.Mutex
	busy  bool
	fresh *evaluation
}

// evaluation is a version's held-out greedy accuracy.
type evaluation struct {
	Version  loop.Version `json:"step"`
	Accuracy float64      `json:"accuracy"`
	more     *steps.HeldOut
}

// start evaluates a version unless an evaluation is still going on.
// failed is told why there will be no accuracy.
func (e *evaluator) start(v loop.Version, evaluate func() (evaluation, error), failed func(error)) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.busy {
		return
	}
	e.busy = true
	e.Go(func() {
		found, err := evaluate()
		e.mu.Lock()
		defer e.mu.Unlock()
		e.busy = false
		if err != nil {
			failed(err)
		} else {
			found.Version = v
			e.fresh = &found
		}
	})
}

// take returns an evaluation that nobody has taken yet, nil if there is none.
func (e *evaluator) take() *evaluation {
	e.mu.Lock()
	defer e.mu.Unlock()
	out := e.fresh
	e.fresh = nil
	return out
}
