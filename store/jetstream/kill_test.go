package jetstream

import (
	"bufio"
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"math"
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
	"github.com/headway-rl/headway/store/storetest"
)

// childVariable has the test binary run as a writer that is to be killed: its value is the run directory,
// or a cluster's URL and a run directory.
const childVariable = "HEADWAY_JETSTREAM_CHILD"

func TestMain(m *testing.M) {
	if where := os.Getenv(childVariable); where != "" {
		fmt.Fprintln(os.Stderr, child(where))
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func childOptions(where string) Options {
	url, dir, ok := strings.Cut(where, " ")
	if !ok {
		url, dir = "", where
	}
	o := Options{Run: "killed", TracePath: filepath.Join(dir, trace.FileName), LogBytesMax: 1 << 20, PayloadBytesMax: 1 << 30}
	if o.URL = url; url == "" {
		o.Dir = filepath.Join(dir, "nats")
	} else {
		o.Replicas, o.WriterTTL = 3, 10*time.Second
	}
	return o
}

// child appends, puts, forgets and takes snapshots until it is killed, and says on
// stdout what was acknowledged, after it was.
func child(where string) error {
	o := childOptions(where)
	s, err := Open(context.Background(), o)
	if err != nil {
		return err
	}
	if _, _, err := s.Acquire(context.Background(), "child"); err != nil {
		return err
	}
	enc, err := position(s, o.TracePath)
	if err != nil {
		return err
	}
	failed := make(chan error)
	for worker := range 3 {
		go func() {
			// Groups of an earlier life are not put again.
			for g := loop.GroupID(time.Now().UnixNano()/1000*10 + int64(worker)); ; g += 10 {
				id := port.RolloutID{Group: g, Sample: 0, Attempt: 1}
				tokens := 10
				if g/10%8 == 0 {
					tokens = 20_000
				}
				if size := blobOf(g); size > 0 {
					if err := s.PutBlob(id, 0, storetest.Blob(id, 0, size)); err != nil {
						failed <- err
					}
				}
				if err := s.PutSample(storetest.Sample(id, tokens)); err != nil {
					failed <- err
				}
				fmt.Printf("put %d %d\n", g, tokens)
				if g/10%3 == 0 {
					fmt.Printf("forget %d\n", g) // before: it may be done and not said
					if err := s.Forget(g); err != nil {
						failed <- err
					}
				}
			}
		}()
	}
	go func() {
		for i := int64(0); ; i++ {
			if err := s.Append([][]byte{storetest.Event(enc, i), storetest.Event(enc, i)}); err != nil {
				failed <- err
			}
			fmt.Printf("lines %d\n", enc.Position().Line)
			if i%100 == 99 || s.WantsSnapshot() {
				if err := s.Snapshot(enc.Position().Line, fmt.Append(nil, "state at ", enc.Position().Line)); err != nil {
					failed <- err
				}
				fmt.Printf("snapshot %d\n", enc.Position().Line)
			}
		}
	}()
	return <-failed
}

// blobOf is how large the blob of a group's rollout is, 0 for none.
func blobOf(g loop.GroupID) int {
	if g/10%16 != 5 {
		return 0
	}
	return 1_200_000
}

// position returns an encoder that goes on after the log, by its mirror, which Acquire completed.
func position(s *Store, path string) (*trace.Encoder, error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	r, err := trace.NewReader(f)
	if _, ok := s.Header(); !ok {
		enc := &trace.Encoder{}
		line, err := enc.AppendNote(nil, trace.NoteHeader, trace.Header{Format: trace.Format, Program: "test", Loop: storetest.Rules})
		return enc, errors.Join(err, s.Append([][]byte{line}))
	}
	if err != nil {
		return nil, fmt.Errorf("the mirror: %w", err)
	}
	for {
		if _, err := r.Next(); errors.Is(err, io.EOF) {
			return r.Encoder(), nil
		} else if err != nil {
			return nil, fmt.Errorf("the mirror: %w", err)
		}
	}
}

// told is what children have been acknowledged.
type told struct {
	lines, snapshot int64
	puts            map[loop.GroupID]int
}

// note takes a line of a child in. A line that was cut by the kill says nothing.
func (k *told) note(line string) {
	var a, b int64
	switch word, rest, _ := strings.Cut(line, " "); word {
	case "lines":
		if _, err := fmt.Sscanf(rest, "%d", &a); err == nil {
			k.lines = max(k.lines, a)
		}
	case "snapshot":
		if _, err := fmt.Sscanf(rest, "%d", &a); err == nil {
			k.snapshot = max(k.snapshot, a)
		}
	case "put":
		if _, err := fmt.Sscanf(rest, "%d %d", &a, &b); err == nil {
			k.puts[loop.GroupID(a)] = int(b)
		}
	case "forget":
		if _, err := fmt.Sscanf(rest, "%d", &a); err == nil {
			delete(k.puts, loop.GroupID(a))
		}
	}
}

// live runs a child until it has said n lines, kills it, and hears what it still said.
func (k *told) live(t *testing.T, where string, n int, during func(said int)) {
	t.Helper()
	command := exec.Command(os.Args[0])
	command.Env = append(os.Environ(), childVariable+"="+where)
	var failed bytes.Buffer
	command.Stderr = &failed
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	said := 0
	r := bufio.NewReader(out)
	for {
		line, err := r.ReadString('\n')
		if err != nil {
			break
		}
		k.note(line)
		if said++; said == n {
			_ = command.Process.Kill()
		}
		if during != nil && said <= n {
			during(said)
		}
	}
	_ = command.Wait()
	if said < n {
		t.Fatalf("the child ended by itself after %d lines: %s", said, failed.Bytes())
	}
}

// check opens what the killed children left: everything they said is there.
func (k *told) check(t *testing.T, where string) {
	t.Helper()
	o := childOptions(where)
	s := open(t, o)
	enc, err := position(s, o.TracePath)
	if err != nil {
		t.Fatal(err)
	}
	if lines := enc.Position().Line; lines < k.lines || lines != s.events.lines() {
		t.Fatalf("the mirror has %d lines and the log %d, of %d acknowledged", lines, s.events.lines(), k.lines)
	}
	line, state, err := newestSnapshot(s)
	if err != nil || line < k.snapshot || k.snapshot > 0 && string(state) != fmt.Sprint("state at ", line) {
		t.Fatalf("the newest snapshot is of line %d (%q), of %d acknowledged: %v", line, state, k.snapshot, err)
	}
	if r, err := s.ReadLog(line); err != nil {
		t.Fatalf("the log after the snapshot: %v", err)
	} else if text, err := io.ReadAll(r); err != nil || line+int64(bytes.Count(text, newline)) != s.events.lines() {
		t.Fatalf("%d lines after the snapshot at %d of %d: %v", bytes.Count(text, newline), line, s.events.lines(), err)
	}
	for g, tokens := range k.puts {
		got, err := s.Samples(g)
		if err != nil || !storetest.Same(got, []port.Sample{storetest.Sample(port.RolloutID{Group: g, Attempt: 1}, tokens)}) {
			t.Fatalf("group %d was acknowledged and is not what was put: %v", g, err)
		}
		if size := blobOf(g); size > 0 {
			id := port.RolloutID{Group: g, Attempt: 1}
			storetest.CheckBlob(t, s, id, 0, storetest.Blob(id, 0, size), 0, size)
		}
	}
	// What is no longer looked at makes room.
	if _, err := s.Retain(func(port.RolloutID) bool { return false }); err != nil {
		t.Fatal(err)
	}
	s.payloads.reclaim(t.Context(), true)
	if n := len(s.payloads.blobs.groups); n > 0 || s.payloads.used() > 0 {
		t.Fatalf("blobs of %d groups are left, and %d bytes", n, s.payloads.used())
	}
	clear(k.puts)
	if err := s.Close(); err != nil {
		t.Fatal(err)
	}
}

// newestSnapshot is the newest that is whole: the one that was being written when the process was killed is not.
func newestSnapshot(s *Store) (line int64, state []byte, err error) {
	line, state, err = s.ReadSnapshot(math.MaxInt64)
	if errors.Is(err, port.ErrSnapshotDamaged) {
		line, state, err = s.ReadSnapshot(line)
	}
	return line, state, err
}

// A writer with the server inside is killed at random moments; everything that it was
// acknowledged is there, the mirror too, and it goes on.
func TestKilledEmbedded(t *testing.T) {
	skipShort(t)
	t.Parallel()
	rounds, seed := 5, uint64(1)
	if os.Getenv("HEADWAY_LONG") != "" {
		rounds, seed = 50, uint64(time.Now().UnixNano())
	}
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	dir := t.TempDir()
	k := &told{puts: map[loop.GroupID]int{}}
	for range rounds {
		k.live(t, dir, 1+random.IntN(1500), nil)
		k.check(t, dir)
	}
	if k.lines < 10 || k.snapshot == 0 {
		t.Errorf("%d lines and a snapshot at %d in all: too little to tell", k.lines, k.snapshot)
	}
}
