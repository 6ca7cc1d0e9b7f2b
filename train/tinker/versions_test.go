package tinker

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

func versions(t *testing.T, dir string, o VersionsOptions) *Versions {
	t.Helper()
	v, err := OpenVersions(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = v.Close() }) // it returns no error
	return v
}

// fill records versions from to until, with the version as the lease.
func fill(t *testing.T, v *Versions, from, until loop.Version) {
	t.Helper()
	for version := from; version < until; version++ {
		if err := v.record(version, loop.LeaseID(version), fmt.Sprintf("tinker://m/sampler_weights/%d", version), fmt.Sprintf("tinker://m/weights/%d", version)); err != nil {
			t.Fatal(err)
		}
	}
}

// TestVersions: what was recorded is there, in this process and the next; the same again is fine, and nothing else is.
func TestVersions(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "a", "b")
	v := versions(t, dir, VersionsOptions{})
	if v.Newest() != loop.NoVersion {
		t.Errorf("newest of none is %d", v.Newest())
	}
	fill(t, v, 0, 3)
	fill(t, v, 1, 2)
	for _, again := range []*Versions{v, versions(t, dir, VersionsOptions{})} {
		lease, there, err := again.Committed(2)
		path, pathErr := again.SamplerPath(2)
		state, stateErr := again.statePath(2)
		if lease != 2 || !there || errors.Join(err, pathErr, stateErr) != nil || path != "tinker://m/sampler_weights/2" || state != "tinker://m/weights/2" || again.Newest() != 2 {
			t.Errorf("version 2 is of lease %d, %v, at %s and %s, newest %d: %v", lease, there, path, state, again.Newest(), errors.Join(err, pathErr, stateErr))
		}
		if _, there, err := again.Committed(3); there || err != nil {
			t.Errorf("version 3 is there: %v, %v", there, err)
		}
		if _, err := again.SamplerPath(3); !errors.Is(err, ErrNotFound) || !strings.Contains(err.Error(), "version 3") {
			t.Error(err)
		}
	}
	for _, other := range []record{{Lease: 7, Sampler: "tinker://m/sampler_weights/2", State: "tinker://m/weights/2"}, {Lease: 2, Sampler: "tinker://x", State: "tinker://m/weights/2"}, {Lease: 2, Sampler: "tinker://m/sampler_weights/2", State: "tinker://x"}} {
		if err := v.record(2, other.Lease, other.Sampler, other.State); !errors.Is(err, ErrConflict) {
			t.Errorf("%+v: %v", other, err)
		}
	}
	text, err := os.ReadFile(filepath.Join(dir, "v000002.json"))
	if want := `{"format":1,"version":2,"lease":2,"sampler":"tinker://m/sampler_weights/2","state":"tinker://m/weights/2"}` + "\n"; err != nil || string(text) != want {
		t.Errorf("%s, want %s", text, want)
	}
}

// TestWeightsLieElsewhere: nothing is published or read here.
func TestWeightsLieElsewhere(t *testing.T) {
	v := versions(t, t.TempDir(), VersionsOptions{})
	fill(t, v, 0, 1)
	_, model := v.Model(t.Context(), 0)
	_, optimizer := v.Optimizer(t.Context(), 0)
	for _, err := range []error{v.Publish(t.Context(), port.Publication{Version: 4}), model, optimizer} {
		if !errors.Is(err, ErrElsewhere) {
			t.Errorf("%v, want %v", err, ErrElsewhere)
		}
	}
}

// TestHalfWritten: what a killed process has left half-written is not a version and goes; a file that is damaged is an
// error that names it, whatever is asked, and stands in nobody else's way.
func TestHalfWritten(t *testing.T) {
	dir := t.TempDir()
	v := versions(t, dir, VersionsOptions{})
	fill(t, v, 0, 3)
	half := filepath.Join(dir, "v000003.json.tmp")
	if err := os.WriteFile(half, []byte(`{"format":1,`), 0o644); err != nil {
		t.Fatal(err)
	}
	v = versions(t, dir, VersionsOptions{})
	if _, err := os.Stat(half); !errors.Is(err, os.ErrNotExist) || v.Newest() != 2 {
		t.Errorf("%v, newest version %d", err, v.Newest())
	}
	whole, err := os.ReadFile(filepath.Join(dir, "v000002.json"))
	if err != nil {
		t.Fatal(err)
	}
	damaged := []string{"", "null", "{}", string(whole) + "x", strings.Replace(string(whole), `"format":1`, `"format":2`, 1), strings.Replace(string(whole), `"version":2`, `"version":1`, 1),
		strings.Replace(string(whole), "state", "place", 1), strings.Replace(string(whole), "tinker://m/weights/2", "", 1)}
	for cut := 1; cut < len(whole)-1; cut += 7 {
		damaged = append(damaged, string(whole[:cut]))
	}
	for _, text := range damaged {
		if err := os.WriteFile(filepath.Join(dir, "v000002.json"), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
		_, there, err := v.Committed(2)
		_, pathErr := v.SamplerPath(2)
		for _, err := range []error{err, pathErr, v.record(2, 2, "tinker://m/sampler_weights/2", "tinker://m/weights/2")} {
			if err == nil || there || !strings.Contains(err.Error(), "v000002.json is damaged") || !strings.Contains(err.Error(), "delete it") || errors.Is(err, ErrNotFound) {
				t.Errorf("%q: %v", text, err)
			}
		}
		if v.Newest() != 1 {
			t.Errorf("%q: newest version %d", text, v.Newest())
		}
	}
}

// TestFence: a writer that is kept out leaves nothing behind.
func TestFence(t *testing.T) {
	deposed := errors.New("another has taken over")
	dir := t.TempDir()
	v := versions(t, dir, VersionsOptions{Fence: func() error { return deposed }})
	if err := v.record(0, 0, "tinker://a", "tinker://b"); !errors.Is(err, deposed) {
		t.Error(err)
	}
	if names, err := v.names(); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
}

// grave notes what was deleted at the service.
type grave struct {
	mu      sync.Mutex
	deleted []string
	fail    func(path string) error
}

func (g *grave) delete(_ context.Context, path string) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if g.fail != nil {
		if err := g.fail(path); err != nil {
			return err
		}
	}
	g.deleted = append(g.deleted, path)
	return nil
}

// left are the files in a directory once deletions have ended.
func left(t *testing.T, v *Versions) []string {
	t.Helper()
	v.deletions.Wait()
	names, err := v.names()
	if err != nil {
		t.Fatal(err)
	}
	return names
}

// TestPrune: older versions are not there at once; the service is asked to delete what it has, and only then is a
// file gone. What it fails to delete is tried again, and the rest is not held up.
func TestPrune(t *testing.T) {
	g := &grave{fail: func(path string) error {
		if strings.HasSuffix(path, "weights/1") {
			return errors.New("busy")
		}
		return nil
	}}
	var mu sync.Mutex
	var said []string
	v := versions(t, t.TempDir(), VersionsOptions{Delete: g.delete, Logf: func(format string, args ...any) {
		mu.Lock()
		defer mu.Unlock()
		said = append(said, fmt.Sprintf(format, args...))
	}})
	fill(t, v, 0, 5)
	if err := v.Prune(3); err != nil {
		t.Fatal(err)
	}
	if _, there, err := v.Committed(2); there || err != nil {
		t.Errorf("version 2 is there: %v, %v", there, err)
	}
	if got := left(t, v); !slices.Equal(got, []string{"v000001.json", "v000003.json", "v000004.json"}) {
		t.Errorf("left are %v", got)
	}
	if len(said) != 1 || !strings.Contains(said[0], "busy") || !strings.Contains(said[0], "again") {
		t.Errorf("said: %q", said)
	}
	g.fail = nil
	if err := v.Prune(4); err != nil {
		t.Fatal(err)
	}
	if got := left(t, v); !slices.Equal(got, []string{"v000004.json"}) || v.Newest() != 4 {
		t.Errorf("left are %v", got)
	}
	slices.Sort(g.deleted)
	if g.deleted = slices.Compact(g.deleted); len(g.deleted) != 8 || slices.ContainsFunc(g.deleted, func(path string) bool { return strings.HasSuffix(path, "/4") }) {
		t.Errorf("deleted are %v", g.deleted)
	}
}

// TestPruneBlocksNobody: a service that does not answer holds up neither Prune nor what is asked of versions, and
// Close ends the wait.
func TestPruneBlocksNobody(t *testing.T) {
	asked := make(chan struct{}, 1)
	v := versions(t, t.TempDir(), VersionsOptions{Delete: func(ctx context.Context, _ string) error {
		select {
		case asked <- struct{}{}:
		default:
		}
		<-ctx.Done()
		return ctx.Err()
	}, Logf: func(format string, args ...any) { t.Errorf(format, args...) }})
	fill(t, v, 0, 4)
	for keepFrom := range loop.Version(3) {
		if err := v.Prune(keepFrom + 1); err != nil {
			t.Fatal(err)
		}
	}
	<-asked
	if _, err := v.SamplerPath(3); err != nil || v.Newest() != 3 {
		t.Errorf("newest version %d, %v", v.Newest(), err)
	}
	if err := v.Close(); err != nil {
		t.Fatal(err)
	}
	if got := left(t, v); len(got) != 4 {
		t.Errorf("left are %v", got)
	}
	if err := v.Prune(4); err != nil || len(left(t, v)) != 4 {
		t.Errorf("after Close: %v", err)
	}
}

// TestPruneWhereNothingIsDeleted: that is said once, and the files go all the same.
func TestPruneWhereNothingIsDeleted(t *testing.T) {
	said := 0
	v := versions(t, t.TempDir(), VersionsOptions{Delete: func(context.Context, string) error { return fmt.Errorf("no such call: %w", errors.ErrUnsupported) },
		Logf: func(string, ...any) { said++ }})
	fill(t, v, 0, 6)
	for keepFrom := range loop.Version(4) {
		if err := v.Prune(keepFrom); err != nil {
			t.Fatal(err)
		}
		v.deletions.Wait()
	}
	if got := left(t, v); len(got) != 3 || said != 1 {
		t.Errorf("left are %v, said %d times", got, said)
	}
	v = versions(t, t.TempDir(), VersionsOptions{})
	fill(t, v, 0, 3)
	if err := v.Prune(2); err != nil || len(left(t, v)) != 1 {
		t.Errorf("%v without a Delete", left(t, v))
	}
}

// TestSetAside: a version that was set aside is not there, another can take its place, and what the service has of both
// goes with the versions of that time.
func TestSetAside(t *testing.T) {
	g := &grave{}
	v := versions(t, t.TempDir(), VersionsOptions{Delete: g.delete})
	fill(t, v, 0, 3)
	for n := range 2 {
		if err := v.SetAside(2); err != nil {
			t.Fatal(err)
		}
		if _, there, err := v.Committed(2); there || err != nil || v.Newest() != 1 {
			t.Errorf("version 2 is there: %v, %v", there, err)
		}
		if err := v.record(2, 50+loop.LeaseID(n), fmt.Sprintf("tinker://s%d", n), fmt.Sprintf("tinker://w%d", n)); err != nil {
			t.Fatal(err)
		}
	}
	if err := v.SetAside(9); err != nil {
		t.Errorf("a version that is not there: %v", err)
	}
	if err := v.Prune(2); err != nil || len(left(t, v)) != 3 {
		t.Errorf("left are %v, %v", left(t, v), err)
	}
	if err := v.Prune(3); err != nil || len(left(t, v)) != 0 || len(g.deleted) != 10 {
		t.Errorf("left are %v, deleted %v, %v", left(t, v), g.deleted, err)
	}
}

// TestSampleFrom: a sampler that was saved anew takes the place of the one before, survives, and both are deleted.
func TestSampleFrom(t *testing.T) {
	g, dir := &grave{}, t.TempDir()
	v := versions(t, dir, VersionsOptions{Delete: g.delete})
	fill(t, v, 0, 2)
	if err := v.sampleFrom(0, "tinker://n/sampler_weights/0"); err != nil {
		t.Fatal(err)
	}
	if path, err := versions(t, dir, VersionsOptions{}).SamplerPath(0); err != nil || path != "tinker://n/sampler_weights/0" {
		t.Errorf("%s, %v", path, err)
	}
	if err := v.sampleFrom(5, "tinker://x"); !errors.Is(err, ErrNotFound) {
		t.Error(err)
	}
	if err := v.Prune(1); err != nil || len(left(t, v)) != 1 {
		t.Error(err)
	}
	if slices.Sort(g.deleted); !slices.Equal(g.deleted, []string{"tinker://m/sampler_weights/0", "tinker://m/weights/0", "tinker://n/sampler_weights/0"}) {
		t.Errorf("deleted are %v", g.deleted)
	}
}

// TestReadOnly: who only looks makes no directory and deletes nothing of a writer's.
func TestReadOnly(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "run")
	if v := versions(t, dir, VersionsOptions{ReadOnly: true}); v.Newest() != loop.NoVersion {
		t.Errorf("a directory that is not there has version %d", v.Newest())
	}
	if _, err := os.Stat(dir); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("looking has made the directory: %v", err)
	}
	fill(t, versions(t, dir, VersionsOptions{}), 0, 3)
	half := filepath.Join(dir, fileName(3)+temporarySuffix)
	if err := os.WriteFile(half, nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if v := versions(t, dir, VersionsOptions{ReadOnly: true}); v.Newest() != 2 {
		t.Errorf("the newest version is %d, want 2", v.Newest())
	}
	if _, err := os.Stat(half); err != nil {
		t.Errorf("looking has deleted what a writer is at: %v", err)
	}
}
