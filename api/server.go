package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"sync"
	"sync/atomic"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/connections"
)

// Server answers the API's paths over its ports. It is safe for concurrent use.
type Server struct {
	opt     Options
	mounted atomic.Pointer[Ports]
	mux     *http.ServeMux
	origins *http.CrossOriginProtection
	replies *replies
	keys    *claimKeys
	// endpoints are all that is answered, in the order in which they were added.
	endpoints []endpoint
	metrics   *metrics
	streams   chan struct{}
	// followers are the subscribers of the event stream by role, as busy.
	followers [len(roleNames) + 1]atomic.Int64
	// busy has a semaphore for each role; the last is of requests without a token.
	busy [len(roleNames) + 1]chan struct{}

	// calls has the calls under way with the keys of rollouts, by rollout.
	callsMu sync.Mutex
	calls   map[string]int

	connections                         *connections.Bound
	connectionsRefused, requestsRefused atomic.Int64

	// held has the bytes of memory that bodies take, by role as busy, and heldInAll those of all.
	held                     [len(roleNames) + 1]atomic.Int64
	heldInAll, bodiesRefused atomic.Int64

	// working ends when no more work is given out, ending when the server closes.
	working, ending         context.Context
	stopWorking, stopEnding context.CancelCauseFunc
	serving                 sync.Once
}

// errDraining is the cause with which requests that wait for work end.
var errDraining = protocol.Refuse(protocol.CodeUnavailable, "the control plane is draining and gives out no more work: ask again after it has restarted, or another one")

// New returns a server over the ports. Ports other than Plane may be nil until Mount.
func New(options Options, ports Ports) (*Server, error) {
	if err := options.validate(); err != nil {
		return nil, err
	}
	s := &Server{opt: options.withDefaults(), mux: http.NewServeMux(), origins: http.NewCrossOriginProtection()}
	s.keys = newClaimKeys(s.opt.Run, s.opt.URL)
	if err := s.Mount(ports); err != nil {
		return nil, err
	}
	s.replies = newReplies(s.opt)
	s.calls = map[string]int{}
	s.metrics = newMetrics(s.opt, s.current)
	s.metrics.registry.MustRegister(portsCollector{s.ports}, prometheus.NewCounterFunc(prometheus.CounterOpts{Name: "headway_http_connections_refused_total",
		Help: "Connections closed or refused because too many were open."}, func() float64 {
		newcomers, clients := s.connections.Rooms()
		return float64(newcomers.Closed + clients.Closed + s.connectionsRefused.Load())
	}))
	s.streams = make(chan struct{}, s.opt.StreamsMax)
	s.connections = connections.New(s.opt.ConnectionsMax)
	for i := range s.busy {
		s.busy[i] = make(chan struct{}, s.opt.RequestsMax)
	}
	s.working, s.stopWorking = context.WithCancelCause(context.Background())
	s.ending, s.stopEnding = context.WithCancelCause(context.Background())
	s.planeRoutes()
	s.trainerRoutes()
	s.rolloutRoutes()
	s.route("POST /api/v1/rendezvous/{name}", RoleTrainer|RoleEngine, s.joinMeeting, takesWork)
	s.receiverRoutes()
	// A sender lists the tensors of a version, which may be many.
	s.route("POST /api/v1/senders/{name}", RoleTrainer, s.nextSending, replyAsIs, tokensBody)
	s.route("POST /api/v1/settings/{name}", RoleAdmin, s.requestSetting)
	s.gatewayRoutes()
	s.handle("/", 0, always, s.nowhere)
	return s, nil
}

// Mount replaces the ports, as when a standby becomes the writer.
func (s *Server) Mount(ports Ports) error {
	if ports.Plane == nil {
		return errors.New("api: the plane's port is nil: a server always has a status to show")
	}
	if ports.Signing != nil {
		s.keys.secret.Store(ports.Signing)
	}
	s.mounted.Store(&ports)
	return nil
}

// ports returns the ports of the moment.
func (s *Server) ports() *Ports { return s.mounted.Load() }

// trainers returns its port, or the refusal of a run that has none. So do the next three.
func (s *Server) trainers() (Trainers, error) {
	if port := s.ports().Trainers; port != nil {
		return port, nil
	}
	return nil, s.absent("trainers lease batches", "trainer.kind: remote")
}

func (s *Server) versions() (Versions, error) {
	if port := s.ports().Versions; port != nil {
		return port, nil
	}
	return nil, s.absent("weights are read", "a run that keeps weights")
}

func (s *Server) rollouts() (Rollouts, error) {
	if port := s.ports().Rollouts; port != nil {
		return port, nil
	}
	return nil, s.absent("workers play rollouts", "environment.kind: remote")
}

func (s *Server) meetings() (Meetings, error) {
	if port := s.ports().Meetings; port != nil {
		return port, nil
	}
	return nil, s.absent("collectives meet", "a run whose weights go by rendezvous")
}

// absent is the refusal of what has no port in this process.
func (s *Server) absent(what, wanted string) *protocol.Refusal {
	if s.opt.Cell != "" {
		return protocol.Refuse(protocol.CodeNotFound, "this is cell %s of the run, and has no port over which %s: ask the control plane", s.opt.Cell, what)
	}
	return protocol.Refuse(protocol.CodeNotFound, "this run has no port over which %s: it takes %s in its document", what, wanted)
}

// Handler returns the server's paths with everything that stands before them but the
// limits of connections and headers, which are Serve's.
func (s *Server) Handler() http.Handler { return http.HandlerFunc(s.serve) }

// Drain stops giving out work. Requests that take or wait for some are CodeUnavailable from now on,
// and the server is not ready; all others go on. It may be called more than once.
func (s *Server) Drain() { s.stopWorking(errDraining) }

// draining reports whether Drain was called.
func (s *Server) draining() bool { return s.working.Err() != nil }

// CheckListen reports whether an address may be listened on: without tokens only loopback.
func CheckListen(address string, tokens bool) error {
	if tokens {
		return nil
	}
	host, _, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Errorf("api: %q is no address: %w: want HOST:PORT such as 127.0.0.1:7070", address, err)
	}
	if host == "localhost" {
		return nil
	}
	if ip := net.ParseIP(host); ip == nil || !ip.IsLoopback() {
		return fmt.Errorf("api: %s can be reached from other machines, and there is no token file: anybody could take batches and publish weights. Name one with --token-file (lines \"ROLE TOKEN\"), or listen on 127.0.0.1", address)
	}
	return nil
}

// Serve answers on the listener until the context ends, then drains. It gives out no more work,
// lets running requests end for at most Options.Drain, and closes. To let a train step end first,
// call Drain, wait for it, and then end the context: until then trainers and workers are still
// heard. It closes the listener and may be called once.
func (s *Server) Serve(ctx context.Context, listener net.Listener) error {
	err := errors.New("api: Serve was called twice")
	s.serving.Do(func() { err = s.listen(ctx, listener) })
	return err
}

func (s *Server) listen(ctx context.Context, listener net.Listener) error {
	if _, ok := listener.Addr().(*net.TCPAddr); ok {
		if err := CheckListen(listener.Addr().String(), s.opt.Tokens != nil); err != nil {
			listener.Close()
			return err
		}
	}
	server := s.httpServer()
	served := make(chan error, 1)
	accepted := listener
	if s.opt.RawIO {
		accepted = rawListener{listener}
	}
	go func() { served <- s.connections.Serve(server, accepted) }()
	select {
	case err := <-served:
		s.Drain()
		s.stopEnding(errDraining)
		return fmt.Errorf("api: listening on %s: %w", listener.Addr(), err)
	case <-ctx.Done():
	}
	s.Drain()
	s.stopEnding(errDraining)
	grace, cancel := context.WithTimeout(context.WithoutCancel(ctx), s.opt.Drain)
	defer cancel()
	if err := server.Shutdown(grace); err != nil {
		s.opt.Logf("api: requests still ran %s after the end; their connections are cut", s.opt.Drain)
		server.Close()
	}
	<-served
	return nil
}

// httpServer is the standard library's, under this server's limits. HTTP/1.1 alone: one
// request a connection at a time is what its limits count.
func (s *Server) httpServer() *http.Server {
	server := &http.Server{
		Handler:           s.Handler(),
		TLSConfig:         s.opt.TLS.Clone(),
		ReadHeaderTimeout: s.opt.HeaderPatience,
		IdleTimeout:       2 * s.opt.BodyPatience,
		MaxHeaderBytes:    s.opt.HeaderBytesMax,
		Protocols:         new(http.Protocols),
		ErrorLog:          s.connectionLog(),
		ConnContext:       withConnection,
	}
	server.Protocols.SetHTTP1(true)
	return server
}
