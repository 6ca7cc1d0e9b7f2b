package tinker

import (
	"context"
	"errors"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	service "github.com/headway-rl/headway/internal/tinker"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Responses go on through switches, and every token is of the version that was asked for it.
func TestSwitchesInFlight(t *testing.T) {
	for name, hold := range map[string]bool{"at-once": false, "under-hold": true} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := &fakeService{patient: true, length: func(p []int32) int { return 30 + int(p[1]) }}
				e := newEngine(t, f, nil)
				var group sync.WaitGroup
				var mu sync.Mutex
				mixed := 0
				for i := range 16 {
					group.Go(func() {
						var o told
						req := o.listen(request(i, 60))
						g, err := e.Generate(t.Context(), req)
						if err == nil {
							err = o.check(g, 0)
						}
						pieces := 0
						if err == nil {
							pieces, err = f.compare(req, g)
						}
						if err != nil {
							t.Error(err)
							return
						}
						length := min(30+int(req.Prompt[1]), 60)
						if len(g.Tokens) != length || pieces != (length+7)/8 || g.Truncated != (g.Tokens[length-1] != fakeEnd) {
							t.Errorf("%d tokens in %d pieces, truncated %v, want %d", len(g.Tokens), pieces, g.Truncated, length)
						}
						if !slices.IsSorted(g.Versions) {
							t.Errorf("versions %v", g.Versions)
						}
						mu.Lock()
						defer mu.Unlock()
						mixed += len(slices.Compact(slices.Clone(g.Versions))) - 1
					})
				}
				for v := loop.Version(1); v <= 5; v++ {
					time.Sleep(7 * fakeToken)
					serve(t, e, v, hold)
				}
				group.Wait()
				if mixed < 16*3 {
					t.Errorf("%d changes of version within 16 responses, want them to see most of 5 switches each", mixed)
				}
				if s := e.Status(); s.Version != 5 || s.State != "serving" || s.Running != 0 || s.Abandoned != 0 || s.Unused != 0 || s.Tokens == 0 {
					t.Errorf("%+v", s)
				}
			})
		})
	}
}

// Under hold the switch takes place when no piece is under way, and none begins before it has.
func TestHoldWaitsForPieces(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{patient: true}
		e := newEngine(t, f, nil)
		began := time.Now()
		var group sync.WaitGroup
		for i := range 3 {
			group.Go(func() {
				time.Sleep(time.Duration(2*i) * fakeToken)
				g, err := e.Generate(t.Context(), request(i, 16))
				if err != nil || !slices.Equal(g.Versions, slices.Concat(slices.Repeat([]loop.Version{0}, 8), slices.Repeat([]loop.Version{1}, 8))) {
					t.Errorf("%v, %v", g.Versions, err)
				}
			})
		}
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(5 * fakeToken) // three pieces are under way, the last of them for one token
		group.Go(func() {
			time.Sleep(fakeToken)
			if s := e.Status(); s.State != "switching" || s.Version != 0 {
				t.Errorf("%+v while it waits", s)
			}
			g, err := e.Generate(t.Context(), request(9, 8))
			if err != nil || g.Versions[0] != 1 {
				t.Errorf("%v, %v: sampled while a switch held it", g.Versions, err)
			}
		})
		group.Go(func() {
			time.Sleep(6 * fakeToken)
			if n := f.called.Load(); n != 3 {
				t.Errorf("%d requests before the switch took place, want the 3 that were under way", n)
			}
		})
		if err := e.Switch(t.Context(), 1, true); err != nil {
			t.Fatal(err)
		}
		if took := time.Since(began); took != 12*fakeToken {
			t.Errorf("switched after %v, want %v: when the last piece had ended", took, 12*fakeToken)
		}
		group.Wait()
	})
}

// Without hold a switch waits for nothing, and what is under way keeps its version.
func TestSwitchAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{patient: true}
		e := newEngine(t, f, nil)
		done := make(chan port.Generation)
		go func() {
			g, err := e.Generate(t.Context(), request(0, 12))
			if err != nil {
				t.Error(err)
			}
			done <- g
		}()
		time.Sleep(3 * fakeToken)
		before := time.Now()
		serve(t, e, 1, false)
		if !time.Now().Equal(before) {
			t.Error("it waited")
		}
		if g := <-done; !slices.Equal(g.Versions, []loop.Version{0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1}) {
			t.Errorf("%v", g.Versions)
		}
	})
}

// A switch that fails leaves the weights unknown: nothing is sampled before another has succeeded. One that
// is refused changes nothing.
func TestFailedSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{patient: true}
		e := newEngine(t, f, nil)
		if err := e.Switch(t.Context(), 7, false); err == nil || !strings.Contains(err.Error(), "cannot switch to version 7, the loaded one is 0") || e.Status().Version != 0 {
			t.Errorf("%v, %+v", err, e.Status())
		}
		done := make(chan port.Generation)
		go func() {
			g, err := e.Generate(t.Context(), request(0, 16))
			if err != nil {
				t.Error(err)
			}
			done <- g
		}()
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		synctest.Wait()
		ctx, cancel := context.WithTimeout(t.Context(), 3*fakeToken)
		defer cancel()
		if err := e.Switch(ctx, 1, true); !errors.Is(err, context.DeadlineExceeded) {
			t.Errorf("ended with %v", err)
		}
		if s := e.Status(); s.State != "unknown" || s.Version != loop.NoVersion || s.Cause == "" {
			t.Errorf("%+v", s)
		}
		time.Sleep(time.Hour)
		if n := f.called.Load(); n != 1 {
			t.Errorf("%d requests under unknown weights, want the one before", n)
		}
		serve(t, e, 1, true)
		if g := <-done; g.Versions[7] != 0 || g.Versions[8] != 1 {
			t.Errorf("%v", g.Versions)
		}
	})
}

// What a load says, and what it leaves.
func TestLoadFails(t *testing.T) {
	f := &fakeService{}
	noPath := errors.New("version 3 was not saved")
	e := newEngine(t, f, func(o *Options) {
		o.Path = func(v loop.Version) (string, error) {
			if v == 3 {
				return "", noPath
			}
			return pathOf(v), nil
		}
	})
	if err := e.Load(t.Context(), 3); !errors.Is(err, noPath) {
		t.Errorf("%v", err)
	}
	for cause, down := range map[error]bool{service.ErrDown: true, service.ErrGone: false, service.ErrRefused: false} {
		f.open = func(context.Context, int, string) error { return cause }
		err := e.Load(t.Context(), 1)
		if !errors.Is(err, cause) || errors.Is(err, port.ErrEngineDown) != down || !strings.Contains(err.Error(), pathOf(1)) {
			t.Errorf("%v", err)
		}
		if down != (e.Status().State == "down") {
			t.Errorf("%v: %+v", cause, e.Status())
		}
		if err := e.Switch(t.Context(), 1, false); err == nil {
			t.Error("switched to a version that was not loaded")
		}
		f.open = nil
		serve(t, e, 0, false)
	}
}

// Generations wait for the first weights, and their end is heeded meanwhile.
func TestWaitsForWeights(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		e, err := New(Options{Slots: 3, Service: &fakeService{}, Path: func(v loop.Version) (string, error) { return pathOf(v), nil }, Ends: []int32{fakeEnd}})
		if err != nil {
			t.Fatal(err)
		}
		if s := e.Status(); s.State != "new" || s.Version != loop.NoVersion {
			t.Errorf("%+v", s)
		}
		stop := make(chan struct{})
		ctx, cancel := context.WithCancel(t.Context())
		var group sync.WaitGroup
		group.Go(func() {
			req := request(0, 4)
			req.Interrupt = stop
			if g, err := e.Generate(t.Context(), req); err != nil || !g.Interrupted || len(g.Tokens) > 0 {
				t.Errorf("interrupted: %+v, %v", g, err)
			}
		})
		group.Go(func() {
			if _, err := e.Generate(ctx, request(1, 4)); !errors.Is(err, context.Canceled) {
				t.Errorf("cancelled: %v", err)
			}
		})
		group.Go(func() {
			if _, err := e.Generate(t.Context(), request(2, 4)); !errors.Is(err, ErrClosed) {
				t.Errorf("closed: %v", err)
			}
		})
		synctest.Wait()
		if _, err := e.Generate(t.Context(), request(3, 4)); err == nil || !strings.Contains(err.Error(), "all 3 are in use") {
			t.Errorf("a fourth response in three slots: %v", err)
		}
		close(stop)
		cancel()
		synctest.Wait()
		if err := e.Close(); err != nil {
			t.Error(err)
		}
		group.Wait()
		for _, err := range []error{e.Close(), e.Load(t.Context(), 0), e.Switch(t.Context(), 0, false)} {
			if err != nil && !errors.Is(err, ErrClosed) {
				t.Error(err)
			}
		}
		if _, err := e.Generate(t.Context(), request(3, 4)); !errors.Is(err, ErrClosed) || e.Status().State != "closed" {
			t.Errorf("%v, %+v", err, e.Status())
		}
	})
}

// Close ends a switch that waits and a load under way.
func TestCloseEndsEverything(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := &fakeService{patient: true}
		f.answer = func(_ int, c *call) {
			if c.err != nil {
				time.Sleep(time.Second) // it is slow to leave
			}
		}
		e := newEngine(t, f, nil)
		var group sync.WaitGroup
		group.Go(func() {
			g, err := e.Generate(t.Context(), request(0, 40))
			if !errors.Is(err, ErrClosed) || len(g.Tokens) != 8 {
				t.Errorf("%d tokens, %v", len(g.Tokens), err)
			}
		})
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		time.Sleep(10 * fakeToken)
		group.Go(func() {
			if err := e.Switch(t.Context(), 1, true); !errors.Is(err, ErrClosed) {
				t.Errorf("the switch ended with %v", err)
			}
		})
		synctest.Wait()
		f.open = func(ctx context.Context, _ int, _ string) error { <-ctx.Done(); return ctx.Err() }
		group.Go(func() {
			if err := e.Load(t.Context(), 2); err == nil {
				t.Error("the load ended well")
			}
		})
		synctest.Wait()
		began := time.Now()
		if err := e.Close(); err != nil || time.Since(began) != time.Second {
			t.Errorf("closed after %v, %v: want it to wait for what is under way", time.Since(began), err)
		}
		group.Wait()
	})
}
