package run

import (
	"fmt"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// An error for lack of room says where to make some.
func TestRoomHint(t *testing.T) {
	err := WithRoomHint("runs/r", "runs/r", fmt.Errorf("write: %w", syscall.ENOSPC))
	if failed, ok := err.(*failure.Error); !ok || !strings.HasPrefix(failed.Hint, "make room in runs/r") {
		t.Errorf("%#v", err)
	}
}
