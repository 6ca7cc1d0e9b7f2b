package agent

import (
	"errors"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// A full disk is the doing of who uses a box only where the box has a disk of its own.
func TestFullDisk(t *testing.T) {
	for _, c := range []struct {
		errno   syscall.Errno
		ownDisk bool
		want    sandbox.Class
	}{
		{syscall.ENOSPC, true, sandbox.Disk}, {syscall.EDQUOT, true, sandbox.Disk}, {syscall.EFBIG, true, sandbox.Disk},
		{syscall.ENOSPC, false, sandbox.Quota}, {syscall.EDQUOT, false, sandbox.Quota}, {syscall.EFBIG, false, sandbox.Disk},
	} {
		err := faultOf("/work/x", c.errno).failure("write", "t.1", c.ownDisk)
		if sandbox.ClassOf(err) != c.want || !errors.Is(err, syscall.ENOSPC) {
			t.Errorf("%v, own disk %v: %v, want class %s", c.errno, c.ownDisk, err, c.want)
		}
	}
}
