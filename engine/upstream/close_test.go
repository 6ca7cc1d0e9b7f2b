package upstream

import (
	"context"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/loop"
)

// stuckDialect updates for ever to any version but the first.
type stuckDialect struct {
	fakeDialect
	updating chan struct{}
}

func (d stuckDialect) Update(ctx context.Context, s *Server, u Update, caps *Capabilities) error {
	if u.Version == 0 {
		return d.fakeDialect.Update(ctx, s, u, caps)
	}
	close(d.updating)
	<-ctx.Done()
	return ctx.Err()
}

// Who ends the process behind Close leaves no server paused.
func TestCloseEndsTheSwitchUnderWay(t *testing.T) {
	for _, fails := range []int{0, 1} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			d := stuckDialect{fakeDialect{f}, make(chan struct{})}
			e := newFakeEngine(t, f, func(o *Options) { o.Dialect = d })
			if err := e.Load(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			done := make(chan error, 1)
			go func() { done <- e.Switch(t.Context(), 1, false) }()
			<-d.updating
			f.set(func() { f.failing["/resume"] = fails }) // the switch's own try
			if err := e.Close(); err != nil {
				t.Error(err)
			}
			f.mu.Lock()
			if f.paused {
				t.Error("the engine is closed, and its server paused")
			}
			f.mu.Unlock()
			if err := <-done; err == nil {
				t.Error("the switch has succeeded")
			}
			if s := e.Status(); s.Version != loop.NoVersion {
				t.Errorf("%+v", s)
			}
		})
	}
}
