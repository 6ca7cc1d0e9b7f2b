package main

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// reportMax is how many simulations are printed as tables or as one JSON document;
// more are streamed to a file.
const reportMax = 10_000

// tally counts what became of a grid's settings.
type tally struct {
	settings, unsettled, failed int64
	events                      int64
	// firstUnsettled and firstFailed say what was first.
	firstUnsettled, firstFailed string
}

// add counts a setting.
func (t *tally) add(p *gridPoint) {
	t.settings++
	t.events += p.events
	switch {
	case p.failed != nil:
		if t.failed++; t.failed == 1 {
			t.firstFailed = fmt.Sprintf("%s: %v", p.name(), p.failed)
		}
	case !p.Settled:
		if t.unsettled++; t.unsettled == 1 {
			t.firstUnsettled = fmt.Sprintf("%s: %s", p.name(), p.Why)
		}
	}
}

// addRow counts a setting that was simulated before, by its row in a file: settled is
// empty where it could not be simulated.
func (t *tally) addRow(name, settled, note string) {
	t.settings++
	switch settled {
	case "":
		if t.failed++; t.failed == 1 {
			t.firstFailed = name + ": " + note
		}
	case "false":
		if t.unsettled++; t.unsettled == 1 {
			t.firstUnsettled = name + ": " + note
		}
	}
}

// verdict is the error about settings without means, nil if all have them.
func (t *tally) verdict(accept bool) error {
	var errs []error
	if t.failed > 0 {
		errs = append(errs, failure.Run("", "%s of %s could not be simulated, the first: %s", report.Count(t.failed), report.Counted(t.settings, "setting"), t.firstFailed))
	}
	if t.unsettled > 0 && !accept {
		errs = append(errs, failure.Run("simulate more steps, --set steps.measured=N; --accept-unsettled reports their means all the same",
			"%s of %s not settled and without a mean, the first: %s", report.Count(t.unsettled), report.Counted(t.settings, "setting"), t.firstUnsettled))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// trial is one simulation that was tried.
type trial struct {
	one simulateCase
	doc simulation
	err error
}

// run makes the grid's simulations behind the settings that were made earlier, counts
// on from these, tells how many are made, and hands every setting over in order. A
// simulation that fails is part of its setting; the error is that of taking a setting.
func (g *grid) run(earlier tally, made func(done int64), take func(*gridPoint) error) (tally, error) {
	count, from := earlier, earlier.settings
	var point *gridPoint
	err := inOrder(from*g.seeds, g.simulations(), runtime.GOMAXPROCS(0), g.make, func(i int64, m trial) error {
		if i%g.seeds == 0 {
			point = newGridPoint(g, i/g.seeds)
		}
		point.add(m)
		made(i + 1)
		if (i+1)%g.seeds != 0 {
			return nil
		}
		point.finish()
		count.add(point)
		return take(point)
	})
	return count, err
}

// make makes one simulation.
func (g *grid) make(i int64) trial {
	one, prediction, err := g.expected(i / g.seeds)
	one.document.Seed += uint64(i % g.seeds)
	if err != nil {
		return trial{one: one, err: err}
	}
	doc, err := simulateExpecting(one, prediction, nil, nil)
	doc.steps = nil // a grid keeps no series
	return trial{one, doc, err}
}

// inOrder makes the values from a number up to another on several workers, and takes
// them in order. What is made and not taken yet is bounded, however unequal the
// makings are. It ends with the first error of taking, after what is under way.
func inOrder[T any](from, to int64, workers int, produce func(int64) T, take func(int64, T) error) error {
	type job struct {
		i    int64
		done chan T
	}
	const aheadPerWorker = 16
	jobs, waiting := make(chan job), make(chan job, aheadPerWorker*workers)
	stop := make(chan struct{})
	var group sync.WaitGroup
	for range workers {
		group.Go(func() {
			for j := range jobs {
				j.done <- produce(j.i)
			}
		})
	}
	group.Go(func() {
		defer close(waiting)
		defer close(jobs)
		for i := from; i < to; i++ {
			j := job{i, make(chan T, 1)}
			select {
			case waiting <- j:
			case <-stop:
				return
			}
			select {
			case jobs <- j:
			case <-stop:
				return
			}
		}
	})
	var err error
	for i := from; i < to && err == nil; i++ {
		j := <-waiting
		err = take(i, <-j.done)
	}
	close(stop)
	group.Wait()
	return err
}
