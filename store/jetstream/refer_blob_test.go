package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/media"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

// withRows is a payload that names blobs of its attempt, by their numbers.
func withRows(id port.RolloutID, numbers ...int32) port.Sample {
	sample := storetest.Sample(id, 5)
	for _, number := range numbers {
		sample.Channels = append(sample.Channels, channel.Channel{Header: channel.Header{Name: "routed_experts"}, Parts: []channel.Part{{Rows: 1, Blob: number}}})
	}
	return sample
}

// rowsOf are the bytes of a blob, in so many chunks.
func rowsOf(number int32, chunks int) []byte {
	return bytes.Repeat([]byte{byte(number), 7, 9, 11}, (chunks-1)*blobChunkBytes/4+5)
}

// hasBlob requires that the writer reads a blob.
func hasBlob(t *testing.T, s *Store, id port.RolloutID, number int32, want []byte) {
	t.Helper()
	got := make([]byte, len(want))
	if err := s.ReadBlob(id, number, 0, got); err != nil || !bytes.Equal(got, want) {
		t.Errorf("blob %d of %v: %v", number, id, err)
	}
}

// TestReferredBlobs: the writer reads the rows and media that a cell has put, by the reference of a payload alone, and after a restart
// without one. A medium that two cells put is there once. What is forgotten leaves the stream.
func TestReferredBlobs(t *testing.T) {
	o := Options{URL: serverWithRights(t, "rows"), Run: "rows"}
	s := open(t, o)
	begin(t, s)
	b, c := openCell(t, o, "b"), openCell(t, o, "1-b")
	first, second := withRows(port.RolloutID{Group: 1, Attempt: 1}, 0, 1), withRows(port.RolloutID{Group: 1, Sample: 1, Attempt: 1})
	picture := rowsOf(3, 1)
	for _, sample := range []*port.Sample{&first, &second} {
		sample.Media = []media.Item{{Modality: media.Image, Blob: 77}}
	}
	must(t, b.PutBlob(first.ID, 0, rowsOf(0, 1)))
	must(t, b.PutBlob(first.ID, 1, rowsOf(1, 3)))
	for _, l := range []*Link{b, c} {
		must(t, l.PutBlob(port.GroupMedia(1), 77, picture))
		must(t, l.PutBlob(port.GroupMedia(1), 77, picture)) // sends nothing
	}
	reference := refer(t, s, b, first)
	refer(t, s, c, second)
	must(t, s.Refer("b", first.ID, reference))
	if n := messages(t, s); n != 1+3+2+2 {
		t.Errorf("the stream has %d messages, want 8: two blobs in 4, a medium twice, two payloads", n)
	}
	check := func() {
		hasBlob(t, s, first.ID, 0, rowsOf(0, 1))
		hasBlob(t, s, first.ID, 1, rowsOf(1, 3))
		hasBlob(t, s, port.GroupMedia(1), 77, picture)
	}
	check()
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 7 {
		t.Errorf("the stream has %d messages, want 7: one copy of the medium is to go", n)
	}
	check()
	must(t, s.Close())
	s = open(t, o)
	_, err := s.Retain(func(port.RolloutID) bool { return true })
	must(t, err)
	check()
	must(t, s.Refer("b", first.ID, reference)) // said again
	check()
	must(t, s.Forget(1))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 0 {
		t.Errorf("the stream has %d messages after its group has ended", n)
	}
	if !b.Sent(port.GroupMedia(1), 77) || b.Forget(1) != nil || b.Sent(port.GroupMedia(1), 77) {
		t.Error("want a cell that knows of a medium as long as its group lives")
	}
}

// TestBlobsBeforeTheirPayload: a writer that begins while a cell sends removes nothing of it: whole blobs, a part of one, a part of
// a payload.
func TestBlobsBeforeTheirPayload(t *testing.T) {
	o := Options{URL: serverWithRights(t, "sending"), Run: "sending"}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	sample := withRows(port.RolloutID{Group: 1, Attempt: 1}, 0, 1)
	sample.Response = large(sample.ID).Response
	again := func() {
		t.Helper()
		must(t, s.Close())
		s = open(t, o)
		_, err := s.Retain(func(id port.RolloutID) bool { return id.Group == 1 })
		must(t, err)
		s.payloads.reclaim(t.Context(), true)
	}
	must(t, l.PutBlob(sample.ID, 0, rowsOf(0, 2)))
	data := rowsOf(1, 3)
	part := l.blobs.begin(sample.ID, chunkOf{put: 1 << 40, id: sample.ID, number: 1, size: int64(len(data)), limit: int64(min(blobChunkBytes, l.chunkBytes()))})
	must(t, l.sendChunk(part, data))
	again()
	must(t, l.PutBlob(sample.ID, 1, data))
	messages, _ := l.payloadMessages(&sample)
	seq, err := l.putMessage(messages[0])
	must(t, err)
	again()
	reference, err := l.PutReferred(sample) // finds the first
	must(t, err)
	if !strings.Contains(reference, fmt.Sprintf(";%d,", seq)) || len(messages) < 2 {
		t.Errorf("the reference of %d messages is %s, want them from %d on", len(messages), reference, seq)
	}
	must(t, s.Refer("b", sample.ID, reference))
	holds(t, s, 1, sample)
	hasBlob(t, s, sample.ID, 0, rowsOf(0, 2))
	hasBlob(t, s, sample.ID, 1, data)
	again()
	holds(t, s, 1, sample)
	hasBlob(t, s, sample.ID, 1, data)
}

// TestBlobsWithoutPayload: what an attempt has put that ends without a payload is removed when the cell says where it is.
func TestBlobsWithoutPayload(t *testing.T) {
	o := Options{URL: serverWithRights(t, "unreferred"), Run: "unreferred"}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	id := port.RolloutID{Group: 1, Attempt: 1}
	if text := l.Unreferred(id); text != "" {
		t.Errorf("an attempt that has put nothing has put %s", text)
	}
	must(t, l.PutBlob(id, 0, rowsOf(0, 2)))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 2 {
		t.Errorf("the stream has %d messages, want both of the blob that is awaited", n)
	}
	must(t, s.Refer("b", id, l.Unreferred(id)))
	must(t, s.Discard(id))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 0 {
		t.Errorf("the stream has %d messages, want none", n)
	}
}

// TestBlobsLeaveRoomForPayloads: cells fill the stream of payloads with blobs up to an eighth, in which payloads find room.
func TestBlobsLeaveRoomForPayloads(t *testing.T) {
	o := Options{URL: serverWithRights(t, "room"), Run: "room", PayloadBytesMax: 8 << 20}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	id := port.RolloutID{Group: 1, Attempt: 1}
	var err error
	number := int32(0)
	for ; err == nil; number++ {
		err = l.PutBlob(id, number, rowsOf(number, 2))
	}
	if !errors.Is(err, port.ErrNoSpace) || !strings.Contains(err.Error(), "store.nats.payload_bytes_max") || number < 5 {
		t.Errorf("blob %d: %v", number, err)
	}
	refer(t, s, l, withRows(id, 0))
	hasBlob(t, s, id, 0, rowsOf(0, 2))
}

// TestPartWithoutItsRows: a payload whose second message has no room is put again without its rows. The first message of the
// one with rows does not stay.
func TestPartWithoutItsRows(t *testing.T) {
	o := Options{URL: serverWithRights(t, "leftout"), Run: "leftout", PayloadBytesMax: 4 << 20}
	s := open(t, o)
	begin(t, s)
	l := openCell(t, o, "b")
	refer(t, s, l, sized(1, 2600<<10))
	late := withRows(port.RolloutID{Group: 2, Attempt: 1}, 0)
	late.Response = sized(2, 1900<<10).Response
	_, err := l.PutReferred(late)
	if !errors.Is(err, port.ErrNoSpace) {
		t.Fatal(err)
	}
	late.Channels = nil // leaveOut
	must(t, s.Forget(1))
	s.payloads.reclaim(t.Context(), true)
	refer(t, s, l, late)
	holds(t, s, 2, late)
	must(t, s.Forget(2))
	must(t, l.Forget(2))
	s.payloads.reclaim(t.Context(), true)
	if n := messages(t, s); n != 0 {
		t.Errorf("%d messages are left", n)
	}
}
