//go:build !(linux || darwin || freebsd || netbsd || openbsd || dragonfly)

package lock

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
)

// Lock is a file that exists while the run is being written. Where the system has
// no flock, a process that dies leaves it behind, and a person has to delete it.
type Lock struct{ path string }

// Take locks the run in dir for this process, or says which one has it.
func Take(path, dir string) (*Lock, error) {
	f, err := os.OpenFile(path, os.O_RDWR|os.O_CREATE|os.O_EXCL, 0o600)
	if errors.Is(err, fs.ErrExist) {
		text, _ := os.ReadFile(path)
		return nil, &Error{Dir: dir, PID: strings.TrimSpace(string(text)), File: path}
	}
	if err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	_, err = fmt.Fprintf(f, "%d\n", os.Getpid())
	if err := errors.Join(err, f.Close()); err != nil {
		return nil, fmt.Errorf("store: locking %s: %w", dir, err)
	}
	return &Lock{path}, nil
}

// Release lets go. A second Release, or one of nothing, does nothing.
func (l *Lock) Release() {
	if l != nil && l.path != "" {
		os.Remove(l.path)
		l.path = ""
	}
}
