package upstream

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// restartDialect takes new weights only when its server starts.
type restartDialect struct {
	fakeDialect
	fails   bool
	stopped bool
}

func (d *restartDialect) Restart(_ context.Context, _ *Server, u Update) error {
	d.f.kill()
	time.Sleep(3 * time.Second)
	if d.fails {
		return errors.New("the program is missing")
	}
	d.f.restart(u.Version)
	return nil
}

func (d *restartDialect) Stop() error { d.stopped = true; return nil }

func TestDeliveryRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Pause, f.caps.UpdateDisk, f.caps.Salt, f.mute = false, false, false, true
		d := &restartDialect{fakeDialect: fakeDialect{f}}
		e := newFakeEngine(t, f, func(o *Options) { o.Delivery, o.Dialect = DeliveryRestart, d })
		var group sync.WaitGroup
		for i := range 4 {
			group.Go(func() {
				g, err := e.Generate(t.Context(), request(i, 300))
				if err != nil {
					t.Error(err)
				}
				checkTokens(t, g, fakePromptOf)
				if len(g.Tokens) != 300 || g.Versions[0] == g.Versions[299] || !g.Derived {
					t.Errorf("%d tokens of versions %d to %d", len(g.Tokens), g.Versions[0], g.Versions[299])
				}
			})
		}
		for v := loop.Version(1); v < 3; v++ {
			time.Sleep(503 * time.Millisecond)
			serveVersion(t, e, v)
		}
		group.Wait()
		if s := e.Status(); s.Losses != 0 || s.Cuts != 8 {
			t.Errorf("%+v", s)
		}
		d.fails = true
		if err := e.Load(t.Context(), 3); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 3, false); err == nil {
			t.Error("a server that does not start serves version 3")
		}
		if _, err := e.Generate(t.Context(), request(0, 3)); !errors.Is(err, port.ErrEngineDown) {
			t.Errorf("ended with %v", err)
		}
		if err := e.Close(); err != nil || !d.stopped {
			t.Errorf("closed with %v, stopped %v", err, d.stopped)
		}
	})
}

// What a program makes a server of need not be in the layout of Hugging Face, but it must be there.
func TestDeliveryRestartOfAFile(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.mute = true
		path := filepath.Join(t.TempDir(), "model.gguf")
		e := newBareEngine(t, f, func(o *Options) {
			o.Delivery, o.Dialect = DeliveryRestart, &restartDialect{fakeDialect: fakeDialect{f}}
			o.Views = func(context.Context, loop.Version) (string, error) { return path, nil }
		})
		if err := e.Load(t.Context(), 0); !errors.Is(err, os.ErrNotExist) {
			t.Errorf("a file that is not there loads: %v", err)
		}
		if err := os.WriteFile(path, []byte("GGUF"), 0o644); err != nil {
			t.Fatal(err)
		}
		serveVersion(t, e, 0)
	})
}

// Headway itself starts such a server: it need not run before the first switch, and comes back after its end.
func TestDeliveryRestartStartsWhatDoesNotRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Pause, f.caps.UpdateDisk, f.caps.Score, f.mute = false, false, true, true
		f.kill()
		e := newFakeEngine(t, f, func(o *Options) {
			o.Delivery, o.Dialect = DeliveryRestart, &restartDialect{fakeDialect: fakeDialect{f}}
		})
		serveVersion(t, e, 1)
		for version := loop.Version(1); version < 4; version++ {
			f.kill() // it dies by itself
			if _, err := e.Generate(t.Context(), request(1, 5)); !errors.Is(err, port.ErrEngineDown) {
				t.Errorf("ended with %v", err)
			}
			serveVersion(t, e, version)
			g, err := e.Generate(t.Context(), request(2, 5))
			if err != nil {
				t.Fatal(err)
			}
			checkTokens(t, g, fakePromptOf)
		}
	})
}
