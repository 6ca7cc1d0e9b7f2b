package rows

import (
	"bytes"
	"context"
	"encoding/base64"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/iotest"
	"testing/synctest"

	"github.com/headway-rl/headway/loop/channel"
)

// A stream that holds the rows of one channel does not wait for room for another's. Another stream may be waiting for what it holds.
func TestNoStreamWaitsWithRowsInHand(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		forms := []Form{experts(channel.U8, Int32, 4, 2), experts(channel.U8, Int32, 4, 2)}
		forms[1].Name = "x-other"
		var fields []*Field
		for i := range forms {
			one := func() int { return 1 }
			fields = append(fields, NewField(FieldOptions{Form: &forms[i], Key: forms[i].Name, Likely: one, Most: one}))
		}
		text := base64.StdEncoding.EncodeToString(numbers(4, 1, 2))
		from, to := io.Pipe()
		read := make(chan struct{})
		go func() {
			defer close(read)
			_, _ = io.Copy(io.Discard, NewReader(t.Context(), from, fields))
		}()
		_, _ = fmt.Fprintf(to, `{"routed_experts":"%s",`, text)
		synctest.Wait()
		ctx, cancel := context.WithCancel(t.Context())
		var other memory
		go func() {
			if why := other.reserve(ctx, RoomBytes, true); why != Cancelled {
				t.Errorf("there is room for all while a stream holds some: %q", why)
			}
		}()
		synctest.Wait()
		go func() {
			_, _ = fmt.Fprintf(to, `"x-other":"%s"}`, text)
			_ = to.Close()
		}()
		synctest.Wait()
		select {
		case <-read:
		default:
			t.Error("the stream waits for who waits for it")
		}
		cancel()
		<-read
		if _, n, why := fields[0].Rows(); n != 1 || why != "" {
			t.Errorf("%d rows of the first, %q", n, why)
		}
		if _, _, why := fields[1].Rows(); why != NoRoom {
			t.Errorf("rows of the second: %q", why)
		}
		for _, f := range fields {
			f.Release()
		}
	})
}

func experts(dtype channel.DType, wire Wire, experts int, row ...int) Form {
	return Form{Header: channel.Header{Name: channel.RoutedExperts, DType: dtype, Row: row, Align: channel.Passes}, Wire: wire, Experts: experts}
}

// numbers writes ids of so many bytes.
func numbers(width int, ids ...int64) []byte {
	var out []byte
	for _, id := range ids {
		var one [8]byte
		binary.LittleEndian.PutUint64(one[:], uint64(id))
		out = append(out, one[:width]...)
	}
	return out
}

// through reads events through a Reader, a few bytes at a time, and returns what it passes on.
func through(t *testing.T, form Form, most int, events string, step func(io.Reader) io.Reader) (string, *Field) {
	t.Helper()
	f := NewField(FieldOptions{Form: &form, Key: form.Name, Likely: func() int { return min(most, 1) }, Most: func() int { return most }})
	t.Cleanup(f.Release)
	r := NewReader(t.Context(), step(strings.NewReader(events)), []*Field{f})
	defer r.Close()
	passed, err := io.ReadAll(r)
	if err != nil {
		t.Fatal(err)
	}
	return string(passed), f
}

func event(field, file string) string {
	return `data: {"a":"\"routed_experts\":\"","choices":[{"token_ids":[1],"routed_experts":` + field + `,"b":"routed_experts"}]}` + "\n\n" + file
}

func TestRowsAreTakenOutOfAStream(t *testing.T) {
	ids := []int64{1, 2, 0, 3, 3, 1, 2, 0, 0, 1, 3, 2} // three rows of two layers with two experts
	for _, c := range []struct {
		name string
		form Form
		file []byte
		want []byte
	}{
		{"a file of bytes", experts(channel.U8, Numpy, 4, 2, 2), npy(numbers(1, ids...), "|u1", 3, 2, 2), numbers(1, ids...)},
		{"a file of bytes, kept wider", experts(channel.U16, Numpy, 0, 2, 2), npy(numbers(1, ids...), "|u1", 3, 2, 2), numbers(2, ids...)},
		{"a file of words", experts(channel.U16, Numpy, 300, 2, 2), npy(numbers(2, ids...), "<u2", 3, 2, 2), numbers(2, ids...)},
		{"a file of words, kept narrower", experts(channel.U8, Numpy, 4, 2, 2), npy(numbers(2, ids...), "<u2", 3, 2, 2), numbers(1, ids...)},
		{"int32 to bytes", experts(channel.U8, Int32, 4, 2, 2), numbers(4, ids...), numbers(1, ids...)},
		{"int32 to words", experts(channel.U16, Int32, 0, 2, 2), numbers(4, ids...), numbers(2, ids...)},
		{"int32 as they are, -1 too", experts(channel.I32, Int32, 0, 2, 2), numbers(4, append(slices.Clone(ids[:11]), -1)...), numbers(4, append(slices.Clone(ids[:11]), -1)...)},
	} {
		for i, step := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.HalfReader, iotest.DataErrReader} {
			text := base64.StdEncoding.EncodeToString(c.file)
			for _, colon := range []string{"", " "} {
				passed, f := through(t, c.form, 3, event(colon+`"`+text+`"`, "data: [DONE]\n\n"), step)
				if want := event(colon+`""`, "data: [DONE]\n\n"); passed != want {
					t.Errorf("%s, %d: passes on %q, want %q", c.name, i, passed, want)
				}
				if data, n, why := f.Rows(); n != 3 || why != "" || !bytes.Equal(data, c.want) {
					t.Errorf("%s, %d: %d rows %v, %q", c.name, i, n, data, why)
				}
			}
		}
	}
	for _, nothing := range []string{"null", `[[1,2]]`} {
		passed, f := through(t, experts(channel.U8, Numpy, 4, 2, 2), 3, event(nothing, ""), iotest.OneByteReader)
		if _, _, why := f.Rows(); passed != event(nothing, "") || why != Missing {
			t.Errorf("%s: passes on %q, %q", nothing, passed, why)
		}
	}
}

func TestTextsThatAreNoRows(t *testing.T) {
	form, wide := experts(channel.U8, Numpy, 4, 2, 2), experts(channel.U8, Int32, 4, 2, 2)
	row := numbers(1, 1, 2, 0, 3)
	encode := base64.StdEncoding.EncodeToString
	good := encode(npy(row, "|u1", 1, 2, 2))
	for _, c := range []struct {
		name string
		form Form
		text string
		want Reason
	}{
		{"wrong dtype", form, encode(npy(numbers(4, 1, 2, 0, 3), "<i4", 1, 2, 2)), Odd},
		{"another shape", form, encode(npy(row, "|u1", 1, 1, 4)), Odd},
		{"by columns", form, encode(bytes.Replace(npy(row, "|u1", 1, 2, 2), []byte("False"), []byte("True "), 1)), Odd},
		{"no file", form, encode(bytes.Repeat(row, 99)), Odd},
		{"an empty text", form, "", Odd},
		{"half a head", form, good[:40], Odd},
		{"half a row", form, good[:len(good)-4], Odd},
		{"more than it says", form, encode(append(npy(row, "|u1", 1, 2, 2), 1)), Odd},
		{"rows one too many for all that was asked for", form, encode(npy(bytes.Repeat(row, 4), "|u1", 4, 2, 2)), Count},
		{"a shape without end", form, encode(npy(row, "|u1", 1<<31-1, 2, 2)), Count},
		{"no base64", form, "k05V!", Odd},
		{"no base64 in int32", wide, "AAA!AAAA", Odd},
		{"text behind the padding", wide, "AQAAAA==AQAA", Odd},
		{"half a number", wide, encode([]byte{1, 0}), Odd},
		{"half a row of int32", wide, encode(numbers(4, 1, 2)), Odd},
		{"-1 in an unsigned dtype", wide, encode(numbers(4, 1, 2, 0, -1)), Negative},
		{"ids beyond a byte", wide, encode(numbers(4, 1, 2, 0, 256)), Beyond},
		{"int32 rows one too many", wide, encode(bytes.Repeat(numbers(4, 1, 2, 0, 3), 4)), Count},
	} {
		for _, step := range []func(io.Reader) io.Reader{iotest.OneByteReader, iotest.DataErrReader} {
			passed, f := through(t, c.form, 3, event(`"`+c.text+`"`, ""), step)
			if _, n, why := f.Rows(); why != c.want || n != 0 {
				t.Errorf("%s: %d rows, %q, want %q", c.name, n, why, c.want)
			}
			if want := event(`""`, ""); passed != want {
				t.Errorf("%s: passes on %q", c.name, passed)
			}
		}
	}
}

func TestJudge(t *testing.T) {
	for _, c := range []struct {
		name string
		form Form
		ids  []int64
		want Reason
	}{
		{"good", experts(channel.U8, Numpy, 4, 2, 2), []int64{1, 2, 0, 3, 3, 1, 2, 0}, ""},
		{"a dense layer", experts(channel.U8, Numpy, 4, 2, 2), []int64{0, 0, 0, 3, 0, 0, 2, 0}, ""},
		{"ids beyond the experts", experts(channel.U8, Numpy, 4, 2, 2), []int64{1, 4, 0, 3}, Beyond},
		{"ids in a layer that are not distinct", experts(channel.U8, Numpy, 4, 2, 2), []int64{1, 2, 3, 3}, Repeated},
		{"all-zero MoE layers", experts(channel.U8, Numpy, 4, 2, 2), []int64{1, 2, 0, 3, 0, 0, 2, 0}, Zeros},
		{"all zero", experts(channel.U8, Numpy, 4, 2, 2), make([]int64, 8), Zeros},
		{"words", experts(channel.U16, Numpy, 384, 2, 2), []int64{383, 2, 0, 300}, ""},
		{"words beyond", experts(channel.U16, Numpy, 384, 2, 2), []int64{384, 2, 0, 300}, Beyond},
		{"words twice", experts(channel.U16, Numpy, 384, 1, 4), []int64{1, 300, 2, 300}, Repeated},
		{"layers that are not known", experts(channel.U16, Int32, 8, 4), []int64{1, 1, 7, 7}, ""},
		{"layers that are not known, beyond", experts(channel.U16, Int32, 8, 4), []int64{1, 1, 7, 8}, Beyond},
		{"one expert, which may be the first", experts(channel.U8, Numpy, 4, 2, 1), []int64{0, 0, 0, 1}, ""},
	} {
		if got := c.form.Judge(numbers(c.form.DType.Bytes(), c.ids...)); got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	known := experts(channel.U8, Numpy, 4, 2, 2)
	known.Routed = []bool{true, true}
	if got := known.Judge(numbers(1, 0, 0, 0, 3, 0, 0, 2, 0)); got != Zeros {
		t.Errorf("a layer that had experts in the probe: %q", got)
	}
}

// dumbJudge is Judge of one row after the other, without any of its means.
func dumbJudge(form Form, data []byte) bool {
	layers, topK := form.Row[0], form.Row[1]
	zeros, some := make([]int, layers), false
	rows := len(data) / layers / topK
	for i := range rows * layers {
		ids := data[i*topK : (i+1)*topK]
		sorted := slices.Sorted(slices.Values(ids))
		if int(sorted[topK-1]) >= form.Experts {
			return false
		}
		if sorted[topK-1] == 0 {
			zeros[i%layers]++
			continue
		}
		some = true
		if len(slices.Compact(sorted)) < topK {
			return false
		}
	}
	return some && !slices.ContainsFunc(zeros, func(n int) bool { return n > 0 && n < rows })
}

func TestEightExpertsAreJudgedAsAnyNumber(t *testing.T) {
	r := rand.New(rand.NewPCG(3, 4))
	bad := 0
	for range 20000 {
		form := experts(channel.U8, Numpy, []int{9, 64, 127, 128, 129, 200, 255, 256}[r.IntN(8)], 1+r.IntN(3), 8)
		data := distinctRows(1+r.IntN(3), form.Row[0], 8, 8)
		for i := range data { // ids of the highest experts are the ones that are easily got wrong
			if r.IntN(2) == 0 {
				data[i] += byte(form.Experts - 8)
			}
		}
		for range r.IntN(3) {
			switch i := r.IntN(len(data)); r.IntN(3) {
			case 0:
				data[i] = byte(form.Experts)
			case 1:
				data[i] = data[i/8*8+r.IntN(8)]
			case 2:
				clear(data[i/8*8:][:8])
			}
		}
		want, got := dumbJudge(form, data), form.Judge(data) == ""
		if got != want {
			t.Fatalf("%d experts, rows %v: %t, want %t", form.Experts, data, got, want)
		}
		if !got {
			bad++
		}
	}
	if bad < 5000 || bad > 15000 {
		t.Errorf("%d of 20000 are bad", bad)
	}
}

func TestMemoryIsBoundedAndGivenBack(t *testing.T) {
	form := experts(channel.U8, Numpy, 128, 94, 8)
	rows := RoomBytes/(94*8) + 1
	text := base64.StdEncoding.EncodeToString(npy(nil, "|u1", rows, 94, 8))
	_, f := through(t, form, 1<<30, event(`"`+text+`"`, ""), iotest.DataErrReader)
	if _, _, why := f.Rows(); why != NoRoom {
		t.Errorf("rows that are more than the memory: %q", why)
	}
	if !room.TryAcquire(RoomBytes) {
		t.Fatal("memory is still held")
	}
	defer room.Release(RoomBytes)
	ctx, cancel := context.WithCancel(t.Context())
	small := base64.StdEncoding.EncodeToString(npy(distinctRows(2, 94, 8, 128), "|u1", 2, 94, 8))
	waiting := NewField(FieldOptions{Form: &form, Key: form.Name, Likely: func() int { return 2 }, Most: func() int { return 2 }})
	r := NewReader(ctx, &cancelling{strings.NewReader(event(`"`+small+`"`, "")), cancel}, []*Field{waiting})
	defer r.Close()
	if _, err := io.ReadAll(r); !errors.Is(err, context.Canceled) {
		t.Errorf("a reader that waits for memory ends with %v", err)
	}
	if _, _, why := waiting.Rows(); why != Cancelled {
		t.Errorf("rows whose wait was given up: %q", why)
	}
}

// cancelling cancels once it has been read.
type cancelling struct {
	from   io.Reader
	cancel func()
}

func (c *cancelling) Read(p []byte) (int, error) {
	n, err := c.from.Read(p)
	c.cancel()
	return n, err
}

func TestLearn(t *testing.T) {
	encode := base64.StdEncoding.EncodeToString
	model := Shape{Layers: 3, TopK: 2, Experts: 8}
	ids := []int64{0, 0, 1, 2, 3, 4, 0, 0, 5, 6, 7, 0}
	for _, c := range []struct {
		name string
		wire Wire
		text string
		with Shape
		want string
	}{
		{"a file", Numpy, encode(npy(numbers(1, ids...), "|u1", 2, 3, 2)), model, "u8 [3 2] 8 [false true true]"},
		{"a file, and an unknown model", Numpy, encode(npy(numbers(1, ids...), "|u1", 2, 3, 2)), Shape{}, "u8 [3 2] 0 [false true true]"},
		{"int32", Int32, encode(numbers(4, ids...)), model, "u8 [3 2] 8 [false true true]"},
		{"int32 of many experts", Int32, encode(numbers(4, ids...)), Shape{3, 2, 384}, "u16 [3 2] 384 [false true true]"},
		{"int32, and an unknown model", Int32, encode(numbers(4, ids...)), Shape{}, "u16 [6] 0 []"},
		{"zeros", Numpy, encode(npy(make([]byte, 12), "|u1", 2, 3, 2)), model, "of its rows, they have a layer without an expert"},
		{"beyond", Int32, encode(numbers(4, 0, 0, 1, 2, 3, 8, 0, 0, 5, 6, 7, 0)), model, "of its rows, they have an id beyond the last one"},
		{"one too few", Numpy, encode(npy(numbers(1, ids[:6]...), "|u1", 1, 3, 2)), model, "6 bytes and 1 rows for 2 passes"},
		{"no file", Numpy, encode(numbers(4, ids...)), model, "its rows are no .npy file of u8 or u16 with three dimensions"},
		{"no base64", Int32, "!", model, "its rows are no base64"},
	} {
		form, err := Learn(channel.RoutedExperts, c.wire, c.text, 2, c.with)
		got := fmt.Sprintf("%s %v %d %v", form.DType, form.Row, form.Experts, form.Routed)
		if err != nil {
			got = err.Error()
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
}

// FuzzDecodeText holds the decoder to encoding/base64.
func FuzzDecodeText(f *testing.F) {
	r := rand.New(rand.NewPCG(5, 6))
	for n := range 60 {
		data := make([]byte, n)
		for i := range data {
			data[i] = byte(r.Uint32())
		}
		f.Add([]byte(base64.StdEncoding.EncodeToString(data)))
	}
	f.Add([]byte("AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA!AAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAAA="))
	f.Fuzz(func(t *testing.T, text []byte) {
		text = text[:len(text)&^3]
		want, got := make([]byte, len(text)), make([]byte, len(text)/4*3)
		n, err := base64.StdEncoding.Decode(want, text)
		m, gotErr := decodeText(got, text)
		if bytes.ContainsAny(text, "\r\n") { // of which encoding/base64 reads past some
			return
		}
		if (err == nil) != (gotErr == nil) || err == nil && !bytes.Equal(want[:n], got[:m]) {
			t.Fatalf("%q: %v %v, want %v %v", text, got[:m], gotErr, want[:n], err)
		}
	})
}

// TestNumbersChangeTheirType holds change to a plain one.
func TestNumbersChangeTheirType(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	for range 20000 {
		number, width := []int{1, 2, 4}[r.IntN(3)], 1+r.IntN(2)
		ids := make([]int64, 1+r.IntN(12))
		want := Reason("")
		for i := range ids {
			if ids[i] = int64(r.IntN(256)); r.IntN(20) == 0 {
				ids[i] = 1 << r.IntN(8*number)
			}
			if ids[i] >= 1<<(8*width) && want == "" {
				want = Beyond
			}
			if ids[i] >= 1<<31 {
				want = Negative
			}
		}
		to := make([]byte, width*len(ids))
		if got := change(to, numbers(number, ids...), width, number); got != want || got == "" && !bytes.Equal(to, numbers(width, ids...)) {
			t.Fatalf("%v of %d bytes to %d: %v, %q, want %q", ids, number, width, to, got, want)
		}
	}
}

// Before an answer was seen, the form is that of the model's own numbers, and says no more than they do.
func TestExpected(t *testing.T) {
	for _, c := range []struct {
		name  string
		known Shape
		want  string
	}{
		{channel.RoutedExperts, Shape{Layers: 94, TopK: 8, Experts: 128}, "u8 [94 8] passes"},
		{channel.RoutedExperts, Shape{Layers: 61, TopK: 8, Experts: 384}, "u16 [61 8] passes"},
		{channel.RoutedExperts, Shape{}, "u16 [] passes"},
		{channel.SamplingMask, Shape{}, "i32 [] sampled"},
		{"indexer_topk", Shape{Layers: 61}, "i32 [] passes"},
	} {
		h := Expected(c.name, c.known)
		if got := fmt.Sprint(h.DType, " ", h.Row, " ", h.Align); h.Name != c.name || got != c.want || h.Check() != nil || h.Ragged != (c.name == channel.SamplingMask) {
			t.Errorf("%s of %+v: %+v, want %s", c.name, c.known, h, c.want)
		}
	}
}
