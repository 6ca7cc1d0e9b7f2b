package compare

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// A run that was stopped and has been resumed goes on behind the note of its end, and is followed.
func TestAResumedRunIsFollowed(t *testing.T) {
	for name, events := range map[string][]loop.EventKind{"stopped": {loop.RunStarted}, "resumed": {loop.RunStarted, loop.Recovered}} {
		path := filepath.Join(t.TempDir(), name+".ndjson")
		file, err := os.Create(path)
		if err != nil {
			t.Fatal(err)
		}
		rules := loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 2}
		l, err := loop.New(rules)
		if err != nil {
			t.Fatal(err)
		}
		w, err := trace.NewWriter(file, trace.Header{Source: "live", Loop: rules})
		if err != nil {
			t.Fatal(err)
		}
		for i, kind := range events {
			ev := loop.Event{Time: int64(i), Kind: kind}
			actions, _ := l.Step(ev)
			w.Event(trace.Event{Event: ev}, actions)
			if i == 0 {
				if err := w.End(map[string]string{"reason": "stopped"}); err != nil {
					t.Fatal(err)
				}
			}
		}
		if err := file.Close(); err != nil {
			t.Fatal(err)
		}
		r, err := Open(path, time.Now)
		if err != nil {
			t.Fatal(err)
		}
		defer r.Close()
		ctx, cancel := context.WithCancel(t.Context())
		cancel() // it looks at what is there, and waits for no more
		r.Follow(ctx)
		if s := r.Model().Summary(); s.Problem != "" || r.ended != (name == "stopped") {
			t.Errorf("%s: ended %v, %s", name, r.ended, s.Problem)
		}
	}
}
