package api

import (
	"context"
	"encoding/json"
	"net/http"

	"github.com/headway-rl/headway/api/protocol"
)

const claimPath = "/api/v1/rollouts/claim"

// rolloutRoutes has the paths of environment workers.
func (s *Server) rolloutRoutes() {
	s.route("POST "+claimPath, RoleEnvironment, s.claimRollouts, takesWork)
	s.route("POST /api/v1/rollouts/{id}/sample", RoleEnvironment, rolloutCall(s, Rollouts.Sample, func(r *protocol.SampleRequest) *string { return &r.Secret }), tokensBody, takesSecret, replyAsIs)
	s.route("POST /api/v1/rollouts/{id}/touch", RoleEnvironment, rolloutCall(s, Rollouts.Touch, func(r *protocol.TouchRequest) *string { return &r.Secret }), takesSecret, replyAsIs)
	s.route("POST /api/v1/rollouts/{id}/finish", RoleEnvironment, rolloutCall(s, Rollouts.Finish, func(r *protocol.FinishRequest) *string { return &r.Secret }), tokensBody, takesSecret)
}

// claimRollouts waits for rollouts to play; 204 says that none came in time.
func (s *Server) claimRollouts(w http.ResponseWriter, r *http.Request) error {
	var req protocol.ClaimRequest
	var claims protocol.Claims
	port, err := s.rollouts()
	if err == nil {
		err = readWaiting(r, &req, &req.WaitS)
	}
	if err == nil {
		claims, err = port.Claim(r.Context(), req)
	}
	none := err == nil && len(claims.Rollouts) == 0
	if s.opt.URL != "" && (err != nil || none) { // others answer for the address: the worker's next call may come to one of them
		w.Header().Set("Connection", "close")
	}
	if err != nil {
		return err
	}
	if none {
		w.WriteHeader(http.StatusNoContent)
		return nil
	}
	s.keys.grant(&claims)
	return writeJSON(w, claims)
}

// claimedAgain takes a claim that is sent again, under its Idempotency-Key, for its worker's word to each rollout: the
// reply before may have been lost. A rollout that has ended meanwhile refuses the worker's next call.
func (s *Server) claimedAgain(ctx context.Context, request, reply []byte) {
	var req protocol.ClaimRequest
	var claims protocol.Claims
	port, err := s.rollouts()
	if err != nil || json.Unmarshal(request, &req) != nil || json.Unmarshal(reply, &claims) != nil {
		return
	}
	for i := range claims.Rollouts {
		_, _ = port.Touch(ctx, claims.Rollouts[i].ID, protocol.TouchRequest{Worker: req.Worker})
	}
}

// rolloutCall handles a call that names a claim in its path and proves by the claim's secret that it is
// the caller's. The port never sees the secret.
func rolloutCall[Request, Reply any](s *Server, call func(Rollouts, context.Context, string, Request) (Reply, error), secretOf func(*Request) *string) handler {
	return func(w http.ResponseWriter, r *http.Request) error {
		port, err := s.rollouts()
		if err != nil {
			return err
		}
		var req Request
		if err := readJSON(r, &req); err != nil {
			return err
		}
		var reply Reply
		id, secret := r.PathValue("id"), secretOf(&req)
		if err = s.keys.check(id, *secret); err == nil {
			*secret = ""
			reply, err = call(port, r.Context(), id, req)
		}
		return writeReply(w, reply, port.Lasting(r.Context(), id, err))
	}
}
