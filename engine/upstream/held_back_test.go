package upstream

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/loop"
)

// TestTokensHeldBackThroughASwitch: a server may hold tokens back through a switch, as vLLM does with --stream-interval, and name no
// versions. They are made again.
func TestTokensHeldBackThroughASwitch(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		f.fault = func(int, fakeCall) fault { return fault{together: true} }
		e := newFakeEngine(t, f, nil)
		done := make(chan struct{})
		go func() {
			defer close(done)
			g, err := e.Generate(t.Context(), request(0, 40))
			if err != nil {
				t.Error(err)
			}
			made := []loop.Version{}
			for _, token := range g.Tokens {
				made = append(made, loop.Version(token/placesMax))
			}
			for i := range made {
				if made[i] != g.Versions[i] {
					t.Errorf("token %d was sampled by v%d and counts as v%d", i, made[i], g.Versions[i])
					return
				}
			}
		}()
		time.Sleep(204 * time.Millisecond)
		serveVersion(t, e, 1)
		<-done
	})
}
