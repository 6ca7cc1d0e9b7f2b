package plane

import (
	"context"
	"testing"
)

// Claims of a writer hold at a standby whose directory is another.
func TestSigningOfAStandby(t *testing.T) {
	shared, dir := heldNotes{}, t.TempDir()
	first, err := signing(t.Context(), dir, shared)
	if err != nil {
		t.Fatal(err)
	}
	standby, err := signing(t.Context(), t.TempDir(), shared)
	if err != nil || *standby != *first {
		t.Errorf("the standby signs otherwise (%v)", err)
	}
	if again, err := signing(t.Context(), dir, nil); err != nil || *again != *first {
		t.Errorf("the directory has another secret (%v)", err)
	}
	shared[signingNote] = []byte("torn")
	if again, err := signing(t.Context(), dir, shared); err != nil || *again != *first || len(shared[signingNote]) != len(first) {
		t.Errorf("behind a note that is none: %v, %d bytes", err, len(shared[signingNote]))
	}
}

// A writer that was frozen before it noted its secret takes that of the one that has taken over.
func TestSigningOfAFrozenWriter(t *testing.T) {
	shared := heldNotes{}
	next, err := signing(t.Context(), t.TempDir(), shared)
	if err != nil {
		t.Fatal(err)
	}
	frozen, err := signing(t.Context(), t.TempDir(), frozenNotes{shared})
	if err != nil || *frozen != *next || string(shared[signingNote]) != string(next[:]) {
		t.Errorf("the frozen one has another secret, or has replaced its successor's (%v)", err)
	}
}

// frozenNotes reads what was noted before its process was frozen.
type frozenNotes struct{ heldNotes }

func (frozenNotes) Noted(context.Context, string) ([]byte, error) { return nil, nil }
