package cell

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io/fs"
	"testing"

	"github.com/headway-rl/headway/drive/cell/link"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/store/jetstream"
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

// TestEntryHints: what keeps a cell from entering the control plane's server is told apart.
func TestEntryHints(t *testing.T) {
	for _, test := range []struct {
		err  error
		hint string
	}{
		{&tls.CertificateVerificationError{Err: errors.New("x")}, "F is not of the server there: it is of another run, or from before new secrets; give --name and --dir of the control plane"},
		{jetstream.ErrRefused, "F is of another cell, or from before new secrets: use the one that the control plane has written for this cell"},
		{fs.ErrPermission, "run the cell as the user who owns F"},
		{fs.ErrNotExist, "start the control plane with the same document: it writes F"},
		{context.DeadlineExceeded, "see whether the control plane runs and answers, and start the cell again"},
	} {
		if got := entryHint("F", fmt.Errorf("entering: %w", test.err)); got != test.hint {
			t.Errorf("%v: %q, want %q", test.err, got, test.hint)
		}
	}
}
