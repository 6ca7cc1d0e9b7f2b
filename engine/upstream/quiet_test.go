package upstream

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// lateDialect answers its second question for the label late.
type lateDialect struct {
	fakeDialect
	asked *int
}

func (d lateDialect) Version(ctx context.Context, s *Server, caps *Capabilities) (string, error) {
	if *d.asked++; *d.asked == 2 {
		time.Sleep(QuietDefault)
	}
	return d.fakeDialect.Version(ctx, s, caps)
}

// After an answer that comes late the quiet time begins anew, also where the server names versions:
// the first token's is told by the barrier there too.
func TestALateAnswerBeginsTheQuietAnew(t *testing.T) {
	for _, spans := range []bool{false, true} {
		synctest.Test(t, func(t *testing.T) {
			f := newFakeServer(t)
			f.caps.VersionSpans = spans
			asked := 0
			e := newFakeEngine(t, f, func(o *Options) { o.Dialect = lateDialect{fakeDialect{f}, &asked} })
			if err := e.Load(t.Context(), 1); err != nil {
				t.Fatal(err)
			}
			asked = 0
			began := time.Now()
			if err := e.Switch(t.Context(), 1, false); err != nil {
				t.Fatal(err)
			}
			update := 20 * f.pace()
			if took, least := time.Since(began), update+2*QuietDefault; took < least {
				t.Errorf("spans %v: it took %v, want at least %v: the update, the late answer and the quiet after it", spans, took, least)
			}
		})
	}
}
