package weights

import (
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// writerStore opens a directory as the writer of an epoch; said are the lines it logs.
func writerStore(t *testing.T, dir string, epoch uint64, said *[]string) *Store {
	t.Helper()
	s, err := Open(dir, Options{Epoch: epoch, Logf: func(format string, args ...any) {
		if said != nil {
			*said = append(*said, fmt.Sprintf(format, args...))
		}
	}})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

func mustPublish(t *testing.T, s *Store, version loop.Version, lease loop.LeaseID) {
	t.Helper()
	if err := s.Publish(t.Context(), publication(version, lease)); err != nil {
		t.Fatal(err)
	}
}

// expectLease checks who made a version; 0 stands for a version that is not there.
func expectLease(t *testing.T, s *Store, version loop.Version, want loop.LeaseID) {
	t.Helper()
	lease, there, err := s.Committed(version)
	if err != nil || there != (want != 0) || lease != want {
		t.Errorf("version %d: lease %d, there %t (%v), want lease %d", version, lease, there, err, want)
	}
}

// A writer that was deposed, and does not know it yet, publishes a batch that the run has
// given to another lease: the new writer never shows that version, and publishes its own in
// its place, from files and from memory.
func TestDeposedWriterPublishes(t *testing.T) {
	for _, how := range []string{"files", "memory"} {
		t.Run(how, func(t *testing.T) {
			dir := t.TempDir()
			before := writerStore(t, dir, 3, nil)
			mustPublish(t, before, 0, 0)
			mustPublish(t, before, 1, 4)
			var said []string
			now := writerStore(t, dir, 7, &said)
			mustPublish(t, before, 2, 5)

			if versions, err := now.Versions(); err != nil || !slices.Equal(versions, []loop.Version{0, 1}) || now.Newest() != 1 {
				t.Errorf("versions %v (%v), newest %d: want 0 and 1", versions, err, now.Newest())
			}
			expectLease(t, now, 2, 0)
			if _, err := now.ManifestText(t.Context(), 2); !errors.Is(err, ErrNotFound) {
				t.Errorf("its manifest: %v, want %v", err, ErrNotFound)
			}
			if _, err := now.Model(t.Context(), 2); !errors.Is(err, ErrNotFound) {
				t.Errorf("its model: %v, want %v", err, ErrNotFound)
			}

			if how == "memory" {
				mustPublish(t, now, 2, 6)
			} else {
				content, _, err := now.OpenFile(t.Context(), 1, ModelName, 0)
				if err != nil {
					t.Fatal(err)
				}
				defer content.Close()
				d, err := now.Begin(t.Context(), Description{Version: 2, Lease: 6, Kind: KindFull})
				if err != nil {
					t.Fatal(err)
				}
				if err := d.Add(t.Context(), ModelName, content); err != nil {
					t.Fatal(err)
				}
				if existing, err := d.Commit(t.Context()); existing || err != nil {
					t.Fatalf("existing %t, %v", existing, err)
				}
			}
			expectLease(t, now, 2, 6)
			if now.Newest() != 2 || now.Verify(t.Context(), 2) != nil {
				t.Errorf("newest %d, %v", now.Newest(), now.Verify(t.Context(), 2))
			}
			if len(said) != 1 || !strings.Contains(said[0], "lease 5") || !strings.Contains(said[0], "epoch 3") {
				t.Errorf("logged %q, want the lease and the epoch", said)
			}
			orphans, _ := filepath.Glob(filepath.Join(dir, "orphan-v000002-epoch3-lease5-*", ManifestName))
			if len(orphans) != 1 {
				t.Errorf("%d versions set aside, want 1", len(orphans))
			}

			// The deposed one can never take its place, neither with its old batch nor another.
			for _, lease := range []loop.LeaseID{5, 8} {
				if err := before.Publish(t.Context(), publication(2, lease)); !errors.Is(err, ErrConflict) {
					t.Errorf("the deposed writer publishes lease %d: %v, want %v", lease, err, ErrConflict)
				}
			}
			expectLease(t, now, 2, 6)
			mustPublish(t, now, 3, 9)
			if err := now.Prune(3); err != nil {
				t.Fatal(err)
			}
			if left, _ := filepath.Glob(filepath.Join(dir, "orphan-*")); len(left) > 0 {
				t.Errorf("%v is left after pruning", left)
			}
		})
	}
}

// What a deposed writer was about to publish when the new one opened the directory is gone,
// and touches none of the new one's drafts, however alike they were numbered.
func TestDeposedWriterWakesUp(t *testing.T) {
	dir := t.TempDir()
	before := writerStore(t, dir, 1, nil)
	mustPublish(t, before, 0, 0)
	late, err := before.Begin(t.Context(), Description{Version: 1, Lease: 1, Kind: KindNone})
	if err != nil {
		t.Fatal(err)
	}
	now := writerStore(t, dir, 2, nil)
	now.temporaries.Store(before.temporaries.Load() - 1)
	ours, err := now.Begin(t.Context(), Description{Version: 1, Lease: 2, Kind: KindNone})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := late.Commit(t.Context()); err == nil {
		t.Error("a draft that was deleted was committed")
	}
	if _, err := ours.Commit(t.Context()); err != nil {
		t.Fatal(err)
	}
	expectLease(t, now, 1, 2)
}

// A version that was there when the next writer opened the directory is one, until it is
// set aside: the run's log says which are.
func TestSetAside(t *testing.T) {
	dir := t.TempDir()
	before := writerStore(t, dir, 1, nil)
	mustPublish(t, before, 0, 0)
	mustPublish(t, before, 1, 5)
	now := writerStore(t, dir, 2, nil)
	expectLease(t, now, 1, 5)
	if err := now.SetAside(1); err != nil {
		t.Fatal(err)
	}
	expectLease(t, now, 1, 0)
	mustPublish(t, before, 1, 5) // once more
	expectLease(t, now, 1, 0)
	mustPublish(t, now, 1, 6)
	expectLease(t, now, 1, 6)
	if err := now.SetAside(9); !errors.Is(err, ErrNotFound) {
		t.Errorf("a version that is not there: %v, want %v", err, ErrNotFound)
	}
}

// A writer that may have been deposed puts no version in its place, from memory or files.
func TestFenceOfTheStore(t *testing.T) {
	fenced := errors.New("deposed")
	var now error
	s, err := Open(t.TempDir(), Options{Epoch: 1, Fence: func() error { return now }})
	if err != nil {
		t.Fatal(err)
	}
	mustPublish(t, s, 0, 0)
	now = fenced
	if err := s.Publish(t.Context(), publication(1, 1)); !errors.Is(err, fenced) {
		t.Errorf("from memory: %v, want %v", err, fenced)
	}
	if _, err := publishFiles(t, s, Description{Version: 1, Lease: 1, Kind: KindNone}); !errors.Is(err, fenced) {
		t.Errorf("from files: %v, want %v", err, fenced)
	}
	expectLease(t, s, 1, 0)
	now = nil
	mustPublish(t, s, 1, 1)
}
