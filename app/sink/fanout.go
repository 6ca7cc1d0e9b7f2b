package sink

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Step is one train step's figures.
type Step struct {
	// Step is the version that it made, Time when it ended.
	Step int64
	Time time.Time
	// Figures are in the order of their names, finite all of them.
	Figures []Figure
}

// Figure is one number under a name.
type Figure struct {
	Name  string
	Value float64
}

// ErrBroken is wrapped by the error of a sink that will take nothing more, however often it is tried.
var ErrBroken = errors.New("it takes no more figures")

// Sink takes train steps.
type Sink interface {
	// Name says in logs and metrics which it is.
	Name() string
	// Write takes steps in their order. After an error the same steps are given again, or lost when
	// too many have come in the meantime. After ErrBroken it is called no more. It is called by one
	// goroutine.
	Write(ctx context.Context, steps []Step) error
	// Close ends it, when nothing more comes: the run has ended, well or not.
	Close(ctx context.Context, well bool) error
}

// Options of a Fanout.
type Options struct {
	// Depth is how many steps wait for a sink at most, 0 for 4,096; more are dropped.
	Depth int
	// Retry is the time after which a sink that failed is tried again, 0 for 5 s; it doubles up to a minute.
	Retry time.Duration
	// Patience is how long Close waits for what is still to be sent, 0 for 15 s.
	Patience time.Duration
	// Logf says when a sink fails, and when it works again. Several goroutines call it. Nil says nothing.
	Logf func(format string, args ...any)
}

// Fanout hands steps to sinks. The nil Fanout takes them and does nothing.
type Fanout struct {
	opt    Options
	queues []*queue
	ended  chan struct{} // closed as nothing more comes
	once   sync.Once
	well   bool
}

// queue is one sink with what waits for it.
type queue struct {
	sink    Sink
	waiting chan Step
	dropped atomic.Int64
	done    chan struct{}
	cancel  context.CancelFunc
}

// Start begins to feed sinks.
func Start(sinks []Sink, opt Options) *Fanout {
	opt.Depth = cmp.Or(opt.Depth, 4096)
	opt.Retry = cmp.Or(opt.Retry, 5*time.Second)
	opt.Patience = cmp.Or(opt.Patience, 15*time.Second)
	if opt.Logf == nil {
		opt.Logf = func(string, ...any) {}
	}
	f := &Fanout{opt: opt, ended: make(chan struct{})}
	for _, s := range sinks {
		ctx, cancel := context.WithCancel(context.Background())
		l := &queue{sink: s, waiting: make(chan Step, opt.Depth), done: make(chan struct{}), cancel: cancel}
		f.queues = append(f.queues, l)
		go f.drive(ctx, l)
	}
	return f
}

// Send takes a step. It never blocks: a full sink drops the step.
func (f *Fanout) Send(s Step) {
	if f == nil {
		return
	}
	for _, l := range f.queues {
		select {
		case l.waiting <- s:
		default:
			l.dropped.Add(1)
		}
	}
}

// Close sends what still waits and ends the sinks; well says how the run ended. A sink that has been failing is
// tried once more. It waits no longer than Options.Patience. It may be called more than once.
func (f *Fanout) Close(well bool) {
	if f == nil {
		return
	}
	f.once.Do(func() {
		f.well = well
		close(f.ended)
	})
	timer := time.NewTimer(f.opt.Patience)
	defer timer.Stop()
	for _, l := range f.queues {
		select {
		case <-l.done:
		case <-timer.C:
			timer.Reset(0) // the others have no more time either
			l.cancel()
			<-l.done
		}
		if n := l.dropped.Load(); n > 0 {
			f.opt.Logf("%s: %d train steps were not sent: it took them too slowly, or not at all", l.sink.Name(), n)
		}
	}
}

// batchMax is how many steps are written at once.
const batchMax = 64

// drive hands a sink what comes, until nothing does.
func (f *Fanout) drive(ctx context.Context, l *queue) {
	defer close(l.done)
	defer l.cancel()
	var batch []Step
	for {
		if len(batch) == 0 {
			select {
			case s := <-l.waiting:
				batch = append(batch, s)
			case <-f.ended:
				select {
				case s := <-l.waiting: // it came before the end
					batch = append(batch, s)
				default:
					if err := l.sink.Close(ctx, f.well); err != nil {
						f.opt.Logf("%s: %v", l.sink.Name(), err)
					}
					return
				}
			}
		}
		for len(batch) < batchMax {
			select {
			case s := <-l.waiting:
				batch = append(batch, s)
				continue
			default:
			}
			break
		}
		if !f.write(ctx, l, batch) {
			l.dropped.Add(int64(len(batch)))
			f.discard(l)
			return
		}
		batch = batch[:0]
	}
}

// discard counts what comes for a sink that takes nothing more, until nothing comes.
func (f *Fanout) discard(l *queue) {
	for {
		select {
		case <-l.waiting:
			l.dropped.Add(1)
			continue
		case <-f.ended:
		}
		l.dropped.Add(int64(len(l.waiting)))
		ctx, cancel := context.WithTimeout(context.Background(), time.Second) // it is broken: this is for its own good
		defer cancel()
		_ = l.sink.Close(ctx, f.well)
		return
	}
}

// write tries until the sink has taken a batch; until it is broken, the context ends, or nothing more comes and
// a last try has failed.
func (f *Fanout) write(ctx context.Context, l *queue, batch []Step) bool {
	wait, last := f.opt.Retry, false
	for tries := 0; ; tries++ {
		err := l.sink.Write(ctx, batch)
		if err == nil {
			if tries > 0 {
				f.opt.Logf("%s: takes figures again", l.sink.Name())
			}
			return true
		}
		switch {
		case errors.Is(err, ErrBroken):
			f.opt.Logf("%s: %v; the run goes on without it", l.sink.Name(), err)
			return false
		case ctx.Err() != nil || last:
			return false
		case tries == 0:
			f.opt.Logf("%s: %v; it is tried again, and the run goes on", l.sink.Name(), err)
		}
		timer := time.NewTimer(wait)
		wait = min(2*wait, time.Minute)
		select {
		case <-timer.C:
		case <-f.ended:
			last = true
		case <-ctx.Done():
		}
		timer.Stop()
	}
}

// errorOf puts the sink's name before what went wrong.
func errorOf(doing string, err error) error { return fmt.Errorf("%s: %w", doing, err) }
