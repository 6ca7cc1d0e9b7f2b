package weights

import (
	"context"
	"errors"
	"math"
	"math/rand/v2"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// publication draws a small version; the same version and lease give the same bits.
func publication(version loop.Version, lease loop.LeaseID) port.Publication {
	rng := rand.New(rand.NewPCG(uint64(version), uint64(lease)))
	tensor := func(name string, shape ...int) port.Tensor {
		n := 1
		for _, d := range shape {
			n *= d
		}
		data := make([]float32, n)
		for i := range data {
			data[i] = float32(rng.NormFloat64())
		}
		return port.Tensor{Name: name, Shape: shape, Data: data}
	}
	return port.Publication{
		Version: version, Lease: lease,
		Model:     []port.Tensor{tensor("embedding", 7, 3), tensor("bias", 5), tensor("scale"), tensor("none", 0, 4), tensor("nothing", 4, 0)},
		Optimizer: []port.Tensor{tensor("embedding", 7, 3), tensor("steps")},
	}
}

func openTest(t testing.TB, dir string, options Options) *Store {
	t.Helper()
	s, err := Open(dir, options)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// expect checks that a version is there and is the publication.
func expect(t testing.TB, s *Store, p port.Publication) {
	t.Helper()
	lease, ok, err := s.Committed(p.Version)
	if lease != p.Lease || !ok || err != nil {
		t.Fatalf("Committed(%d) = %d, %v, %v, want %d, true", p.Version, lease, ok, err, p.Lease)
	}
	model, err := s.Model(context.Background(), p.Version)
	if err != nil {
		t.Fatal(err)
	}
	optimizer, err := s.Optimizer(context.Background(), p.Version)
	if err != nil {
		t.Fatal(err)
	}
	sameTensors(t, model, p.Model)
	sameTensors(t, optimizer, p.Optimizer)
}

func sameTensors(t testing.TB, got, want []port.Tensor) {
	t.Helper()
	same := func(a, b port.Tensor) bool {
		return a.Name == b.Name && slices.Equal(a.Shape, b.Shape) && slices.Equal(bits(a.Data), bits(b.Data))
	}
	if !slices.EqualFunc(got, want, same) {
		t.Fatalf("got tensors %v, want %v", got, want)
	}
}

func bits(values []float32) []uint32 {
	b := make([]uint32, len(values))
	for i, v := range values {
		b[i] = math.Float32bits(v)
	}
	return b
}

func TestPublishAndRead(t *testing.T) {
	for _, always := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "run", "weights")
		s := openTest(t, dir, Options{Always: always})
		for v := range loop.Version(3) {
			p := publication(v, loop.LeaseID(10*v))
			if err := s.Publish(t.Context(), p); err != nil {
				t.Fatal(err)
			}
			expect(t, s, p)
		}
		s = openTest(t, dir, Options{ReadOnly: true})
		versions, err := s.Versions()
		if err != nil || !slices.Equal(versions, []loop.Version{0, 1, 2}) {
			t.Fatalf("Versions() = %v, %v", versions, err)
		}
		for v := range loop.Version(3) {
			expect(t, s, publication(v, loop.LeaseID(10*v)))
		}
		entries, err := os.ReadDir(filepath.Join(dir, "v000002"))
		if err != nil || len(entries) != 3 {
			t.Fatalf("files of a version: %v, %v", entries, err)
		}
	}
}

func TestAbsentVersion(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	for _, v := range []loop.Version{-1, 0, 7} {
		if _, ok, err := s.Committed(v); ok || err != nil {
			t.Errorf("Committed(%d) = %v, %v, want neither", v, ok, err)
		}
		if _, err := s.Model(t.Context(), v); !errors.Is(err, ErrNotFound) {
			t.Errorf("Model(%d): %v, want ErrNotFound", v, err)
		}
	}
}

func TestPublishTwice(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	p := publication(4, 9)
	if err := s.Publish(t.Context(), p); err != nil {
		t.Fatal(err)
	}
	if err := s.Publish(t.Context(), publication(4, 9)); err != nil {
		t.Errorf("the same again: %v", err)
	}
	other := publication(4, 9)
	other.Lease = 10
	if err := s.Publish(t.Context(), other); !errors.Is(err, ErrConflict) {
		t.Errorf("another lease: %v, want ErrConflict", err)
	}
	for _, change := range []func(*port.Publication){
		func(p *port.Publication) { p.Model[0].Data[3]++ },
		func(p *port.Publication) { p.Optimizer[1].Data[0]++ },
		func(p *port.Publication) { p.Model[1].Name = "b" },
		func(p *port.Publication) { p.Optimizer = p.Optimizer[:1] },
	} {
		other := publication(4, 9)
		change(&other)
		if err := s.Publish(t.Context(), other); !errors.Is(err, ErrConflict) {
			t.Errorf("other content: %v, want ErrConflict", err)
		}
	}
	expect(t, s, p)
}

func TestRefusedPublications(t *testing.T) {
	nan := float32(math.NaN())
	tests := []struct {
		name   string
		change func(*port.Publication)
		want   string
	}{
		{"NaN", func(p *port.Publication) { p.Model[0].Data[20] = nan }, `model.safetensors: tensor "embedding": value 20 (row-major) is NaN`},
		{"Inf", func(p *port.Publication) { p.Model[2].Data[0] = float32(math.Inf(1)) }, `tensor "scale": value 0 (row-major) is +Inf`},
		{"-Inf", func(p *port.Publication) { p.Optimizer[0].Data[0] = float32(math.Inf(-1)) }, `optimizer.safetensors: tensor "embedding": value 0 (row-major) is -Inf`},
		{"shape", func(p *port.Publication) { p.Model[0].Shape = []int{7, 4} }, "21 values, want the 28 of shape [7 4]"},
		{"negative", func(p *port.Publication) { p.Model[0].Shape = []int{-7, -3} }, "negative dimension"},
		{"overflow", func(p *port.Publication) { p.Model[0].Shape = []int{1 << 40, 1 << 40} }, "more elements"},
		{"twice", func(p *port.Publication) { p.Model[1].Name = "embedding" }, `"embedding" occurs twice`},
		{"empty name", func(p *port.Publication) { p.Model[1].Name = "" }, "cannot be called"},
		{"metadata", func(p *port.Publication) { p.Model[1].Name = metadataName }, "cannot be called"},
		{"encoding", func(p *port.Publication) { p.Model[1].Name = "a\xff" }, "cannot be called"},
		{"no model", func(p *port.Publication) { p.Model = nil }, "no model tensors"},
		{"version", func(p *port.Publication) { p.Version = -1 }, "negative"},
		{"lease", func(p *port.Publication) { p.Lease = -1 }, "negative"},
	}
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	for _, test := range tests {
		p := publication(1, 1)
		test.change(&p)
		if err := s.Publish(t.Context(), p); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
	}
	if names, err := os.ReadDir(dir); err != nil || len(names) != 0 {
		t.Errorf("left behind: %v, %v", names, err)
	}
	expectPublish(t, s, publication(1, 1))
}

// expectPublish publishes and reads back.
func expectPublish(t testing.TB, s *Store, p port.Publication) {
	t.Helper()
	if err := s.Publish(context.Background(), p); err != nil {
		t.Fatal(err)
	}
	expect(t, s, p)
}

func TestPrune(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	if err := s.Prune(5); err != nil {
		t.Fatal(err)
	}
	for v := range loop.Version(6) {
		expectPublish(t, s, publication(v, 1))
	}
	for _, step := range []struct {
		keepFrom loop.Version
		want     []loop.Version
	}{
		{-3, []loop.Version{0, 1, 2, 3, 4, 5}},
		{2, []loop.Version{2, 3, 4, 5}},
		{2, []loop.Version{2, 3, 4, 5}},
		{5, []loop.Version{5}},
		{100, []loop.Version{5}},
	} {
		if err := s.Prune(step.keepFrom); err != nil {
			t.Fatal(err)
		}
		if got, err := s.Versions(); err != nil || !slices.Equal(got, step.want) {
			t.Fatalf("after Prune(%d): %v, %v, want %v", step.keepFrom, got, err, step.want)
		}
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

func TestVersionNames(t *testing.T) {
	for _, v := range []loop.Version{0, 17, 999_999, 1_000_000, math.MaxInt64} {
		if got, ok := parseVersion(versionName(v)); got != v || !ok {
			t.Errorf("parseVersion(%q) = %d, %v", versionName(v), got, ok)
		}
	}
	for _, name := range []string{"", "v", "v17", "v0000017", "v-00001", "x000017", "v00001x", "v000017.old"} {
		if v, ok := parseVersion(name); ok {
			t.Errorf("parseVersion(%q) = %d, want none", name, v)
		}
	}
	s := openTest(t, t.TempDir(), Options{})
	for _, v := range []loop.Version{1_000_000, 999_999} {
		expectPublish(t, s, publication(v, 1))
	}
	if got, _ := s.Versions(); !slices.Equal(got, []loop.Version{999_999, 1_000_000}) {
		t.Errorf("Versions() = %v, want them ascending", got)
	}
}

func TestReadOnly(t *testing.T) {
	dir := t.TempDir()
	if _, err := Open(filepath.Join(dir, "absent"), Options{ReadOnly: true}); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("opening what is not there: %v", err)
	}
	leftover := filepath.Join(dir, temporaryPrefix+"1-v000001")
	if err := os.Mkdir(leftover, 0o755); err != nil {
		t.Fatal(err)
	}
	s := openTest(t, dir, Options{ReadOnly: true})
	if err := s.Publish(t.Context(), publication(0, 0)); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Publish: %v", err)
	}
	if err := s.Prune(3); !errors.Is(err, ErrReadOnly) {
		t.Errorf("Prune: %v", err)
	}
	if _, err := os.Stat(leftover); err != nil {
		t.Errorf("a publish in progress was disturbed: %v", err)
	}
	openTest(t, dir, Options{})
	if _, err := os.Stat(leftover); !errors.Is(err, os.ErrNotExist) {
		t.Errorf("what a killed publish left is still there: %v", err)
	}
}

// A version's directory without a manifest is no version, and not in the way.
func TestDirectoryWithoutManifest(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(1, 1))
	if err := os.Remove(filepath.Join(dir, "v000001", ManifestName)); err != nil {
		t.Fatal(err)
	}
	if versions, err := s.Versions(); err != nil || len(versions) != 0 {
		t.Errorf("Versions() = %v, %v", versions, err)
	}
	expectPublish(t, s, publication(1, 2))
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}

func TestManifestText(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	p := publication(3, 8)
	p.Model[0].Name = "a \"quoted\"\n\x00<π>"
	expectPublish(t, s, p)
	m, err := s.Manifest(3)
	if err != nil {
		t.Fatal(err)
	}
	if m.Version != 3 || m.BaseVersion != loop.NoVersion || m.Kind != KindFull || m.Lease != 8 || len(m.Files) != 2 {
		t.Errorf("manifest %+v", m)
	}
	want := TensorInfo{Name: p.Model[0].Name, DType: F32, Shape: []int{7, 3}, File: ModelName}
	if len(m.Tensors) != 7 || !reflect.DeepEqual(m.Tensors[0], want) {
		t.Errorf("tensors %+v", m.Tensors)
	}
}

func TestContext(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	expectPublish(t, s, publication(0, 0))
	done, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Publish(done, publication(1, 1)); !errors.Is(err, context.Canceled) {
		t.Errorf("Publish: %v", err)
	}
	if _, err := s.Model(done, 0); !errors.Is(err, context.Canceled) {
		t.Errorf("Model: %v", err)
	}
	if names, _ := os.ReadDir(dir); len(names) != 1 {
		t.Errorf("left behind: %v", names)
	}
}
