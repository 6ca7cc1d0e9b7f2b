package remote

import (
	"fmt"
	"os"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// TestFullDiskIsRefused: a quota that is used up is a full disk, which a trainer waits for.
func TestFullDiskIsRefused(t *testing.T) {
	for _, errno := range []syscall.Errno{syscall.ENOSPC, syscall.EDQUOT} {
		err := refusal(fmt.Errorf("weights: publish version 5: %w", &os.PathError{Op: "write", Path: "model.safetensors", Err: errno}))
		if code := protocol.RefusalOf(err).Code; code != protocol.CodeDiskFull {
			t.Errorf("%v is told as %v", errno, code)
		}
	}
}
