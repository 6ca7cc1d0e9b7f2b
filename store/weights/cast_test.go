package weights

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
)

// goldenFloats are what numpy and ml_dtypes make of floats: testdata/golden.py.
func goldenFloats(t testing.TB) (half string, eight []float32, records, matrix []byte) {
	t.Helper()
	raw, err := os.ReadFile("testdata/golden.bin")
	if err != nil {
		t.Fatal(err)
	}
	half, raw = hashText(raw[:32]), raw[32:]
	eight = make([]float32, 256)
	decodeLittle(eight, raw)
	raw = raw[4*256:]
	return half, eight, raw[:8192*7], raw[8192*7:]
}

func isNaN(v float32) bool { return v != v }

func TestFloatsAgainstOthers(t *testing.T) {
	half, eight, records, matrix := goldenFloats(t)
	values := make([]float32, 65536)
	for i := range values {
		if values[i] = f16Value(uint16(i)); isNaN(values[i]) {
			values[i] = 0
		}
	}
	if found := sumText(appendLittle(nil, values)); found != half {
		t.Errorf("the values of F16 have %s, want %s", found, half)
	}
	for i, want := range eight {
		got := e4m3Value(byte(i))
		if got != want && !(isNaN(got) && want == 0) {
			t.Fatalf("E4M3 %#02x is %v, want %v", i, got, want)
		}
		if again := e4m3Bits(got); again != byte(i) && !isNaN(got) {
			t.Fatalf("E4M3 %#02x comes back as %#02x", i, again)
		}
	}
	for ; len(records) > 0; records = records[7:] {
		v := math.Float32frombits(binary.LittleEndian.Uint32(records))
		if got, want := bf16Bits(v), binary.LittleEndian.Uint16(records[4:]); got != want {
			t.Fatalf("%v as BF16 is %#04x, want %#04x", v, got, want)
		}
		if got, want := e4m3Bits(v), records[6]; math.Abs(float64(v)) <= 448 && got != want {
			t.Fatalf("%v as E4M3 is %#02x, want %#02x", v, got, want)
		}
	}
	values = make([]float32, 40*50)
	decodeLittle(values, matrix)
	got := Cast{DType: F8E4M3, Scale: ScaleChannel}.quantise(nil, values, 40, 50)
	scales, elements := matrix[4*len(values):4*len(values)+4*40], matrix[4*len(values)+4*40:]
	if !bytes.Equal(got[:len(values)], elements) || !bytes.Equal(got[len(values):], scales) {
		t.Error("a matrix quantised by rows is another")
	}
}

func TestFloatEdges(t *testing.T) {
	inf := float32(math.Inf(1))
	for v, want := range map[float32]byte{449: 0x7e, 1e30: 0x7e, inf: 0x7e, -inf: 0xfe, 0: 0, 0x1p-10: 0, 0x1.8p-10: 1, 0x1p-9: 1} {
		if got := e4m3Bits(v); got != want {
			t.Errorf("%v as E4M3 is %#02x, want %#02x", v, got, want)
		}
	}
	nan := float32(math.NaN())
	if e4m3Bits(nan)&0x7f != 0x7f || !isNaN(bf16Value(bf16Bits(nan))) || !isNaN(bf16Value(bf16Bits(math.Float32frombits(0x7f800001)))) {
		t.Error("a NaN is a number")
	}
	for i := range 1 << 16 {
		if v := bf16Value(uint16(i)); !isNaN(v) && bf16Bits(v) != uint16(i) {
			t.Fatalf("BF16 %#04x comes back as %#04x", i, bf16Bits(v))
		}
	}
	if scaleOf(0) != 1 || largest([]float32{nan, -3, 2}) != 3 {
		t.Error("scale")
	}
}

// A derived cast is computed once, and its values times their scales are near the source's.
func TestCast(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	const rows, columns = 200, 300
	weight := make([]float32, rows*columns)
	for i := range weight {
		weight[i] = float32(rng.NormFloat64())
	}
	data := appendLittle(nil, weight)
	data = append(appendLittle(data, []float32{1, 2, 3}), 9, 9)
	file := tensorFile(t, data, Entry{Name: "l.weight", DType: F32, Shape: []int{rows, columns}}, Entry{Name: "norm", DType: F32, Shape: []int{3}}, Entry{Name: "steps", DType: "U8", Shape: []int{2}})
	dir := t.TempDir()
	s := openTest(t, dir, Options{})
	if _, err := publishFiles(t, s, Description{Version: 1, Kind: KindFull}, add{ModelName, file}, add{OptimizerName, file}); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		cast      Cast
		name      string
		scaleName string
		scale     []int
		blockRows int
		blockCols int
	}{
		{Cast{DType: F8E4M3, Scale: ScaleTensor}, "cast-f8_e4m3-tensor", "l.weight_scale", []int{1}, rows, columns},
		{Cast{DType: F8E4M3, Scale: ScaleChannel}, "cast-f8_e4m3-channel", "l.weight_scale", []int{rows, 1}, 1, columns},
		{Cast{DType: F8E4M3, Scale: ScaleBlock}, "cast-f8_e4m3-block", "l.weight_scale_inv", []int{2, 3}, 128, 128},
	} {
		d, err := s.Cast(t.Context(), 1, test.cast)
		if err != nil {
			t.Fatal(err)
		}
		again, err := s.Cast(t.Context(), 1, test.cast)
		if err != nil || again.Files[0] != d.Files[0] || d.Name != test.name || len(d.Files) != 1 {
			t.Fatalf("%+v, %v, want %+v", again, err, d)
		}
		if len(d.Tensors) != 4 || d.Tensors[1].Name != test.scaleName || !slices.Equal(d.Tensors[1].Shape, test.scale) || d.Tensors[2].DType != BF16 || d.Tensors[3].DType != "U8" {
			t.Fatalf("tensors %+v", d.Tensors)
		}
		h, raw := readDerived(t, s, d)
		elements, scales := raw[h.Entries[0].Begin:h.Entries[0].End], make([]float32, (h.Entries[1].End-h.Entries[1].Begin)/4)
		decodeLittle(scales, raw[h.Entries[1].Begin:])
		perRow := (columns + test.blockCols - 1) / test.blockCols
		for i, want := range weight {
			scale := scales[i/columns/test.blockRows*perRow+i%columns/test.blockCols]
			got := e4m3Value(elements[i]) * scale
			if off := math.Abs(float64(got - want)); off > math.Abs(float64(want))/16*1.001+float64(scale)*0x1p-10 {
				t.Fatalf("%s: value %d is %v, want %v", test.name, i, got, want)
			}
		}
	}
	d, err := s.Cast(t.Context(), 1, Cast{DType: BF16})
	if err != nil || d.Tensors[0].DType != BF16 || d.Files[0].Size > int64(len(file))*6/10 {
		t.Fatalf("%+v, %v", d, err)
	}
	kept, err := s.Cast(t.Context(), 1, Cast{DType: F8E4M3, Scale: ScaleTensor, Keep: []string{"l."}})
	if err != nil || kept.Tensors[0].DType != BF16 || kept.Name == "cast-f8_e4m3-tensor" {
		t.Fatalf("%+v, %v", kept, err)
	}
	if err := s.Verify(t.Context(), 1); err != nil {
		t.Error(err)
	}
	damage(t, s.derivedDir(1, d.Name)+"/"+ModelName)
	if err := s.Verify(t.Context(), 1); !errors.As(err, new(*CorruptError)) {
		t.Errorf("a damaged cast: %v", err)
	}
	onlyVersions(t, dir, "v000001")
	for _, bad := range []Cast{{}, {DType: F8E4M3}, {DType: BF16, Scale: ScaleTensor}, {DType: "U8"}} {
		if _, err := s.Cast(t.Context(), 1, bad); err == nil || !strings.Contains(err.Error(), "want BF16") {
			t.Errorf("%+v: %v", bad, err)
		}
	}
	if _, err := s.Cast(t.Context(), loop.Version(9), Cast{DType: BF16}); !errors.Is(err, ErrNotFound) {
		t.Errorf("of no version: %v", err)
	}
}

// damage flips the last bit of a file.
func damage(t testing.TB, path string) {
	t.Helper()
	raw, err := os.ReadFile(path)
	if err == nil {
		raw[len(raw)-1] ^= 1
		err = os.WriteFile(path, raw, 0o644)
	}
	if err != nil {
		t.Fatal(err)
	}
}

func readDerived(t testing.TB, s *Store, d Derived) (Header, []byte) {
	t.Helper()
	file, size, err := s.OpenDerived(t.Context(), d, d.Files[0].Name, 0)
	if err != nil {
		t.Fatal(err)
	}
	raw, err := io.ReadAll(file)
	if err := errors.Join(err, file.Close()); err != nil {
		t.Fatal(err)
	}
	h, err := ParseHeader(raw, size)
	if err != nil {
		t.Fatal(err)
	}
	return h, raw[h.DataStart:]
}

func BenchmarkCast(b *testing.B) {
	rng := rand.New(rand.NewPCG(1, 1))
	values := make([]float32, 1024*4096)
	for i := range values {
		values[i] = float32(rng.NormFloat64())
	}
	raw := appendBF16(nil, values)
	e := &Entry{Name: "a", DType: BF16, Shape: []int{1024, 4096}, End: int64(len(raw))}
	for _, scale := range []Scale{ScaleTensor, ScaleChannel, ScaleBlock} {
		b.Run("BF16 to E4M3 by "+string(scale), func(b *testing.B) {
			b.SetBytes(int64(len(raw)))
			var out []byte
			for b.Loop() {
				out, values = Cast{DType: F8E4M3, Scale: scale}.tensor(e, raw, out[:0], values)
			}
		})
	}
	wide := &Entry{Name: "a", DType: F32, Shape: e.Shape, End: 2 * e.End}
	full := appendLittle(nil, values)
	b.Run("F32 to BF16", func(b *testing.B) {
		b.SetBytes(int64(len(full)))
		var out []byte
		for b.Loop() {
			out, values = Cast{DType: BF16}.tensor(wide, full, out[:0], values)
		}
	})
}

// e4m3Value is the value of an E4M3.
func e4m3Value(b byte) float32 {
	sign := uint32(b&0x80) << 24
	exponent, mantissa := uint32(b>>3&0xf), uint32(b&7)
	switch {
	case b&0x7f == 0x7f:
		return float32(math.NaN())
	case exponent == 0:
		return math.Float32frombits(sign | math.Float32bits(float32(mantissa)*0x1p-9))
	}
	return math.Float32frombits(sign | (exponent+127-7)<<23 | mantissa<<20)
}
