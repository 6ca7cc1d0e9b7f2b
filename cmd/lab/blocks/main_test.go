package main

import (
	"bytes"
	"io"
	"math"
	"path/filepath"
	"reflect"
	"testing"
)

// TestReplayAgrees: the simulator's hit rates are within a point of a replay of identifiers, at every size.
func TestReplayAgrees(t *testing.T) {
	for seed := range uint64(3) {
		trace := draw(seed, 4000)
		lowest, highest := 1.0, 0.0
		for tokens := 1 << 18; tokens <= 1<<26; tokens *= 4 {
			replayed := trace.replay(tokens / blockTokens)
			simulated, err := trace.simulate(tokens)
			if err != nil {
				t.Fatal(err)
			}
			if off := 100 * (simulated.HitRate() - replayed); math.Abs(off) > 1 {
				t.Errorf("seed %d, %d tokens: the replay finds %.2f %%, the simulator %.2f %%", seed, tokens, 100*replayed, 100*simulated.HitRate())
			}
			lowest, highest = min(lowest, replayed), max(highest, replayed)
		}
		if highest-lowest < 0.1 {
			t.Errorf("seed %d: from %g to %g found: sizes make no difference, so that this is no test", seed, lowest, highest)
		}
	}
}

// TestReplayByHand: a cache of two blocks.
func TestReplayByHand(t *testing.T) {
	trace := trace{
		{Input: 1024, Output: 1, Hashes: []uint64{1, 2}}, // 1 and 2 come; 1 is the more recent
		{Input: 1025, Output: 1, Hashes: []uint64{1, 2, 9}},
		{Input: 512, Output: 1, Hashes: []uint64{3}}, // 2 goes
		{Input: 1025, Output: 1, Hashes: []uint64{1, 2}},
	}
	if got, want := trace.replay(2), float64(1024+512)/float64(1024+1025+512+1025); got != want {
		t.Errorf("found %g, expected %g", got, want)
	}
}

// TestTraceIsKept: a trace that was written is read as it was.
func TestTraceIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "trace.jsonl")
	if err := run(io.Discard, 4, 200, path, ""); err != nil {
		t.Fatal(err)
	}
	var written bytes.Buffer
	if err := draw(4, 200).write(&written); err != nil {
		t.Fatal(err)
	}
	again, err := read(&written)
	if err != nil || !reflect.DeepEqual(again, draw(4, 200)) {
		t.Errorf("not the same again: %v", err)
	}
	if err := run(io.Discard, 0, 1, "", path); err != nil {
		t.Error(err)
	}
}
