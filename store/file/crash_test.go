package file_test

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/store/file"
)

// A process that dies leaves any prefix of its last write. Wherever that is, the
// run opens with every whole line, and goes on.
func TestLogCutAtEveryByte(t *testing.T) {
	for _, form := range forms {
		t.Run(form.name, func(t *testing.T) {
			dir := t.TempDir()
			s, enc := begin(t, dir, file.Options{})
			for at := range int64(3) {
				appendLines(t, s, eventLine(enc, at), enc.AppendAction(nil, enc.Seq(), loop.Action{Kind: loop.GroupQueued, Group: 1}))
			}
			closeStore(t, s)
			cutAtEveryByte(t, dir, form.of(t, dir))
		})
	}
}

func cutAtEveryByte(t *testing.T, dir, path string) {
	t.Helper()
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	header := 1
	for !strings.HasSuffix(textOf(whole[:header]), "\n") {
		header++
	}
	between := 1
	if testing.Short() {
		between = 5 // long under the race detector, which has nothing to find in one goroutine
	}
	for cut := len(whole) - (len(whole)-header)/between*between; cut <= len(whole); cut += between {
		if err := os.WriteFile(path, whole[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := file.Open(dir, file.Options{})
		if err != nil {
			t.Fatalf("cut at byte %d: %v", cut, err)
		}
		kept := textOf(whole[:cut])
		events := strings.Count(kept[:strings.LastIndexByte(kept, '\n')+1], `"e":`)
		enc, _ := encoderOf(t, s)
		if enc.Seq() != int64(events) {
			t.Fatalf("cut at byte %d: goes on after event %d, want %d", cut, enc.Seq(), events)
		}
		appendLines(t, s, eventLine(enc, 99))
		if n := readAll(t, s); n != events+1 {
			t.Fatalf("cut at byte %d: %d events, want %d", cut, n, events+1)
		}
		closeStore(t, s)
	}
	// A header that is not whole is a run that never began.
	if err := os.WriteFile(path, whole[:header-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Open(dir, file.Options{}); err == nil || !strings.Contains(err.Error(), "before it began") {
		t.Errorf("half a header: %v", err)
	}
}

// The same for payloads: a torn end is cut, and what was there before stays.
func TestPayloadCutAtEveryByte(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	path := filepath.Join(dir, "state", "payload-00000001")
	ends := []int{0}
	for g := loop.GroupID(1); g <= 3; g++ {
		if err := s.PutSample(sampleOf(g, 0, 1)); err != nil {
			t.Fatal(err)
		}
		ends = append(ends, int(s.PayloadBytes()))
	}
	closeStore(t, s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	open := func(what string, data []byte, want int) {
		t.Helper()
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
		s, err := file.Open(dir, file.Options{})
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		defer closeStore(t, s)
		for g := 1; g <= 3; g++ {
			if _, err := s.Samples(loop.GroupID(g)); (err == nil) != (g <= want) {
				t.Fatalf("%s: group %d: %v, want the first %d", what, g, err, want)
			}
		}
		if err := s.PutSample(sampleOf(9, 0, 1)); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
		if _, err := s.Samples(9); err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	for cut := ends[1]; cut <= len(whole); cut++ {
		n := 0
		for n+1 < len(ends) && ends[n+1] <= cut {
			n++
		}
		open(fmt.Sprintf("cut at byte %d", cut), whole[:cut], n)
	}
	// After a loss of power the file may have its length and not its content.
	open("zeros behind", append(bytes.Clone(whole), make([]byte, 100)...), 3)
	torn := bytes.Clone(whole)
	torn[len(torn)-1] ^= 1
	open("last body unwritten", torn, 2)
}

// A flipped bit before the last payload is damage, its length included.
func TestDamagedPayloadIsRefused(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	path := filepath.Join(dir, "state", "payload-00000001")
	for g := loop.GroupID(1); g <= 2; g++ {
		if err := s.PutSample(sampleOf(g, 0, 1)); err != nil {
			t.Fatal(err)
		}
	}
	first := int(s.PayloadBytes()) / 2
	closeStore(t, s)
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i := range first {
		damaged := bytes.Clone(whole)
		damaged[i] ^= 0x10
		if err := os.WriteFile(path, damaged, 0o644); err != nil {
			t.Fatal(err)
		}
		if s, err := file.Open(dir, file.Options{}); err == nil {
			closeStore(t, s)
			t.Fatalf("flipped byte %d was not noticed", i)
		} else if !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), "byte 0") {
			t.Fatalf("flipped byte %d: %v, want the file and the frame", i, err)
		}
	}
	// A sealed segment has no torn end: it is damage there.
	if err := os.WriteFile(path, whole[:len(whole)-1], 0o644); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "state", "payload-00000002"), nil, 0o644); err != nil {
		t.Fatal(err)
	}
	if _, err := file.Open(dir, file.Options{}); err == nil || !strings.Contains(err.Error(), "damaged") {
		t.Errorf("a cut segment before the last: %v", err)
	}
}

// A write that fails is an error, and so is every later one: what follows a gap could
// not be read. What was there before is still good.
func TestFailedWritesAreFinal(t *testing.T) {
	dir := t.TempDir()
	s, enc := begin(t, dir, file.Options{})
	appendLines(t, s, eventLine(enc, 1))
	if err := s.PutSample(sampleOf(1, 0, 1)); err != nil {
		t.Fatal(err)
	}
	if err := s.Break(); err != nil {
		t.Fatal(err)
	}
	for range 2 {
		if err := s.Append([][]byte{eventLine(enc, 2)}); err == nil || !strings.Contains(err.Error(), "event log") {
			t.Errorf("a failed append: %v", err)
		}
		if err := s.PutSample(sampleOf(2, 0, 1)); err == nil || !strings.Contains(err.Error(), "payloads") {
			t.Errorf("a failed payload: %v", err)
		}
	}
	if n := readAll(t, s); n != 1 {
		t.Errorf("%d events are left, want 1", n)
	}
	if _, err := s.Samples(1); err != nil {
		t.Errorf("a payload from before: %v", err)
	}
	_ = s.Close() // what cannot be flushed was reported
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	defer closeStore(t, s)
	if n := readAll(t, s); n != 1 {
		t.Errorf("%d events after a restart, want 1", n)
	}
}
