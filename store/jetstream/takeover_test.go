package jetstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/nats-io/nats.go/jetstream"

	"github.com/headway-rl/headway/loop/port"
)

// A turn that a deposed writer puts behind what its successor has read counts for nobody, however many writers come later.
func TestTurnOfADeposedWriter(t *testing.T) {
	o := Options{URL: startServer(t, nil), Run: "handed over", WriterTTL: 300 * time.Millisecond}
	first := open(t, o)
	begin(t, first)
	early, late := port.RolloutID{Group: 1, Attempt: 1}, port.RolloutID{Group: 2, Attempt: 1}
	kept := [][]byte{[]byte("told")}
	must(t, first.KeepTurn(early, 0, kept[0]))
	first.lease.Load().cancel() // it renews no more, and believes that it has the lease

	second := open(t, o)
	must(t, first.PutBlob(late, turnOf(0), []byte("not told")))
	own := port.RolloutID{Group: 3, Attempt: 1}
	must(t, second.KeepTurn(own, 0, kept[0]))
	for range 3 {
		must(t, second.Close())
		second = open(t, o)
		if n := second.KeptTurns(late); n != 0 {
			t.Errorf("%d turns are kept of a writer that had been deposed", n)
		}
		readTurns(t, second, early, kept)
		readTurns(t, second, own, kept)
	}
	must(t, second.Close())
}

// A takeover is recorded once, whatever becomes of the answers, and a deposed writer records none.
func TestTakeoversAreRecorded(t *testing.T) {
	s := open(t, Options{URL: startServer(t, nil), Run: "handed over"})
	l, ctx := s.lease.Load(), t.Context()
	first, revision, err := l.takeovers(ctx)
	if err != nil || len(first) != 1 || first[0].Epoch != l.epoch {
		t.Fatalf("the takeovers are %v of epoch %d, %v", first, l.epoch, err)
	}
	must(t, l.record(ctx, nil, 0, first[0].Last)) // sent again
	if again, same, err := l.takeovers(ctx); err != nil || same != revision || len(again) != 1 {
		t.Errorf("sent again, the takeovers are %v of revision %d, %v; want those of revision %d", again, same, err, revision)
	}
	next := &lease{store: s, bucket: l.bucket, epoch: l.epoch + 2}
	stale := &lease{store: s, bucket: l.bucket, epoch: l.epoch + 1}
	must(t, stale.record(ctx, first, revision, 7)) // between the other's reading and its recording
	must(t, next.record(ctx, first, revision, 9))
	if all, _, err := l.takeovers(ctx); err != nil || len(all) != 2 || all[1] != (takeover{next.epoch, 9}) {
		t.Errorf("the takeovers are %v, %v", all, err)
	}
	if err := stale.record(ctx, first, revision, 8); !errors.Is(err, ErrFenced) {
		t.Errorf("a deposed writer records its takeover: %v", err)
	}
	many := make(takeovers, 0, takeoversMost)
	for i := range cap(many) {
		many = append(many, takeover{uint64(i), uint64(i)})
	}
	_, revision, err = l.takeovers(ctx)
	must(t, err)
	last := &lease{store: s, bucket: l.bucket, epoch: l.epoch + 3}
	must(t, last.record(ctx, many, revision, 10))
	if all, _, err := l.takeovers(ctx); err != nil || len(all) != takeoversMost || all[0].Epoch != 1 || all[len(all)-1].Epoch != last.epoch {
		t.Errorf("%d takeovers are kept, %v", len(all), err)
	}
	_, err = l.bucket.Put(context.WithoutCancel(ctx), takeoversKey, []byte("?"))
	must(t, err)
	if _, _, err := l.takeovers(ctx); err == nil || errors.Is(err, jetstream.ErrKeyNotFound) {
		t.Errorf("damaged takeovers are read: %v", err)
	}
}

// TestThawedBeforeItsMarker: a process that stands still between its lease and its marker does not fence the one that took over.
func TestThawedBeforeItsMarker(t *testing.T) {
	o := Options{URL: serverWithRights(t, "thawed"), Run: "thawed", WriterTTL: 500 * time.Millisecond, Logf: t.Logf}
	first := open(t, o)
	begin(t, first)
	must(t, first.Close())
	a, err := Open(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { _ = a.Close() })
	l := &lease{store: a, nonce: "a", lost: make(chan struct{}), done: make(chan struct{}), value: []byte(`{"nonce":"a"}`)}
	l.bucket, err = a.leaseBucket(t.Context())
	must(t, err)
	must(t, l.take(t.Context()))
	b := open(t, o)
	if err := a.fenceLog(t.Context(), l); !errors.Is(err, ErrFenced) {
		t.Errorf("one that has lost the lease marks the log: %v", err)
	}
	must(t, b.Append([][]byte{[]byte("line\n")}))
}
