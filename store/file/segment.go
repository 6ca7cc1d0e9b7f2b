package file

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"os"
)

// A segment is a file of frames, each a header of frameHeader bytes and a body:
//
//	uint32 length of the body · uint32 checksum of the length · uint32 checksum of the body
//
// all little-endian. The length has a checksum of its own, so that a damaged
// length is not taken for a torn end, which would lose every frame behind it.
const (
	frameHeader = 12
	// frameBytesMax bounds a body, so that a file that is no segment cannot exhaust memory.
	frameBytesMax = 1 << 30
)

// appendFrame appends a frame around body.
func appendFrame(dst, body []byte) []byte {
	var header [frameHeader]byte
	binary.LittleEndian.PutUint32(header[0:], uint32(len(body)))
	binary.LittleEndian.PutUint32(header[4:], crc32.Checksum(header[0:4], castagnoli))
	binary.LittleEndian.PutUint32(header[8:], crc32.Checksum(body, castagnoli))
	return append(append(dst, header[:]...), body...)
}

// errDamaged is what a frame that does not verify is reported with.
var errDamaged = errors.New("damaged: a checksum does not match")

// scanFrames calls visit for every frame and returns where the last whole one
// ends. A torn end is no error: the header or the body is cut short, or the last
// body does not verify, or nothing but zeros follow.
func scanFrames(data []byte, visit func(offset int64, body []byte) error) (end int64, err error) {
	at := 0
	for len(data)-at >= frameHeader {
		header := data[at : at+frameHeader]
		length := int(binary.LittleEndian.Uint32(header[0:]))
		if allZero(data[at:]) {
			break
		}
		if crc32.Checksum(header[0:4], castagnoli) != binary.LittleEndian.Uint32(header[4:]) || length > frameBytesMax {
			return int64(at), fmt.Errorf("byte %d: %w", at, errDamaged)
		}
		next := at + frameHeader + length
		if next > len(data) {
			break
		}
		body := data[at+frameHeader : next]
		if crc32.Checksum(body, castagnoli) != binary.LittleEndian.Uint32(header[8:]) {
			if next == len(data) {
				break
			}
			return int64(at), fmt.Errorf("byte %d: %w", at, errDamaged)
		}
		if err := visit(int64(at), body); err != nil {
			return int64(at), fmt.Errorf("byte %d: %w", at, err)
		}
		at = next
	}
	return int64(at), nil
}

func allZero(data []byte) bool {
	for _, b := range data {
		if b != 0 {
			return false
		}
	}
	return true
}

// readFrame reads and verifies the frame at an offset.
func readFrame(f *os.File, offset, size int64) ([]byte, error) {
	frame := make([]byte, size)
	if _, err := f.ReadAt(frame, offset); err != nil {
		if errors.Is(err, io.EOF) {
			err = io.ErrUnexpectedEOF
		}
		return nil, err
	}
	var body []byte
	end, err := scanFrames(frame, func(_ int64, b []byte) error {
		body = b
		return nil
	})
	if err != nil || end != size {
		return nil, fmt.Errorf("byte %d: %w", offset, errDamaged)
	}
	return body, nil
}
