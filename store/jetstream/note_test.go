package jetstream

import (
	"testing"
	"time"
)

// What a writer has noted the next one reads, and its lease is not touched by it.
func TestNotes(t *testing.T) {
	o := Options{URL: startServer(t, nil), Run: "noted", WriterTTL: 300 * time.Millisecond}
	first := open(t, o)
	if text, err := first.Noted(t.Context(), "a"); text != nil || err != nil {
		t.Errorf("before any note: %q, %v", text, err)
	}
	for _, text := range []string{"one", "two"} {
		must(t, first.Note(t.Context(), "a", []byte(text)))
	}
	must(t, first.Holding())
	epoch := first.lease.Load().epoch
	must(t, first.Close())
	next := open(t, o)
	if text, err := next.Noted(t.Context(), "a"); string(text) != "two" || err != nil {
		t.Errorf("the next writer reads %q, %v", text, err)
	}
	if next.lease.Load().epoch <= epoch {
		t.Errorf("its epoch is %d after %d", next.lease.Load().epoch, epoch)
	}
	standby, err := Open(t.Context(), o)
	must(t, err)
	defer standby.Close()
	if err := standby.Note(t.Context(), "a", nil); err == nil {
		t.Error("a standby notes")
	}
}
