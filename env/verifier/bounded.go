package verifier

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/pause"
)

// Bounds bound what a verifier is asked. Zero values stand for those that Options name.
type Bounds struct {
	// Kind names the verifier in Status.
	Kind        string
	Range       [2]float64
	Concurrency int
	// Timeout of a case, retries included.
	Timeout time.Duration
	// Retries of a case, 0 for none, and the classes that are tried again beside those of errors that
	// Again has marked.
	Retries int
	RetryOn []sandbox.Class
}

// Bounded is a Verifier with bounds around another: so many cases at once, each for so long, tried
// again where that is safe. Nothing but a finite number within the range is ever a reward.
type Bounded struct {
	of    Verifier
	o     Bounds
	slots chan struct{}

	mu     sync.Mutex
	status Status
	waits  durations
	judged durations
}

// Timed is a Verifier that says when it begins with a case; until then the case waits for others.
type Timed interface {
	Verifier
	// VerifyTimed is Verify; it calls began at most once, before it asks who judges, on the caller's
	// goroutine.
	VerifyTimed(ctx context.Context, c Case, began func()) (Verdict, error)
}

// Bound puts bounds around a verifier, which the Bounded closes with itself.
func Bound(v Verifier, o Bounds) *Bounded {
	if o.Range == [2]float64{} {
		o.Range = [2]float64{0, 1}
	}
	if o.Concurrency < 1 {
		o.Concurrency = 8
	}
	if o.Timeout <= 0 {
		o.Timeout = 30 * time.Second
	}
	return &Bounded{of: v, o: o, slots: make(chan struct{}, o.Concurrency),
		status: Status{Kind: o.Kind, Failures: map[sandbox.Class]int64{}, Limits: map[sandbox.Class]int64{}}}
}

// Verify implements Verifier.
func (j *Bounded) Verify(ctx context.Context, c Case) (Verdict, error) {
	return j.VerifyTimed(ctx, c, func() {})
}

// Range is what rewards lie in, lowest first.
func (j *Bounded) Range() [2]float64 { return j.o.Range }

// VerifyTimed implements Timed.
func (j *Bounded) VerifyTimed(ctx context.Context, c Case, began func()) (Verdict, error) {
	asked := time.Now()
	j.count(func(s *Status) { s.Waiting++ })
	select {
	case j.slots <- struct{}{}:
	case <-ctx.Done():
		j.count(func(s *Status) { s.Waiting-- })
		return Verdict{}, fmt.Errorf("verifier: a case waited %v for its turn: %w", time.Since(asked).Round(time.Millisecond), ctx.Err())
	}
	start := time.Now()
	j.count(func(s *Status) {
		s.Waiting--
		s.Running++
		j.waits.add(start.Sub(asked))
	})
	began()
	v, err := j.bounded(ctx, c)
	j.count(func(s *Status) {
		j.judged.add(time.Since(start))
		s.tell(ctx, v, err)
	})
	return v, err
}

// grace is how long a verifier may take to return, with what it knows, once its time is over.
const grace = 2 * time.Second

// bounded judges within the time limit. A verifier that does not return when its time is over keeps
// its slot until it does: it is still at work.
func (j *Bounded) bounded(ctx context.Context, c Case) (Verdict, error) {
	limited, cancel := context.WithTimeout(ctx, j.o.Timeout)
	defer cancel()
	type end struct {
		v   Verdict
		err error
	}
	ended := make(chan end, 1)
	go func() {
		v, err := j.retried(limited, c)
		j.count(func(s *Status) { s.Running-- })
		<-j.slots
		ended <- end{v, err}
	}()
	select {
	case e := <-ended:
		return j.explain(ctx, limited, e.v, e.err)
	case <-limited.Done():
	}
	last := time.NewTimer(grace)
	defer last.Stop()
	select {
	case e := <-ended:
		return j.explain(ctx, limited, e.v, e.err)
	case <-last.C:
		return j.explain(ctx, limited, Verdict{}, errors.New("it has not returned"))
	}
}

// explain makes of an error what callers can tell by: the caller's own end, the verifier's time limit, or
// a failure that has a class. A time limit is told by its text alone: what is over is the verifier's time,
// not the rollout's.
func (j *Bounded) explain(ctx, limited context.Context, v Verdict, err error) (Verdict, error) {
	switch {
	case err == nil:
		return v, nil
	case ctx.Err() != nil:
		return Verdict{}, fmt.Errorf("verifier: %w (%v)", ctx.Err(), err)
	case limited.Err() != nil:
		return Verdict{}, sandbox.Fail(sandbox.VerifierTimeout, "verify", "", "no verdict within %v: %v", j.o.Timeout, err)
	case sandbox.ClassOf(err) == "":
		return Verdict{}, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "%w", err)
	}
	return Verdict{}, err
}

// retried asks until there is a verdict, or asking again is not safe, or was done often enough.
func (j *Bounded) retried(ctx context.Context, c Case) (Verdict, error) {
	for try := 0; ; try++ {
		v, err := j.once(ctx, c)
		if err == nil {
			return v, nil
		}
		after, again := retryAfter(err)
		again = again || slices.Contains(j.o.RetryOn, sandbox.ClassOf(err))
		if !again || try >= j.o.Retries || ctx.Err() != nil {
			return Verdict{}, err
		}
		j.count(func(s *Status) { s.Retries++ })
		if pause.For(ctx, max(after, backOff(try))) != nil {
			return Verdict{}, fmt.Errorf("%w (waiting to ask again after: %w)", ctx.Err(), err)
		}
	}
}

// once asks once. What the verifier panics with is its crash, and a verdict that is none a failure.
func (j *Bounded) once(ctx context.Context, c Case) (v Verdict, err error) {
	defer func() {
		if r := recover(); r != nil {
			v, err = Verdict{}, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "it panicked: %v", r)
		}
	}()
	if v, err = j.of.Verify(ctx, c); err != nil {
		return Verdict{}, err
	}
	return v.checked(j.o.Range)
}

// Close implements Verifier.
func (j *Bounded) Close() error { return j.of.Close() }

// backOff is the time before another try: 100 ms, then twice as long each, at most 5 s.
func backOff(try int) time.Duration {
	return min(100*time.Millisecond<<min(try, 10), 5*time.Second)
}

// again is an error after which the same case may be asked again.
type again struct {
	error
	after time.Duration
}

func (a again) Unwrap() error { return a.error }

// Again marks an error as one after which asking the same once more is safe and may help, not before
// the time given is over.
func Again(err error, after time.Duration) error { return again{err, after} }

func retryAfter(err error) (time.Duration, bool) {
	a, ok := errors.AsType[again](err)
	return a.after, ok
}
