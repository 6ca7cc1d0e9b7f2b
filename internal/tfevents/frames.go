package tfevents

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// A frame is a length, its checksum, data, their checksum; checksums are CRC-32C, rotated and shifted so
// that a checksum over data that hold checksums stays a good one.
const (
	lengthBytes   = 8
	checksumBytes = 4
	headBytes     = lengthBytes + checksumBytes
)

// EventMax is the longest event that is read, in bytes; a longer one, as of images, is passed over.
const EventMax = 16 << 20

// Errors of single events.
var (
	// ErrTorn is an event at the end of a file that is still written, or whose writer was killed.
	ErrTorn = errors.New("the last event is cut off")
	// ErrDamaged is an event of which the data's checksum or the form is wrong; reading goes on after it.
	ErrDamaged = errors.New("an event is damaged")
	// ErrLost is a length with a wrong checksum: where the next event begins is not known.
	ErrLost = errors.New("an event's length is damaged: the rest cannot be read")
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// checksum is the masked CRC-32C.
func checksum(data []byte) uint32 {
	c := crc32.Checksum(data, castagnoli)
	return (c>>15 | c<<17) + 0xa282ead8
}

// appendFrame puts data into a frame.
func appendFrame(to, data []byte) []byte {
	start := len(to)
	to = binary.LittleEndian.AppendUint64(to, uint64(len(data)))
	to = binary.LittleEndian.AppendUint32(to, checksum(to[start:]))
	to = append(to, data...)
	return binary.LittleEndian.AppendUint32(to, checksum(data))
}

// nextFrame reads a frame's data into a buffer. It returns how much of the file it has read, and
// ErrTorn, ErrDamaged, ErrLost, or io.EOF where the file ends between two frames.
func nextFrame(from *bufio.Reader, buffer []byte) (data []byte, read int64, err error) {
	var head [headBytes]byte
	n, err := io.ReadFull(from, head[:])
	read = int64(n)
	switch {
	case errors.Is(err, io.EOF):
		return buffer[:0], read, io.EOF
	case errors.Is(err, io.ErrUnexpectedEOF):
		return buffer[:0], read, ErrTorn
	case err != nil:
		return buffer[:0], read, err
	}
	if checksum(head[:lengthBytes]) != binary.LittleEndian.Uint32(head[lengthBytes:]) {
		return buffer[:0], read, ErrLost
	}
	length := binary.LittleEndian.Uint64(head[:])
	if length > EventMax {
		return passOver(from, buffer, read, length)
	}
	return frameData(from, buffer, read, int(length))
}

func frameData(from *bufio.Reader, buffer []byte, read int64, length int) ([]byte, int64, error) {
	whole := length + checksumBytes
	if cap(buffer) < whole {
		buffer = make([]byte, whole)
	}
	buffer = buffer[:whole]
	n, err := io.ReadFull(from, buffer)
	read += int64(n)
	if errors.Is(err, io.EOF) || errors.Is(err, io.ErrUnexpectedEOF) {
		return buffer[:0], read, ErrTorn
	}
	if err != nil {
		return buffer[:0], read, err
	}
	if checksum(buffer[:length]) != binary.LittleEndian.Uint32(buffer[length:]) {
		return buffer[:0], read, ErrDamaged
	}
	return buffer[:length], read, nil
}

// passOver leaves a frame out that is too long to be one of scalars.
func passOver(from *bufio.Reader, buffer []byte, read int64, length uint64) ([]byte, int64, error) {
	if length > 1<<62 {
		return buffer[:0], read, ErrLost
	}
	n, err := io.CopyN(io.Discard, from, int64(length)+checksumBytes)
	read += n
	if errors.Is(err, io.EOF) {
		return buffer[:0], read, ErrTorn
	}
	if err != nil {
		return buffer[:0], read, err
	}
	return buffer[:0], read, fmt.Errorf("%w: it is longer than %d MiB", ErrDamaged, EventMax>>20)
}
