package upstream

import (
	"errors"
	"net/http"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// A server that has no room for a while is waited for while it is well. One that never has is given up as
// one that brings nothing is.
func TestABusyServerIsWaitedFor(t *testing.T) {
	for _, c := range []struct {
		status int
		after  string
		lasts  time.Duration
		given  bool
	}{
		{http.StatusTooManyRequests, "", 8 * time.Second, false},
		{http.StatusTooManyRequests, "3", 8 * time.Second, false},
		{http.StatusServiceUnavailable, "1", 8 * time.Second, false},
		{http.StatusServiceUnavailable, "", 8 * time.Second, true},
		{http.StatusTooManyRequests, "99999999999", time.Hour, true},
		{http.StatusTooManyRequests, "", time.Hour, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			e := newFakeEngine(t, f, nil)
			began := time.Now()
			f.set(func() {
				f.fault = func(int, fakeCall) fault {
					if time.Since(began) > c.lasts {
						return fault{}
					}
					return fault{status: c.status, retry: c.after}
				}
			})
			g, err := e.Generate(t.Context(), request(1, 5))
			if c.given != errors.Is(err, port.ErrEngineDown) {
				t.Errorf("%+v: after %v: %v", c, time.Since(began), err)
			}
			if !c.given && len(g.Tokens) != 5 {
				t.Errorf("%+v: %d tokens", c, len(g.Tokens))
			}
			if waited := time.Since(began); waited > 4*time.Minute {
				t.Errorf("%+v: it took %v", c, waited)
			}
		})
	}
}
