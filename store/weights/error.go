package weights

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/headway-rl/headway/loop"
)

var (
	// ErrNotFound is what asking for a version answers that was never published, or has been pruned.
	ErrNotFound = errors.New("no such version")
	// ErrConflict is what publishing a version answers that exists with another lease or other content.
	ErrConflict = errors.New("the version exists and is another")
	// ErrNoWeights is what reading the weights of a version answers that was committed without them.
	ErrNoWeights = errors.New("the version has no such weights")
	// ErrReadOnly is what a Store opened with Options.ReadOnly answers to a change.
	ErrReadOnly = errors.New("opened for reading only")
)

// CorruptError says that a file of a version is not what was published.
type CorruptError struct {
	// Path of the file.
	Path string
	// Expected is the value that it should have, Found the one that it has.
	Expected, Found string
}

// Error names the file, what was expected and found, and what to do.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("weights: %s is corrupt: expected %s, found %s; restore the file from a copy, or delete its directory and go back to an older version", e.Path, e.Expected, e.Found)
}

// RefusedError says that a version must not be published as it was sent. It is the publisher's fault,
// and sending it again does not help. Nothing was published.
type RefusedError struct {
	// Version that was to be published.
	Version loop.Version
	// Reason says where it is wrong, what was found and what was expected.
	Reason string
}

// Error names the version and the reason.
func (e *RefusedError) Error() string {
	return fmt.Sprintf("weights: version %d is refused: %s; nothing was published", e.Version, e.Reason)
}

// refused makes a RefusedError.
func refused(version loop.Version, format string, arguments ...any) error {
	return &RefusedError{version, fmt.Sprintf(format, arguments...)}
}

// FullError says that the disk has no room for a version. It wraps syscall.ENOSPC.
// Nothing was published, and the files written so far are deleted.
type FullError struct {
	// Dir is the store's directory.
	Dir string
	// Needed is the size of the version's files in bytes as far as it is known, Free the
	// room there was; negative if unknown.
	Needed, Free int64
}

// Error says how much was needed and free.
func (e *FullError) Error() string {
	if e.Free < 0 {
		return fmt.Sprintf("weights: the disk of %s is full: %d bytes needed; free some and publish again", e.Dir, e.Needed)
	}
	return fmt.Sprintf("weights: the disk of %s is full: %d bytes needed, %d free; free some and publish again", e.Dir, e.Needed, e.Free)
}

// Unwrap returns syscall.ENOSPC.
func (e *FullError) Unwrap() error { return syscall.ENOSPC }
