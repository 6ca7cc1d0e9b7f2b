package batch

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

// memory keeps blobs for a test.
type memory map[string][]byte

func key(id port.RolloutID, number int32) string { return fmt.Sprint(id, number) }

func (m memory) PutBlob(id port.RolloutID, number int32, data []byte) error {
	m[key(id, number)] = bytes.Clone(data)
	return nil
}

func (m memory) ReadBlob(id port.RolloutID, number int32, offset int64, dst []byte) error {
	blob, ok := m[key(id, number)]
	if !ok || offset+int64(len(dst)) > int64(len(blob)) {
		return port.ErrNoBlob
	}
	copy(dst, blob[offset:])
	return nil
}

var (
	routedHeader = channel.Header{Name: channel.RoutedExperts, DType: channel.U16, Row: []int{3, 2}, Align: channel.Passes}
	maskHeader   = channel.Header{Name: channel.SamplingMask, DType: channel.I32, Ragged: true, Align: channel.Sampled}
)

// value is what stands in a row of a channel, so that a misplaced row is seen.
func value(s *port.Sample, sequence, row, at int) int {
	return (int(s.ID.Group)*31+int(s.ID.Sample)*17+sequence*7+row*5+at)%60000 + 1
}

// width is the length of a ragged row.
func width(row int) int { return row % 4 }

// give adds two channels to every sequence of a batch, in blobs with rows before those that count, and holes.
func give(rng *rand.Rand, b port.Batch, m memory) {
	for g := range b.Groups {
		for i := range b.Groups[g].Samples {
			s, number := &b.Groups[g].Samples[i], int32(0)
			for sequence := range s.Sequences() {
				first, end := s.Sequence(sequence)
				for _, h := range []channel.Header{routedHeader, maskHeader} {
					c := channel.Channel{Header: h, Sequence: int32(sequence)}
					rows := h.Align.Rows(s.LossMask[first:end])
					for at := 0; at < rows; {
						n := 1 + rng.IntN(rows-at)
						if rng.IntN(4) > 0 {
							skip := rng.IntN(3)
							_ = m.PutBlob(s.ID, number, blobOf(s, h, sequence, at-skip, n+skip))
							c.Parts = append(c.Parts, channel.Part{Start: int32(at), Rows: int32(n), Blob: number, Skip: int32(skip)})
							number++
						}
						at += n
					}
					s.Channels = append(s.Channels, c)
				}
			}
		}
	}
}

// blobOf is a blob with n rows from a row on.
func blobOf(s *port.Sample, h channel.Header, sequence, from, n int) []byte {
	var head, out []byte
	var lengths []int32
	for row := from; row < from+n; row++ {
		if !h.Ragged {
			for at := range 6 {
				out = binary.LittleEndian.AppendUint16(out, uint16(value(s, sequence, row, at)))
			}
			continue
		}
		lengths = append(lengths, int32(width(max(row, 0))))
		for at := range width(max(row, 0)) {
			out = binary.LittleEndian.AppendUint32(out, uint32(value(s, sequence, row, at)))
		}
	}
	if h.Ragged {
		head = channel.AppendLengths(nil, lengths)
	}
	return append(head, out...)
}

// tensorsOf are the tensors of a body, read as a trainer reads them.
func tensorsOf(t *testing.T, body *ChannelBody) (summary protocol.ChannelSummary, tensors map[string][]byte) {
	t.Helper()
	var raw bytes.Buffer
	if n, err := body.WriteTo(&raw); err != nil || n != body.Size() || int64(raw.Len()) != n {
		t.Fatalf("%d of %d bytes: %v", n, body.Size(), err)
	}
	head, err := weights.ParseHeader(raw.Bytes(), int64(raw.Len()))
	if err != nil {
		t.Fatal(err)
	}
	if err := json.Unmarshal([]byte(head.Metadata[metadataEntry]), &summary); err != nil {
		t.Fatal(err)
	}
	tensors = make(map[string][]byte)
	for _, e := range head.Entries {
		tensors[e.Name] = raw.Bytes()[head.DataStart+e.Begin : head.DataStart+e.End]
	}
	return summary, tensors
}

// Every row of every share is the one that was said, and what is not there is counted.
func TestChannelBodies(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 1))
	for range 60 {
		b, m := draw(rng, 1+rng.IntN(5), 4, 40), memory{}
		branch(rng, b)
		give(rng, b, m)
		p, err := New(b, Options{Vocabulary: vocabulary})
		if err != nil {
			t.Fatal(err)
		}
		ranks := 1 + rng.IntN(3)
		plan, _ := p.plan(ranks)
		for rank := range ranks {
			var sequences []sequenceOf
			for _, g := range plan[rank] {
				for i := range b.Groups[g].Samples {
					for k := range b.Groups[g].Samples[i].Sequences() {
						sequences = append(sequences, sequenceOf{&b.Groups[g].Samples[i], k})
					}
				}
			}
			for _, h := range []channel.Header{routedHeader, maskHeader} {
				body, err := p.Channel(m, h.Name, rank, ranks)
				if err != nil {
					t.Fatal(err)
				}
				checkBody(t, body, h, sequences)
			}
			if _, err := p.Channel(m, "x-none", rank, ranks); err == nil {
				t.Error("a channel that is not there was given")
			}
		}
	}
}

type sequenceOf struct {
	sample *port.Sample
	place  int
}

func checkBody(t *testing.T, body *ChannelBody, h channel.Header, sequences []sequenceOf) {
	t.Helper()
	summary, tensors := tensorsOf(t, body)
	parts, row, all := tensors["parts"], 0, 0
	for _, q := range sequences {
		first, end := q.sample.Sequence(q.place)
		all += h.Align.Rows(q.sample.LossMask[first:end])
	}
	for k := 0; k < len(parts); k += 24 {
		read := func(i int) int { return int(binary.LittleEndian.Uint64(parts[k+8*i:])) }
		q, start, n := sequences[read(0)], read(1), read(2)
		for i := range n {
			want := func(at int) int { return value(q.sample, q.place, start+i, at) }
			if !h.Ragged {
				for at := range 6 {
					if got := int(binary.LittleEndian.Uint16(tensors["rows"][2*(6*row+at):])); got != want(at) {
						t.Fatalf("%s: row %d of sequence %d has %d, want %d", h.Name, start+i, read(0), got, want(at))
					}
				}
			} else {
				from, to := int(binary.LittleEndian.Uint64(tensors["offsets"][8*row:])), int(binary.LittleEndian.Uint64(tensors["offsets"][8*row+8:]))
				if to-from != width(start+i) {
					t.Fatalf("%s: row %d of sequence %d has %d values, want %d", h.Name, start+i, read(0), to-from, width(start+i))
				}
				for at := range to - from {
					if got := int(binary.LittleEndian.Uint32(tensors["values"][4*(from+at):])); got != want(at) {
						t.Fatalf("%s: row %d of sequence %d has %d, want %d", h.Name, start+i, read(0), got, want(at))
					}
				}
			}
			row++
		}
	}
	if summary.Rows != row || summary.Absent != all-row || !summary.Same(h) {
		t.Fatalf("the header says %+v, want %d rows and %d absent", summary, row, all-row)
	}
}

// faulty has blobs that are gone, and blobs whose last byte does not verify.
type faulty struct {
	memory
	gone, damaged map[string]bool
}

func (f faulty) ReadBlob(id port.RolloutID, number int32, offset int64, dst []byte) error {
	k := key(id, number)
	if f.gone[k] {
		return port.ErrNoBlob
	}
	if n := int64(len(f.memory[k])); f.damaged[k] && len(dst) > 0 && offset+int64(len(dst)) == n {
		return port.ErrBlobDamaged
	}
	return f.memory.ReadBlob(id, number, offset, dst)
}

// Rows that the store has lost are absent and counted, all others are given. Damage that is found while a body is written
// breaks it off, once: the next body is whole, whatever else is damaged.
func TestLostBlobs(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 2))
	for range 20 {
		b, m := draw(rng, 2, 3, 40), memory{}
		give(rng, b, m)
		told, rows := 0, 0
		p, err := New(b, Options{Vocabulary: vocabulary, Lost: func(_ string, n int, err error) {
			if !errors.Is(err, port.ErrNoBlob) && !errors.Is(err, port.ErrBlobDamaged) {
				t.Error(err)
			}
			told++
			rows += n
		}})
		if err != nil {
			t.Fatal(err)
		}
		store := faulty{m, map[string]bool{}, map[string]bool{}}
		blobs, absent := 0, 0
		var sequences []sequenceOf
		for g := range b.Groups {
			for i := range b.Groups[g].Samples {
				s := &b.Groups[g].Samples[i]
				sequences = append(sequences, sequenceOf{s, 0})
				for _, c := range s.Channels {
					for _, part := range c.Parts {
						if k := key(s.ID, part.Blob); rng.IntN(3) == 0 {
							store.gone[k] = rng.IntN(2) == 0 || part.Rows == 1 // which may have no byte to read
							store.damaged[k] = !store.gone[k]
							blobs, absent = blobs+1, absent+int(part.Rows)
						}
					}
				}
			}
		}
		before := p.Channels()
		for _, h := range []channel.Header{routedHeader, maskHeader} {
			body, err := p.Channel(store, h.Name, 0, 1)
			if err != nil {
				t.Fatal(err)
			}
			if _, err = body.WriteTo(&bytes.Buffer{}); err != nil {
				if !errors.Is(err, port.ErrBlobDamaged) {
					t.Fatal(err)
				}
				if body, err = p.Channel(store, h.Name, 0, 1); err != nil {
					t.Fatal(err)
				}
			}
			checkBody(t, body, h, sequences)
		}
		after := p.Channels()
		lack := after[0].Absent + after[1].Absent - before[0].Absent - before[1].Absent
		if told != blobs || rows != absent || lack != absent {
			t.Fatalf("told of %d blobs and %d rows, want %d and %d; %d more are absent", told, rows, blobs, absent, lack)
		}
	}
}

// chunked is a store that reads chunks of a size as a whole.
type chunked struct {
	memory
	bytes int64
	read  int // chunks
}

func (c *chunked) ReadBlob(id port.RolloutID, number int32, offset int64, dst []byte) error {
	if n := int64(len(dst)); n > 0 {
		c.read += int((offset+n-1)/c.bytes - offset/c.bytes + 1)
	}
	return c.memory.ReadBlob(id, number, offset, dst)
}

// Rows that begin in the middle of a blob are read from its chunks once, and no chunk twice.
func TestChunksAreReadOnce(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 8))
	b, m := draw(rng, 4, 4, 40), memory{}
	wide := channel.Header{Name: "x-wide", DType: channel.U8, Row: []int{1 << 19}, Align: channel.Passes}
	const rows, skip = 9, 3 // four and a half chunks, from the middle of one on
	samples := b.Groups[0].Samples
	s := &samples[slices.IndexFunc(samples, func(s port.Sample) bool { return len(s.Tokens) > rows })]
	s.Channels = []channel.Channel{{Header: wide, Parts: []channel.Part{{Rows: rows, Skip: skip}}}}
	_ = m.PutBlob(s.ID, 0, make([]byte, (skip+rows)<<19))
	p, err := New(b, Options{Vocabulary: vocabulary})
	if err != nil {
		t.Fatal(err)
	}
	store := &chunked{memory: m, bytes: 1 << 20}
	body, err := p.Channel(store, wide.Name, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := body.WriteTo(io.Discard); err != nil || store.read != 5 {
		t.Errorf("%d chunks were read, want 5: %v", store.read, err)
	}
}

// failing is a store that cannot be asked now.
type failing struct{ memory }

var errFailing = errors.New("not now")

func (failing) ReadBlob(port.RolloutID, int32, int64, []byte) error { return errFailing }

// A store that cannot be asked has lost nothing.
func TestChannelOfAStoreThatFails(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 7))
	b, m := draw(rng, 2, 2, 40), memory{}
	give(rng, b, m)
	p, err := New(b, Options{Vocabulary: vocabulary, Lost: func(name string, _ int, err error) { t.Errorf("%s: %v", name, err) }})
	if err != nil {
		t.Fatal(err)
	}
	for _, named := range []string{channel.SamplingMask, channel.RoutedExperts} {
		if _, err := p.Channel(failing{m}, named, 0, 1); !errors.Is(err, errFailing) {
			t.Errorf("%s: %v", named, err)
		}
	}
}

// Rows of another form than the first are absent: they are of an engine with another model.
func TestChannelsOfTwoForms(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 3))
	b, m := draw(rng, 3, 3, 40), memory{}
	give(rng, b, m)
	p, err := New(b, Options{Vocabulary: vocabulary})
	if err != nil {
		t.Fatal(err)
	}
	before := p.Channels()[0]
	odd := &b.Groups[2].Samples[0].Channels[0]
	odd.DType = channel.U8
	after := p.Channels()[0]
	if n := odd.Present(); n == 0 || after.Rows != before.Rows-n || after.Absent != before.Absent+n {
		t.Errorf("%d rows of another form: %+v, before %+v", n, after, before)
	}
	body, err := p.Channel(m, channel.RoutedExperts, 0, 1)
	if err != nil {
		t.Fatal(err)
	}
	if summary, tensors := tensorsOf(t, body); len(tensors["rows"]) != summary.Rows*12 {
		t.Errorf("%d bytes for %d rows", len(tensors["rows"]), summary.Rows)
	}
}

// A rank whose rollouts have no row, or that has no rollout, has the channels that the others have: it asks for them too.
func TestChannelsOfARankWithoutRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 5))
	b, m := draw(rng, 3, 3, 40), memory{}
	give(rng, b, m)
	with := func(header channel.Header) []channel.Channel {
		return []channel.Channel{{Header: header, Parts: []channel.Part{{Rows: 1}}}}
	}
	for g := range b.Groups {
		for i := range b.Groups[g].Samples {
			b.Groups[g].Samples[i].Channels = nil
		}
	}
	first := &b.Groups[0].Samples[0]
	first.Channels = append(with(routedHeader), with(maskHeader)...)
	_ = m.PutBlob(first.ID, 0, append(channel.AppendLengths(nil, []int32{0}), 0, 0, 0, 0)) // a row of either
	p, err := New(b, Options{Vocabulary: vocabulary})
	if err != nil {
		t.Fatal(err)
	}
	const ranks = 5
	rows := map[string]int{}
	for rank := range ranks {
		share, err := p.Share(rank, ranks, 60)
		if err != nil || len(share.Lease().Channels) != 2 {
			t.Fatalf("rank %d: %v, channels %+v", rank, err, share.Lease().Channels)
		}
		for _, said := range share.Lease().Channels {
			rows[said.Name] += said.Rows
			body, err := p.Channel(m, said.Name, rank, ranks)
			if err != nil {
				t.Fatalf("rank %d: %v", rank, err)
			}
			if said.Rows > 0 {
				continue // its blobs are not of this test
			}
			if got, tensors := tensorsOf(t, body); len(tensors["parts"]) > 0 || got.Rows != 0 || got.Absent != said.Absent || !got.Same(said.Header) {
				t.Errorf("rank %d: %+v, want %+v", rank, got, said)
			}
		}
	}
	if rows[routedHeader.Name] != 1 || rows[maskHeader.Name] != 1 {
		t.Errorf("rows of all ranks: %v", rows)
	}
}

// A channel that was asked for and that no rollout of the batch has a row of is absent and counted, and fetched as any.
func TestChannelsOfABatchWithoutRows(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 6))
	b := draw(rng, 3, 3, 40)
	p, err := New(b, Options{Vocabulary: vocabulary, Channels: []channel.Header{routedHeader, maskHeader}})
	if err != nil {
		t.Fatal(err)
	}
	for _, h := range []channel.Header{routedHeader, maskHeader} {
		all := 0
		for rank := range 2 {
			body, err := p.Channel(memory{}, h.Name, rank, 2)
			if err != nil {
				t.Fatal(err)
			}
			got, tensors := tensorsOf(t, body)
			if !got.Same(h) || got.Rows != 0 || len(tensors["parts"]) > 0 {
				t.Errorf("%s: %+v", h.Name, got)
			}
			all += got.Absent
		}
		want := 0
		for g := range b.Groups {
			for i := range b.Groups[g].Samples {
				want += h.Align.Rows(b.Groups[g].Samples[i].LossMask)
			}
		}
		if all != want {
			t.Errorf("%s: %d rows are absent, want %d", h.Name, all, want)
		}
	}
	if _, err := p.Channel(memory{}, "x-none", 0, 2); err == nil {
		t.Error("a channel that was not asked for was given")
	}
}

// The bodies that the Python client's tests read.
func TestChannelGolden(t *testing.T) {
	rng := rand.New(rand.NewPCG(3, 4))
	b, m := draw(rng, 3, 3, 20), memory{}
	branch(rng, b)
	give(rng, b, m)
	p, err := New(b, Options{Vocabulary: vocabulary})
	if err != nil {
		t.Fatal(err)
	}
	whole, err := p.Share(0, 1, 60)
	if err != nil {
		t.Fatal(err)
	}
	golden(t, "channels", whole)
	for _, name := range []string{channel.RoutedExperts, channel.SamplingMask} {
		body, err := p.Channel(m, name, 0, 1)
		if err != nil {
			t.Fatal(err)
		}
		golden(t, "channels."+name, body)
	}
}

func golden(t *testing.T, name string, body protocol.Body) {
	t.Helper()
	var raw bytes.Buffer
	if _, err := body.WriteTo(&raw); err != nil {
		t.Fatal(err)
	}
	path := filepath.Join("testdata", name+".safetensors")
	if *rewrite {
		if err := os.WriteFile(path, raw.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	want, err := os.ReadFile(path)
	if err != nil || !bytes.Equal(raw.Bytes(), want) {
		t.Errorf("%s is not what is made now: %v; look at the difference, then go test ./train/batch -rewrite", path, err)
	}
}
