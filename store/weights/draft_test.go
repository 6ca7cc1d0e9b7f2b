package weights

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/iotest"

	"github.com/headway-rl/headway/loop"
)

// tensorFile makes a safetensors file of entries with the given data.
func tensorFile(t testing.TB, data []byte, entries ...Entry) []byte {
	t.Helper()
	raw, err := AppendHeader(nil, entries)
	if err != nil {
		t.Fatal(err)
	}
	return append(raw, data...)
}

// smallModel is a file with one F32 tensor of two values.
func smallModel(t testing.TB, values ...float32) []byte {
	return tensorFile(t, appendLittle(nil, values), Entry{Name: "a", DType: F32, Shape: []int{len(values)}})
}

// add is a file on its way into a draft.
type add struct {
	name    string
	content []byte
}

// publishFiles takes a version all the way.
func publishFiles(t testing.TB, s *Store, d Description, files ...add) (existing bool, err error) {
	t.Helper()
	draft, err := s.Begin(t.Context(), d)
	if err != nil {
		return false, err
	}
	defer func() {
		if err := draft.Abort(); err != nil {
			t.Fatal(err)
		}
	}()
	for _, f := range files {
		// One byte at a time: nothing depends on where a file is cut.
		if err := draft.Add(t.Context(), f.name, iotest.OneByteReader(bytes.NewReader(f.content))); err != nil {
			return false, err
		}
	}
	return draft.Commit(t.Context())
}

// onlyVersions checks that nothing but versions is left.
func onlyVersions(t testing.TB, dir string, want ...string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, e := range entries {
		names = append(names, e.Name())
	}
	if !slices.Equal(names, want) {
		t.Fatalf("the directory has %v, want %v", names, want)
	}
}

func TestDraft(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{Always: true})
	if v := s.Newest(); v != loop.NoVersion {
		t.Fatalf("Newest() = %d of nothing", v)
	}
	first := smallModel(t, 1, 2)
	second := tensorFile(t, []byte{0x80, 0x3f, 0x00, 0xc0}, Entry{Name: "b", DType: BF16, Shape: []int{2}})
	files := []add{{"model-00002.safetensors", second}, {"optimizer.pt", []byte("anything")}, {"model-00001.safetensors", first}, {"config.json", []byte("{}")}}
	d := Description{Version: 0, Kind: KindFull}
	if existing, err := publishFiles(t, s, d, files...); existing || err != nil {
		t.Fatal(existing, err)
	}
	if existing, err := publishFiles(t, s, d, files...); !existing || err != nil {
		t.Fatalf("the same again: %v, %v", existing, err)
	}
	tensors, err := s.Model(t.Context(), 0)
	if err != nil || len(tensors) != 2 || !slices.Equal(tensors[0].Data, []float32{1, 2}) || !slices.Equal(tensors[1].Data, []float32{1, -2}) {
		t.Fatalf("Model: %v, %v", tensors, err)
	}
	if _, err := s.Optimizer(t.Context(), 0); !errors.Is(err, ErrNoWeights) {
		t.Errorf("Optimizer: %v, want ErrNoWeights", err)
	}
	if err := s.Verify(t.Context(), 0); err != nil {
		t.Error(err)
	}
	if _, err := publishFiles(t, s, Description{Version: 1, Lease: 3, Kind: KindNone}); err != nil {
		t.Fatal(err)
	}
	if lease, ok, err := s.Committed(1); lease != 3 || !ok || err != nil {
		t.Errorf("Committed(1) = %d, %v, %v", lease, ok, err)
	}
	if _, err := s.Model(t.Context(), 1); !errors.Is(err, ErrNoWeights) {
		t.Errorf("Model of a version without weights: %v", err)
	}
	if v := s.Newest(); v != 0 {
		t.Errorf("Newest() = %d, want 0, which has weights", v)
	}
	if err := s.Prune(9); err != nil {
		t.Fatal(err)
	}
	onlyVersions(t, dir, "v000000", "v000001")
	content, size, err := s.OpenFile(t.Context(), 0, "optimizer.pt", 3)
	if err != nil || size != 8 {
		t.Fatal(size, err)
	}
	if rest, err := io.ReadAll(content); string(rest) != "thing" || err != nil || content.Close() != nil {
		t.Errorf("from byte 3: %q, %v", rest, err)
	}
	for _, name := range []string{"nothing", "../v000001/manifest.json", ManifestName} {
		if _, _, err := s.OpenFile(t.Context(), 0, name, 0); !errors.Is(err, ErrNotFound) {
			t.Errorf("OpenFile(%q): %v, want ErrNotFound", name, err)
		}
	}
	text, err := s.ManifestText(t.Context(), 0)
	there, err2 := os.ReadFile(filepath.Join(dir, "v000000", ManifestName))
	if err != nil || err2 != nil || !bytes.Equal(text, there) {
		t.Errorf("ManifestText: %v, %v, %s", err, err2, text)
	}
}

func TestDraftConflicts(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	model := add{ModelName, smallModel(t, 1, 2)}
	base := Description{Version: 1, Lease: 4, Kind: KindFull}
	if _, err := publishFiles(t, s, base, model); err != nil {
		t.Fatal(err)
	}
	lease, none := base, base
	lease.Lease, none.Kind = 5, KindNone
	for name, try := range map[string]struct {
		d     Description
		files []add
	}{
		"lease":   {lease, []add{model}},
		"kind":    {none, nil},
		"content": {base, []add{{ModelName, smallModel(t, 1, 3)}}},
		"more":    {base, []add{model, {"optimizer.pt", nil}}},
		"less":    {base, nil},
	} {
		if _, err := publishFiles(t, s, try.d, try.files...); !errors.Is(err, ErrConflict) {
			t.Errorf("another %s: %v, want ErrConflict", name, err)
		}
	}
}

func TestRefusedDrafts(t *testing.T) {
	inf16 := tensorFile(t, []byte{0, 0, 0x80, 0xff}, Entry{Name: "a", DType: BF16, Shape: []int{2}})
	good := smallModel(t, 1, 2)
	full := Description{Version: 1, Kind: KindFull}
	declared := func(f ...File) Description { return Description{Version: 1, Kind: KindFull, Files: f} }
	sum := "sha256:" + strings.Repeat("0", 64)
	two := loop.Version(2)
	for _, test := range []struct {
		name  string
		d     Description
		files []add
		want  string
	}{
		{"no files", full, nil, "no model tensors in no files"},
		{"only an optimizer", full, []add{{OptimizerName, good}}, "no model tensors in optimizer.safetensors"},
		{"NaN", full, []add{{ModelName, smallModel(t, 1, float32(math.NaN()))}}, `model.safetensors: tensor "a": value 1 (row-major) is NaN`},
		{"Inf", full, []add{{ModelName, inf16}}, "value 1 (row-major) is -Inf"},
		{"cut", full, []add{{ModelName, good[:len(good)-1]}}, "ends at byte 7 of its data, want the 8"},
		{"cut header", full, []add{{ModelName, good[:20]}}, "ends inside its header"},
		{"nothing", full, []add{{ModelName, nil}}, "ends inside its header"},
		{"longer", full, []add{{ModelName, append(slices.Clip(good), 0)}}, "tensors end at byte 8"},
		{"unknown type", full, []add{{ModelName, file(`{"a":{"dtype":"F7","shape":[1],"data_offsets":[0,4]}}`, 4)}}, `dtype "F7" is unknown`},
		{"overlap", full, []add{{ModelName, file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[2,6]}}`, 6)}}, "overlaps"},
		{"gap", full, []add{{ModelName, file(`{"a":{"dtype":"U8","shape":[4],"data_offsets":[0,4]},"b":{"dtype":"U8","shape":[4],"data_offsets":[6,10]}}`, 10)}}, "leaves a gap"},
		{"large header", full, []add{{ModelName, []byte{0, 0, 0, 0, 1, 0, 0, 0}}}, "want at most 100000000"},
		{"a tensor in two files", full, []add{{ModelName, good}, {"x.safetensors", good}}, `the tensor "a" is in model.safetensors and in x.safetensors`},
		{"a file twice", full, []add{{ModelName, good}, {ModelName, good}}, "came twice"},
		{"a path", full, []add{{"../a", nil}}, "without separators"},
		{"hidden", full, []add{{".a", nil}}, "begins with a dot"},
		{"the manifest", full, []add{{ManifestName, nil}}, "which the store needs itself"},
		{"the view's directory", full, []add{{ModelName, good}, {"hf", nil}}, `the file name "hf", which the store needs itself`},
		{"undeclared", declared(File{Name: ModelName}), []add{{"b", nil}}, "was not declared"},
		{"missing", declared(File{Name: ModelName}, File{Name: "b"}), []add{{ModelName, good}}, `"b" was declared and did not come`},
		{"shorter than declared", declared(File{Name: "b", Size: 3}), []add{{"b", []byte("ab")}}, "has 2 bytes, want the 3"},
		{"longer than declared", declared(File{Name: "b", Size: 1}), []add{{"b", []byte("ab")}}, "more than the 1 bytes"},
		{"declared shorter", declared(File{Name: ModelName, Size: int64(len(good)) - 4}), []add{{ModelName, good}}, "more than the 68 bytes declared"},
		{"another hash", declared(File{Name: "b", Size: 2, Hash: sum}), []add{{"b", []byte("ab")}}, "want the declared " + sum},
		{"another hash without a size", declared(File{Name: "b", Hash: sum}), []add{{"b", []byte("ab")}}, "want the declared " + sum},
		{"declared twice", declared(File{Name: "b"}, File{Name: "b"}), nil, "declared twice"},
		{"no hash", declared(File{Name: "b", Hash: "sha256:0"}), nil, "64 hexadecimal digits"},
		{"negative size", declared(File{Name: "b", Size: -1}), nil, "want a size"},
		{"kind", Description{Version: 1, Kind: "half"}, nil, `kind "half"`},
		{"negative version", Description{Version: -1, Kind: KindFull}, nil, "negative"},
		{"files of none", Description{Version: 1, Kind: KindNone}, []add{{ModelName, good}}, "for kind none"},
		{"from the future", Description{Version: 1, Kind: KindFull, RestoredFrom: &two}, nil, "want an earlier one"},
		{"delta from the future", Description{Version: 1, BaseVersion: 1, Kind: KindDelta, Encoding: XOR}, nil, "want an earlier version"},
		{"delta without encoding", Description{Version: 1, Kind: KindDelta}, nil, "want overwrite or xor"},
	} {
		dir := t.TempDir()
		s := openTest(t, dir, Options{})
		_, err := publishFiles(t, s, test.d, test.files...)
		if !errors.As(err, new(*RefusedError)) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want a RefusedError with %q", test.name, err, test.want)
		}
		onlyVersions(t, dir)
	}
	s := openTest(t, t.TempDir(), Options{AcceptNonFinite: true})
	if _, err := publishFiles(t, s, full, add{ModelName, inf16}); err != nil {
		t.Errorf("infinity where it is accepted: %v", err)
	}
}

// Another set of tensors is another model.
func TestDraftAgainstTheVersionBefore(t *testing.T) {
	s := openTest(t, t.TempDir(), Options{})
	u8 := func(names ...string) []byte {
		var entries []Entry
		for _, n := range names {
			entries = append(entries, Entry{Name: n, DType: "U8", Shape: []int{1}})
		}
		return tensorFile(t, make([]byte, len(names)), entries...)
	}
	if _, err := publishFiles(t, s, Description{Version: 1, Kind: KindFull}, add{ModelName, u8("a", "b")}); err != nil {
		t.Fatal(err)
	}
	if _, err := publishFiles(t, s, Description{Version: 2, Kind: KindNone}); err != nil {
		t.Fatal(err)
	}
	for want, content := range map[string][]byte{
		`tensor "b" U8 [1] is missing`:                           u8("a"),
		`tensor "c" U8 [1] is new`:                               u8("a", "b", "c"),
		`tensor "b" U8 [1] is missing; tensor "c" U8 [1] is new`: u8("a", "c"),
		`tensor "a" is F32 [2], want U8 [1]`:                     smallModel(t, 1, 2),
	} {
		_, err := publishFiles(t, s, Description{Version: 3, Kind: KindFull}, add{ModelName, content})
		if !errors.As(err, new(*RefusedError)) || !strings.Contains(err.Error(), "not those of version 1: ") || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
	// In other files and another order they are the same tensors.
	if _, err := publishFiles(t, s, Description{Version: 3, Kind: KindFull}, add{"x.safetensors", u8("b")}, add{"y.safetensors", u8("a")}); err != nil {
		t.Error(err)
	}
}

func TestDirectory(t *testing.T) {
	for _, link := range []bool{false, true} {
		shared, dir := t.TempDir(), t.TempDir()
		s := openTest(t, dir, Options{Directories: []string{"/nowhere", shared}, Link: link})
		from := filepath.Join(shared, "step 7")
		if err := errors.Join(os.Mkdir(from, 0o755), os.WriteFile(filepath.Join(from, ModelName), smallModel(t, 1, 2), 0o644),
			os.WriteFile(filepath.Join(from, ".hidden"), nil, 0o644), os.Symlink("/etc", filepath.Join(shared, "out")),
			os.Symlink("/etc/hostname", filepath.Join(from, "link"))); err != nil {
			t.Fatal(err)
		}
		draft, err := s.Begin(t.Context(), Description{Version: 1, Kind: KindFull})
		if err == nil {
			err = draft.AddDirectory(t.Context(), from)
		}
		if err != nil {
			t.Fatal(err)
		}
		if _, err := draft.Commit(t.Context()); err != nil {
			t.Fatal(err)
		}
		a, err := os.Stat(filepath.Join(from, ModelName))
		b, err2 := os.Stat(filepath.Join(dir, "v000001", ModelName))
		if err != nil || err2 != nil || os.SameFile(a, b) != link {
			t.Errorf("linked: %v, want %v: %v %v", os.SameFile(a, b), link, err, err2)
		}
		if err := s.Verify(t.Context(), 1); err != nil {
			t.Error(err)
		}
		for _, bad := range []struct {
			dir   string
			files []File
			want  string
		}{
			{"/etc", nil, "not below an allowed one"},
			{filepath.Join(shared, ".."), nil, "not below an allowed one"},
			{filepath.Join(shared, "out"), nil, "escapes"},
			{shared, nil, "no files"},
			{from, []File{{Name: "link"}}, "escapes"},
			{from, []File{{Name: "absent"}}, "no such file"},
		} {
			draft, err := s.Begin(t.Context(), Description{Version: 2, Kind: KindFull, Files: bad.files})
			if err != nil {
				t.Fatal(err)
			}
			err = draft.AddDirectory(t.Context(), bad.dir)
			if !errors.As(err, new(*RefusedError)) || !strings.Contains(err.Error(), bad.want) {
				t.Errorf("%s %v: %v, want a RefusedError with %q", bad.dir, bad.files, err, bad.want)
			}
			if err := draft.Abort(); err != nil {
				t.Error(err)
			}
		}
		onlyVersions(t, dir, "v000001")
	}
}

// A version that was gone back to becomes the next, without a byte being written.
func TestAddVersion(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	p := publication(3, 1)
	expectPublish(t, s, p)
	restored := loop.Version(3)
	d := Description{Version: 7, Kind: KindFull, RestoredFrom: &restored}
	for _, want := range []bool{false, true} {
		draft, err := s.Begin(t.Context(), d)
		if err == nil {
			err = draft.AddVersion(t.Context(), 3)
		}
		if err != nil {
			t.Fatal(err)
		}
		if existing, err := draft.Commit(t.Context()); err != nil || existing != want {
			t.Fatal(existing, err)
		}
	}
	p.Version, p.Lease = 7, 0
	expect(t, s, p)
	if m, err := s.Manifest(7); err != nil || m.RestoredFrom == nil || *m.RestoredFrom != 3 {
		t.Errorf("manifest %+v, %v", m, err)
	}
	if err := s.Prune(7); err != nil {
		t.Fatal(err)
	}
	expect(t, s, p)
	damaged, err := s.Begin(t.Context(), Description{Version: 8, Kind: KindFull})
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "v000007", ModelName)
	raw, _ := os.ReadFile(path)
	raw[len(raw)-1] ^= 1
	if err := os.WriteFile(path, raw, 0o644); err != nil {
		t.Fatal(err)
	}
	if err := damaged.AddVersion(t.Context(), 7); !errors.As(err, new(*CorruptError)) {
		t.Errorf("from a damaged version: %v", err)
	}
	if err := damaged.Abort(); err != nil {
		t.Error(err)
	}
}

// crowded is a disk with little room: some writes fail, or it says so beforehand.
type crowded struct {
	system
	room int64 // what it says is free
	left int   // bytes that can be written
}

func (c *crowded) Free(string) int64 { return c.room }
func (c *crowded) Create(path string) (output, error) {
	f, err := c.system.Create(path)
	return &crowdedFile{f, c}, err
}

type crowdedFile struct {
	output
	c *crowded
}

func (f *crowdedFile) Write(p []byte) (int, error) {
	if len(p) > f.c.left {
		return 0, &os.PathError{Op: "write", Path: "file", Err: syscall.EDQUOT}
	}
	f.c.left -= len(p)
	return f.output.Write(p)
}

func TestFullDisk(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	model := smallModel(t, make([]float32, 1000)...)
	size := int64(len(model))
	d := Description{Version: 1, Kind: KindFull, Files: []File{{Name: ModelName, Size: size}}}
	for _, c := range []*crowded{{room: size - 1, left: 1 << 30}, {room: size, left: 100}, {room: -1, left: int(size) + 5}} {
		s.disk = c
		_, err := publishFiles(t, s, d, add{ModelName, model})
		full := new(FullError)
		if !errors.As(err, &full) || !errors.Is(err, syscall.ENOSPC) || full.Needed != size || full.Free != c.room {
			t.Errorf("%+v: %v, want a FullError", c, err)
		}
		onlyVersions(t, dir)
	}
	s.disk = &crowded{room: 50, left: 50}
	if err := s.Publish(t.Context(), publication(1, 1)); !errors.Is(err, syscall.ENOSPC) || !errors.As(err, new(*FullError)) {
		t.Errorf("Publish: %v, want a FullError", err)
	}
	onlyVersions(t, dir)
	s.disk = system{} // space returns
	if _, err := publishFiles(t, s, d, add{ModelName, model}); err != nil {
		t.Fatal(err)
	}
}

func TestFence(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	deposed := errors.New("deposed")
	d := Description{Version: 1, Kind: KindFull, Fence: func() error { return deposed }}
	if _, err := publishFiles(t, s, d, add{ModelName, smallModel(t, 1)}); !errors.Is(err, deposed) {
		t.Errorf("published by a deposed writer: %v", err)
	}
	onlyVersions(t, dir)
}

// A connection that breaks, and one that never goes on, leave nothing.
func TestDraftBreaksOff(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	draft, err := s.Begin(t.Context(), Description{Version: 1, Kind: KindFull})
	if err != nil {
		t.Fatal(err)
	}
	for i, broken := range []error{errors.New("connection reset"), io.ErrUnexpectedEOF} {
		content := io.MultiReader(strings.NewReader("half of it"), iotest.ErrReader(broken))
		if err := draft.Add(t.Context(), fmt.Sprintf("config%d.json", i), content); !errors.Is(err, broken) || errors.As(err, new(*RefusedError)) {
			t.Errorf("Add: %v, want %v", err, broken)
		}
	}
	if err := errors.Join(draft.Abort(), draft.Abort()); err != nil {
		t.Error(err)
	}
	if _, err := draft.Commit(t.Context()); err == nil {
		t.Error("a dropped draft was committed")
	}
	onlyVersions(t, dir)
	if _, err := s.Begin(t.Context(), Description{Version: 1, Kind: KindFull}); err != nil { // and abandoned
		t.Fatal(err)
	}
	openTest(t, dir, Options{})
	onlyVersions(t, dir)
}

// A trainer names its directory by an absolute path, also where the document allows a relative one.
func TestAllowedDirectoryMayBeRelative(t *testing.T) {
	t.Chdir(t.TempDir())
	from, err := filepath.Abs("shared/out")
	if err != nil {
		t.Fatal(err)
	}
	if err := errors.Join(os.MkdirAll(from, 0o755), os.WriteFile(filepath.Join(from, ModelName), smallModel(t, 1, 2), 0o644)); err != nil {
		t.Fatal(err)
	}
	s, err := Open("runs/weights", Options{Directories: []string{"shared"}})
	if err != nil {
		t.Fatal(err)
	}
	draft, err := s.Begin(t.Context(), Description{Version: 0, Kind: KindFull})
	if err != nil {
		t.Fatal(err)
	}
	if err := draft.AddDirectory(t.Context(), from); err != nil {
		t.Error(err)
	}
}
