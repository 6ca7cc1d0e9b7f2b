package api

import (
	"errors"
	"io"
	"log"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/socket"
)

// chunkBytes is how much of a reply is written under one deadline, and how much of a body
// is read under one.
const chunkBytes = 256 << 10

// unreadPatience is how long the rest of a body is waited for that no handler wants.
const unreadPatience = 2 * time.Second

// unreadBytesMax is how much of such a rest is read and thrown away. A connection closed with
// bytes unread is reset, and a reset takes the answer with it: a client that sends more than
// it may would hear of a broken connection, and never of its mistake.
const unreadBytesMax = 8 << 20

// payloadBytes is how much of a JSON body the debug log gets where it may.
const payloadBytes = 4 << 10

// reply is a response whose writing must go on: each chunk has its time.
type reply struct {
	http.ResponseWriter
	control  *http.ResponseController
	patience time.Duration
	status   int
	bytes    int64
	began    bool
	role     Role
	token    tokenID
	// room is nil where nobody knows of it. extendedAt is when a deadline was last set.
	room       *room
	extendedAt time.Time
	// payload is the beginning of a JSON body, nil unless it may be logged.
	payload []byte
}

func (s *Server) newReply(w http.ResponseWriter, req *http.Request) *reply {
	r := &reply{ResponseWriter: w, control: http.NewResponseController(w), patience: s.opt.BodyPatience, status: http.StatusOK, room: roomOf(req.Context(), s.opt.RawIO)}
	r.extend()
	return r
}

// extend gives the next chunk its time. A deadline outlives a request on its connection,
// so every request begins and ends with one of its own.
func (r *reply) extend() {
	r.extendedAt = time.Now()
	_ = r.control.SetWriteDeadline(r.extendedAt.Add(r.patience + unreadPatience))
}

// extendLate is extend, but for a deadline that is still far off: one costs as much as a small event.
func (r *reply) extendLate() {
	if time.Since(r.extendedAt) > r.patience/8 {
		r.extend()
	}
}

// Writable implements gateway.Writable: the kernel says that it has room for the connection. It is
// for one goroutine at a time.
func (r *reply) Writable() bool { return r.room.writable() }

// Unwrap is for http.ResponseController.
func (r *reply) Unwrap() http.ResponseWriter { return r.ResponseWriter }

// WriteHeader notes the status.
func (r *reply) WriteHeader(status int) {
	if !r.began {
		r.began, r.status = true, status
		r.extend()
	}
	r.ResponseWriter.WriteHeader(status)
}

// Write writes in chunks.
func (r *reply) Write(p []byte) (n int, err error) {
	r.began = true
	for first := true; first || n < len(p) && err == nil; first = false {
		r.extendLate()
		var wrote int
		wrote, err = r.ResponseWriter.Write(p[n:min(len(p), n+chunkBytes)])
		n += wrote
	}
	r.bytes += int64(n)
	return n, err
}

// ReadFrom keeps the kernel's way from a file to a connection, in chunks.
func (r *reply) ReadFrom(src io.Reader) (n int64, err error) {
	to, ok := r.ResponseWriter.(io.ReaderFrom)
	if !ok {
		return io.Copy(struct{ io.Writer }{r}, src)
	}
	limited, ok := src.(*io.LimitedReader)
	if !ok {
		limited = &io.LimitedReader{R: src, N: 1 << 62}
	}
	r.began = true
	for limited.N > 0 && err == nil {
		r.extend()
		part := &io.LimitedReader{R: limited.R, N: min(limited.N, 4*chunkBytes)}
		var wrote int64
		wrote, err = to.ReadFrom(part)
		n, r.bytes, limited.N = n+wrote, r.bytes+wrote, limited.N-wrote
		if wrote == 0 {
			break
		}
	}
	return n, err
}

// bodyError is an error of reading a request's body: the client's, or the connection's.
type bodyError struct{ cause error }

func (e *bodyError) Error() string { return "reading the body: " + e.cause.Error() }
func (e *bodyError) Unwrap() error { return e.cause }

// refusal says what was wrong with the body.
func (e *bodyError) refusal() *protocol.Refusal {
	if large, ok := errors.AsType[*http.MaxBytesError](e.cause); ok {
		return protocol.Refuse(protocol.CodeTooLarge, "the body exceeds %d bytes: send less, or raise the server's limit (server.body_bytes_max for tokens, server.weights_bytes_max for a version)", large.Limit).With("bytes_max", large.Limit)
	}
	if slow, ok := errors.AsType[net.Error](e.cause); ok && slow.Timeout() {
		return protocol.Refuse(protocol.CodeUnavailable, "the body came too slowly, or stopped: send it again over a connection that delivers")
	}
	return protocol.Refuse(protocol.CodeUnavailable, "the body broke off: send it again")
}

// pacedBody is a request's body that must go on coming. Its credit is the time that the
// client may still keep the server waiting: it is spent by waiting, and earned back by
// bytes, up to the patience. A fast upload that pauses now and then never notices.
type pacedBody struct {
	io.ReadCloser
	control  *http.ResponseController
	rate     int64
	patience time.Duration
	credit   time.Duration
	mu       sync.Mutex
	ended    bool
	began    bool
}

// paceBody stands before a request's body. The deadline holds from the start, so that what
// nobody reads is not waited for either.
func (s *Server) paceBody(w *reply, r *http.Request) *pacedBody {
	b := &pacedBody{ReadCloser: r.Body, control: w.control, rate: s.opt.BytesPerSMin, patience: s.opt.BodyPatience, credit: s.opt.BodyPatience}
	if r.Body == nil || r.Body == http.NoBody {
		b.ended = true
		return b
	}
	_ = b.control.SetReadDeadline(time.Now().Add(b.patience))
	r.Body = b
	return b
}

// Read reads under the deadline that the credit allows.
func (b *pacedBody) Read(p []byte) (int, error) {
	b.began = true
	began := time.Now()
	_ = b.control.SetReadDeadline(began.Add(b.credit))
	n, err := b.ReadCloser.Read(p[:min(len(p), chunkBytes)])
	earned := time.Duration(float64(n) / float64(b.rate) * float64(time.Second))
	b.credit = max(0, min(b.patience, b.credit-time.Since(began)+earned))
	if err == io.EOF {
		b.finish()
		return n, err
	}
	if err != nil {
		err = &bodyError{err}
	}
	return n, err
}

// finish lifts the deadline: from here on the connection is only listened to for the
// client's leaving, however long the handler takes.
func (b *pacedBody) finish() {
	b.mu.Lock()
	defer b.mu.Unlock()
	if !b.ended {
		b.ended = true
		_ = b.control.SetReadDeadline(time.Time{})
	}
}

// leave reads the rest of a body that no handler wants, within bounds, so that the client has
// sent it and listens when the answer comes. A client that waits to be told to go on, and was
// not, is not told so now. The request gets its own body back, by which the server knows how
// to close a connection that has still more.
func (b *pacedBody) leave(r *http.Request) {
	r.Body = b.ReadCloser
	b.mu.Lock()
	ended := b.ended
	if !ended {
		_ = b.control.SetReadDeadline(time.Now().Add(min(b.patience, unreadPatience)))
	}
	b.mu.Unlock()
	if !ended && (b.began || r.Header.Get("Expect") == "") {
		_, _ = io.CopyN(io.Discard, b.ReadCloser, unreadBytesMax)
	}
}

// boundBody bounds the size of a body, and refuses at once one that says that it is larger.
func (s *Server) boundBody(w http.ResponseWriter, r *http.Request, flags flag, bytes *held) error {
	limit := s.bodyLimit(flags)
	if r.ContentLength > limit {
		return &bodyError{&http.MaxBytesError{Limit: limit}}
	}
	out := w
	for {
		wrapped, ok := out.(interface{ Unwrap() http.ResponseWriter })
		if !ok {
			break
		}
		out = wrapped.Unwrap()
	}
	bounded := http.MaxBytesReader(out, r.Body, limit)
	r.Body = &blamedBody{bounded}
	if flags&largeBody == 0 {
		r.Body = &blamedBody{&heldBody{bounded, bytes}}
	}
	if to, ok := w.(*reply); ok && s.opt.LogPayloads && s.opt.Debugf != nil && flags&largeBody == 0 {
		to.payload = []byte{}
		r.Body = &loggedBody{r.Body, to}
	}
	return nil
}

// blamedBody marks a body's own errors, so that they are told from those of the ports.
type blamedBody struct{ io.ReadCloser }

func (b *blamedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	if _, known := errors.AsType[*bodyError](err); err != nil && err != io.EOF && !known {
		err = &bodyError{err}
	}
	return n, err
}

// loggedBody keeps the beginning of a body for the debug log.
type loggedBody struct {
	io.ReadCloser
	to *reply
}

func (b *loggedBody) Read(p []byte) (int, error) {
	n, err := b.ReadCloser.Read(p)
	b.to.payload = append(b.to.payload, p[:min(n, payloadBytes-len(b.to.payload))]...)
	return n, err
}

// rawListener has connections whose short writes the runtime is not told of.
type rawListener struct{ net.Listener }

// Accept returns the next connection.
func (l rawListener) Accept() (net.Conn, error) {
	connection, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	return socket.ShortWrites(connection), nil
}

// connectionLog takes what the standard library says of connections (a failed handshake, a
// malformed request) to the debug log.
func (s *Server) connectionLog() *log.Logger { return log.New(connectionLines{s}, "", 0) }

type connectionLines struct{ s *Server }

func (c connectionLines) Write(line []byte) (int, error) {
	if c.s.opt.Debugf != nil {
		c.s.opt.Debugf("api: %s", strings.TrimSpace(string(line)))
	}
	return len(line), nil
}
