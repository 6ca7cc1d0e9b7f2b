package plane

import (
	"fmt"
	"slices"
	"testing"
	"time"
)

// The same text is said once a minute, others beside it.
func TestSparingly(t *testing.T) {
	now := time.Unix(0, 0)
	var said []string
	logf := sparing(func() time.Time { return now }, func(format string, args ...any) { said = append(said, fmt.Sprintf(format, args...)) })
	for _, at := range []time.Duration{0, time.Second, 59 * time.Second, 60 * time.Second, 61 * time.Second} {
		now = time.Unix(0, int64(at))
		logf("down: %d", 1)
		if at == time.Second {
			logf("down: %d", 2)
		}
	}
	for i := range 2 * sparingTexts {
		logf("other %d", i)
	}
	if want := []string{"down: 1", "down: 2", "down: 1"}; !slices.Equal(said[:3], want) || len(said) != 3+2*sparingTexts {
		t.Errorf("said %q and %d in all", said[:3], len(said))
	}
}
