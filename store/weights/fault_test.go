package weights

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

var (
	errKilled = errors.New("the process is dead")
	errDisk   = errors.New("no space left on device")
)

// fault says what happens at the operation of a disk that it strikes.
type fault struct {
	name string
	// effect: the operation takes place all the same; half: a write, or a deletion, does so in part.
	effect, half bool
	// kill: nothing happens afterwards either.
	kill bool
}

var faults = []fault{
	{name: "killed before", kill: true},
	{name: "killed within", kill: true, half: true},
	{name: "killed after", kill: true, effect: true},
	{name: "failed before"},
	{name: "failed within", half: true},
	{name: "failed after", effect: true},
}

// faulty is a disk that is struck by a fault at one operation.
type faulty struct {
	system
	fault fault
	// left counts down to the operation that is struck; negative for never.
	left   int
	struck string // the operation that was, "" if none
	dead   bool
	// What a loss of power would take: files without Sync, entries and renames without SyncDir.
	files   map[string]bool
	entries map[string]bool
	renames [][2]string
}

func newFaulty(f fault, operation int) *faulty {
	return &faulty{fault: f, left: operation, files: map[string]bool{}, entries: map[string]bool{}}
}

// do passes on an operation that changes the disk, or not. partial is its half.
func (d *faulty) do(name string, whole, partial func() error) error {
	if d.dead {
		return errKilled
	}
	d.left--
	if d.left != -1 {
		return whole()
	}
	d.struck, d.dead = name, d.fault.kill
	result := errDisk
	if d.fault.kill {
		result = errKilled
	}
	switch {
	case d.fault.effect:
		if err := whole(); err != nil { // it fails by itself: the next one is struck
			d.left, d.struck, d.dead = 0, "", false
			return err
		}
	case d.fault.half && partial != nil:
		return errors.Join(result, partial())
	}
	return result
}

func (d *faulty) MkdirAll(dir string) error {
	return d.do("mkdir all", func() error { return d.system.MkdirAll(dir) }, nil)
}

func (d *faulty) Mkdir(dir string) error {
	return d.do("mkdir "+filepath.Base(dir), func() error {
		d.entries[dir] = true
		return d.system.Mkdir(dir)
	}, nil)
}

func (d *faulty) Create(path string) (output, error) {
	var made output
	err := d.do("create "+filepath.Base(path), func() (err error) {
		made, err = d.system.Create(path)
		d.files[path], d.entries[path] = true, true
		return err
	}, nil)
	if err != nil {
		if made != nil {
			_ = made.Close() // a dead process has no open files
		}
		return nil, err
	}
	return &faultyFile{d, made, path}, nil
}

func (d *faulty) Rename(from, to string) error {
	return d.do("rename to "+filepath.Base(to), func() error {
		if err := d.system.Rename(from, to); err != nil {
			return err
		}
		d.moved(from, to)
		d.renames = append(d.renames, [2]string{from, to})
		return nil
	}, nil)
}

// moved follows the paths of what is not durable.
func (d *faulty) moved(from, to string) {
	for _, set := range []map[string]bool{d.files, d.entries} {
		for path := range set {
			if rest, ok := strings.CutPrefix(path, from); ok && (rest == "" || rest[0] == filepath.Separator) {
				delete(set, path)
				set[to+rest] = true
			}
		}
	}
}

func (d *faulty) RemoveAll(path string) error {
	return d.do("remove "+filepath.Base(path), func() error { return d.system.RemoveAll(path) }, func() error {
		names, err := d.system.Names(path)
		if err == nil && len(names) > 0 {
			err = d.system.RemoveAll(filepath.Join(path, names[0]))
		}
		return err
	})
}

func (d *faulty) SyncDir(dir string) error {
	return d.do("sync "+filepath.Base(dir), func() error {
		for path := range d.entries {
			if filepath.Dir(path) == dir {
				delete(d.entries, path)
			}
		}
		d.renames = slices.DeleteFunc(d.renames, func(r [2]string) bool { return filepath.Dir(r[1]) == dir })
		return nil // on paper: the real one would only take time
	}, nil)
}

func (d *faulty) Link(from, to string) error {
	return d.do("link "+filepath.Base(to), func() error {
		d.entries[to] = true
		return d.system.Link(from, to)
	}, nil)
}

func (d *faulty) Open(path string) (input, error) {
	if d.dead {
		return nil, errKilled
	}
	return d.system.Open(path)
}

func (d *faulty) Names(dir string) ([]string, error) {
	if d.dead {
		return nil, errKilled
	}
	return d.system.Names(dir)
}

// losePower takes what was not synced. Names may reach the disk long before data
// does: with keepNames only contents are lost.
func (d *faulty) losePower(t *testing.T, keepNames bool) {
	t.Helper()
	for path := range d.files {
		if _, err := os.Stat(path); err == nil {
			if err := os.Truncate(path, 0); err != nil {
				t.Fatal(err)
			}
		}
	}
	if keepNames {
		return
	}
	for path := range d.entries {
		if err := os.RemoveAll(path); err != nil {
			t.Fatal(err)
		}
	}
	for _, r := range slices.Backward(d.renames) {
		if err := os.Rename(r[1], r[0]); err != nil && !errors.Is(err, os.ErrNotExist) {
			t.Fatal(err)
		}
	}
}

type faultyFile struct {
	d    *faulty
	file output
	path string
}

func (f *faultyFile) Write(p []byte) (n int, err error) {
	err = f.d.do("write "+filepath.Base(f.path), func() (err error) {
		n, err = f.file.Write(p)
		return err
	}, func() (err error) {
		n, err = f.file.Write(p[:len(p)/2])
		return err
	})
	return n, err
}

func (f *faultyFile) Sync() error {
	return f.d.do("sync "+filepath.Base(f.path), func() error {
		delete(f.d.files, f.path)
		return nil
	}, nil)
}

func (f *faultyFile) Close() error {
	err := f.d.do("close "+filepath.Base(f.path), f.file.Close, nil)
	if err != nil {
		_ = f.file.Close() // of the test's process, which lives on
	}
	return err
}

// scratch returns a fresh directory, in memory where the system has such: these
// tests make thousands of files.
func scratch(t *testing.T) string {
	t.Helper()
	dir, err := os.MkdirTemp("/dev/shm", "weights-")
	if err != nil {
		return t.TempDir()
	}
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	return dir
}

// strike runs act on a store with versions 0 and 1, once for every operation of
// act and every fault, and then judges what is left.
func strike(t *testing.T, options Options, prepare func(dir string), act func(*Store) error, judge func(t *testing.T, dir string, d *faulty, err error)) {
	t.Helper()
	for _, f := range faults {
		for operation := 0; ; operation++ {
			dir := scratch(t)
			s := openTest(t, dir, Options{})
			for v := range loop.Version(2) {
				expectPublish(t, s, publication(v, 1))
			}
			prepare(dir)
			d := newFaulty(f, operation)
			s.disk, s.options = d, options
			err := act(s)
			if d.struck == "" {
				if err != nil || operation == 0 {
					t.Fatalf("without a fault: %v after %d operations", err, operation)
				}
				break
			}
			t.Run(fmt.Sprintf("%s/%d %s", f.name, operation, d.struck), func(t *testing.T) { judge(t, dir, d, err) })
		}
	}
}

func nothing(string) {}

// inTheWay makes a directory of version 2 that is no version.
func inTheWay(t *testing.T) func(string) {
	return func(dir string) {
		if err := os.MkdirAll(filepath.Join(dir, "v000002", "x"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
}

func publishTwo(s *Store) error { return s.Publish(context.Background(), publication(2, 7)) }

// After a fault anywhere in a publish the version is there whole or not at all,
// the others are untouched, and publishing it again works.
func TestPublishUnderFaults(t *testing.T) {
	alone(t)
	for _, always := range []bool{false, true} {
		for name, prepare := range map[string]func(string){"free": nothing, "in the way": inTheWay(t)} {
			t.Run(fmt.Sprintf("always %v/%s", always, name), func(t *testing.T) {
				strike(t, Options{Always: always}, prepare, publishTwo, func(t *testing.T, dir string, d *faulty, err error) {
					if err == nil && !strings.HasPrefix(d.struck, "remove ") {
						t.Error("the fault was not reported")
					}
					wholeOrAbsent(t, dir, err == nil)
				})
			})
		}
	}
}

// wholeOrAbsent opens the directory anew and checks every version of it.
func wholeOrAbsent(t *testing.T, dir string, published bool) {
	t.Helper()
	s := openTest(t, dir, Options{})
	versions, err := s.Versions()
	if err != nil || len(versions) < 2 || versions[0] != 0 || versions[1] != 1 {
		t.Fatalf("versions %v, %v, want 0 and 1", versions, err)
	}
	for _, v := range versions[:2] {
		expect(t, s, publication(v, 1))
	}
	if there := len(versions) == 3; there {
		expect(t, s, publication(2, 7))
	} else if published {
		t.Fatal("published, and not there")
	}
	if names, _ := os.ReadDir(dir); slices.ContainsFunc(names, func(e os.DirEntry) bool { return strings.HasPrefix(e.Name(), temporaryPrefix) }) {
		t.Errorf("left behind after Open: %v", names)
	}
	expectPublish(t, s, publication(2, 7))
}

// After a failure, unlike a death, the same store goes on.
func TestStoreGoesOnAfterFailure(t *testing.T) {
	strike(t, Options{Always: true}, nothing, func(s *Store) error {
		err := publishTwo(s)
		if d := s.disk.(*faulty); err != nil && !d.dead {
			if again := publishTwo(s); again != nil {
				t.Errorf("publishing again after %q: %v", d.struck, again)
			}
			expect(t, s, publication(2, 7))
		}
		return err
	}, func(t *testing.T, dir string, d *faulty, _ error) {
		if names, _ := os.ReadDir(dir); !d.dead && len(names) != 3 {
			t.Errorf("left behind: %v", names)
		}
	})
}

// Under Always a loss of power is a death like any other. Without it, what is
// lost is noticed: nothing damaged is served.
func TestPublishUnderPowerLoss(t *testing.T) {
	alone(t)
	for _, keepNames := range []bool{false, true} {
		strike(t, Options{Always: true}, nothing, publishTwo, func(t *testing.T, dir string, d *faulty, err error) {
			d.losePower(t, keepNames)
			wholeOrAbsent(t, dir, err == nil)
		})
		dir := t.TempDir()
		s, d := openTest(t, dir, Options{Always: true}), newFaulty(fault{}, -1)
		s.disk = d
		expectPublish(t, s, publication(2, 7))
		d.losePower(t, keepNames)
		expect(t, openTest(t, dir, Options{}), publication(2, 7))
	}
	dir := t.TempDir()
	s, d := openTest(t, dir, Options{}), newFaulty(fault{}, -1)
	s.disk = d
	expectPublish(t, s, publication(2, 7))
	d.losePower(t, true)
	if err := openTest(t, dir, Options{}).Verify(t.Context(), 2); !errors.As(err, new(*CorruptError)) {
		t.Errorf("contents lost, and Verify says %v", err)
	}
}

// After a fault anywhere in a prune every version is whole or gone, and the
// newest is there.
func TestPruneUnderFaults(t *testing.T) {
	third := func(dir string) {
		s, err := Open(dir, Options{})
		if err == nil {
			err = publishTwo(s)
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	strike(t, Options{}, third, func(s *Store) error { return s.Prune(9) }, func(t *testing.T, dir string, d *faulty, err error) {
		if err == nil {
			t.Error("the fault was not reported")
		}
		s := openTest(t, dir, Options{})
		versions, err := s.Versions()
		if err != nil || !slices.Contains(versions, 2) {
			t.Fatalf("versions %v, %v, want the newest among them", versions, err)
		}
		for _, v := range versions {
			expect(t, s, map[loop.Version]port.Publication{0: publication(0, 1), 1: publication(1, 1), 2: publication(2, 7)}[v])
		}
		if !d.dead && slices.Contains(versions, 0) && slices.Contains(versions, 1) {
			t.Error("one failure kept both old versions")
		}
		if err := s.Prune(9); err != nil {
			t.Fatal(err)
		}
		if names, _ := os.ReadDir(dir); len(names) != 1 {
			t.Errorf("left behind: %v", names)
		}
	})
}

// A process that dies while it cleans up leaves the rest to the next.
func TestOpenUnderFaults(t *testing.T) {
	for _, f := range faults {
		for operation := 0; ; operation++ {
			dir := scratch(t)
			expectPublish(t, openTest(t, dir, Options{}), publication(2, 7))
			for _, name := range []string{"1-v000003", "2-v000003"} {
				if err := os.CopyFS(filepath.Join(dir, temporaryPrefix+name), os.DirFS(filepath.Join(dir, "v000002"))); err != nil {
					t.Fatal(err)
				}
			}
			d := newFaulty(f, operation)
			_, err := open(dir, Options{Always: true}, d)
			if d.struck == "" {
				if err != nil {
					t.Fatal(err)
				}
				break
			}
			if err == nil {
				t.Errorf("%s at %s: not reported", f.name, d.struck)
			}
			expect(t, openTest(t, dir, Options{}), publication(2, 7))
			if names, _ := os.ReadDir(dir); len(names) != 1 {
				t.Errorf("left behind: %v", names)
			}
		}
	}
}
