package jetstream

import (
	"context"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
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

// A writer that was frozen while another took over does not replace what that one has noted first. It signs as that one does.
func TestNoteFirst(t *testing.T) {
	o := Options{URL: startServer(t, nil), Run: "first", WriterTTL: 200 * time.Millisecond}
	frozen := open(t, o)
	l := frozen.lease.Load()
	l.cancel() // it renews no more, and believes that it has the lease
	<-l.done
	next := open(t, o)
	for _, s := range []*Store{next, frozen, next} {
		text := "of the next"
		if s == frozen {
			text = "of the frozen one"
		}
		if stands, err := s.NoteFirst(t.Context(), "a", []byte(text)); string(stands) != "of the next" || err != nil {
			t.Errorf("a note %s: there stands %q (%v)", text, stands, err)
		}
	}
}

// A cluster that changes its leader answers later: a note waits for it.
func TestNotesOutlastALeader(t *testing.T) {
	s := open(t, Options{URL: startServer(t, nil), Run: "leader"})
	bucket := &leaderless{KeyValue: s.lease.Load().bucket}
	s.lease.Load().bucket = bucket
	must(t, s.Note(t.Context(), "a", []byte("text")))
	if text, err := s.Noted(t.Context(), "a"); string(text) != "text" || err != nil {
		t.Errorf("noted %q (%v)", text, err)
	}
	if text, err := s.NoteFirst(t.Context(), "b", []byte("text")); string(text) != "text" || err != nil {
		t.Errorf("noted first %q (%v)", text, err)
	}
	if bucket.puts < 2 || bucket.gets < 2 || bucket.creates < 2 {
		t.Errorf("asked once: %+v", bucket)
	}
}

// leaderless fails each first call, as a cluster without a leader does.
type leaderless struct {
	jetstream.KeyValue
	puts, gets, creates int
}

func (b *leaderless) Put(ctx context.Context, key string, value []byte) (uint64, error) {
	if b.puts++; b.puts == 1 {
		return 0, nats.ErrNoResponders
	}
	return b.KeyValue.Put(ctx, key, value)
}

func (b *leaderless) Get(ctx context.Context, key string) (jetstream.KeyValueEntry, error) {
	if b.gets++; b.gets == 1 {
		return nil, nats.ErrNoResponders
	}
	return b.KeyValue.Get(ctx, key)
}

func (b *leaderless) Create(ctx context.Context, key string, value []byte, options ...jetstream.KVCreateOpt) (uint64, error) {
	if b.creates++; b.creates == 1 {
		return 0, nats.ErrNoResponders
	}
	return b.KeyValue.Create(ctx, key, value, options...)
}
