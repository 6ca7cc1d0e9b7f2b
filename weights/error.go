package weights

import (
	"errors"
	"fmt"
)

var (
	// ErrNotFound is what asking for a version answers that was never published, or has been pruned.
	ErrNotFound = errors.New("no such version")
	// ErrConflict is what publishing a version answers that exists with another lease or other content.
	ErrConflict = errors.New("the version exists and is another")
	// ErrReadOnly is what a Store opened with Options.ReadOnly answers to a change.
	ErrReadOnly = errors.New("opened for reading only")
)

// CorruptError says that a file of a version is not what was published.
type CorruptError struct {
	// Path of the file.
	Path string
	// Expected and Found say what it should be and what it is.
	Expected, Found string
}

// Error names the file, what was expected and found, and what to do.
func (e *CorruptError) Error() string {
	return fmt.Sprintf("weights: %s is corrupt: expected %s, found %s; restore the file from a copy, or delete its directory and go back to an older version", e.Path, e.Expected, e.Found)
}
