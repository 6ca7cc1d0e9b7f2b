package lock

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"testing"
)

// heldBy is a lock whose file names a process, and which a child of this one holds until end is called.
func heldBy(t *testing.T, pid int) (path string, end func()) {
	t.Helper()
	path = filepath.Join(t.TempDir(), "lock")
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteString(strconv.Itoa(pid) + "\n"); err != nil {
		t.Fatal(err)
	}
	if err := flock(f); err != nil {
		t.Fatal(err)
	}
	child := exec.Command("cat")
	child.ExtraFiles = []*os.File{f}
	in, err := child.StdinPipe()
	if err == nil {
		err = child.Start()
	}
	if err == nil {
		err = f.Close() // the child has it
	}
	if err != nil {
		t.Fatal(err)
	}
	end = func() {
		in.Close()
		_ = child.Wait() // its end is all that is wanted
	}
	t.Cleanup(end)
	return path, end
}

// A lock is refused while its process lives. Where that is gone, and something that it was about to start has its files for a
// moment, it is waited for.
func TestTake(t *testing.T) {
	path, _ := heldBy(t, os.Getpid())
	if _, err := Take(path, "d"); err == nil || err.(*Error).PID != strconv.Itoa(os.Getpid()) {
		t.Errorf("a lock of a process that lives: %v", err)
	}
	gone := exec.Command("true")
	if err := gone.Run(); err != nil {
		t.Fatal(err)
	}
	path, end := heldBy(t, gone.Process.Pid)
	taken := make(chan error, 1)
	go func() {
		l, err := Take(path, "d")
		l.Release()
		taken <- err
	}()
	end()
	if err := <-taken; err != nil {
		t.Errorf("a lock of a process that is gone: %v", err)
	}
	if text, err := os.ReadFile(path); err != nil || string(text) != strconv.Itoa(os.Getpid())+"\n" {
		t.Errorf("the lock says %q, %v", text, err)
	}
	path, _ = heldBy(t, gone.Process.Pid)
	var held *Error
	if _, err := Take(path, "d"); !errors.As(err, &held) {
		t.Errorf("what a process left behind holds the lock: %v", err)
	}
}
