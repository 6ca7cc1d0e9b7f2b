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
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

// smallDisk is a file system of its own, part of which is taken; it takes the right to
// mount one. room frees that part.
func smallDisk(t *testing.T) (dir string, room func()) {
	dir = t.TempDir()
	if err := syscall.Mount("headway-test", dir, "tmpfs", 0, "size=24m"); err != nil {
		t.Skipf("a file system of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	if err := os.WriteFile(ballast, make([]byte, 12<<20), 0o644); err != nil {
		t.Fatal(err)
	}
	return dir, func() {
		if err := os.Remove(ballast); err != nil {
			t.Fatal(err)
		}
	}
}

// A server that runs into a full disk, because something else filled it between two looks,
// is started anew when there is room: nothing that was acknowledged is lost, what was
// refused can be tried again, and the writer stays the writer, however long that took.
func TestServerOutOfSpace(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir, room := smallDisk(t)
	again := make(chan struct{}, 1)
	o := Options{Dir: filepath.Join(dir, "nats"), Run: "test", FreeBytesMin: -1, CacheBytes: -1, WriterTTL: 100 * time.Millisecond,
		Logf: func(format string, args ...any) {
			text := fmt.Sprintf(format, args...)
			if t.Log(text); strings.Contains(text, "takes writes again") {
				again <- struct{}{}
			}
		}}
	s := reopen(t, o)
	line, enc := storetest.Header(t)
	log := bytes.Clone(line)
	if err := s.Append([][]byte{line}); err != nil {
		t.Fatal(err)
	}
	put := func(g int) error {
		return s.PutSample(storetest.Sample(port.RolloutID{Group: loop.GroupID(g), Attempt: 1}, 20_000))
	}
	blob := storetest.Blob(blobID, 0, 1<<20)
	n, blobs := 1, int32(0)
	err, filled := error(nil), error(nil)
	for err = put(n); err == nil; err = put(n) {
		n++
		if filled == nil { // what fills the disk is a blob, mostly
			filled = s.PutBlob(blobID, blobs, blob)
		}
		if filled == nil {
			blobs++
		}
	}
	if !errors.Is(err, port.ErrNoSpace) || !strings.Contains(err.Error(), dir) {
		t.Fatalf("a payload on a full disk: %v, want ErrNoSpace with the place", err)
	}
	if err := s.PutBlob(blobID, blobs, blob); !errors.Is(err, port.ErrNoSpace) {
		t.Fatalf("a blob on a full disk: %v, want ErrNoSpace", err)
	}
	if err := s.ReadBlob(blobID, blobs, 0, make([]byte, 1)); !errors.Is(err, port.ErrNoBlob) || blobs == 0 {
		t.Fatalf("refused after %d blobs: %v, want none", blobs, err)
	}
	event := storetest.Event(enc, 1)
	if err := s.Append([][]byte{event}); !errors.Is(err, port.ErrNoSpace) {
		t.Fatalf("a line on a full disk: %v, want ErrNoSpace", err)
	}
	for !strings.Contains(fmt.Sprint(s.embedded.server.Healthz(&server.HealthzOptions{Details: true}).Errors), s.names.bucket) {
		ctx, cancel := context.WithTimeout(t.Context(), 100*time.Millisecond)
		_, _ = s.lease.Load().bucket.Put(ctx, "filler", make([]byte, 4096)) // until the lease cannot be renewed either
		cancel()
	}
	room()
	<-again
	if err := put(n); err != nil {
		t.Fatalf("the refused payload, with room: %v", err)
	}
	if err := s.PutBlob(blobID, blobs, blob); err != nil {
		t.Fatalf("the refused blob, with room: %v", err)
	}
	if err := s.Append([][]byte{event}); err != nil {
		t.Fatalf("the refused line, with room: %v", err)
	}
	log = append(log, event...)
	for i := range 2 {
		for g := 1; g <= n; g++ {
			got, err := s.Samples(loop.GroupID(g))
			if err != nil || len(got) != 1 {
				t.Fatalf("group %d of %d: %d samples, %v", g, n, len(got), err)
			}
		}
		for number := range blobs + 1 {
			storetest.CheckBlob(t, s, blobID, number, blob, 0, len(blob))
		}
		checkLog(t, s, log)
		if i == 0 {
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = reopen(t, o)
		}
	}
}

// Lines that were on their way when the disk filled are in the log once.
func TestServerOutOfSpaceWithinAppend(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir, room := smallDisk(t)
	var freed atomic.Bool
	o := Options{Dir: filepath.Join(dir, "nats"), Run: "test", FreeBytesMin: -1, WriterTTL: 100 * time.Millisecond,
		Logf: func(format string, args ...any) {
			text := fmt.Sprintf(format, args...)
			if t.Log(text); strings.Contains(text, "takes no writes") {
				room()
				freed.Store(true)
			}
		}}
	s := reopen(t, o)
	line, enc := storetest.Header(t)
	var log []byte
	for lines := [][]byte{line}; ; lines = nil {
		for i := int64(0); i < 2000; i++ {
			lines = append(lines, storetest.Event(enc, i))
		}
		for err := s.Append(lines); err != nil; err = s.Append(lines) {
			if !errors.Is(err, port.ErrNoSpace) {
				t.Fatal(err)
			}
		}
		log = append(log, bytes.Join(lines, nil)...)
		if freed.Load() {
			break
		}
	}
	checkLog(t, s, log)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	checkLog(t, reopen(t, o), log)
}

func checkLog(t *testing.T, s *Store, want []byte) {
	t.Helper()
	r, err := s.ReadLog(0)
	if err != nil {
		t.Fatal(err)
	}
	defer r.Close()
	if text, err := io.ReadAll(r); err != nil || !bytes.Equal(text, want) {
		t.Errorf("the log has %d bytes (%v), want these %d", len(text), err, len(want))
	}
}

// reopen opens a store with its own Logf and makes it the writer.
func reopen(t *testing.T, o Options) *Store {
	t.Helper()
	s, err := Open(t.Context(), o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { _ = s.Close() })
	if _, _, err := s.Acquire(t.Context(), "a test"); err != nil {
		t.Fatal(err)
	}
	return s
}

// Turns that a full disk lets nobody delete are not gone. Who is told that they are finds none of them once the server has begun
// anew. It begins anew though nothing else is written.
func TestUnkeptOnAFullDisk(t *testing.T) {
	skipShort(t)
	t.Parallel()
	dir, room := smallDisk(t)
	stands, again := make(chan struct{}, 1), make(chan struct{}, 1)
	o := Options{Dir: filepath.Join(dir, "nats"), Run: "test", FreeBytesMin: -1, WriterTTL: time.Hour,
		Logf: func(format string, args ...any) {
			text := fmt.Sprintf(format, args...)
			t.Log(text)
			switch {
			case strings.Contains(text, "takes no writes"):
				stands <- struct{}{}
			case strings.Contains(text, "takes writes again"):
				again <- struct{}{}
			}
		}}
	s := reopen(t, o)
	begin(t, s)
	const most = 500 // one tombstone each, of which a page of the disk has room for some hundred
	var ids []port.RolloutID
	for g := range loop.GroupID(most) {
		id := port.RolloutID{Group: 1 + g, Attempt: 1}
		must(t, s.KeepTurn(id, 0, []byte("claim")))
		ids = append(ids, id)
	}
	rest, err := os.Create(filepath.Join(dir, "rest"))
	must(t, err)
	for err == nil {
		_, err = rest.Write(make([]byte, 4096))
	}
	must(t, rest.Close())
	done := make(chan port.RolloutID)
	go func() {
		defer close(done)
		for _, id := range ids {
			must(t, s.UnkeepTurns(id))
			done <- id
		}
	}()
	gone := 0
	for full := false; !full; {
		select {
		case <-stands:
			full = true
		case _, more := <-done:
			if gone++; !more {
				t.Fatal("there was room for all")
			}
		case <-time.After(20 * time.Second):
			t.Fatalf("%d are gone, and the server that takes no writes is not started anew", gone)
		}
	}
	room()
	<-again
	for range done {
		gone++
	}
	must(t, s.Close())
	s = reopen(t, o)
	for _, id := range ids[:gone] {
		if n := s.KeptTurns(id); n > 0 {
			t.Errorf("%d turns of %v are kept that nobody is to go on with", n, id)
		}
	}
	if gone != most {
		t.Errorf("%d of %d are gone", gone, most)
	}
}
