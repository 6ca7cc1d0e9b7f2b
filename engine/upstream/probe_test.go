package upstream

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// A server that is slow to say what it can is waited for question by question, and one that does not
// answer one is down, whether its reply has begun or not.
func TestAProbeIsBoundedByTheQuestion(t *testing.T) {
	for name, begun := range map[string]bool{"/probe": false, "/version": true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.begins = begun
			e := newBareEngine(t, f, func(o *Options) { o.Dialect = slowDialect{fakeDialect{f}} })
			if _, err := e.Probe(t.Context()); err != nil {
				t.Errorf("a slow server: %v", err)
			}
			e.forget(errors.New("asked anew"))
			f.set(func() { f.stuck, f.asked = name, make(chan struct{}) })
			if err := e.Load(t.Context(), 0); !errors.Is(err, port.ErrEngineDown) {
				t.Errorf("%s hangs, begun %v: %v", name, begun, err)
			}
		})
	}
}

// A look asks as a guest does, and leaves what the engine knows as it is. A probe asks as the server's owner.
func TestALookKeepsNothing(t *testing.T) {
	f, d := newFakeServer(t), &hostDialect{}
	e := newBareEngine(t, f, func(o *Options) { d.fakeDialect = fakeDialect{f}; o.Dialect = d })
	if _, err := e.Look(t.Context()); err != nil || !d.guest {
		t.Errorf("a look, by a guest %v: %v", d.guest, err)
	}
	if caps, known := e.Capabilities(); known {
		t.Errorf("after a look it has %+v", caps)
	}
	if _, err := e.Probe(t.Context()); err != nil || d.guest {
		t.Errorf("a probe, by a guest %v: %v", d.guest, err)
	}
	if _, known := e.Capabilities(); !known {
		t.Error("a probe is forgotten")
	}
}

// hostDialect notes whether a guest asks.
type hostDialect struct {
	fakeDialect
	guest bool
}

func (d *hostDialect) Probe(ctx context.Context, s *Server) (Capabilities, error) {
	d.guest = s.Guest
	return d.fakeDialect.Probe(ctx, s)
}

// slowDialect asks many questions.
type slowDialect struct{ fakeDialect }

func (d slowDialect) Probe(ctx context.Context, s *Server) (Capabilities, error) {
	for range 30 {
		if _, err := d.Version(ctx, s, nil); err != nil {
			return Capabilities{}, err
		}
		time.Sleep(10 * time.Second)
	}
	return d.fakeDialect.Probe(ctx, s)
}

// A server that lacks what nothing can be trained on without is refused in the words of its status, whatever the delivery.
func TestWhatIsLackingIsSaidInOneForm(t *testing.T) {
	for name, lacking := range map[string]Missing{
		"on every road": {What: "it names no tokens", Flag: "--ids", Fatal: true},
		"on this one":   {What: "it reads no directory", Flag: "--ids", Delivery: DeliveryDisk},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.Missing, f.caps.UpdateDisk = []Missing{lacking}, false
			e := newBareEngine(t, f, nil)
			if err := e.Load(t.Context(), 0); !errors.Is(err, ErrLacking) || !strings.HasSuffix(err.Error(), ": "+lacking.What+" (start it with --ids)") {
				t.Errorf("%s: %v", name, err)
			}
		})
	}
}
