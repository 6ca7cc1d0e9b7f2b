package rows

import (
	"bytes"
	"context"
	"io"
	"slices"
	"sync"
)

// Sizes of a Reader's buffer: while it passes events on, and while it decodes.
const (
	passBytes  = 8 << 10
	blockBytes = 256 << 10
)

// blocks are the buffers of readers that decode.
var blocks = sync.Pool{New: func() any { return new([blockBytes]byte) }}

// Reader passes a stream of events on, and takes the texts of rows out of it. In their place stand empty ones.
type Reader struct {
	ctx    context.Context
	from   io.Reader
	fields []*Field
	small  []byte
	block  *[blockBytes]byte // in use while there is a text in it
	buffer []byte            // one of both
	begin  int               // what is in the buffer and not passed on yet
	end    int
	err    error  // of from, once what came before it has been passed on
	pass   int    // bytes that are passed on as they are
	next   *Field // whose text begins behind them
	into   *Field // whose text is read now
}

// NewReader returns a reader that takes fields out of a stream. It ends with ctx where it waits for memory. Close
// comes at the end.
func NewReader(ctx context.Context, from io.Reader, fields []*Field) *Reader {
	small := make([]byte, passBytes)
	return &Reader{ctx: ctx, from: from, fields: fields, small: small, buffer: small}
}

// Read implements io.Reader.
func (r *Reader) Read(p []byte) (int, error) {
	if len(p) == 0 {
		return 0, nil
	}
	for {
		switch {
		case r.pass > 0:
			n := copy(p, r.buffer[r.begin:r.begin+r.pass])
			r.begin, r.pass = r.begin+n, r.pass-n
			return n, nil
		case r.next != nil:
			r.into, r.next = r.next, nil
			r.into.open()
			r.into.beside = slices.ContainsFunc(r.fields, func(f *Field) bool { return f.held > 0 })
		case r.into != nil && r.swallow(), r.into == nil && r.scan():
		case r.err != nil:
			if r.pass = r.end - r.begin; r.pass == 0 {
				return 0, r.err
			}
		case r.ctx.Err() != nil:
			return 0, r.ctx.Err()
		default:
			r.fill()
		}
	}
}

// Close gives the reader's memory back. That of its fields stays theirs.
func (r *Reader) Close() {
	if r.block != nil {
		blocks.Put(r.block)
		r.block, r.buffer, r.begin, r.end = nil, r.small, 0, 0
	}
}

// scan finds what can be passed on, up to a field's text; false asks for more of the stream.
func (r *Reader) scan() bool {
	window := r.buffer[r.begin:r.end]
	at, held := len(window), 0
	var found *Field
	for _, f := range r.fields {
		if i := bytes.Index(window[:min(at+len(f.key), len(window))], f.key); i >= 0 {
			at, found = i, f
		}
		held = max(held, overlap(window, f.key))
	}
	switch {
	case found == nil:
		r.pass = len(window) - held
		return r.pass > 0
	case at > 0:
		r.pass = at
		return true
	}
	end := len(found.key)
	for colon := false; end < len(window); end++ {
		switch c := window[end]; {
		case c == ':' && !colon:
			colon = true
		case c == ' ':
		case c == '"' && colon:
			r.pass, r.next = end+1, found
			return true
		default:
			r.pass = end
			return true
		}
	}
	if len(window) == len(r.buffer) { // nothing but spaces
		r.pass = len(window)
		return true
	}
	return false
}

// overlap is how much of a key the end of a text may begin.
func overlap(text, key []byte) int {
	for n := min(len(key)-1, len(text)); n > 0; n-- {
		if bytes.HasSuffix(text, key[:n]) {
			return n
		}
	}
	return 0
}

// swallow decodes what there is of a field's text; false asks for more of the stream.
func (r *Reader) swallow() bool {
	text := r.buffer[r.begin:r.end]
	end := bytes.IndexByte(text, '"')
	if end >= 0 {
		text = text[:end]
	}
	r.begin += len(text)
	r.into.feed(r.ctx, text)
	if end < 0 {
		return false
	}
	r.into.close()
	r.into = nil
	return true
}

// fill reads more into the buffer: a large one where a text is decoded.
func (r *Reader) fill() {
	switch {
	case r.into != nil && r.block == nil:
		r.block = blocks.Get().(*[blockBytes]byte)
		r.move(r.block[:])
	case r.into == nil && r.block != nil && r.end-r.begin < len(r.small)/2:
		r.move(r.small)
		blocks.Put(r.block)
		r.block = nil
	case r.begin > 0:
		r.move(r.buffer)
	}
	n, err := r.from.Read(r.buffer[r.end:])
	r.end, r.err = r.end+n, err
}

// move takes what is not passed on yet to the beginning of a buffer.
func (r *Reader) move(to []byte) {
	r.end = copy(to, r.buffer[r.begin:r.end])
	r.buffer, r.begin = to, 0
}
