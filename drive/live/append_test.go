package live_test

import (
	"bytes"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
)

// appendsStore notes which lines each append has.
type appendsStore struct {
	*memoryStore
	// ends are the numbers of lines after each append.
	ends  []int
	lines int
}

func (s *appendsStore) Append(lines [][]byte) error {
	for _, l := range lines {
		s.lines += bytes.Count(l, []byte("\n"))
	}
	s.ends = append(s.ends, s.lines)
	return s.memoryStore.Append(lines)
}

// TestActionsAreInTheAppendOfTheirEvent: who reads the log knows what follows from an event as soon as it has the event,
// also where the process ended right after an append.
func TestActionsAreInTheAppendOfTheirEvent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.Sync = loop.SyncRestart
		w := newWorld(cfg)
		store := &appendsStore{memoryStore: w.store}
		w.change = func(o *live.Options) { o.Store = store }
		if _, err := w.runtime(t, nil).Run(t.Context()); err != nil {
			t.Fatal(err)
		}
		of, next, actions := map[int64]int{}, 0, 0
		for _, rec := range w.records(t) {
			for rec.Line > store.ends[next] {
				next++
			}
			switch {
			case rec.Event != nil:
				of[rec.Seq] = next
			case rec.Action != nil:
				actions++
				if of[rec.Seq] != next {
					t.Fatalf("line %d: %v is in append %d, and its event in append %d", rec.Line, rec.Action, next, of[rec.Seq])
				}
			}
		}
		if actions < 100 {
			t.Errorf("%d actions in %d appends", actions, len(store.ends))
		}
	})
}
