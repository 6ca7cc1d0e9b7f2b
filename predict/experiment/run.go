package experiment

import (
	"errors"
	"fmt"
	"runtime"
	"sync"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/observe/report"
)

// ReportMax is how many simulations are printed as tables or as one JSON document;
// more are streamed to a file.
const ReportMax = 10_000

// Tally counts what became of a grid's settings.
type Tally struct {
	Settings, Unsettled, Failed int64
	Events                      int64
	// firstUnsettled and firstFailed say what was first.
	firstUnsettled, firstFailed string
}

// add counts a setting.
func (t *Tally) add(p *Point) {
	t.Settings++
	t.Events += p.events
	switch {
	case p.failed != nil:
		if t.Failed++; t.Failed == 1 {
			t.firstFailed = fmt.Sprintf("%s: %v", p.name(), p.failed)
		}
	case !p.Settled:
		if t.Unsettled++; t.Unsettled == 1 {
			t.firstUnsettled = fmt.Sprintf("%s: %s", p.name(), p.Why)
		}
	}
}

// addRow counts a setting that was simulated before, by its row in a file: settled is
// empty where it could not be simulated.
func (t *Tally) addRow(name, settled, note string) {
	t.Settings++
	switch settled {
	case "":
		if t.Failed++; t.Failed == 1 {
			t.firstFailed = name + ": " + note
		}
	case "false":
		if t.Unsettled++; t.Unsettled == 1 {
			t.firstUnsettled = name + ": " + note
		}
	}
}

// Verdict is the error about settings without means, nil if all have them.
func (t *Tally) Verdict(accept bool) error {
	var errs []error
	if t.Failed > 0 {
		errs = append(errs, failure.Run("", "%s of %s could not be simulated, the first: %s", report.Count(t.Failed), report.Counted(t.Settings, "setting"), t.firstFailed))
	}
	if t.Unsettled > 0 && !accept {
		errs = append(errs, failure.Run("simulate more steps, --set steps.measured=N; --accept-unsettled reports their means all the same",
			"%s of %s not settled and without a mean, the first: %s", report.Count(t.Unsettled), report.Counted(t.Settings, "setting"), t.firstUnsettled))
	}
	if len(errs) == 1 {
		return errs[0]
	}
	return errors.Join(errs...)
}

// trial is one simulation that was tried.
type trial struct {
	one Case
	doc Simulation
	err error
}

// Run makes the grid's simulations behind the settings that were made earlier, and
// counts on from these. It tells how many are made, and hands every setting over
// in order. A simulation that fails is part of its setting; the error is that of
// taking a setting.
func (g *Grid) Run(earlier Tally, made func(done int64), take func(*Point) error) (Tally, error) {
	count, from := earlier, earlier.Settings
	var point *Point
	err := inOrder(from*g.Seeds, g.Simulations(), runtime.GOMAXPROCS(0), g.make, func(i int64, m trial) error {
		if i%g.Seeds == 0 {
			point = newGridPoint(g, i/g.Seeds)
		}
		point.add(m)
		made(i + 1)
		if (i+1)%g.Seeds != 0 {
			return nil
		}
		point.finish()
		count.add(point)
		return take(point)
	})
	return count, err
}

// make makes one simulation.
func (g *Grid) make(i int64) trial {
	one, prediction, err := g.expected(i / g.Seeds)
	one.Document.Seed += uint64(i % g.Seeds)
	if err != nil {
		return trial{one: one, err: err}
	}
	doc, err := Simulate(one, prediction, nil, nil)
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
