package weights

import (
	"io"
	"io/fs"
	"os"
	"syscall"

	"github.com/headway-rl/headway/internal/replace"
)

// disk is what a Store asks of the file system. Tests put faults in between.
type disk interface {
	MkdirAll(dir string) error
	// Mkdir makes one directory and fails if it is there.
	Mkdir(dir string) error
	// Create opens a new file and fails if it is there.
	Create(path string) (output, error)
	Open(path string) (input, error)
	// Rename moves a directory to a name that is free, at once.
	Rename(from, to string) error
	RemoveAll(path string) error
	// Names lists a directory, sorted.
	Names(dir string) ([]string, error)
	// SyncDir makes a directory's entries survive a loss of power.
	SyncDir(dir string) error
	// Link gives a file a second name and fails if that is there, or on another file system.
	Link(from, to string) error
	// Free is the room in bytes that is left for files in a directory; negative if unknown.
	Free(dir string) int64
}

type output interface {
	io.WriteCloser
	// Sync makes what was written survive a loss of power.
	Sync() error
}

type input interface {
	io.ReadSeekCloser
	Stat() (fs.FileInfo, error)
}

// system is the file system of the machine.
type system struct{}

func (system) MkdirAll(dir string) error    { return os.MkdirAll(dir, 0o755) }
func (system) Mkdir(dir string) error       { return os.Mkdir(dir, 0o755) }
func (system) Rename(from, to string) error { return os.Rename(from, to) }
func (system) RemoveAll(path string) error  { return os.RemoveAll(path) }
func (system) Link(from, to string) error   { return os.Link(from, to) }
func (system) Free(dir string) int64        { return Free(dir) }

// Open does not wait for the writer of a pipe, which somebody may have linked here.
func (system) Open(path string) (input, error) {
	return os.OpenFile(path, os.O_RDONLY|syscall.O_NONBLOCK, 0)
}

func (system) Create(path string) (output, error) {
	return os.OpenFile(path, os.O_WRONLY|os.O_CREATE|os.O_EXCL, 0o644)
}

func (system) Names(dir string) ([]string, error) {
	entries, err := os.ReadDir(dir)
	names := make([]string, len(entries))
	for i, e := range entries {
		names[i] = e.Name()
	}
	return names, err
}

func (system) SyncDir(dir string) error { return replace.Directory(dir) }
