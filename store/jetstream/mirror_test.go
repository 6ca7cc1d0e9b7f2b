package jetstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/storetest"
)

// logText is all that the log has.
func logText(t *testing.T, s *Store) []byte {
	t.Helper()
	r, err := s.ReadLog(0)
	must(t, err)
	defer r.Close()
	text, err := io.ReadAll(r)
	must(t, err)
	return text
}

// mirrorText is the text of a mirror.
func mirrorText(t *testing.T, path string) []byte {
	t.Helper()
	file, err := os.Open(path)
	must(t, err)
	defer file.Close()
	text, err := io.ReadAll(trace.NewText(file))
	must(t, err)
	return text
}

// checkMirror compares a closed store's mirror with the log, byte for byte.
func checkMirror(t *testing.T, path string, log []byte) {
	t.Helper()
	got := mirrorText(t, path)
	if !bytes.Equal(got, log) {
		t.Errorf("the mirror has %d bytes and %d lines, the log %d and %d:\n%s\nwant\n%s", len(got), bytes.Count(got, newline), len(log), bytes.Count(log, newline), got, log)
	}
	if left, _ := filepath.Glob(path + ".*" + mirrorSuffix); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A writer that hangs is no obstacle to a standby in the same directory, and when it comes
// back it does not touch its successor's mirror: not with what it still has to write, not as
// it finds that the file is another one, and not by a rename that it was about to do.
func TestMirrorOfADeposedWriter(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, trace.FileName)
	o := Options{URL: startServer(t, nil), Run: "hangs", WriterTTL: 200 * time.Millisecond, TracePath: path}
	first := open(t, o)
	held := first.mirror.file
	enc := begin(t, first)
	must(t, first.Append([][]byte{storetest.Event(enc, 1), storetest.Event(enc, 2)}))
	deposed := first.lease.Load()
	deposed.cancel() // it renews no more, and believes that it has the lease
	<-deposed.done

	standby := open(t, o)
	must(t, standby.Append([][]byte{storetest.Event(enc, 3), storetest.Event(enc, 4)}))

	// What the old one had in hand, and what is not in the log: its file has no name by now.
	stale := *enc
	mine := storetest.Event(&stale, 9)
	_, err := held.Write(mine)
	must(t, err)
	if err := first.Append([][]byte{mine}); !errors.Is(err, ErrFenced) {
		t.Errorf("a deposed writer's append: %v", err)
	}
	first.mirror.offer(enc.Position().Line+1, mine)
	must(t, first.Close())
	if !first.mirror.dead {
		t.Error("a deposed writer's mirror took its place again")
	}
	must(t, standby.Append([][]byte{storetest.Event(enc, 5)}))

	// One that was stopped between its last question and the rename.
	must(t, os.WriteFile(path+".0"+mirrorSuffix, mine, 0o644))
	must(t, os.Rename(path+".0"+mirrorSuffix, path))
	must(t, os.WriteFile(path+".0"+mirrorSuffix, mine, 0o644))
	must(t, standby.Append([][]byte{storetest.Event(enc, 6)}))
	log := logText(t, standby)
	must(t, standby.Close())
	checkMirror(t, path, log)

	// The run goes on from it, and one on another machine begins a mirror of its own.
	third := open(t, o)
	must(t, third.Append([][]byte{storetest.Event(enc, 7)}))
	log = logText(t, third)
	must(t, third.Close())
	checkMirror(t, path, log)
	o.TracePath = filepath.Join(t.TempDir(), trace.FileName)
	must(t, open(t, o).Close())
	checkMirror(t, o.TracePath, log)
}

// A mirror that cannot be made keeps nobody from taking the run over; it is made later. While
// it is missing the log gives nothing up.
func TestMirrorIsMadeLater(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "later")
	path := filepath.Join(dir, trace.FileName)
	s, err := Open(t.Context(), Options{URL: startServer(t, nil), Run: "later", TracePath: path, Logf: t.Logf})
	must(t, err)
	defer s.Close()
	_, _, err = s.Acquire(context.Background(), "a test")
	must(t, err)
	enc := begin(t, s)
	for i := range 20 {
		must(t, s.Append([][]byte{storetest.Event(enc, int64(i))}))
	}
	must(t, s.Snapshot(5, []byte("five")))
	must(t, s.Snapshot(15, []byte("fifteen")))
	log := logText(t, s)
	must(t, os.Mkdir(dir, 0o755))
	must(t, s.Close())
	checkMirror(t, path, log)
}

// A mirror that is damaged in its middle keeps nobody from taking the run over: it is said, and the file stays as it is.
func TestDamagedMirror(t *testing.T) {
	for _, url := range []string{"", startServer(t, nil)} {
		dir := t.TempDir()
		var said strings.Builder
		var saying sync.Mutex
		o := Options{URL: url, Run: "damaged", TracePath: filepath.Join(dir, trace.FileName), Logf: func(format string, args ...any) {
			saying.Lock()
			defer saying.Unlock()
			fmt.Fprintf(&said, format+"\n", args...)
		}}
		if url == "" {
			o.Dir = filepath.Join(dir, "nats")
		}
		s, err := opened(t, o)
		must(t, err)
		enc := begin(t, s)
		var lines [][]byte
		for i := range 5000 {
			lines = append(lines, storetest.Event(enc, int64(i)))
		}
		must(t, s.Append(lines))
		must(t, s.Close())
		data, err := os.ReadFile(o.TracePath)
		must(t, err)
		copy(data[len(data)/2:], make([]byte, 256)) // a bit alone may decode, as another text: replay finds that
		must(t, os.WriteFile(o.TracePath, data, 0o600))
		s, err = opened(t, o)
		must(t, err)
		must(t, s.Append([][]byte{storetest.Event(enc, 5000)}))
		if lines := bytes.Count(logText(t, s), newline); lines != 5002 {
			t.Errorf("the log has %d lines", lines)
		}
		must(t, s.Close())
		if now, err := os.ReadFile(o.TracePath); err != nil || !bytes.Equal(now, data) {
			t.Errorf("the mirror was changed: %v", err)
		}
		if text := said.String(); !strings.Contains(text, "is not completed: trace: line ") {
			t.Errorf("it says:\n%s", text)
		}
	}
}

// A bit of a line that a snapshot covers has changed in the mirror: the next start says so, and goes on.
func TestChangedMirrorIsNamed(t *testing.T) {
	dir, said := t.TempDir(), make(chan string, 100)
	o := Options{Dir: filepath.Join(dir, "nats"), Run: "changed", TracePath: filepath.Join(dir, trace.PlainName), Logf: func(format string, args ...any) { said <- fmt.Sprintf(format, args...) }}
	s, err := opened(t, o)
	must(t, err)
	enc := begin(t, s)
	for i := range 3 {
		fill(t, s, enc, 100*(i+1))
	}
	must(t, s.Close())
	data, err := os.ReadFile(o.TracePath)
	must(t, err)
	must(t, os.WriteFile(o.TracePath, bytes.Replace(data, []byte(`"t":50,`), []byte(`"t":51,`), 1), 0o600))
	s, err = opened(t, o)
	must(t, err)
	fill(t, s, enc, 10)
	for text := range said { // or the test's own time ends
		if strings.Contains(text, "is damaged: trace: line 52") {
			break
		}
	}
	must(t, s.Close())
}

// A file that has more than the log is another's: it is refused, and not cut at its last line.
func TestMirrorLeavesAForeignFileAlone(t *testing.T) {
	path := filepath.Join(t.TempDir(), trace.FileName)
	const foreign = "one\ntwo\nthree without an end"
	must(t, os.WriteFile(path, []byte(foreign), 0o644))
	s, err := Open(t.Context(), Options{Dir: filepath.Join(t.TempDir(), "nats"), Run: "foreign", TracePath: path, Logf: t.Logf})
	must(t, err)
	t.Cleanup(func() { _ = s.Close() })
	_, _, err = s.Acquire(t.Context(), "writer")
	if !errors.Is(err, errForeignMirror) {
		t.Errorf("got %v", err)
	}
	if got, err := os.ReadFile(path); err != nil || string(got) != foreign {
		t.Errorf("the file is %q (%v), was %q", got, err, foreign)
	}
}

// A store whose mirror is behind is closed also where NATS does not answer: the mirror is completed when the run is opened again.
func TestCloseOfAMirrorBehind(t *testing.T) {
	path := filepath.Join(t.TempDir(), trace.FileName)
	srv := runServer(t, nil)
	s := open(t, Options{URL: srv.ClientURL(), Run: "behind", TracePath: path})
	enc := begin(t, s)
	must(t, s.Append([][]byte{storetest.Event(enc, 1)}))
	srv.Shutdown()
	srv.WaitForShutdown()
	s.mirror.patience = time.Millisecond
	s.mirror.offer(enc.Position().Line+2, []byte("a piece")) // the lines before it are in the log alone
	if err := s.Close(); err == nil || !strings.Contains(err.Error(), "completed when the run is opened again") {
		t.Errorf("closed with %v", err)
	}
}
