package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/storetest"
)

// flipBit changes a bit of the last place that has a text in the server's files of messages. It reports
// whether there was one.
func flipBit(t *testing.T, dir, text string) (found bool) {
	t.Helper()
	must(t, filepath.WalkDir(filepath.Join(dir, "nats"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || filepath.Ext(path) != ".blk" {
			return nil
		}
		data, err := os.ReadFile(path)
		must(t, err)
		at := bytes.LastIndex(data, []byte(text))
		if at < 0 {
			return nil
		}
		found = true
		f, err := os.OpenFile(path, os.O_WRONLY, 0)
		must(t, err)
		_, err = f.WriteAt([]byte{data[at] ^ 1}, int64(at))
		must(t, errors.Join(err, f.Close()))
		return nil
	}))
	return found
}

// killed is a copy of a running store's directory: what a process that is killed now leaves.
func killed(t *testing.T, dir string) string {
	t.Helper()
	copied := filepath.Join(t.TempDir(), "killed")
	must(t, os.CopyFS(copied, os.DirFS(dir)))
	return copied
}

// awaitMirror waits until the mirror, which is written beside the log, has its first lines.
func awaitMirror(s *Store, lines int64) {
	for s.mirror.covered(lines) < lines {
		runtime.Gosched()
	}
}

// stateAt is a snapshot as of a line, which can be told apart on the disk.
func stateAt(line int64) []byte { return bytes.Repeat(fmt.Appendf(nil, "state %d.", line), 3000) }

// fill appends lines, and takes a snapshot of the last.
func fill(t *testing.T, s *Store, enc *trace.Encoder, lines int) {
	t.Helper()
	for i := range lines {
		must(t, s.Append([][]byte{storetest.Event(enc, int64(i))}))
	}
	must(t, s.Snapshot(enc.Position().Line, stateAt(enc.Position().Line)))
}

// newestGood reads the newest snapshot that verifies, and says how many are damaged; 0 for none.
func newestGood(t *testing.T, s *Store) (line int64, damaged int) {
	t.Helper()
	for before := int64(math.MaxInt64); ; before = line {
		var state []byte
		var err error
		line, state, err = s.ReadSnapshot(before)
		switch {
		case errors.Is(err, port.ErrSnapshotDamaged):
			damaged++
			continue
		case err != nil:
			t.Fatal(err)
		case state != nil && !bytes.Equal(state, stateAt(line)):
			t.Fatalf("the snapshot as of line %d is not what was kept", line)
		}
		return line, damaged
	}
}

// checkWhole fails unless the log reads from a line to its end, the mirror apart.
func checkWhole(t *testing.T, s *Store, line, lines int64) {
	t.Helper()
	r, err := s.readFrom(t.Context(), line, s.events.last)
	must(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	if must(t, err); line == 0 || line+int64(bytes.Count(text, newline)) != lines || s.events.lines() != lines {
		t.Fatalf("%d lines after the snapshot as of line %d, and %d in all, want %d", bytes.Count(text, newline), line, s.events.lines(), lines)
	}
}

// A bit of the newest snapshot changes on the disk, the run takes another and is killed: the server reads the file
// up to the damage and drops what follows it. A snapshot that verifies is there all the same, and the log after it.
func TestFlippedBitInTheNewestSnapshot(t *testing.T) {
	skipShort(t)
	for _, mirror := range []bool{false, true} {
		for more := range 4 {
			t.Run(fmt.Sprint(mirror, more), func(t *testing.T) {
				dir := t.TempDir()
				o := Options{Dir: filepath.Join(dir, "nats")}
				if mirror {
					o.TracePath = filepath.Join(dir, trace.FileName)
				}
				s := open(t, o)
				enc := begin(t, s)
				for range 3 {
					fill(t, s, enc, 100)
				}
				if !flipBit(t, dir, fmt.Sprintf("state %d.", enc.Position().Line)) {
					t.Fatal("the newest snapshot is not on the disk")
				}
				for range more {
					fill(t, s, enc, 20)
				}
				left := killed(t, dir)
				o.Dir = filepath.Join(left, "nats")
				if mirror {
					o.TracePath = filepath.Join(left, trace.FileName)
				}
				again := open(t, o)
				line, _ := newestGood(t, again)
				checkWhole(t, again, line, enc.Position().Line)
				if more > 1 && line != enc.Position().Line {
					t.Errorf("the newest snapshot that verifies is of line %d, want %d", line, enc.Position().Line)
				}
			})
		}
	}
}

// With both snapshots damaged the run is read from its mirror. Without one the error says what is lost.
func TestBothSnapshotsDamaged(t *testing.T) {
	for _, mirror := range []bool{false, true} {
		t.Run(fmt.Sprint(mirror), func(t *testing.T) {
			dir := t.TempDir()
			o := Options{Dir: filepath.Join(dir, "nats")}
			if mirror {
				o.TracePath = filepath.Join(dir, trace.FileName)
			}
			s := open(t, o)
			enc := begin(t, s)
			for range 3 {
				fill(t, s, enc, 100)
			}
			for _, line := range []int64{201, 301} {
				if !flipBit(t, dir, fmt.Sprintf("state %d.", line)) {
					t.Fatalf("the snapshot as of line %d is not on the disk", line)
				}
			}
			must(t, s.Close())
			again := open(t, o)
			if line, _ := newestGood(t, again); line != 0 {
				t.Fatalf("the snapshot as of line %d verifies", line)
			}
			if mirror {
				if text := logText(t, again); int64(bytes.Count(text, newline)) != enc.Position().Line {
					t.Errorf("the log reads to line %d, want %d", bytes.Count(text, newline), enc.Position().Line)
				}
				return
			}
			_, err := again.ReadLog(0)
			if !errors.Is(err, port.ErrLogTrimmed) || !strings.Contains(err.Error(), "store.trace: none") || !strings.Contains(err.Error(), "begins with line 202") {
				t.Errorf("the log without its beginning: %v", err)
			}
		})
	}
}

// A writer is killed, a bit of its newest snapshot changes, and another goes on: as often as that is done, a
// snapshot that verifies is there, and the log after it.
func TestFlippedBitsBetweenKills(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir := t.TempDir()
	k := &told{puts: map[loop.GroupID]int{}}
	for range 3 {
		k.live(t, dir, 800, nil)
		if k.snapshot == 0 || !flipBit(t, dir, fmt.Sprintf("state at %d", k.snapshot)) {
			t.Fatalf("the newest snapshot, at line %d, is not on the disk", k.snapshot)
		}
	}
	s := open(t, childOptions(dir))
	line, state, err := s.ReadSnapshot(math.MaxInt64)
	for errors.Is(err, port.ErrSnapshotDamaged) {
		line, state, err = s.ReadSnapshot(line)
	}
	if err != nil || string(state) != fmt.Sprint("state at ", line) {
		t.Fatalf("the newest snapshot is of line %d (%q): %v", line, state, err)
	}
	lines := s.events.lines()
	if checkWhole(t, s, line, lines); lines < k.lines {
		t.Errorf("the log has %d lines of %d acknowledged", lines, k.lines)
	}
}

// A bit of a line in the middle of the log changes on the disk: the run is read from its mirror. Without one, the
// error names the place and what to do; no line is left out in silence, nor taken for one that was given up.
func TestFlippedBitInTheLog(t *testing.T) {
	for _, mirror := range []bool{false, true} {
		for _, kill := range []bool{false, true} {
			t.Run(fmt.Sprint(mirror, kill), func(t *testing.T) {
				dir := t.TempDir()
				o := Options{Dir: filepath.Join(dir, "nats"), Run: "test", Logf: t.Logf}
				if mirror {
					o.TracePath = filepath.Join(dir, trace.FileName)
				}
				s := open(t, o)
				enc := begin(t, s)
				fill(t, s, enc, 100)
				for i := range 50 {
					must(t, s.Append([][]byte{storetest.Event(enc, int64(1000+i))}))
				}
				if kill {
					awaitMirror(s, enc.Position().Line)
					dir = killed(t, dir)
				} else {
					must(t, s.Close())
				}
				if !flipBit(t, dir, `"t":1025`) {
					t.Fatal("the line is not on the disk")
				}
				if o.Dir = filepath.Join(dir, "nats"); mirror {
					o.TracePath = filepath.Join(dir, trace.FileName)
				}
				checkFlippedLog(t, o, enc.Position().Line, kill)
			})
		}
	}
}

// checkFlippedLog opens a log with damage after line 126, which is read after a snapshot at line 101.
func checkFlippedLog(t *testing.T, o Options, lines int64, kill bool) {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err == nil {
		t.Cleanup(func() { _ = s.Close() })
		_, _, err = s.Acquire(t.Context(), "a test")
	}
	if kill { // the server has dropped what follows the damage: see drive/live for where nothing of that is seen here
		told := err != nil && (strings.Contains(err.Error(), "is missing or damaged: restore") || strings.Contains(err.Error(), "the log lost its end"))
		if !told && (err != nil || o.TracePath != "" || s.events.lines() >= lines) {
			t.Errorf("a log with a hole was opened: %v", err)
		}
		return
	}
	must(t, err)
	r, err := s.ReadLog(101)
	must(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	switch n := bytes.Count(text, newline); {
	case o.TracePath != "" && (err != nil || n != 50):
		t.Errorf("%d lines from the mirror, want 50: %v", n, err)
	case o.TracePath == "" && (err == nil || !strings.Contains(err.Error(), "after line 126, is missing or damaged: restore")):
		t.Errorf("%d lines without a mirror: %v", n, err)
	}
}
