package file_test

import (
	"testing"

	"github.com/headway-rl/headway/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/trace"
)

// scored appends the event of a payload's score.
func scored(t *testing.T, s *file.Store, enc *trace.Encoder, at int64, id live.RolloutID) {
	t.Helper()
	appendLines(t, s, enc.AppendEvent(nil, trace.Event{Event: loop.Event{Time: at, Kind: loop.RolloutScored, Group: id.Group, Sample: id.Sample, Attempt: id.Attempt, Tokens: 2, Reward: 0.5}}))
}

func samplesOf(t *testing.T, s *file.Store, group loop.GroupID) (ids []live.RolloutID) {
	t.Helper()
	samples, err := s.Samples(group)
	if err != nil {
		return nil // forgotten altogether
	}
	for _, p := range samples {
		ids = append(ids, p.ID)
	}
	return ids
}

// Discard takes one attempt's payload out of a group that lives on, and no other attempt's.
func TestDiscard(t *testing.T) {
	s, _ := begin(t, t.TempDir(), file.Options{SegmentBytes: 1})
	defer closeStore(t, s)
	for _, p := range []live.Sample{sampleOf(1, 0, 1), sampleOf(1, 1, 1), sampleOf(1, 1, 2)} {
		if err := s.PutSample(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []live.RolloutID{{Group: 1, Sample: 1, Attempt: 1}, {Group: 1, Sample: 7, Attempt: 1}, {Group: 9, Sample: 0, Attempt: 1}} {
		if err := s.Discard(id); err != nil {
			t.Errorf("discarding %v: %v", id, err)
		}
	}
	if ids := samplesOf(t, s, 1); len(ids) != 2 || ids[1].Attempt != 2 {
		t.Errorf("kept %v, want both samples, the second's later attempt", ids)
	}
	if err := s.Discard(live.RolloutID{Group: 1, Sample: 1, Attempt: 2}); err != nil {
		t.Fatal(err)
	}
	if ids := samplesOf(t, s, 1); len(ids) != 1 || ids[0].Sample != 0 {
		t.Errorf("kept %v, want sample 0 alone", ids)
	}
	before := s.PayloadBytes()
	if err := s.Discard(live.RolloutID{Group: 1, Sample: 0, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if ids := samplesOf(t, s, 1); ids != nil || s.PayloadBytes() >= before {
		t.Errorf("kept %v in %d bytes of %d", ids, s.PayloadBytes(), before)
	}
}

// After a restart, what the log has no score of is an orphan, and so is what the
// log discards: the step would refuse a group with more payloads than scores.
func TestOrphansAreDropped(t *testing.T) {
	dir := t.TempDir()
	s, enc := begin(t, dir, file.Options{})
	counted, late, killed := sampleOf(1, 0, 1), sampleOf(1, 1, 1), sampleOf(1, 1, 2)
	alone := sampleOf(2, 0, 1)
	for i, p := range []live.Sample{counted, late} {
		if err := s.PutSample(p); err != nil {
			t.Fatal(err)
		}
		scored(t, s, enc, int64(i), p.ID)
	}
	note, err := enc.AppendNote(nil, live.NoteDiscarded, late.ID)
	if err != nil {
		t.Fatal(err)
	}
	appendLines(t, s, note)
	for _, p := range []live.Sample{killed, alone} {
		if err := s.PutSample(p); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	if s, err = file.Open(dir, file.Options{}); err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	if n, err := s.DropOrphans(); err != nil || n != 2 {
		t.Errorf("dropped %d (%v), want the two that were killed", n, err)
	}
	if ids := samplesOf(t, s, 1); len(ids) != 1 || ids[0] != counted.ID {
		t.Errorf("kept %v, want %v", ids, counted.ID)
	}
	if ids := samplesOf(t, s, 2); ids != nil {
		t.Errorf("kept %v of a group without a score", ids)
	}
	// What is put from now on is the runtime's to judge.
	if err := s.PutSample(sampleOf(1, 1, 3)); err != nil {
		t.Fatal(err)
	}
	if ids := samplesOf(t, s, 1); len(ids) != 2 {
		t.Errorf("kept %v", ids)
	}
}

// A trained group's scores are done with, unless the policy may train on it again.
func TestScoresOfReplayedGroupsStay(t *testing.T) {
	for policy, want := range map[loop.Policy]int{loop.PolicyDrop: 0, loop.PolicyReplay: 1} {
		dir := t.TempDir()
		s, err := file.Create(dir, file.Options{})
		if err != nil {
			t.Fatal(err)
		}
		cfg := rules
		cfg.Policy, cfg.QueueGroups = policy, 1
		enc := s.Encoder()
		header, err := enc.AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format, Program: "test", Source: "live", Loop: cfg})
		if err != nil {
			t.Fatal(err)
		}
		appendLines(t, s, header)
		p := sampleOf(1, 0, 1)
		if err := s.PutSample(p); err != nil {
			t.Fatal(err)
		}
		scored(t, s, enc, 1, p.ID)
		appendLines(t, s, enc.AppendAction(nil, enc.Seq(), loop.Action{Kind: loop.GroupTrained, Group: 1, Lease: 1, Attempt: 1, Count: 1}))
		closeStore(t, s)
		if s, err = file.Open(dir, file.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, err := s.DropOrphans(); err != nil {
			t.Fatal(err)
		}
		if ids := samplesOf(t, s, 1); len(ids) != want {
			t.Errorf("policy %d: %v after it was trained, want %d", policy, ids, want)
		}
		closeStore(t, s)
	}
}
