package pool_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/pool"
)

// Real boxes are handed out clean, many at once, used again, and gone in the end. Some are destroyed
// under their holders: what they then get is an error, never a wrong result.
func TestRealBoxes(t *testing.T) {
	for name, d := range drivers {
		t.Run(name, func(t *testing.T) {
			driver := real(t, name, t.TempDir())
			p, err := pool.Open(t.Context(), pool.Options{Driver: driver, Spec: small, Owner: "real", Max: 12,
				WarmMin: 2, WarmMax: 6, Reuse: pool.Reset, Uses: 4, StartTimeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			var wait sync.WaitGroup
			for worker := range max(4, d.holds/5) {
				draw := rand.New(rand.NewPCG(uint64(worker), 3))
				wait.Go(func() {
					for i := range 5 {
						if err := played(t.Context(), driver, p, fmt.Sprintf("g%d-s%d-a0", worker, i), draw); err != nil {
							t.Error(err)
						}
					}
				})
			}
			wait.Wait()
			s := p.Status()
			if s.Created+s.Reused < 20 || s.Reused == 0 || s.Failures[string(sandbox.Lost)] == 0 {
				t.Errorf("20 rollouts or more, some of whose boxes were lost: %+v", s)
			}
			t.Logf("%+v", s)
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
			if left, err := driver.List(t.Context(), "real"); err != nil || len(left) != 0 {
				t.Errorf("left of a closed pool: %v, %v", left, err)
			}
		})
	}
}

// played is a rollout, played until it has a result: every tenth time its box is destroyed under it.
func played(ctx context.Context, driver sandbox.Driver, p *pool.Pool, holder string, draw *rand.Rand) error {
	for {
		l, err := p.Lease(ctx, holder)
		if err != nil {
			return err
		}
		if err := l.Ready(ctx); err != nil {
			return fmt.Errorf("%s: %w", holder, err)
		}
		var wait sync.WaitGroup
		if draw.IntN(10) == 0 {
			wait.Go(func() { _ = driver.Destroy(ctx, l.ID()) })
		}
		err = result(ctx, l)
		wait.Wait()
		_ = l.Close(ctx)
		if sandbox.ClassOf(err) != sandbox.Lost {
			return err
		}
	}
}

// result runs a program that finds nobody's file, leaves its own and says whose it is.
func result(ctx context.Context, l *pool.Lease) error {
	if err := l.Write(ctx, sandbox.Work+"/input", []byte(l.Holder()), 0o644); err != nil {
		return err
	}
	r, err := l.Run(ctx, sandbox.Command{Argv: []string{"/bin/sh", "-c", "ls; cat input; touch left-$$; sleep 600 &"}})
	if err != nil {
		return err
	}
	if got := strings.Fields(string(r.Stdout)); r.Exit != 0 || len(got) != 2 || got[0] != "input" || got[1] != l.Holder() {
		return fmt.Errorf("%s: a wrong result passes for one: %+v: %s", l.Holder(), r, r.Stdout)
	}
	content, err := l.Read(ctx, sandbox.Work+"/input", 100)
	if err == nil && string(content) != l.Holder() {
		err = errors.New(l.Holder() + " reads " + string(content))
	}
	return err
}

// A real box that is gone while it stands ready is not handed out.
func TestRealBoxDiesWhileItStands(t *testing.T) {
	for name := range drivers {
		t.Run(name, func(t *testing.T) {
			driver := real(t, name, t.TempDir())
			p, err := pool.Open(t.Context(), pool.Options{Driver: driver, Spec: small, Owner: "dies", WarmMin: 2, StartTimeout: 5 * time.Minute})
			if err != nil {
				t.Fatal(err)
			}
			waitFor(t, "two boxes stand ready", func() bool { return p.Status().Warm == 2 })
			ids, err := driver.List(t.Context(), "dies")
			if err != nil || len(ids) < 2 {
				t.Fatal(ids, err)
			}
			for _, id := range ids {
				if err := driver.Destroy(t.Context(), id); err != nil {
					t.Fatal(err)
				}
			}
			l, err := p.Lease(t.Context(), "g0-s0-a0")
			if err != nil {
				t.Fatal(err)
			}
			if err := result(t.Context(), l); err != nil {
				t.Errorf("after all that stood ready were destroyed: %v", err)
			}
			if p.Status().Failures[string(sandbox.Lost)] == 0 {
				t.Errorf("the boxes that were destroyed are not counted: %+v", p.Status())
			}
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}
