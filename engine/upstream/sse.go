package upstream

import (
	"bytes"
	"errors"
	"fmt"
	"io"

	"github.com/headway-rl/headway/loop/channel"
)

// Bounds of the events of a stream: a buffer's first size, and the longest event that is read of any.
// A request allows less: what an event has beside tokens, and the most that it has for each token.
const (
	eventBufferBytes  = 8 << 10
	eventBytesMax     = 64 << 20
	eventBytesSpare   = 256 << 10
	eventBytesSampled = 2 << 10
	eventBytesPrompt  = 256
	eventBytesMasked  = 16
)

// maskMax is the longest mask that an event's length allows for.
const maskMax = 8 << 10

// errEventTooLong is wrapped by what an event beyond its limit ends a stream with.
var errEventTooLong = fmt.Errorf("%w: an event of the stream is longer than its request allows", ErrLied)

// eventLimit is how long an event can be that answers a request, all tokens repeated in it.
func eventLimit(r *Request) int {
	sampled := min(max(r.MaxTokens, 0), eventBytesMax/eventBytesSampled)
	prompt := min(len(r.Prompt), eventBytesMax/eventBytesPrompt)
	each := eventBytesSampled
	if r.Asks(channel.SamplingMask) {
		each += eventBytesMasked * min(r.Sampling.TopK, maskMax)
	}
	return min(eventBytesMax, eventBytesSpare+each*sampled+eventBytesPrompt*prompt)
}

// byteOrderMark may stand before the first event of a stream, by the standard, and means nothing.
const byteOrderMark = "\uFEFF"

// EventReader reads server-sent events: their data, nothing else. Lines end with LF or CRLF. It
// allocates only to grow its buffers.
type EventReader struct {
	from       io.Reader
	limit      int // of an event and of a line, in bytes
	buffer     []byte
	begin, end int   // what is in the buffer and not read yet
	err        error // of from, once what came before it has been read
	data       []byte
	begun      bool  // the first line has been read
	strange    error // stands for the first line that belongs to no event
}

// NewEventReader returns a reader of the events in the body of a request's reply. An event that is
// longer than the request allows is an error that wraps [ErrLied].
func NewEventReader(body io.Reader, of *Request) *EventReader {
	return &EventReader{from: body, limit: eventLimit(of), buffer: make([]byte, eventBufferBytes)}
}

// Next returns the data of the next event that has any, its lines joined by LF. It is valid until the
// next call. At the end it returns io.EOF, or io.ErrUnexpectedEOF where the stream breaks off inside
// an event. Where nothing in it was an event, it returns an error that quotes the stream. A line that
// cannot be a field is an error at once: the events after it must not be read without its own.
func (r *EventReader) Next() ([]byte, error) {
	r.data = r.data[:0]
	some := false
	for {
		line, err := r.line()
		if !r.begun {
			r.begun = true
			line = bytes.TrimPrefix(line, []byte(byteOrderMark))
		}
		if err != nil {
			return nil, r.ended(err, some || len(line) > 0)
		}
		if len(line) == 0 {
			if len(r.data) > 0 {
				return r.data, nil
			}
			some = false
			continue
		}
		value, ok := bytes.CutPrefix(line, []byte("data:"))
		if !ok {
			if err := r.other(line); err != nil {
				return nil, err
			}
			continue
		}
		if len(value) > 0 && value[0] == ' ' {
			value = value[1:]
		}
		if len(r.data)+len(value) >= r.limit {
			return nil, r.tooLong()
		}
		if some {
			r.data = append(r.data, '\n')
		}
		r.data = append(r.data, value...)
		some = true
	}
}

// Arrived reports whether the end of another event has been read already, so that Next does not wait.
func (r *EventReader) Arrived() bool {
	window := r.buffer[r.begin:r.end]
	return bytes.Contains(window, []byte("\n\n")) || bytes.Contains(window, []byte("\n\r\n"))
}

// tooLong is the error of an event beyond the limit.
func (r *EventReader) tooLong() error { return fmt.Errorf("%w: %d bytes", errEventTooLong, r.limit) }

// other looks at a line that is not data. llama-server calls a field error that others put into data.
func (r *EventReader) other(line []byte) error {
	if value, ok := bytes.CutPrefix(line, []byte("error:")); ok {
		return fmt.Errorf("the stream says: %.200s", bytes.TrimSpace(value))
	}
	name, _, _ := bytes.Cut(line, []byte(":"))
	switch string(name) {
	case "", "event", "id", "retry", "data":
		return nil
	}
	if r.strange == nil {
		r.strange = Excerpt(line)
	}
	if !isFieldName(name) {
		return r.noEvents()
	}
	return nil
}

// isFieldName reports whether a field can be called so: the standard ignores those that it does not
// know. An object, a page or data behind a space or a mark is none, but something that went wrong.
func isFieldName(name []byte) bool {
	for _, c := range name {
		letter := c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z'
		if !letter && (c < '0' || c > '9') && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// noEvents is the error of a stream in which something stands that belongs to no event.
func (r *EventReader) noEvents() error {
	return fmt.Errorf("the reply is no stream of events, it has a line of %w: %w", r.strange, io.ErrUnexpectedEOF)
}

// ended makes the error of a stream that ended, inside an event or between two.
func (r *EventReader) ended(err error, inside bool) error {
	switch {
	case !errors.Is(err, io.EOF):
		return err
	case r.strange != nil:
		return r.noEvents()
	case inside:
		return io.ErrUnexpectedEOF
	}
	return io.EOF
}

// line returns the next line without its end, valid until the next call; at the end what is left
// and the error.
func (r *EventReader) line() ([]byte, error) {
	searched := 0
	for {
		window := r.buffer[r.begin:r.end]
		if at := bytes.IndexByte(window[searched:], '\n'); at >= 0 {
			line := window[:searched+at]
			r.begin += searched + at + 1
			if n := len(line); n > 0 && line[n-1] == '\r' {
				line = line[:n-1]
			}
			return line, nil
		}
		searched = len(window)
		if r.err != nil {
			r.begin = r.end
			return window, r.err
		}
		if err := r.fill(); err != nil {
			return nil, err
		}
	}
}

// fill reads more into the buffer, which it makes longer if a line fills it.
func (r *EventReader) fill() error {
	if r.begin > 0 {
		copy(r.buffer, r.buffer[r.begin:r.end])
		r.begin, r.end = 0, r.end-r.begin
	}
	if r.end == len(r.buffer) {
		if r.end >= r.limit {
			return r.tooLong()
		}
		longer := make([]byte, min(2*r.end, r.limit))
		copy(longer, r.buffer)
		r.buffer = longer
	}
	n, err := r.from.Read(r.buffer[r.end:])
	r.end += n
	r.err = err
	return nil
}
