//go:build linux || darwin || freebsd || netbsd || openbsd || dragonfly

package lock

import (
	"errors"
	"os"
	"syscall"
)

// Held reports whether a process holds a lock, and which one ("" where it has not said). It takes the lock for an
// instant, shared, and changes nothing. A file that does not exist is not held.
func Held(path string) (pid string, held bool) {
	f, err := os.Open(path)
	if err != nil {
		return "", false
	}
	defer f.Close()
	err = syscall.Flock(int(f.Fd()), syscall.LOCK_SH|syscall.LOCK_NB)
	if !errors.Is(err, syscall.EWOULDBLOCK) {
		return "", false
	}
	return holder(f), true
}
