package weights

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/jetstream"
)

// dying is an object store whose client dies at one operation: before it, or after.
type dying struct {
	Objects
	left  int
	after bool
	dead  bool
}

func (d *dying) do(whole func() error) error {
	if d.dead {
		return errKilled
	}
	if d.left--; d.left != -1 {
		return whole()
	}
	d.dead = true
	if d.after {
		_ = whole()
	}
	return errKilled
}

func (d *dying) Put(ctx context.Context, name string, src io.Reader) (n int64, err error) {
	err = d.do(func() (err error) { n, err = d.Objects.Put(ctx, name, src); return err })
	return n, err
}

func (d *dying) Delete(ctx context.Context, name string) error {
	return d.do(func() error { return d.Objects.Delete(ctx, name) })
}

// modelVersion is a small model that differs from version to version in one element.
func modelVersion(t testing.TB, v loop.Version) []byte {
	values := make([]float32, 400)
	rng := rand.New(rand.NewPCG(1, 1))
	for i := range values {
		values[i] = rng.Float32()
	}
	for i := range int(v) {
		values[i] = 2
	}
	return smallModel(t, values...)
}

// trainedStore has versions 0 to n-1, of which 3 has no weights.
func trainedStore(t testing.TB, n loop.Version) *Store {
	s := openTest(t, t.TempDir(), Options{})
	for v := range n {
		d, files := Description{Version: v, Lease: loop.LeaseID(v), Kind: KindFull}, []add{{ModelName, modelVersion(t, v)}, {"optimizer.bin", []byte{byte(v)}}}
		if v == 3 {
			d.Kind, files = KindNone, nil
		}
		if _, err := publishFiles(t, s, d, files...); err != nil {
			t.Fatal(err)
		}
	}
	return s
}

func expectPulled(t testing.TB, r *Remote, v loop.Version) *Store {
	t.Helper()
	s := openTest(t, t.TempDir(), Options{})
	if err := r.Pull(t.Context(), s, v); err != nil {
		t.Fatal(err)
	}
	verifyAll(t, s)
	content, err := os.ReadFile(filepath.Join(s.directory(v), ModelName))
	if err != nil || !bytes.Equal(content, modelVersion(t, v)) {
		t.Fatalf("version %d came over as another: %v", v, err)
	}
	if lease, ok, err := s.Committed(v); lease != loop.LeaseID(v) || !ok || err != nil {
		t.Fatalf("version %d: lease %d, %v, %v", v, lease, ok, err)
	}
	return s
}

// kinds says which versions are there and as what: = full, + delta, - none.
func kinds(t testing.TB, r *Remote) string {
	t.Helper()
	versions, err := r.Versions(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	var text []string
	for _, v := range versions {
		m, err := r.Manifest(t.Context(), v)
		if err != nil {
			t.Fatal(err)
		}
		text = append(text, fmt.Sprintf("%s%d", map[string]string{KindFull: "=", KindDelta: "+", KindNone: "-"}[m.Kind], v))
	}
	return strings.Join(text, " ")
}

func testRemote(t *testing.T, objects Objects) {
	s := trainedStore(t, 9)
	r := &Remote{Objects: objects, Prefix: "weights/", FullEvery: 3, Encoding: XOR}
	for v := range loop.Version(9) {
		for range 2 { // pushing again changes nothing
			if err := r.Push(t.Context(), s, v); err != nil {
				t.Fatal(err)
			}
		}
	}
	if got, want := kinds(t, r), "=0 +1 +2 -3 =4 +5 +6 =7 +8"; got != want {
		t.Fatalf("pushed %s, want %s", got, want)
	}
	late := expectPulled(t, r, 6)
	if versions, err := late.Versions(); err != nil || !slices.Equal(versions, []loop.Version{4, 5, 6}) {
		t.Errorf("a late joiner took %v, %v, want the newest full version and the deltas", versions, err)
	}
	if err := r.Pull(t.Context(), late, 8); err != nil {
		t.Error(err)
	}
	if err := r.Pull(t.Context(), late, 3); err != nil {
		t.Error(err)
	}
	if err := r.Pull(t.Context(), late, 30); !errors.Is(err, ErrNotFound) {
		t.Errorf("of a version that is not there: %v", err)
	}
	if err := r.Prune(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	if got, want := kinds(t, r), "=4 +5 +6 =7 +8"; got != want {
		t.Fatalf("after pruning below 6: %s, want %s", got, want)
	}
	expectPulled(t, r, 6)
	if err := r.Prune(t.Context(), 100); err != nil {
		t.Fatal(err)
	}
	if got, want := kinds(t, r), "=7 +8"; got != want {
		t.Fatalf("after pruning all: %s, want %s", got, want)
	}
	expectPulled(t, r, 8)
	r.Optimizer, r.Prefix = true, "all/"
	if err := r.Push(t.Context(), s, 8); err != nil {
		t.Fatal(err)
	}
	whole := expectPulled(t, r, 8)
	if state, err := os.ReadFile(filepath.Join(whole.directory(8), "optimizer.bin")); err != nil || !bytes.Equal(state, []byte{8}) {
		t.Errorf("the optimizer's state: %v, %v", state, err)
	}
}

func openDirObjects(t testing.TB) *dirObjects {
	t.Helper()
	objects, err := openDirectory(filepath.Join(t.TempDir(), "objects"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := objects.Close(); err != nil {
			t.Error(err)
		}
	})
	return objects
}

func TestRemoteInDirectory(t *testing.T) { testRemote(t, openDirObjects(t)) }

func TestRemoteInJetStream(t *testing.T) {
	s, err := jetstream.Open(t.Context(), jetstream.Options{Dir: t.TempDir(), Run: "test"})
	if err != nil {
		t.Fatal(err)
	}
	defer func() {
		if err := s.Close(); err != nil {
			t.Error(err)
		}
	}()
	objects, err := s.Objects(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	testRemote(t, objects)
}

// A pusher or pruner dies at any operation: a reader sees each version whole or not at
// all, and the next one goes on.
func TestRemoteUnderFaults(t *testing.T) {
	alone(t)
	s := trainedStore(t, 3)
	for _, after := range []bool{false, true} {
		for operation := 0; ; operation++ {
			objects := openDirObjects(t)
			d := &dying{Objects: objects, left: operation, after: after}
			r := &Remote{Objects: d, FullEvery: 2, Optimizer: true}
			act := func() error {
				for v := range loop.Version(3) {
					if err := r.Push(t.Context(), s, v); err != nil {
						return err
					}
				}
				return r.Prune(t.Context(), 2)
			}
			err := act()
			if !d.dead {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if !errors.Is(err, errKilled) {
				t.Fatalf("operation %d: %v", operation, err)
			}
			r.Objects = objects
			versions, err := r.Versions(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			for _, v := range versions {
				expectPulled(t, r, v)
			}
			if err := act(); err != nil {
				t.Fatalf("operation %d: again: %v", operation, err)
			}
			if got := kinds(t, r); got != "=2" {
				t.Fatalf("operation %d: %s", operation, got)
			}
			names, err := objects.List(t.Context(), "")
			if err != nil || len(names) != 3 {
				t.Fatalf("operation %d: left behind: %v, %v", operation, names, err)
			}
		}
	}
}

func TestRemoteRefuses(t *testing.T) {
	s := trainedStore(t, 2)
	objects := openDirObjects(t)
	r := &Remote{Objects: objects}
	if err := r.Push(t.Context(), s, 1); err != nil {
		t.Fatal(err)
	}
	other := openTest(t, t.TempDir(), Options{})
	if _, err := publishFiles(t, other, Description{Version: 1, Lease: 77, Kind: KindFull}, add{ModelName, modelVersion(t, 1)}); err != nil {
		t.Fatal(err)
	}
	if err := r.Push(t.Context(), other, 1); !errors.Is(err, ErrConflict) {
		t.Errorf("another batch's version: %v", err)
	}
	damage(t, filepath.Join(s.directory(0), ModelName))
	if err := r.Push(t.Context(), s, 0); !errors.As(err, new(*CorruptError)) {
		t.Errorf("a damaged version: %v", err)
	}
	if versions, err := r.Versions(t.Context()); err != nil || !slices.Equal(versions, []loop.Version{1}) {
		t.Errorf("it was pushed: %v, %v", versions, err)
	}
	damage(t, filepath.Join(objects.root.Name(), "v000001", ModelName))
	mirror := openTest(t, t.TempDir(), Options{})
	if err := r.Pull(t.Context(), mirror, 1); !errors.As(err, new(*RefusedError)) {
		t.Errorf("a damaged object: %v", err)
	}
	onlyVersions(t, mirror.dir)
	for _, name := range []string{"../a", "/a", "a/../b", ""} {
		if _, err := objects.Put(t.Context(), name, strings.NewReader("")); err == nil {
			t.Errorf("an object %q was put", name)
		}
	}
	if err := objects.Delete(t.Context(), "v000009/absent"); err != nil {
		t.Errorf("deleting what is not there: %v", err)
	}
}
