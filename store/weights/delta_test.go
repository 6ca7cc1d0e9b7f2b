package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// memory is a set of files that a delta is applied to.
type memory map[string][]byte

func (m memory) Names() []string { return slices.Sorted(maps.Keys(m)) }

func (m memory) Open(name string) (io.ReadSeekCloser, int64, error) {
	content, ok := m[name]
	if !ok {
		return nil, 0, fs.ErrNotExist
	}
	return nopSeekCloser{bytes.NewReader(content)}, int64(len(content)), nil
}

type nopSeekCloser struct{ io.ReadSeeker }

func (nopSeekCloser) Close() error { return nil }

func (m memory) files() []File {
	var files []File
	for _, name := range m.Names() {
		files = append(files, File{Name: name, Size: int64(len(m[name])), Hash: sumText(m[name])})
	}
	return files
}

// bufferFile is a file that lands in memory when it is closed.
type bufferFile struct {
	bytes.Buffer
	to   memory
	name string
}

func (b *bufferFile) Close() error {
	b.to[b.name] = b.Bytes()
	return nil
}

func makeTestDelta(t testing.TB, from, to memory, encoding Encoding) ([]byte, Change) {
	t.Helper()
	var w bytes.Buffer
	change, err := makeDelta(t.Context(), &w, from, to, to.files(), Delta{Version: 2, BaseVersion: 1, Encoding: encoding})
	if err != nil {
		t.Fatal(err)
	}
	if change.DeltaBytes != int64(w.Len()) {
		t.Fatalf("a delta of %d bytes is said to have %d", w.Len(), change.DeltaBytes)
	}
	return w.Bytes(), change
}

func applyTestDelta(t testing.TB, base memory, content []byte) (memory, error) {
	t.Helper()
	d, err := ParseDelta(bytes.NewReader(content), int64(len(content)))
	if err != nil {
		return nil, err
	}
	out := memory{}
	err = d.Apply(t.Context(), base, func(name string) (io.WriteCloser, error) { return &bufferFile{to: out, name: name}, nil })
	return out, err
}

// randomModel draws tensors of all types in one or two files, and another model that
// differs in some elements, tensors, or files.
func randomModel(t testing.TB, rng *rand.Rand) (from, to memory) {
	types := slices.Sorted(maps.Keys(elementBits))
	from, to = memory{}, memory{}
	for f := range 1 + rng.IntN(2) {
		var a, b []Entry
		var old, made []byte
		for i := range rng.IntN(6) {
			e := Entry{Name: fmt.Sprintf("%d.%d", f, i), DType: types[rng.IntN(len(types))], Shape: []int{rng.IntN(40), 8}}
			size, err := tensorBytes(e.DType, e.Shape)
			if err != nil {
				t.Fatal(err)
			}
			data := make([]byte, size)
			for j := range data {
				data[j] = byte(rng.IntN(256))
			}
			next := bytes.Clone(data)
			share := []float64{0, 0.01, 0.3, 1}[rng.IntN(4)]
			for j := range next {
				if rng.Float64() < share {
					next[j] = byte(rng.IntN(256))
				}
			}
			switch rng.IntN(20) {
			case 0: // gone
				a, old = append(a, e), append(old, data...)
			case 1: // new
				b, made = append(b, e), append(made, next...)
			case 2: // another shape
				a, old = append(a, e), append(old, data...)
				e.Shape = []int{8, e.Shape[0]}
				b, made = append(b, e), append(made, next...)
			default:
				a, old = append(a, e), append(old, data...)
				b, made = append(b, e), append(made, next...)
			}
		}
		name := fmt.Sprintf("model-%d.safetensors", f)
		from[name] = tensorFile(t, old, a...)
		if rng.IntN(10) == 0 {
			name = "other.safetensors"
		}
		to[name] = tensorFile(t, made, b...)
	}
	from["config.json"], to["config.json"] = []byte("{}"), []byte("{}")
	if rng.IntN(2) == 0 {
		to["config.json"] = []byte("[]")
	}
	return from, to
}

func sameFiles(t testing.TB, got, want memory) {
	t.Helper()
	if !maps.EqualFunc(got, want, bytes.Equal) {
		t.Fatalf("got files %v, want %v", got.files(), want.files())
	}
}

// apply(diff(a, b), a) == b, whatever a and b are; overwrite twice is once, xor twice is refused.
func TestDeltaProperty(t *testing.T) {
	alone(t)
	for seed := range uint64(400) {
		rng := rand.New(rand.NewPCG(seed, 7))
		from, to := randomModel(t, rng)
		for _, encoding := range []Encoding{Overwrite, XOR} {
			content, _ := makeTestDelta(t, from, to, encoding)
			got, err := applyTestDelta(t, from, content)
			if err != nil {
				t.Fatalf("seed %d, %s: %v", seed, encoding, err)
			}
			sameFiles(t, got, to)
		}
	}
}

// pair is two versions of one model, in which some elements changed.
func pair(t testing.TB) (from, to memory) {
	rng := rand.New(rand.NewPCG(1, 1))
	data := make([]byte, 2000)
	for i := range data {
		data[i] = byte(rng.IntN(64)) // all of them finite
	}
	next := bytes.Clone(data)
	for i := 0; i < 1000; i += 100 {
		next[i] ^= 0x10
	}
	entries := []Entry{{Name: "a", DType: BF16, Shape: []int{500}}, {Name: "b", DType: BF16, Shape: []int{500}}}
	return memory{ModelName: tensorFile(t, data, entries...)}, memory{ModelName: tensorFile(t, next, entries...)}
}

func TestDeltaTwice(t *testing.T) {
	from, to := pair(t)
	for encoding, want := range map[Encoding]error{Overwrite: nil, XOR: ErrApplied} {
		content, change := makeTestDelta(t, from, to, encoding)
		if change.Tensors != 2 || change.TensorsChanged != 1 || change.Elements != 1000 || change.ElementsChanged != 10 {
			t.Errorf("%s: %+v", encoding, change)
		}
		got, err := applyTestDelta(t, to, content)
		if !errors.Is(err, want) {
			t.Errorf("%s applied to its result: %v, want %v", encoding, err, want)
		}
		if want == nil {
			sameFiles(t, got, to)
		}
		// A base that is neither: in what changes, and in what does not.
		for _, at := range []int{-1500, -1} {
			other := memory{ModelName: bytes.Clone(from[ModelName])}
			raw := other[ModelName]
			raw[len(raw)+at] ^= 1
			if _, err := applyTestDelta(t, other, content); !errors.Is(err, ErrBase) {
				t.Errorf("%s applied to another base: %v, want ErrBase", encoding, err)
			}
		}
		if _, err := applyTestDelta(t, memory{}, content); !errors.Is(err, ErrBase) {
			t.Errorf("%s applied to nothing: %v, want ErrBase", encoding, err)
		}
	}
}

// No damage of a delta gives anything but an error or the right result.
func TestDamagedDelta(t *testing.T) {
	from, to := pair(t)
	for _, encoding := range []Encoding{Overwrite, XOR} {
		content, _ := makeTestDelta(t, from, to, encoding)
		for i := range content {
			for _, bad := range [][]byte{content[:i], flipped(content, i)} {
				if got, err := applyTestDelta(t, from, bad); err == nil {
					sameFiles(t, got, to)
				}
			}
		}
	}
}

func flipped(content []byte, i int) []byte {
	bad := bytes.Clone(content)
	bad[i] ^= 1 << (i % 8)
	return bad
}

// handmade is a delta file as a program without this package would write it.
func handmade(t testing.TB, d Delta, payloads map[string][]byte) []byte {
	t.Helper()
	text, err := json.Marshal(d)
	if err != nil {
		t.Fatal(err)
	}
	var entries []Entry
	var data []byte
	for _, name := range slices.Sorted(maps.Keys(payloads)) {
		entries = append(entries, Entry{Name: name, DType: "U8", Shape: []int{len(payloads[name])}})
		data = append(data, payloads[name]...)
	}
	header, err := appendHeaderWith(entries, map[string]string{deltaFormatKey: deltaFormat, deltaKey: string(text)})
	if err != nil {
		t.Fatal(err)
	}
	return append(header, data...)
}

// The format as docs/weights-format.md tells it: gaps and values, uncompressed.
func TestHandmadeDelta(t *testing.T) {
	from := memory{ModelName: smallModel(t, 1, 2, 3, 4)}
	to := memory{ModelName: smallModel(t, 1, 5, 3, 6)}
	data := func(m memory) []byte { return m[ModelName][len(m[ModelName])-16:] }
	tensor := DeltaTensor{Name: "a", BaseHash: sumText(data(from)), Hash: sumText(data(to)), How: HowSparse, Codec: CodecRaw, Changed: 2, GapBytes: 2}
	d := Delta{Version: 2, BaseVersion: 1, Encoding: Overwrite, Files: []DeltaFile{{to.files()[0], FromTensors}}, Tensors: []DeltaTensor{tensor}}
	good := map[string][]byte{"0.gap": {1, 0, 2, 0}, "0.value": appendLittle(nil, []float32{5, 6})}
	got, err := applyTestDelta(t, from, handmade(t, d, good))
	if err != nil {
		t.Fatal(err)
	}
	sameFiles(t, got, to)
	for _, test := range []struct {
		name   string
		change func(d *Delta, t *DeltaTensor, p map[string][]byte)
		want   string
	}{
		{"outside", func(d *Delta, t *DeltaTensor, p map[string][]byte) { p["0.gap"] = []byte{1, 0, 3, 0} }, "ascending and inside"},
		{"far outside", func(d *Delta, t *DeltaTensor, p map[string][]byte) { p["0.gap"] = []byte{1, 0, 0xff, 0xff} }, "ascending and inside"},
		{"twice", func(d *Delta, t *DeltaTensor, p map[string][]byte) { p["0.gap"] = []byte{1, 0, 0, 0} }, "ascending and inside"},
		{"short", func(d *Delta, t *DeltaTensor, p map[string][]byte) { p["0.gap"] = []byte{1} }, "ends before its 4 bytes"},
		{"long", func(d *Delta, t *DeltaTensor, p map[string][]byte) { p["0.value"] = make([]byte, 9) }, "goes on after its 8 bytes"},
		{"more than there are", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.Changed = 1 << 40 }, "no more than there are"},
		{"no changes", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.Changed = 0 }, "at least one"},
		{"three bytes", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.GapBytes = 3 }, "1, 2, 4 or 8"},
		{"xor", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.How = HowXOR }, `said as "xor"`},
		{"codec", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.Codec = "lzma" }, `codec "lzma"`},
		{"no zstd", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.Codec = CodecZstd }, "payload"},
		{"no base", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.BaseHash = "" }, "no base_hash"},
		{"no hash", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.Hash = "x" }, "64 hexadecimal"},
		{"another hash", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.Hash = "sha256:" + strings.Repeat("0", 64) }, "the delta is damaged"},
		{"no tensor", func(d *Delta, t *DeltaTensor, p map[string][]byte) { t.Name = "b" }, "ErrBase"},
		{"no payload", func(d *Delta, t *DeltaTensor, p map[string][]byte) { delete(p, "0.gap") }, `no payload "0.gap"`},
		{"a payload too many", func(d *Delta, t *DeltaTensor, p map[string][]byte) { p["x"] = nil }, "3 payloads, want the 2"},
		{"encoding", func(d *Delta, t *DeltaTensor, p map[string][]byte) { d.Encoding = "add" }, `encoding "add"`},
		{"version", func(d *Delta, t *DeltaTensor, p map[string][]byte) { d.Version = 1 }, "a version after its base"},
		{"path", func(d *Delta, t *DeltaTensor, p map[string][]byte) { d.Files[0].Name = "../a" }, "without separators"},
		{"from", func(d *Delta, t *DeltaTensor, p map[string][]byte) { d.Files[0].From = "nowhere" }, `from "nowhere"`},
		{"larger file", func(d *Delta, t *DeltaTensor, p map[string][]byte) { d.Files[0].Size++ }, "tensors end at"},
	} {
		d, p, tensor := d, maps.Clone(good), tensor
		d.Files = slices.Clone(d.Files)
		test.change(&d, &tensor, p)
		d.Tensors = []DeltaTensor{tensor}
		_, err := applyTestDelta(t, from, handmade(t, d, p))
		if test.want == "ErrBase" && errors.Is(err, ErrBase) {
			continue
		}
		if err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
	}
}

func FuzzDelta(f *testing.F) {
	from, to := pair(f)
	for _, encoding := range []Encoding{Overwrite, XOR} {
		content, _ := makeTestDelta(f, from, to, encoding)
		f.Add(content)
	}
	f.Add([]byte{})
	f.Fuzz(func(t *testing.T, content []byte) {
		// What applies is what the delta's own hashes say; nothing else comes out.
		d, err := ParseDelta(bytes.NewReader(content), int64(len(content)))
		if err != nil {
			return
		}
		out := memory{}
		err = d.Apply(t.Context(), from, func(name string) (io.WriteCloser, error) { return &bufferFile{to: out, name: name}, nil })
		if err != nil {
			return
		}
		for _, f := range d.Files {
			if sumText(out[f.Name]) != f.Hash || int64(len(out[f.Name])) != f.Size {
				t.Fatalf("%+v came out as %x", f, out[f.Name])
			}
		}
	})
}

// A trainer publishes a delta: the version stands on its own, and the delta beside it.
func TestDeltaDraft(t *testing.T) {
	from, to := pair(t)
	for _, encoding := range []Encoding{Overwrite, XOR} {
		dir := t.TempDir()
		s := openTest(t, dir, Options{Always: true})
		if _, err := publishFiles(t, s, Description{Version: 1, Kind: KindFull}, add{ModelName, from[ModelName]}); err != nil {
			t.Fatal(err)
		}
		content, _ := makeTestDelta(t, from, to, encoding)
		d := Description{Version: 2, Lease: 5, Kind: KindDelta, BaseVersion: 1, Encoding: encoding, Files: []File{{Name: DeltaName, Size: int64(len(content)), Hash: sumText(content)}, {Name: "optimizer.bin"}}}
		files := []add{{DeltaName, content}, {"optimizer.bin", []byte("x")}}
		if existing, err := publishFiles(t, s, d, files...); existing || err != nil {
			t.Fatal(existing, err)
		}
		if existing, err := publishFiles(t, s, d, files...); !existing || err != nil {
			t.Fatalf("the same again: %v, %v", existing, err)
		}
		got, err := os.ReadFile(filepath.Join(dir, "v000002", ModelName))
		if err != nil || !bytes.Equal(got, to[ModelName]) {
			t.Fatalf("the version is not what the delta makes: %v", err)
		}
		if m, err := s.Manifest(2); err != nil || m.Kind != KindFull || len(m.Files) != 2 || len(m.Tensors) != 2 || m.Lease != 5 {
			t.Errorf("manifest %+v, %v", m, err)
		}
		full := Description{Version: 2, Lease: 5, Kind: KindFull}
		if existing, err := publishFiles(t, s, full, add{ModelName, to[ModelName]}, add{"optimizer.bin", []byte("x")}); !existing || err != nil {
			t.Errorf("the same as a full version: %v, %v", existing, err)
		}
		other := d
		other.Files, other.Encoding = nil, map[Encoding]Encoding{XOR: Overwrite, Overwrite: XOR}[encoding]
		if _, err := publishFiles(t, s, other, files...); !errors.Is(err, ErrConflict) {
			t.Errorf("by another delta: %v, want ErrConflict", err)
		}
		kept, err := s.Derived(2, DeltaArtefact(1, encoding))
		if err != nil || kept.Encoding != encoding {
			t.Fatalf("the delta that is kept: %+v, %v", kept, err)
		}
		sameDelta(t, s, kept, content)
		// The base goes; the version stays.
		if err := s.Prune(2); err != nil {
			t.Fatal(err)
		}
		if err := s.Verify(t.Context(), 2); err != nil {
			t.Error(err)
		}
		onlyVersions(t, dir, "v000002")
	}
}

func sameDelta(t testing.TB, s *Store, d Derived, content []byte) {
	t.Helper()
	file, _, err := s.OpenDerived(t.Context(), d, DeltaName, 0)
	if err != nil {
		t.Fatal(err)
	}
	stored, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil || !bytes.Equal(stored, content) {
		t.Fatalf("the stored delta is another: %v", err)
	}
}

func TestRefusedDeltaDrafts(t *testing.T) {
	from, to := pair(t)
	content, _ := makeTestDelta(t, from, to, XOR)
	twice, _ := makeTestDelta(t, memory{ModelName: to[ModelName]}, from, XOR)
	nan := memory{ModelName: bytes.Clone(to[ModelName])}
	binary.LittleEndian.PutUint16(nan[ModelName][len(nan[ModelName])-2:], 0x7fc0)
	broken, _ := makeTestDelta(t, from, nan, Overwrite)
	d := Description{Version: 2, Kind: KindDelta, BaseVersion: 1, Encoding: XOR}
	for _, test := range []struct {
		name  string
		d     Description
		files []add
		want  string
	}{
		{"no delta", d, []add{{"optimizer.bin", nil}}, "want it in delta.safetensors"},
		{"beside it", d, []add{{DeltaName, content}, {ModelName, to[ModelName]}}, "want only the trainer's own"},
		{"a model", d, []add{{DeltaName, to[ModelName]}}, `want "headway-delta-1"`},
		{"another encoding", Description{Version: 2, Kind: KindDelta, BaseVersion: 1, Encoding: Overwrite}, []add{{DeltaName, content}}, "leads by xor from version 1 to 2, want by overwrite"},
		{"another base", d, []add{{DeltaName, twice}}, "made from another base"},
		{"NaN", Description{Version: 2, Kind: KindDelta, BaseVersion: 1, Encoding: Overwrite}, []add{{DeltaName, broken}}, `tensor "b": value 499 (row-major) is NaN`},
	} {
		dir := t.TempDir()
		s := openTest(t, dir, Options{})
		if _, err := publishFiles(t, s, Description{Version: 1, Kind: KindFull}, add{ModelName, from[ModelName]}); err != nil {
			t.Fatal(err)
		}
		if test.name == "another base" { // the delta from 2 to 1, under the right numbers
			parsed, err := ParseDelta(bytes.NewReader(twice), int64(len(twice)))
			if err != nil || parsed.BaseVersion != 1 {
				t.Fatal(err)
			}
		}
		_, err := publishFiles(t, s, test.d, test.files...)
		if !errors.As(err, new(*RefusedError)) && !errors.Is(err, ErrApplied) || !strings.Contains(err.Error(), test.want) && !strings.Contains(err.Error(), "applied already") {
			t.Errorf("%s: %v, want a RefusedError with %q", test.name, err, test.want)
		}
		onlyVersions(t, dir, "v000001")
		absent := test.d
		absent.Version, absent.BaseVersion = 9, 8
		if _, err := s.Begin(t.Context(), absent); !errors.Is(err, ErrNotFound) {
			t.Errorf("a base that is not there: %v, want ErrNotFound", err)
		}
	}
}

func TestDiff(t *testing.T) {
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	from, to := pair(t)
	for v := range loop.Version(6) {
		content := []memory{from, to}[v%2][ModelName]
		if _, err := publishFiles(t, s, Description{Version: v, Kind: KindFull}, add{ModelName, content}); err != nil {
			t.Fatal(err)
		}
	}
	for v := loop.Version(1); v < 6; v++ {
		for range 2 { // made once, found once
			d, err := s.Diff(t.Context(), v-1, v, Overwrite)
			if err != nil || d.BaseVersion != v-1 || len(d.Files) != 1 {
				t.Fatalf("%+v, %v", d, err)
			}
		}
	}
	if d, err := s.Diff(t.Context(), 3, 5, XOR); err != nil || d.BaseVersion != 3 {
		t.Errorf("past a version: %+v, %v", d, err)
	}
	if _, err := openTest(t, dir, Options{ReadOnly: true}).Diff(t.Context(), 0, 5, XOR); !errors.Is(err, ErrReadOnly) {
		t.Errorf("read-only: %v", err)
	}
	change, err := s.Compare(t.Context(), 0, 1, XOR)
	if err != nil || change.ElementsChanged != 10 || change.DeltaBytes == 0 {
		t.Errorf("%+v, %v", change, err)
	}
	onlyVersions(t, dir, "v000000", "v000001", "v000002", "v000003", "v000004", "v000005")
}

// The header of a file that is published is bounded while it is read.
func TestPublishedHeadersAreBounded(t *testing.T) {
	long := file("", 0)
	binary.LittleEndian.PutUint64(long, 32<<20+1)
	for _, test := range []struct {
		content []byte
		want    string
	}{
		{long, "header of 33554433 bytes, want at most 33554432 in a version"},
		{file(`{"a":{"dtype":"U8","shape":[0`+strings.Repeat(",1", 2048)+`],"data_offsets":[0,0]}}`, 0), "shape: 4099 bytes of text"},
	} {
		s := openTest(t, t.TempDir(), Options{})
		_, err := publishFiles(t, s, Description{Version: 1, Kind: KindFull}, add{ModelName, test.content})
		if !errors.As(err, new(*RefusedError)) || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v, want a RefusedError with %q", err, test.want)
		}
	}
	empty := `{"dtype":"U8","shape":[0],"data_offsets":[0,0]}`
	two := file(`{"a":`+empty+`,"__metadata__":{"a":"","b":""},"b":`+empty+"}", 0)
	for names, want := range map[int]string{2: "", 1: "more than 1 names"} {
		_, err := (&inspector{size: -1, names: names}).Write(two)
		if (err == nil) != (want == "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("of %d names: %v, want %q", names, err, want)
		}
	}
	tensors := file(`{"a":`+empty+`,"b":`+empty+"}", 0)
	if _, err := (&inspector{size: int64(len(tensors)), names: 1}).Write(tensors); err == nil || !strings.Contains(err.Error(), "more than 1 tensors") {
		t.Errorf("two tensors of one: %v", err)
	}
}
