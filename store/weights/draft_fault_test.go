package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// filesAct publishes version 2 from files in one of the ways there are. The store has
// versions 0 and 1 of publication before.
type filesAct struct {
	name string
	act  func(t testing.TB, s *Store) error
	// derived: the act makes no version but something beside version 1.
	derived bool
}

// nextModel is another model of the tensors of publication.
func nextModel(t testing.TB, s *Store) (from, to []byte) {
	t.Helper()
	from, err := os.ReadFile(filepath.Join(s.dir, "v000001", ModelName))
	if err != nil {
		t.Fatal(err)
	}
	to = bytes.Clone(from)
	to[len(to)-4] ^= 1
	return from, to
}

// publishWith is publishFiles with an error instead of a failed test, and in larger pieces.
func publishWith(s *Store, d Description, fill func(*Draft) error) error {
	draft, err := s.Begin(context.Background(), d)
	if err != nil {
		return err
	}
	if err := fill(draft); err != nil {
		return errors.Join(err, draft.Abort())
	}
	_, err = draft.Commit(context.Background())
	return err
}

var filesActs = []filesAct{
	{name: "full", act: func(t testing.TB, s *Store) error {
		_, to := nextModel(t, s)
		return publishWith(s, Description{Version: 2, Lease: 7, Kind: KindFull}, func(d *Draft) error {
			err := d.Add(context.Background(), ModelName, bytes.NewReader(to))
			if err != nil {
				return err
			}
			return d.Add(context.Background(), "optimizer.pt", strings.NewReader("state"))
		})
	}},
	{name: "none", act: func(t testing.TB, s *Store) error {
		return publishWith(s, Description{Version: 2, Lease: 7, Kind: KindNone}, func(*Draft) error { return nil })
	}},
	{name: "link", act: func(t testing.TB, s *Store) error {
		return publishWith(s, Description{Version: 2, Lease: 7, Kind: KindFull}, func(d *Draft) error { return d.AddVersion(context.Background(), 1) })
	}},
	{name: "delta", act: func(t testing.TB, s *Store) error {
		from, to := nextModel(t, s)
		content, _ := makeTestDelta(t, memory{ModelName: from}, memory{ModelName: to}, XOR)
		return publishWith(s, Description{Version: 2, Lease: 7, Kind: KindDelta, BaseVersion: 1, Encoding: XOR}, func(d *Draft) error {
			return d.Add(context.Background(), DeltaName, bytes.NewReader(content))
		})
	}},
	{name: "diff", derived: true, act: func(t testing.TB, s *Store) error {
		_, err := s.Diff(context.Background(), 0, 1, Overwrite)
		return err
	}},
	{name: "cast", derived: true, act: func(t testing.TB, s *Store) error {
		_, err := s.Cast(context.Background(), 1, Cast{DType: F8E4M3, Scale: ScaleTensor})
		return err
	}},
}

// alone leaves what one goroutine does for long to the tests without the race detector.
func alone(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long under the race detector, which has nothing to find in one goroutine")
	}
}

// After a fault at any operation of the disk, what was to be published is there whole or
// not at all, the versions before are untouched, nothing is left behind after Open, and
// publishing again works.
func TestFilesUnderFaults(t *testing.T) {
	alone(t)
	for _, act := range filesActs {
		t.Run(act.name, func(t *testing.T) {
			// With the syncs of Always among the operations.
			strike(t, Options{Always: true}, nothing, func(s *Store) error { return act.act(t, s) }, func(t *testing.T, dir string, d *faulty, err error) {
				if err == nil && !strings.HasPrefix(d.struck, "remove ") && !strings.HasPrefix(d.struck, "link ") {
					t.Error("the fault was not reported")
				}
				judgeFiles(t, dir, act, err == nil)
			})
		})
	}
}

// Under Always a loss of power is a death like any other.
func TestFilesUnderPowerLoss(t *testing.T) {
	alone(t)
	for i, act := range filesActs {
		if act.name == "none" || act.name == "cast" {
			continue // as full and diff, with fewer files
		}
		keepNames := i%2 == 0 // either loss takes what was written; names alone are the rarer
		strike(t, Options{Always: true}, nothing, func(s *Store) error { return act.act(t, s) }, func(t *testing.T, dir string, d *faulty, err error) {
			d.losePower(t, keepNames)
			judgeFiles(t, dir, act, err == nil)
		})
	}
}

// judgeFiles opens the directory anew and checks all that can be read.
func judgeFiles(t *testing.T, dir string, act filesAct, published bool) {
	t.Helper()
	reader := openTest(t, dir, Options{ReadOnly: true}) // while what was left is still there
	verifyAll(t, reader)
	s := openTest(t, dir, Options{})
	versions := verifyAll(t, s)
	if len(versions) < 2 || versions[0] != 0 || versions[1] != 1 {
		t.Fatalf("versions %v, want 0 and 1", versions)
	}
	expect(t, s, publication(0, 1))
	expect(t, s, publication(1, 1))
	if published && !act.derived && !slices.Contains(versions, 2) {
		t.Fatal("published, and not there")
	}
	onlyVersionDirs(t, dir)
	if err := act.act(t, s); err != nil {
		t.Fatalf("again: %v", err)
	}
	verifyAll(t, s)
	onlyVersionDirs(t, dir)
}

// verifyAll verifies every version that a reader sees, and all that was derived from it.
func verifyAll(t testing.TB, s *Store) []loop.Version {
	t.Helper()
	versions, err := s.Versions()
	if err != nil {
		t.Fatal(err)
	}
	for _, v := range versions {
		if err := s.Verify(context.Background(), v); err != nil {
			t.Fatalf("a reader sees version %d, which is not whole: %v", v, err)
		}
	}
	return versions
}

func onlyVersionDirs(t testing.TB, dir string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		if _, ok := parseVersion(e.Name()); !ok {
			t.Errorf("left behind: %s", e.Name())
		}
	}
}

// While versions are published and pruned, readers see each whole or not at all.
func TestReadersMeanwhile(t *testing.T) {
	dir := scratch(t)
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(0, 1))
	done := make(chan struct{})
	failed := make(chan error, 2)
	for range 2 {
		go func() {
			reader, err := Open(dir, Options{ReadOnly: true})
			for err == nil {
				select {
				case <-done:
					failed <- nil
					return
				default:
				}
				v := reader.Newest()
				if err = reader.Verify(context.Background(), v); errors.Is(err, ErrNotFound) {
					err = nil // pruned meanwhile
				}
				if err == nil {
					err = readSome(reader, v)
				}
			}
			failed <- err
		}()
	}
	for v := loop.Version(1); v < 60; v++ {
		if err := s.Publish(t.Context(), publication(v, 1)); err != nil {
			t.Fatal(err)
		}
		if _, err := s.Diff(t.Context(), v-1, v, XOR); err != nil {
			t.Fatal(err)
		}
		if err := s.Prune(v); err != nil {
			t.Fatal(err)
		}
	}
	close(done)
	for range 2 {
		if err := <-failed; err != nil {
			t.Error(err)
		}
	}
}

// readSome reads a version's file to its end, as the server does.
func readSome(s *Store, v loop.Version) error {
	content, size, err := s.OpenFile(context.Background(), v, ModelName, 8)
	if errors.Is(err, ErrNotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	n, err := io.Copy(io.Discard, content)
	if err == nil && n != size-8 {
		err = fmt.Errorf("%d bytes of %d from byte 8", n, size)
	}
	return errors.Join(err, content.Close())
}
