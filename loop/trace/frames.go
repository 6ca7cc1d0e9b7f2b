package trace

import (
	"bufio"
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"github.com/klauspost/compress/zstd"
)

// A packed trace is the same lines in zstd frames, one after another. An append ends a block, so that a reader gets its
// lines at once; a frame ends once it holds frameBytes of text. Frames refer to nothing outside themselves: reading
// begins at any of them, and standard tools read the file.

const (
	// blockBytesMax is the most that the format allows in a block, packed or not.
	blockBytesMax = 128 << 10
	// windowBytesMax bounds the memory that a file of somebody else's can ask for; the standard tool has the same bound.
	windowBytesMax = 128 << 20
	blockHeader    = 3
)

var (
	frameMagic = []byte{0x28, 0xb5, 0x2f, 0xfd}
	// frameEnd is an empty last block: it ends a frame that its writer did not live to end.
	frameEnd = []byte{1, 0, 0}
)

// Text reads the text of a trace, which is plain or packed: it looks at how the source begins. A source
// may end with a frame that has no end, since the file of a run that goes on does. The middle of a block is errTorn.
type Text struct {
	src     *bufio.Reader
	frames  *frames // nil of plain text
	decoder *zstd.Decoder
	began   bool
	err     error
}

// NewText returns a reader of the text of src. It reads no byte yet.
func NewText(src io.Reader) *Text {
	return &Text{src: bufio.NewReaderSize(src, 1<<16)}
}

// Read implements io.Reader. Of a packed trace it returns the text of one block, or a part of it.
func (t *Text) Read(p []byte) (int, error) {
	if !t.began {
		if err := t.begin(); err != nil {
			return 0, err
		}
	}
	switch {
	case t.frames == nil:
		return t.src.Read(p)
	case t.err != nil:
		return 0, t.err
	}
	n, err := t.decoder.Read(p)
	if err != nil {
		t.err = t.why(err)
	}
	if n > 0 {
		return n, nil
	}
	return 0, t.err
}

// begin finds out what the source holds.
func (t *Text) begin() error {
	t.began = true
	begins, _ := t.src.Peek(len(frameMagic)) // an error comes again
	if len(begins) == 0 || !bytes.HasPrefix(frameMagic, begins) {
		return nil
	}
	return t.unpack(0)
}

// unpack has the source read as frames. So many bytes of its file are before it.
func (t *Text) unpack(before int64) (err error) {
	t.began, t.frames = true, &frames{src: t.src, at: before, frame: before}
	// One goroutine: it decodes a block when it is asked, and needs no Close.
	t.decoder, err = zstd.NewReader(t.frames, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(windowBytesMax))
	return err
}

// why is the error that the text ends with.
func (t *Text) why(err error) error {
	switch {
	case t.frames.err != nil:
		return t.frames.err
	case errors.Is(err, io.EOF):
		return io.EOF
	}
	return t.in(fmt.Errorf("damaged: %w", err))
}

// in adds to an error where the packed text is that it is about.
func (t *Text) in(err error) error {
	if t.frames == nil {
		return err
	}
	return fmt.Errorf("%w (in the zstd frame at byte %d of the file)", err, t.frames.frame)
}

// frames hands a decoder the frames of a source piece by piece. So it knows where each begins, and what the end of the
// source cuts short.
type frames struct {
	src *bufio.Reader
	// at is the place in the file up to which it has been handed over, frame where the newest frame begins.
	at, frame int64
	// inside: the end of the frame is still to come. summed: four bytes of a checksum follow that end.
	inside, summed bool
	// left is how much of the current piece is still to be handed over.
	left int64
	// end is what is left to hand over of an end that the source lacks, and cut says that it lacks one.
	end []byte
	cut bool
	err error // which ended the reading; nil at the end of the source
}

// Read implements io.Reader.
func (f *frames) Read(p []byte) (int, error) {
	if f.left == 0 && len(f.end) == 0 {
		if err := f.next(); err != nil {
			if err != io.EOF {
				f.err = err
			}
			return 0, err
		}
	}
	if len(f.end) > 0 {
		n := copy(p, f.end)
		f.end = f.end[n:]
		return n, nil
	}
	n, err := f.src.Read(p[:min(int64(len(p)), f.left)])
	f.at += int64(n)
	f.left -= int64(n)
	if err == io.EOF {
		err = errTorn
	}
	if n > 0 {
		err = nil
	}
	if err != nil {
		f.err = err
	}
	return n, err
}

// next measures the next piece: what a frame begins with, or a block.
func (f *frames) next() error {
	if f.inside {
		return f.block()
	}
	f.frame = f.at
	begins, err := f.peek(len(frameMagic))
	switch {
	case err != nil:
		return err
	case bytes.Equal(begins, frameMagic):
		return f.header()
	case binary.LittleEndian.Uint32(begins)&^0xf == 0x184d2a50: // a frame for tools, which a decoder skips
		if begins, err = f.peek(8); err == nil {
			f.left = 8 + int64(binary.LittleEndian.Uint32(begins[4:]))
		}
		return err
	}
	return f.unknown("no zstd frame begins here")
}

// header measures what a frame begins with.
func (f *frames) header() error {
	begins, err := f.peek(len(frameMagic) + 1)
	if err != nil {
		return err
	}
	flags := begins[len(frameMagic)]
	size := int64(len(frameMagic)) + 1 + []int64{0, 1, 2, 4}[flags&3] + []int64{0, 2, 4, 8}[flags>>6]
	switch single := flags>>5&1 == 1; {
	case !single:
		size++ // the window
	case flags>>6 == 0:
		size++ // the length of the text, in a byte
	}
	f.left, f.inside, f.summed = size, true, flags>>2&1 == 1
	return nil
}

// block measures a block. Where the source ends before it, the frame is given an end.
func (f *frames) block() error {
	begins, err := f.peek(blockHeader)
	if err == io.EOF && !f.summed {
		f.end, f.cut, f.inside = frameEnd, true, false
		return nil
	}
	if err == io.EOF {
		err = errTorn
	}
	if err != nil {
		return err
	}
	header := uint32(begins[0]) | uint32(begins[1])<<8 | uint32(begins[2])<<16
	last, kind, size := header&1 == 1, header>>1&3, int64(header>>3)
	switch {
	case header == 0, size > blockBytesMax, kind == 3:
		return f.unknown("no zstd block begins here")
	case kind == 1: // one byte, so many times
		size = 1
	}
	f.left = blockHeader + size
	if last {
		f.inside = false
		if f.summed {
			f.left += 4
		}
	}
	return nil
}

// peek returns the next n bytes. It is io.EOF where there is none, errTorn where there are fewer.
func (f *frames) peek(n int) ([]byte, error) {
	begins, err := f.src.Peek(n)
	switch {
	case err == nil:
		return begins, nil
	case err == io.EOF && len(begins) > 0 && len(begins) < n:
		return nil, errTorn
	}
	return nil, err
}

// unknown is the error of bytes that nothing can begin with. After a loss of power a file may have its length and not its
// content: zeros up to the end are a torn end.
func (f *frames) unknown(what string) error {
	at := f.at
	for {
		b, err := f.src.ReadByte()
		switch {
		case err == io.EOF:
			return errTorn
		case err != nil:
			return err
		case b != 0:
			return fmt.Errorf("damaged: %s, at byte %d of the file", what, at)
		}
	}
}
