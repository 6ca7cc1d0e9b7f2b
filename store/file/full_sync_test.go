package file

import (
	"errors"
	"os"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/loop/port"
)

// TestFullDiskSaidBySync: a disk that says only when it is waited for that it is full, as those behind a network do, is like
// another. The payload is put again when there is room.
func TestFullDiskSaidBySync(t *testing.T) {
	s, err := Create(t.TempDir(), Options{Always: true})
	if err != nil {
		t.Fatal(err)
	}
	defer func() { _ = s.Close() }()
	sample := port.Sample{ID: port.RolloutID{Group: 1, Attempt: 1}}
	s.payloads.sync = func(f *os.File) error { return &os.PathError{Op: "sync", Path: f.Name(), Err: syscall.EDQUOT} }
	if err = s.PutSample(sample); !errors.Is(err, port.ErrNoSpace) {
		t.Errorf("a full disk: %v", err)
	}
	s.payloads.sync = (*os.File).Sync
	if err := s.PutSample(sample); err != nil {
		t.Errorf("there is room again: %v", err)
	}
}
