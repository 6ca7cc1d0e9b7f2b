package jetstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io/fs"
	"math"
	"net"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

// diskUse adds up the files under dir.
func diskUse(t *testing.T, dir string) (total int64) {
	t.Helper()
	must(t, filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return nil // it was removed meanwhile
		}
		if info, err := d.Info(); err == nil {
			total += info.Size()
		}
		return nil
	}))
	return total
}

// What a run takes on the disk is bounded at every moment, and not when the server comes to
// tidy up: bounds of 1 and 4 MB, and hundreds of appends, payloads and snapshots of 300 kB.
func TestDiskIsBounded(t *testing.T) {
	skipShort(t)
	t.Parallel()
	const (
		state = 300_000
		files = 4 << 20 // of the server, each stream's last and first
		most  = 1<<20 + 4<<20 + 3*state + 3*2*files
	)
	dir := t.TempDir()
	s := open(t, Options{Dir: dir, LogBytesMax: 1 << 20, PayloadBytesMax: 4 << 20, CacheBytes: -1})
	enc := begin(t, s)
	body := bytes.Repeat([]byte("state "), state/6)
	taken, peak := 0, int64(0)
	const rounds, every = 560, 5 // whose snapshots alone are more bytes than the bound
	for i := range rounds {
		lines := make([][]byte, 8)
		for k := range lines {
			lines[k] = storetest.Event(enc, int64(i))
		}
		must(t, s.Append(lines))
		g := loop.GroupID(i + 1)
		must(t, s.PutSample(storetest.Sample(port.RolloutID{Group: g, Attempt: 1}, 400)))
		must(t, s.Forget(g))
		if i%every == every-1 || s.WantsSnapshot() {
			must(t, s.Snapshot(enc.Position().Line, body))
			taken++
			if n := s.SnapshotBytes(); n > 3*state {
				t.Fatalf("two snapshots of %d bytes take %d", state, n)
			}
			used := diskUse(t, dir)
			peak = max(peak, used)
			if used > most {
				t.Fatalf("%d bytes are on the disk after %d snapshots, want at most %d", used, taken, most)
			}
		}
	}
	if taken*state <= most {
		t.Fatalf("%d snapshots of %d bytes would fit", taken, state)
	}
	log, payloads := s.Usage()
	t.Logf("%d snapshots, %.0f MB of them: at most %.1f MB on the disk of %.1f; at the end log %d, payloads %d, snapshots %d bytes", taken, float64(taken)*state/1e6, float64(peak)/1e6, float64(most)/1e6, log, payloads, s.SnapshotBytes())
	line, got, err := s.ReadSnapshot(math.MaxInt64)
	if err != nil || line == 0 || !bytes.Equal(got, body) {
		t.Errorf("the newest snapshot is of line %d with %d bytes: %v", line, len(got), err)
	}
}

// A full log gives up what the newest snapshot covers, so that the lines before the next one fit.
func TestFullLogMakesRoom(t *testing.T) {
	s := open(t, Options{Dir: t.TempDir(), LogBytesMax: 256 << 10})
	enc := begin(t, s)
	var err error
	var line []byte
	for i := int64(0); err == nil; i++ {
		if i == 100 || i == 400 {
			must(t, s.Snapshot(enc.Position().Line, []byte("state")))
		}
		line = storetest.Event(enc, i)
		err = s.Append([][]byte{line})
	}
	if !errors.Is(err, port.ErrNoSpace) {
		t.Fatal(err)
	}
	must(t, s.Append([][]byte{line}))
}

// A run whose log or payloads are gone says so, and does not wait for them.
func TestLostStreams(t *testing.T) {
	t.Parallel()
	for _, of := range []string{"log", "payloads"} {
		s := open(t, Options{URL: startServer(t, nil), Run: "lost"})
		enc := begin(t, s)
		names := map[string]string{"log": s.names.log, "payloads": s.names.data}
		must(t, s.js.DeleteStream(t.Context(), names[of]))
		var err error
		if of == "log" {
			err = s.Append([][]byte{storetest.Event(enc, 1)})
		} else {
			err = s.PutSample(storetest.Sample(sampleID(1), 400))
		}
		if !errors.Is(err, jetstream.ErrStreamNotFound) || !strings.Contains(err.Error(), "lost") || errors.Is(err, ErrLogDamaged) != (of == "log") {
			t.Errorf("without the stream of the %s: %v", of, err)
		}
	}
}

// A server that starts again leaves out a stream whose description is damaged. Streams of snapshots are made again, and
// a snapshot that was on its way to one does not wait for it.
func TestLostStreamOfSnapshots(t *testing.T) {
	skipShort(t)
	t.Parallel()
	for i := range slotsOfSnapshots {
		s := open(t, Options{URL: startServer(t, nil), Run: "lost"})
		enc := begin(t, s)
		for range 3 {
			fill(t, s, enc, 100)
		}
		lost := &s.states.slots[i]
		must(t, s.js.DeleteStream(t.Context(), lost.name))
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := s.writeChunks(ctx, lost.subject+".1", []byte("state")); !errors.Is(err, jetstream.ErrStreamNotFound) {
			t.Errorf("a snapshot into stream %s that is gone: %v", lost.name, err)
		}
		for range 2 {
			fill(t, s, enc, 100)
			if line, _ := newestGood(t, s); line != enc.Position().Line {
				t.Errorf("without stream %s the newest snapshot is as of line %d, want %d", lost.name, line, enc.Position().Line)
			}
		}
	}
}

// A snapshot whose message has a header that cannot be read is damaged, and keeps nobody from the run: the one before it counts.
func TestSnapshotWithoutItsHeader(t *testing.T) {
	t.Parallel()
	url := startServer(t, nil)
	s := open(t, Options{URL: url, Run: "headless"})
	enc := begin(t, s)
	fill(t, s, enc, 100)
	before := enc.Position().Line
	fill(t, s, enc, 100)
	there, err := s.snapshots(t.Context())
	if err != nil || len(there) < 2 {
		t.Fatalf("%d snapshots, %v", len(there), err)
	}
	newest := there[len(there)-1]
	putHeadless(t, url, newest.subject()+".0")
	if line, _ := newestGood(t, s); newest.line != enc.Position().Line || line != before {
		t.Errorf("the newest is as of line %d, want %d", line, before)
	}
	must(t, s.scrub(t.Context()))
	fill(t, s, enc, 100)
	if line, _ := newestGood(t, s); line != enc.Position().Line {
		t.Errorf("the next is as of line %d, want %d", line, enc.Position().Line)
	}
}

// A writer that stood still in a snapshot removes none of its successor's, which may have trimmed the log to it: neither where it
// has looked what the slots hold, nor where it still has to.
func TestSnapshotOfADeposedWriter(t *testing.T) {
	o := Options{URL: startServer(t, nil), Run: "stood still", WriterTTL: 300 * time.Millisecond}
	first := open(t, o)
	enc := begin(t, first)
	fill(t, first, enc, 100)
	fill(t, first, enc, 100)
	line := enc.Position().Line
	must(t, first.markSlots())
	good, _, err := first.verifySnapshots(t.Context())
	must(t, err)
	deposed := first.lease.Load()
	deposed.cancel() // it renews no more, as it stands still

	second := open(t, o)
	enc2 := *enc
	fill(t, second, &enc2, 100)
	kept := enc2.Position().Line
	_, _ = first.writeSnapshot(line, stateAt(line), good)
	if got, _ := newestGood(t, second); got != kept {
		t.Errorf("the newest snapshot is as of line %d, want the successor's of line %d", got, kept)
	}
	deposed.fence()
	if err := first.keep(line, stateAt(line)); !errors.Is(err, ErrFenced) {
		t.Errorf("a deposed writer's snapshot: %v", err)
	}
	if got, _ := newestGood(t, second); got != kept {
		t.Errorf("after another the newest snapshot is as of line %d, want the successor's of line %d", got, kept)
	}
}

// putHeadless stores a message with a header that is none, as a flipped byte leaves it. No client sends one.
func putHeadless(t *testing.T, url, subject string) {
	t.Helper()
	conn, err := net.Dial("tcp", strings.TrimPrefix(url, "nats://"))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	const header = "NATS/1.0\r\nHeadway-Chunks 1 5 0\r\n\r\n"
	fmt.Fprintf(conn, "CONNECT {\"headers\":true,\"verbose\":false,\"pedantic\":false}\r\nHPUB %s %d %d\r\n%sstate\r\nPING\r\n", subject, len(header), len(header)+5, header)
	for lines := bufio.NewScanner(conn); lines.Scan(); {
		if lines.Text() == "PONG" {
			return
		}
	}
	t.Fatal("the server closed the connection")
}
