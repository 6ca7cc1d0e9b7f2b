package agent

import (
	"bufio"
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
)

// A message is a header frame in JSON, data frames of any bytes, and an end frame. A frame is one
// byte for its kind, four for its length (big endian), and so many bytes.
const (
	kindHeader = 'h'
	kindData   = 'd'
	kindEnd    = 'e'

	maxHeader = 2 << 20   // the arguments and the environment as they grow in JSON, and room
	maxData   = 128 << 10 // of one frame; a message has as many as it needs
)

// errGarbled is wrapped by the error of a frame that is none.
var errGarbled = errors.New("garbled")

// wire reads and writes messages. A reader and a writer may use it at once, but no two of either.
type wire struct {
	r   *bufio.Reader
	w   *bufio.Writer
	off []byte // of the data frame that is being read
}

func newWire(r io.Reader, w io.Writer) *wire {
	return &wire{r: bufio.NewReaderSize(r, 16<<10), w: bufio.NewWriterSize(w, 16<<10)}
}

func (w *wire) frame(kind byte, payload []byte) error {
	var head [5]byte
	head[0] = kind
	binary.BigEndian.PutUint32(head[1:], uint32(len(payload)))
	if _, err := w.w.Write(head[:]); err != nil {
		return err
	}
	_, err := w.w.Write(payload)
	return err
}

// writeHeader begins a message.
func (w *wire) writeHeader(header any) error {
	text, err := json.Marshal(header)
	if err != nil {
		return err
	}
	if len(text) > maxHeader {
		return fmt.Errorf("a header of %d bytes is longer than %d", len(text), maxHeader)
	}
	return w.frame(kindHeader, text)
}

// Write adds data to the message that was begun.
func (w *wire) Write(data []byte) (int, error) {
	for rest := data; len(rest) > 0; {
		n := min(len(rest), maxData)
		if err := w.frame(kindData, rest[:n]); err != nil {
			return 0, err
		}
		rest = rest[n:]
	}
	return len(data), nil
}

// end ends the message and sends it.
func (w *wire) end() error {
	if err := w.frame(kindEnd, nil); err != nil {
		return err
	}
	return w.w.Flush()
}

// send writes a whole message.
func (w *wire) send(header any, data ...[]byte) error {
	if err := w.writeHeader(header); err != nil {
		return err
	}
	for _, d := range data {
		if _, err := w.Write(d); err != nil {
			return err
		}
	}
	return w.end()
}

// next reads a frame's head.
func (w *wire) next() (kind byte, size int, err error) {
	var head [5]byte
	if _, err := io.ReadFull(w.r, head[:]); err != nil {
		return 0, 0, err
	}
	size64 := int64(binary.BigEndian.Uint32(head[1:]))
	limit := int64(0)
	switch head[0] {
	case kindHeader:
		limit = maxHeader
	case kindData:
		limit = maxData
	case kindEnd:
	default:
		return 0, 0, fmt.Errorf("%w: a frame of kind %q", errGarbled, head[0])
	}
	if size64 > limit {
		return 0, 0, fmt.Errorf("%w: a frame of %d bytes where %d are the most", errGarbled, size64, limit)
	}
	return head[0], int(size64), nil
}

// readHeader reads a message's header into what it is given.
func (w *wire) readHeader(header any) error {
	kind, size, err := w.next()
	if err != nil {
		return err
	}
	if kind != kindHeader {
		return fmt.Errorf("%w: a frame of kind %q where a header begins a message", errGarbled, kind)
	}
	text := make([]byte, size)
	if _, err := io.ReadFull(w.r, text); err != nil {
		return short(err)
	}
	if err := json.Unmarshal(text, header); err != nil {
		return fmt.Errorf("%w: a header that is no JSON of this version: %v", errGarbled, err)
	}
	return nil
}

// readData returns the next data of the message, valid until the next call, and nil at its end.
func (w *wire) readData() ([]byte, error) {
	kind, size, err := w.next()
	switch {
	case err != nil:
		return nil, short(err)
	case kind == kindEnd:
		return nil, nil
	case kind != kindData || size == 0:
		return nil, fmt.Errorf("%w: a frame of kind %q and %d bytes within a message", errGarbled, kind, size)
	}
	if cap(w.off) < size {
		w.off = make([]byte, size)
	}
	w.off = w.off[:size]
	if _, err := io.ReadFull(w.r, w.off); err != nil {
		return nil, short(err)
	}
	return w.off, nil
}

// readAll reads a message's data, at most limit bytes of it. It takes memory for what has come, not
// for what was said to come.
func (w *wire) readAll(limit int64) ([]byte, error) {
	var all []byte
	for {
		data, err := w.readData()
		if err != nil || data == nil {
			return all, err
		}
		if int64(len(all))+int64(len(data)) > limit {
			return nil, fmt.Errorf("%w: more than the %d bytes that were asked for", errGarbled, limit)
		}
		all = append(all, data...)
	}
}

// short turns the end of the stream within a message into an error that is not its clean end.
func short(err error) error {
	if errors.Is(err, io.EOF) {
		return io.ErrUnexpectedEOF
	}
	return err
}
