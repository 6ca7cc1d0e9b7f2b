package compare

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// FuzzRun: the trace of a run directory that somebody sent may hold anything. It is a run or an error.
func FuzzRun(f *testing.F) {
	l, err := loop.New(loop.Config{Policy: loop.PolicyBounded, GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 8})
	if err != nil {
		f.Fatal(err)
	}
	var encoder trace.Encoder
	text, err := encoder.AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format, Program: "test", Source: "live", Loop: l.Config(), Config: "trainer: {steps: 3}\n"})
	if err != nil {
		f.Fatal(err)
	}
	f.Add(text)
	f.Add(encoder.AppendEvent(text, trace.Event{Event: loop.Event{Kind: loop.Tick, Time: 5}}))
	f.Add([]byte("{}\n"))
	f.Fuzz(func(t *testing.T, text []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "trace.ndjson"), text, 0o600); err != nil {
			t.Fatal(err)
		}
		if run, err := readRun(context.Background(), dir, "", nil); err == nil && run.Steps < 1 {
			t.Errorf("a run of %d steps", run.Steps)
		}
		_, _ = HoldsTrace(dir)
	})
}
