package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/lock"
)

var rules = loop.Config{GroupSize: 2, BatchGroups: 1, EngineSlots: []int{2}, QueueGroups: 1}

// begin creates a run with a header and a few events.
func begin(t testing.TB, dir string, o file.Options) (*file.Store, *trace.Encoder) {
	t.Helper()
	s, err := file.Create(dir, o)
	if err != nil {
		t.Fatal(err)
	}
	enc := &trace.Encoder{}
	header, err := enc.AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format, Program: "test", Source: "live", Seed: 7, Loop: rules, Config: "seed: 7\n"})
	if err != nil {
		t.Fatal(err)
	}
	appendLines(t, s, header)
	return s, enc
}

func appendLines(t testing.TB, s *file.Store, lines ...[]byte) {
	t.Helper()
	if err := s.Append(lines); err != nil {
		t.Fatal(err)
	}
}

func eventLine(enc *trace.Encoder, at int64) []byte {
	return enc.AppendEvent(nil, trace.Event{Event: loop.Event{Time: at, Kind: loop.RolloutScored, Group: 1, Slot: 1, Attempt: 1, Tokens: 5, Reward: 0.5}})
}

func sampleOf(group loop.GroupID, k, attempt int32) port.Sample {
	return port.Sample{
		ID: port.RolloutID{Group: group, Sample: k, Attempt: attempt}, Tokens: []int32{1, 2, 70000, -1}, LossMask: []uint8{0, 0, 1, 1},
		Logprobs: []float32{0, 0, -0.25, -3.5}, Versions: []loop.Version{loop.NoVersion, loop.NoVersion, 3, 4}, Reward: 0.75, Exact: true,
		Truncated: k == 1, Resumes: []port.ResumePoint{{At: 3, Version: 4}}, Prompt: "ab", Response: "ba\n", Answer: "bä", GenerateNS: 12345678901, EnvironmentNS: 42 + int64(attempt),
	}
}

func closeStore(t testing.TB, s *file.Store) {
	t.Helper()
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// forms are those that a run's trace has: packed, and plain in runs of before.
var forms = []struct {
	name string
	// of gives the trace of a closed store this form, and returns its path.
	of func(t *testing.T, dir string) string
}{
	{"packed", func(_ *testing.T, dir string) string { return filepath.Join(dir, trace.FileName) }},
	{"plain", func(t *testing.T, dir string) string {
		t.Helper()
		packed, plain := filepath.Join(dir, trace.FileName), filepath.Join(dir, trace.PlainName)
		data, err := os.ReadFile(packed)
		if err == nil {
			err = os.WriteFile(plain, []byte(textOf(data)), 0o600)
		}
		if err == nil {
			err = os.Remove(packed)
		}
		if err != nil {
			t.Fatal(err)
		}
		return plain
	}},
}

// textOf is the text of a trace's file as far as it can be read.
func textOf(data []byte) string {
	text, _ := io.ReadAll(trace.NewText(bytes.NewReader(data)))
	return string(text)
}

// readAll returns the events of the store's log.
func readAll(t *testing.T, s *file.Store) (events int) {
	t.Helper()
	enc, _ := encoderOf(t, s)
	return int(enc.Seq())
}

// encoderOf reads the store's log, and returns where it goes on and its last note.
func encoderOf(t *testing.T, s *file.Store) (enc *trace.Encoder, note string) {
	t.Helper()
	src, err := s.ReadLog(0)
	if err != nil {
		t.Fatal(err)
	}
	defer src.Close()
	r, err := trace.NewReader(src)
	if err != nil {
		t.Fatal(err)
	}
	for {
		rec, err := r.Next()
		if errors.Is(err, io.EOF) {
			return r.Encoder(), note
		}
		if err != nil {
			t.Fatal(err)
		}
		note = rec.Note
	}
}

func TestGoesOnWhereItEnded(t *testing.T) {
	for _, always := range []bool{false, true} {
		dir := filepath.Join(t.TempDir(), "runs", "a")
		s, enc := begin(t, dir, file.Options{Always: always})
		appendLines(t, s, eventLine(enc, 1), eventLine(enc, 2))
		closeStore(t, s)

		s, err := file.Open(dir, file.Options{})
		if err != nil {
			t.Fatal(err)
		}
		s.SetAlways(always)
		if err := s.PutSample(sampleOf(1, 0, 1)); err != nil {
			t.Fatal(err)
		}
		if err := s.Snapshot(3, []byte("state")); err != nil {
			t.Fatal(err)
		}
		if h, ok := s.Header(); !ok || h.Seed != 7 || !reflect.DeepEqual(h.Loop, rules) {
			t.Fatalf("header %+v, %v", h, ok)
		}
		enc, _ = encoderOf(t, s)
		if enc.Seq() != 2 {
			t.Fatalf("goes on after event %d, want 2", enc.Seq())
		}
		appendLines(t, s, eventLine(enc, 3))
		end, err := enc.AppendNote(nil, trace.NoteEnd, nil)
		if err != nil {
			t.Fatal(err)
		}
		appendLines(t, s, end)
		if n := readAll(t, s); n != 3 {
			t.Fatalf("%d events, want 3", n)
		}
		closeStore(t, s)
		if s, err = file.Open(dir, file.Options{}); err != nil {
			t.Fatal(err)
		}
		if _, note := encoderOf(t, s); note != trace.NoteEnd {
			t.Fatalf("the log ends with %q", note)
		}
		closeStore(t, s)
	}
}

func TestRefusesWhatIsThere(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	closeStore(t, s)
	before, err := os.ReadFile(filepath.Join(dir, trace.FileName))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := file.Create(dir, file.Options{}); err == nil || !strings.Contains(err.Error(), "holds a run already") {
		t.Errorf("Create over a run: %v", err)
	}
	after, err := os.ReadFile(filepath.Join(dir, trace.FileName))
	if err != nil || !bytes.Equal(before, after) {
		t.Errorf("Create changed the run that was there (%v)", err)
	}
	if _, err := file.Open(t.TempDir(), file.Options{}); err == nil || !strings.Contains(err.Error(), "not a run directory") {
		t.Errorf("Open of an empty directory: %v", err)
	}
	if _, err := file.Create(t.TempDir(), file.Options{SegmentBytes: -1}); err == nil {
		t.Error("a negative size was taken")
	}
}

func TestOneWriterAtATime(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	_, err := file.Open(dir, file.Options{})
	var locked *lock.Error
	if !errors.As(err, &locked) || locked.PID != fmt.Sprint(os.Getpid()) || !strings.Contains(err.Error(), locked.PID) {
		t.Fatalf("a second writer: %v", err)
	}
	closeStore(t, s)
	if s, err = file.Open(dir, file.Options{}); err != nil {
		t.Fatalf("after the first closed: %v", err)
	}
	closeStore(t, s)
	closeStore(t, s) // twice is fine
	if err := s.Append([][]byte{[]byte("x\n")}); !errors.Is(err, file.ErrClosed) {
		t.Errorf("Append after Close: %v", err)
	}
	if err := s.PutSample(sampleOf(1, 0, 1)); !errors.Is(err, file.ErrClosed) {
		t.Errorf("PutSample after Close: %v", err)
	}
}

func TestPayloadsComeBack(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	for _, sample := range []port.Sample{sampleOf(1, 1, 1), sampleOf(2, 0, 1), sampleOf(1, 0, 2), sampleOf(1, 0, 1)} {
		if err := s.PutSample(sample); err != nil {
			t.Fatal(err)
		}
	}
	want := []port.Sample{sampleOf(1, 0, 2), sampleOf(1, 1, 1)} // the later attempt, though put first
	check := func() {
		t.Helper()
		got, err := s.Samples(1)
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Fatalf("%v\ngot  %+v\nwant %+v", err, got, want)
		}
	}
	check()
	closeStore(t, s)
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	check()
	if err := s.Forget(1); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Samples(1); err == nil || !strings.Contains(err.Error(), "group 1") {
		t.Errorf("a forgotten group: %v", err)
	}
	if err := s.Forget(99); err != nil {
		t.Errorf("an unknown group: %v", err)
	}
	bad := sampleOf(3, 0, 1)
	bad.Logprobs = bad.Logprobs[:1]
	if err := s.PutSample(bad); err == nil {
		t.Error("a payload with too few log-probs was taken")
	}
	closeStore(t, s)
}

func TestSegmentsGoWithTheirGroups(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{SegmentBytes: 1}) // every payload a segment
	segments := func() int {
		names, err := filepath.Glob(filepath.Join(dir, "state", "payload-*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(names)
	}
	for g := loop.GroupID(1); g <= 5; g++ {
		if err := s.PutSample(sampleOf(g, 0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	if n := segments(); n != 5 {
		t.Fatalf("%d segments, want 5", n)
	}
	forget := func(g loop.GroupID, want int) {
		t.Helper()
		if err := s.Forget(g); err != nil {
			t.Fatal(err)
		}
		if n := segments(); n != want {
			t.Fatalf("%d segments after group %d, want %d", n, g, want)
		}
	}
	forget(2, 4)
	forget(5, 4) // the one being written to stays
	forget(1, 3)
	before := s.PayloadBytes()
	closeStore(t, s)
	s, err := file.Open(dir, file.Options{SegmentBytes: 1})
	if err != nil {
		t.Fatal(err)
	}
	if s.PayloadBytes() != before {
		t.Errorf("%d bytes after a restart, %d before", s.PayloadBytes(), before)
	}
	// The restart brought group 5 back, whose segment was still there; the loop knows better.
	if _, err := s.Retain(func(id port.RolloutID) bool { return id.Group == 3 }); err != nil {
		t.Fatal(err)
	}
	if _, err := s.Samples(3); err != nil {
		t.Error(err)
	}
	if _, err := s.Samples(5); err == nil {
		t.Error("group 5 was retained")
	}
	if n := segments(); n != 2 {
		t.Errorf("%d segments, want those of groups 3 and 5", n)
	}
	closeStore(t, s)
}

func TestPayloadsAreBounded(t *testing.T) {
	s, _ := begin(t, t.TempDir(), file.Options{SegmentBytes: 100, PayloadBytesMax: 1000})
	defer closeStore(t, s)
	var err error
	g := loop.GroupID(1)
	for ; g < 100 && err == nil; g++ {
		err = s.PutSample(sampleOf(g, 0, 1))
	}
	if err == nil || !strings.Contains(err.Error(), "1000") || g < 5 {
		t.Fatalf("after %d payloads: %v", g, err)
	}
	for f := loop.GroupID(1); f < g; f++ {
		if err := s.Forget(f); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.PutSample(sampleOf(g, 0, 1)); err != nil {
		t.Errorf("with room again: %v", err)
	}
}

func TestSnapshots(t *testing.T) {
	dir := t.TempDir()
	s, enc := begin(t, dir, file.Options{})
	expect := func(before, wantLine int64, want string) {
		t.Helper()
		line, state, err := s.ReadSnapshot(before)
		if errors.Is(err, port.ErrSnapshotDamaged) && line > wantLine { // said by its line; the one before it is there
			line, state, err = s.ReadSnapshot(line)
		}
		if line != wantLine || string(state) != want || err != nil {
			t.Fatalf("before %d: %d %q %v, want %d %q", before, line, state, err, wantLine, want)
		}
	}
	expect(math.MaxInt64, 0, "")
	for at := int64(1); at <= 4; at++ { // as of lines 2, 3, 4, 5
		appendLines(t, s, eventLine(enc, at))
		if err := s.Snapshot(at+1, fmt.Appendf(nil, "state %d\n", at)); err != nil {
			t.Fatal(err)
		}
	}
	expect(math.MaxInt64, 5, "state 4\n")
	expect(5, 4, "state 3\n")
	expect(4, 0, "")
	if err := s.Snapshot(6, []byte("ahead")); err == nil || !strings.Contains(err.Error(), "log of 5") {
		t.Errorf("ahead of the log: %v", err)
	}
	closeStore(t, s)
	names, err := filepath.Glob(filepath.Join(dir, "state", "snapshot-*"))
	if err != nil || len(names) != 2 {
		t.Fatalf("%v %v, want the newest two", names, err)
	}
	newest, err := os.ReadFile(names[1])
	if err != nil {
		t.Fatal(err)
	}
	reopened := func(what string, newest []byte, wantLine int64, want string) {
		t.Helper()
		if err := os.WriteFile(names[1], newest, 0o644); err != nil {
			t.Fatal(err)
		}
		if s, err = file.Open(dir, file.Options{}); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		expect(math.MaxInt64, wantLine, want)
		if n := readAll(t, s); n != 4 {
			t.Errorf("%s: %d events", what, n)
		}
		closeStore(t, s)
	}
	reopened("as it was", newest, 5, "state 4\n")
	for i := range newest { // a damaged one is passed over, wherever it is
		damaged := bytes.Clone(newest)
		damaged[i] ^= 1
		reopened(fmt.Sprintf("damaged at byte %d", i), damaged, 4, "state 3\n")
	}
	for n := range newest {
		reopened(fmt.Sprintf("cut at byte %d", n), newest[:n], 4, "state 3\n")
	}
	// One ahead of the log, of which the end is gone, is passed over, and the next takes its place.
	reopened("as it was", newest, 5, "state 4\n")
	path := filepath.Join(dir, trace.FileName)
	log, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(path, log[:len(log)-4], 0o644); err != nil { // in its last block
		t.Fatal(err)
	}
	if s, err = file.Open(dir, file.Options{}); err != nil {
		t.Fatal(err)
	}
	expect(math.MaxInt64, 4, "state 3\n")
	enc, _ = encoderOf(t, s)
	appendLines(t, s, eventLine(enc, 7))
	if err := s.Snapshot(5, []byte("another\n")); err != nil {
		t.Fatal(err)
	}
	expect(math.MaxInt64, 5, "another\n")
	closeStore(t, s)
}

// The log is read from any line on, whether or not a snapshot says where that is.
func TestReadLog(t *testing.T) {
	dir := t.TempDir()
	s, enc := begin(t, dir, file.Options{})
	const lines = 3000 // more than one read of the disk
	for at := int64(1); at < lines; at++ {
		appendLines(t, s, eventLine(enc, at))
		if at == lines/2 {
			if err := s.Snapshot(at, []byte("state")); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, form := range []int{0, 1, 1, 1} {
		data, err := os.ReadFile(trace.Path(dir))
		if err != nil {
			t.Fatal(err)
		}
		whole := []byte(textOf(data))
		for _, line := range []int64{0, 1, 2, lines/2 - 1, lines / 2, lines/2 + 1, lines - 1, lines} {
			src, err := s.ReadLog(line)
			if err != nil {
				t.Fatal(err)
			}
			got, err := io.ReadAll(src)
			if want := bytes.SplitAfterN(whole, []byte("\n"), int(line)+1)[line]; err != nil || !bytes.Equal(got, want) {
				t.Errorf("after line %d: %d bytes, want %d (%v)", line, len(got), len(want), err)
			}
			src.Close()
		}
		for _, line := range []int64{-1, lines + 1} {
			if _, err := s.ReadLog(line); err == nil {
				t.Errorf("after line %d: no error", line)
			}
		}
		closeStore(t, s)
		if form == 1 && trace.Path(dir) != filepath.Join(dir, trace.PlainName) {
			forms[1].of(t, dir)
		}
		if s, err = file.Open(dir, file.Options{}); err != nil {
			t.Fatal(err)
		}
	}
	closeStore(t, s)
}

// Many goroutines put and read while the log is written, as a live run does.
func TestConcurrentUse(t *testing.T) {
	dir := t.TempDir()
	s, enc := begin(t, dir, file.Options{SegmentBytes: 2000})
	var wait sync.WaitGroup
	for w := range 8 {
		wait.Go(func() {
			for i := range 50 {
				g := loop.GroupID(1 + w*50 + i)
				if err := s.PutSample(sampleOf(g, 0, 1)); err != nil {
					t.Error(err)
				}
				if got, err := s.Samples(g); err != nil || len(got) != 1 || got[0].ID.Group != g {
					t.Errorf("group %d: %v %v", g, got, err)
				}
				if i%2 == 0 {
					if err := s.Forget(g); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	for at := range int64(100) {
		appendLines(t, s, eventLine(enc, at))
	}
	wait.Wait()
	closeStore(t, s)
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	for w := range 8 {
		if got, err := s.Samples(loop.GroupID(1 + w*50 + 1)); err != nil || len(got) != 1 {
			t.Errorf("%v %v", got, err)
		}
	}
	if n := readAll(t, s); n != 100 {
		t.Errorf("%d events, want 100", n)
	}
}
