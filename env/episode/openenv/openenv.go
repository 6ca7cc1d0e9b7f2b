// Package openenv plays rollouts in environments that are OpenEnv servers. A world is one
// WebSocket, because an environment there lives as long as one. Over HTTP every reset and every
// step has an environment of its own, so that none of these are used. One step is in flight at a
// time and none is ever sent twice, because steps have no number that would tell the server.
package openenv

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Mode says how an action is made of the policy's message.
type Mode string

// Modes.
const (
	// Auto is Tools for servers of MCP tools. It is Text where the action has exactly one field that
	// must be given and takes text, and Act otherwise.
	Auto Mode = ""
	// Text puts the message's text into one field of the action.
	Text Mode = "text"
	// JSON takes the message's text for the action: an object, or the last fenced block that is one.
	JSON Mode = "json"
	// Act offers the policy one tool, whose arguments are the action.
	Act Mode = "act"
	// Tools offers the policy the tools of the environment itself, which it lists and calls by MCP actions.
	Tools Mode = "tools"
)

// Options of a server. Zero values stand for the defaults that are named.
type Options struct {
	// URL of the server, http or https; a path is kept.
	URL string
	// Header is sent with every request and handshake, such as Authorization.
	Header http.Header
	Mode   Mode
	// Field of the action that takes the text under Text; empty is the only one that can.
	Field string
	// Show is the field of the observation that the policy is shown as it is; empty shows the whole
	// observation as JSON.
	Show string
	// Reset has further parameters of every reset; those of a task's field "reset" go before them.
	Reset map[string]json.RawMessage
	// StartTimeout is the longest a connection and its reset may take, waits for a full server
	// included. Default 60 s. StepTimeout is that of a step. Default 60 s.
	StartTimeout, StepTimeout time.Duration
	// Ping is how often a server is asked for a sign of life while it is busy with a step. It is also how long the
	// server may take to give it. Default 60 s.
	Ping time.Duration
	// Message is the longest answer that is read, in bytes. Default 16 MiB. Shown bounds what the
	// policy sees of an observation, in bytes. Default 64 KiB.
	Message int64
	Shown   int
	// Backoff is the first wait for a server that is full; each further is twice as long, up to 5 s.
	// Default 100 ms.
	Backoff time.Duration
}

// Server is an OpenEnv server. It is safe for concurrent use.
type Server struct {
	o      Options
	base   *url.URL
	client *http.Client

	mu     sync.Mutex
	schema *schema // nil until it was fetched
}

// New returns a server, which is not asked for anything yet. The error says what is wrong with o.
func New(o Options) (*Server, error) {
	base, err := url.Parse(strings.TrimSuffix(o.URL, "/"))
	if err != nil || base.Host == "" || (base.Scheme != "http" && base.Scheme != "https") {
		return nil, fmt.Errorf("openenv: url %q: expected http://host:port or https://host", o.URL)
	}
	switch o.Mode {
	case Auto, Text, JSON, Act, Tools:
	default:
		return nil, fmt.Errorf("openenv: mode %q: expected text, json, act or tools, or none to choose by the server's schema", o.Mode)
	}
	if o.Field != "" && o.Mode != Text && o.Mode != Auto {
		return nil, fmt.Errorf("openenv: field %q is for mode text, not %s", o.Field, o.Mode)
	}
	withDefault(&o.StartTimeout, time.Minute)
	withDefault(&o.StepTimeout, time.Minute)
	withDefault(&o.Ping, time.Minute)
	withDefault(&o.Message, 16<<20)
	withDefault(&o.Shown, 64<<10)
	withDefault(&o.Backoff, 100*time.Millisecond)
	// A client of its own shares its connections with nothing else in the process.
	client := &http.Client{Transport: http.DefaultTransport.(*http.Transport).Clone()}
	return &Server{o: o, base: base, client: client}, nil
}

func withDefault[T ~int | ~int64](v *T, otherwise T) {
	if *v <= 0 {
		*v = otherwise
	}
}

// Check asks for the server's health and schema, and whether an action can be made for it from what a
// policy says.
func (s *Server) Check(ctx context.Context) error {
	var health struct{ Status string }
	if err := s.get(ctx, "/health", &health); err != nil {
		return err
	}
	if health.Status != "healthy" {
		return sandbox.Fail(sandbox.BackendDown, "check", "", "%s/health says %q, expected healthy", s.base, health.Status)
	}
	_, err := s.actions(ctx)
	return err
}

// actions is how actions are made for this server, by its schema, which is fetched once.
func (s *Server) actions(ctx context.Context) (*schema, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.schema != nil {
		return s.schema, nil
	}
	var answer struct{ Action json.RawMessage }
	if err := s.get(ctx, "/schema", &answer); err != nil {
		return nil, err
	}
	made, err := readSchema(answer.Action, s.o.Mode, s.o.Field)
	if err != nil {
		return nil, sandbox.Fail(sandbox.Refused, "check", "", "%s/schema: %w", s.base, err)
	}
	s.schema = made
	return made, nil
}

func (s *Server) get(ctx context.Context, path string, into any) error {
	ctx, cancel := context.WithTimeout(ctx, s.o.StartTimeout)
	defer cancel()
	request, err := http.NewRequestWithContext(ctx, http.MethodGet, s.base.String()+path, nil)
	if err != nil {
		return err
	}
	maps.Copy(request.Header, s.o.Header)
	response, err := s.client.Do(request)
	if err != nil {
		return sandbox.Fail(sandbox.BackendDown, "check", "", "no answer from the OpenEnv server: %w", err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, s.o.Message))
	if err != nil {
		return sandbox.Fail(sandbox.BackendDown, "check", "", "%s%s: %w", s.base, path, err)
	}
	if response.StatusCode != http.StatusOK {
		return sandbox.Fail(statusClass(response.StatusCode), "check", "", "%s%s: HTTP %d (is this an OpenEnv server?)", s.base, path, response.StatusCode)
	}
	if err := json.Unmarshal(body, into); err != nil {
		return sandbox.Fail(sandbox.Protocol, "check", "", "%s%s: no JSON as OpenEnv has it: %w", s.base, path, err)
	}
	return nil
}

// statusClass is what a status of HTTP means for whoever wants an environment.
func statusClass(status int) sandbox.Class {
	switch {
	case status == http.StatusTooManyRequests:
		return sandbox.Quota
	case status >= 500:
		return sandbox.BackendDown
	case status == http.StatusUnauthorized, status == http.StatusForbidden:
		return sandbox.Refused
	}
	return sandbox.Protocol
}

// after is the error of an operation that ended early: the caller's own where that gave up, and the
// class given otherwise.
func after(ctx context.Context, class sandbox.Class, op string, err error) error {
	if cause := ctx.Err(); cause != nil {
		return fmt.Errorf("openenv: %s: %w", op, cause)
	}
	if failure, ok := errors.AsType[*sandbox.Failure](err); ok {
		return failure
	}
	return sandbox.Fail(class, op, "", "%w", err)
}
