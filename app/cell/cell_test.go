package cell

import (
	"errors"
	"testing"

	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/internal/failure"
)

// An error that says what to do keeps that: to start the cell again would meet a damaged file once more.
func TestFailedKeepsItsHint(t *testing.T) {
	c := &Cell{}
	damaged := failure.Run("remove it", "claims.key has 5 bytes, want 32")
	for _, test := range []struct {
		err  error
		hint string
	}{
		{damaged, "remove it"},
		{errors.New("the log is gone"), "start it again: its engines join anew"},
	} {
		if got, is := errors.AsType[*failure.Error](c.failed(test.err)); !is || got.Hint != test.hint {
			t.Errorf("%v becomes %+v, want the hint %q", test.err, got, test.hint)
		}
	}
	if err := c.failed(link.ErrEnded); err != link.ErrEnded {
		t.Errorf("the end of the run becomes %v", err)
	}
}
