package upstream

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"strconv"
	"testing"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

// benchEvent is of the size that servers send for a token.
const benchEvent = `data: {"id":"cmpl-0123456789abcdef","object":"text_completion","created":1763742000,"model":"policy","choices":[{"index":0,"text":" the","logprobs":{"tokens":[" the"],"token_logprobs":[-0.5]},"finish_reason":null,"token_ids":[279]}]}` + "\n\n"

// cannedConn is a connection to a server that costs nothing: every request is answered by a stream
// of so many events, a token each.
type cannedConn struct {
	events int
	asked  chan struct{}
	rest   []byte
	left   int
	piece  []byte
}

func newCannedConn(events int) *cannedConn {
	piece := fmt.Appendf(nil, "%x\r\n%s\r\n", len(benchEvent), benchEvent)
	return &cannedConn{events: events, asked: make(chan struct{}, 1), left: -1, piece: piece}
}

func (c *cannedConn) Write(b []byte) (int, error) {
	if bytes.HasPrefix(b, []byte("POST")) {
		c.asked <- struct{}{}
	}
	return len(b), nil
}

func (c *cannedConn) Read(b []byte) (int, error) {
	if c.left < 0 {
		if _, ok := <-c.asked; !ok {
			return 0, io.EOF
		}
		c.left = c.events
		c.rest = []byte("HTTP/1.1 200 OK\r\nContent-Type: text/event-stream\r\nTransfer-Encoding: chunked\r\n\r\n")
	}
	if len(c.rest) == 0 {
		switch {
		case c.left > 0:
			c.rest = c.piece // one event a read, as tokens come
		case c.left == 0:
			end := `data: {"f":"length"}` + "\n\ndata: [DONE]\n\n"
			c.rest = fmt.Appendf(nil, "%x\r\n%s\r\n0\r\n\r\n", len(end), end)
		}
		c.left--
	}
	n := copy(b, c.rest)
	c.rest = c.rest[n:]
	return n, nil
}

func (c *cannedConn) Close() error                     { return nil }
func (c *cannedConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
func (c *cannedConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (c *cannedConn) SetDeadline(time.Time) error      { return nil }
func (c *cannedConn) SetReadDeadline(time.Time) error  { return nil }
func (c *cannedConn) SetWriteDeadline(time.Time) error { return nil }

// benchDialect reads only what the benchmark needs.
type benchDialect struct{ fakeDialect }

func (benchDialect) Probe(context.Context, *Server) (Capabilities, error) {
	return Capabilities{TokenIDs: true, Logprobs: true, Vocabulary: 1000}, nil
}

func (benchDialect) Version(context.Context, *Server, *Capabilities) (string, error) { return "", nil }

func (benchDialect) Decoder(Request, *Capabilities) Decoder { return benchDecoder{} }

type benchDecoder struct{}

func (benchDecoder) Event(data []byte, d *Delta) error {
	if bytes.HasPrefix(data, []byte(`{"f"`)) {
		d.Finish = FinishLength
		return nil
	}
	at := bytes.LastIndexByte(data, '[')
	token, err := strconv.Atoi(string(data[at+1 : at+4]))
	d.Tokens, d.Logprobs, d.Text = append(d.Tokens, int32(token)), append(d.Logprobs, -0.5), " the"
	return err
}

// An event from the connection to the record, without the server and without JSON.
func BenchmarkGenerateEvent(b *testing.B) {
	for name, req := range map[string]port.GenerateRequest{
		"plain":    {},
		"OnTokens": {OnTokens: func(port.Delta) {}, Check: func([]int32) bool { return false }},
	} {
		b.Run(name, func(b *testing.B) {
			conn := newCannedConn(b.N)
			s, err := NewServer(ServerOptions{URL: "http://canned", Dial: func(context.Context, string, string) (net.Conn, error) { return conn, nil }})
			if err != nil {
				b.Fatal(err)
			}
			e, err := New(Options{Name: "e", Slots: 1, Server: s, Dialect: benchDialect{}})
			if err != nil {
				b.Fatal(err)
			}
			defer e.Close()
			defer close(conn.asked)
			serveVersion(b, e, 0)
			req.Prompt, req.MaxTokens = []int32{1}, b.N
			b.ReportAllocs()
			b.SetBytes(int64(len(benchEvent)))
			b.ResetTimer()
			g, err := e.Generate(b.Context(), req)
			if err != nil || len(g.Tokens) != b.N {
				b.Fatalf("%d tokens of %d, %v", len(g.Tokens), b.N, err)
			}
		})
	}
}

func BenchmarkEventReader(b *testing.B) {
	b.ReportAllocs()
	b.SetBytes(int64(len(benchEvent)))
	r := NewEventReader(&repeated{text: []byte(benchEvent)}, &Request{MaxTokens: 1})
	for b.Loop() {
		if _, err := r.Next(); err != nil {
			b.Fatal(err)
		}
	}
}

// repeated reads the same text again and again.
type repeated struct {
	text []byte
	at   int
}

func (r *repeated) Read(b []byte) (int, error) {
	n := copy(b, r.text[r.at:])
	r.at = (r.at + n) % len(r.text)
	return n, nil
}
