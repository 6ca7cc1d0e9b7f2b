package weights

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
)

// file puts a header's text and some data together.
func file(header string, dataBytes int) []byte {
	f := binary.LittleEndian.AppendUint64(nil, uint64(len(header)))
	return append(append(f, header...), make([]byte, dataBytes)...)
}

func TestParseHeader(t *testing.T) {
	raw := file(`{"b": {"shape": [2, 3], "dtype": "BF16", "data_offsets": [8, 20]}, "__metadata__": {"format": "pt", "": "x"},
		"a": {"dtype":"F64","shape":[],"data_offsets":[0,8]}, "empty":{"dtype":"U8","shape":[0],"data_offsets":[20,20]}}   `, 12+8)
	h, err := ParseHeader(raw, int64(len(raw)))
	if err != nil {
		t.Fatal(err)
	}
	want := []Entry{{"a", "F64", []int{}, 0, 8}, {"b", "BF16", []int{2, 3}, 8, 20}, {"empty", "U8", []int{0}, 20, 20}}
	if !slices.EqualFunc(h.Entries, want, sameEntry) {
		t.Errorf("entries %+v, want %+v", h.Entries, want)
	}
	if h.Metadata["format"] != "pt" || h.Metadata[""] != "x" || h.DataStart != int64(len(raw)-20) {
		t.Errorf("metadata %q, data from %d", h.Metadata, h.DataStart)
	}
	if _, err := ParseHeader(raw[:h.DataStart], int64(len(raw))); err != nil {
		t.Errorf("the header without the data: %v", err)
	}
}

func sameEntry(a, b Entry) bool {
	return a.Name == b.Name && a.DType == b.DType && slices.Equal(a.Shape, b.Shape) && a.Begin == b.Begin && a.End == b.End
}

func TestHostileHeaders(t *testing.T) {
	long := func(n uint64, rest string) []byte { return append(binary.LittleEndian.AppendUint64(nil, n), rest...) }
	one := func(members string) []byte { return file(`{"a":{`+members+`}}`, 8) }
	tests := []struct {
		name string
		file []byte
		want string
	}{
		{"nothing", nil, "want at least 8"},
		{"half a length", []byte{2, 0, 0}, "want at least 8"},
		{"no header", long(0, ""), "header of 0 bytes"},
		{"longer than the file", long(100, "{}"), "header of 100 bytes"},
		{"longer than the cap", long(HeaderBytesMax+1, "{}"), "at most 100000000"},
		{"longer than memory", long(math.MaxUint64, "{}"), "at most 100000000"},
		{"a negative length", long(1<<63, "{}"), "at most 100000000"},
		{"a list", file(`[]`, 0), "begins with"},
		{"a space first", file(` {}`, 0), "begins with"},
		{"no JSON", file(`{"a"}`, 0), "not JSON"},
		{"two documents", file(`{}{}`, 0), "not JSON"},
		{"a comma too many", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},}`, 0), "not JSON"},
		{"no UTF-8", file("{\"\xff\":{}}", 0), "UTF-8"},
		{"a name twice", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), `"a" occurs twice`},
		{"a name twice, escaped", file(`{"a":{"dtype":"U8","shape":[0],"data_offsets":[0,0]},"\u0061":{"dtype":"U8","shape":[0],"data_offsets":[0,0]}}`, 0), `"a" occurs twice`},
		{"metadata twice", file(`{"__metadata__":{},"__metadata__":{}}`, 0), "occurs twice"},
		{"a number as metadata", file(`{"__metadata__":{"a":1}}`, 0), "want a string"},
		{"nested metadata", file(`{"__metadata__":{"a":{}}}`, 0), "want a string"},
		{"a list as metadata", file(`{"__metadata__":[]}`, 0), "want an object"},
		{"metadata's name twice", file(`{"__metadata__":{"a":"","a":""}}`, 0), "occurs twice"},
		{"a list as tensor", file(`{"a":[]}`, 0), "want an object"},
		{"null as tensor", file(`{"a":null}`, 0), "want an object"},
		{"nothing of a tensor", one(``), "wants a dtype"},
		{"no dtype", one(`"shape":[2],"data_offsets":[0,8]`), "wants a dtype"},
		{"no shape", one(`"dtype":"F32","data_offsets":[0,8]`), "wants a dtype"},
		{"no offsets", one(`"dtype":"F32","shape":[2]`), "wants a dtype"},
		{"null dtype", one(`"dtype":null,"shape":[2],"data_offsets":[0,8]`), "wants a dtype"},
		{"null shape", one(`"dtype":"F32","shape":null,"data_offsets":[0,8]`), "wants a dtype"},
		{"one offset", one(`"dtype":"F32","shape":[2],"data_offsets":[8]`), "two data_offsets"},
		{"three offsets", one(`"dtype":"F32","shape":[2],"data_offsets":[0,4,8]`), "two data_offsets"},
		{"shape twice", one(`"dtype":"F32","shape":[2],"shape":[2],"data_offsets":[0,8]`), `"shape" occurs twice`},
		{"something else", one(`"dtype":"F32","shape":[2],"data_offsets":[0,8],"scale":1`), `has "scale"`},
		{"unknown dtype", one(`"dtype":"F31","shape":[2],"data_offsets":[0,8]`), `"F31" is unknown, want one of BF16 BOOL`},
		{"a number as dtype", one(`"dtype":32,"shape":[2],"data_offsets":[0,8]`), "dtype"},
		{"a broken dimension", one(`"dtype":"F32","shape":[2.5],"data_offsets":[0,8]`), "shape"},
		{"a negative dimension", one(`"dtype":"F32","shape":[-2,-1],"data_offsets":[0,8]`), "negative dimension"},
		{"a dimension beyond 64 bits", one(`"dtype":"F32","shape":[99999999999999999999],"data_offsets":[0,8]`), "shape"},
		{"a size that wraps", one(`"dtype":"F32","shape":[4294967296,4294967296],"data_offsets":[0,0]`), "more elements"},
		{"a size that wraps in bits", one(`"dtype":"F32","shape":[1152921504606846978],"data_offsets":[0,8]`), "more elements"},
		{"too few bytes", one(`"dtype":"F32","shape":[3],"data_offsets":[0,8]`), "hold 8 bytes, want the 12"},
		{"too many bytes", one(`"dtype":"F32","shape":[1],"data_offsets":[0,8]`), "hold 8 bytes, want the 4"},
		{"half a byte", one(`"dtype":"F4","shape":[15],"data_offsets":[0,8]`), "inside a byte"},
		{"backwards", one(`"dtype":"F32","shape":[2],"data_offsets":[8,0]`), "hold -8 bytes"},
		{"negative", one(`"dtype":"F32","shape":[2],"data_offsets":[-8,0]`), "want the 8"},
		{"beyond the end", one(`"dtype":"F32","shape":[4],"data_offsets":[0,16]`), "end at byte 16 of the data, but the file has 8"},
		{"before the end", one(`"dtype":"F32","shape":[1],"data_offsets":[0,4]`), "end at byte 4 of the data, but the file has 8"},
		{"a gap at the start", one(`"dtype":"F32","shape":[1],"data_offsets":[4,8]`), "leaves a gap"},
		{"a gap", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[3,5]}}`, 5), "leaves a gap"},
		{"overlap", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[1,3]}}`, 3), "overlaps"},
		{"the same bytes", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2), "overlaps"},
		{"empty within another", file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"U8","shape":[0],"data_offsets":[1,1]}}`, 2), "overlaps"},
		{"data without tensors", file(`{}`, 1), "file has 1 bytes"},
	}
	for _, test := range tests {
		if _, err := ParseHeader(test.file, int64(len(test.file))); err == nil || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v, want an error with %q", test.name, err, test.want)
		}
	}
	whole := file(`{"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]}}`, 2)
	for n := range len(whole) {
		if _, err := ParseHeader(whole[:n], int64(n)); err == nil {
			t.Errorf("cut to %d of %d bytes and read", n, len(whole))
		}
	}
	if _, err := ParseHeader(whole[:20], int64(len(whole))); err == nil || !strings.Contains(err.Error(), "only 12 of them at hand") {
		t.Errorf("part of a header: %v", err)
	}
}

// Files of other programs describe tensors of any type.
func TestTensorBytes(t *testing.T) {
	tests := []struct {
		dtype DType
		shape []int
		want  int64
	}{
		{"F32", nil, 4}, {"F32", []int{2, 3}, 24}, {"BF16", []int{3}, 6}, {"F8_E4M3", []int{3}, 3}, {"I64", []int{2}, 16},
		{"BOOL", []int{5}, 5}, {"F4", []int{4}, 2}, {"F6_E2M3", []int{4}, 3}, {"F64", []int{0, 1 << 40}, 0}, {"U8", []int{1 << 50}, 1 << 50},
	}
	for _, test := range tests {
		if got, err := tensorBytes(test.dtype, test.shape); got != test.want || err != nil {
			t.Errorf("%s %v: %d, %v, want %d", test.dtype, test.shape, got, err, test.want)
		}
	}
}

func TestAppendHeader(t *testing.T) {
	for n := range 40 { // every alignment
		entries := []Entry{{Name: strings.Repeat("n", n+1), DType: F32, Shape: []int{n, 2}}, {Name: "last", DType: "U8", Shape: []int{3}}}
		raw, err := AppendHeader(nil, entries)
		if err != nil {
			t.Fatal(err)
		}
		h, err := ParseHeader(raw, int64(len(raw)+8*n+3))
		if err != nil || !slices.EqualFunc(h.Entries, entries, sameEntry) || h.DataStart != int64(len(raw)) || len(raw)%8 != 0 {
			t.Errorf("%s: %+v, %v", raw, h, err)
		}
	}
	huge := Entry{DType: "U8", Shape: []int{1 << 56}}
	entries := make([]Entry, 200)
	for i := range entries {
		entries[i] = huge
		entries[i].Name = string(rune('a' + i))
	}
	if _, err := AppendHeader(nil, entries); err == nil || !strings.Contains(err.Error(), "longer than can be addressed") {
		t.Errorf("a file of 2^63 bytes and more: %v", err)
	}
}

// With the same bits, whichever way floats are turned into bytes.
func TestPortableFloats(t *testing.T) {
	defer func(native bool) { nativeLittle = native }(nativeLittle)
	p := publication(1, 1)
	p.Model[0].Data[3] = math.Float32frombits(1 << 31) // minus zero
	p.Model[0].Data[4] = math.SmallestNonzeroFloat32
	p.Model = append(p.Model, largePublication(1).Model...)
	dir := t.TempDir()
	write, read := openTest(t, dir, Options{}), openTest(t, dir, Options{})
	for _, native := range []bool{nativeLittle, false} {
		nativeLittle = native
		if err := write.Publish(t.Context(), p); err != nil { // the second: the same content
			t.Fatal(err)
		}
		expect(t, read, p)
	}
}

// Values of a file whose data is not aligned are read all the same.
func TestUnalignedData(t *testing.T) {
	raw := file(`{"a":{"dtype":"F32","shape":[2],"data_offsets":[0,8]}}`+" ", 0)
	if len(raw)%4 == 0 {
		t.Fatal("aligned")
	}
	raw = appendLittle(raw, []float32{1.5, -2})
	words := make([]float32, (len(raw)+3)/4)
	copy(bytesOf(words), raw)
	tensors, err := decode(words, int64(len(raw)), []TensorInfo{{Name: "a", DType: F32, Shape: []int{2}}})
	if err != nil || !slices.Equal(tensors[0].Data, []float32{1.5, -2}) {
		t.Errorf("%v, %v", tensors, err)
	}
}

// The fast test for broken values agrees with the plain one, whatever the bits.
func TestFirstBroken(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 1))
	values := make([]float32, 9001)
	for i := range values {
		for values[i] = float32(math.NaN()); values[i]-values[i] != 0; {
			values[i] = math.Float32frombits(rng.Uint32())
		}
	}
	values[17], values[18] = math.MaxFloat32, -math.MaxFloat32
	for _, n := range []int{0, 1, 2, 7, 8, 9, 4095, 4096, 4097, len(values)} {
		if got := firstBroken(values[:n]); got != -1 {
			t.Errorf("%v at %d of %d is finite", values[got], got, n)
		}
	}
	broken := []uint32{0x7f800000, 0xff800000, 0x7fc00000, 0xffffffff, 0x7f800001}
	for i := 0; i < len(values); i += 1 + i/50 {
		good := values[i]
		values[i] = math.Float32frombits(broken[i%len(broken)])
		if got := firstBroken(values); got != i {
			t.Fatalf("%v at %d found at %d", values[i], i, got)
		}
		values[i] = good
	}
}

// Whatever the bytes, ParseHeader ends; and what it accepts is a file in which
// every byte has one owner, and which can be written again.
func FuzzParseHeader(f *testing.F) {
	e := encoder{}
	var buffer bytes.Buffer
	if _, err := e.encode(&buffer, part{ModelName, publication(1, 1).Model}); err != nil {
		f.Fatal(err)
	}
	f.Add(buffer.Bytes())
	f.Add(file(`{"__metadata__":{"a":"b"},"a":{"dtype":"U8","shape":[2],"data_offsets":[0,2]},"b":{"dtype":"I64","shape":[1],"data_offsets":[2,10]}}`, 10))
	f.Add(file(`{"a":{"dtype":"F4","shape":[3,2],"data_offsets":[0,3]}}`, 3))
	f.Fuzz(func(t *testing.T, raw []byte) {
		h, err := ParseHeader(raw, int64(len(raw)))
		if err != nil {
			return
		}
		owners := make([]int, int64(len(raw))-h.DataStart)
		for _, e := range h.Entries {
			for i := e.Begin; i < e.End; i++ {
				owners[i]++
			}
		}
		if i := slices.IndexFunc(owners, func(n int) bool { return n != 1 }); i >= 0 {
			t.Fatalf("byte %d of the data has %d owners", i, owners[i])
		}
		// Another way to read it: the names are those of the JSON object, each once.
		var members map[string]json.RawMessage
		if err := json.Unmarshal(raw[lengthBytes:h.DataStart], &members); err != nil {
			t.Fatal(err)
		}
		delete(members, metadataName)
		if len(members) != len(h.Entries) {
			t.Fatalf("%d tensors, want %d", len(h.Entries), len(members))
		}
		again(t, h, int64(len(owners)))
	})
}

// again writes a header and reads it back.
func again(t *testing.T, h Header, dataBytes int64) {
	entries := slices.Clone(h.Entries)
	for _, e := range entries {
		if e.Name == "" {
			return // read, but not written
		}
	}
	raw, err := AppendHeader(nil, entries)
	if err != nil {
		t.Fatal(err)
	}
	second, err := ParseHeader(raw, int64(len(raw))+dataBytes)
	if err != nil || !slices.EqualFunc(second.Entries, h.Entries, sameEntry) {
		t.Fatalf("written again: %+v, %v, want %+v", second.Entries, err, h.Entries)
	}
}

// Whatever a file holds, decoding it ends in an error or in what the manifest says.
func FuzzDecode(f *testing.F) {
	p := publication(1, 1)
	infos := []TensorInfo{}
	for _, t := range p.Model {
		infos = append(infos, TensorInfo{Name: t.Name, DType: F32, Shape: t.Shape})
	}
	e := encoder{}
	var buffer bytes.Buffer
	if _, err := e.encode(&buffer, part{ModelName, p.Model}); err != nil {
		f.Fatal(err)
	}
	f.Add(buffer.Bytes())
	f.Fuzz(func(t *testing.T, raw []byte) {
		words := make([]float32, (len(raw)+3)/4)
		copy(bytesOf(words), raw)
		tensors, err := decode(words, int64(len(raw)), infos)
		if err != nil {
			return
		}
		for i, got := range tensors {
			if want := p.Model[i]; got.Name != want.Name || !slices.Equal(got.Shape, want.Shape) || len(got.Data) != len(want.Data) {
				t.Fatalf("tensor %d is %s %v of %d values, want %s %v", i, got.Name, got.Shape, len(got.Data), want.Name, want.Shape)
			}
		}
	})
}

// Whatever a manifest holds, reading it ends; only one that hashes is accepted,
// and then it is written again as it was.
func FuzzParseManifest(f *testing.F) {
	s := openTest(f, f.TempDir(), Options{})
	expectPublish(f, s, publication(1, 1))
	m, err := s.Manifest(1)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(m.append(nil)[:10], true)
	text := m.append(nil)
	f.Add(text[:len(text)-hashTail], true)
	f.Add(text, false)
	f.Fuzz(func(t *testing.T, text []byte, seal bool) {
		if seal { // so that more than the hash is tried
			text = sealManifest(slices.Clone(text), 0)
		}
		m, err := parseManifest(text, 1, "path")
		if err != nil {
			return
		}
		if m.Version != 1 || m.Kind != KindFull {
			t.Fatalf("accepted %+v", m)
		}
		if second, err := parseManifest(m.append(nil), 1, "path"); err != nil || len(second.Files) != len(m.Files) || len(second.Tensors) != len(m.Tensors) {
			t.Fatalf("written again: %+v, %v, want %+v", second, err, m)
		}
	})
}
