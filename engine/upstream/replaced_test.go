package upstream

import (
	"context"
	"errors"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// Another model's server at the same address, or one with another key or a shorter context, refuses
// what the one before has answered: that says nothing of the response.
func TestAReplacedServerRefuses(t *testing.T) {
	for _, status := range []int{400, 401, 403, 404} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			e := newFakeEngine(t, f, nil)
			serveVersion(t, e, 1)
			f.kill()
			f.restart(0)
			f.set(func() { f.fault = func(int, fakeCall) fault { return fault{status: status} } })
			for i := range 3 {
				if _, err := e.Generate(t.Context(), request(i, 5)); !errors.Is(err, port.ErrEngineDown) || errors.Is(err, ErrRefused) {
					t.Errorf("%d: ended with %v", status, err)
				}
			}
			if s := e.Status(); s.State != "down" || s.Losses != 1 {
				t.Errorf("%d: %+v", status, s)
			}
		})
	}
}

// A server that tells no label is another one where it refuses whatever it is asked, and is believed
// where it refuses the request.
func TestAReplacedServerRefusesWithoutALabel(t *testing.T) {
	for status, lost := range map[int]bool{400: false, 403: true, 404: true, 422: false} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.mute = true
			e := newFakeEngine(t, f, nil)
			f.set(func() { f.fault = func(int, fakeCall) fault { return fault{status: status} } })
			_, err := e.Generate(t.Context(), request(1, 5))
			if errors.Is(err, port.ErrEngineDown) != lost || errors.Is(err, ErrRefused) == lost {
				t.Errorf("%d: ended with %v", status, err)
			}
		})
	}
}

// A refusal of the server whose weights are known is about the request, on a new connection too.
func TestARefusalIsTheResponsesOwn(t *testing.T) {
	for _, status := range []int{400, 404} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			e := newFakeEngine(t, f, nil)
			f.set(func() { f.fault = func(int, fakeCall) fault { return fault{status: status} } })
			if _, err := e.Generate(t.Context(), request(1, 5)); !errors.Is(err, ErrRefused) || errors.Is(err, port.ErrEngineDown) {
				t.Errorf("%d: ended with %v", status, err)
			}
		})
	}
}

// A version that was served here before, and one of another process, are not what is served now.
func TestAServerWithAnotherKnownLabelIsAnother(t *testing.T) {
	for name, label := range map[string]func(*Engine) string{
		"of another process":  func(*Engine) string { return Label(2) },
		"of a version before": func(e *Engine) string { return e.label(1) },
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			e := newFakeEngine(t, f, nil)
			serveVersion(t, e, 1)
			serveVersion(t, e, 2)
			f.kill()
			f.restart(9)
			f.set(func() { f.label = label(e) })
			g, err := e.Generate(t.Context(), request(1, 5))
			if !errors.Is(err, port.ErrEngineDown) {
				t.Errorf("%s: tokens %v count as %v, %v", name, g.Tokens, g.Versions, err)
			}
		})
	}
}

// What a server computes that was started again behind its update is not taken for what the new weights compute: the update that
// is made again would seem to have no effect.
func TestAServerStartedAgainBehindItsUpdate(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Score = true
		d := &scoringDialect{fakeDialect: fakeDialect{f}}
		e := newFakeEngine(t, f, func(o *Options) { o.Dialect = d })
		serveVersion(t, e, 1)
		d.before = func() {
			d.before = nil
			f.kill()
			f.restart(0)
		}
		if err := e.Load(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 2, false); err == nil {
			t.Error("the server was started again, and counts as switched")
		}
		f.set(func() { f.failing["/version"] = 1 }) // behind the update
		if err := e.Load(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 2, false); err == nil {
			t.Error("nobody says what it serves, and it counts as switched")
		}
		serveVersion(t, e, 2)
	})
}

// scoringDialect does something before it asks for scores.
type scoringDialect struct {
	fakeDialect
	before func()
}

func (d *scoringDialect) Score(ctx context.Context, s *Server, tokens []int32, caps *Capabilities) ([]float32, error) {
	if d.before != nil {
		d.before()
	}
	return d.fakeDialect.Score(ctx, s, tokens, caps)
}

// A response that was interrupted is read to its end. Where its server is lost before it answers, nobody knows which weights
// sample it.
func TestNobodyIsRecognisedAfterALoss(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.VersionSpans = true
		e := newFakeEngine(t, f, nil)
		serveVersion(t, e, 1)
		e.opt.Server.dials.Add(1) // the connection of the response
		_ = e.lose(errors.New("it was started again"))
		var b *broken
		if err := e.recognise(t.Context()); !errors.As(err, &b) {
			t.Errorf("after the loss: %v", err)
		}
		serveVersion(t, e, 1)
		if err := e.recognise(t.Context()); err != nil {
			t.Errorf("with the weights there again: %v", err)
		}
	})
}

// After a loss the server has other weights. An update that does nothing to them is noticed then too,
// of the version before and of the next one, and by every try again.
func TestAnUpdateWithoutEffectAfterALoss(t *testing.T) {
	for next := loop.Version(1); next < 3; next++ {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.Score = true
			e := newFakeEngine(t, f, nil)
			serveVersion(t, e, 1)
			f.kill()
			f.restart(0)
			f.set(func() { f.lazy = true })
			if _, err := e.Generate(t.Context(), request(1, 5)); !errors.Is(err, port.ErrEngineDown) {
				t.Errorf("ended with %v", err)
			}
			for range 3 {
				if err := e.Load(t.Context(), next); err != nil {
					t.Fatal(err)
				}
				if err := e.Switch(t.Context(), next, false); !errors.Is(err, ErrLied) {
					t.Errorf("the switch to %d, which did nothing: %v", next, err)
				}
			}
			f.set(func() { f.lazy = false })
			serveVersion(t, e, next)
			g, err := e.Generate(t.Context(), request(2, 5))
			if err != nil {
				t.Fatal(err)
			}
			checkTokens(t, g, fakePromptOf)
		})
	}
}

// The same holds where nobody noticed that the server was started again: the label tells, where it names one.
func TestAnUpdateWithoutEffectAfterAnUnnoticedRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.caps.Score = true
		e := newFakeEngine(t, f, nil)
		serveVersion(t, e, 1)
		f.kill()
		f.restart(0)
		f.set(func() { f.lazy = true })
		if err := e.Load(t.Context(), 2); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 2, false); !errors.Is(err, ErrLied) {
			t.Errorf("the switch, which did nothing: %v", err)
		}
		f.set(func() { f.lazy = false })
		serveVersion(t, e, 2)
	})
}

// A server that was cut off for a moment has its weights still: the same version again changes nothing.
// One whose switch failed behind its update has the new weights already when it is tried again.
func TestAnUpdateToWhatIsThereAlready(t *testing.T) {
	for _, failing := range []string{"", "/score", "/resume"} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.Score = true
			e := newFakeEngine(t, f, nil)
			serveVersion(t, e, 1)
			next := loop.Version(1)
			if failing == "" {
				_ = e.lose(errors.New("its network was away"))
			} else {
				next = 2
				f.set(func() { f.failing[failing] = resumeTries })
				if err := e.Load(t.Context(), next); err != nil {
					t.Fatal(err)
				}
				if err := e.Switch(t.Context(), next, false); err == nil {
					t.Fatalf("%s fails and the switch does not", failing)
				}
				f.set(func() { f.failing[failing] = 0 })
			}
			serveVersion(t, e, next)
		})
	}
}

// fullDialect answers the question for scores when not all of the server's places are taken.
type fullDialect struct {
	fakeDialect
	places int
}

func (d fullDialect) Score(ctx context.Context, s *Server, tokens []int32, caps *Capabilities) ([]float32, error) {
	for {
		d.f.mu.Lock()
		full, changed := len(d.f.active) >= d.places, d.f.changed
		d.f.mu.Unlock()
		if !full {
			return d.fakeDialect.Score(ctx, s, tokens, caps)
		}
		select {
		case <-changed:
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// A switch of a full server makes itself room: what is cut off for it goes on.
func TestAFullServerIsVerified(t *testing.T) {
	for _, spans := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.Score, f.caps.VersionSpans, f.step = true, spans, 100*time.Millisecond
			e := newFakeEngine(t, f, func(o *Options) { o.Slots, o.Dialect = 4, fullDialect{fakeDialect{f}, 2} })
			done := make(chan error)
			for i := range 4 {
				go func() {
					g, err := e.Generate(t.Context(), request(i, 900))
					if err == nil {
						checkTokens(t, g, fakePromptOf)
						if len(g.Tokens) != 900 || g.Versions[899] != 1 {
							err = fmt.Errorf("%d tokens, the last of version %d", len(g.Tokens), g.Versions[len(g.Tokens)-1])
						}
					}
					done <- err
				}()
			}
			time.Sleep(time.Second)
			serveVersion(t, e, 1)
			for range 4 {
				if err := <-done; err != nil {
					t.Error(err)
				}
			}
			if s := e.Status(); s.Cuts != 3 || s.Losses != 0 {
				t.Errorf("%+v", s)
			}
		})
	}
}
