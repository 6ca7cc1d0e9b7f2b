package wandb

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// The file is a header and blocks of 32 KiB; a block holds chunks, each a checksum, a length, a kind and
// data. A record is one chunk or several; no chunk crosses a block.
const (
	blockBytes  = 32768
	headerBytes = 7 // ":W&B", 0xBEE1, version
	chunkBytes  = 7 // checksum, length, kind
)

// RecordMax is the longest record that is read, in bytes; a longer one is left out.
const RecordMax = 64 << 20

// The kinds of chunks.
const (
	chunkFull = iota + 1
	chunkFirst
	chunkMiddle
	chunkLast
)

// Errors of single records: reading goes on after them.
var (
	// ErrDamaged is a record of which the checksum or the form is wrong; it is left out.
	ErrDamaged = errors.New("a record is damaged")
	// ErrTorn is a record at the end of a file that is still written, or whose writer was killed.
	ErrTorn = errors.New("the last record is cut off")
	// ErrLong is a record beyond RecordMax.
	ErrLong = fmt.Errorf("a record is longer than %d MiB", RecordMax>>20)
	// ErrMany is a record of more than ItemsMax items.
	ErrMany = fmt.Errorf("a record has more than %d items", ItemsMax)
)

// frames reads records' bytes.
type frames struct {
	from   *bufio.Reader
	at     int64 // bytes read of the file
	record []byte
	begun  bool // within a record
	long   bool // of one that is too long
	skip   bool // to the next block, after damage
	// again is the first chunk of a record that began within another: it is read once more.
	againKind byte
	again     []byte
}

// newFrames checks a file's header.
func newFrames(from io.Reader) (*frames, error) {
	f := &frames{from: bufio.NewReaderSize(from, 4*blockBytes)}
	var header [headerBytes]byte
	n, err := io.ReadFull(f.from, header[:])
	f.at = int64(n)
	if err != nil {
		return nil, fmt.Errorf("a run file of W&B begins with %d bytes of header, here are %d", headerBytes, n)
	}
	if string(header[:4]) != ":W&B" || binary.LittleEndian.Uint16(header[4:6]) != 0xBEE1 {
		return nil, fmt.Errorf("a run file of W&B begins with %q, here is %q", ":W&B\xe1\xbe", header[:6])
	}
	if header[6] != 0 {
		return nil, fmt.Errorf("this run file of W&B has format %d; format 0 is known", header[6])
	}
	return f, nil
}

// next returns a record's bytes, valid until the next call; io.EOF at the end. After
// ErrDamaged and ErrLong it can be called again.
func (f *frames) next() ([]byte, error) {
	f.record, f.begun, f.long = f.record[:0], false, false
	for {
		kind, data, err := f.chunk()
		if err != nil {
			return nil, err
		}
		begins := kind == chunkFull || kind == chunkFirst
		switch {
		case begins && f.begun: // its writer was killed, and another went on
			f.againKind, f.again = kind, append([]byte(nil), data...)
			return nil, ErrDamaged
		case !begins && !f.begun:
			return nil, ErrDamaged
		case kind == chunkFull:
			return data, nil
		}
		f.begun = true
		if len(f.record)+len(data) > RecordMax {
			f.long, f.record = true, f.record[:0]
		}
		if !f.long {
			f.record = append(f.record, data...)
		}
		if kind == chunkLast && f.long {
			return nil, ErrLong
		}
		if kind == chunkLast {
			return f.record, nil
		}
	}
}

// chunk reads one chunk. The data are valid until the next call.
func (f *frames) chunk() (kind byte, data []byte, err error) {
	if f.againKind != 0 {
		kind, data, f.againKind, f.again = f.againKind, f.again, 0, nil
		return kind, data, nil
	}
	left := int(blockBytes - f.at%blockBytes)
	if f.skip || left < chunkBytes {
		f.skip = false
		if err := f.discard(left); err != nil {
			return 0, nil, f.ended(err)
		}
		left = blockBytes
	}
	head, err := f.from.Peek(chunkBytes)
	if err != nil {
		if len(head) == 0 {
			return 0, nil, f.ended(err)
		}
		f.discardRest()
		return 0, nil, ErrTorn
	}
	length, kind := int(binary.LittleEndian.Uint16(head[4:6])), head[6]
	if kind < chunkFull || kind > chunkLast || chunkBytes+length > left {
		f.skip = true
		return 0, nil, ErrDamaged
	}
	whole, err := f.from.Peek(chunkBytes + length)
	if err != nil {
		f.discardRest()
		return 0, nil, ErrTorn
	}
	want := binary.LittleEndian.Uint32(whole)
	if crc32.ChecksumIEEE(whole[6:]) != want { // over the kind and the data
		f.skip = true
		return 0, nil, ErrDamaged
	}
	if err := f.discard(chunkBytes + length); err != nil {
		return 0, nil, err
	}
	return kind, whole[chunkBytes:], nil // discarding what was peeked leaves it in the buffer
}

// ended is the end of the file: within a record it is torn.
func (f *frames) ended(err error) error {
	if errors.Is(err, io.EOF) && f.begun {
		f.begun = false
		return ErrTorn
	}
	return err
}

func (f *frames) discard(n int) error {
	got, err := f.from.Discard(n)
	f.at += int64(got)
	return err
}

// discardRest passes over a torn end.
func (f *frames) discardRest() {
	for {
		n, err := f.from.Discard(blockBytes)
		f.at += int64(n)
		if err != nil {
			return
		}
	}
}
