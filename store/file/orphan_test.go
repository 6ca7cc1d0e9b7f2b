package file_test

import (
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/file"
)

func samplesOf(t *testing.T, s *file.Store, group loop.GroupID) (ids []port.RolloutID) {
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
	for _, p := range []port.Sample{sampleOf(1, 0, 1), sampleOf(1, 1, 1), sampleOf(1, 1, 2)} {
		if err := s.PutSample(p); err != nil {
			t.Fatal(err)
		}
	}
	for _, id := range []port.RolloutID{{Group: 1, Sample: 1, Attempt: 1}, {Group: 1, Sample: 7, Attempt: 1}, {Group: 9, Sample: 0, Attempt: 1}} {
		if err := s.Discard(id); err != nil {
			t.Errorf("discarding %v: %v", id, err)
		}
	}
	if ids := samplesOf(t, s, 1); len(ids) != 2 || ids[1].Attempt != 2 {
		t.Errorf("kept %v, want both samples, the second's later attempt", ids)
	}
	if err := s.Discard(port.RolloutID{Group: 1, Sample: 1, Attempt: 2}); err != nil {
		t.Fatal(err)
	}
	if ids := samplesOf(t, s, 1); len(ids) != 1 || ids[0].Sample != 0 {
		t.Errorf("kept %v, want sample 0 alone", ids)
	}
	before := s.PayloadBytes()
	if err := s.Discard(port.RolloutID{Group: 1, Sample: 0, Attempt: 1}); err != nil {
		t.Fatal(err)
	}
	if ids := samplesOf(t, s, 1); ids != nil || s.PayloadBytes() >= before {
		t.Errorf("kept %v in %d bytes of %d", ids, s.PayloadBytes(), before)
	}
}

// After a restart what does not count is an orphan: the step would refuse a group with
// more payloads than scores.
func TestRetain(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	counted, late, killed, alone := sampleOf(1, 0, 1), sampleOf(1, 1, 1), sampleOf(1, 1, 2), sampleOf(2, 0, 1)
	for _, p := range []port.Sample{counted, late, killed, alone} {
		if err := s.PutSample(p); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	if n, err := s.Retain(func(id port.RolloutID) bool { return id == counted.ID }); err != nil || n != 2 {
		t.Errorf("dropped %d (%v), want the two that are left of the others", n, err)
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
