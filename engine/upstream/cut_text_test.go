package upstream

import (
	"context"
	"net/http"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// readingDialect brings text later than tokens, and has the server itself read tokens.
type readingDialect struct{ laggingDialect }

func (d readingDialect) Decode(ctx context.Context, s *Server, tokens []int32, caps *Capabilities) (string, error) {
	time.Sleep(d.f.pace()) // of the bubble: by then a switch has begun with its restart
	if err := s.Call(ctx, http.MethodGet, "/probe", nil, nil); err != nil {
		return "", err
	}
	return d.laggingDialect.Decode(ctx, s, tokens, caps)
}

// readingRestartDialect takes new weights only when its server starts, besides.
type readingRestartDialect struct {
	readingDialect
	restarter *restartDialect
}

func (d readingRestartDialect) Restart(ctx context.Context, s *Server, u Update) error {
	return d.restarter.Restart(ctx, s, u)
}

func (d readingRestartDialect) Stop() error { return d.restarter.Stop() }

// cutRoads are servers that cut responses off in a switch, which do not read tokens in it.
var cutRoads = map[string]func(f *fakeServer) func(*Options){
	"a restart": func(f *fakeServer) func(*Options) {
		f.caps.Pause, f.caps.UpdateDisk, f.mute = false, false, true
		return func(o *Options) {
			o.Delivery = DeliveryRestart
			o.Dialect = readingRestartDialect{readingDialect{laggingDialect{fakeDialect{f}, 3}}, &restartDialect{fakeDialect: fakeDialect{f}}}
		}
	},
	"a failed switch": func(f *fakeServer) func(*Options) {
		return func(o *Options) { o.Dialect = readingDialect{laggingDialect{fakeDialect{f}, 3}} }
	},
}

// switchOver switches to version 1; where the server pauses, a first try fails, which leaves its weights unknown.
func switchOver(t *testing.T, f *fakeServer, e *Engine) {
	t.Helper()
	if e.opt.Delivery != DeliveryRestart {
		f.set(func() { f.failing["/update"] = 1 })
		if err := e.Load(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		if err := e.Switch(t.Context(), 1, false); err == nil {
			t.Fatal("an update that fails switches")
		}
		synctest.Wait() // until the response stands before the weights that are unknown
	}
	serveVersion(t, e, 1)
}

// generateOver generates a response that is switched over after ten tokens, and what it told of its text.
func generateOver(t *testing.T, f *fakeServer, e *Engine, stop string) (port.Generation, string) {
	t.Helper()
	req, told, ten := request(1, 40), "", make(chan struct{})
	req.Sampling = &port.Sampling{Temperature: 1, Stop: []string{stop}}
	count := closeAfter(10, ten)
	req.OnTokens = func(d port.Delta) {
		told += d.Text
		count(d)
	}
	var g port.Generation
	var err error
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		g, err = e.Generate(t.Context(), req)
	}()
	<-ten
	switchOver(t, f, e)
	<-ended
	if err != nil {
		t.Fatal(err)
	}
	return g, told
}

// Through a switch a server may not read tokens: it is asked for held back text when it serves again.
func TestTextOverASwitchIsWhole(t *testing.T) {
	for name, delivery := range cutRoads {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				e := newFakeEngine(t, f, delivery(f))
				g, told := generateOver(t, f, e, "nothing")
				checkTokens(t, g, fakePromptOf)
				if g.TextPartial || told != g.Text || g.Versions[len(g.Versions)-1] != 1 {
					t.Errorf("partial %v, versions %v, told of\n%q of\n%q", g.TextPartial, g.Versions, told, g.Text)
				}
			})
		})
	}
}

// And a stop text over such a cut ends the response.
func TestAStopTextOverASwitch(t *testing.T) {
	for name, delivery := range cutRoads {
		t.Run(strings.ReplaceAll(name, " ", "_"), func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				f := newFakeServer(t)
				e := newFakeEngine(t, f, delivery(f))
				// Tokens of version 1 are written <10pp>, those before <pp>: only over the cut stands one beside the other.
				g, told := generateOver(t, f, e, "><10")
				if g.Truncated || told != g.Text || !strings.HasSuffix(g.Text, "><10") || g.Versions[len(g.Versions)-1] != 1 {
					t.Errorf("truncated %v, versions %v, told of\n%q of\n%q", g.Truncated, g.Versions, told, g.Text)
				}
			})
		})
	}
}

// switchingDialect is switched over while it reads tokens, and then does not answer.
type switchingDialect struct {
	laggingDialect
	asked    *int
	switches func(asked int)
}

func (d switchingDialect) Decode(ctx context.Context, s *Server, tokens []int32, caps *Capabilities) (string, error) {
	*d.asked++
	if d.switches(*d.asked); *d.asked < readTries {
		return "", &StatusError{Path: "/detokenize", Status: http.StatusServiceUnavailable}
	}
	return d.laggingDialect.Decode(ctx, s, tokens, caps)
}

// A switch that comes while the text is read does not wait for it, and the server is asked again.
func TestTextIsReadAgainAfterASwitch(t *testing.T) {
	for _, c := range []struct{ switches, asked int }{{0, 1}, {1, 2}, {2, 3}} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			var e *Engine
			asked, atCut, told := 0, 0, ""
			f.fault = func(call int, _ fakeCall) fault {
				if call == 1 {
					atCut = asked
				}
				return fault{breaks: call == 0, after: 10}
			}
			switches := func(asked int) {
				if asked <= c.switches {
					serveVersion(t, e, loop.Version(asked))
				}
			}
			e = newFakeEngine(t, f, func(o *Options) {
				o.Dialect = switchingDialect{laggingDialect{fakeDialect{f}, 3}, &asked, switches}
			})
			req := request(1, 40)
			req.Sampling = &port.Sampling{Temperature: 1, Stop: []string{"nothing"}}
			req.OnTokens = func(d port.Delta) { told += d.Text }
			_, err := e.Generate(t.Context(), req)
			if err != nil || atCut != c.asked {
				t.Errorf("%d switches: it was asked %d times before it was sampled from again, want %d; %v", c.switches, atCut, c.asked, err)
			}
			if whole := strings.Contains(told, "<13><14><15><16>"); whole != (c.asked == readTries) {
				t.Errorf("%d switches: told of %q", c.switches, told)
			}
		})
	}
}
