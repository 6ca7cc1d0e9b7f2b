package machine

import (
	"context"
	"fmt"
	"io"
	"net"
	"os"
	"slices"
	"strconv"
	"sync"
	"syscall"
	"time"
)

// window is the bound of most hosts: see Host.
const window = 256 << 10

// network is how the world's hosts reach one another.
type network struct {
	w         *World
	mu        sync.Mutex
	listeners map[string]*listener
	conns     []*conn
	ports     map[string]int
	cut       map[pair]bool
	slows     sync.RWMutex // of slow: packets are timed with mu held, and without
	slow      map[pair]int
	dark      map[string]bool   // addresses of hosts without power
	leads     map[string]string // where connections to an address go, if not to its host
	troubles  map[pair][]*Trouble
}

func newNetwork(w *World) *network {
	return &network{
		w: w, listeners: map[string]*listener{}, ports: map[string]int{}, cut: map[pair]bool{}, slow: map[pair]int{}, dark: map[string]bool{},
		leads: map[string]string{}, troubles: map[pair][]*Trouble{},
	}
}

// listener is a listening socket of a host.
type listener struct {
	n       *network
	addr    *net.TCPAddr
	host    *Host
	backlog []*conn
	wake    *sync.Cond
	closed  bool
}

// place is the address that a host means by a name.
func (n *network) place(h *Host, name string) string {
	switch name {
	case "", "0.0.0.0", "::", "127.0.0.1", "localhost", "::1":
		return h.IP
	}
	return name
}

func (n *network) listen(_, address string) (net.Listener, error) {
	h := n.w.current()
	defer runtimeEnter(runtimeEnter(0))
	name, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	port, err := strconv.Atoi(portText)
	if err != nil {
		return nil, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	ip := n.place(h, name)
	if port == 0 {
		port = n.freePort(ip)
	}
	at := net.JoinHostPort(ip, strconv.Itoa(port))
	if n.listeners[at] != nil {
		return nil, &net.OpError{Op: "listen", Net: "tcp", Err: os.NewSyscallError("bind", syscall.EADDRINUSE)}
	}
	l := &listener{n: n, host: h, addr: &net.TCPAddr{IP: net.ParseIP(ip).To4(), Port: port}, wake: sync.NewCond(&n.mu)}
	n.listeners[at] = l
	return l, nil
}

func (n *network) freePort(ip string) int {
	n.ports[ip]++
	return 32000 + n.ports[ip]
}

func (l *listener) Accept() (net.Conn, error) {
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	for len(l.backlog) == 0 && !l.closed {
		l.wake.Wait()
	}
	if l.closed {
		return nil, &net.OpError{Op: "accept", Net: "tcp", Addr: l.addr, Err: net.ErrClosed}
	}
	c := l.backlog[0]
	l.backlog = l.backlog[1:]
	return c, nil
}

func (l *listener) Close() error {
	defer runtimeEnter(runtimeEnter(0))
	l.n.mu.Lock()
	defer l.n.mu.Unlock()
	l.close()
	return nil
}

func (l *listener) close() {
	if l.closed {
		return
	}
	l.closed = true
	delete(l.n.listeners, l.addr.String())
	if !l.n.dark[l.host.IP] {
		for _, c := range l.backlog {
			c.abort()
		}
	}
	l.wake.Broadcast()
}

func (l *listener) Addr() net.Addr { return l.addr }

func (n *network) dial(ctx context.Context, _, address string) (net.Conn, error) {
	h := n.w.current()
	name, portText, err := net.SplitHostPort(address)
	if err != nil {
		return nil, err
	}
	ip := n.lead(n.place(h, name))
	at := net.JoinHostPort(ip, portText)
	refuse := func(err error) error {
		return &net.OpError{Op: "dial", Net: "tcp", Err: fmt.Errorf("%s: %w", at, err)}
	}
	// A connection takes a round trip, and as long as nobody answers.
	for {
		select {
		case <-ctx.Done():
			return nil, refuse(ctx.Err())
		case <-time.After(n.latency(h.IP, ip)):
		}
		if n.passes(h.IP, ip) {
			break
		}
		select {
		case <-ctx.Done():
			return nil, refuse(context.Cause(ctx))
		case <-time.After(time.Second):
		}
	}
	defer runtimeEnter(runtimeEnter(0))
	n.mu.Lock()
	defer n.mu.Unlock()
	l := n.listeners[at]
	if l == nil {
		return nil, refuse(os.NewSyscallError("connect", syscall.ECONNREFUSED))
	}
	here := &net.TCPAddr{IP: net.ParseIP(h.IP).To4(), Port: n.freePort(h.IP)}
	a := &conn{n: n, host: h, ip: h.IP, local: here, remote: l.addr}
	b := &conn{n: n, host: l.host, ip: ip, local: l.addr, remote: here}
	a.peer, b.peer = b, a
	a.window = min(h.window, l.host.window)
	b.window = a.window
	a.wake, b.wake = sync.NewCond(&n.mu), sync.NewCond(&n.mu)
	n.conns = append(n.conns, a, b)
	l.backlog = append(l.backlog, b)
	l.wake.Broadcast()
	return a, nil
}

func (n *network) lead(ip string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	if other := n.leads[ip]; other != "" {
		return other
	}
	return ip
}

// Lead has new connections to an address go to another host, as an orchestrator does that has replaced a process. They do until
// the function that it returns is called.
func (w *World) Lead(from, to string) (end func()) {
	n := w.network
	n.mu.Lock()
	defer n.mu.Unlock()
	n.leads[from] = to
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		if n.leads[from] == to {
			delete(n.leads, from)
		}
	}
}

// pair is a direction between two hosts, by address.
type pair struct{ from, to string }

func (n *network) passes(from, to string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	return !n.cut[pair{from, to}] && !n.dark[to]
}

// latency is how long a packet takes.
func (n *network) latency(from, to string) time.Duration {
	if from == to {
		return draw(5, 20)
	}
	n.slows.RLock()
	times := n.slow[pair{from, to}]
	n.slows.RUnlock()
	return draw(50, 250) * time.Duration(max(times, 1))
}

// Cut lets nothing pass from one host to another. Bytes that are sent wait for Heal.
func (w *World) Cut(from, to string) {
	w.network.mu.Lock()
	defer w.network.mu.Unlock()
	w.network.cut[pair{from, to}] = true
}

// Slow makes a direction as many times as slow; 1 for as it was.
func (w *World) Slow(from, to string, times int) {
	w.network.slows.Lock()
	defer w.network.slows.Unlock()
	w.network.slow[pair{from, to}] = times
}

// Heal has everything pass again, and brings what has waited.
func (w *World) Heal(from, to string) {
	n := w.network
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.cut, pair{from, to})
	for _, c := range n.conns {
		if c.peer.ip != from || c.ip != to {
			continue
		}
		for _, p := range c.held {
			n.deliver(c, p, p == nil)
		}
		c.held = nil
	}
}

// Reset resets every connection between two hosts.
func (w *World) Reset(a, b string) {
	n := w.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, c := range n.conns {
		if c.ip == a && c.peer.ip == b {
			c.abort()
		}
	}
}

// forget ends the sockets of a dead host's programs. Its kernel says so to the peers, unless it has lost its power, too.
func (n *network) forget(h *Host, dark bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if dark {
		n.dark[h.IP] = true
	}
	for _, at := range sorted(n.listeners) {
		if l := n.listeners[at]; l.host == h {
			l.close()
		}
	}
	for _, c := range slices.Clone(n.conns) {
		if c.host == h && !c.closed {
			c.closed = true
			if dark {
				n.probe(c.peer, 0)
			} else {
				n.send(c, nil, true)
			}
			n.drop(c)
		}
	}
}

// probeEvery, probes and triesFor are how long Go and Linux take to give up a peer that says nothing.
const (
	probeEvery = 15 * time.Second
	probes     = 9
	triesFor   = 15 * time.Minute
)

// probe asks a peer that is silent whether it is there.
func (n *network) probe(c *conn, asked int) {
	n.later(probeEvery, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		silent := n.dark[c.peer.ip] || n.cut[pair{c.ip, c.peer.ip}]
		switch {
		case c.closed || c.reset != nil:
		case !silent:
			c.broken(os.NewSyscallError("read", syscall.ECONNRESET))
		case asked >= probes:
			c.broken(os.NewSyscallError("read", syscall.ETIMEDOUT))
		default:
			n.probe(c, asked+1)
		}
	})
}

// again sends what nobody has answered, after twice the time.
func (n *network) again(from, to *conn, p []byte, end bool, after time.Duration) {
	n.later(after, func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		switch {
		case from.reset != nil:
		case !n.dark[to.ip]:
			n.deliver(to, p, end)
		case after > triesFor:
			from.broken(os.NewSyscallError("write", syscall.ETIMEDOUT))
		default:
			n.again(from, to, p, end, 2*after)
		}
	})
}

// light has a host's kernel answer again.
func (n *network) light(ip string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	delete(n.dark, ip)
}

// conn is one end of a connection.
type conn struct {
	n             *network
	host          *Host
	ip            string // of this end: a dead host has none
	peer          *conn
	local, remote *net.TCPAddr
	wake          *sync.Cond
	in            []byte
	flight        int // bytes that the peer wrote and this end has not read
	window        int
	arrives       time.Time
	held          [][]byte // what waits for the link, at the receiver
	end           bool     // the peer has closed its half
	reset         error
	closed        bool
	read, write   deadline
}

// deadline is a time limit of a half of a connection.
type deadline struct {
	timer *time.Timer
	past  bool
}

func (c *conn) Read(p []byte) (int, error) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	for {
		switch {
		case c.closed:
			return 0, c.fail("read", net.ErrClosed)
		case c.read.past:
			return 0, c.fail("read", os.ErrDeadlineExceeded)
		case len(c.in) > 0:
			k := copy(p, c.in)
			c.in = c.in[k:]
			c.flight -= k
			c.peer.wake.Broadcast()
			return k, nil
		case c.reset != nil:
			return 0, c.fail("read", c.reset)
		case c.end:
			return 0, io.EOF
		case len(p) == 0:
			return 0, nil
		}
		c.wake.Wait()
	}
}

func (c *conn) Write(p []byte) (int, error) {
	if sent := c.n.w.Sent; sent != nil {
		sent(c.host, p)
	}
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	written := 0
	for {
		switch {
		case c.closed:
			return written, c.fail("write", net.ErrClosed)
		case c.write.past:
			return written, c.fail("write", os.ErrDeadlineExceeded)
		case c.reset != nil:
			return written, c.fail("write", c.reset)
		case len(p) == 0:
			return written, nil
		case c.peer.flight < c.window:
			k := min(len(p), c.window-c.peer.flight)
			c.peer.flight += k
			c.n.send(c, append([]byte(nil), p[:k]...), false)
			written, p = written+k, p[k:]
			continue
		}
		c.wake.Wait()
	}
}

func (c *conn) fail(op string, err error) error {
	return &net.OpError{Op: op, Net: "tcp", Source: c.local, Addr: c.remote, Err: err}
}

// send brings bytes, or the end of a half, to the peer of c when the link has carried them.
func (n *network) send(c *conn, p []byte, end bool) {
	to := c.peer
	lost, late := n.troubled(c, p)
	at := time.Now().Add(n.latency(c.ip, to.ip) + late)
	if !at.After(to.arrives) {
		at = to.arrives.Add(1)
	}
	to.arrives = at
	n.later(time.Until(at), func() {
		if !lost || end {
			n.arrive(c, to, p, end)
			return
		}
		n.mu.Lock() // what was written behind it comes to a connection that is no more
		defer n.mu.Unlock()
		c.abort()
	})
}

// later has the network itself do something, whoever's goroutine asks.
func (n *network) later(d time.Duration, do func()) {
	defer runtimeEnter(runtimeEnter(0))
	time.AfterFunc(d, do)
}

func (n *network) arrive(from, to *conn, p []byte, end bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.dark[to.ip] {
		n.again(from, to, p, end, resend)
		return
	}
	if n.cut[pair{from.ip, to.ip}] || len(to.held) > 0 {
		if end {
			p = nil
		}
		to.held = append(to.held, p)
		return
	}
	n.deliver(to, p, end)
}

func (n *network) deliver(to *conn, p []byte, end bool) {
	switch {
	case to.reset != nil:
	case to.closed: // the kernel answers for a socket that is no more
		n.later(n.latency(to.ip, to.peer.ip), func() {
			n.mu.Lock()
			defer n.mu.Unlock()
			to.peer.broken(os.NewSyscallError("read", syscall.ECONNRESET))
		})
	case end:
		to.end = true
		to.wake.Broadcast()
	default:
		to.in = append(to.in, p...)
		to.wake.Broadcast()
	}
}

func (c *conn) broken(err error) {
	if c.reset == nil && !c.end {
		c.reset = err
	}
	c.wake.Broadcast()
}

// abort resets both ends at once.
func (c *conn) abort() {
	c.broken(os.NewSyscallError("read", syscall.ECONNRESET))
	c.peer.broken(os.NewSyscallError("read", syscall.ECONNRESET))
}

func (c *conn) Close() error {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if c.closed {
		return c.fail("close", net.ErrClosed)
	}
	c.closed = true
	c.n.send(c, nil, true)
	c.wake.Broadcast()
	c.n.drop(c)
	return nil
}

func (n *network) drop(c *conn) {
	if !c.peer.closed {
		return
	}
	n.conns = slices.DeleteFunc(n.conns, func(other *conn) bool { return other == c || other == c.peer })
}

func (c *conn) LocalAddr() net.Addr  { return c.local }
func (c *conn) RemoteAddr() net.Addr { return c.remote }

func (c *conn) SetDeadline(t time.Time) error {
	c.set(&c.read, t)
	c.set(&c.write, t)
	return nil
}

func (c *conn) SetReadDeadline(t time.Time) error  { c.set(&c.read, t); return nil }
func (c *conn) SetWriteDeadline(t time.Time) error { c.set(&c.write, t); return nil }

func (c *conn) set(d *deadline, t time.Time) {
	c.n.mu.Lock()
	defer c.n.mu.Unlock()
	if d.timer != nil {
		d.timer.Stop()
		d.timer = nil
	}
	d.past = !t.IsZero() && !t.After(time.Now())
	if !t.IsZero() && !d.past {
		var timer *time.Timer
		timer = time.AfterFunc(time.Until(t), func() {
			c.n.mu.Lock()
			defer c.n.mu.Unlock()
			if d.timer == timer {
				d.past = true
				c.wake.Broadcast()
			}
		})
		d.timer = timer
	}
	c.wake.Broadcast()
}
