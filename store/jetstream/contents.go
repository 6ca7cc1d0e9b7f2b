package jetstream

import (
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

const (
	// headerPayload says what a message of the payload stream holds: see contents.
	headerPayload = "Headway-Payload"
	// headerSize is what the server puts in place of a body that was not asked for.
	headerSize = "Nats-Msg-Size"
)

// contents is what a message of the payload stream holds: several small payloads one after
// the other, or a chunk of a large one. As text it is numbers between spaces: epoch, chunk,
// chunks, and of each payload group, sample, attempt, size and checksum.
type contents struct {
	epoch         uint64
	chunk, chunks int
	items         []item
}

// item is one payload in a message.
type item struct {
	id           port.RolloutID
	offset, size int
	sum          uint32
}

func (c contents) String() string {
	b := make([]byte, 0, 32+48*len(c.items))
	b = strconv.AppendUint(b, c.epoch, 10)
	number := func(v int64) {
		b = append(b, ' ')
		b = strconv.AppendInt(b, v, 10)
	}
	number(int64(c.chunk))
	number(int64(c.chunks))
	for _, i := range c.items {
		number(int64(i.id.Group))
		number(int64(i.id.Sample))
		number(int64(i.id.Attempt))
		number(int64(i.size))
		number(int64(i.sum))
	}
	return string(b)
}

func parseContents(text string) (contents, error) {
	fields := strings.Fields(text)
	var errs []error
	number := func(i, bits int) int64 {
		v, err := strconv.ParseInt(fields[i], 10, bits)
		if err != nil {
			errs = append(errs, err)
		}
		return v
	}
	if len(fields) < 8 || len(fields)%5 != 3 {
		return contents{}, fmt.Errorf("the header %q is not one of payloads", text)
	}
	c := contents{epoch: uint64(number(0, 64)), chunk: int(number(1, 32)), chunks: int(number(2, 32))}
	offset := 0
	for i := 3; i < len(fields); i += 5 {
		x := item{id: port.RolloutID{Group: loop.GroupID(number(i, 64)), Sample: int32(number(i+1, 32)), Attempt: int32(number(i+2, 32))},
			offset: offset, size: int(number(i+3, 64)), sum: uint32(number(i+4, 64))}
		if x.size < 0 || x.size > math.MaxInt-offset {
			return contents{}, fmt.Errorf("the header %q is not one of payloads: one of %d bytes", text, x.size)
		}
		offset += x.size
		c.items = append(c.items, x)
	}
	if c.chunks < 1 || c.chunk < 0 || c.chunk >= c.chunks || c.chunks > 1 && len(c.items) > 1 {
		errs = append(errs, errors.New("no such chunk"))
	}
	if err := errors.Join(errs...); err != nil {
		return contents{}, fmt.Errorf("the header %q is not one of payloads: %w", text, err)
	}
	return c, nil
}
