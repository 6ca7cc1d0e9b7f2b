package api

import (
	"encoding/hex"
	"net/http"
	"net/netip"

	"github.com/headway-rl/headway/api/protocol"
)

// receiverRoutes has the paths of engines' stages on other nodes: their commands, and
// the chunks of a version that its first receivers fetch from here.
func (s *Server) receiverRoutes() {
	s.route("POST /api/v1/receivers/{name}", RoleEngine, s.nextCommand, replyAsIs)
	s.route("GET /api/v1/transfer/{version}", RoleEngine, s.chunks)
	s.route("GET /api/v1/transfer/{version}/chunks", RoleEngine, s.chunks)
}

// nextCommand takes a receiver's word and waits for what it is to do.
func (s *Server) nextCommand(w http.ResponseWriter, r *http.Request) error {
	port := s.ports().Receivers
	if port == nil {
		return s.absent("engines on other nodes receive weights", "a run that keeps weights")
	}
	var req protocol.ReceiverRequest
	if err := readWaiting(r, &req, &req.WaitS); err != nil {
		return err
	}
	req.Caller = callerOf(w, r)
	ctx, cancel := s.untilEnding(r)
	defer cancel()
	command, err := port.Next(ctx, r.PathValue("name"), req)
	return writeReply(w, command, err)
}

func (s *Server) chunks(w http.ResponseWriter, r *http.Request) error {
	port := s.ports().Chunks
	if port == nil {
		return s.absent("versions are passed on", "a run that keeps weights")
	}
	port.ServeHTTP(w, r)
	return nil
}

// callerOf says who sent a request that has been admitted.
func callerOf(w http.ResponseWriter, r *http.Request) protocol.Caller {
	var out protocol.Caller
	if address, err := netip.ParseAddrPort(r.RemoteAddr); err == nil {
		out.Peer = address.Addr().Unmap()
	}
	if reply, ok := w.(*reply); ok && reply.role != 0 {
		out.Role, out.Token = reply.role.String(), hex.EncodeToString(reply.token[:8])
	}
	return out
}
