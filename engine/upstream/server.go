package upstream

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"net/http"
	"net/url"
	"os"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/engine/rows"
	"github.com/headway-rl/headway/internal/socket"
)

// replyBytesMax bounds a reply that is read as a whole, errorBytesMax what is quoted of one that refuses.
const (
	replyBytesMax = 256 << 20
	errorBytesMax = 1 << 10
)

// idleLimit is how long a connection without a request is kept. Uvicorn, under which vLLM and SGLang run, closes after
// 5 s: a request that crosses the close fails, and a switch of weights with it.
const idleLimit = 3 * time.Second

// Server is an engine's HTTP server. It is safe for concurrent use.
type Server struct {
	base string
	key  string
	http *http.Client
	// dials counts the connections that were opened, whatever for.
	dials *atomic.Int64
	// limit bounds every question with its answer, 0 for not.
	limit time.Duration
	// Model is the name that requests name the model by: what the document says, else what Probe found.
	Model string
	// Guest: somebody else runs the server, so that a probe pauses, resumes and drops nothing there;
	// whether a pause is one is then not proven.
	Guest bool
	// Channels are the side channels that its answers are to have; Experts is what the model says of its own.
	Channels []string
	Experts  rows.Shape
	// RawReads makes short reads by system calls that Go's runtime is not told of: see internal/socket.
	RawReads bool
}

// ServerOptions say how a server is reached.
type ServerOptions struct {
	// URL without a path, Model the name it knows the model by, empty to ask it.
	URL, Model string
	// KeyFile holds its API key; empty for none.
	KeyFile string
	// Connections bounds those kept open; 0 means 256.
	Connections int
	// Dial opens a connection; nil dials over TCP.
	Dial func(ctx context.Context, network, address string) (net.Conn, error)
}

// NewServer returns a server that nothing has been asked yet.
func NewServer(o ServerOptions) (*Server, error) {
	s := &Server{base: strings.TrimRight(o.URL, "/"), Model: o.Model, dials: new(atomic.Int64)}
	if o.KeyFile != "" {
		key, err := os.ReadFile(o.KeyFile)
		if err != nil {
			return nil, fmt.Errorf("the API key of %s: %w", s.base, err)
		}
		if s.key = strings.TrimSpace(string(key)); s.key == "" {
			return nil, fmt.Errorf("the API key of %s: %s is empty", s.base, o.KeyFile)
		}
	}
	o.Connections = cmp.Or(o.Connections, 256)
	if o.Dial == nil {
		o.Dial = (&net.Dialer{Timeout: 10 * time.Second, KeepAlive: 15 * time.Second}).DialContext
	}
	transport := &http.Transport{
		DialContext: func(ctx context.Context, network, address string) (net.Conn, error) {
			connection, err := o.Dial(ctx, network, address)
			if err != nil {
				return nil, err
			}
			s.dials.Add(1)
			if s.RawReads {
				connection = socket.ShortReads(connection)
			}
			return connection, nil
		},
		MaxIdleConnsPerHost: o.Connections, MaxIdleConns: o.Connections, IdleConnTimeout: idleLimit,
		DisableCompression: true, Proxy: http.ProxyFromEnvironment,
	}
	s.http = &http.Client{Transport: transport, CheckRedirect: sameServer}
	return s, nil
}

// sameServer follows redirects within a server alone. Any other would take prompts to an address that
// the document does not name.
func sameServer(next *http.Request, before []*http.Request) error {
	first := before[0].URL
	if next.URL.Host != first.Host || next.URL.Scheme != first.Scheme || len(before) >= redirectsMax {
		return http.ErrUseLastResponse
	}
	return nil
}

// redirectsMax bounds the redirects of one request.
const redirectsMax = 5

// URL is the server's address, without a path.
func (s *Server) URL() string { return s.base }

// Close closes the connections that are idle.
func (s *Server) Close() { s.http.CloseIdleConnections() }

// StatusError is a reply other than 2xx.
type StatusError struct {
	Path   string
	Status int
	// Message is what the server says of it, which Error cuts.
	Message string
	// After is when it wants to be asked again (Retry-After in whole seconds), 0 where it does not say.
	After time.Duration
}

func (e *StatusError) Error() string {
	return fmt.Sprintf("%s answers %d: %s", e.Path, e.Status, Said(e.Message))
}

// StatusOf returns the HTTP status of an error's reply, 0 if none came.
func StatusOf(err error) int {
	if e, ok := errors.AsType[*StatusError](err); ok {
		return e.Status
	}
	return 0
}

// afterMost bounds what a server may ask to be left alone for.
const afterMost = 30 * time.Second

func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.ParseUint(h.Get("Retry-After"), 10, 20)
	if err != nil {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, afterMost)
}

// busyFor reports whether an error is that a server has no room just now, and how long it wants to be left alone.
func busyFor(err error) (time.Duration, bool) {
	e, ok := errors.AsType[*StatusError](err)
	if !ok {
		return 0, false
	}
	return e.After, e.Status == http.StatusTooManyRequests || e.Status == http.StatusServiceUnavailable && e.After > 0
}

// within is the server with a limit of time to each question.
func (s *Server) within(limit time.Duration) *Server {
	bounded := *s
	bounded.limit = limit
	return &bounded
}

// boundedBody is a body whose question has a limit, which ends with it.
type boundedBody struct {
	io.ReadCloser
	end context.CancelFunc
}

func (b boundedBody) Close() error {
	defer b.end()
	return b.ReadCloser.Close()
}

// traceparentKey is the key of a context's traceparent, the W3C header of a rollout's trace.
type traceparentKey struct{}

// Open sends a request and returns the reply's body, to be read as it comes and closed.
func (s *Server) Open(ctx context.Context, method string, c Call) (io.ReadCloser, error) {
	if s.limit == 0 {
		return s.open(ctx, method, c)
	}
	ctx, end := context.WithTimeout(ctx, s.limit)
	body, err := s.open(ctx, method, c)
	if err != nil {
		end()
		return nil, err
	}
	return boundedBody{body, end}, nil
}

func (s *Server) open(ctx context.Context, method string, c Call) (io.ReadCloser, error) {
	var body io.Reader
	if c.Body != nil {
		body = bytes.NewReader(c.Body)
	}
	req, err := http.NewRequestWithContext(ctx, method, s.base+c.Path, body)
	if err != nil {
		return nil, err
	}
	maps.Copy(req.Header, c.Header)
	if c.Body != nil {
		req.Header.Set("Content-Type", "application/json")
	}
	if s.key != "" {
		req.Header.Set("Authorization", "Bearer "+s.key)
	}
	if parent, _ := ctx.Value(traceparentKey{}).(string); parent != "" {
		req.Header.Set("Traceparent", parent)
	}
	res, err := s.http.Do(req)
	if err != nil {
		return nil, err
	}
	if res.StatusCode/100 != 2 {
		text, _ := io.ReadAll(io.LimitReader(res.Body, errorBytesMax))
		_ = res.Body.Close()
		if res.StatusCode >= 500 { // such connections are reset, however healthy the server is
			s.http.CloseIdleConnections()
		}
		message := strings.TrimSpace(string(text))
		if to := res.Header.Get("Location"); res.StatusCode/100 == 3 && to != "" {
			message = fmt.Sprintf("it redirects to %.200q, which is not followed: name the server's own address in url", to)
		}
		return nil, &StatusError{Path: c.Path, Status: res.StatusCode, Message: message, After: retryAfter(res.Header)}
	}
	return res.Body, nil
}

// Call sends a JSON body (nil for none) and reads a JSON reply into reply (nil to ignore it). One that
// breaks off is a [url.Error], as one that never comes.
func (s *Server) Call(ctx context.Context, method, path string, body, reply any) error {
	c := Call{Path: path}
	if body != nil {
		text, err := json.Marshal(body)
		if err != nil {
			return err
		}
		c.Body = text
	}
	content, err := s.Open(ctx, method, c)
	if err != nil {
		return err
	}
	defer content.Close()
	text, err := io.ReadAll(io.LimitReader(content, replyBytesMax))
	if err != nil {
		return &url.Error{Op: "the reply to " + method, URL: s.base + path, Err: fmt.Errorf("it broke off: %w", err)}
	}
	if reply == nil {
		return nil
	}
	if err := json.Unmarshal(text, reply); err != nil {
		if body != nil { // the reply may hold what was sampled
			return fmt.Errorf("%s answers something that is not understood: %w: %w", path, brief{err}, Excerpt(text))
		}
		return fmt.Errorf("%s answers something that is not understood: %w: %.200q", path, brief{err}, text)
	}
	return nil
}

// Paths asks the server for the paths of its own description (/openapi.json); nil where it has none.
func (s *Server) Paths(ctx context.Context) (map[string]bool, error) {
	var description struct {
		Paths map[string]json.RawMessage `json:"paths"`
	}
	err := s.Call(ctx, http.MethodGet, "/openapi.json", nil, &description)
	if status := StatusOf(err); status == http.StatusNotFound || status == http.StatusMethodNotAllowed {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	paths := make(map[string]bool, len(description.Paths))
	for path := range description.Paths {
		paths[path] = true
	}
	return paths, nil
}
