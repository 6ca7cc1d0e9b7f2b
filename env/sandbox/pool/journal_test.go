package pool

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"

	"github.com/headway-rl/headway/env/sandbox"
)

// What a process leaves in the file is what the next one finds: whose boxes were open.
func TestOpenBoxesAreFoundAgain(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sub", "boxes.jsonl")
	synctest.Test(t, func(t *testing.T) {
		d := newBackend(t)
		first := opened(t, d, Options{File: file, WarmMin: 1, Starting: 1})
		a, b, c := lease(t, first, "g1-s0-a0"), lease(t, first, "g1-s1-a0 \"\n"), lease(t, first, "given back")
		for _, l := range []*Lease{a, b, c} {
			if err := l.Ready(t.Context()); err != nil {
				t.Fatal(err)
			}
		}
		_ = c.Close(t.Context())
		synctest.Wait()
		text, err := os.ReadFile(file) // as it is if the process ended here
		if err != nil {
			t.Fatal(err)
		}
		stray := sandbox.ID("run.stray")
		if err := os.WriteFile(file, append(text, []byte("no JSON\n{\"box\":\"run.torn\",\"hol")...), 0o644); err != nil {
			t.Fatal(err)
		}
		crashed := d.boxes
		d.boxes = map[sandbox.ID]*fakeBox{stray: {d: d, id: stray, dead: make(chan struct{})}, "other.x": {d: d, id: "other.x", dead: make(chan struct{})}}
		for id, box := range crashed {
			d.boxes[id] = box
		}
		said := ""
		second := opened(t, d, Options{File: file, Logf: func(format string, args ...any) { said += fmt.Sprintf(format, args...) }})
		holders := map[sandbox.ID]string{}
		for _, o := range second.Lost() {
			holders[o.Box] = o.Holder
		}
		want := map[sandbox.ID]string{a.ID(): "g1-s0-a0", b.ID(): "g1-s1-a0 \"\n", stray: ""}
		for id := range crashed {
			if _, ok := want[id]; !ok {
				want[id] = "" // stood ready
			}
		}
		if !reflect.DeepEqual(holders, want) {
			t.Errorf("the next process finds %v, want %v", holders, want)
		}
		if d.there() != 1 || second.Status().Orphans != int64(len(want)) {
			t.Errorf("%d boxes are left, %d orphans counted; want the other owner's, and %d", d.there(), second.Status().Orphans, len(want))
		}
		if !strings.Contains(said, "boxes.jsonl:") || strings.Contains(said, "torn") {
			t.Errorf("of a broken file was said: %q", said)
		}
		delete(d.boxes, "other.x")
		ended(t, second, d)
		if text, err := os.ReadFile(file); err != nil || strings.Count(string(text), "\n") != 0 {
			t.Errorf("nothing happened since, and the file has %q: %v", text, err)
		}
		_ = first.Close(t.Context())
	})
}

// The file stays short however long the pool lives, and says the same.
func TestFileIsRewritten(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boxes.jsonl")
	b, err := newJournal(file, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	for i := range 5000 {
		id := sandbox.ID(fmt.Sprintf("run.%d", i))
		b.opened(id)
		b.leased(id, fmt.Sprint("holder ", i))
		if i >= 10 {
			b.gone(sandbox.ID(fmt.Sprintf("run.%d", i-10)))
		}
	}
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	if lines := strings.Count(string(text), "\n"); lines > 1100 {
		t.Errorf("%d lines for 10 open boxes", lines)
	}
	open, err := readJournal(file, t.Logf)
	if err != nil || len(open) != 10 || open["run.4999"] != "holder 4999" || open["run.4990"] != "holder 4990" {
		t.Errorf("open are %v: %v", open, err)
	}
	if !reflect.DeepEqual(open, b.open) {
		t.Errorf("the file says %v, want %v", open, b.open)
	}
	b.close()
}

// Whatever is cut off the end, the rest is read: a box is open or not as its last whole line says.
func TestFileThatIsCut(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boxes.jsonl")
	b, err := newJournal(file, t.Logf)
	if err != nil {
		t.Fatal(err)
	}
	b.opened("run.1")
	b.leased("run.1", "a")
	b.opened("run.2")
	b.gone("run.1")
	b.close()
	text, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	for cut := range len(text) + 1 {
		if err := os.WriteFile(file, text[:cut], 0o644); err != nil {
			t.Fatal(err)
		}
		want := map[sandbox.ID]string{}
		for _, raw := range strings.SplitAfter(string(text[:cut]), "\n") {
			var l line
			if strings.HasSuffix(raw, "\n") {
				if err := json.Unmarshal([]byte(raw), &l); err != nil {
					t.Fatal(err)
				}
				if want[l.Box] = l.Holder; l.Gone {
					delete(want, l.Box)
				}
			}
		}
		got, err := readJournal(file, func(string, ...any) { t.Errorf("a cut after %d bytes is complained of", cut) })
		if err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("cut after %d bytes: %v, %v; want %v", cut, got, err, want)
		}
	}
}

// A file of another run is not acted on.
func TestFileOfAnotherRun(t *testing.T) {
	file := filepath.Join(t.TempDir(), "boxes.jsonl")
	if err := os.WriteFile(file, []byte("{\"box\":\"other.1\"}\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	d := newBackend(t)
	if _, err := Open(t.Context(), Options{Driver: d, Owner: "run", File: file}); err == nil || !strings.Contains(err.Error(), "other.1") {
		t.Errorf("opened with another run's file: %v", err)
	}
	p, err := Open(t.Context(), Options{Driver: d, Owner: "run", Earlier: "other", File: file})
	if err != nil || len(p.Lost()) != 1 {
		t.Fatalf("opened with a file by an earlier name: %v", err)
	}
	if err := p.Close(t.Context()); err != nil {
		t.Error(err)
	}
}

// Orphans of a backend that does not answer end when it does.
func TestOrphansOfASilentBackend(t *testing.T) {
	d := newBackend(t)
	d.boxes["run.old"] = &fakeBox{d: d, id: "run.old", dead: make(chan struct{})}
	var tries atomic.Int64
	d.destroyErr = func(id sandbox.ID) error {
		if tries.Add(1) <= 2 {
			return sandbox.Fail(sandbox.BackendDown, "destroy", id, "no answer")
		}
		return nil
	}
	p, err := Open(t.Context(), Options{Driver: d, Owner: "run", File: filepath.Join(t.TempDir(), "boxes.jsonl")})
	if err != nil {
		t.Fatal(err)
	}
	if err := p.Close(t.Context()); err != nil || tries.Load() < 2 {
		t.Errorf("closed after %d tries: %v", tries.Load(), err)
	}
}

// Orphans that do not end keep a pool from opening, with their names.
func TestOrphansThatDoNotEnd(t *testing.T) {
	d := newBackend(t)
	d.boxes["run.old"] = &fakeBox{d: d, id: "run.old", dead: make(chan struct{})}
	d.destroyErr = func(sandbox.ID) error { return errStart }
	if _, err := Open(t.Context(), Options{Driver: d, Owner: "run"}); err == nil || !strings.Contains(err.Error(), "run.old") {
		t.Errorf("opened beside an orphan that does not end: %v", err)
	}
}
