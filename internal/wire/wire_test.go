package wire

import (
	"errors"
	"testing"

	"google.golang.org/protobuf/encoding/protowire"
)

// Every field that was added is seen again, and no message that is cut off passes.
func TestFieldsSeeAllThatWasAdded(t *testing.T) {
	message := AppendBytes(nil, 1, []byte("ab"))
	message = AppendText(message, 2, "c")
	message = AppendNumber(message, 3, 300)
	message = AppendDouble(message, 4, 0.5)
	whole := map[int]bool{0: true} // the lengths at which a field ends
	seen := ""
	err := Fields(message, func(f Field) error {
		seen += string(f.Bytes)
		if f.Is(3, protowire.VarintType) && f.Bits != 300 {
			t.Errorf("number %d", f.Bits)
		}
		return nil
	})
	if err != nil || seen != "abc" {
		t.Errorf("%v, %q", err, seen)
	}
	for _, end := range []int{4, 7, 10} {
		whole[end] = true
	}
	for n := range message {
		if err := Fields(message[:n], func(Field) error { return nil }); errors.Is(err, ErrForm) == whole[n] {
			t.Errorf("the first %d of %d bytes: %v", n, len(message), err)
		}
	}
	stop := errors.New("stop")
	if err := Fields(message, func(Field) error { return stop }); err != stop {
		t.Errorf("%v, want the caller's error", err)
	}
}
