package parts

import (
	"runtime"
	"testing"
	"time"
)

// The bound of the processors is what was taken between two looks that are far enough apart.
func TestProcessorBound(t *testing.T) {
	now, spent := time.Unix(1e9, 0), time.Hour
	var p Processor
	most := int64(1000 * runtime.GOMAXPROCS(0))
	for _, look := range []struct {
		after, spent time.Duration
		held         int64
	}{{0, 0, 0}, {time.Second, time.Second, 0}, {time.Second, 2 * time.Second, 1500}, {time.Second, 0, 1500}, {3 * time.Second, time.Second, 250}} {
		now, spent = now.Add(look.after), spent+look.spent
		got := p.Bound(now, func() time.Duration { return spent })
		if len(got) != 1 || got[0].Held != look.held || got[0].Max != most || got[0].Binding != (10*look.held >= 9*most) {
			t.Errorf("after %v in which %v were spent it is %+v, want %d of %d", look.after, look.spent, got, look.held, most)
		}
	}
	if p.Bound(now, nil) != nil {
		t.Error("there is a bound on a system that does not tell")
	}
}
