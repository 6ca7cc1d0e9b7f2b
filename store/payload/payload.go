// Package payload is the form in which stores keep a rollout's sample: its fields in
// order, identity first, without a checksum. Every store brings its own frame.
package payload

import (
	"encoding/binary"
	"errors"
	"math"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// The body of a payload is the sample's fields in order: whole numbers as
// varints, floats as their bits, text and slices after their length. The
// rollout's identity comes first, so that an index needs no more than that.

func appendID(dst []byte, id port.RolloutID) []byte {
	dst = binary.AppendVarint(dst, int64(id.Group))
	dst = binary.AppendVarint(dst, int64(id.Sample))
	return binary.AppendVarint(dst, int64(id.Attempt))
}

// Append appends the body of a sample to dst and returns it.
func Append(dst []byte, s *port.Sample) []byte {
	dst = appendID(dst, s.ID)
	dst = binary.AppendUvarint(dst, uint64(len(s.Tokens)))
	for _, t := range s.Tokens {
		dst = appendShort(dst, int64(t))
	}
	dst = append(dst, s.LossMask...)
	for _, p := range s.Logprobs {
		dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(p))
	}
	for _, v := range s.Versions {
		dst = appendShort(dst, int64(v))
	}
	dst = binary.LittleEndian.AppendUint32(dst, math.Float32bits(s.Reward))
	dst = append(dst, flag(s.Exact)*flagExact|flag(s.Truncated)*flagTruncated|flag(s.Derived)*flagDerived|flag(len(s.Breaks) > 0)*flagBreaks|flag(len(s.Channels) > 0)*flagChannels|flag(len(s.Agents) > 0)*flagAgents|flag(len(s.Media) > 0)*flagMedia)
	dst = appendText(dst, s.Prompt)
	dst = appendText(dst, s.Response)
	dst = appendText(dst, s.Answer)
	dst = binary.AppendVarint(dst, s.GenerateNS)
	dst = binary.AppendVarint(dst, s.EnvironmentNS)
	dst = binary.AppendUvarint(dst, uint64(len(s.Resumes)))
	for _, p := range s.Resumes {
		dst = binary.AppendVarint(dst, int64(p.At))
		dst = binary.AppendVarint(dst, int64(p.Version))
	}
	if len(s.Breaks) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(s.Breaks)))
		for _, at := range s.Breaks {
			dst = binary.AppendVarint(dst, int64(at))
		}
	}
	if len(s.Channels) > 0 {
		dst = appendChannels(dst, s.Channels)
	}
	if len(s.Agents) > 0 {
		dst = binary.AppendUvarint(dst, uint64(len(s.Agents)))
		for _, a := range s.Agents {
			dst = append(appendText(dst, a.Name), flag(a.Untrained))
		}
	}
	if len(s.Media) > 0 {
		dst = appendMedia(dst, s.Media)
	}
	return dst
}

// What the byte of flags holds. A payload that says flagBreaks has the breaks at its end. Behind them
// are the channels where it says flagChannels, the agents where it says flagAgents, and the media where it says flagMedia.
const (
	flagExact = 1 << iota
	flagTruncated
	flagDerived
	flagBreaks
	flagChannels
	flagAgents
	flagMedia
	flagsEnd
)

// appendShort is binary.AppendVarint, faster for numbers of up to three bytes, as token ids
// and versions are.
func appendShort(dst []byte, v int64) []byte {
	u := uint64(v<<1) ^ uint64(v>>63)
	switch {
	case u < 1<<7:
		return append(dst, byte(u))
	case u < 1<<14:
		return append(dst, byte(u)|0x80, byte(u>>7))
	case u < 1<<21:
		return append(dst, byte(u)|0x80, byte(u>>7)|0x80, byte(u>>14))
	}
	return binary.AppendUvarint(dst, u)
}

func flag(b bool) byte {
	if b {
		return 1
	}
	return 0
}

func appendText(dst []byte, text string) []byte {
	dst = binary.AppendUvarint(dst, uint64(len(text)))
	return append(dst, text...)
}

// ErrFormat is a body that verifies and still is none: another version wrote it.
var ErrFormat = errors.New("not a payload of this version of headway: resume the run with the version that began it")

// fields reads a body field by field; after the first that is not there all are zero.
type fields struct {
	rest []byte
	bad  bool
}

func (f *fields) fail() { f.rest, f.bad = nil, true }

func (f *fields) varint() int64 {
	v, n := binary.Varint(f.rest)
	if n <= 0 {
		f.fail()
		return 0
	}
	f.rest = f.rest[n:]
	return v
}

// length reads a count of things that take at least one byte each.
func (f *fields) length() int {
	v, n := binary.Uvarint(f.rest)
	if n <= 0 || v > uint64(len(f.rest)-n) {
		f.fail()
		return 0
	}
	f.rest = f.rest[n:]
	return int(v)
}

// varints fills dst; it is varint for many, faster for numbers of up to three bytes.
func varints[T ~int32 | ~int64](f *fields, dst []T) {
	b := f.rest
	for i := range dst {
		var u uint64
		switch {
		case len(b) > 0 && b[0] < 0x80:
			u, b = uint64(b[0]), b[1:]
		case len(b) > 1 && b[1] < 0x80:
			u, b = uint64(b[0]&0x7f)|uint64(b[1])<<7, b[2:]
		case len(b) > 2 && b[2] < 0x80:
			u, b = uint64(b[0]&0x7f)|uint64(b[1]&0x7f)<<7|uint64(b[2])<<14, b[3:]
		default:
			long, n := binary.Uvarint(b)
			if n <= 0 {
				f.fail()
				clear(dst[i:])
				return
			}
			u, b = long, b[n:]
		}
		dst[i] = T(int64(u>>1) ^ -int64(u&1))
	}
	f.rest = b
}

func (f *fields) bytes(n int) []byte {
	if n > len(f.rest) {
		f.fail()
		return nil
	}
	b := f.rest[:n]
	f.rest = f.rest[n:]
	return b
}

func (f *fields) float32() float32 {
	b := f.bytes(4)
	if b == nil {
		return 0
	}
	return math.Float32frombits(binary.LittleEndian.Uint32(b))
}

func (f *fields) text() string { return string(f.bytes(f.length())) }

func (f *fields) id() port.RolloutID {
	return port.RolloutID{Group: loop.GroupID(f.varint()), Sample: int32(f.varint()), Attempt: int32(f.varint())}
}

// DecodeID reads the identity at the beginning of a body.
func DecodeID(body []byte) (port.RolloutID, error) {
	f := fields{rest: body}
	id := f.id()
	if f.bad {
		return id, ErrFormat
	}
	return id, nil
}

// Decode reads a body whole. Anything left over, or missing, is ErrFormat.
func Decode(body []byte) (port.Sample, error) {
	f := fields{rest: body}
	s := port.Sample{ID: f.id()}
	n := f.length()
	s.Tokens = make([]int32, n)
	varints(&f, s.Tokens)
	s.LossMask = append([]uint8{}, f.bytes(n)...)
	s.Logprobs = make([]float32, n)
	for i, raw := 0, f.bytes(4*n); i+1 <= len(raw)/4; i++ {
		s.Logprobs[i] = math.Float32frombits(binary.LittleEndian.Uint32(raw[4*i:]))
	}
	s.Versions = make([]loop.Version, n)
	varints(&f, s.Versions)
	s.Reward = f.float32()
	var has byte
	if flags := f.bytes(1); flags != nil {
		has = flags[0]
	}
	s.Exact, s.Truncated, s.Derived = has&flagExact != 0, has&flagTruncated != 0, has&flagDerived != 0
	s.Prompt, s.Response, s.Answer = f.text(), f.text(), f.text()
	s.GenerateNS, s.EnvironmentNS = f.varint(), f.varint()
	if len(f.rest) > 0 { // before rollouts could be interrupted there was no more
		for range f.length() {
			s.Resumes = append(s.Resumes, port.ResumePoint{At: int32(f.varint()), Version: loop.Version(f.varint())})
		}
	}
	if has&flagBreaks != 0 {
		s.Breaks = make([]int32, f.length())
		varints(&f, s.Breaks)
	}
	if has&flagChannels != 0 {
		s.Channels = f.channels()
	}
	if has&flagAgents != 0 {
		s.Agents = f.agents()
	}
	if has&flagMedia != 0 {
		s.Media = f.media()
	}
	if f.bad || len(f.rest) > 0 || has >= flagsEnd {
		return port.Sample{}, ErrFormat
	}
	return s, nil
}

// agents reads who speaks in the sequences.
func (f *fields) agents() []port.Agent {
	out := make([]port.Agent, f.length())
	for i := range out {
		out[i].Name = f.text()
		b := f.bytes(1)
		if b == nil || b[0] > 1 {
			f.fail()
			return nil
		}
		out[i].Untrained = b[0] == 1
	}
	return out
}

// BlobsMost is the most that payloads and blobs may take together for another blob to be put, of a bound on them in bytes.
// The eighth beyond it is for payloads: a run that lacks room for side channels goes on without them.
func BlobsMost(bound int64) int64 { return bound - bound/8 }
