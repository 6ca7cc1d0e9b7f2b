package file

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/headway-rl/headway/loop/port"
)

// noSpace reports whether a write failed for lack of room: of the disk, of a quota, or
// of the size that a file of this process may have.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// full is the error of something that there is no room for: what it was before is
// still all there.
func full(what string, err error) error {
	return fmt.Errorf("store: %w for %s: %w", port.ErrNoSpace, what, err)
}
