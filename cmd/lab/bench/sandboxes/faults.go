//go:build linux

package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/pool"
)

// flaky is a driver of which a share of the starts fail, half of them when the box is there already,
// and a share of the boxes is destroyed under a command. The boxes and what they answer are real.
type flaky struct {
	sandbox.Driver
	share float64
	draw  func() float64

	starts atomic.Int64
}

func (f *flaky) Create(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	f.starts.Add(1)
	fails := f.draw() < f.share
	if fails && f.draw() < 0.5 {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "injected, before it was there")
	}
	b, err := f.Driver.Create(ctx, id, spec)
	if err != nil {
		return nil, err
	}
	if fails { // it stays for whoever asked to remove it
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "injected, once it was there")
	}
	return &flakyBox{Box: b, driver: f}, nil
}

type flakyBox struct {
	sandbox.Box
	driver *flaky
}

func (b *flakyBox) Run(ctx context.Context, c sandbox.Command) (sandbox.Result, error) {
	if b.driver.draw() < b.driver.share {
		var wait sync.WaitGroup
		defer wait.Wait()
		wait.Go(func() { _ = b.driver.Destroy(ctx, b.ID()) })
	}
	return b.Box.Run(ctx, c)
}

// outcome of a round, or of several: starts of boxes and runs of programs, also in vain.
type outcome struct {
	took          time.Duration
	starts, plays int64
}

func (o outcome) and(other outcome) outcome {
	return outcome{o.took + other.took, o.starts + other.starts, o.plays + other.plays}
}

// throughput plays rollouts with and without failures, in turn. Every one is played until it has a
// result; the throughput may fall by what is done again, and every result must be right.
func (t technology) throughput(ctx context.Context, driver sandbox.Driver, rounds int, share float64) error {
	life, play, err := t.costs(ctx, driver)
	if err != nil {
		return err
	}
	var well, ill outcome
	var left []float64
	for round := range rounds {
		w, err := t.round(ctx, driver, 0, uint64(round))
		if err != nil {
			return fmt.Errorf("without failures: %w", err)
		}
		i, err := t.round(ctx, driver, share, uint64(round))
		if err != nil {
			return fmt.Errorf("with %.0f %% failures: %w", 100*share, err)
		}
		well, ill = well.and(w), ill.and(i)
		left = append(left, w.took.Seconds()/i.took.Seconds())
	}
	n := float64(rounds * t.rollouts)
	allowed := n * (life + play).Seconds() / (float64(ill.starts)*life.Seconds() + float64(ill.plays)*play.Seconds())
	fmt.Printf("%-46s %10.1f /s (%d starts, %d programs for %d rollouts, 16 at once)\n", "throughput without failures", n/well.took.Seconds(), well.starts, well.plays, int(n))
	fmt.Printf("%-46s %10.1f /s (%d starts, %d programs)\n", fmt.Sprintf("throughput with %.0f %% failures of each kind", 100*share), n/ill.took.Seconds(), ill.starts, ill.plays)
	fmt.Printf("%-46s %10.3f is left of it, median of %d rounds in turn; what is done again leaves %.3f; every result was right\n", "", middle(left), rounds, allowed)
	return nil
}

// middle is the median.
func middle(values []float64) float64 {
	slices.Sort(values)
	return (values[(len(values)-1)/2] + values[len(values)/2]) / 2
}

// costs are the mean times of a box's start and end together, and of a program, one after another.
func (t technology) costs(ctx context.Context, driver sandbox.Driver) (life, play time.Duration, err error) {
	for i := range t.alone {
		began := time.Now()
		b, _, err := box(ctx, driver, fmt.Sprint("costs-", i))
		if err != nil {
			return 0, 0, err
		}
		up := time.Now()
		err = compute(ctx, b, int64(i))
		done := time.Now()
		if err := errors.Join(err, b.Close(ctx)); err != nil {
			return 0, 0, err
		}
		life, play = life+up.Sub(began)+time.Since(done), play+done.Sub(up)
	}
	return life / time.Duration(t.alone), play / time.Duration(t.alone), nil
}

// round plays the rollouts, twice as many at once as there may be boxes.
func (t technology) round(ctx context.Context, driver sandbox.Driver, share float64, seed uint64) (outcome, error) {
	var drawing sync.Mutex
	generator := rand.New(rand.NewPCG(seed, 10))
	f := &flaky{Driver: driver, share: share, draw: func() float64 {
		drawing.Lock()
		defer drawing.Unlock()
		return generator.Float64()
	}}
	p, err := pool.Open(ctx, pool.Options{Driver: f, Spec: spec, Owner: owner, Max: 16, StartTimeout: time.Minute, Rand: f.draw})
	if err != nil {
		return outcome{}, err
	}
	var next, plays atomic.Int64
	errs := make([]error, t.rollouts)
	began := time.Now()
	inParallel(32, func(int) {
		for i := next.Add(1) - 1; int(i) < t.rollouts; i = next.Add(1) - 1 {
			for again := true; again; {
				played, err := rollout(ctx, p, i)
				if played {
					plays.Add(1)
				}
				if again = sandbox.ClassOf(err) != "" && ctx.Err() == nil; !again {
					errs[i] = err
				}
			}
		}
	})
	o := outcome{time.Since(began), f.starts.Load(), plays.Load()}
	return o, errors.Join(append(errs, p.Close(ctx))...)
}

// rollout computes something in a box of the pool. It is played if there was a box.
func rollout(ctx context.Context, p *pool.Pool, n int64) (played bool, err error) {
	l, err := p.Lease(ctx, fmt.Sprint("rollout ", n))
	if err != nil {
		return false, err
	}
	defer l.Close(ctx)
	if err := l.Ready(ctx); err != nil {
		return false, err
	}
	return true, compute(ctx, l, n)
}

// compute has a program compute something, and checks what it prints. An error without a class is of a
// result that is wrong.
func compute(ctx context.Context, b sandbox.Box, n int64) error {
	program := fmt.Sprintf("i=0; s=0; while [ $i -lt 3000 ]; do i=$((i+1)); s=$((s+i*%d)); done; echo $s", n+1)
	if err := b.Write(ctx, sandbox.Work+"/sum.sh", []byte(program), 0o644); err != nil {
		return err
	}
	r, err := b.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "sum.sh"}})
	if err != nil {
		return err
	}
	want := fmt.Sprint(3000 * 3001 / 2 * (n + 1))
	if got := strings.TrimSpace(string(r.Stdout)); r.Exit != 0 || r.Limit != "" || got != want {
		return fmt.Errorf("rollout %d: a wrong result passes for one: exit %d, limit %q, printed %q, want %q", n, r.Exit, r.Limit, got, want)
	}
	return nil
}
