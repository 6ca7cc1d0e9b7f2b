package client

import (
	"context"
	"errors"
	"io"
	"net/http"
	"net/http/httptrace"
	"sync"
	"time"
)

var (
	errConnect = errors.New("no connection within the time limit")
	errSilent  = errors.New("no byte within the time limit")
)

// silence ends a request that moves no byte for too long: the time limits of httpx, which are between two bytes.
type silence struct {
	limit  time.Duration
	cancel context.CancelCauseFunc

	mu    sync.Mutex
	timer *time.Timer
	ended bool
}

func newSilence(limit time.Duration, cancel context.CancelCauseFunc) *silence {
	s := &silence{limit: limit, cancel: cancel}
	s.begin(limit, errSilent)
	return s
}

// begin counts from now.
func (s *silence) begin(limit time.Duration, cause error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.ended {
		return
	}
	if s.timer != nil {
		s.timer.Stop()
	}
	s.timer = time.AfterFunc(limit, func() { s.cancel(cause) })
}

func (s *silence) moved() { s.begin(s.limit, errSilent) }

func (s *silence) end() {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ended = true
	s.timer.Stop()
}

// trace has the limit of connecting counted apart.
func (s *silence) trace(ctx context.Context) context.Context {
	return httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{
		ConnectStart:         func(string, string) { s.begin(min(s.limit, connectLimit), errConnect) },
		ConnectDone:          func(string, string, error) { s.moved() },
		WroteRequest:         func(httptrace.WroteRequestInfo) { s.moved() },
		GotFirstResponseByte: s.moved,
	})
}

// moving is a body whose bytes count as a move.
type moving struct {
	io.Reader
	silence *silence
}

func (m moving) Read(into []byte) (int, error) {
	n, err := m.Reader.Read(into)
	m.silence.moved()
	return n, err
}

// open sends one request and hands its answer to read, while time limits are kept.
func (t *Transport) open(ctx context.Context, request *http.Request, limit time.Duration, read func(*http.Response, io.Reader) error) error {
	if t.closed.Err() != nil {
		return errClosed
	}
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	defer context.AfterFunc(t.closed, func() { cancel(errClosed) })()
	quiet := newSilence(limit, cancel)
	defer quiet.end()
	request = request.WithContext(quiet.trace(ctx))
	if request.Body != nil {
		request.Body = io.NopCloser(moving{request.Body, quiet})
	}
	request.Header.Set("User-Agent", "headway-world")
	if t.token != "" && request.Header.Get("Authorization") == "" {
		request.Header.Set("Authorization", "Bearer "+t.token)
	}
	found, err := t.http.Do(request)
	if err == nil {
		defer found.Body.Close()
		quiet.moved()
		err = read(found, moving{found.Body, quiet})
	}
	if err != nil && ctx.Err() != nil {
		return context.Cause(ctx)
	}
	return err
}

// try sends a call once and reads its answer.
func (t *Transport) try(ctx context.Context, c call, base string, headers http.Header) (*answer, error) {
	request, err := http.NewRequest(c.method, base+c.path, nil)
	if err != nil {
		return nil, err
	}
	request.Header = headers.Clone()
	if c.body != nil { // without GetBody, so that net/http cannot send it again by itself
		request.Body, request.ContentLength = io.NopCloser(c.body.reader()), c.body.size()
		request.Header.Set("Content-Type", c.body.kind)
	}
	limit := c.limit
	if limit == 0 {
		limit = callLimit
	}
	var found *answer
	err = t.open(ctx, request, limit, func(response *http.Response, body io.Reader) error {
		read, err := io.ReadAll(body)
		found = &answer{response.StatusCode, response.Header, read}
		return err
	})
	return found, err
}

// get reads the JSON object of a path.
func (t *Transport) get(ctx context.Context, c call, into any) error {
	c.method = http.MethodGet
	found, err := t.do(ctx, c)
	if err != nil {
		return err
	}
	_, err = found.object(into)
	return err
}
