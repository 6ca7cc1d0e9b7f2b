package jetstream

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// TestTakeoverOfFullPayloads: a stream without room for the least message lets the next writer begin.
func TestTakeoverOfFullPayloads(t *testing.T) {
	o := Options{URL: serverWithRights(t, "fullpayloads"), Run: "fullpayloads", PayloadBytesMax: 1 << 20}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	n := int32(0)
	for size := 200 << 10; size >= 1; size /= 2 {
		for {
			n++
			sample := sized(1, size)
			sample.ID.Sample = n
			r, err := l.PutReferred(sample)
			if errors.Is(err, port.ErrNoSpace) {
				break
			}
			must(t, err)
			must(t, s.Refer("b", sample.ID, r))
		}
	}
	for err := error(nil); err == nil; { // as little room as a payload may leave
		_, _, err = l.publish(s.behind())
	}
	must(t, s.Close())
	s2, err := Open(t.Context(), o)
	must(t, err)
	t.Cleanup(func() { _ = s2.Close() })
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	_, _, err = s2.Acquire(ctx, "x")
	if err != nil {
		t.Errorf("no takeover with a full stream: %v", err)
	}
}

// partSent begins a run, in which a cell's process has stored the first message of a payload and ended, and gives the next process.
func partSent(t *testing.T, o Options) (s *Store, next *Link, id port.RolloutID, sample port.Sample) {
	t.Helper()
	s = open(t, o)
	begin(t, s)
	id = port.RolloutID{Group: 1, Attempt: 1}
	sample = large(id)
	before := openCell(t, o, "b")
	messages, _ := before.payloadMessages(&sample)
	_, err := before.putMessage(messages[0])
	must(t, err)
	return s, openCell(t, o, "b"), id, sample
}

// TestChunkOfTheProcessBefore: a cell's process stores the first message of a payload, and the next one all of it. A takeover
// before the reference finds three messages of the same bytes, and keeps those that the reference names, or as good ones.
func TestChunkOfTheProcessBefore(t *testing.T) {
	o := Options{URL: serverWithRights(t, "twochunks"), Run: "twochunks"}
	s, next, id, sample := partSent(t, o)
	reference, err := next.PutReferred(sample)
	must(t, err)
	must(t, s.Close())
	s = open(t, o)
	must(t, s.Refer("b", id, reference))
	holds(t, s, 1, sample)
	s.payloads.reclaim(t.Context(), true)
	holds(t, s, 1, sample)
}

// TestScanBetweenChunks: of such a payload the takeover sees the first two messages alone.
func TestScanBetweenChunks(t *testing.T) {
	o := Options{URL: serverWithRights(t, "between"), Run: "between"}
	s, next, id, sample := partSent(t, o)
	messages, r := next.payloadMessages(&sample)
	seq, err := next.putMessage(messages[0])
	must(t, err)
	r.seqs = append(r.seqs, seq)
	must(t, s.Close())
	s = open(t, o)
	for _, m := range messages[1:] {
		seq, err := next.putMessage(m)
		must(t, err)
		r.seqs = append(r.seqs, seq)
	}
	s.payloads.reclaim(t.Context(), true)
	must(t, s.Refer("b", id, r.String()))
	s.payloads.reclaim(t.Context(), true)
	holds(t, s, 1, sample)
}
