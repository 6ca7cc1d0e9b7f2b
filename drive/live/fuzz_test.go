package live_test

import (
	"bytes"
	"maps"
	"slices"
	"testing"

	"github.com/headway-rl/headway/drive/live"
)

// FuzzState: a snapshot whose checksum matches may hold anything. It is passed over or taken, and what is taken goes on.
func FuzzState(f *testing.F) {
	r := record(f, 3, 120, 0.05)
	lines := slices.Sorted(maps.Keys(r.store.snapshots))
	last := lines[len(lines)-1]
	_, document, _ := bytes.Cut(r.store.snapshots[last], []byte("\n"))
	f.Add(0, []byte{})
	f.Add(40, []byte("-1"))
	f.Add(len(document)/2, []byte("99999999999"))
	// The document is mutated at one place: few documents that are not mostly one are read at all.
	f.Fuzz(func(t *testing.T, at int, there []byte) {
		changed := bytes.Clone(document)
		copy(changed[uint(at)%uint(len(changed)):], there)
		r.store.snapshots[last] = reseal(append([]byte("\n"), changed...))
		got, err := live.Recover(r.store, nil)
		if err != nil {
			return
		}
		if _, err := got.State(); err != nil {
			t.Errorf("what was taken has no state: %v", err)
		}
	})
}
