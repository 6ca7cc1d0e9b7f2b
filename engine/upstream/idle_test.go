package upstream

import (
	"net/http"
	"testing"
	"testing/synctest"
	"time"
)

// TestIdleConnectionsEndFirst requires that no request goes out on a connection that its server is about to close.
func TestIdleConnectionsEndFirst(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		f := newFakeServer(t)
		e := newBareEngine(t, f, nil)
		s := e.opt.Server
		call := func() int64 {
			t.Helper()
			if err := s.Call(t.Context(), http.MethodGet, "/version", nil, nil); err != nil {
				t.Fatal(err)
			}
			return s.dials.Load()
		}
		first := call()
		if again := call(); again != first {
			t.Fatalf("%d connections for a second call at once, want %d", again, first)
		}
		time.Sleep(4900 * time.Millisecond) // uvicorn closes after 5 s
		if later := call(); later != first+1 {
			t.Fatalf("%d connections after a pause, want %d", later, first+1)
		}
	})
}
