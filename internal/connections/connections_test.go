package connections

import (
	"bufio"
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"io"
	"log"
	"net"
	"net/http"
	"net/http/httptest"
	"net/netip"
	"runtime"
	"testing"
)

// served is a server under a bound: every path but /open admits, and /wait answers when a value comes.
type served struct {
	*testing.T
	bound   *Bound
	address string
	secured bool
	entered chan struct{}
	leave   chan struct{}
}

func serve(t *testing.T, connections int, certificate *tls.Config) *served {
	t.Helper()
	s := &served{t, New(connections), "", certificate != nil, make(chan struct{}), make(chan struct{})}
	open := func(w http.ResponseWriter, _ *http.Request) { fmt.Fprint(w, "open") }
	mux := http.NewServeMux()
	mux.HandleFunc("/open", open)
	mux.Handle("/", s.bound.Handler(http.HandlerFunc(open)))
	mux.Handle("/wait", s.bound.Handler(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		s.entered <- struct{}{}
		<-s.leave
		open(w, r)
	})))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	s.address = listener.Addr().String()
	server := &http.Server{Handler: mux, TLSConfig: certificate, ErrorLog: log.New(io.Discard, "", 0)}
	ended := make(chan error)
	go func() { ended <- s.bound.Serve(server, listener) }()
	t.Cleanup(func() {
		server.Close()
		<-ended
		s.empty()
	})
	return s
}

// dial opens a connection and sends text over it, none where it is empty.
func (s *served) dial(text string) *peerConn {
	s.Helper()
	plain, err := net.Dial("tcp", s.address)
	if err != nil {
		s.Fatal(err)
	}
	c := &peerConn{plain, bufio.NewReader(plain)}
	if text != "" {
		c.send(text)
	}
	return c
}

// open is a connection over which requests go, TLS where the server has it.
func (s *served) open() *peerConn {
	s.Helper()
	c := s.dial("")
	if s.secured {
		secured := tls.Client(c.Conn, &tls.Config{InsecureSkipVerify: true})
		c = &peerConn{secured, bufio.NewReader(secured)}
	}
	return c
}

// peerConn is a client's end.
type peerConn struct {
	net.Conn
	read *bufio.Reader
}

func (c *peerConn) send(text string) { _, _ = io.WriteString(c, text) }

func (c *peerConn) ask(path string) { c.send("GET " + path + " HTTP/1.1\r\nHost: localhost\r\n\r\n") }

// status is of the next reply, 0 for a connection that closed.
func (c *peerConn) status() int {
	res, err := http.ReadResponse(c.read, nil)
	if err != nil {
		return 0
	}
	_, _ = io.Copy(io.Discard, res.Body)
	return res.StatusCode
}

func (c *peerConn) get(path string) int {
	c.ask(path)
	return c.status()
}

// empty waits until all connections are forgotten.
func (s *served) empty() {
	for {
		newcomers, clients := s.bound.Rooms()
		if newcomers.Held+clients.Held == 0 {
			break
		}
		runtime.Gosched()
	}
	n, m := len(s.bound.newcomers.peers), len(s.bound.newcomers.order)
	for _, g := range s.bound.groups {
		n, m = n+g.held+len(g.idle.peers), m+len(g.idle.order)
	}
	if n+m > 0 {
		s.Errorf("%d peers are kept of connections that closed, %d in order", n, m)
	}
}

// idle waits until that many clients are between two requests, which the server notices after its reply.
func (s *served) idle(n int) {
	for {
		s.bound.mu.Lock()
		idle := s.bound.idle
		s.bound.mu.Unlock()
		if idle == n {
			return
		}
		runtime.Gosched()
	}
}

// herds are what stays before a whole header.
var herds = map[string]string{"silent": "", "loris": "GET /open HTTP/1.1\r\nHost: localhost\r\nX-Slow: ", "handshake": "\x16\x03\x01\x02\x00\x01"}

// However many connect and send no request, the next one is answered, and clients keep their connections: the one whose
// request waits, and the idle one.
func TestNewcomersAlwaysGetIn(t *testing.T) {
	certificate := httptest.NewUnstartedServer(nil)
	certificate.StartTLS()
	defer certificate.Close()
	for name, text := range herds {
		for _, config := range []*tls.Config{nil, certificate.TLS} {
			if name == "silent" || (name == "handshake") == (config != nil) {
				t.Run(fmt.Sprintf("%s tls %t", name, config != nil), func(t *testing.T) { testNewcomers(t, text, config.Clone()) })
			}
		}
	}
}

func testNewcomers(t *testing.T, text string, certificate *tls.Config) {
	s := serve(t, 16, certificate)
	waiting, idle := s.open(), s.open()
	waiting.ask("/wait")
	<-s.entered
	if status := idle.get("/"); status != http.StatusOK {
		t.Fatalf("a client: %d", status)
	}
	for range 200 {
		defer s.dial(text).Close()
		if n, _ := s.bound.Rooms(); n.Held > n.Max {
			t.Fatalf("%d newcomers of %d", n.Held, n.Max)
		}
	}
	for range 5 {
		stranger, client := s.open(), s.open()
		if status := stranger.get("/open"); status != http.StatusOK {
			t.Errorf("a stranger: %d", status)
		}
		if status := client.get("/"); status != http.StatusOK {
			t.Errorf("a new client: %d", status)
		}
		stranger.Close()
		client.Close()
	}
	if status := idle.get("/"); status != http.StatusOK {
		t.Errorf("the idle client: %d", status)
	}
	close(s.leave)
	if status := waiting.status(); status != http.StatusOK {
		t.Errorf("the one that waits: %d", status)
	}
	if n, c := s.bound.Rooms(); n.Closed < 200-2 || c.Closed != 0 {
		t.Errorf("%d newcomers and %d clients closed", n.Closed, c.Closed)
	}
}

// Idle clients make place for new ones, the oldest first. Those with a request under way never do: a new one is refused, and
// an open path is answered all the same.
func TestIdleMakePlace(t *testing.T) {
	s := serve(t, 4, nil) // a newcomer and three clients
	var clients []*peerConn
	for n := range 3 {
		clients = append(clients, s.open())
		clients[n].get("/")
		s.idle(n + 1) // in the order of the clients: a reply is read before the server counts its connection as idle
	}
	if status := clients[0].get("/"); status != http.StatusOK { // the second is the oldest now
		t.Fatal(status)
	}
	s.idle(3)
	fourth := s.open()
	fourth.ask("/wait")
	<-s.entered
	if status := clients[1].status(); status != 0 {
		t.Errorf("the oldest: %d", status)
	}
	for _, c := range []*peerConn{clients[0], clients[2]} {
		c.ask("/wait")
		<-s.entered
	}
	fifth := s.open()
	if status := fifth.get("/"); status != http.StatusServiceUnavailable {
		t.Errorf("one too many: %d", status)
	}
	if status := s.open().get("/open"); status != http.StatusOK {
		t.Errorf("an open path: %d", status)
	}
	if _, c := s.bound.Rooms(); c.Held != 3 || !c.Full || c.Closed != 1 {
		t.Errorf("clients: %+v", c)
	}
	close(s.leave)
	for _, c := range []*peerConn{fourth, clients[0], clients[2]} {
		if status := c.status(); status != http.StatusOK {
			t.Errorf("one that waited: %d", status)
		}
	}
	if status := s.open().get("/"); status != http.StatusOK {
		t.Errorf("the next: %d", status)
	}
}

// A request over a connection that was closed for another is not begun.
func TestClosedIsNotAdmitted(t *testing.T) {
	b := New(16)
	c := &connection{Conn: closedConn{}, bound: b}
	b.enter(c)
	ctx := context.WithValue(t.Context(), key{}, c)
	if err := b.Admit(ctx, ""); err != nil {
		t.Fatal(err)
	}
	b.changed(c, http.StateIdle)
	c.Close()
	b.changed(c, http.StateActive)
	if err := b.Admit(ctx, ""); !errors.Is(err, ErrClosed) {
		t.Errorf("got %v", err)
	}
	c.Close()
	if n, clients := b.Rooms(); n.Held+clients.Held != 0 {
		t.Errorf("%d and %d are held", n.Held, clients.Held)
	}
	if err := b.Admit(t.Context(), ""); err != nil {
		t.Errorf("a connection of another listener: %v", err)
	}
}

// The clients of one group hold half of all connections. Another one closes an idle one of them, or is refused, and
// others get in; an idle one closes of the group that has most.
func TestGroupHoldsItsShare(t *testing.T) {
	b := New(8) // a newcomer and seven clients
	enter := func(name string, want error) *connection {
		t.Helper()
		c := &connection{Conn: closedConn{}, bound: b}
		b.enter(c)
		if err := b.Admit(context.WithValue(t.Context(), key{}, c), name); err != want {
			t.Fatalf("one of %q: %v, want %v", name, err, want)
		}
		if want != nil {
			c.Close()
		}
		return c
	}
	var viewers []*connection
	for range 4 {
		viewers = append(viewers, enter("viewer", nil))
	}
	enter("viewer", ErrShare)
	worker := enter("worker", nil)
	b.changed(worker, http.StateIdle)
	enter("viewer", ErrShare) // the worker's makes no place for it
	b.changed(viewers[2], http.StateIdle)
	viewers = append(viewers, enter("viewer", nil))
	if viewers[2].state != closed || worker.state != idle {
		t.Errorf("the idle ones are in states %d and %d", viewers[2].state, worker.state)
	}
	enter("worker", nil)
	enter("", nil)
	b.changed(viewers[0], http.StateIdle)
	b.changed(viewers[1], http.StateIdle)
	enter("trainer", nil)
	if viewers[0].state != closed || worker.state != idle {
		t.Errorf("the idle ones are in states %d and %d", viewers[0].state, worker.state)
	}
	b.changed(viewers[1], http.StateActive)
	b.changed(worker, http.StateActive)
	enter("trainer", ErrFull)
	viewers[1].Close()
	enter("viewer", nil)
}

type closedConn struct{ net.Conn }

func (closedConn) Close() error { return nil }

// The peer that has most closes its own, the oldest first; of peers alike the one with the oldest.
func TestPool(t *testing.T) {
	var p pool
	add := func(address string) *connection {
		c := &connection{from: peerOf(net.TCPAddrFromAddrPort(netip.AddrPortFrom(netip.MustParseAddr(address), 1)))}
		p.add(c)
		return c
	}
	a := add("10.0.0.1")
	b := []*connection{add("10.0.0.2"), add("::ffff:10.0.0.2"), add("10.0.0.2")}
	net6 := []*connection{add("2001:db8::1"), add("2001:db8::2")} // one machine has the network
	other := add("2001:db8:0:1::1")
	p.remove(b[1])
	for i, want := range []*connection{b[0], net6[0], a, b[2], net6[1], other} {
		got := p.next()
		if got != want {
			t.Fatalf("%d: %v, want %v", i, got.from, want.from)
		}
		p.remove(got)
	}
	if p.next() != nil || p.size != 0 || len(p.peers) != 0 {
		t.Errorf("%d are left, of %d peers", p.size, len(p.peers))
	}
	if peerOf(&net.UnixAddr{}) != (source{}) || peerOf(nil) != (source{}) {
		t.Error("an address of what has none")
	}
}

// The default follows the machine.
func TestMost(t *testing.T) {
	for _, c := range []struct {
		descriptors int
		memory      int64
		want        int
	}{{1 << 20, 64 << 30, 1 << 17}, {20000, 64 << 30, 10000}, {1024, 64 << 30, 512}, {1 << 20, 512 << 20, 1024}, {4, 1 << 20, 8}} {
		if got := Most(c.descriptors, c.memory); got != c.want {
			t.Errorf("%d descriptors and %d bytes: %d, want %d", c.descriptors, c.memory, got, c.want)
		}
	}
	if b := New(0); b.newcomersMax < 1 || b.clientsMax < 7 {
		t.Errorf("this machine: %d and %d", b.newcomersMax, b.clientsMax)
	}
}

// BenchmarkChanged is what a request costs on a connection that is kept.
func BenchmarkChanged(b *testing.B) {
	bound := New(1000)
	c := &connection{Conn: closedConn{}, bound: bound}
	bound.enter(c)
	ctx := context.WithValue(b.Context(), key{}, c)
	b.ReportAllocs()
	for b.Loop() {
		bound.changed(c, http.StateActive)
		_ = bound.Admit(ctx, "")
		bound.changed(c, http.StateIdle)
	}
}
