package api

import "github.com/headway-rl/headway/api/protocol"

// Names of the server's bounds in refusals, status and metrics.
const boundBodies = "bodies_bytes"

// bounds says how full the server's bounds are.
func (s *Server) bounds() []protocol.Bound {
	held := s.heldInAll.Load()
	binding := held >= s.opt.BodiesBytesMax
	for i := range s.held {
		binding = binding || s.held[i].Load() >= s.opt.BodiesBytesMax/2
	}
	return []protocol.Bound{{Name: boundBodies, Held: held, Max: s.opt.BodiesBytesMax, Binding: binding, Refused: s.bodiesRefused.Load()}}
}
