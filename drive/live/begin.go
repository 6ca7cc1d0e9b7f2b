package live

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// begin brings trainer and engines to the version the loop starts from, and delivers the first event.
func (r *Runtime) begin(ctx context.Context) error {
	if r.opt.Resume == nil {
		if err := r.writeHeader(); err != nil {
			return err
		}
	}
	if r.opt.Resume != nil {
		if err := r.lostEnd(); err != nil { // before anything is changed
			return err
		}
		if err := r.lostPayloads(); err != nil {
			return err
		}
		if _, err := r.opt.Store.Retain(r.retained()); err != nil {
			return fmt.Errorf("live: forgetting payloads that do not count: %w", err)
		}
		if err := r.setAside(); err != nil {
			return fmt.Errorf("live: versions that the run does not know: %w", err)
		}
	}
	_, there, err := r.opt.Weights.Committed(0)
	if err != nil {
		return err
	}
	if r.l.Version() == 0 && !there {
		if stopped, err := r.initialize(ctx); stopped || err != nil {
			return err
		}
	} else if err := r.opt.Trainer.Restore(ctx, r.l.Version(), r.l.Status().Lease); err != nil {
		return fmt.Errorf("live: taking the trainer to version %d: %w", r.l.Version(), err)
	}
	r.now = r.l.Status().TimeNS
	if r.enc.Seq() > 0 {
		if err := r.findRestored(); err != nil {
			return err
		}
		r.complete(&r.opt.Resume.lacks)
		r.recoverFleet()
		r.recoverCells()
		return r.turn(completion{event: loop.Event{Time: r.now, Kind: loop.Recovered}})
	}
	if stopped, err := r.serveFirst(ctx); stopped || err != nil {
		return err
	}
	r.startClock()
	return r.turn(completion{event: loop.Event{Time: r.now, Kind: loop.RunStarted}})
}

// groupsShownMax bounds a message about groups.
const groupsShownMax = 8

// lostPayloads says, as an error, which groups the store lacks payloads of that the log counts. Each was durable
// before its score was logged, so that files were damaged or removed. No train step could have them.
func (r *Runtime) lostPayloads() error {
	there := map[port.RolloutID]bool{}
	if _, err := r.opt.Store.Retain(func(id port.RolloutID) bool { there[id] = true; return true }); err != nil {
		return fmt.Errorf("live: the payloads that are stored: %w", err)
	}
	lost, payloads := []loop.GroupID(nil), 0
	for group, ids := range r.counted.groups {
		n := payloads
		for _, id := range ids {
			if !there[id] {
				payloads++
			}
		}
		if payloads > n {
			lost = append(lost, group)
		}
	}
	if len(lost) == 0 {
		return nil
	}
	slices.Sort(lost)
	more := ""
	if n := len(lost) - groupsShownMax; n > 0 {
		lost, more = lost[:groupsShownMax], fmt.Sprintf(" and of %d more", n)
	}
	return fmt.Errorf("live: %w: %d that the log counts are gone, of groups %v%s. Nothing was changed. Restore the run from a copy, with all payloads of its store. "+
		"Without a copy, begin a new run", ErrPayloadsLost, payloads, lost, more)
}

// serveFirst has every engine serve version 0 that is to be there from the start. One that is
// down, or fails as often as the loop would try it, counts as lost from the start, if it is to be tried
// again at all and another serves. It reports whether a Stop came first, which ends the run.
func (r *Runtime) serveFirst(ctx context.Context) (stopped bool, err error) {
	errs, stopped := r.acquireFirst(ctx)
	if stopped {
		return true, nil
	}
	errs = errs[:r.startsWith()]
	inner, end := r.untilStop(ctx) // a load may wait for somebody to bring the weights
	var wg sync.WaitGroup
	for i, e := range r.opt.Engines[:len(errs)] {
		if !r.cfg.Owns(int32(i)) {
			continue
		}
		if errs[i] != nil {
			errs[i] = fmt.Errorf("live: engine %s: %w: %w", e.Name(), port.ErrEngineDown, errs[i])
			continue
		}
		wg.Go(func() { errs[i] = r.serveAtFirst(inner, i) })
	}
	wg.Wait()
	if end() && errors.Join(errs...) != nil {
		r.finished, r.reason = true, loop.ReasonStopped
		return true, nil
	}
	failed := errors.Join(errs...)
	if failed == nil {
		return false, nil
	}
	if r.opt.RejoinAfter <= 0 || ctx.Err() != nil || !slices.Contains(errs, nil) {
		return false, failed
	}
	for i, err := range errs {
		if err != nil {
			r.logf("%v: the run begins without it", err)
			r.loseEngine(r.opt.Engines[i].Name(), err)
		}
	}
	return false, nil
}

// serveAtFirst has an engine serve version 0, and tries it as often as the loop tries later versions.
func (r *Runtime) serveAtFirst(ctx context.Context, engine int) error {
	for try := 1; ; try++ {
		err := serveZero(ctx, r.opt.Engines[engine])
		if err == nil || try >= r.cfg.MaxAttempts || ctx.Err() != nil || errors.Is(err, port.ErrEngineDown) {
			return err
		}
		r.logf("%v; once more", err)
	}
}

// serveZero has an engine serve version 0.
func serveZero(ctx context.Context, e port.Engine) error {
	if err := e.Load(ctx, 0); err != nil {
		return fmt.Errorf("live: engine %s: loading version 0: %w", e.Name(), err)
	}
	if err := e.Switch(ctx, 0, false); err != nil {
		return fmt.Errorf("live: engine %s: switching to version 0: %w", e.Name(), err)
	}
	return nil
}

// initialize has the trainer make version 0, or waits until one from elsewhere has
// published it, which may take as long as it likes: the loop has not begun. It
// reports whether a Stop came first, which ends the run.
func (r *Runtime) initialize(ctx context.Context) (stopped bool, err error) {
	inner, end := r.untilStop(ctx)
	err = r.opt.Trainer.Initialize(inner)
	if end() && err != nil {
		r.finished, r.reason = true, loop.ReasonStopped
		return true, nil
	}
	if err != nil {
		return false, fmt.Errorf("live: making version 0: %w", err)
	}
	return false, nil
}

// untilStop returns a context that a Stop ends too. end frees it, and reports whether a Stop has come.
func (r *Runtime) untilStop(ctx context.Context) (_ context.Context, end func() (stopped bool)) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		select {
		case <-r.stop:
			cancel()
		case <-ctx.Done():
		}
	}()
	return ctx, func() bool {
		cancel()
		<-done
		select {
		case <-r.stop:
			return true
		default:
			return false
		}
	}
}

func (r *Runtime) writeHeader() error {
	h := r.opt.Header
	h.Format, h.Source, h.Loop = trace.Format, "live", r.cfg
	lines, err := r.enc.AppendNote(nil, trace.NoteHeader, h)
	if err != nil {
		return err
	}
	for _, n := range r.opt.Notes {
		if lines, err = r.enc.AppendNote(lines, n.Name, n.Data); err != nil {
			return err
		}
	}
	r.lines = lines
	return r.appendLog()
}
