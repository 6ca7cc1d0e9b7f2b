// Package connections bounds the connections of a server, so that those who only connect cannot keep
// clients out. A connection is a newcomer until a request of a client has come over it. A newcomer
// always gets in: where the room of newcomers is full, the oldest of them closes.
package connections

import (
	"context"
	"errors"
	"io"
	"net"
	"net/http"
	"sync"
	"time"

	"github.com/headway-rl/headway/internal/machine"
)

const (
	// connectionBytes is what an open connection takes of memory while a request waits on it: its goroutines, its
	// buffers and the request. Of 4000 claims that waited each took 23 KiB, and 44 KiB under TLS. This is rounded up.
	connectionBytes = 64 << 10
	// memoryShare and descriptorShare are the parts of the machine that the connections of one server may take.
	// As many descriptors again are left for connections to engines, files of versions, boxes and the log.
	memoryShare, descriptorShare = 8, 2
	// newcomerShare is the part of the connections that newcomers may take.
	newcomerShare = 8
	// groupShare is the part of all connections that the clients of one group may take, so that one that holds many
	// leaves some to the others.
	groupShare = 2
)

// Most is how many connections a server may have by default. They are half of a process' descriptors, or fewer where
// they would take more than an eighth of its memory, in bytes.
func Most(descriptors int, memory int64) int {
	return int(max(min(int64(descriptors)/descriptorShare, memory/memoryShare/connectionBytes), newcomerShare))
}

// Errors of Admit.
var (
	// ErrFull says that all connections of clients are taken, and that a request is under way on each.
	ErrFull = errors.New("connections: all of them are taken")
	// ErrShare says that the connections of a group hold its share, and that a request is under way on each.
	ErrShare = errors.New("connections: those of this group hold its share")
	// ErrClosed says that the connection was closed in favour of another before its request was read.
	ErrClosed = errors.New("connections: this one was closed for another")
)

// Bound bounds the connections of one server. It is safe for concurrent use.
type Bound struct {
	newcomersMax, clientsMax, groupMax int

	mu        sync.Mutex
	newcomers pool
	// groups has the clients by the name of their group. clients and idle count those of all groups.
	groups           map[string]*group
	clients, idle    int
	crowded, evicted int64 // newcomers and idle clients that were closed for another
}

// group has the clients of one name: how many there are, and those that are idle, which may be closed.
type group struct {
	held int
	idle pool
}

// New returns a bound of that many connections, 2 at least; 0 stands for Most of this process. An eighth of them is
// for newcomers.
func New(connections int) *Bound {
	if connections == 0 {
		connections = Most(machine.Descriptors(), machine.Memory())
	}
	newcomers := max(connections/newcomerShare, 1)
	return &Bound{newcomersMax: newcomers, clientsMax: max(connections-newcomers, 1), groupMax: max(connections/groupShare, 1), groups: map[string]*group{}}
}

// Room says how full a part of a bound is. Closed counts the connections that were closed there for another.
type Room struct {
	Held, Max int
	Full      bool
	Closed    int64
}

// Rooms says how full the bound is, of newcomers and of clients. The room of clients is full while a request is
// under way on each of its connections: idle ones make place.
func (b *Bound) Rooms() (newcomers, clients Room) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return Room{b.newcomers.size, b.newcomersMax, b.newcomers.size >= b.newcomersMax, b.crowded},
		Room{b.clients, b.clientsMax, b.clients-b.idle >= b.clientsMax, b.evicted}
}

// Serve is server.Serve under the bound, or ServeTLS where the server has a certificate. It sets the server's
// ConnState, and its ConnContext beside what it does already.
func (b *Bound) Serve(server *http.Server, listener net.Listener) error {
	before := server.ConnContext
	server.ConnContext = func(ctx context.Context, c net.Conn) context.Context {
		if before != nil {
			ctx = before(ctx, c)
		}
		return context.WithValue(ctx, key{}, ownOf(c))
	}
	server.ConnState = b.changed
	bounded := &bounded{listener, b}
	if server.TLSConfig != nil {
		return server.ServeTLS(bounded, "", "")
	}
	return server.Serve(bounded)
}

type key struct{}

// Admit counts the connection of a request among those of clients, where it is not yet. It stays in the group that it
// is admitted to. A group may have half of all connections; that with the empty name may have all. Where there is
// no room, an idle one closes: see victim. It returns ErrFull, ErrShare or ErrClosed. A connection that the bound does
// not know is admitted.
func (b *Bound) Admit(ctx context.Context, name string) error {
	c, _ := ctx.Value(key{}).(*connection)
	if c == nil {
		return nil
	}
	victim, err := b.admit(c, name)
	if victim != nil {
		_ = victim.Conn.Close()
	}
	return err
}

func (b *Bound) admit(c *connection, name string) (victim *connection, err error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	switch c.state {
	case busy, idle:
		return nil, nil
	case closed:
		return nil, ErrClosed
	}
	if victim, err = b.victim(name); err != nil {
		return nil, err
	}
	if victim != nil {
		b.evicted++
		b.leave(victim)
	}
	to := b.groups[name]
	if to == nil {
		to = &group{}
		b.groups[name] = to
	}
	b.newcomers.remove(c)
	c.state, c.group = busy, to
	b.clients++
	to.held++
	return victim, nil
}

// victim is the client that closes for a new one of a group, nil where there is room. A group that holds its share
// closes one of its own, else the one closes that has most idle ones. It is the oldest of the peer that has most.
func (b *Bound) victim(name string) (*connection, error) {
	if own := b.groups[name]; name != "" && own != nil && own.held >= b.groupMax {
		if victim := own.idle.next(); victim != nil {
			return victim, nil
		}
		return nil, ErrShare
	}
	if b.clients < b.clientsMax {
		return nil, nil
	}
	var most *group
	for _, g := range b.groups {
		if g.idle.size > 0 && (most == nil || g.idle.size > most.idle.size) {
			most = g
		}
	}
	if most == nil {
		return nil, ErrFull
	}
	return most.idle.next(), nil
}

// bodyPatience is how long a request of Handler may take over its body.
const bodyPatience = 10 * time.Second

// Handler admits every request, for a server that does not say itself who is a client. It has bodies come at once.
func (b *Bound) Handler(next http.Handler) http.Handler {
	return http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		switch err := b.Admit(r.Context(), ""); {
		case errors.Is(err, ErrClosed):
			panic(http.ErrAbortHandler)
		case err != nil:
			w.Header().Set("Connection", "close")
			w.Header().Set("Retry-After", "1")
			http.Error(w, "too many requests are under way: come again", http.StatusServiceUnavailable)
		default:
			if r.ContentLength != 0 { // the server waits for the rest of a body, though no handler does
				_ = http.NewResponseController(w).SetReadDeadline(time.Now().Add(bodyPatience))
			}
			next.ServeHTTP(w, r)
		}
	})
}

// changed is the server's ConnState: clients between two requests are idle.
func (b *Bound) changed(c net.Conn, to http.ConnState) {
	own := ownOf(c)
	if own == nil {
		return
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	switch {
	case to == http.StateIdle && own.state == busy:
		own.state = idle
		own.group.idle.add(own)
		b.idle++
	case to == http.StateActive && own.state == idle:
		own.group.idle.remove(own)
		b.idle--
		own.state = busy
	}
}

// enter takes a newcomer in. It returns the one that is to close for it, if any.
func (b *Bound) enter(c *connection) (victim *connection) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.newcomers.add(c)
	if b.newcomers.size > b.newcomersMax {
		b.crowded++
		victim = b.newcomers.next()
		b.leave(victim)
	}
	return victim
}

// leave forgets a connection, whichever way it ends. b.mu is held.
func (b *Bound) leave(c *connection) {
	switch c.state {
	case newcomer:
		b.newcomers.remove(c)
	case idle:
		c.group.idle.remove(c)
		b.idle--
		b.clients--
		c.group.held--
	case busy:
		b.clients--
		c.group.held--
	}
	c.state = closed
}

// bounded is a listener whose connections are counted.
type bounded struct {
	net.Listener
	bound *Bound
}

// Accept returns the next connection.
func (l *bounded) Accept() (net.Conn, error) {
	plain, err := l.Listener.Accept()
	if err != nil {
		return nil, err
	}
	c := &connection{Conn: plain, bound: l.bound, from: peerOf(plain.RemoteAddr())}
	if victim := l.bound.enter(c); victim != nil {
		_ = victim.Conn.Close()
	}
	return c, nil
}

// state says what a connection counts as.
type state uint8

const (
	newcomer state = iota
	busy
	idle
	closed
)

// connection gives its place back when it closes.
type connection struct {
	net.Conn
	bound *Bound
	state state  // under bound.mu, as are its group and its place in a pool
	group *group // of a client, nil before
	seat
	from source
}

// ownOf is the connection below TLS; nil of another listener.
func ownOf(c net.Conn) *connection {
	if secured, ok := c.(interface{ NetConn() net.Conn }); ok {
		if below, ok := secured.NetConn().(*connection); ok {
			return below
		}
	}
	own, _ := c.(*connection)
	return own
}

// NetConn is the connection below, as that of tls.Conn.
func (c *connection) NetConn() net.Conn { return c.Conn }

// Close closes the connection.
func (c *connection) Close() error {
	c.bound.mu.Lock()
	c.bound.leave(c)
	c.bound.mu.Unlock()
	return c.Conn.Close()
}

// ReadFrom keeps the kernel's way from a file to a connection.
func (c *connection) ReadFrom(src io.Reader) (int64, error) {
	if to, ok := c.Conn.(io.ReaderFrom); ok {
		return to.ReadFrom(src)
	}
	return io.Copy(struct{ io.Writer }{c.Conn}, src)
}
