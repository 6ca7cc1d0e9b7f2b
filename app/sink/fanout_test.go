package sink

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// fault is a sink that fails as it is told, and remembers what it took.
type fault struct {
	mu     sync.Mutex
	took   []int64
	fails  int           // so many writes fail
	hangs  chan struct{} // a write waits for it, or for its context
	closed []bool
}

// steps are those that it has taken.
func (f *fault) steps() []int64 {
	f.mu.Lock()
	defer f.mu.Unlock()
	return slices.Clone(f.took)
}

func (f *fault) Name() string { return "fault" }

func (f *fault) Write(ctx context.Context, steps []Step) error {
	if f.hangs != nil {
		select {
		case <-f.hangs:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fails > 0 {
		f.fails--
		return errors.New("no room")
	}
	for _, s := range steps {
		f.took = append(f.took, s.Step)
	}
	return nil
}

func (f *fault) Close(_ context.Context, well bool) error {
	f.closed = append(f.closed, well)
	return nil
}

func TestEveryStepArrivesOnceAndInOrder(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		first, second := &fault{fails: 3}, &fault{}
		f := Start([]Sink{first, second}, Options{Logf: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
		var want []int64
		for i := range int64(200) {
			f.Send(Step{Step: i})
			want = append(want, i)
		}
		synctest.Wait()
		if len(first.steps()) != 0 || len(second.steps()) != 200 {
			t.Errorf("%d and %d steps, while one fails", len(first.steps()), len(second.steps()))
		}
		time.Sleep(time.Minute) // of the bubble's own clock
		f.Close(true)
		f.Close(true)
		for _, s := range []*fault{first, second} {
			if !slices.Equal(s.took, want) || !slices.Equal(s.closed, []bool{true}) {
				t.Errorf("took %v, closed %v", s.took, s.closed)
			}
		}
		if len(said) != 2 || !strings.Contains(said[0], "no room") || !strings.Contains(said[1], "takes figures again") {
			t.Errorf("said %q", said)
		}
	})
}

// What hangs costs the run nothing, and its end no longer than Patience.
func TestAHungSinkHoldsNothingUp(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		s := &fault{hangs: make(chan struct{})}
		f := Start([]Sink{s}, Options{Depth: 10, Patience: 3 * time.Second, Logf: func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) }})
		begun := time.Now()
		for i := range int64(100) {
			f.Send(Step{Step: i})
			synctest.Wait()
		}
		if took := time.Since(begun); took != 0 {
			t.Errorf("sending took %v", took)
		}
		if lost := f.Dropped()["fault"]; lost != 89 {
			t.Errorf("%d steps are counted as dropped, want 100 - 1 at the sink - 10 that wait", lost)
		}
		f.Close(false)
		if took := time.Since(begun); took != 3*time.Second {
			t.Errorf("the end took %v", took)
		}
		if len(s.took) != 0 || !slices.Equal(s.closed, []bool{false}) || f.Dropped()["fault"] != 100 || len(said) != 1 || !strings.Contains(said[0], "100 train steps were not sent") {
			t.Errorf("took %v, closed %v, dropped %v, said %q", s.took, s.closed, f.Dropped(), said)
		}
	})
}

func TestANilFeedTakesAll(t *testing.T) {
	var f *Fanout
	f.Send(Step{})
	f.Close(true)
	if len(f.Dropped()) != 0 {
		t.Error("it dropped something")
	}
}

// broken takes nothing, for ever.
type broken struct{ fault }

func (b *broken) Write(context.Context, []Step) error {
	return fmt.Errorf("%w: it has ended", ErrBroken)
}

// What is broken is said once, tried no more, and costs the end of the run nothing. What only fails is tried
// once more at the end.
func TestWhatIsBrokenIsLeftAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said []string
		var mu sync.Mutex
		gone, away := &broken{}, &fault{fails: 2}
		f := Start([]Sink{gone, away}, Options{Retry: time.Hour, Logf: func(format string, args ...any) {
			mu.Lock()
			defer mu.Unlock()
			said = append(said, fmt.Sprintf(format, args...))
		}})
		for i := range int64(5) {
			f.Send(Step{Step: i})
			synctest.Wait()
		}
		begun := time.Now()
		f.Close(true)
		if took := time.Since(begun); took != 0 {
			t.Errorf("the end took %v", took)
		}
		if len(gone.steps()) != 0 || f.Dropped()["fault"] != 5+5 || len(gone.closed) != 1 || len(away.closed) != 1 {
			t.Errorf("dropped %v, closed %v and %v", f.Dropped(), gone.closed, away.closed)
		}
		if len(said) != 4 || !strings.Contains(strings.Join(said, "\n"), "goes on without it") {
			t.Errorf("said %q", said)
		}
	})
}

// Dropped is how many steps each sink has lost, by name.
func (f *Fanout) Dropped() map[string]int64 {
	out := map[string]int64{}
	if f != nil {
		for _, l := range f.queues {
			out[l.sink.Name()] += l.dropped.Load()
		}
	}
	return out
}
