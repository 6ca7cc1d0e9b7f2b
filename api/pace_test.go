package api

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// pipes is a listener whose connections are in memory, so that they have a bubble's clock.
type pipes struct {
	connections chan net.Conn
	closed      chan struct{}
	once        sync.Once
}

func newPipes() *pipes { return &pipes{connections: make(chan net.Conn), closed: make(chan struct{})} }

func (p *pipes) Accept() (net.Conn, error) {
	select {
	case c := <-p.connections:
		return c, nil
	case <-p.closed:
		return nil, net.ErrClosed
	}
}
func (p *pipes) Close() error   { p.once.Do(func() { close(p.closed) }); return nil }
func (p *pipes) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }

func (p *pipes) dial() net.Conn {
	ours, theirs := net.Pipe()
	p.connections <- theirs
	return ours
}

// bubble serves in memory under the bubble's clock.
func bubble(t *testing.T, o Options, add func(s *Server)) *pipes {
	t.Helper()
	s, err := New(o, Ports{Plane: newPlane()})
	if err != nil {
		t.Fatal(err)
	}
	add(s)
	p := newPipes()
	ctx, stop := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Serve(ctx, p) }()
	t.Cleanup(func() {
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	return p
}

func readAll(w http.ResponseWriter, r *http.Request) error {
	n, err := io.Copy(io.Discard, r.Body)
	if err != nil {
		return err
	}
	return writeJSON(w, n)
}

// read returns the status and the body that come back on a connection, and whether it ended.
func read(connection net.Conn) (status int, body string) {
	response, err := http.ReadResponse(bufio.NewReader(connection), nil)
	if err != nil {
		return 0, err.Error()
	}
	defer response.Body.Close()
	text, _ := io.ReadAll(response.Body)
	return response.StatusCode, string(text)
}

// A client that trickles is cut once its patience is spent; one that uploads steadily, and
// pauses less than that, is heard out however long it takes.
func TestBodiesMustComeOn(t *testing.T) {
	for name, c := range map[string]struct {
		// every pause a chunk is sent, chunks in all
		pause         time.Duration
		bytes, chunks int
		status        int
	}{
		"one byte a second":           {time.Second, 1, 3600, 503},
		"just under the rate":         {time.Second, 900, 3600, 503},
		"nothing at all":              {time.Hour, 1, 1, 503},
		"an hour at twice the rate":   {time.Second, 2048, 3600, 200},
		"bursts with pauses of 20 s":  {20 * time.Second, 1 << 20, 60, 200},
		"one pause beyond all credit": {40 * time.Second, 1 << 20, 2, 503},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				p := bubble(t, Options{BytesPerSMin: 1024, BodyPatience: 30 * time.Second}, func(s *Server) { s.route("POST /test", roleAny, readAll, tokensBody) })
				connection := p.dial()
				sent := make(chan struct{})
				defer func() { connection.Close(); <-sent }()
				began := time.Now()
				go func() {
					defer close(sent)
					fmt.Fprintf(connection, "POST /test HTTP/1.1\r\nHost: localhost\r\nContent-Length: %d\r\n\r\n", c.bytes*c.chunks)
					chunk := []byte(strings.Repeat("x", c.bytes))
					for range c.chunks {
						time.Sleep(c.pause)
						if _, err := connection.Write(chunk); err != nil {
							return
						}
					}
				}()
				status, body := read(connection)
				if status != c.status {
					t.Errorf("after %s: %d %s, want %d", time.Since(began), status, body, c.status)
				}
				if c.status == 503 {
					if !strings.Contains(body, "too slowly") {
						t.Errorf("it says %s", body)
					}
					if took := time.Since(began); took > 5*time.Minute {
						t.Errorf("it was cut after %s only", took)
					}
				}
			})
		})
	}
}

// A body that no handler reads is not waited for either, nor headers that never end, nor a
// reader that takes nothing; a request that waits for work may wait.
func TestSilentClients(t *testing.T) {
	cut := func(t *testing.T, connection net.Conn, within time.Duration) {
		t.Helper()
		began := time.Now()
		if _, err := io.Copy(io.Discard, connection); err != nil {
			t.Logf("ended with %v", err)
		}
		if took := time.Since(began); took > within {
			t.Errorf("cut after %s, want within %s", took, within)
		}
	}
	t.Run("unread body", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := bubble(t, Options{Tokens: testTokens(t)}, func(s *Server) { s.route("POST /test", roleAny, readAll) })
			connection := p.dial()
			fmt.Fprint(connection, "POST /test HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\nx")
			cut(t, connection, time.Minute)
		})
	})
	t.Run("headers", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := bubble(t, Options{}, func(*Server) {})
			connection := p.dial()
			sent := make(chan struct{})
			defer func() { connection.Close(); <-sent }()
			go func() {
				defer close(sent)
				fmt.Fprint(connection, "GET / HTTP/1.1\r\n")
				for {
					time.Sleep(time.Second)
					if _, err := fmt.Fprint(connection, "X-A: b\r\n"); err != nil {
						return
					}
				}
			}()
			cut(t, connection, 12*time.Second)
		})
	})
	t.Run("reader", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			wrote := make(chan error, 1)
			p := bubble(t, Options{}, func(s *Server) {
				s.route("GET /test", roleAny, func(w http.ResponseWriter, _ *http.Request) error {
					_, err := w.Write(make([]byte, 8<<20))
					wrote <- err
					return nil
				})
			})
			connection := p.dial()
			fmt.Fprint(connection, "GET /test HTTP/1.1\r\nHost: localhost\r\n\r\n")
			began := time.Now()
			if err := <-wrote; err == nil || time.Since(began) > time.Minute {
				t.Errorf("after %s: %v", time.Since(began), err)
			}
			connection.Close()
		})
	})
	t.Run("long wait", func(t *testing.T) {
		synctest.Test(t, func(t *testing.T) {
			p := bubble(t, Options{}, func(s *Server) {
				s.route("POST /test", roleAny, func(w http.ResponseWriter, r *http.Request) error {
					if _, err := io.Copy(io.Discard, r.Body); err != nil {
						return err
					}
					select {
					case <-time.After(10 * time.Minute):
					case <-r.Context().Done():
						return r.Context().Err()
					}
					return writeJSON(w, "patient")
				})
			})
			connection := p.dial()
			defer connection.Close()
			for range 2 { // and again on the same connection
				fmt.Fprint(connection, "POST /test HTTP/1.1\r\nHost: localhost\r\nContent-Length: 2\r\n\r\n{}")
				if status, body := read(connection); status != 200 || !strings.Contains(body, "patient") {
					t.Errorf("%d %s", status, body)
				}
			}
		})
	})
}

// The limits over real connections.
func TestLimitsOverTCP(t *testing.T) {
	c := start(t, Options{HeaderBytesMax: 4096, BodyBytesMax: 1000, WeightsBytesMax: 2000, BodyPatience: 50 * time.Millisecond}, func(s *Server) {
		s.route("POST /test", roleAny, echo)
		s.route("POST /test/weights", roleAny, readAll, largeBody)
	})
	said := c.raw("POST /test HTTP/1.1\r\nHost: localhost\r\nContent-Length: 99999999999\r\n\r\nx") // nothing more is waited for
	if !strings.HasPrefix(said, "HTTP/1.1 413") {
		t.Errorf("a length: %.100s", said)
	}
	long := `{"worker":"` + strings.Repeat("x", 1500) + `"}`
	if a := c.do("POST", "/test", long); a.status != 413 || a.code() != protocol.CodeTooLarge || !strings.Contains(a.body, "1000 bytes") {
		t.Errorf("a body: %d %s", a.status, a.body)
	}
	if a := c.do("POST", "/test", long, "Idempotency-Key", "k"); a.status != 413 {
		t.Errorf("a body under a key: %d %s", a.status, a.body)
	}
	if a := c.do("POST", "/test/weights", long); a.status != 200 {
		t.Errorf("weights: %d %s", a.status, a.body)
	}
	if a := c.do("POST", "/test/weights", long+long); a.status != 413 {
		t.Errorf("large weights: %d %s", a.status, a.body)
	}
	chunked := c.raw("POST /test HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n5dc\r\n" + strings.Repeat("x", 1500) + "\r\n0\r\n\r\n")
	if !strings.HasPrefix(chunked, "HTTP/1.1 413") {
		t.Errorf("chunks: %.100s", chunked)
	}
	header := c.raw("GET / HTTP/1.1\r\nHost: localhost\r\nX-Long: " + strings.Repeat("x", 16<<10) + "\r\n\r\n")
	if !strings.HasPrefix(header, "HTTP/1.1 431") {
		t.Errorf("a header: %.100s", header)
	}
	slow := c.raw("POST /test HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\n{") // and no more
	if !strings.HasPrefix(slow, "HTTP/1.1 503") || !strings.Contains(slow, "too slowly") {
		t.Errorf("a slow body: %.300s", slow)
	}
}

// A file goes out whole and in its order, through every wrapper.
func TestLongReplies(t *testing.T) {
	text := strings.Repeat("0123456789abcdef", 200_000)
	c := start(t, Options{}, func(s *Server) {
		s.route("GET /test/copied", roleAny, func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.Copy(w, io.LimitReader(strings.NewReader(text), int64(len(text)-7)))
			return err
		})
		s.route("GET /test/written", roleAny, func(w http.ResponseWriter, _ *http.Request) error {
			_, err := io.WriteString(w, text)
			return err
		})
	})
	if a := c.do("GET", "/test/copied", ""); a.body != text[:len(text)-7] {
		t.Errorf("copied %d bytes of %d", len(a.body), len(text)-7)
	}
	if a := c.do("GET", "/test/written", ""); a.body != text {
		t.Errorf("wrote %d bytes of %d", len(a.body), len(text))
	}
}
