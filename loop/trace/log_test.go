package trace_test

import (
	"bytes"
	"errors"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/klauspost/compress/zstd"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// chunk is one append: what it adds, and the log's end after it.
type chunk struct {
	text []byte
	end  trace.Mark
}

// appends writes a trace as a run does, a few lines at a time, and ends a frame every few of them.
func appends(t testing.TB, l *trace.Log, enc *trace.Encoder, n int) (all []chunk) {
	t.Helper()
	l.SetFrameBytes(1000)
	for i := range n {
		var text []byte
		if enc.Position().Line == 0 {
			text = note(t, enc, text, trace.NoteHeader, trace.Header{Format: trace.Format})
		}
		for at := range 1 + i%3 {
			text = enc.AppendEvent(text, trace.Event{Event: loop.Event{Time: int64(1000*i + at), Kind: loop.Tick}})
			text = enc.AppendAction(text, enc.Seq(), loop.Action{Kind: loop.GroupQueued, Group: loop.GroupID(i)})
		}
		if err := l.Append(text, false); err != nil {
			t.Fatal(err)
		}
		all = append(all, chunk{text, l.End()})
	}
	return all
}

func note(t testing.TB, enc *trace.Encoder, text []byte, name string, data any) []byte {
	t.Helper()
	text, err := enc.AppendNote(text, name, data)
	if err != nil {
		t.Fatal(err)
	}
	return text
}

func openLog(t testing.TB, path string) *trace.Log {
	t.Helper()
	file, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { file.Close() })
	l, err := trace.OpenLog(file, trace.Packed(path), trace.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	return l
}

// packedLog is a packed log of several frames, finished.
func packedLog(t testing.TB, n int) (path string, data, text []byte, all []chunk) {
	t.Helper()
	path = filepath.Join(t.TempDir(), trace.FileName)
	l := openLog(t, path)
	all = appends(t, l, &trace.Encoder{}, n)
	if err := l.Finish(); err != nil {
		t.Fatal(err)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for _, c := range all {
		text = append(text, c.text...)
	}
	if bytes.Count(data, []byte{0x28, 0xb5, 0x2f, 0xfd}) < 3 {
		t.Fatal("want several frames")
	}
	return path, data, text, all
}

// Standard tools read a packed trace, and a reader of ours reads what standard tools packed.
func TestPackedIsStandard(t *testing.T) {
	_, data, text, _ := packedLog(t, 40)
	standard, err := zstd.NewReader(bytes.NewReader(data))
	if err != nil {
		t.Fatal(err)
	}
	defer standard.Close()
	if got, err := io.ReadAll(standard); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, want %d (%v)", len(got), len(text), err)
	}
	for _, level := range []zstd.EncoderLevel{zstd.SpeedFastest, zstd.SpeedBestCompression} {
		encoder, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(level))
		if err != nil {
			t.Fatal(err)
		}
		whole := encoder.EncodeAll(text, nil)
		if got, err := io.ReadAll(trace.NewText(bytes.NewReader(whole))); err != nil || !bytes.Equal(got, text) {
			t.Errorf("level %v: %d bytes, want %d (%v)", level, len(got), len(text), err)
		}
		for _, cut := range []int{len(whole) / 2, len(whole) - 1, len(whole) - 4} {
			var at *trace.Error
			if _, _, _, err := read(whole[:cut]); !errors.As(err, &at) || !at.Torn {
				t.Errorf("cut at byte %d of %d: %v", cut, len(whole), err)
			}
		}
	}
}

// A process that dies leaves any prefix of its last write. Wherever that is, the log goes on after the last append that is
// whole, and everything before is read.
func TestPackedCutAtEveryByte(t *testing.T) {
	path, data, text, all := packedLog(t, 15)
	for cut := 0; cut <= len(data); cut++ {
		if cut > 150 && cut < len(data)-350 {
			continue // the beginning, and the last frames
		}
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		whole, kept := 0, []byte{}
		for _, c := range all {
			if c.end.Offset <= int64(cut) {
				whole++
				kept = append(kept, c.text...)
			}
		}
		// A reader sees the lines that are whole, and perhaps those of a torn append that are.
		r, err := trace.NewReader(bytes.NewReader(data[:cut]))
		for err == nil {
			_, err = r.Next()
		}
		var torn *trace.Error
		switch {
		case errors.As(err, &torn) && (torn.Torn || errors.Is(err, trace.ErrEmpty)):
		case !errors.Is(err, io.EOF):
			t.Fatalf("cut at byte %d: %v", cut, err)
		}
		l := openLog(t, path)
		if whole < len(all) && l.End().Line == int64(bytes.Count(kept, newline)+bytes.Count(all[whole].text, newline)) {
			kept = append(kept, all[whole].text...) // all but the end of its frame
			whole++
		}
		if got := l.End(); got.Line != int64(bytes.Count(kept, newline)) || got.Offset > int64(cut) {
			t.Fatalf("cut at byte %d: %d lines, want those of %d appends", cut, got.Line, whole)
		}
		if info, err := os.Stat(path); err != nil || info.Size() != int64(cut) {
			t.Fatalf("cut at byte %d: opening changed the file (%v)", cut, err)
		}
		// It goes on with what is missing.
		for _, c := range all[whole:] {
			if err := l.Append(c.text, false); err != nil {
				t.Fatal(err)
			}
		}
		if err := l.Finish(); err != nil {
			t.Fatal(err)
		}
		again, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		decoder, err := zstd.NewReader(bytes.NewReader(again), zstd.WithDecoderConcurrency(1))
		if err != nil {
			t.Fatal(err)
		}
		if got, err := io.ReadAll(decoder); err != nil || !bytes.Equal(got, text) {
			t.Fatalf("cut at byte %d, gone on: %d bytes, want %d (%v)", cut, len(got), len(text), err)
		}
	}
}

// A disk may refuse to cut off a torn end for a while. The append that fails adds nothing, and the next one goes on with the
// frame that is open.
func TestPackedCutRefused(t *testing.T) {
	path := filepath.Join(t.TempDir(), trace.FileName)
	before := appends(t, openLog(t, path), &trace.Encoder{}, 3)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, append(whole, 0, 0, 0), 0o600); err != nil {
		t.Fatal(err)
	}
	refuses, err := os.Open(path) // a file that is only read cannot be cut
	if err != nil {
		t.Fatal(err)
	}
	defer refuses.Close()
	l, err := trace.OpenLog(refuses, true, trace.Mark{})
	if err != nil {
		t.Fatal(err)
	}
	if err := l.Append(before[2].text, false); err == nil {
		t.Fatal("a torn end was cut off a file that is only read")
	}
	file, err := os.OpenFile(path, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	l.SetFile(file)
	if err := l.Append([]byte("a line\n"), false); err != nil {
		t.Fatal(err)
	}
	src, err := l.From(trace.Mark{}, before[2].end.Line)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	if got, err := io.ReadAll(src); err != nil || string(got) != "a line\n" {
		t.Errorf("the line that was added is read as %q (%v)", got, err)
	}
}

// An append that takes several blocks is there whole or not at all.
func TestPackedCutBetweenBlocks(t *testing.T) {
	path := filepath.Join(t.TempDir(), trace.FileName)
	l, enc := openLog(t, path), &trace.Encoder{}
	before := appends(t, l, enc, 3)[2].end
	text, rng := []byte(nil), rand.New(rand.NewPCG(1, 2))
	for len(text) < 500_000 {
		text = enc.AppendEvent(text, trace.Event{Event: loop.Event{Time: rng.Int64(), Kind: loop.Tick}})
	}
	if err := l.Append(text, false); err != nil {
		t.Fatal(err)
	}
	after := l.End()
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for cut := before.Offset; cut <= after.Offset; cut += max((after.Offset-before.Offset)/40, 1) {
		if err := os.WriteFile(path, data[:cut], 0o600); err != nil {
			t.Fatal(err)
		}
		again := openLog(t, path)
		if got := again.End(); got.Line != before.Line && cut < after.Offset {
			t.Errorf("cut at byte %d of %d: the log ends at %v, want %v", cut, len(data), got, before)
		}
		if err := again.Append(text, false); err != nil {
			t.Fatal(err)
		}
		if kept, err := keeps(path); err != nil || kept != after.Line {
			t.Errorf("cut at byte %d of %d: %d lines, want %d (%v)", cut, len(data), kept, after.Line, err)
		}
	}
}

// After a loss of power a file may have its length and not its content.
func TestPackedZerosAreATornEnd(t *testing.T) {
	path, data, text, all := packedLog(t, 15)
	for _, cut := range []int64{all[9].end.Offset, all[13].end.Offset, int64(len(data))} {
		if err := os.WriteFile(path, append(bytes.Clone(data[:cut]), make([]byte, 5000)...), 0o600); err != nil {
			t.Fatal(err)
		}
		if got := openLog(t, path).End().Line; got != int64(bytes.Count(text, []byte("\n")))-lines(all, cut) {
			t.Errorf("zeros after byte %d: %d lines", cut, got)
		}
		if err := os.WriteFile(path, append(append(bytes.Clone(data[:cut]), make([]byte, 50)...), 1), 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.Open(path)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := trace.OpenLog(file, true, trace.Mark{}); err == nil || !strings.Contains(err.Error(), "damaged") {
			t.Errorf("zeros and something else after byte %d: %v", cut, err)
		}
		file.Close()
	}
}

// lines counts those that come after a place in the file.
func lines(all []chunk, offset int64) (n int64) {
	for _, c := range all {
		if c.end.Offset > offset {
			n += int64(bytes.Count(c.text, []byte("\n")))
		}
	}
	return n
}

// A flipped byte anywhere is an error that names the place, or changes no line: a few bits of a frame's header say only how
// much memory a reader needs.
func TestPackedFlippedBytes(t *testing.T) {
	_, data, text, _ := packedLog(t, 15)
	same, flips := 0, 0
	for i := range data {
		for _, bit := range []byte{0x01, 0x40} {
			damaged := bytes.Clone(data)
			damaged[i] ^= bit
			flips++
			_, _, _, err := read(damaged)
			var at *trace.Error
			switch {
			case errors.As(err, &at) && at.Line >= 1 && at.Line <= bytes.Count(text, []byte("\n"))+1:
			case err == nil:
				if got, err := io.ReadAll(trace.NewText(bytes.NewReader(damaged))); err != nil || !bytes.Equal(got, text) {
					t.Fatalf("flipped byte %d by %#x was not noticed (%v)", i, bit, err)
				}
				same++
			default:
				t.Fatalf("flipped byte %d by %#x: %v", i, bit, err)
			}
		}
	}
	if same > flips/50 {
		t.Errorf("%d of %d flips change no line, want few", same, flips)
	}
	damaged := bytes.Clone(data)
	damaged[len(data)/2] ^= 1
	if _, _, _, err := read(damaged); err == nil || !strings.Contains(err.Error(), "in the zstd frame at byte ") {
		t.Errorf("got %v, want the frame", err)
	}
}

// A flipped byte is no torn end: opening a log cuts off nothing that was appended, wherever the byte is. What opens has all
// lines, or one that a reader finds.
func TestPackedFlippedBytesAreNotTorn(t *testing.T) {
	path, data, text, all := packedLog(t, 15)
	if want := []byte{0x28, 0xb5, 0x2f, 0xfd, 0, 0x38}; bytes.Count(data, want) != bytes.Count(data, want[:4]) {
		t.Errorf("frames do not all begin with %x", want)
	}
	for _, end := range []int64{int64(len(data)), all[13].end.Offset} { // with an end of its last frame, and without
		want := int64(bytes.Count(text, newline)) - lines(all, end)
		for i := range data[:end] {
			if i > 10 && int64(i) < end-160 {
				continue
			}
			for _, bit := range []byte{0x01, 0x02, 0x08, 0x40} {
				damaged := bytes.Clone(data[:end])
				damaged[i] ^= bit
				if err := os.WriteFile(path, damaged, 0o600); err != nil {
					t.Fatal(err)
				}
				if kept, err := keeps(path); err == nil && kept != want {
					t.Errorf("byte %d of %d flipped by %#x: %d lines are kept, want all %d or an error", i, end, bit, kept, want)
				}
			}
		}
	}
}

// keeps opens a log and reads it, and returns how many lines it has.
func keeps(path string) (int64, error) {
	file, err := os.Open(path)
	if err != nil {
		return 0, err
	}
	defer file.Close()
	l, err := trace.OpenLog(file, true, trace.Mark{})
	if err != nil {
		return 0, err
	}
	src, err := l.From(trace.Mark{}, 0)
	if err != nil {
		return 0, err
	}
	defer src.Close()
	r, err := trace.NewReader(src)
	for err == nil {
		_, err = r.Next()
	}
	if !errors.Is(err, io.EOF) {
		return 0, err
	}
	return l.End().Line, nil
}

var newline = []byte("\n")

// A reader that has come to the end of a growing file goes on when there is more, and has got every line that was appended.
func TestPackedWhileItIsWritten(t *testing.T) {
	path := filepath.Join(t.TempDir(), trace.FileName)
	l, enc := openLog(t, path), &trace.Encoder{}
	appends(t, l, enc, 1)
	file, err := os.Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	grows := &growing{file: file}
	left := 60
	grows.more = func() bool {
		if left--; left < 0 {
			return false
		}
		if left%20 == 10 { // killed and gone on with
			l = openLog(t, path)
		}
		appends(t, l, enc, 1)
		return true
	}
	r, err := trace.NewReader(grows)
	for err == nil {
		if _, err = r.Next(); err == nil && r.Position().Line == enc.Position().Line {
			grows.seen++
		}
	}
	if !errors.Is(err, io.EOF) || r.Position() != enc.Position() || grows.seen != 61 {
		t.Errorf("%v after line %d, want line %d; the end was seen %d times, want 61", err, r.Position().Line, enc.Position().Line, grows.seen)
	}
}

// growing is a file that grows when it has been read to its end.
type growing struct {
	file *os.File
	more func() bool
	seen int
}

func (g *growing) Read(p []byte) (int, error) {
	for {
		if n, err := g.file.Read(p); n > 0 || !errors.Is(err, io.EOF) || !g.more() {
			return n, err
		}
	}
}

// Lines are read from any place that the log said it can be read from.
func TestLogFrom(t *testing.T) {
	for _, name := range []string{trace.FileName, trace.PlainName} {
		path := filepath.Join(t.TempDir(), name)
		l, enc := openLog(t, path), &trace.Encoder{}
		var text []byte
		marks := []trace.Mark{{}}
		for range 30 {
			for _, c := range appends(t, l, enc, 2) {
				text = append(text, c.text...)
			}
			if near := l.Near(); near.Line >= l.End().Line {
				t.Fatalf("%s: %d lines are before a place near the end, and %d in all", name, near.Line, l.End().Line)
			}
			marks = append(marks, l.Near())
		}
		if at := marks[len(marks)-1]; at.Line == 0 {
			t.Fatalf("%s: no place is found in %d bytes", name, len(text))
		}
		for range 2 {
			for _, mark := range marks {
				for _, line := range []int64{mark.Line, mark.Line + 1, l.End().Line - 1, l.End().Line} {
					src, err := l.From(mark, line)
					if err != nil {
						t.Fatalf("%s: line %d from %v: %v", name, line, mark, err)
					}
					got, err := io.ReadAll(src)
					src.Close()
					if want := bytes.SplitAfterN(text, []byte("\n"), int(line)+1)[line]; err != nil || !bytes.Equal(got, want) {
						t.Fatalf("%s: after line %d from %v: %d bytes, want %d (%v)", name, line, mark, len(got), len(want), err)
					}
				}
			}
			if _, err := l.From(trace.Mark{}, l.End().Line+1); err == nil {
				t.Errorf("%s: lines after the last one are read", name)
			}
			l = openLog(t, path)
		}
	}
}

// FuzzLog: a log's file may hold anything after a disk failed. It opens and goes on, or it is refused.
func FuzzLog(f *testing.F) {
	_, data, text, _ := packedLog(f, 15)
	f.Add(data)
	f.Add(text)
	f.Add(data[:len(data)-20])
	f.Add(append(bytes.Clone(data), make([]byte, 9)...))
	f.Fuzz(func(t *testing.T, data []byte) {
		path := filepath.Join(t.TempDir(), trace.FileName)
		if err := os.WriteFile(path, data, 0o600); err != nil {
			t.Fatal(err)
		}
		file, err := os.OpenFile(path, os.O_RDWR, 0)
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		l, err := trace.OpenLog(file, true, trace.Mark{})
		if err != nil {
			return
		}
		end := l.End().Line
		if err := l.Append([]byte("a line\n"), false); err != nil {
			t.Fatal(err)
		}
		src, err := l.From(l.Near(), end)
		if err != nil {
			t.Fatalf("the log has %d lines, and those after %v cannot be read: %v", end, l.Near(), err)
		}
		defer src.Close()
		if got, err := io.ReadAll(src); err != nil || string(got) != "a line\n" {
			t.Errorf("the line that was added is read as %q (%v)", got, err)
		}
	})
}

// What a simulation writes is the same text, in frames that do not depend on how it is written.
func TestFrames(t *testing.T) {
	text := bytes.Repeat([]byte("{\"n\":1,\"a\":\"group-queued\"}\n"), 20000)
	var packed [2]bytes.Buffer
	for i, size := range []int{len(text), 777} {
		f, err := trace.NewFrames(&packed[i])
		if err != nil {
			t.Fatal(err)
		}
		for rest := text; len(rest) > 0; rest = rest[min(size, len(rest)):] {
			if _, err := f.Write(rest[:min(size, len(rest))]); err != nil {
				t.Fatal(err)
			}
		}
		if err := f.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if !bytes.Equal(packed[0].Bytes(), packed[1].Bytes()) {
		t.Error("the bytes depend on how they were written")
	}
	if got, err := io.ReadAll(trace.NewText(&packed[0])); err != nil || !bytes.Equal(got, text) {
		t.Errorf("%d bytes, want %d (%v)", len(got), len(text), err)
	}
	f, err := trace.NewFrames(refusing{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	if err := f.Close(); !errors.Is(err, io.ErrShortWrite) {
		t.Errorf("got %v, want the error of the write", err)
	}
}

type refusing struct{}

func (refusing) Write([]byte) (int, error) { return 0, io.ErrShortWrite }
