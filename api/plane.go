package api

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"math"
	"net/http"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// planeRoutes has the paths that say how the control plane is. The page, healthz and readyz
// need no token: the page holds no data of the run, and a probe has no secret to send.
func (s *Server) planeRoutes() {
	s.route("GET /api/v1/status", roleAny, s.status, always, reserved)
	s.route("GET /api/v1/stream", roleAny, s.stream, always, unbounded)
	s.route("GET /metrics", roleAny, s.scrape, always, reserved)
	s.open("GET /healthz", func(w http.ResponseWriter, _ *http.Request) error {
		writeBody(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ok\n"))
		return nil
	})
	s.open("GET /readyz", s.ready)
	s.route("GET /api/v1/view/{path...}", roleAny, s.view, always)
	s.route("GET /api/v1/view/stream", roleAny, s.viewStream, always, unbounded)
	s.readRollouts("GET /api/v1/view/groups")
	s.readRollouts("GET /api/v1/view/groups/{path...}")
	for path, page := range s.opt.Pages {
		if path == "/" {
			path = "/{$}"
		}
		s.open("GET "+path, func(w http.ResponseWriter, r *http.Request) error {
			page.ServeHTTP(w, r)
			return nil
		})
	}
}

// readRollouts adds a path of the pages that answers with prompts, responses and what was expected of them: for those who
// may have the batches that these go into.
func (s *Server) readRollouts(pattern string) {
	s.handle(pattern, RoleTrainer|RoleAdmin, always, func(w http.ResponseWriter, r *http.Request) {
		err := s.guard(w, r, RoleTrainer|RoleAdmin, always, s.view)
		if refusal, ok := errors.AsType[*protocol.Refusal](err); ok && refusal.Code == protocol.CodeForbidden && refusal.Detail["role"] != nil {
			err = protocol.Refuse(protocol.CodeForbidden, "prompts, responses and expected answers are for a token of role %s: this one is of role %s, which may see everything else here", RoleTrainer|RoleAdmin, refusal.Detail["role"]).With("role", refusal.Detail["role"])
		}
		if err != nil {
			s.fail(w, r, err)
		}
	})
}

// view answers what the pages ask for. A stream ends when the server closes.
func (s *Server) view(w http.ResponseWriter, r *http.Request) error {
	port := s.ports().View
	if port == nil && s.opt.Cell != "" {
		return s.absent("pages are drawn", "")
	}
	if port == nil {
		return protocol.Refuse(protocol.CodeUnavailable, "the run has not begun here yet: there is nothing to see before this process is its writer")
	}
	ctx, cancel := context.WithCancel(r.Context())
	defer cancel()
	defer context.AfterFunc(s.ending, cancel)()
	port.ServeHTTP(w, r.WithContext(ctx))
	return nil
}

// viewStream is view under the bound of subscribers.
func (s *Server) viewStream(w http.ResponseWriter, r *http.Request) error {
	leave, err := s.enterStream(w)
	if err != nil {
		return err
	}
	defer leave()
	return s.view(w, r)
}

// open adds a path that asks nobody.
func (s *Server) open(pattern string, h handler) {
	s.handle(pattern, 0, always, func(w http.ResponseWriter, r *http.Request) {
		if err := h(w, r); err != nil {
			s.fail(w, r, err)
		}
	})
}

// current is the plane's status, with the drain that it may not know of.
func (s *Server) current() protocol.Status {
	status := s.ports().Plane.Status()
	status.Bounds = append(slices.Clone(status.Bounds), s.Bounds()...)
	status.Limits = limits(status.Bounds, status.Cells)
	if s.draining() && status.State == "running" {
		status.State = "draining"
	}
	for _, figure := range []*float64{&status.Staleness.Mean, &status.Staleness.P50, &status.Staleness.P95, &status.Staleness.Max, &status.Staleness.PQS, &status.Staleness.IQS,
		&status.Trainer.IdleRatio, &status.Trainer.SilentS, &status.UptimeS} {
		if math.IsNaN(*figure) || math.IsInf(*figure, 0) {
			*figure = 0 // nothing was measured yet: JSON has no word for it
		}
	}
	return status
}

func (s *Server) status(w http.ResponseWriter, _ *http.Request) error {
	return writeJSON(w, s.current())
}

// ready answers a probe: whether work can be sent here.
func (s *Server) ready(w http.ResponseWriter, _ *http.Request) error {
	if s.draining() {
		return errDraining
	}
	if err := s.ports().Plane.Ready(); err != nil {
		return notReady(err)
	}
	writeBody(w, http.StatusOK, "text/plain; charset=utf-8", []byte("ready\n"))
	return nil
}

// enterStream takes a place among the subscribers. One role of a token may have half of them, so that
// no viewer keeps the operator out.
func (s *Server) enterStream(w http.ResponseWriter) (leave func(), err error) {
	role := Role(0)
	if reply, ok := w.(*reply); ok {
		role = reply.role
	}
	followers, limit := &s.followers[roleIndex(role)], (s.opt.StreamsMax+1)/2
	if followers.Add(1) > int64(limit) && role != 0 {
		followers.Add(-1)
		return nil, protocol.Refuse(protocol.CodeBusy, "%d clients of role %s follow the stream already", limit, role).With("streams_max", limit)
	}
	select {
	case s.streams <- struct{}{}:
		return func() { <-s.streams; followers.Add(-1) }, nil
	default:
		followers.Add(-1)
		return nil, protocol.Refuse(protocol.CodeBusy, "%d clients follow the stream already", s.opt.StreamsMax).With("streams_max", s.opt.StreamsMax)
	}
}

// stream sends the status and then every event as server-sent events, until the client
// leaves, falls behind, or the server closes. It keeps nothing for those who come back:
// Last-Event-ID is ignored, and the status at the beginning is all that they missed.
func (s *Server) stream(w http.ResponseWriter, r *http.Request) error {
	leave, err := s.enterStream(w)
	if err != nil {
		return err
	}
	defer leave()
	events := s.ports().Plane.Subscribe(r.Context())
	hello, err := json.Marshal(s.current())
	if err != nil {
		return fmt.Errorf("api: the status is no JSON: %w", err)
	}
	header := w.Header()
	header.Set("Content-Type", "text/event-stream")
	header.Set("Cache-Control", "no-store")
	header.Set("X-Accel-Buffering", "no")
	header.Set("X-Content-Type-Options", "nosniff")
	w.WriteHeader(http.StatusOK)
	if r.Method == http.MethodHead {
		return nil // nothing is ever written to its client, so that a stream would not notice when it leaves
	}
	if sendEvent(w, "hello", hello) != nil {
		return nil // the client left
	}
	heartbeat := time.NewTicker(s.opt.Heartbeat)
	defer heartbeat.Stop()
	for {
		select {
		case event, ok := <-events:
			if !ok {
				_ = sendEvent(w, "dropped", []byte(`{"reason":"this subscriber did not keep up, or the run has ended: connect again"}`))
				return nil
			}
			err = sendEvent(w, "update", event)
		case <-heartbeat.C:
			err = send(w, ": alive\n\n")
		case <-s.ending.Done():
			_ = sendEvent(w, "closing", []byte(`{"reason":"the control plane is closing"}`))
			return nil
		case <-r.Context().Done():
			return nil
		}
		if err != nil {
			return nil // the client left, or takes nothing any more
		}
	}
}

// sendEvent sends one event, its data on one line.
func sendEvent(w http.ResponseWriter, kind string, data []byte) error {
	line := strings.NewReplacer("\n", " ", "\r", " ").Replace(string(data))
	return send(w, "event: "+kind+"\ndata: "+line+"\n\n")
}

func send(w http.ResponseWriter, text string) error {
	if _, err := io.WriteString(w, text); err != nil {
		return err
	}
	return http.NewResponseController(w).Flush()
}
