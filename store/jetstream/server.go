package jetstream

import (
	"errors"
	"fmt"
	"net"
	"net/url"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"

	"github.com/headway-rl/headway/store/lock"
)

const (
	// embeddedPayloadMax is the largest message of an embedded server, in bytes. More is
	// possible, but a message is held in memory several times on its way.
	embeddedPayloadMax = 8 << 20
	// pendingMax is how much an embedded server holds for a connection that reads slowly.
	pendingMax = 512 << 20
	// readyTimeout is how long an embedded server may take to say that it has started, once it has returned from that.
	readyTimeout = time.Second
)

// embedded is a server inside this process.
type embedded struct {
	options  Options
	lock     *lock.Lock
	entrance *entrance // nil for a server that does not listen

	mutex   sync.Mutex
	server  *server.Server // nil while there is none
	log     *serverLog     // of that server
	stopped bool
}

// startEmbedded starts a server in o.Dir, which is locked for this process.
func startEmbedded(o Options) (*embedded, error) {
	if err := os.MkdirAll(o.Dir, 0o700); err != nil {
		return nil, fmt.Errorf("store: %w", err)
	}
	held, err := lock.Take(filepath.Join(o.Dir, "lock"), o.Dir)
	if err != nil {
		return nil, err
	}
	e := &embedded{options: o, lock: held}
	if o.Listen != "" {
		e.entrance, err = openEntrance(o)
	}
	if err == nil {
		e.server, e.log, err = newServer(o, e.entrance)
	}
	if err != nil {
		held.Release()
		return nil, err
	}
	return e, nil
}

// newServer starts a server, which verifies its files first, however long that takes. One that cannot begin returns from
// its start as one that has, and is never ready: to wait for it would be in vain.
func newServer(o Options, e *entrance) (*server.Server, *serverLog, error) {
	options := &server.Options{
		ServerName: "headway",
		DontListen: true,
		NoLog:      true,
		NoSigs:     true,
		MaxPayload: embeddedPayloadMax,
		MaxPending: pendingMax,
		JetStream:  true,
		StoreDir:   o.Dir,
		SyncAlways: o.Always,
		// What a run may take is bounded by its streams, not by a share of the disk.
		JetStreamMaxStore:  1 << 60,
		JetStreamMaxMemory: 64 << 20,
		WriteDeadline:      time.Minute,
	}
	if e != nil {
		if err := e.listenOn(options, o); err != nil {
			return nil, nil, err
		}
	}
	s, err := server.NewServer(options)
	if err != nil {
		return nil, nil, fmt.Errorf("store: embedded NATS server in %s: %w", o.Dir, err)
	}
	log := new(serverLog)
	s.SetLogger(log, false, false)
	s.Start()
	if !s.ReadyForConnections(readyTimeout) || !s.JetStreamEnabled() {
		s.Shutdown()
		s.WaitForShutdown()
		return nil, nil, fmt.Errorf("store: the embedded NATS server in %s does not start: see whether its files can be read and written", o.Dir)
	}
	return s, log, nil
}

// serverLog takes what a server logs, and keeps why its first write failed.
type serverLog struct{ failed atomic.Pointer[string] }

// Errorf implements server.Logger. The log alone tells of every such write: the server's health leaves out those of deletions.
func (l *serverLog) Errorf(format string, args ...any) {
	if strings.Contains(format, "ritical write error") {
		text := fmt.Sprintf(format, args...)
		l.failed.CompareAndSwap(nil, &text)
	}
}

func (*serverLog) Noticef(string, ...any) {}
func (*serverLog) Warnf(string, ...any)   {}
func (*serverLog) Fatalf(string, ...any)  {}
func (*serverLog) Debugf(string, ...any)  {}
func (*serverLog) Tracef(string, ...any)  {}

// InProcessConn implements nats.InProcessConnProvider: a connection finds the server that
// took the place of the one it was made to.
func (e *embedded) InProcessConn() (net.Conn, error) {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.server == nil {
		return nil, errors.New("the embedded NATS server is not running")
	}
	return e.server.InProcessConn()
}

// failure says why the server takes no more writes, "" while it does: one whose write has
// failed, for lack of room or else, answers none from then on, and does not try again.
func (e *embedded) failure() string {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	switch {
	case e.stopped:
		return ""
	case e.server == nil:
		return "it does not run"
	case !e.server.JetStreamEnabled():
		return "it has turned JetStream off"
	}
	if failed := e.log.failed.Load(); failed != nil {
		return *failed
	}
	return ""
}

// restart starts the server anew, on what its files hold: all that it had answered for.
func (e *embedded) restart() error { return e.restartAfter(func() error { return nil }) }

// restartAfter does something to the files of the server while it is stopped, and starts it anew.
func (e *embedded) restartAfter(do func() error) error {
	e.mutex.Lock()
	defer e.mutex.Unlock()
	if e.stopped {
		return ErrClosed
	}
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
	failed := do()
	var err error
	e.server, e.log, err = newServer(e.options, e.entrance)
	return errors.Join(failed, err)
}

// stop ends the server and waits for its files to be closed.
func (e *embedded) stop() {
	if e == nil {
		return
	}
	e.mutex.Lock()
	defer e.mutex.Unlock()
	e.stopped = true
	if e.server != nil {
		e.server.Shutdown()
		e.server.WaitForShutdown()
	}
	e.lock.Release()
}

const (
	// pingEvery and pingsMissed are how often a server is asked whether it is there, and how many answers may be missing. One that
	// hangs, or whose machine is gone, is noticed after 10 to 15 seconds.
	pingEvery   = 5 * time.Second
	pingsMissed = 2
)

// refusedEvery is the least time between two words of one connection that the server does not let it in.
const refusedEvery = time.Minute

// complaints says the errors of a connection.
func complaints(logf func(format string, args ...any)) nats.ErrHandler {
	var refused atomic.Int64 // when that was said last
	return func(_ *nats.Conn, _ *nats.Subscription, err error) {
		for _, e := range []error{nats.ErrAuthorization, nats.ErrAuthExpired, nats.ErrAuthRevoked, nats.ErrAccountAuthExpired} {
			if !errors.Is(err, e) {
				continue
			}
			now, last := time.Now().UnixNano(), refused.Load()
			if last != 0 && now-last < refusedEvery.Nanoseconds() || !refused.CompareAndSwap(last, now) {
				return
			}
		}
		logf("store: NATS: %v", err)
	}
}

// ErrRefused is wrapped where the servers do not let this process in.
var ErrRefused = nats.ErrAuthorization

// dial opens a connection to the embedded server or to the cluster, with more options.
func dial(o Options, e *embedded, what string, more []nats.Option) (*nats.Conn, error) {
	options := append([]nats.Option{
		nats.Name("headway " + o.Run + " " + what),
		nats.MaxReconnects(-1),
		nats.ReconnectWait(100 * time.Millisecond),
		nats.PingInterval(pingEvery),
		nats.MaxPingsOutstanding(pingsMissed),
		// What could not be sent is sent again by whoever asked for it, and not from a buffer too.
		nats.ReconnectBufSize(-1),
		// A server may not know its users for a moment: behind a restart, or before a file of credentials is written anew.
		nats.IgnoreAuthErrorAbort(),
		nats.ErrorHandler(complaints(o.Logf)),
	}, more...)
	servers := o.URL
	if e != nil {
		servers = ""
		options = append(append(options, nats.InProcessServer(e)), e.entrance.enter()...)
	}
	if o.Credentials != "" {
		options = append(options, nats.UserCredentials(o.Credentials))
	}
	if o.TLSCA != "" {
		options = append(options, nats.RootCAs(o.TLSCA))
	}
	if o.TLSCert != "" {
		options = append(options, nats.ClientCert(o.TLSCert, o.TLSKey))
	}
	conn, err := nats.Connect(servers, options...)
	if errors.Is(err, nats.ErrNoServers) {
		err = fmt.Errorf("%w: see whether store.nats.url names servers that run", err)
	}
	if _, wrong := errors.AsType[*url.Error](err); wrong { // it quotes the address, with its password
		err = errors.New("an address is none: in a user and a password, signs that mean something in one are written by their number, such as %25 for %")
	}
	if err != nil {
		return nil, fmt.Errorf("store: connecting to NATS at %q: %w", withoutPasswords(o.URL), err)
	}
	return conn, nil
}

// withoutPasswords are the addresses of servers without the users and passwords in them.
func withoutPasswords(servers string) string {
	all := strings.Split(servers, ",")
	for i, server := range all {
		scheme, rest, said := strings.Cut(server, "://")
		if !said {
			scheme, rest = "", server
		} else {
			scheme += "://"
		}
		all[i] = scheme + rest[strings.LastIndex(rest, "@")+1:]
	}
	return strings.Join(all, ",")
}
