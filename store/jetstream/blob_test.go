package jetstream

import (
	"bytes"
	"errors"
	"fmt"
	"path/filepath"
	"testing"

	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/storetest"
)

var blobID = port.RolloutID{Group: 1, Sample: 0, Attempt: 1}

// textBlob is a blob whose chunks can be told apart on the disk.
func textBlob(chunks int) (data []byte) {
	for k := range chunks {
		data = append(data, bytes.Repeat(fmt.Appendf(nil, "chunk %04d......", k), blobChunkBytes/16)...)
	}
	return data
}

// A bit of a chunk changes on the disk. The bytes of that chunk are damaged, also where the server was started anew since,
// and all others read.
func TestFlippedBitInABlob(t *testing.T) {
	dir := t.TempDir()
	o := Options{Dir: filepath.Join(dir, "nats")}
	s := open(t, o)
	begin(t, s)
	const chunks, at = 12, 9
	data := textBlob(chunks)
	must(t, s.PutBlob(blobID, 0, data))
	must(t, s.PutSample(storetest.Sample(blobID, 10)))
	for range 2 {
		must(t, s.Close())
		if !flipBit(t, dir, fmt.Sprintf("chunk %04d", at)) {
			t.Fatal("the chunk is not on the disk")
		}
		s = open(t, o)
		if _, err := s.Retain(func(port.RolloutID) bool { return true }); err != nil {
			t.Fatal(err)
		}
		for k := range chunks {
			from := k * blobChunkBytes
			err := s.ReadBlob(blobID, 0, int64(from), make([]byte, 100))
			if k == at {
				if !errors.Is(err, port.ErrBlobDamaged) {
					t.Errorf("the damaged chunk: %v", err)
				}
				continue
			}
			if err != nil {
				t.Errorf("chunk %d beside the damaged one: %v", k, err)
			}
		}
		storetest.CheckBlob(t, s, blobID, 0, data, (at+1)*blobChunkBytes, len(data))
	}
}

// Chunks of a put that was refused in the middle are nobody's, also after a restart, and the blob is put again under its number.
func TestChunksOfAFailedPut(t *testing.T) {
	o := Options{Dir: filepath.Join(t.TempDir(), "nats")}
	s := open(t, o)
	begin(t, s)
	b := newBlob(chunkOf{epoch: s.lease.Load().epoch, id: blobID, size: 3 * blobChunkBytes, limit: blobChunkBytes})
	must(t, s.payloads.begin(b))
	must(t, s.payloads.sendChunks(s.lease.Load(), &put{}, b, make([]byte, b.size), 0, 2))
	if err := s.ReadBlob(blobID, 0, 0, make([]byte, 1)); !errors.Is(err, port.ErrNoBlob) {
		t.Errorf("a blob that is being put: %v", err)
	}
	s.payloads.dropBlobs(1, func(*blob) bool { return true })
	alone := newBlob(chunkOf{epoch: s.lease.Load().epoch, id: port.RolloutID{Group: 2, Attempt: 1}, size: b.size, limit: b.limit})
	must(t, s.payloads.begin(alone))
	must(t, s.payloads.sendChunks(s.lease.Load(), &put{}, alone, make([]byte, b.size), 0, 2))
	data := textBlob(3)
	must(t, s.PutBlob(blobID, 0, data))
	must(t, s.PutSample(storetest.Sample(blobID, 10)))
	must(t, s.Close())
	s = open(t, o)
	storetest.CheckBlob(t, s, blobID, 0, data, 0, len(data))
	if err := s.ReadBlob(alone.id, 0, 0, make([]byte, 1)); !errors.Is(err, port.ErrNoBlob) {
		t.Errorf("a part of a blob whose attempt has no payload: %v", err)
	}
	must(t, s.Forget(1))
	s.payloads.reclaim(t.Context(), true)
	if n := s.payloads.used(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}

// A read asks the server for the chunks that it touches.
func TestReadBlobFetchesWhatItTouches(t *testing.T) {
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "nats")})
	begin(t, s)
	data := textBlob(8)
	must(t, s.PutBlob(blobID, 0, data))
	before := s.get.Stats().InBytes
	storetest.CheckBlob(t, s, blobID, 0, data, 5*blobChunkBytes+10, 6*blobChunkBytes+10)
	if n := s.get.Stats().InBytes - before; n < 2*blobChunkBytes || n > 2*blobChunkBytes+10_000 {
		t.Errorf("%d bytes came for two chunks of %d", n, blobChunkBytes)
	}
}

// A group that ends while a blob of it is being put leaves nothing.
func TestForgottenWhileItIsPut(t *testing.T) {
	s := open(t, Options{Dir: filepath.Join(t.TempDir(), "nats")})
	begin(t, s)
	for range 20 {
		begun, done := make(chan struct{}), make(chan error)
		go func() {
			close(begun)
			done <- s.PutBlob(blobID, 0, make([]byte, 3<<20))
		}()
		<-begun
		must(t, s.Forget(1))
		must(t, <-done)
		must(t, s.Forget(1)) // where it came first
	}
	s.payloads.reclaim(t.Context(), true)
	if n := s.payloads.used(); n != 0 {
		t.Errorf("%d bytes are left", n)
	}
}
