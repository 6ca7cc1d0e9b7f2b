// Package reread keeps what a program has read from files, and reads it again when they change.
package reread

import (
	"errors"
	"io/fs"
	"os"
	"sync"
	"sync/atomic"
	"time"
)

// Every is how long a change may stay unseen while the value is asked for.
const Every = 5 * time.Second

// Value is what was read from some files. It is safe for concurrent use.
type Value[T any] struct {
	read  func() (T, error)
	logf  func(format string, args ...any)
	what  string
	paths []string

	value atomic.Pointer[T]
	// next is when the files are looked at again, in nanoseconds since 1970.
	next atomic.Int64
	// looking is held while the files are looked at.
	looking sync.Mutex
	seen    []os.FileInfo
}

// New reads the files of those paths, which what names in the log, and returns the error of that. A
// nil logf logs nothing.
func New[T any](what string, read func() (T, error), logf func(format string, args ...any), paths ...string) (*Value[T], error) {
	if logf == nil {
		logf = func(string, ...any) {}
	}
	v := &Value[T]{read: read, logf: logf, what: what, paths: paths}
	v.seen = v.stat()
	first, err := read()
	if err != nil {
		return nil, err
	}
	v.value.Store(&first)
	v.next.Store(time.Now().Add(Every).UnixNano())
	return v, nil
}

// Get returns the value. At most once every Every it looks whether a file has changed, by its time of
// change, size, mode and identity. Files that cannot be read then are logged, and the value before stays.
func (v *Value[T]) Get() T {
	if now := time.Now(); now.UnixNano() >= v.next.Load() && v.looking.TryLock() {
		v.look()
		v.next.Store(now.Add(Every).UnixNano())
		v.looking.Unlock()
	}
	return *v.value.Load()
}

// look reads the files again if one has changed. v.looking must be held.
func (v *Value[T]) look() {
	there := v.stat() // before they are read: a change meanwhile is seen the next time
	if same(there, v.seen) {
		return
	}
	value, err := v.read()
	if !passing(err) {
		v.seen = there
	}
	if err != nil {
		v.logf("%s has changed and cannot be used, so that the one before stays: %v", v.what, err)
		return
	}
	v.value.Store(&value)
	v.logf("%s has changed and was read again", v.what)
}

// passing reports whether reading may go well though no file changes: for want of descriptors, say.
func passing(err error) bool {
	_, is := errors.AsType[*fs.PathError](err)
	return is && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, fs.ErrPermission)
}

// stat says what is known of the files; nil for one that is not there.
func (v *Value[T]) stat() []os.FileInfo {
	out := make([]os.FileInfo, len(v.paths))
	for i, path := range v.paths {
		if info, err := os.Stat(path); err == nil {
			out[i] = info
		}
	}
	return out
}

func same(a, b []os.FileInfo) bool {
	for i := range a {
		if (a[i] == nil) != (b[i] == nil) {
			return false
		}
		if a[i] != nil && (!os.SameFile(a[i], b[i]) || a[i].ModTime() != b[i].ModTime() || a[i].Size() != b[i].Size() || a[i].Mode() != b[i].Mode()) {
			return false
		}
	}
	return true
}
