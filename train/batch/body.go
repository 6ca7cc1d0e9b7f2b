package batch

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"math"
	"slices"
	"sync"
	"unsafe"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/store/weights"
)

// metadataEntry is the entry of the header's metadata that holds the lease.
const metadataEntry = "headway"

// dtypes are the tensors of a body, in the order of their data: those of the widest
// elements first, so that each lies aligned to its own. rolloutsTensor is there only where
// a rollout of the batch left several sequences, and agentsTensor where one names its agents.
var dtypes = []struct {
	name  string
	dtype weights.DType
}{
	{"offsets", "I64"}, {"groups", "I64"},
	{"tokens", "I32"}, {"logprobs", "F32"}, {"versions", "I32"},
	{"advantages", "F32"}, {"rewards", "F32"}, {"samples", "I32"}, {rolloutsTensor, "I32"}, {agentsTensor, "I32"},
	{"loss_mask", "U8"},
}

const (
	rolloutsTensor = "rollouts"
	agentsTensor   = "agents"
)

// Body is a share of a batch as it goes over the wire. It implements api.Body: it
// holds no copy of the tensors and writes them from where they lie.
type Body struct {
	batch  *Batch
	lease  protocol.Lease
	groups []int
	header []byte
	size   int64
}

// newBody makes the body of groups; beside says that its header lists what lies beside the tokens.
func newBody(p *Batch, lease protocol.Lease, groups []int, beside bool) (*Body, error) {
	b := &Body{batch: p, groups: groups}
	rows, tokens := 0, 0
	lease.Stamps = make([]protocol.GroupStamp, 0, len(groups)) // [] for none, not null
	for _, g := range groups {
		group := &p.groups[g]
		for i := range group.Samples {
			rows += group.Samples[i].Sequences()
			tokens += len(group.Samples[i].Tokens)
		}
		lease.Stamps = append(lease.Stamps, protocol.GroupStamp{Group: group.ID, StartVersion: group.StartVersion,
			ReadyVersion: group.ReadyVersion, Rollouts: len(group.Samples)})
	}
	if beside {
		lease.Channels = summaries(p, groups)
		lease.Media, lease.Processors = mediaOf(p, groups)
	}
	b.lease = lease
	var err error
	if b.header, err = header(lease, rows, tokens, p.branched); err != nil {
		return nil, err
	}
	b.size = int64(len(b.header)) + int64(rows)*(8+8+4+4+4) + 8 + int64(tokens)*(4+4+4+1)
	for _, there := range []bool{p.branched, len(lease.Agents) > 0} {
		if there {
			b.size += int64(rows) * 4
		}
	}
	return b, nil
}

// header renders the header of so many sequences and tokens.
func header(lease protocol.Lease, rows, tokens int, branched bool) ([]byte, error) {
	entries := make([]weights.Entry, 0, len(dtypes))
	for _, d := range dtypes {
		n := rows
		switch d.name {
		case rolloutsTensor:
			if !branched {
				continue
			}
		case agentsTensor:
			if len(lease.Agents) == 0 {
				continue
			}
		case "offsets":
			n = rows + 1
		case "tokens", "logprobs", "versions", "loss_mask":
			n = tokens
		}
		entries = append(entries, weights.Entry{Name: d.name, DType: d.dtype, Shape: []int{n}})
	}
	text, err := json.Marshal(lease)
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	return framed(string(text), entries)
}

// framed renders a header with tensors and what is said of them.
func framed(text string, entries []weights.Entry) ([]byte, error) {
	plain, err := weights.AppendHeader(nil, entries)
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	metadata, err := json.Marshal(map[string]map[string]string{"__metadata__": {metadataEntry: text}})
	if err != nil {
		return nil, fmt.Errorf("batch: %w", err)
	}
	// Both are objects: the metadata's brace goes, and the tensors' becomes a comma.
	const length = 8
	out := append(make([]byte, length, length+len(metadata)+len(plain)), metadata[:len(metadata)-1]...)
	out = append(out, ',')
	out = append(out, plain[length+1:]...)
	for len(out)%8 != 0 {
		out = append(out, ' ')
	}
	binary.LittleEndian.PutUint64(out, uint64(len(out)-length))
	return out, nil
}

// Lease is what the body's header says of it.
func (b *Body) Lease() protocol.Lease { return b.lease }

// Size is the body's, in bytes.
func (b *Body) Size() int64 { return b.size }

// Close does nothing: a body holds nothing that must be freed.
func (b *Body) Close() error { return nil }

// WriteTo writes the body. It may be called more than once.
func (b *Body) WriteTo(w io.Writer) (int64, error) {
	o := outputs.Get().(*output)
	o.w, o.n, o.total, o.err = w, 0, 0, nil
	o.bytes(b.header)
	b.write(o)
	o.flush()
	total, err := o.total, o.err
	o.w, o.err = nil, nil
	outputs.Put(o)
	return total, err
}

// write writes the tensors in the order of dtypes.
func (b *Body) write(o *output) {
	at := int64(0)
	o.int64(at)
	b.each(func(_ int, _ int, s *port.Sample) {
		eachSequence(s, func(first, end int) {
			at += int64(end - first)
			o.int64(at)
		})
	})
	b.eachRow(func(_ int, _ int, s *port.Sample) { o.int64(int64(s.ID.Group)) })
	b.each(func(_ int, _ int, s *port.Sample) { words(o, s.Tokens) })
	b.each(func(g int, i int, s *port.Sample) {
		if b.batch.clean[g][i] {
			words(o, s.Logprobs)
			return
		}
		o.logprobs(s.Logprobs, s.LossMask)
	})
	b.each(func(_ int, _ int, s *port.Sample) { o.versions(s.Versions, s.LossMask) })
	b.eachRow(func(g int, i int, _ *port.Sample) { o.uint32(math.Float32bits(b.batch.advantages[g][i])) })
	b.eachRow(func(_ int, _ int, s *port.Sample) { o.uint32(math.Float32bits(s.Reward)) })
	b.eachRow(func(_ int, _ int, s *port.Sample) { o.uint32(uint32(s.ID.Sample)) })
	if b.batch.branched {
		rollout := uint32(0)
		b.each(func(_ int, _ int, s *port.Sample) {
			for range s.Sequences() {
				o.uint32(rollout)
			}
			rollout++
		})
	}
	if names := b.lease.Agents; len(names) > 0 {
		b.each(func(_ int, _ int, s *port.Sample) {
			for i := range s.Sequences() {
				o.uint32(uint32(agentCode(names, s, i)))
			}
		})
	}
	b.each(func(_ int, _ int, s *port.Sample) { o.bytes(s.LossMask) })
}

// agentCode is the place among the batch's agents, which are sorted, of the one who speaks in a sequence; -1 for nobody.
func agentCode(names []string, s *port.Sample, sequence int) int32 {
	if s.Agents == nil {
		return -1
	}
	at, _ := slices.BinarySearch(names, s.Agents[sequence].Name) // every one is there
	return int32(at)
}

// eachRow visits the samples of the share once for each of their sequences.
func (b *Body) eachRow(visit func(group, sample int, s *port.Sample)) {
	b.each(func(g int, i int, s *port.Sample) {
		for range s.Sequences() {
			visit(g, i, s)
		}
	})
}

// each visits the samples of the share in their order, with the group's and the sample's place in the batch.
func (b *Body) each(visit func(group, sample int, s *port.Sample)) {
	for _, g := range b.groups {
		samples := b.batch.groups[g].Samples
		for i := range samples {
			visit(g, i, &samples[i])
		}
	}
}

// outputBytes gathers what is small into one write; what is at least half of it is
// written from where it lies.
const outputBytes = 128 << 10

var outputs = sync.Pool{New: func() any { return &output{buffer: make([]byte, outputBytes)} }}

// output is a buffered writer that converts in its buffer. It keeps the first error.
type output struct {
	w      io.Writer
	buffer []byte
	n      int
	total  int64
	err    error
}

func (o *output) flush() {
	if o.n > 0 {
		o.send(o.buffer[:o.n])
		o.n = 0
	}
}

func (o *output) send(p []byte) {
	if o.err != nil {
		return
	}
	n, err := o.w.Write(p)
	o.total += int64(n)
	if err == nil && n < len(p) {
		err = io.ErrShortWrite
	}
	o.err = err
}

// room returns space for at least one element of 8 bytes and at most want bytes.
func (o *output) room(want int) []byte {
	if len(o.buffer)-o.n < min(want, 8) {
		o.flush()
	}
	return o.buffer[o.n:min(len(o.buffer), o.n+want)]
}

func (o *output) bytes(p []byte) {
	for len(p) > 0 && o.err == nil {
		if o.n == 0 && len(p) >= outputBytes/2 {
			o.send(p)
			return
		}
		if o.n == len(o.buffer) {
			o.flush()
		}
		k := copy(o.buffer[o.n:], p)
		o.n, p = o.n+k, p[k:]
	}
}

func (o *output) int64(v int64) {
	binary.LittleEndian.PutUint64(o.room(8), uint64(v))
	o.n += 8
}

func (o *output) uint32(v uint32) {
	binary.LittleEndian.PutUint32(o.room(8), v)
	o.n += 4
}

// nativeLittle says whether numbers lie in memory as they do in a body.
var nativeLittle = binary.NativeEndian.Uint16([]byte{1, 0}) == 1

// words writes values of 32 bits.
func words[T int32 | float32](o *output, values []T) {
	if len(values) == 0 {
		return
	}
	raw := unsafe.Slice((*byte)(unsafe.Pointer(unsafe.SliceData(values))), 4*len(values))
	if nativeLittle {
		o.bytes(raw)
		return
	}
	for at := 0; at < len(raw); at += 4 {
		o.uint32(binary.NativeEndian.Uint32(raw[at:]))
	}
}

// logprobs writes log-probs, 0 where the mask is 0.
func (o *output) logprobs(values []float32, mask []uint8) {
	for len(values) > 0 && o.err == nil {
		to := o.room(4 * len(values))
		n := min(len(to)/4, len(values))
		for i, v := range values[:n] {
			binary.LittleEndian.PutUint32(to[4*i:], math.Float32bits(v)&-uint32(mask[i]))
		}
		o.n += 4 * n
		values, mask = values[n:], mask[n:]
	}
}

// versions writes versions, loop.NoVersion where the mask is 0.
func (o *output) versions(values []loop.Version, mask []uint8) {
	for len(values) > 0 && o.err == nil {
		to := o.room(4 * len(values))
		n := min(len(to)/4, len(values))
		narrow(to[:4*n], values[:n], mask[:n])
		o.n += 4 * n
		values, mask = values[n:], mask[n:]
	}
}

// narrow writes versions as 32 bits each, four at a time: this is most of what packing costs.
func narrow(to []byte, values []loop.Version, mask []uint8) {
	// -1 in all bits where the mask is 0; a version has at most 31.
	pair := func(v, w loop.Version, m, n uint8) uint64 {
		return uint64(uint32(v)|(uint32(m)-1)) | uint64(uint32(w)|(uint32(n)-1))<<32
	}
	for len(values) >= 4 && len(mask) >= 4 && len(to) >= 16 {
		binary.LittleEndian.PutUint64(to, pair(values[0], values[1], mask[0], mask[1]))
		binary.LittleEndian.PutUint64(to[8:], pair(values[2], values[3], mask[2], mask[3]))
		values, mask, to = values[4:], mask[4:], to[16:]
	}
	for i, v := range values {
		binary.LittleEndian.PutUint32(to[4*i:], uint32(v)|(uint32(mask[i])-1))
	}
}
