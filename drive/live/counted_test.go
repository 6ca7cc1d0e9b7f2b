package live_test

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// redundantWorld is one in which each group's second rollout is superfluous, and has
// its payload in the store when the first is scored. Its own score is told a little
// later: the group is at the trainer, which is fast, by then. No two of these share
// an instant, though a second rollout starts a little later in each group.
func redundantWorld() *world {
	w := newWorld(loop.Config{GroupSize: 1, Redundancy: 1, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1, TrainSteps: 5})
	w.work(work{stepNS: 11_000_001, equal: true})
	w.store.slow = func(id port.RolloutID) time.Duration { return time.Duration(1-id.Sample) * 2000 * time.Microsecond }
	w.store.tells = func(id port.RolloutID) time.Duration { return time.Duration(id.Sample) * 2300 * time.Microsecond }
	return w
}

// checkTrained checks that no step was refused, and that each was made of what the loop counted.
func (w *world) checkTrained(t *testing.T) {
	t.Helper()
	for _, rec := range w.records(t) {
		if rec.Event != nil && rec.Event.Kind == loop.TrainStepFailed {
			t.Errorf("line %d: %v", rec.Line, rec.Event.Event)
		}
	}
	if len(w.logged) > 0 {
		t.Errorf("logged %q", w.logged)
	}
	for _, b := range w.trainer.batches {
		for _, g := range b.Groups {
			if len(g.Samples) != 1 || g.Samples[0].ID.Sample != 0 {
				t.Errorf("group %d was trained with %d samples, the first %v: want its first alone", g.ID, len(g.Samples), g.Samples[0].ID)
			}
		}
	}
}

// TestCutRolloutsAreNotTrainedOn: the payload of a rollout that the loop cut may be in
// the store when its group is trained on.
func TestCutRolloutsAreNotTrainedOn(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := redundantWorld()
		stored := 0
		w.change = func(o *live.Options) {
			o.OnBatch = func(b port.Batch) {
				samples, _ := w.store.Samples(b.Groups[0].ID)
				stored = max(stored, len(samples))
			}
		}
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v, %v", res.Reason, err)
		}
		if stored != 2 {
			t.Errorf("the store had up to %d payloads of a group that was trained on, the test needs 2", stored)
		}
		w.checkTrained(t)
	})
}

// runToThird runs until stop, which is called with what stops the run in its third step.
func (w *world) runToThird(t *testing.T, stop func(cancel func())) {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	w.change = func(o *live.Options) {
		o.OnBatch = func(b port.Batch) {
			if b.Lease == 3 {
				stop(cancel)
			}
		}
	}
	if _, err := w.runtime(t, nil).Run(ctx); err == nil {
		t.Fatal("it was to be stopped in its third step")
	}
	w.change = nil
}

// TestCutRolloutsAfterAResume: so it is after a resume, even where the log was torn
// between the score of a rollout that was cut and the note that discards it.
func TestCutRolloutsAfterAResume(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := redundantWorld()
		w.runToThird(t, func(cancel func()) { time.AfterFunc(5*time.Millisecond, cancel) })
		id := w.tear(t)
		resume := w.resume(t)
		if stored, _ := w.store.Samples(id.Group); len(stored) != 2 || resume.Counted.Counts(id) {
			t.Fatalf("%d payloads of group %d before the resume, want 2, and %v not to count", len(stored), id.Group, id)
		}
		res, err := w.runtime(t, resume).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("ended by %v, %v", res.Reason, err)
		}
		w.checkTrained(t)
	})
}

// TestLostPayloads: a run goes on only where its store has every payload that its log counts. It says which
// groups lack one, and changes nothing.
func TestLostPayloads(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := redundantWorld()
		w.runToThird(t, func(cancel func()) { cancel() })
		resume := w.resume(t)
		var lost port.Sample
		for _, samples := range w.store.samples {
			for k, sample := range samples {
				if resume.Counted.Counts(sample.ID) && lost.Tokens == nil {
					lost = sample
					delete(samples, k)
				}
			}
		}
		before := w.store.log.String()
		_, err := w.runtime(t, resume).Run(t.Context())
		if want := fmt.Sprintf("1 that the log counts are gone, of groups [%d].", lost.ID.Group); !errors.Is(err, live.ErrPayloadsLost) || !strings.Contains(err.Error(), want) {
			t.Fatalf("%v, want %q", err, want)
		}
		if w.store.log.String() != before {
			t.Error("the log was changed")
		}
		w.store.put(lost)
		res, err := w.runtime(t, w.resume(t)).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps {
			t.Fatalf("with the payload again it ended by %v, %v", res.Reason, err)
		}
		w.checkTrained(t)
	})
}

// tear cuts the log before its last note of a discarded payload, and puts that
// payload back. It returns whose that was.
func (w *world) tear(t *testing.T) port.RolloutID {
	t.Helper()
	log := w.store.log.Bytes()
	at := bytes.LastIndex(log, []byte(trace.NoteDiscarded))
	if at < 0 {
		t.Fatal("nothing was discarded")
	}
	w.store.log.Truncate(bytes.LastIndexByte(log[:at], '\n') + 1)
	records := w.records(t)
	last := records[len(records)-1].Event
	if last == nil || last.Kind != loop.RolloutScored {
		t.Fatalf("the log ends with %+v, want the score", records[len(records)-1])
	}
	id := port.RolloutID{Group: last.Group, Sample: last.Sample, Attempt: last.Attempt}
	kept, err := w.store.Samples(id.Group)
	if err != nil || len(kept) != 1 {
		t.Fatalf("%d payloads of group %d (%v), want the one that counts", len(kept), id.Group, err)
	}
	cut := kept[0]
	cut.ID = id
	w.store.put(cut)
	return id
}
