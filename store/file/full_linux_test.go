package file_test

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/storetest"
)

// fullDisk is a place where writes fail for lack of room, and how room is made there.
type fullDisk struct {
	dir        string
	fill, free func()
}

// ownProcess is set in the environment of a process that may limit itself.
const ownProcess = "HEADWAY_TEST_LIMITED"

// limitedFiles is a directory in which no file may grow beyond a size, as under ulimit
// -f: the kernel writes what fits and refuses the rest, as on a disk that is full.
//
// The limit is the process's: the test is run in one of its own, whose test log nobody keeps.
func limitedFiles(t *testing.T) fullDisk {
	if os.Getenv(ownProcess) == "" {
		cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run=^TestFullDisk$/^limit", "-test.v")
		cmd.Env = append(os.Environ(), ownProcess+"=1")
		if out, err := cmd.CombinedOutput(); err != nil || !bytes.Contains(out, []byte("--- PASS: TestFullDisk/limit")) {
			t.Errorf("%v\n%s", err, out)
		}
		return fullDisk{}
	}
	const most = 60_000
	signal.Ignore(syscall.SIGXFSZ)
	var before syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_FSIZE, &before); err != nil {
		t.Fatal(err)
	}
	set := func(soft uint64) func() {
		return func() {
			if err := syscall.Setrlimit(syscall.RLIMIT_FSIZE, &syscall.Rlimit{Cur: soft, Max: before.Max}); err != nil {
				t.Fatal(err)
			}
		}
	}
	t.Cleanup(func() {
		set(before.Cur)()
		signal.Reset(syscall.SIGXFSZ)
	})
	return fullDisk{t.TempDir(), set(most), set(before.Cur)}
}

// smallDisk is a file system of its own that something else fills; it takes the right to mount one.
func smallDisk(t *testing.T) fullDisk {
	dir := t.TempDir()
	if err := syscall.Mount("headway-test", dir, "tmpfs", 0, "size=1m"); err != nil {
		t.Skipf("a file system of its own: %v", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	ballast := filepath.Join(dir, "ballast")
	return fullDisk{filepath.Join(dir, "run"),
		func() {
			if err := os.WriteFile(ballast, make([]byte, 900_000), 0o644); err != nil {
				t.Fatal(err)
			}
		},
		func() {
			if err := os.Remove(ballast); err != nil {
				t.Fatal(err)
			}
		}}
}

// On a full disk every write is refused with a clear error and leaves nothing half
// written; when space returns the same writes go through, and everything that was
// promised is there, after a restart too.
func TestFullDisk(t *testing.T) {
	for name, place := range map[string]func(*testing.T) fullDisk{"limit of file size": limitedFiles, "file system": smallDisk} {
		t.Run(name, func(t *testing.T) {
			disk := place(t)
			if disk.dir == "" {
				return // it has been tested
			}
			s, enc := begin(t, disk.dir, file.Options{SegmentBytes: 40_000})
			disk.fill()
			refused := func(err error, what string) bool {
				t.Helper()
				if err == nil {
					return false
				}
				if !errors.Is(err, port.ErrNoSpace) || !strings.Contains(err.Error(), what) {
					t.Fatalf("%v, want no space for %s", err, what)
				}
				return true
			}
			// The log fills up; the event that did not fit is tried again, as the runtime does.
			var line []byte
			events := int64(0)
			for {
				next := eventLine(enc, events+1)
				for len(next) < 4000 { // so that the refused write is torn somewhere
					next = enc.AppendAction(next, enc.Seq(), loop.Action{Kind: loop.GroupQueued, Group: 1})
				}
				if refused(s.Append([][]byte{next}), "the event log") {
					line = next
					break
				}
				if events++; events > 100_000 {
					t.Fatal("it never was full")
				}
			}
			payloads := loop.GroupID(0)
			for !refused(s.PutSample(longSample(payloads+1)), "the payloads") {
				if payloads++; payloads == 300 {
					break // no file may be large, and there may be any number of them
				}
			}
			blob := storetest.Blob(blobID, 0, 400_000)
			if err := s.PutBlob(blobID, 0, blob); !refused(err, "blob 0") {
				t.Fatal("there was room for a blob")
			}
			if files := blobFiles(t, disk.dir); len(files) != 0 || !errors.Is(s.ReadBlob(blobID, 0, 0, make([]byte, 1)), port.ErrNoBlob) {
				t.Fatalf("a refused blob leaves %v", files)
			}
			refused(s.Snapshot(2, make([]byte, 500_000)), "the snapshot")
			for range 3 {
				if !refused(s.Append([][]byte{line}), "the event log") {
					t.Fatal("there was room again")
				}
			}
			checkLog(t, s, disk.dir, events)

			disk.free()
			appendLines(t, s, line)
			if err := s.PutSample(longSample(payloads + 1)); err != nil {
				t.Fatal(err)
			}
			if err := errors.Join(s.PutBlob(blobID, 0, blob), s.Snapshot(2, []byte("state"))); err != nil {
				t.Fatal(err)
			}
			appendLines(t, s, eventLine(enc, 7))
			closeStore(t, s)

			var err error
			if s, err = file.Open(disk.dir, file.Options{SegmentBytes: 40_000}); err != nil {
				t.Fatal(err)
			}
			checkLog(t, s, disk.dir, events+2)
			storetest.CheckBlob(t, s, blobID, 0, blob, 0, len(blob))
			for g := loop.GroupID(1); g <= payloads+1; g++ {
				if got, err := s.Samples(g); err != nil || len(got) != 1 || len(got[0].Tokens) != len(longSample(g).Tokens) {
					t.Fatalf("group %d of %d: %v", g, payloads+1, err)
				}
			}
			if line, state, err := s.ReadSnapshot(math.MaxInt64); line != 2 || string(state) != "state" || err != nil {
				t.Errorf("snapshot %d %q %v", line, state, err)
			}
			closeStore(t, s)
		})
	}
}

// longSample has a payload of some 5 kB.
func longSample(g loop.GroupID) port.Sample {
	s := sampleOf(g, 0, 1)
	for len(s.Tokens) < 600 {
		s.Tokens, s.LossMask = append(s.Tokens, 5), append(s.LossMask, 1)
		s.Logprobs, s.Versions = append(s.Logprobs, -1), append(s.Versions, 3)
	}
	return s
}

// checkLog checks that the log verifies, ends with a whole line and has so many events.
func checkLog(t *testing.T, s *file.Store, dir string, events int64) {
	t.Helper()
	if n := readAll(t, s); int64(n) != events {
		t.Fatalf("%d events, want %d", n, events)
	}
	data, err := os.ReadFile(filepath.Join(dir, trace.FileName))
	text, unpacked := io.ReadAll(trace.NewText(bytes.NewReader(data)))
	if err != nil || unpacked != nil || !bytes.HasSuffix(text, []byte("\n")) {
		t.Fatalf("the log ends with %q (%v, %v)", fmt.Sprintf("%.40s", text[max(len(text)-40, 0):]), err, unpacked)
	}
}
