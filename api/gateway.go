package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
)

// gatewayRoutes has OpenAI's paths. Their replies are never kept under an Idempotency-Key: they are
// streams, and a turn whose client has left is taken back. Sampling takes a rollout's key, of everybody.
func (s *Server) gatewayRoutes() {
	s.completions("POST /v1/chat/completions", roleAgent, tokensBody|replyAsIs)
	s.completions("POST /v1/completions", roleAgent, tokensBody|replyAsIs)
	s.completions("GET /v1/models", roleAny|roleAgent, 0)
	s.completions("GET /v1/models/{id...}", roleAny|roleAgent, 0)
	s.completions("/v1/", roleAny|roleAgent, 0) // the gateway says what there is
}

// completions adds a path of the gateway. Its requests are admitted as all others are, and refused
// in the form that clients of OpenAI's API read.
func (s *Server) completions(pattern string, roles Role, flags flag) {
	s.handle(pattern, roles, flags, func(w http.ResponseWriter, r *http.Request) {
		own := r.Clone(r.Context()) // whose headers may be changed
		if err := s.guard(w, own, roles, flags, s.handToGateway); err != nil {
			s.failCompletion(w, r, err)
		}
	})
}

// failCompletion answers with an error in OpenAI's form, unless nobody reads it.
func (s *Server) failCompletion(w http.ResponseWriter, r *http.Request, err error) {
	if r.Context().Err() != nil && errors.Is(err, context.Canceled) {
		err = protocol.Refuse(protocol.CodeUnavailable, "the client left")
	}
	protocol.WriteCompletionError(w, refusalOf(err))
}

// handToGateway reads the body, whose limits are this server's, and hands the request over.
func (s *Server) handToGateway(w http.ResponseWriter, r *http.Request) error {
	gateway := s.ports().Gateway
	if gateway == nil {
		return s.absent("agents that speak OpenAI's API sample", "environment.kind: remote")
	}
	text, err := io.ReadAll(r.Body)
	if err != nil {
		return err
	}
	r.Header.Del("Authorization") // it is the request's own copy, and secrets end here
	held, _ := r.Context().Value(heldKey{}).(*held)
	r.Body = &handedBody{bytes.NewReader(text), held}
	gateway.ServeHTTP(w, r)
	return nil
}

// handedBody is a body in memory. Closing it says that it is decoded.
type handedBody struct {
	*bytes.Reader
	held *held
}

// Close leaves room for what is made of the body, until the request has ended.
func (b *handedBody) Close() error {
	if b.held != nil {
		b.held.keep(chatFactor * b.held.text)
	}
	b.Reader = bytes.NewReader(nil) // its text is not needed any more
	return nil
}

// portsCollector has the metrics of the gateway and the sandboxes, whichever are mounted at the moment.
type portsCollector struct{ ports func() *Ports }

// Describe names nothing: which metrics there are is theirs.
func (portsCollector) Describe(chan<- *prometheus.Desc) {}

// Collect asks them, where they are.
func (c portsCollector) Collect(ch chan<- prometheus.Metric) {
	ports := c.ports()
	if gateway, ok := ports.Gateway.(prometheus.Collector); ok {
		gateway.Collect(ch)
	}
	if ports.Sandboxes != nil {
		ports.Sandboxes.Collect(ch)
	}
}
