//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package lock

import (
	"errors"
	"fmt"
	"io"
	"os"
	"strconv"
	"strings"
	"syscall"
	"time"
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
	err = flock(f)
	for wait := dying; errors.Is(err, syscall.EWOULDBLOCK) && wait > 0 && gone(holder(f)); wait -= lookAgain {
		time.Sleep(lookAgain)
		err = flock(f)
	}
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

// dying is how long a lock is waited for whose process is gone, lookAgain the time between two looks. What a process was about
// to start has its files until it is another program.
const (
	dying     = 2 * time.Second
	lookAgain = 10 * time.Millisecond
)

func flock(f *os.File) error { return syscall.Flock(int(f.Fd()), syscall.LOCK_EX|syscall.LOCK_NB) }

func holder(f *os.File) string {
	text, _ := io.ReadAll(io.NewSectionReader(f, 0, 32))
	return strings.TrimSpace(string(text))
}

// gone reports whether no process has a number, as far as this one can see.
func gone(pid string) bool {
	n, err := strconv.Atoi(pid)
	return err == nil && n > 0 && errors.Is(syscall.Kill(n, 0), syscall.ESRCH)
}

// Release lets go. A second Release, or one of nothing, does nothing.
func (l *Lock) Release() {
	if l != nil && l.file != nil {
		l.file.Close()
		l.file = nil
	}
}
