package api

import "github.com/headway-rl/headway/api/protocol"

// Names of the server's bounds in refusals, status and metrics.
const (
	boundBodies      = "bodies_bytes"
	boundConnections = "connections"
	boundNewcomers   = "newcomers"
	boundRequests    = "requests"
)

// Bounds says how full the server's bounds are.
func (s *Server) Bounds() []protocol.Bound {
	newcomers, clients := s.connections.Rooms()
	return []protocol.Bound{
		s.bodiesBound(),
		{Name: boundConnections, Held: int64(clients.Held), Max: int64(clients.Max), Binding: clients.Full, Refused: s.connectionsRefused.Load()},
		{Name: boundNewcomers, Held: int64(newcomers.Held), Max: int64(newcomers.Max), Binding: newcomers.Full, Refused: newcomers.Closed},
		s.requestsBound(),
	}
}

func (s *Server) bodiesBound() protocol.Bound {
	held := s.heldInAll.Load()
	binding := held >= s.opt.BodiesBytesMax
	for i := range s.held {
		binding = binding || s.held[i].Load() >= s.opt.BodiesBytesMax/2
	}
	return protocol.Bound{Name: boundBodies, Held: held, Max: s.opt.BodiesBytesMax, Binding: binding, Refused: s.bodiesRefused.Load()}
}

// requestsBound is of the role that has most under way.
func (s *Server) requestsBound() protocol.Bound {
	most := 0
	for _, slots := range s.busy {
		most = max(most, len(slots))
	}
	return protocol.Bound{Name: boundRequests, Held: int64(most), Max: int64(s.opt.RequestsMax), Binding: most >= s.opt.RequestsMax, Refused: s.requestsRefused.Load()}
}
