package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

var _ port.Turns = (*Store)(nil)

// keep keeps turns of an attempt, the last of them over more than one message.
func keep(t *testing.T, s *Store, id port.RolloutID, turns int) (all [][]byte) {
	t.Helper()
	for n := range turns {
		data := fmt.Appendf(nil, "turn %d of %v", n, id)
		if n == turns-1 {
			data = bytes.Repeat(data, 3*blobChunkBytes/2/len(data))
		}
		must(t, s.KeepTurn(id, int32(n), data))
		all = append(all, data)
	}
	return all
}

func readTurns(t *testing.T, s *Store, id port.RolloutID, want [][]byte) {
	t.Helper()
	got, err := s.ReadTurns(id)
	if must(t, err); len(got) != len(want) || s.KeptTurns(id) != len(want) {
		t.Fatalf("%d turns of %v are read and %d kept, want %d", len(got), id, s.KeptTurns(id), len(want))
	}
	for n := range want {
		if !bytes.Equal(got[n], want[n]) {
			t.Errorf("turn %d of %v has %d bytes and differs from the %d that were kept", n, id, len(got[n]), len(want[n]))
		}
	}
}

// Turns outlive the process, beside the payloads and blobs of others. After a restart those of attempts that stand stay, and
// they can be gone on with.
func TestTurns(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "nats")}
	s := open(t, o)
	begin(t, s)
	stands, falls, ended := port.RolloutID{Group: 1, Sample: 0, Attempt: 2}, port.RolloutID{Group: 1, Sample: 1, Attempt: 1}, port.RolloutID{Group: 2, Sample: 0, Attempt: 1}
	kept := keep(t, s, stands, 4)
	keep(t, s, falls, 2)
	keep(t, s, ended, 2)
	for _, id := range []port.RolloutID{stands, falls, ended} {
		must(t, s.PutBlob(id, 0, []byte("rows")))
	}
	must(t, s.PutSample(storetest.Sample(ended, 10)))
	readTurns(t, s, stands, kept)
	if err := s.KeepTurn(stands, 3, nil); err == nil || !strings.Contains(err.Error(), "turn 3 of g1/0, attempt 2 was put before") {
		t.Errorf("a turn is kept twice: %v", err)
	}
	s.DropTurns(ended)
	readTurns(t, s, ended, nil)
	for range 2 {
		must(t, s.Close())
		s = open(t, o)
		readTurns(t, s, stands, kept)
		if n := s.KeptTurns(ended); n != 2 {
			t.Errorf("%d turns of an attempt that ended are found again, want 2", n)
		}
		_, err := s.Retain(func(id port.RolloutID) bool { return id == ended })
		must(t, err)
		s.RetainTurns(func(id port.RolloutID) bool { return id == stands })
		readTurns(t, s, falls, nil)
		readTurns(t, s, ended, nil)
		storetest.CheckBlob(t, s, ended, 0, []byte("rows"), 0, 4)
		storetest.CheckBlob(t, s, stands, 0, []byte("rows"), 0, 4)
		if there, gone := s.KeptBlobs(stands), s.KeptBlobs(falls); !slices.Equal(there, []int32{0}) || len(gone) > 0 {
			t.Errorf("blobs %v of an attempt that stands, and %v of one that does not", there, gone)
		}
		must(t, s.PutBlob(falls, 0, []byte("rows")))
		must(t, s.KeepTurn(stands, int32(len(kept)), []byte("one more")))
		kept = append(kept, []byte("one more"))
		readTurns(t, s, stands, kept)
		keep(t, s, falls, 2) // as of before the restart: it goes with the next
		keep(t, s, ended, 2)
	}
	must(t, s.Forget(1))
	readTurns(t, s, stands, nil)
	must(t, s.Close())
}

// A turn that is missing ends what there is. A later attempt's payload ends all.
func TestTurnsAreWhole(t *testing.T) {
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "nats"), PayloadBytesMax: 8 << 20})
	begin(t, s)
	id := port.RolloutID{Group: 1, Sample: 0, Attempt: 1}
	kept := keep(t, s, id, 2)
	must(t, s.KeepTurn(id, 3, []byte("behind a gap")))
	readTurns(t, s, id, kept)
	s.RetainTurns(func(port.RolloutID) bool { return true })
	must(t, s.KeepTurn(id, 3, []byte("there is none of that number any more")))
	if err := s.KeepTurn(id, 2, make([]byte, 8<<20)); !errors.Is(err, port.ErrNoSpace) {
		t.Errorf("there is no room, and it is kept: %v", err)
	}
	readTurns(t, s, id, kept)
	var wait sync.WaitGroup
	for n := range int32(20) {
		wait.Go(func() { must(t, s.KeepTurn(port.RolloutID{Group: 1, Sample: 1, Attempt: 1}, n, []byte{byte(n)})) })
	}
	wait.Wait()
	if n := s.KeptTurns(port.RolloutID{Group: 1, Sample: 1, Attempt: 1}); n != 20 {
		t.Errorf("%d turns are kept, want 20", n)
	}
	must(t, s.PutSample(storetest.Sample(port.RolloutID{Group: 1, Sample: 0, Attempt: 2}, 10)))
	readTurns(t, s, id, nil)
	must(t, s.Close())
}

// The end of the stream may have been deleted, message by message, when it is opened again.
func TestDeletedEndOfPayloads(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: filepath.Join(dir, "nats")}
	s := open(t, o)
	begin(t, s)
	kept, gone := port.RolloutID{Group: 1, Sample: 0, Attempt: 1}, port.RolloutID{Group: 2, Sample: 0, Attempt: 1}
	must(t, s.PutSample(storetest.Sample(kept, 10)))
	data := keep(t, s, gone, 2)
	info, err := s.data.Info(t.Context())
	must(t, err)
	for seq := info.State.LastSeq; seq > info.State.LastSeq-3; seq-- {
		must(t, s.data.DeleteMsg(t.Context(), seq))
	}
	must(t, s.Close())
	s = open(t, o)
	if samples, err := s.Samples(1); err != nil || len(samples) != 1 {
		t.Errorf("%d payloads of the group are left: %v", len(samples), err)
	}
	if n := s.KeptTurns(gone); n >= len(data) {
		t.Errorf("%d turns are kept of which messages are gone", n)
	}
	must(t, s.KeepTurn(gone, 5, []byte("one more")))
	must(t, s.Close())
}

// TestUnkept: of what is not to be gone on with the next process finds nothing, though other turns of it are still there.
func TestUnkept(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "nats")}
	s := open(t, o)
	begin(t, s)
	gone, stays := port.RolloutID{Group: 1, Attempt: 1}, port.RolloutID{Group: 1, Sample: 1, Attempt: 1}
	keep(t, s, gone, 3)
	kept := keep(t, s, stays, 3)
	must(t, s.UnkeepTurns(gone))
	must(t, s.UnkeepTurns(port.RolloutID{Group: 5}))
	must(t, s.Close())
	next := open(t, o)
	if n := next.KeptTurns(gone); n != 0 {
		t.Errorf("%d turns are kept that are not to be gone on with", n)
	}
	next.RetainTurns(func(port.RolloutID) bool { return true })
	readTurns(t, next, stays, kept)
}

// TestDeleteGone: a message that is gone need not be deleted, wherever in the stream it would be.
func TestDeleteGone(t *testing.T) {
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "nats")})
	begin(t, s)
	for g := range loop.GroupID(4) {
		must(t, s.KeepTurn(port.RolloutID{Group: g, Attempt: 1}, 0, []byte("turn")))
	}
	info, err := s.data.Info(t.Context())
	must(t, err)
	last := info.State.LastSeq
	for _, gone := range [][]uint64{{last + 1}, {last - 1}, {last}, {1, last - 3}, {last - 2}} { // at the end there is none
		for _, seq := range gone {
			for range 2 {
				if err := s.deleteMessage(t.Context(), s.names.data, seq); err != nil {
					t.Errorf("message %d of %d: %v", seq, last, err)
				}
			}
		}
	}
}

// A writer has synced what it finds before it counts on a turn: an answered message is behind it, which is no payload.
func TestTurnsAreSynced(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "nats")}
	s := open(t, o)
	begin(t, s)
	id := port.RolloutID{Group: 1, Attempt: 1}
	kept := keep(t, s, id, 1)
	found := messages(t, s)
	for range 2 {
		must(t, s.Close())
		s = open(t, o)
		if n := messages(t, s); n != found+1 {
			t.Errorf("there are %d messages, want one behind the %d that were found", n, found)
		}
		readTurns(t, s, id, kept)
		s.payloads.reclaim(t.Context(), true)
		if n := messages(t, s); n != found {
			t.Errorf("of %d messages are left %d", found, n)
		}
	}
}
