package port

import (
	"errors"
)

// ErrNoSpace is wrapped by the errors of stores that have no room left: the disk is
// full, or a limit is reached. Nothing of what was to be kept has been kept; the same
// may be tried again. It does not end a run, which waits for room.
var ErrNoSpace = errors.New("no space left in the store")
