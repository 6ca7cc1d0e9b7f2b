package storetest

import (
	"bytes"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
	"testing"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// BlobPlace is where one run is kept by a store that has blobs.
type BlobPlace struct {
	Place
	// DamageBlob changes a bit of the byte at an offset of a blob, behind an open store's back.
	DamageBlob func(t *testing.T, s port.Store, id port.RolloutID, number int32, at int64)
}

// RunBlobs runs the suite of port.Blobs; each test has a place of its own.
func RunBlobs(t *testing.T, place func(t *testing.T) BlobPlace) {
	for _, c := range []struct {
		name string
		test func(t *testing.T, p BlobPlace)
	}{
		{"Ranges", testBlobRanges}, {"Missing", testBlobMissing}, {"Damaged", testBlobDamaged}, {"Forgotten", testBlobForgotten},
		{"Retained", testBlobRetained}, {"OfGroup", testBlobsOfGroup}, {"Limit", testBlobLimit}, {"Concurrent", testBlobConcurrent}, {"Closed", testBlobClosed},
	} {
		t.Run(c.name, func(t *testing.T) { c.test(t, place(t)) })
	}
}

// Blob is a blob of so many bytes; its contents follow from its identity.
func Blob(id port.RolloutID, number int32, size int) []byte {
	random := rand.NewPCG(uint64(id.Group)<<32|uint64(id.Sample), uint64(id.Attempt)<<32|uint64(number))
	data := make([]byte, 0, size+8)
	for len(data) < size {
		v := random.Uint64()
		data = append(data, byte(v), byte(v>>8), byte(v>>16), byte(v>>24), byte(v>>32), byte(v>>40), byte(v>>48), byte(v>>56))
	}
	return data[:size:size]
}

// beginBlobs opens a run that begins.
func beginBlobs(t *testing.T, p BlobPlace) (port.Store, port.Blobs) {
	t.Helper()
	s, _, _ := begin(t, p.Place, 1)
	return s, blobsOf(t, s)
}

func blobsOf(t *testing.T, s port.Store) port.Blobs {
	t.Helper()
	b, ok := port.As[port.Blobs](s)
	if !ok {
		t.Fatal("the store has no blobs")
	}
	return b
}

// putBlob puts what Blob makes.
func putBlob(t *testing.T, b port.Blobs, id port.RolloutID, number int32, size int) []byte {
	t.Helper()
	data := Blob(id, number, size)
	must(t, b.PutBlob(id, number, data))
	return data
}

// CheckBlob fails unless a range of a blob reads as it was put.
func CheckBlob(t *testing.T, b port.Blobs, id port.RolloutID, number int32, data []byte, from, to int) {
	t.Helper()
	got := make([]byte, to-from)
	if err := b.ReadBlob(id, number, int64(from), got); err != nil {
		t.Fatalf("bytes %d to %d of %d of blob %d of %v: %v", from, to, len(data), number, id, err)
	}
	if !bytes.Equal(got, data[from:to]) {
		t.Fatalf("bytes %d to %d of %d of blob %d of %v are not those put", from, to, len(data), number, id)
	}
}

// checkNoBlob fails unless a blob is not there.
func checkNoBlob(t *testing.T, b port.Blobs, id port.RolloutID, number int32) {
	t.Helper()
	if err := b.ReadBlob(id, number, 0, make([]byte, 1)); !errors.Is(err, port.ErrNoBlob) {
		t.Fatalf("blob %d of %v: %v, want none", number, id, err)
	}
}

// Every range of a blob comes back as it was put, also after the store was opened again. The caller's bytes are its own again.
func testBlobRanges(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	sizes := []int{0, 1, 752, 64<<10 - 1, 64 << 10, 64<<10 + 1, 512<<10 + 5, 1_400_000}
	put := make([][]byte, len(sizes))
	for i, size := range sizes {
		put[i] = Blob(id(1, 0, 1), int32(i), size)
		given := bytes.Clone(put[i])
		must(t, b.PutBlob(id(1, 0, 1), int32(i), given))
		clear(given)
	}
	random := rand.New(rand.NewPCG(1, 1))
	for range 2 {
		for i, data := range put {
			CheckBlob(t, b, id(1, 0, 1), int32(i), data, 0, len(data))
			CheckBlob(t, b, id(1, 0, 1), int32(i), data, len(data), len(data))
			for range 20 {
				from := random.IntN(len(data) + 1)
				CheckBlob(t, b, id(1, 0, 1), int32(i), data, from, from+random.IntN(len(data)-from+1))
			}
		}
		must(t, s.Close())
		s = p.Open(t)
		b = blobsOf(t, s)
	}
	must(t, s.Close())
}

// What is not there is an error of its own, and a number is used once.
func testBlobMissing(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	checkNoBlob(t, b, id(1, 0, 1), 0)
	data := putBlob(t, b, id(1, 0, 1), 0, 100_000)
	for _, other := range []port.RolloutID{id(1, 0, 2), id(1, 1, 1), id(2, 0, 1)} {
		checkNoBlob(t, b, other, 0)
	}
	checkNoBlob(t, b, id(1, 0, 1), 1)
	for _, r := range []struct{ offset, size int }{{0, 100_001}, {99_999, 2}, {100_000, 1}, {100_001, 0}, {1 << 40, 1}, {-1, 1}} {
		if err := b.ReadBlob(id(1, 0, 1), 0, int64(r.offset), make([]byte, r.size)); !errors.Is(err, port.ErrNoBlob) {
			t.Errorf("%d bytes from byte %d on of 100000: %v", r.size, r.offset, err)
		}
	}
	if err := b.PutBlob(id(1, 0, 1), 0, []byte("other")); err == nil {
		t.Error("a number was used twice")
	}
	CheckBlob(t, b, id(1, 0, 1), 0, data, 0, len(data))
	must(t, s.Close())
}

// A flipped bit is found by who reads the bytes around it, and by nobody else.
func testBlobDamaged(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	const size, at = 2_500_000, 500_000
	data, other := putBlob(t, b, id(1, 0, 1), 0, size), putBlob(t, b, id(1, 0, 1), 1, 1000)
	p.DamageBlob(t, s, id(1, 0, 1), 0, at)
	for _, r := range []struct{ from, to int }{{0, size}, {at, at + 1}, {at - 1000, at + 1}, {at, size}} {
		if err := b.ReadBlob(id(1, 0, 1), 0, int64(r.from), make([]byte, r.to-r.from)); !errors.Is(err, port.ErrBlobDamaged) {
			t.Errorf("bytes %d to %d with damage at byte %d: %v", r.from, r.to, at, err)
		}
	}
	CheckBlob(t, b, id(1, 0, 1), 0, data, 1_100_000, size)
	CheckBlob(t, b, id(1, 0, 1), 0, data, size-1000, size-10)
	CheckBlob(t, b, id(1, 0, 1), 1, other, 0, len(other))
	must(t, s.Close())
}

// Blobs go with what they belong to: a group, an attempt that counts for nothing, one that another took the place of.
func testBlobForgotten(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	kept := map[port.RolloutID][]byte{}
	for _, x := range []port.RolloutID{id(1, 0, 1), id(1, 1, 1), id(1, 1, 2), id(2, 0, 1), id(2, 1, 1)} {
		kept[x] = putBlob(t, b, x, 0, 5000)
		putBlob(t, b, x, 1, 10)
	}
	check := func(gone ...port.RolloutID) {
		t.Helper()
		for _, x := range gone {
			delete(kept, x)
			checkNoBlob(t, b, x, 0)
			checkNoBlob(t, b, x, 1)
		}
		for x, data := range kept {
			CheckBlob(t, b, x, 0, data, 0, len(data))
		}
	}
	must(t, s.PutSample(Sample(id(1, 1, 1), 5)))
	must(t, s.PutSample(Sample(id(1, 0, 1), 5)))
	check()
	must(t, s.PutSample(Sample(id(1, 1, 2), 5)))
	check(id(1, 1, 1))
	must(t, s.Discard(id(2, 0, 1))) // never had a payload
	must(t, s.Discard(id(7, 7, 7)))
	check(id(2, 0, 1))
	must(t, s.Discard(id(1, 1, 2)))
	check(id(1, 1, 2))
	must(t, s.Forget(2))
	must(t, s.Forget(99))
	check(id(2, 1, 1))
	must(t, s.Forget(1))
	check(id(1, 0, 1))
	must(t, s.Close())
}

// After a restart blobs stay where their payload does. Those of an attempt without one are nobody's.
func testBlobRetained(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	counted, not, killed, alone := id(1, 0, 1), id(1, 1, 1), id(1, 2, 1), id(2, 0, 1)
	data := map[port.RolloutID][]byte{}
	for _, x := range []port.RolloutID{counted, not, killed, alone} {
		data[x] = putBlob(t, b, x, 0, 5000)
	}
	must(t, s.PutSample(Sample(counted, 5)))
	must(t, s.PutSample(Sample(not, 5)))
	must(t, s.Close())
	s = p.Open(t)
	b = blobsOf(t, s)
	for x := range data {
		CheckBlob(t, b, x, 0, data[x], 0, 5000)
	}
	counts := func(x port.RolloutID) bool {
		if x == killed || x == alone {
			t.Errorf("%v has no payload, and the store asked whether it counts", x)
		}
		return x == counted || x.Group == 3
	}
	dropped, err := s.Retain(counts)
	if must(t, err); dropped != 1 {
		t.Errorf("%d payloads were dropped, want 1", dropped)
	}
	for range 2 {
		for _, x := range []port.RolloutID{not, killed, alone} {
			checkNoBlob(t, b, x, 0)
		}
		CheckBlob(t, b, counted, 0, data[counted], 0, 5000)
		must(t, s.PutSample(Sample(id(3, 0, 1), 5)))
		must(t, s.Close())
		s = p.Open(t)
		b = blobsOf(t, s)
		_, err := s.Retain(counts)
		must(t, err)
	}
	must(t, s.Close())
}

// A group's own blobs stay while the group has a payload, whichever of its attempts has it.
func testBlobsOfGroup(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	one, gone, emptied := port.GroupMedia(1), port.GroupMedia(2), port.GroupMedia(3)
	data := map[port.RolloutID][]byte{}
	for _, x := range []port.RolloutID{one, gone, emptied} {
		data[x] = putBlob(t, b, x, 77, 3000)
	}
	must(t, s.PutSample(Sample(id(1, 0, 1), 5)))
	must(t, s.PutSample(Sample(id(1, 1, 1), 5)))
	must(t, s.PutSample(Sample(id(2, 0, 1), 5)))
	must(t, s.PutSample(Sample(id(3, 0, 1), 5)))
	must(t, s.Discard(id(1, 1, 1)))
	for x := range data {
		CheckBlob(t, b, x, 77, data[x], 0, 3000)
	}
	must(t, s.Forget(2))
	checkNoBlob(t, b, gone, 77)
	must(t, s.Close())
	s = p.Open(t)
	b = blobsOf(t, s)
	_, err := s.Retain(func(x port.RolloutID) bool { return x == id(1, 0, 1) })
	must(t, err)
	CheckBlob(t, b, one, 77, data[one], 0, 3000)
	checkNoBlob(t, b, emptied, 77)
	must(t, s.Forget(1))
	checkNoBlob(t, b, one, 77)
	must(t, s.Close())
}

// At the bound a blob is refused and nothing of it is kept, while payloads still have room. Room that is made is used again.
func testBlobLimit(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	refused, oldest := 0, loop.GroupID(1)
	for g := loop.GroupID(1); g <= 40; g++ {
		data := Blob(id(g, 0, 1), 0, 400_000)
		err := b.PutBlob(id(g, 0, 1), 0, data)
		for ; errors.Is(err, port.ErrNoSpace); err = b.PutBlob(id(g, 0, 1), 0, data) {
			if oldest == g {
				t.Fatalf("a blob of group %d does not fit into an empty store: %v", g, err)
			}
			refused++
			checkNoBlob(t, b, id(g, 0, 1), 0)
			must(t, s.PutSample(Sample(id(g, 0, 1), 1000)))
			CheckBlob(t, b, id(oldest, 0, 1), 0, Blob(id(oldest, 0, 1), 0, 400_000), 0, 400_000)
			must(t, s.Forget(oldest))
			oldest++
		}
		must(t, err)
	}
	if refused < 20 {
		t.Errorf("the bound was reached %d times", refused)
	}
	if err := b.PutBlob(id(100, 0, 1), 0, make([]byte, 2*PayloadBytesMax)); !errors.Is(err, port.ErrNoSpace) {
		t.Errorf("a blob larger than the bound: %v", err)
	}
	for ; oldest <= 40; oldest++ {
		CheckBlob(t, b, id(oldest, 0, 1), 0, Blob(id(oldest, 0, 1), 0, 400_000), 0, 400_000)
	}
	must(t, s.Close())
}

// Everything at once, as a run does it.
func testBlobConcurrent(t *testing.T, p BlobPlace) {
	s, enc, all := begin(t, p.Place, 1)
	b := blobsOf(t, s)
	var wait sync.WaitGroup
	for worker := range 8 {
		wait.Go(func() {
			for i := range 12 {
				if err := playBlobs(s, b, loop.GroupID(1+worker*100+i)); err != nil {
					t.Error(err)
					return
				}
			}
		})
	}
	for i := range 50 {
		line := Event(enc, int64(i))
		all = append(all, line...)
		must(t, s.Append([][]byte{line}))
	}
	wait.Wait()
	checkLog(t, s, all)
	must(t, s.Close())
}

// playBlobs plays a group of two attempts, one of which is discarded.
func playBlobs(s port.Store, b port.Blobs, g loop.GroupID) error {
	for k := range int32(2) {
		for number := range int32(2) {
			if err := b.PutBlob(id(g, k, 1), number, Blob(id(g, k, 1), number, 70_000)); err != nil {
				return err
			}
		}
		if err := s.PutSample(Sample(id(g, k, 1), 20)); err != nil {
			return err
		}
	}
	if err := s.Discard(id(g, 0, 1)); err != nil {
		return err
	}
	got := make([]byte, 60_000)
	if err := b.ReadBlob(id(g, 1, 1), 1, 5000, got); err != nil {
		return err
	}
	if want := Blob(id(g, 1, 1), 1, 70_000)[5000:65_000]; !bytes.Equal(got, want) {
		return fmt.Errorf("a blob of group %d is not what was put", g)
	}
	if err := b.ReadBlob(id(g, 0, 1), 1, 5000, got); !errors.Is(err, port.ErrNoBlob) {
		return fmt.Errorf("a discarded blob of group %d: %w", g, err)
	}
	return s.Forget(g)
}

// A closed store says so.
func testBlobClosed(t *testing.T, p BlobPlace) {
	s, b := beginBlobs(t, p)
	putBlob(t, b, id(1, 0, 1), 0, 5)
	must(t, s.Close())
	if err := b.PutBlob(id(1, 0, 1), 1, []byte("late")); err == nil {
		t.Error("a closed store takes blobs")
	}
	if err := b.ReadBlob(id(1, 0, 1), 0, 0, make([]byte, 1)); err == nil || errors.Is(err, port.ErrNoBlob) {
		t.Errorf("a closed store says of a blob: %v", err)
	}
}
