package plane

import "testing"

// Claims of a writer hold at a standby whose directory is another.
func TestSigningOfAStandby(t *testing.T) {
	shared, dir := heldNotes{}, t.TempDir()
	first, err := signing(dir, shared)
	if err != nil {
		t.Fatal(err)
	}
	standby, err := signing(t.TempDir(), shared)
	if err != nil || *standby != *first {
		t.Errorf("the standby signs otherwise (%v)", err)
	}
	if again, err := signing(dir, nil); err != nil || *again != *first {
		t.Errorf("the directory has another secret (%v)", err)
	}
	shared[signingNote] = []byte("torn")
	if again, err := signing(dir, shared); err != nil || *again != *first || len(shared[signingNote]) != len(first) {
		t.Errorf("behind a note that is none: %v, %d bytes", err, len(shared[signingNote]))
	}
}
