//go:build unix

package weights

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
)

// A pipe that takes the name of a file while it is published is refused, and nothing waits for its writer.
func TestPipeInPlaceOfAFile(t *testing.T) {
	for _, link := range []bool{false, true} {
		from := t.TempDir()
		path := filepath.Join(from, ModelName)
		if err := os.WriteFile(path, smallModel(t, 1, 1), 0o600); err != nil {
			t.Fatal(err)
		}
		swap := func() error { return errors.Join(os.Remove(path), syscall.Mkfifo(path, 0o600)) }
		s := openTest(t, t.TempDir(), Options{Directories: []string{from}, Link: link})
		if link {
			s.disk = &swapped{swap: swap}
		} else if err := swap(); err != nil {
			t.Fatal(err)
		}
		draft, err := s.Begin(t.Context(), Description{Version: 1, Kind: KindFull, Files: []File{{Name: ModelName}}})
		if err != nil {
			t.Fatal(err)
		}
		err = draft.AddDirectory(t.Context(), from)
		if err == nil || !strings.Contains(err.Error(), "want a file") && !strings.Contains(err.Error(), "was replaced") {
			t.Errorf("link %v: %v", link, err)
		}
	}
}

// swapped is a disk on which a name gets another meaning just before it is linked.
type swapped struct {
	system
	swap func() error
}

func (d *swapped) Link(from, to string) error {
	return errors.Join(d.swap(), d.system.Link(from, to))
}
