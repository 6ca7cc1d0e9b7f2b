package upstream

import (
	"context"
	"errors"
	"slices"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// pausingDialect tries a pause where it asks a server what it can. The first probe waits a second before, as for a
// server that somebody has paused.
type pausingDialect struct {
	laggingDialect
	probes *atomic.Int64
}

func (d pausingDialect) Probe(ctx context.Context, s *Server) (Capabilities, error) {
	if d.probes.Add(1) == 1 {
		time.Sleep(time.Second)
	}
	if err := d.Pause(ctx, s, Update{}, nil); err != nil {
		return Capabilities{}, err
	}
	time.Sleep(250 * time.Millisecond)
	caps, err := d.fakeDialect.Probe(ctx, s)
	return caps, errors.Join(err, d.Resume(ctx, s, nil))
}

func (pausingDialect) Render(context.Context, *Server, []byte, []byte, bool, *Capabilities) ([]int32, error) {
	return []int32{1}, nil
}

// Agents ask for chats to be rendered while an engine takes its first weights and the next. None asks what the server can
// beside a load or switch: the end of the pause that it tries would end that of the switch.
func TestTemplatesAskBesideNoSwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		probes := &atomic.Int64{}
		e := newBareEngine(t, f, func(o *Options) { o.Dialect = pausingDialect{laggingDialect{fakeDialect{f}, 0}, probes} })
		templates := newTemplates(t, 0, e)
		rendered := make(chan error, 3)
		for range 3 {
			go func() {
				_, err := templates.Render(t.Context(), []byte("a"), nil, true)
				rendered <- err
			}()
		}
		synctest.Wait()
		serveVersion(t, e, 0)
		sampled := make(chan port.Generation, 1)
		go func() {
			g, err := e.Generate(t.Context(), request(1, 300))
			if err != nil {
				t.Error(err)
			}
			sampled <- g
		}()
		time.Sleep(480 * time.Millisecond)
		serveVersion(t, e, 1)
		g := <-sampled
		checkTokens(t, g, fakePromptOf)
		if !slices.Contains(g.Versions, 0) || !slices.Contains(g.Versions, 1) {
			t.Errorf("the response is of the versions %v", slices.Compact(g.Versions))
		}
		for range 3 {
			if err := <-rendered; err != nil {
				t.Error(err)
			}
		}
		if n := probes.Load(); n != 1 {
			t.Errorf("the server was asked %d times what it can, want once", n)
		}
	})
}
