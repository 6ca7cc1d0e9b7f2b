package trace

import (
	"bufio"
	"bytes"
	"fmt"
	"hash/crc32"
	"io"
	"strconv"
)

// frameBegins is what every frame of ours begins with: no checksum, no length, a window of two frames.
var frameBegins = append(bytes.Clone(frameMagic), 0, 0x38)

// tornBytesMax bounds what is looked at twice. A block that reaches beyond the file begins closer to its end than that; more is
// a long append, or zeros.
const tornBytesMax = 1 << 20

// checkTorn returns an error if a file of so many bytes is damaged behind the log's end, and not torn there. A byte that
// changes in the header of a block may have the block reach beyond the file. That looks like a write that was cut short,
// and cutting it off would lose lines that were appended.
func (l *Log) checkTorn(size int64) error {
	from := l.end.Offset
	if l.pack.open {
		from = l.near.Offset
	}
	if size-l.end.Offset > tornBytesMax {
		return nil
	}
	data := make([]byte, size-from)
	if _, err := l.file.ReadAt(data, from); err != nil {
		return err
	}
	at := int(l.end.Offset - from)
	if !l.pack.open || bytes.HasPrefix(data[at:], frameEnd) {
		if l.pack.open {
			at += len(frameEnd)
		}
		n := min(len(frameBegins), len(data)-at)
		if !bytes.Equal(data[at:at+n], frameBegins[:n]) && len(bytes.Trim(data[at:], "\x00")) > 0 {
			return fmt.Errorf("damaged: no frame of this program begins at byte %d of the file", from+int64(at))
		}
		at += n
	}
	for i := at; i < at+blockHeader && i < len(data); i++ {
		was := data[i]
		for b := range 256 {
			if data[i] = byte(b); data[i] != was && holdsBlocks(data[at:]) && holdsLines(data) {
				return fmt.Errorf("damaged: the block at byte %d of the file reaches beyond its end, though whole blocks follow", from+int64(at))
			}
		}
		data[i] = was
	}
	return nil
}

// holdsBlocks reports whether data is blocks of a frame, and frames, up to its end.
func holdsBlocks(data []byte) bool {
	f := &frames{src: bufio.NewReader(bytes.NewReader(data)), inside: true}
	for {
		err := f.next()
		switch {
		case err != nil:
			return err == io.EOF
		case f.cut:
			return true
		}
		if _, err := io.CopyN(io.Discard, f.src, f.left); err != nil {
			return false
		}
	}
}

// holdsLines reports whether frames hold whole lines, each of which follows from the one before.
func holdsLines(data []byte) bool {
	packed := NewText(bytes.NewReader(data))
	if packed.unpack(0) != nil {
		return false
	}
	text, err := io.ReadAll(packed)
	if err != nil || !bytes.HasSuffix(text, newline) {
		return false
	}
	var sum uint32
	first := true
	for line := range bytes.Lines(text) {
		body := len(line) - 1 - crcTail
		if body < 1 || !bytes.HasPrefix(line[body:], []byte(crcKey)) {
			return false
		}
		says, err := strconv.ParseUint(string(line[body+len(crcKey):][:8]), 16, 32)
		if err != nil || !first && crc32.Update(sum, castagnoli, line[:body]) != uint32(says) {
			return false
		}
		sum, first = uint32(says), false
	}
	return true
}
