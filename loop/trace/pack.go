package trace

import (
	"bytes"
	"errors"
	"io"

	"github.com/klauspost/compress/zstd"
)

// frameBytes is how much text a frame holds before it ends. It is the most that is read beside what was asked for. Larger
// frames make no smaller files: docs/decisions/0035 has the measurements.
const frameBytes = 64 << 10

// packer turns lines into the bytes that a packed file gets for them.
type packer struct {
	encoder *zstd.Encoder
	out     bytes.Buffer
	// open: the file ends within a frame. live: the encoder can go on with that frame. before is open as it was before the
	// last append.
	open, live, before bool
	// text is how much the frame holds.
	text int
}

func newPacker() (*packer, error) {
	encoder, err := newEncoder()
	return &packer{encoder: encoder}, err
}

// newEncoder returns an encoder without goroutines. Its frames have no checksum, since every line has one.
func newEncoder() (*zstd.Encoder, error) {
	return zstd.NewWriter(nil, zstd.WithEncoderLevel(zstd.SpeedFastest), zstd.WithEncoderConcurrency(1), zstd.WithEncoderCRC(false),
		zstd.WithLowerEncoderMem(true), zstd.WithWindowSize(2*frameBytes))
}

// append returns the bytes of text, until the next call, and where in them a frame begins, -1 for nowhere. A frame ends once
// it holds so much text.
func (p *packer) append(text []byte, frame int) (data []byte, begins int, err error) {
	p.before, begins = p.open, -1
	p.out.Reset()
	if !p.live {
		if p.open {
			p.out.Write(frameEnd)
		}
		begins, p.text = p.out.Len(), 0
		p.encoder.Reset(&p.out)
	}
	p.text += len(text)
	_, err = p.encoder.Write(text)
	p.live = p.text < frame || text[len(text)-1] != '\n'
	p.open = p.live
	err = errors.Join(err, p.encoder.Flush()) // also before Close, so that all frames begin alike
	if !p.live {
		err = errors.Join(err, p.encoder.Close())
	}
	return p.out.Bytes(), begins, err
}

// undo says that the bytes returned last are not in the file.
func (p *packer) undo() { p.open, p.live = p.before, false }

// Frames packs a trace that is read once it is complete. It packs in a goroutine of its own, since packing takes about as
// long as rendering.
type Frames struct {
	dst  io.Writer
	text []byte
	full chan []byte
	free chan []byte
	done chan error
}

// NewFrames returns a writer of frames to dst. The same text gives the same bytes, however it is cut into writes.
func NewFrames(dst io.Writer) (*Frames, error) {
	encoder, err := newEncoder()
	if err != nil {
		return nil, err
	}
	f := &Frames{dst: dst, full: make(chan []byte), free: make(chan []byte, framesAhead), done: make(chan error, 1)}
	for range framesAhead {
		f.free <- nil
	}
	go f.pack(encoder)
	return f, nil
}

// framesAhead is how many frames may be filled or packed at a time.
const framesAhead = 3

func (f *Frames) pack(encoder *zstd.Encoder) {
	var out []byte
	var failed error
	for text := range f.full {
		if failed == nil {
			out = encoder.EncodeAll(text, out[:0])
			_, failed = f.dst.Write(out)
		}
		f.free <- text[:0]
	}
	f.done <- failed
}

// Write implements io.Writer. Close returns the error of a write to the file.
func (f *Frames) Write(text []byte) (int, error) {
	for rest := text; len(rest) > 0; {
		if f.text == nil {
			f.text = <-f.free
		}
		n := min(len(rest), frameBytes-len(f.text))
		f.text = append(f.text, rest[:n]...)
		rest = rest[n:]
		if len(f.text) == frameBytes {
			f.full <- f.text
			f.text = nil
		}
	}
	return len(text), nil
}

// Close writes what is left, and returns the first error of all writes. It does not close dst.
func (f *Frames) Close() error {
	if len(f.text) > 0 {
		f.full <- f.text
	}
	close(f.full)
	return <-f.done
}
