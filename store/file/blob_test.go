package file_test

import (
	"bufio"
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
	"github.com/headway-rl/headway/store/file"
	"github.com/headway-rl/headway/store/storetest"
)

var blobID = port.RolloutID{Group: 1, Sample: 0, Attempt: 1}

// blobFiles lists the files of a run's blobs.
func blobFiles(t *testing.T, dir string) []string {
	t.Helper()
	paths, err := filepath.Glob(filepath.Join(dir, "state", "blobs", "*"))
	if err != nil {
		t.Fatal(err)
	}
	return paths
}

func reopened(t *testing.T, dir string) *file.Store {
	t.Helper()
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// A run without blobs has no directory for them.
func TestNoBlobsNoDirectory(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{Always: true})
	if err := s.PutSample(sampleOf(1, 0, 1)); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	closeStore(t, reopened(t, dir))
	if _, err := os.Stat(filepath.Join(dir, "state", "blobs")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the directory of blobs: %v, want none", err)
	}
}

// A run of another time is not begun over.
func TestCreateRefusesBlobsOfARun(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	if err := s.PutBlob(blobID, 0, []byte("rows")); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	if err := os.Remove(trace.Path(dir)); err != nil {
		t.Fatal(err)
	}
	if s, err := file.Create(dir, file.Options{}); err == nil {
		closeStore(t, s)
		t.Error("a run was begun over the blobs of another")
	}
}

// A process that dies in the middle of a put leaves a file under another name, which goes. After a loss of power a file
// may be shorter than it was, or have zeros: no byte is given that was not put.
func TestTornBlobs(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	data := storetest.Blob(blobID, 0, 150_000)
	if err := s.PutBlob(blobID, 0, data); err != nil {
		t.Fatal(err)
	}
	closeStore(t, s)
	path := blobFiles(t, dir)[0]
	whole, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(filepath.Dir(path), "1-0-1-1-99.tmp"), data[:50], 0o600); err != nil {
		t.Fatal(err)
	}
	got := make([]byte, len(data))
	for cut := 0; cut < len(whole); cut += 9_999 {
		for _, left := range [][]byte{whole[:cut], append(bytes.Clone(whole[:cut]), make([]byte, len(whole)-cut)...)} {
			if err := os.WriteFile(path, left, 0o600); err != nil {
				t.Fatal(err)
			}
			s := reopened(t, dir)
			if err := s.ReadBlob(blobID, 0, 0, got); !errors.Is(err, port.ErrBlobDamaged) {
				t.Fatalf("cut at byte %d: %v", cut, err)
			}
			closeStore(t, s)
			if files := blobFiles(t, dir); len(files) != 1 {
				t.Fatalf("there are %v, want one file", files)
			}
		}
	}
	if err := os.WriteFile(path, whole, 0o600); err != nil {
		t.Fatal(err)
	}
	s = reopened(t, dir)
	storetest.CheckBlob(t, s, blobID, 0, data, 0, len(data))
	closeStore(t, s)
}

// A group that ends while a blob of it is being put leaves no file, whichever comes first.
func TestForgottenWhileItIsPut(t *testing.T) {
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	for g := loop.GroupID(1); g <= 40; g++ {
		id := port.RolloutID{Group: g, Attempt: 1}
		begun, done := make(chan struct{}), make(chan error)
		go func() {
			close(begun)
			done <- s.PutBlob(id, 0, make([]byte, 1<<20))
		}()
		<-begun
		if err := s.Forget(g); err != nil {
			t.Fatal(err)
		}
		if err := <-done; err != nil {
			t.Fatal(err)
		}
		if err := s.Forget(g); err != nil { // where it came first
			t.Fatal(err)
		}
	}
	if n := s.PayloadBytes(); n != 0 {
		t.Errorf("%d bytes are counted, want 0", n)
	}
	closeStore(t, s)
	if files := blobFiles(t, dir); len(files) != 0 {
		t.Errorf("%d files are left", len(files))
	}
}

// A file that cannot be deleted fails no later write, and is told of; one that somebody has removed is gone as well.
func TestDeletionsThatFail(t *testing.T) {
	dir, told := t.TempDir(), make(chan string, 10)
	s, _ := begin(t, dir, file.Options{SegmentBytes: 1, Logf: func(format string, args ...any) { told <- fmt.Sprintf(format, args...) }})
	must := func(err error) {
		t.Helper()
		if err != nil {
			t.Error(err)
		}
	}
	stuck := func(path string) { // a directory with something in it cannot be deleted as a file
		must(os.Remove(path))
		must(os.MkdirAll(filepath.Join(path, "something"), 0o700))
	}
	must(s.PutBlob(blobID, 0, []byte("removed by somebody")))
	must(os.Remove(blobFiles(t, dir)[0]))
	must(s.Discard(blobID))
	must(s.PutBlob(port.RolloutID{Group: 2, Attempt: 1}, 0, []byte("stays")))
	for _, path := range blobFiles(t, dir) {
		stuck(path)
	}
	must(s.Forget(2))
	if text := <-told; !strings.Contains(text, "blobs") {
		t.Errorf("told of %s, want the blob", text)
	}
	must(s.PutSample(sampleOf(3, 0, 1)))
	must(s.PutSample(sampleOf(4, 0, 1)))
	segments, err := filepath.Glob(filepath.Join(dir, "state", "payload-*"))
	must(err)
	stuck(segments[0])
	must(s.Forget(3))
	if text := <-told; !strings.Contains(text, segments[0]) {
		t.Errorf("told of %s, want the segment %s", text, segments[0])
	}
	must(s.PutSample(sampleOf(5, 0, 1)))
	must(s.Close())
	if len(told) > 0 {
		t.Errorf("told of %s too", <-told)
	}
}

// childVariable has the test binary run as a process that is to be killed: its value is the run directory.
const childVariable = "HEADWAY_FILE_CHILD"

func TestMain(m *testing.M) {
	if dir := os.Getenv(childVariable); dir != "" {
		fmt.Fprintln(os.Stderr, putUntilKilled(dir))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

// putUntilKilled puts blobs and forgets some, and says on stdout what was acknowledged, after it was.
func putUntilKilled(dir string) error {
	s, err := file.Open(dir, file.Options{})
	if err != nil {
		return err
	}
	failed := make(chan error)
	for worker := range 3 {
		go func() {
			for g := loop.GroupID(time.Now().UnixNano()/1000*10 + int64(worker)); ; g += 10 {
				id := port.RolloutID{Group: g, Attempt: 1}
				size := 1000 + int(g/10%7)*300_000
				if err := s.PutBlob(id, 3, storetest.Blob(id, 3, size)); err != nil {
					failed <- err
				}
				fmt.Printf("put %d %d\n", g, size)
				if g/10%3 > 0 {
					fmt.Printf("forget %d\n", g) // before: it may be done and not said
					if err := s.Forget(g); err != nil {
						failed <- err
					}
				}
			}
		}()
	}
	return <-failed
}

// liveAndDie runs a child until it has said n lines, kills it, and returns the blobs that it still has by what it said.
func liveAndDie(t *testing.T, dir string, n int) (sizes map[loop.GroupID]int) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+dir)
	var failed bytes.Buffer
	command.Stderr = &failed
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	sizes = map[loop.GroupID]int{}
	said := 0
	for r := bufio.NewReader(out); ; said++ {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		var g loop.GroupID
		var size int
		if n, _ := fmt.Sscanf(line, "put %d %d\n", &g, &size); n == 2 {
			sizes[g] = size
		} else if n, _ := fmt.Sscanf(line, "forget %d\n", &g); n == 1 {
			delete(sizes, g)
		}
		if said == n {
			_ = command.Process.Kill()
		}
	}
	_ = command.Wait()
	if said < n {
		t.Fatalf("the child ended by itself after %d lines: %s", said, failed.Bytes())
	}
	return sizes
}

// A process is killed at random moments: every blob that it was acknowledged reads whole, and what it left torn, forgotten
// or without a payload is gone after the next start.
func TestKilledWhilePutting(t *testing.T) {
	rounds, seed := 4, uint64(1)
	if os.Getenv("HEADWAY_LONG") != "" {
		rounds, seed = 50, uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	s, _ := begin(t, dir, file.Options{})
	closeStore(t, s)
	for range rounds {
		sizes := liveAndDie(t, dir, 10+random.IntN(200))
		s := reopened(t, dir)
		for g, size := range sizes {
			id := port.RolloutID{Group: g, Attempt: 1}
			storetest.CheckBlob(t, s, id, 3, storetest.Blob(id, 3, size), 0, size)
		}
		if _, err := s.Retain(func(port.RolloutID) bool { return true }); err != nil {
			t.Fatal(err)
		}
		closeStore(t, s)
		if files := blobFiles(t, dir); len(files) != 0 {
			t.Fatalf("%v are left", files)
		}
	}
}
