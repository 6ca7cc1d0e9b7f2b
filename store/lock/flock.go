//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package lock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"syscall"
)

// Lock is held on an open file for as long as the process lives. The kernel lets go of it however the
// process ends, so that nothing has to be cleaned up.
type Lock struct{ file *os.File }

// Take locks the run in dir for this process, or says which one has it.
func Take(path, dir string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE, 0o600)
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB)
	if errors.Is(err, syscall.EWOULDBLOCK) {
		defer f.Close()
		return nil, &Error{Dir: dir, PID: holder(f)}
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
	return &Lock{f}, nil
}

func holder(f *os.File) string {
	text, _ := io.ReadAll(io.LimitReader(f, 32))
	return strings.TrimSpace(string(text))
}

// Release lets go. A second Release, or one of nothing, does nothing.
func (l *Lock) Release() {
	if l != nil && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
