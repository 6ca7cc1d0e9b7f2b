package upstream

import (
	"context"
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// replacedDialect does something to the server behind a switch's update or resume.
type replacedDialect struct {
	fakeDialect
	afterUpdate, afterResume *func()
}

func (d replacedDialect) Update(ctx context.Context, s *Server, u Update, caps *Capabilities) error {
	err := d.fakeDialect.Update(ctx, s, u, caps)
	happen(d.afterUpdate)
	return err
}

func (d replacedDialect) Resume(ctx context.Context, s *Server, caps *Capabilities) error {
	happen(d.afterResume)
	return d.fakeDialect.Resume(ctx, s, caps)
}

func happen(what *func()) {
	if do := *what; do != nil {
		*what = nil
		do()
	}
}

// A server that tells no label and is replaced while a switch is under way has weights that nobody knows:
// the switch fails, whatever the new server's scores are, and no token of them counts.
func TestAServerReplacedInASwitch(t *testing.T) {
	for _, score := range []bool{false, true} {
		for _, behind := range []string{"update", "resume"} {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				f.mute, f.caps.Score = true, score
				var afterUpdate, afterResume func()
				e := newFakeEngine(t, f, func(o *Options) { o.Dialect = replacedDialect{fakeDialect{f}, &afterUpdate, &afterResume} })
				replace := func() { f.kill(); f.restart(99) }
				if behind == "update" {
					afterUpdate = replace
				} else {
					afterResume = replace
				}
				type end struct {
					g   port.Generation
					err error
				}
				done := make(chan end, 1)
				go func() {
					g, err := e.Generate(t.Context(), request(1, 40))
					done <- end{g, err}
				}()
				time.Sleep(100 * time.Millisecond)
				if err := e.Load(t.Context(), 1); err != nil {
					t.Fatal(err)
				}
				if err := e.Switch(t.Context(), 1, false); !errors.Is(err, errRestarted) {
					t.Errorf("replaced behind the %s: the switch ends with %v", behind, err)
				}
				serveVersion(t, e, 1)
				r := <-done
				if r.err != nil || len(r.g.Tokens) != 40 {
					t.Fatalf("replaced behind the %s: %d tokens, %v", behind, len(r.g.Tokens), r.err)
				}
				checkTokens(t, r.g, fakePromptOf)
			})
		}
	}
}

// A connection that breaks off asks more of a server without a label than an answer of 503: it does not
// make do with the look after the server that another response waits for.
func TestABrokenConnectionBesideAnotherResponsesTrouble(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.mute = true
		e := newFakeEngine(t, f, nil)
		f.ponders = time.Second
		busy, broke := make(chan error, 1), make(chan error, 1)
		go func() { busy <- e.checkUp(t.Context(), nil, &broken{cause: errors.New("busy")}) }()
		synctest.Wait()
		go func() { broke <- e.checkUp(t.Context(), nil, &broken{cause: errors.New("reset"), transport: true}) }()
		if err := <-busy; err != nil {
			t.Errorf("the one that was refused: %v", err)
		}
		if err := <-broke; !errors.Is(err, port.ErrEngineDown) {
			t.Errorf("the one that broke off: %v", err)
		}
	})
}

// A server that says its label and was started again is not believed because a switch is about to begin.
func TestANewConnectionAtTheBeginningOfASwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		f.kill()
		f.restart(99)
		var known bool
		f.set(func() {
			f.fault = func(call int, _ fakeCall) fault {
				if !known {
					known = true
					e.hold() // a switch begins while the request is on its way
					time.AfterFunc(time.Second, e.unhold)
				}
				return fault{}
			}
		})
		g, err := e.Generate(t.Context(), request(1, 5))
		if !errors.Is(err, port.ErrEngineDown) || len(g.Tokens) != 0 {
			t.Errorf("tokens %v count as %v, %v", g.Tokens, g.Versions, err)
		}
	})
}

// A look after the server that a switch overtakes says nothing of what it serves behind the switch.
func TestALookThatASwitchOvertakes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		f.ponders, f.unwell = time.Second, true
		looked := make(chan error, 1)
		go func() {
			looked <- e.checkUp(t.Context(), nil, &broken{cause: &StatusError{Path: "/sample", Status: http.StatusServiceUnavailable}})
		}()
		synctest.Wait()
		if err := e.Switch(t.Context(), 1, false); err != nil {
			t.Fatal(err)
		}
		if err := <-looked; err != nil {
			t.Errorf("it ends with %v", err)
		}
		if s := e.Status(); s.State != "serving" || s.Version != loop.Version(1) {
			t.Errorf("%+v", s)
		}
	})
}

// A server that was started again is not believed either where another question has opened the connection.
func TestAConnectionThatAnotherQuestionOpened(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newFakeEngine(t, f, nil)
		f.kill()
		f.restart(99)
		if err := e.opt.Server.Health(t.Context()); err != nil {
			t.Fatal(err)
		}
		g, err := e.Generate(t.Context(), request(1, 5))
		if !errors.Is(err, port.ErrEngineDown) || len(g.Tokens) != 0 {
			t.Errorf("tokens %v count as %v, %v", g.Tokens, g.Versions, err)
		}
	})
}
