package api

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"runtime/debug"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/internal/connections"
)

// handler answers a request or returns why not; it has written nothing where it returns an error,
// unless the reply broke off.
type handler func(w http.ResponseWriter, r *http.Request) error

// flag says what is special about a path.
type flag uint8

const (
	// takesWork: it is refused, and its context ends, when the server drains.
	takesWork flag = 1 << iota
	// largeBody: its body is bounded by WeightsBytesMax, and it is never held in memory.
	largeBody
	// tokensBody: its body may hold tokens and texts and is bounded by BodyBytesMax; others by a mebibyte.
	tokensBody
	// replyAsIs: it is idempotent by what it names (a lease, a version, a turn), and its reply is never kept under an
	// Idempotency-Key. Its bodies are too large, or doing it anew is the point: a renewal or a sample that was
	// only answered again would renew nothing.
	replyAsIs
	// always: it is answered by a standby, too.
	always
	// takesSecret: its body proves by the claim's secret whose the rollout is.
	takesSecret
	// unbounded: it does not count among its role's requests; it has a bound of its own.
	unbounded
	// reserved: it is answered although every place for connections and requests is taken, so that an
	// operator sees why.
	reserved
)

// route adds a path for some roles; the admin's is always among them.
func (s *Server) route(pattern string, roles Role, h handler, flags ...flag) {
	var all flag
	for _, f := range flags {
		all |= f
	}
	roles |= RoleAdmin
	s.handle(pattern, roles, all, func(w http.ResponseWriter, r *http.Request) {
		if err := s.guard(w, r, roles, all, h); err != nil {
			s.fail(w, r, err)
		}
	})
}

// serve stands before every path: what a request must not be, whatever it asks for, and
// what is counted and logged of it.
func (s *Server) serve(w http.ResponseWriter, r *http.Request) {
	started := s.opt.Clock()
	reply := s.newReply(w, r)
	body := s.paceBody(reply, r)
	defer func() {
		thrown := recover()
		if thrown != nil && thrown != http.ErrAbortHandler {
			s.opt.Logf("api: defect: %s %s: panic: %v\n%s", r.Method, routeOf(r), thrown, debug.Stack())
			if !reply.began {
				writeError(reply, protocol.Refuse(protocol.CodeInternal, "a defect of the server: its log has the place"))
				thrown = nil
			} else {
				thrown = http.ErrAbortHandler
			}
		}
		body.leave(r)
		reply.extend()
		s.account(r, reply, s.opt.Clock().Sub(started))
		if thrown != nil {
			panic(thrown)
		}
	}()
	if err := s.plausible(r); err != nil {
		writeError(reply, err)
		return
	}
	s.mux.ServeHTTP(reply, r)
}

// plausible refuses what no client of this API sends: a path that climbs, a browser led
// here by a foreign page or name, a secret in an address.
func (s *Server) plausible(r *http.Request) error {
	if err := checkPath(r); err != nil {
		return err
	}
	if s.opt.Tokens == nil && !loopbackHost(r.Host) {
		return protocol.Refuse(protocol.CodeForbidden, "the Host header names %.100q: a server without tokens answers to localhost, 127.0.0.1 and [::1] alone. Give it a token file to use other names", r.Host)
	}
	if s.origins.Check(r) != nil { // lets reading pass: guard does not
		return errForeignPage
	}
	for _, name := range []string{"token", "access_token"} {
		if r.URL.RawQuery != "" && r.URL.Query().Has(name) {
			return protocol.Refuse(protocol.CodeInvalid, "a token stands in the address, where logs and histories keep it: send it as the header Authorization: Bearer TOKEN, and replace this one")
		}
	}
	return nil
}

// errForeignPage is what a browser is told that asks on behalf of a page from elsewhere.
var errForeignPage = protocol.Refuse(protocol.CodeForbidden, "the request comes from a page of another origin: this API is not for foreign pages")

// foreign reports whether a browser asks on behalf of a foreign page, to read. Such a page never sees the answer,
// but each one costs work, and a stream takes one of few places.
func (s *Server) foreign(r *http.Request) bool {
	if r.Method != http.MethodGet && r.Method != http.MethodHead {
		return false // plausible has asked
	}
	return s.origins.Check(&http.Request{Method: http.MethodPost, Host: r.Host, Header: r.Header, URL: r.URL}) != nil
}

// checkPath refuses every path that is not plainly itself, before any part of it is used.
func checkPath(r *http.Request) error {
	path, escaped := r.URL.Path, strings.ToLower(r.URL.EscapedPath())
	climbs := !strings.HasPrefix(path, "/") || strings.Contains(path, "//")
	for part := range strings.SplitSeq(path, "/") {
		climbs = climbs || part == "." || part == ".."
	}
	slash := strings.Contains(escaped, "%2f") && !strings.HasPrefix(path, "/v1/models/") // names of models have slashes
	hidden := slash || strings.Contains(escaped, "%5c") || strings.Contains(path, "\\")
	control := strings.ContainsFunc(path, func(c rune) bool { return c < ' ' || c == 0x7f || c == 0xfffd })
	if climbs || hidden || control {
		return protocol.Refuse(protocol.CodeInvalid, "the path has empty, climbing or hidden parts: want the plain path of the API")
	}
	return nil
}

// loopbackHost reports whether a Host header names this machine.
func loopbackHost(host string) bool {
	if name, _, err := net.SplitHostPort(host); err == nil {
		host = name
	}
	host = strings.Trim(host, "[]")
	if strings.EqualFold(host, "localhost") {
		return true
	}
	ip := net.ParseIP(host)
	return ip != nil && ip.IsLoopback()
}

// guard asks who it is and whether there is room, and runs the handler.
func (s *Server) guard(w http.ResponseWriter, r *http.Request, roles Role, flags flag, h handler) error {
	if s.foreign(r) {
		return errForeignPage
	}
	who, err := s.admit(w, r, roles)
	if err != nil {
		return err
	}
	if reply, ok := w.(*reply); ok {
		reply.role, reply.token = who.role, who.token
	}
	if err := s.place(w, r, who.role, flags); err != nil {
		return err
	}
	if flags&always == 0 {
		if err := s.ports().Plane.Ready(); err != nil {
			return notReady(err)
		}
	}
	if flags&(unbounded|reserved) == 0 {
		leave, err := s.enter(who.role)
		if err != nil {
			return err
		}
		defer leave()
	}
	if who.rollout != "" {
		leave, err := s.enterRollout(who.rollout)
		if err != nil {
			return err
		}
		defer leave()
	}
	if flags&takesWork != 0 {
		if s.draining() {
			return errDraining
		}
		ctx, cancel := context.WithCancelCause(r.Context())
		defer cancel(nil)
		defer context.AfterFunc(s.working, func() { cancel(errDraining) })()
		r = r.WithContext(ctx)
	}
	r, bytes := s.holding(r, who.role)
	defer bytes.release()
	if err := s.boundBody(w, r, flags, bytes); err != nil {
		return err
	}
	if key := r.Header.Get("Idempotency-Key"); key != "" && flags&replyAsIs == 0 && r.Method != http.MethodGet && r.Method != http.MethodHead {
		return s.once(w, r, who, key, h)
	}
	return h(w, r)
}

// caller is who asks.
type caller struct {
	role Role
	// token tells one token from another, also after their file has been read again; zero where none is asked for.
	token tokenID
	// rollout is the one whose key was shown; empty for all others.
	rollout string
}

// admit finds out who asks and whether the roles of a path have it.
func (s *Server) admit(w http.ResponseWriter, r *http.Request, roles Role) (caller, error) {
	var secret []byte
	if header := r.Header.Values("Authorization"); len(header) == 1 {
		secret = bearer(header[0])
	}
	if _, _, ok := cutKey(string(secret)); ok {
		return s.admitAgent(r, string(secret), roles)
	}
	r.Header.Del(protocol.RolloutHeader) // only a key names a rollout
	if roles == roleAgent {
		return caller{}, s.noKey(w, string(secret))
	}
	if s.opt.Tokens == nil {
		return caller{}, nil
	}
	if secret == nil {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return caller{}, protocol.Refuse(protocol.CodeUnauthorized, "no token: send the header Authorization: Bearer TOKEN")
	}
	role, token := s.opt.Tokens.find(secret)
	if role == 0 {
		w.Header().Set("WWW-Authenticate", "Bearer")
		return caller{}, protocol.Refuse(protocol.CodeUnauthorized, "the token is not known: want one of the server's token file, which is read again when it changes")
	}
	if role&roles == 0 {
		return caller{}, protocol.Refuse(protocol.CodeForbidden, "a token of role %s may not do this: it takes %s", role, roles).With("role", role.String())
	}
	return caller{role: role, token: token}, nil
}

// place counts the connection of a caller that is known among those of clients. Where there are tokens, those of one
// role may have half, so that no viewer keeps workers and trainers out.
func (s *Server) place(w http.ResponseWriter, r *http.Request, role Role, flags flag) error {
	group := ""
	if s.opt.Tokens != nil {
		group = role.String()
	}
	switch err := s.connections.Admit(r.Context(), group); {
	case errors.Is(err, connections.ErrClosed):
		panic(http.ErrAbortHandler) // the client asks again: nothing is done over a connection that has no answer
	case err != nil && flags&reserved == 0:
		w.Header().Set("Connection", "close")
		s.connectionsRefused.Add(1)
		if errors.Is(err, connections.ErrShare) {
			return protocol.Refuse(protocol.CodeBusy, "bound %s: role %s has requests under way on half of %d: ask again when some have ended", boundConnections, role, s.opt.ConnectionsMax).
				With("bound", boundConnections).With("connections_max", s.opt.ConnectionsMax)
		}
		return protocol.Refuse(protocol.CodeBusy, "bound %s: a request is under way on each of those that clients may have, of %d in all: ask again when some have ended", boundConnections, s.opt.ConnectionsMax).
			With("bound", boundConnections).With("connections_max", s.opt.ConnectionsMax)
	}
	return nil
}

// enter counts a request among its role's.
func (s *Server) enter(role Role) (leave func(), err error) {
	slots := s.busy[roleIndex(role)]
	select {
	case slots <- struct{}{}:
		return func() { <-slots }, nil
	default:
		s.requestsRefused.Add(1)
		return nil, protocol.Refuse(protocol.CodeBusy, "bound %s: %d of this role are under way: wait for some of them", boundRequests, s.opt.RequestsMax).
			With("bound", boundRequests).With("requests_max", s.opt.RequestsMax)
	}
}

// roleIndex is the place of a role's bounds; the last is of requests without a token.
func roleIndex(role Role) int {
	for i := range roleNames {
		if role == 1<<i {
			return i
		}
	}
	return len(roleNames)
}

func notReady(err error) error {
	if refusal, ok := errors.AsType[*protocol.Refusal](err); ok {
		return refusal
	}
	return protocol.Refuse(protocol.CodeUnavailable, "%v", err)
}

// fail answers with a handler's error, and logs those that an operator can do something about.
func (s *Server) fail(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && s.working.Err() == nil && errors.Is(err, context.Canceled) {
		err = protocol.Refuse(protocol.CodeUnavailable, "the client left") // nobody reads this
	} else if errors.Is(err, context.Canceled) && s.draining() {
		err = errDraining
	}
	if refusal := refusalOf(err); !errors.Is(err, ErrRunEnded) && (refusal.Code == protocol.CodeInternal || refusal.Code == protocol.CodeDiskFull) {
		s.opt.Logf("api: %s %s: %v", r.Method, routeOf(r), err)
	}
	if reply, ok := w.(*reply); ok && reply.began {
		panic(http.ErrAbortHandler) // the status is out: a reply that breaks off must look like one
	}
	writeError(w, err)
}

// nowhere answers paths that are not there, and methods that a path does not have.
func (s *Server) nowhere(w http.ResponseWriter, r *http.Request) {
	refusal := protocol.Elsewhere(w, r, s.mux)
	if refusal == nil {
		refusal = protocol.Refuse(protocol.CodeNotFound, "no such path: the API's begin with /api/v1/, and GET /api/v1/status says what this server is")
	}
	writeError(w, refusal)
}

// routeOf is a request's pattern without its method: a bounded set of words.
func routeOf(r *http.Request) string {
	_, path, ok := strings.Cut(r.Pattern, " ")
	if !ok {
		return "other"
	}
	return path
}

// account counts and logs a request that has ended. Its query and headers are never logged.
func (s *Server) account(r *http.Request, reply *reply, took time.Duration) {
	s.metrics.request(routeOf(r), reply.status, took)
	if s.opt.Debugf == nil {
		return
	}
	who := "-"
	if reply.role != 0 {
		who = reply.role.String()
	}
	line := fmt.Sprintf("api: %s %.200q %d %d bytes %.1f ms %s", r.Method, unsigned(r.URL.EscapedPath()), reply.status, reply.bytes, float64(took.Microseconds())/1000, who)
	if reply.payload != nil {
		line += fmt.Sprintf(" body %q", unsigned(string(reply.payload)))
	}
	s.opt.Debugf("%s", line)
}
