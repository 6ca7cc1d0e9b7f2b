package parts

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// All control planes of a run sign by one secret, for its owner alone. A damaged one is refused with what to do.
func TestSigning(t *testing.T) {
	dir := t.TempDir()
	first, err := Signing(dir)
	if err != nil {
		t.Fatal(err)
	}
	again, err := Signing(dir)
	if err != nil || *again != *first || *first == [32]byte{} {
		t.Errorf("the secret is %x, and was %x: %v", again, first, err)
	}
	path := filepath.Join(dir, SigningName)
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the file has the mode %v: %v", info.Mode(), err)
	}
	if other, err := Signing(t.TempDir()); err != nil || *other == *first {
		t.Errorf("another run has the same secret: %v", err)
	}
	if err := os.Truncate(path, 5); err != nil {
		t.Fatal(err)
	}
	_, err = Signing(dir)
	if refusal, is := errors.AsType[*failure.Error](err); !is || refusal.Hint == "" || !strings.Contains(err.Error(), path+" has 5 bytes, want 32") {
		t.Errorf("a damaged file: %v", err)
	}
	if _, err := Signing(filepath.Join(dir, "none")); err == nil {
		t.Error("there is no directory, and a secret")
	}
}
