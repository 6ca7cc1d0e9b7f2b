//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package file

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// lock is held on an open file for as long as the process lives: the kernel lets
// go of it whatever way the process ends, so that nothing has to be cleaned up.
type lock struct{ file *os.File }

// takeLock locks the run in dir for this process, or says which one has it.
func takeLock(path, dir string) (*lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer f.Close()
		return nil, &LockedError{Dir: dir, PID: holder(f)}
	}
	if err == nil {
		err = f.Truncate(0)
	}
	if err == nil {
		_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	}
	if err != nil {
		f.Close()
		return nil, fmt.Errorf("store: locking %s: %w", dir, err)
	}
	return &lock{f}, nil
}

func holder(f *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	return strings.TrimSpace(string(text))
}

func (l *lock) release() {
	if l != nil && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
