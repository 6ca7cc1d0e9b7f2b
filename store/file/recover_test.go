package file_test

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/observe/attribution"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/store/file"
)

// play writes a run in which every rollout is scored at once to a store, with a
// snapshot after each of some events, and returns its state at the end.
func play(t *testing.T, s *file.Store, enc *trace.Encoder, events int, snapshotAt ...int) []byte {
	t.Helper()
	l, err := loop.New(rules)
	if err != nil {
		t.Fatal(err)
	}
	now := live.Resume{Loop: l, Recorder: metrics.NewRecorder(l.Config()), Attribution: attribution.New(l.Config()), Counted: live.NewCounted(rules.Policy), Encoder: enc}
	now.Recorder.StepsMax, now.Recorder.Beside = live.SeriesSteps, now.Attribution
	due := []loop.Event{{Kind: loop.RunStarted}}
	for at := 1; at <= events; at++ {
		ev := due[0]
		due, ev.Time = due[1:], int64(at)
		line := enc.AppendEvent(nil, trace.Event{Event: ev})
		actions, _ := l.Step(ev)
		now.Recorder.Observe(ev, metrics.Measured{QueueGroups: l.QueueGroups()}, actions)
		now.Counted.Observe(ev, l.Ledger(), actions)
		for _, a := range actions {
			line = enc.AppendAction(line, enc.Seq(), a)
			next := loop.Event{Engine: a.Engine, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Lease: a.Lease, Version: a.Version}
			switch a.Kind {
			case loop.StartRollout:
				next.Kind, next.Tokens, next.Reward, next.Mark = loop.RolloutScored, 5, 1, loop.MarkSolved
			case loop.StartTrainStep:
				next.Kind, next.Version = loop.TrainStepEnded, a.Version+1
			case loop.LoadWeights:
				next.Kind = loop.WeightsLoaded
			case loop.SwitchWeights:
				next.Kind = loop.WeightsSwitched
			default:
				continue
			}
			due = append(due, next)
		}
		if len(due) == 0 {
			due = append(due, loop.Event{Kind: loop.Tick})
		}
		appendLines(t, s, line)
		for _, n := range snapshotAt {
			if n != at {
				continue
			}
			state, err := now.State()
			if err != nil {
				t.Fatal(err)
			}
			if err := s.Snapshot(enc.Position().Line, state); err != nil {
				t.Fatal(err)
			}
		}
	}
	if l.Version() == 0 {
		t.Fatal("no train step was made")
	}
	now.Restarts++ // as the recovery counts
	state, err := now.State()
	if err != nil {
		t.Fatal(err)
	}
	return state
}

// A run directory is recovered from its newest snapshot and the log after it: with a
// torn end, without the newest snapshot, without any. Damage after the snapshot is an
// error that says where, and changes nothing.
func TestRecoversFromItsSnapshot(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			dir := t.TempDir()
			s, enc := begin(t, dir, file.Options{})
			want := play(t, s, enc, 200, 60, 150)
			closeStore(t, s)
			recovers(t, dir, form.of(t, dir), want)
		})
	}
}

func recovers(t *testing.T, dir, path string, want []byte) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	recovered := func(what string, fromEvent int64) {
		t.Helper()
		s, err := file.Open(dir, file.Options{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer closeStore(t, s)
		r, err := live.Recover(s, nil)
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if r.SnapshotEvent != fromEvent || r.SnapshotEvent+r.Events != 200 {
			t.Errorf("%s: %d events after event %d, want those after %d", what, r.Events, r.SnapshotEvent, fromEvent)
		}
		if state, err := r.State(); err != nil || !bytes.Equal(state, want) {
			t.Errorf("%s: another state (%v)", what, err)
		}
	}
	recovered("as it was", 150)
	torn := []byte(`{"n":201,"t":9`)
	if trace.Packed(path) {
		torn = whole[:30] // a frame begins with what the first one begins with
	}
	if err := os.WriteFile(path, append(bytes.Clone(whole), torn...), 0o644); err != nil {
		t.Fatal(err)
	}
	recovered("torn", 150)

	damaged := bytes.Clone(whole)
	damaged[len(damaged)-len(damaged)/50] ^= 1
	if err := os.WriteFile(path, damaged, 0o644); err != nil {
		t.Fatal(err)
	}
	s, err := file.Open(dir, file.Options{}) // which reads a packed log, and of a plain one counts the lines
	if err == nil {
		_, err = live.Recover(s, nil)
		closeStore(t, s)
	}
	var where *trace.Error
	if all := strings.Count(textOf(whole), "\n"); !errors.As(err, &where) || where.Torn || where.Line < all*9/10 || where.Line > all {
		t.Errorf("%v, want one of the last of %d lines", err, all)
	}
	if after, err := os.ReadFile(path); err != nil || !bytes.Equal(after, damaged) {
		t.Errorf("a refused log was changed (%v)", err)
	}

	if err := os.WriteFile(path, whole, 0o644); err != nil {
		t.Fatal(err)
	}
	names, err := filepath.Glob(filepath.Join(dir, "state", "snapshot-*"))
	if err != nil || len(names) != 2 {
		t.Fatal(names, err)
	}
	for i, from := range []int64{60, 0} {
		if err := os.Remove(names[1-i]); err != nil {
			t.Fatal(err)
		}
		recovered("without the newest", from)
	}
}
