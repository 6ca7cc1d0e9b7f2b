package weights

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// verifyDamaged replaces a file of version 1 and wants the damage noticed, under
// the file's name.
func verifyDamaged(t *testing.T, s *Store, path string, content []byte, what string) {
	t.Helper()
	if err := os.WriteFile(path, content, 0o644); err != nil {
		t.Fatal(err)
	}
	err := s.Verify(t.Context(), 1)
	if corrupt := new(CorruptError); !errors.As(err, &corrupt) || corrupt.Path != path || corrupt.Expected == "" || corrupt.Found == "" {
		t.Fatalf("%s: Verify says %v, want a CorruptError of that file", what, err)
	}
}

// Every flipped byte and every truncation of every file is noticed.
func TestDamage(t *testing.T) {
	alone(t)
	dir := scratch(t)
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(1, 1))
	for _, name := range []string{ModelName, OptimizerName, ManifestName} {
		path := filepath.Join(dir, "v000001", name)
		good, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		bad := append([]byte(nil), good...)
		for i := range bad {
			bad[i] ^= 1 << (i % 8)
			verifyDamaged(t, s, path, bad, fmt.Sprintf("%s: byte %d flipped", name, i))
			bad[i] = good[i]
			verifyDamaged(t, s, path, good[:i], fmt.Sprintf("%s: cut to %d bytes", name, i))
		}
		verifyDamaged(t, s, path, append(bad, 0), name+": a byte more")
		if err := os.WriteFile(path, good, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	expect(t, s, publication(1, 1))
}

// A flipped byte anywhere in a version of a real size is noticed.
func TestDamageOfLargeVersion(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	if err := s.Publish(t.Context(), largePublication(1)); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "v000001", ModelName)
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := 0; i < len(content); i += len(content)/40 + 1 {
		content[i]++
		verifyDamaged(t, s, path, content, fmt.Sprintf("byte %d of %d", i, len(content)))
		content[i]--
	}
}

func TestMissingFile(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(1, 1))
	path := filepath.Join(dir, "v000001", OptimizerName)
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Model(t.Context(), 1); err != nil {
		t.Errorf("the other file: %v", err)
	}
	_, err := s.Optimizer(t.Context(), 1)
	if corrupt := new(CorruptError); !errors.As(err, &corrupt) || !strings.Contains(err.Error(), path) || corrupt.Found != "none" {
		t.Errorf("Optimizer: %v", err)
	}
}

// A damaged version is not repaired by publishing it again: somebody has to look.
func TestPublishOverDamagedManifest(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(1, 1))
	path := filepath.Join(dir, "v000001", ManifestName)
	if err := os.WriteFile(path, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, ok, err := s.Committed(1); ok || !errors.As(err, new(*CorruptError)) {
		t.Errorf("Committed: %v, %v, want a CorruptError", ok, err)
	}
	if err := s.Publish(t.Context(), publication(1, 1)); !errors.As(err, new(*CorruptError)) {
		t.Errorf("Publish: %v, want a CorruptError", err)
	}
}

// Whoever wrote a manifest: what it says must be what this program reads.
func TestForeignManifests(t *testing.T) {
	file := func(name string) File { return File{Name: name} }
	both := []File{file(ModelName), file(OptimizerName)}
	tests := []struct {
		manifest Manifest
		want     string
	}{
		{Manifest{Version: 2, Kind: KindFull, Files: both}, "expected version 1, after its directory, found version 2"},
		{Manifest{Version: 1, Kind: KindDelta, Encoding: XOR, Files: both}, `found kind "delta"`},
		{Manifest{Version: 1, Kind: KindFull, Files: both[1:]}, "a file of model tensors"},
		{Manifest{Version: 1, Kind: KindNone, Files: both}, "no files of a version without weights"},
		{Manifest{Version: 1, Kind: KindFull, Files: []File{both[0], both[0]}}, "each file once"},
		{Manifest{Version: 1, Kind: KindFull, Files: []File{{Name: ModelName, Size: -1}}}, "with its size"},
		{Manifest{Version: 1, Kind: KindFull, Files: []File{both[0], file("../a")}}, "without separators"},
		{Manifest{Version: 1, Kind: KindFull, Files: []File{both[0], file(ManifestName)}}, "which the store needs itself"},
		{Manifest{Version: 1, Kind: KindFull, Files: both, Tensors: []TensorInfo{{Name: "a", File: "b"}}}, `"a" in "b"`},
	}
	for _, test := range tests {
		_, err := parseManifest(test.manifest.append(nil), 1, "path")
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%+v: %v, want %q", test.manifest, err, test.want)
		}
	}
	if _, err := parseManifest((&Manifest{Version: 1, Kind: KindFull, Files: both}).append(nil), 1, "path"); err != nil {
		t.Error(err)
	}
}

// The tensors of a file are those of the manifest, even where both hashes hold.
func TestFileAgainstManifest(t *testing.T) {
	entries := []Entry{{Name: "a", DType: F32, Shape: []int{2}}}
	raw, err := AppendHeader(nil, entries)
	if err != nil {
		t.Fatal(err)
	}
	raw = appendLittle(raw, []float32{1, 2})
	words := make([]float32, (len(raw)+3)/4)
	copy(bytesOf(words), raw)
	info := TensorInfo{Name: "a", DType: F32, Shape: []int{2}}
	if _, err := decode(words, int64(len(raw)), []TensorInfo{info}); err != nil {
		t.Fatal(err)
	}
	for _, want := range [][]TensorInfo{
		nil,
		{info, info},
		{{Name: "b", DType: F32, Shape: []int{2}}},
		{{Name: "a", DType: "I32", Shape: []int{2}}},
		{{Name: "a", DType: F32, Shape: []int{2, 1}}},
	} {
		if _, err := decode(words, int64(len(raw)), want); err == nil {
			t.Errorf("a manifest with %v was taken for [%v]", want, info)
		}
	}
}

// Other types than floats can be described, and are not served.
func TestOtherTypesAreNotServed(t *testing.T) {
	raw, err := AppendHeader(nil, []Entry{{Name: "a", DType: "I32", Shape: []int{1}}})
	if err != nil {
		t.Fatal(err)
	}
	raw = append(raw, 1, 2, 3, 4)
	words := make([]float32, (len(raw)+3)/4)
	copy(bytesOf(words), raw)
	_, err = decode(words, int64(len(raw)), []TensorInfo{{Name: "a", DType: "I32", Shape: []int{1}}})
	if err == nil || !strings.Contains(err.Error(), "is I32; this engine reads F32, BF16 and F16") {
		t.Errorf("got %v", err)
	}
}

// meddling is a disk on which something happens just before a file is opened.
type meddling struct {
	system
	before func(path string)
}

func (m meddling) Open(path string) (input, error) {
	m.before(path)
	return m.system.Open(path)
}

// A version that is pruned under a reader is not found; it is not corrupt.
func TestPruneBetweenManifestAndFile(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(1, 1))
	expectPublish(t, s, publication(2, 1))
	reader := openTest(t, dir, Options{ReadOnly: true})
	reader.disk = meddling{before: func(path string) {
		if filepath.Base(path) == ModelName {
			if err := s.Prune(2); err != nil {
				t.Error(err)
			}
		}
	}}
	if _, err := reader.Model(t.Context(), 1); !errors.Is(err, ErrNotFound) {
		t.Errorf("Model: %v, want ErrNotFound", err)
	}
	expect(t, reader, publication(2, 1))
}

// A list made while every listed version is replaced by a newer one has the newer one.
func TestPruneWhileListing(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(0, 1))
	reader := openTest(t, dir, Options{ReadOnly: true})
	next := loop.Version(1)
	reader.disk = meddling{before: func(string) {
		if next > 3 {
			return
		}
		expectPublish(t, s, publication(next, 1))
		if err := s.Prune(next); err != nil {
			t.Error(err)
		}
		next++
	}}
	if versions, err := reader.Versions(); err != nil || len(versions) != 1 || versions[0] != 3 {
		t.Errorf("Versions() = %v, %v, want [3]", versions, err)
	}
}

// A version that another process publishes at the last moment is kept.
func TestPublishMeetsAnother(t *testing.T) {
	dir := t.TempDir()
	s, other := openTest(t, dir, Options{}), openTest(t, dir, Options{})
	other.temporaries.Store(1000)
	s.disk = renaming{publish: func() { expectPublish(t, other, publication(1, 5)) }}
	if err := s.Publish(t.Context(), publication(1, 6)); !errors.Is(err, ErrConflict) {
		t.Errorf("Publish: %v, want ErrConflict", err)
	}
	expect(t, other, publication(1, 5))
}

// renaming is a disk on which another process publishes just before the first rename.
type renaming struct {
	system
	publish func()
}

func (r renaming) Rename(from, to string) error {
	r.publish()
	return r.system.Rename(from, to)
}

// Readers of any version, a publisher and a pruner at once: what is read is whole.
func TestConcurrentReaders(t *testing.T) {
	const versions = 40
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(0, 0))
	var readers sync.WaitGroup
	done := make(chan struct{})
	for range 3 {
		readers.Go(func() {
			for {
				select {
				case <-done:
					return
				default:
				}
				found, err := s.Versions()
				if err != nil || len(found) == 0 {
					t.Errorf("Versions() = %v, %v", found, err)
					return
				}
				for _, v := range found {
					model, err := s.Model(t.Context(), v)
					if errors.Is(err, ErrNotFound) {
						continue
					}
					if err != nil {
						t.Error(err)
						return
					}
					want := publication(v, loop.LeaseID(v)).Model
					if len(model) != len(want) || model[0].Data[20] != want[0].Data[20] {
						t.Errorf("version %d read as another", v)
						return
					}
				}
			}
		})
	}
	for v := loop.Version(1); v < versions; v++ {
		if err := s.Publish(t.Context(), publication(v, loop.LeaseID(v))); err != nil {
			t.Error(err)
		}
		if err := s.Prune(v - 2); err != nil {
			t.Error(err)
		}
	}
	close(done)
	readers.Wait()
}
