package rows

import (
	"context"
	"sync"

	"golang.org/x/sync/semaphore"
)

// RoomBytes bounds the rows that are in memory between the connections of all engines and who keeps them.
const RoomBytes = 128 << 20

// MaskBytes bounds the sampling masks of all streams. They come with every token and stay until their stream ends. So
// they have a bound of their own, as rows would else wait for streams to end.
const MaskBytes = 128 << 20

var room, maskRoom = semaphore.NewWeighted(RoomBytes), semaphore.NewWeighted(MaskBytes)

// spare are buffers that were given back.
var spare sync.Pool

// memory is a buffer that counts among RoomBytes.
type memory struct {
	data []byte
	held int64 // of room
}

// reserve makes an empty buffer of a size, or says why it does not. It waits until there is room for it, if it may.
func (m *memory) reserve(ctx context.Context, size int, wait bool) Reason {
	switch {
	case size > RoomBytes:
		return NoRoom
	case room.TryAcquire(int64(size)):
	case !wait:
		return NoRoom
	case room.Acquire(ctx, int64(size)) != nil:
		return Cancelled
	}
	m.held, m.data = int64(size), buffer(size)
	return ""
}

// grow makes room for more bytes behind the data, of at most limit in all. It never waits: a stream that holds memory
// and waits for more could wait for another one that does the same.
func (m *memory) grow(more, limit int) bool {
	need := len(m.data) + more
	if int64(need) <= m.held {
		return true
	}
	size := int64(min(max(2*need, 4<<10), max(limit, need)))
	if size > RoomBytes || !room.TryAcquire(size-m.held) {
		return false
	}
	longer := append(buffer(int(size)), m.data...)
	giveBack(m.data)
	m.data, m.held = longer, size
	return true
}

// Release gives the memory back.
func (m *memory) Release() {
	if m.held > 0 {
		room.Release(m.held)
	}
	giveBack(m.data)
	m.data, m.held = nil, 0
}

// buffer returns an empty one that was given back, if it fits, or a new one.
func buffer(size int) []byte {
	if old, ok := spare.Get().(*[]byte); ok {
		if cap(*old) >= size && cap(*old)/2 <= size {
			return (*old)[:0]
		}
		spare.Put(old)
	}
	return make([]byte, 0, size)
}

func giveBack(data []byte) {
	if cap(data) >= blockBytes {
		data = data[:0]
		spare.Put(&data)
	}
}
