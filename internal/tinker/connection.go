package tinker

import (
	"bytes"
	"cmp"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptrace"
	"strconv"
	"sync/atomic"
	"time"

	pauses "github.com/headway-rl/headway/internal/pause"
)

const (
	protobufType = "application/x-protobuf"
	jsonType     = "application/json"

	// askTime bounds one request. Services answer a poll within 45 s (Tinker) to 300 s (SkyRL): one that
	// lasts longer than this is asked again, which costs nothing and notices a connection that is dead.
	askTime = 60 * time.Second
	// mostAnswer is the most bytes of an answer that are read: outputs of a chunk are a few megabytes.
	mostAnswer = 256 << 20
	// firstPause and longestPause bound the waits between tries, each twice the one before.
	firstPause   = 500 * time.Millisecond
	longestPause = 15 * time.Second
)

// call is one request of the API.
type call struct {
	operation   string // the API's name, for errors
	method      string // empty for POST
	path        string // after /api/v1/
	body        []byte
	contentType string // empty for JSON
	accept      string // empty for JSON
	// once: the request must not be sent twice where the first may have been taken, see Model.
	once bool
	// fresh connections are not kept for another request. A server closes a connection that has idled for a
	// while, and a request that meets this on its way is one of unknown outcome.
	fresh bool
}

// answer is the service's.
type answer struct {
	status      int
	contentType string
	location    string // where a redirection leads
	body        []byte
	wait        time.Duration // that the service asks for before another try
}

// connection sends calls to one service.
type connection struct {
	o           Options
	kept, fresh *http.Client
	// heard is when the service last answered anything, in nanoseconds since the epoch: polls that end
	// unanswered judge by it, since another request may have been answered meanwhile.
	heard atomic.Int64
}

func newConnection(o Options) *connection {
	kept := http.DefaultTransport.(*http.Transport).Clone()
	kept.MaxIdleConns, kept.MaxIdleConnsPerHost = 0, 256
	// uvicorn, under which the servers run that one has oneself, closes after 5 s.
	kept.IdleConnTimeout = 3 * time.Second
	if o.Dial != nil {
		kept.DialContext, kept.Proxy = o.Dial, nil
	}
	fresh := kept.Clone()
	fresh.DisableKeepAlives = true
	c := &connection{o: o, kept: &http.Client{Transport: kept, CheckRedirect: stay}, fresh: &http.Client{Transport: fresh, CheckRedirect: stay}}
	c.heard.Store(time.Now().UnixNano())
	return c
}

// stay follows no redirection: the key would go along, to whichever host.
func stay(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }

func (c *connection) close() {
	c.kept.CloseIdleConnections()
	c.fresh.CloseIdleConnections()
}

// try sends a call once. sent says whether any of it may have reached the service.
func (c *connection) try(ctx context.Context, l call) (a answer, sent bool, err error) {
	ctx, cancel := context.WithTimeout(ctx, askTime)
	defer cancel()
	var connected atomic.Bool
	ctx = httptrace.WithClientTrace(ctx, &httptrace.ClientTrace{GotConn: func(httptrace.GotConnInfo) { connected.Store(true) }})
	request, err := c.request(ctx, l)
	if err != nil {
		return answer{}, false, err
	}
	client := c.kept
	if l.fresh {
		client = c.fresh
	}
	response, err := client.Do(request)
	if err != nil {
		return answer{}, connected.Load(), err
	}
	defer func() { _ = response.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(response.Body, mostAnswer+1))
	if err != nil {
		return answer{}, true, fmt.Errorf("read the answer: %w", err)
	}
	if len(body) > mostAnswer {
		return answer{}, true, fmt.Errorf("the answer is larger than %d bytes", mostAnswer)
	}
	if response.StatusCode < 500 {
		c.heard.Store(time.Now().UnixNano())
	}
	return answer{response.StatusCode, response.Header.Get("Content-Type"), response.Header.Get("Location"), body, retryAfter(response.Header)}, true, nil
}

func (c *connection) request(ctx context.Context, l call) (*http.Request, error) {
	method := cmp.Or(l.method, http.MethodPost)
	request, err := http.NewRequestWithContext(ctx, method, c.o.URL+"/api/v1/"+l.path, bytes.NewReader(l.body))
	if err != nil {
		return nil, fmt.Errorf("%s: %w", l.operation, err)
	}
	request.Header.Set("Content-Type", orJSON(l.contentType))
	request.Header.Set("Accept", orJSON(l.accept))
	if c.o.Key != "" {
		request.Header.Set("X-API-Key", c.o.Key)
	}
	return request, nil
}

func orJSON(mediaType string) string {
	if mediaType == "" {
		return jsonType
	}
	return mediaType
}

// retryAfter is the header's whole seconds, at most half a minute; anything else is no wish.
func retryAfter(h http.Header) time.Duration {
	seconds, err := strconv.Atoi(h.Get("Retry-After"))
	if err != nil || seconds < 0 {
		return 0
	}
	return min(time.Duration(seconds)*time.Second, 30*time.Second)
}

// ask sends a call until the service takes or refuses it, at most for Options.Patience. An answer is returned
// with a status below 300; every other is an error of kind.
func (c *connection) ask(ctx context.Context, l call) (answer, error) {
	began, pause := time.Now(), pause{}
	for {
		a, sent, err := c.try(ctx, l)
		if ctx.Err() != nil {
			return answer{}, c.ended(ctx, l, sent)
		}
		if err == nil && a.status < 300 {
			return a, nil
		}
		why := err
		if err == nil {
			why = refusal(l.operation, a)
			if !passing(a.status) {
				return answer{}, why
			}
		}
		if l.once && sent && (err != nil || !untaken(a.status)) {
			return answer{}, fmt.Errorf("%s: %w: %w", l.operation, errUnknown, why)
		}
		if time.Since(began) >= c.o.Patience {
			return answer{}, fmt.Errorf("%s, for %s: %w: %w", l.operation, c.o.Patience, ErrDown, why)
		}
		c.o.Logf("%s is tried again: %v", l.operation, why)
		if pause.wait(ctx, max(a.wait, pause.next())) != nil {
			return answer{}, context.Cause(ctx)
		}
	}
}

// ended is the error of a call whose context has ended.
func (c *connection) ended(ctx context.Context, l call, sent bool) error {
	if l.once && sent {
		return fmt.Errorf("%s: %w: %w", l.operation, errUnknown, context.Cause(ctx))
	}
	return context.Cause(ctx)
}

// passing says whether an answer tells of the service's state and not of the request.
func passing(status int) bool {
	switch status {
	case http.StatusRequestTimeout, http.StatusTooEarly, http.StatusTooManyRequests, http.StatusPaymentRequired:
		return true // 402 pauses until somebody has paid, 425 is a path that is still being saved
	}
	return status >= 500 && status != http.StatusNotImplemented
}

// untaken says whether a passing answer comes from before the request was looked at: those of 400 and above say so
// themselves. After 500 and above the request may have been taken, after 503 too, which proxies answer as well where
// the service's connection breaks behind a request that it has had.
func untaken(status int) bool { return status < 500 }

// refusal is the error of an answer that is no result.
func refusal(operation string, a answer) error {
	e := &Error{Operation: operation, Status: a.status, Detail: detail(a.body)}
	switch {
	case a.status >= 300 && a.status < 400:
		e.Detail = fmt.Sprintf("it redirects to %s, which is not followed: the key would go along; want the url of the service itself", a.location)
		return fmt.Errorf("%w: %w", ErrRefused, e)
	case a.status == http.StatusNotFound || a.status == http.StatusGone:
		return fmt.Errorf("%w: %w", ErrGone, e)
	case a.status >= 400 && a.status < 500 && !passing(a.status):
		return fmt.Errorf("%w: %w", ErrRefused, e)
	}
	return e
}

// detail is what an error's body says, at most 500 bytes of it.
func detail(body []byte) string {
	var said struct {
		Detail json.RawMessage `json:"detail"`
		Error  json.RawMessage `json:"error"`
	}
	text := body
	if json.Unmarshal(body, &said) == nil {
		for _, raw := range []json.RawMessage{said.Detail, said.Error} {
			var s string
			if len(raw) > 0 && json.Unmarshal(raw, &s) == nil {
				return shortened(s)
			}
			if len(raw) > 0 {
				return shortened(string(raw))
			}
		}
	}
	return shortened(string(text))
}

func shortened(s string) string {
	if len(s) > 500 {
		return s[:500] + "…"
	}
	return s
}

// pause waits longer with every try.
type pause struct{ last time.Duration }

func (p *pause) next() time.Duration {
	if p.last == 0 {
		p.last = firstPause
	} else {
		p.last = min(2*p.last, longestPause)
	}
	return p.last
}

// wait ends with an error when the context does.
func (p *pause) wait(ctx context.Context, d time.Duration) error {
	return pauses.For(ctx, d)
}

// jsonCall is a call with a JSON body.
func jsonCall(path string, body any) (call, error) {
	data, err := json.Marshal(body)
	if err != nil {
		return call{}, fmt.Errorf("%s: write the request: %w", path, err)
	}
	return call{operation: path, path: path, body: data}, nil
}

// askJSON sends a JSON body and reads a JSON answer into result, which may be nil.
func (c *connection) askJSON(ctx context.Context, path string, body, result any) error {
	l, err := jsonCall(path, body)
	if err != nil {
		return err
	}
	a, err := c.ask(ctx, l)
	if err != nil || result == nil {
		return err
	}
	return readJSON(path, a, result)
}

func readJSON(operation string, a answer, result any) error {
	if err := json.Unmarshal(a.body, result); err != nil {
		return fmt.Errorf("%w: %s: the answer is not what the API says: %w", ErrRefused, operation, err)
	}
	return nil
}
