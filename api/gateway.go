package api

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
)

// gatewayRoutes has OpenAI's paths. Their replies are never kept under an Idempotency-Key: they are
// streams, and a turn whose client has left is taken back.
func (s *Server) gatewayRoutes() {
	s.completions("POST /v1/chat/completions", RoleEnvironment, tokensBody|replyAsIs)
	s.completions("POST /v1/completions", RoleEnvironment, tokensBody|replyAsIs)
	s.completions("GET /v1/models", roleAny, 0)
	s.completions("GET /v1/models/{id...}", roleAny, 0)
	s.completions("/v1/", roleAny, 0) // the gateway says what there is
}

// completions adds a path of the gateway. Its requests are admitted as all others are, and refused
// in the form that clients of OpenAI's API read.
func (s *Server) completions(pattern string, roles Role, flags flag) {
	s.mux.HandleFunc(pattern, func(w http.ResponseWriter, r *http.Request) {
		named, err := s.nameRollout(r)
		if err == nil {
			err = s.explainKey(r, s.guard(w, named, roles|RoleAdmin, flags, s.handToGateway))
		}
		if err != nil {
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
		return absent("agents that speak OpenAI's API sample", "environment.kind: remote")
	}
	if s.opt.Tokens != nil && r.Method == http.MethodPost && r.Header.Get(protocol.RolloutHeader) == "" {
		return protocol.Refuse(protocol.CodeUnauthorized, "no rollout is named: want TOKEN:ROLLOUT as the API key, ROLLOUT a claim's id such as g12-s3-a1, or the header %s", protocol.RolloutHeader)
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

// handedBody is a body in memory. Closing it gives back the room that it took.
type handedBody struct {
	*bytes.Reader
	held *held
}

// Close says that the body has been decoded.
func (b *handedBody) Close() error {
	if b.held != nil {
		b.held.release()
	}
	return nil
}

// nameRollout finds out which rollout a request is for. Programs that speak OpenAI's API have one
// secret, the API key: it is TOKEN:ROLLOUT, or ROLLOUT alone where no token is asked for. A program
// that can set headers names the rollout in one, and the key is the token. The gateway sees the
// header alone.
func (s *Server) nameRollout(r *http.Request) (*http.Request, error) {
	var key string
	if header := r.Header.Values("Authorization"); len(header) == 1 {
		key = string(bearer(header[0]))
	}
	token, rollout := key, r.Header.Get(protocol.RolloutHeader)
	if at := strings.LastIndexByte(key, ':'); isClaimID(key[at+1:]) && (at >= 0 || s.opt.Tokens == nil) {
		if rollout != "" && rollout != key[at+1:] {
			return nil, protocol.Refuse(protocol.CodeInvalid, "the API key and the header %s name different rollouts: name one", protocol.RolloutHeader)
		}
		token, rollout = key[:max(at, 0)], key[at+1:]
	} else if rollout == "" && s.opt.Tokens == nil {
		rollout = key
	}
	if s.opt.Tokens != nil && isClaimID(key) {
		return nil, protocol.Refuse(protocol.CodeUnauthorized, "the API key is a claim's id alone, and this server asks for tokens: want TOKEN:%s as the API key", key)
	}
	named := r.Clone(r.Context())
	named.Header.Del("Authorization")
	named.Header.Del(protocol.RolloutHeader)
	if s.opt.Tokens != nil && token != "" {
		named.Header.Set("Authorization", "Bearer "+token)
	}
	if rollout != "" {
		named.Header.Set(protocol.RolloutHeader, rollout)
	}
	return named, nil
}

// explainKey adds to the refusal of an API key what its form may be the reason of.
func (s *Server) explainKey(r *http.Request, err error) error {
	refusal, ok := errors.AsType[*protocol.Refusal](err)
	if !ok || refusal.Code != protocol.CodeUnauthorized || s.opt.Tokens == nil {
		return err
	}
	key := bearer(r.Header.Get("Authorization"))
	if at := bytes.LastIndexByte(key, ':'); at >= 0 && !isClaimID(string(key[at+1:])) {
		return protocol.Refuse(protocol.CodeUnauthorized, "the API key is not known: want TOKEN:ROLLOUT, with a claim's id such as g12-s3-a1 behind the colon")
	}
	return err
}

// isClaimID reports whether a text has the form of a claim's id: g12-s3-a1.
func isClaimID(text string) bool {
	parts := strings.Split(text, "-")
	if len(parts) != 3 {
		return false
	}
	for i, letter := range []string{"g", "s", "a"} {
		digits, ok := strings.CutPrefix(parts[i], letter)
		n, err := strconv.ParseInt(digits, 10, 64)
		if !ok || err != nil || n < 0 || strconv.FormatInt(n, 10) != digits {
			return false
		}
	}
	return true
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
