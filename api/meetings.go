package api

import (
	"net/http"

	"github.com/headway-rl/headway/api/protocol"
)

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
	req.Caller = callerOf(w, r)
	reply, err := port.Join(r.Context(), r.PathValue("name"), req)
	return writeReply(w, reply, err)
}
