package jetstream

import (
	"strconv"
	"testing"

	"github.com/nats-io/nats.go"

	"github.com/headway-rl/headway/loop/port"
)

// FuzzContents: a message whose header says where payloads lie is read or refused, and no payload lies before the
// body or before the payload that precedes it.
func FuzzContents(f *testing.F) {
	c := contents{epoch: 3, chunk: 0, chunks: 1, items: []item{{id: port.RolloutID{Group: 1, Sample: 2, Attempt: 1}, size: 5, sum: 7}, {id: port.RolloutID{Group: 2}, offset: 5, size: 9}}}
	f.Add(c.String(), 14)
	f.Add("1 0 1 1 0 1 -5 0 1 0 1 3 0", 4)
	f.Add("1 0 1 1 0 1 9223372036854775807 0 1 0 1 9223372036854775807 0", 4)
	f.Fuzz(func(t *testing.T, header string, length int) {
		c, err := parseContents(header)
		if err != nil {
			return
		}
		body, end := make([]byte, uint(length)%64), 0
		for _, i := range c.items {
			if i.offset != end || i.size < 0 {
				t.Fatalf("a payload of %d bytes at %d, after one that ended at %d", i.size, i.offset, end)
			}
			end = i.offset + i.size
			_ = cut(place{offset: i.offset, size: i.size, seqs: []uint64{1}}, map[uint64][]byte{1: body})
		}
		if again, err := parseContents(c.String()); err != nil || again.String() != c.String() {
			t.Fatalf("%q is read as %q, %v", c.String(), again.String(), err)
		}
	})
}

// FuzzChunk: a message whose header says which chunk of a blob it holds is read or refused, and the chunk is one of the blob.
func FuzzChunk(f *testing.F) {
	f.Add(chunkOf{epoch: 3, put: 1, id: blobID, number: 2, size: 10, limit: 4, chunk: 2, sum: 7}.String())
	f.Add("1 1 1 0 1 0 9223372036854775807 1 0 0")
	f.Add("1 1 1 0 1 0 10 0 0 0")
	f.Fuzz(func(t *testing.T, header string) {
		c, err := parseChunk(header)
		if err != nil {
			return
		}
		if n := chunksOf(c.size, c.limit); n < 1 || n > blobChunksMax || c.chunk >= n || c.chunk*c.limit > c.size {
			t.Fatalf("%q: chunk %d of %d", header, c.chunk, n)
		}
		if again, err := parseChunk(c.String()); err != nil || again != c {
			t.Fatalf("%q is read as %v, %v", c.String(), again, err)
		}
	})
}

// FuzzLogPlace: the headers of a message of the log are a place or an error.
func FuzzLogPlace(f *testing.F) {
	f.Add("12", "3", "")
	f.Add("12", "3", "1")
	f.Add("+12", "-3", "x")
	f.Fuzz(func(t *testing.T, line, epoch, piece string) {
		h := nats.Header{headerLine: {line}, headerEpoch: {epoch}}
		if piece != "" {
			h[headerPiece] = []string{piece}
		}
		p, err := logPlaceOf(h)
		if err != nil {
			return
		}
		if p.line < 1 || p.piece < -1 || piece != "" && p.piece < 0 {
			t.Errorf("line %s, piece %q: %+v", strconv.Quote(line), piece, p)
		}
	})
}
