package api

import (
	"net/http"

	"github.com/headway-rl/headway/api/protocol"
)

// meetingRoutes has the paths over which collectives come together.
func (s *Server) meetingRoutes() {
	s.route("POST /api/v1/rendezvous/{name}", RoleTrainer|RoleEngine, s.joinMeeting, takesWork)
}

// joinMeeting waits until all members of a collective are there.
func (s *Server) joinMeeting(w http.ResponseWriter, r *http.Request) error {
	port, err := s.meetings()
	if err != nil {
		return err
	}
	var req protocol.RendezvousRequest
	if err := readWaiting(r, &req, &req.WaitS); err != nil {
		return err
	}
	reply, err := port.Join(r.Context(), r.PathValue("name"), req)
	if err != nil {
		return err
	}
	return writeJSON(w, reply)
}
