package api

import (
	"context"
	"net/http"

	"github.com/headway-rl/headway/api/protocol"
)

// nextSending takes the sender's word and waits for what it is to do. It goes on through a drain, in
// which engines still change weights, and ends when the server closes.
func (s *Server) nextSending(w http.ResponseWriter, r *http.Request) error {
	port := s.ports().Senders
	if port == nil {
		return s.absent("weights are sent to engines", "an engine with weights: distributed")
	}
	var req protocol.SenderRequest
	if err := readWaiting(r, &req, &req.WaitS); err != nil {
		return err
	}
	ctx, cancel := s.untilEnding(r)
	defer cancel()
	reply, err := port.Next(ctx, r.PathValue("name"), req)
	return writeReply(w, reply, err)
}

// untilEnding is the context of a call that waits through a drain, and ends when the server closes.
func (s *Server) untilEnding(r *http.Request) (ctx context.Context, cancel func()) {
	ctx, end := context.WithCancelCause(r.Context())
	stop := context.AfterFunc(s.ending, func() { end(errDraining) })
	return ctx, func() { stop(); end(nil) }
}
