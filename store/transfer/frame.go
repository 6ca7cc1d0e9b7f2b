package transfer

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
)

// ChunkBytes is the size of the piece that travels, is checked and is passed on as one. It is large
// enough that a hop costs little beside the bytes, small enough that a chain fills quickly.
const ChunkBytes = 4 << 20

// headBytes precede every chunk: its index, length and checksum, little-endian uint32s.
const headBytes = 12

// A chunk's checksum is made where the version was published and travels with it, so
// that a receiver checks what the origin had and not what the last hop says. CRC-32C
// has instructions of its own: SHA-256, which the manifest has, would be slower than a
// fast network.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// ErrDamaged is wrapped by the error of a chunk that is not what the origin sent.
var ErrDamaged = errors.New("the chunk is damaged")

// head is what precedes a chunk.
type head struct {
	index, length, sum uint32
}

func (h head) append(dst []byte) []byte {
	dst = binary.LittleEndian.AppendUint32(dst, h.index)
	dst = binary.LittleEndian.AppendUint32(dst, h.length)
	return binary.LittleEndian.AppendUint32(dst, h.sum)
}

// readChunk reads the chunk of an index into buffer, which is as long as it, and checks it.
func readChunk(r io.Reader, index uint32, buffer []byte) (sum uint32, err error) {
	var raw [headBytes]byte
	if _, err := io.ReadFull(r, raw[:]); err != nil {
		return 0, fmt.Errorf("transfer: chunk %d: %w", index, err)
	}
	h := head{binary.LittleEndian.Uint32(raw[:]), binary.LittleEndian.Uint32(raw[4:]), binary.LittleEndian.Uint32(raw[8:])}
	if h.index != index || int(h.length) != len(buffer) {
		return 0, fmt.Errorf("transfer: found chunk %d of %d bytes, want chunk %d of %d: %w", h.index, h.length, index, len(buffer), ErrDamaged)
	}
	if _, err := io.ReadFull(r, buffer); err != nil {
		return 0, fmt.Errorf("transfer: chunk %d: %w", index, err)
	}
	if sum := crc32.Checksum(buffer, castagnoli); sum != h.sum {
		return 0, fmt.Errorf("transfer: chunk %d has the checksum %08x, its origin had %08x: %w", index, sum, h.sum, ErrDamaged)
	}
	return h.sum, nil
}
