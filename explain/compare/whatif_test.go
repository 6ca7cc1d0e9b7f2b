package compare

import (
	"testing"

	"github.com/headway-rl/headway/loop/trace"
)

// The time of a sync replaces the measured one where it is given, also where the document had that already: a live run
// has a document's default, and measured another.
func TestASyncTimeIsAskedFor(t *testing.T) {
	header := trace.Header{Config: "trainer: {steps: 3}\n"}
	for set, want := range map[string]int64{"": -1, "sync.every=2": -1, "modelled.sync.time_s=0": 0, "modelled.sync.time_s=1.5": 1_500_000_000} {
		var keys []string
		if set != "" {
			keys = []string{set}
		}
		w, err := ParseWhatIf(header, keys)
		if err != nil {
			t.Errorf("%s: %v", set, err)
			continue
		}
		s, err := w.settings(header)
		if err != nil {
			t.Fatal(err)
		}
		if got := s.SyncNS; want < 0 && got != nil || want >= 0 && (got == nil || *got != want) {
			t.Errorf("%s: %v, want %d", set, got, want)
		}
	}
}
