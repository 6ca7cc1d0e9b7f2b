package run

import (
	"testing"
	"time"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop"
)

// A probe of fast steps lasts a second and has fifty of them; one of slow steps has fewer, and lasts longer.
func TestProbeIsLongEnough(t *testing.T) {
	for _, c := range []struct {
		step     loop.Version
		measured int
		span     time.Duration
		want     bool
	}{
		{49, 41, 2 * time.Second, false},
		{50, 42, 999 * time.Millisecond, false},
		{50, 42, time.Second, true},
		{27, 19, 4 * time.Second, false},
		{28, 20, 3 * time.Second, true},
	} {
		if got := enough(c.step, c.measured, c.span); got != c.want {
			t.Errorf("step %d, %d measured in %v: %v", c.step, c.measured, c.span, got)
		}
	}
}

// What may be under way goes round twice before anything is measured, unless the run is shorter.
func TestProbeSettles(t *testing.T) {
	for text, want := range map[string]loop.Version{"": 12, "trainer: {steps: 10}": 5, "queue: {policy: drop, factor: 6}": 20} {
		cfg, err := config.Parse("test", []byte(text))
		if err != nil {
			t.Fatal(err)
		}
		if got := settles(cfg.WithDefaults()); got != want {
			t.Errorf("%q: %d steps, want %d", text, got, want)
		}
	}
}
