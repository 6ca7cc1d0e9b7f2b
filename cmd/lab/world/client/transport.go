package client

import (
	"bytes"
	"context"
	"encoding/hex"
	"encoding/json"
	"errors"
	"io"
	"math"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"sync"
	"time"
)

const (
	// defectTries bounds how often an answer of 500 is taken for a passing one.
	defectTries = 3
	pauseFirst  = 50 * time.Millisecond
	pauseMost   = 2 * time.Second
	// retryAfterMost bounds what a server may ask to wait.
	retryAfterMost = 30 * time.Second
	connectLimit   = 10 * time.Second
	callLimit      = 30 * time.Second
	// noLimit is that of a call which may wait for any time, copyLimit that of a publish which names files. Patience begins when a
	// wait has ended that may be longer than it.
	noLimit   time.Duration = math.MaxInt64
	copyLimit               = time.Hour
	// PatienceDefault is how long a call waits for a control plane that does not answer, or is not ready.
	PatienceDefault = 600 * time.Second
)

// errClosed is what a call fails with after its transport was closed.
var errClosed = errors.New("client: the transport is closed")

// Options are what a trainer and a worker have in common.
type Options struct {
	// HTTP sends the requests; nil means a client with a transport of its own. Its time limit must be 0.
	HTTP *http.Client
	// URLs are the addresses of the control planes, in the order in which they are tried.
	URLs []string
	// Token is sent as a bearer token; empty for none.
	Token string
	// Rand draws pauses, keys and weights. Nil means a source of Seed.
	Rand *rand.Rand
	Seed uint64
	// Patience is how long every call waits for a control plane that does not answer; 0 means PatienceDefault. Less
	// than 0 means one try.
	Patience time.Duration
}

// Transport sends calls to one control plane, which may have several addresses. Goroutines may share it.
type Transport struct {
	http     *http.Client
	urls     []string
	token    string
	patience time.Duration
	// stopped ends waits early. closed ends requests, too.
	stopped *event
	closed  context.Context
	close   context.CancelFunc

	mu   sync.Mutex
	at   int
	rand *rand.Rand
}

// NewTransport returns a transport, or Invalid where there is no address.
func NewTransport(options Options) (*Transport, error) {
	t := &Transport{token: strings.TrimSpace(options.Token), patience: options.Patience, stopped: newEvent(), rand: options.Rand}
	for _, one := range options.URLs {
		for _, address := range strings.Split(one, ",") {
			address = strings.TrimSpace(address)
			if address == "" {
				continue
			}
			address, err := checked(address)
			if err != nil {
				return nil, err
			}
			t.urls = append(t.urls, address)
		}
	}
	if len(t.urls) == 0 {
		return nil, refuse(Invalid, "no address to connect to: give a url such as http://127.0.0.1:7070")
	}
	if t.patience == 0 {
		t.patience = PatienceDefault
	}
	if t.rand == nil {
		t.rand = rand.New(rand.NewPCG(options.Seed, 0))
	}
	t.http = &http.Client{Transport: &http.Transport{MaxIdleConnsPerHost: 64}}
	if options.HTTP != nil {
		copied := *options.HTTP
		t.http = &copied
	}
	t.http.CheckRedirect = func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }
	t.closed, t.close = context.WithCancel(context.Background())
	return t, nil
}

// checked is an address as it is called.
func checked(address string) (string, error) {
	parsed, err := url.Parse(address)
	if err != nil || (parsed.Scheme != "http" && parsed.Scheme != "https") || parsed.Hostname() == "" {
		return "", refuse(Invalid, "the url %q cannot be: want http://HOST:PORT or https://HOST:PORT", address)
	}
	return strings.TrimRight(address, "/"), nil
}

// to returns what sends calls to one address alone, by the same connections.
func (t *Transport) to(address string) (*Transport, error) {
	address, err := checked(address)
	if err != nil {
		return nil, err
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return &Transport{http: t.http, urls: []string{address}, token: t.token, patience: t.patience, stopped: t.stopped, closed: t.closed, close: t.close,
		rand: rand.New(rand.NewPCG(t.rand.Uint64(), 0))}, nil
}

// URL is the address that is in use.
func (t *Transport) URL() string {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.urls[t.at%len(t.urls)]
}

// Close ends waiting calls and requests.
func (t *Transport) Close() {
	t.stopped.set()
	t.close()
}

// next moves on to the next address.
func (t *Transport) next() {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.at++
}

// leave moves on to the next address after a failure at one. Calls that fail there together move on once.
func (t *Transport) leave(base string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.urls[t.at%len(t.urls)] == base {
		t.at++
	}
}

// key draws an Idempotency-Key: 32 hexadecimal digits.
func (t *Transport) key() string {
	var digits [16]byte
	t.mu.Lock()
	defer t.mu.Unlock()
	for at := range digits {
		digits[at] = byte(t.rand.UintN(256))
	}
	return hex.EncodeToString(digits[:])
}

// uniform draws a number from low to high.
func (t *Transport) uniform(low, high float64) float64 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return low + (high-low)*t.rand.Float64()
}

// call is one call, which may take several tries.
type call struct {
	method, path string
	// message is sent as JSON; body, where there is one, as it is.
	message map[string]any
	body    *content
	headers map[string]string
	// limit bounds the time without a byte; 0 means callLimit. patience is the transport's where it is nil.
	limit    time.Duration
	patience *time.Duration
	// stop ends the waits between tries; nil means the transport's own.
	stop *event
	// joins: the call goes on where the one before it was. Without an answer in time it fails with errSilent.
	joins bool
}

// content is a body that can be sent any number of times.
type content struct {
	kind  string
	parts [][]byte
}

func (c *content) size() int64 {
	var size int64
	for _, part := range c.parts {
		size += int64(len(part))
	}
	return size
}

func (c *content) reader() io.Reader {
	readers := make([]io.Reader, len(c.parts))
	for at, part := range c.parts {
		readers[at] = bytes.NewReader(part)
	}
	return io.MultiReader(readers...)
}

// answer is an answer that has been read to its end.
type answer struct {
	status int
	header http.Header
	body   []byte
}

// object decodes the JSON object of an answer into a struct. It reports whether the answer has one.
func (a *answer) object(into any) (bool, error) {
	if a.status == http.StatusNoContent || len(a.body) == 0 {
		return false, nil
	}
	trimmed := bytes.TrimSpace(a.body)
	if len(trimmed) == 0 || trimmed[0] != '{' || json.Unmarshal(trimmed, into) != nil {
		err := refuse(Internal, "the answer is %q where a JSON object was expected", cut(string(a.body), 200))
		err.Status = a.status
		return false, err
	}
	return true, nil
}

// post sends a message and decodes the answer's object, which may be absent.
func (t *Transport) post(ctx context.Context, c call, into any) error {
	c.method = http.MethodPost
	found, err := t.do(ctx, c)
	if err != nil {
		return err
	}
	_, err = found.object(into)
	return err
}

// do sends until the call is answered with anything final. Answers of 205 and refusals are errors.
func (t *Transport) do(ctx context.Context, c call) (*answer, error) {
	headers := http.Header{}
	for name, value := range c.headers {
		headers.Set(name, value)
	}
	if c.method != http.MethodGet {
		headers.Set("Idempotency-Key", t.key())
	}
	if c.message != nil {
		text, err := json.Marshal(c.message)
		if err != nil {
			return nil, refuse(Invalid, "%s %s: the message cannot be JSON: %v", c.method, c.path, err)
		}
		c.body = &content{kind: "application/json", parts: [][]byte{text}}
	}
	again := t.retry(c)
	for {
		base, began := t.URL(), time.Now()
		found, err := t.try(ctx, c, base, headers)
		failure := &Error{}
		switch {
		case ctx.Err() != nil:
			return nil, context.Cause(ctx)
		case t.closed.Err() != nil && err != nil:
			return nil, errClosed
		case c.joins && errors.Is(err, errSilent):
			return nil, errSilent
		case err != nil:
			failure = refuse(Unavailable, "%s %s%s: no answer (%v)", c.method, base, c.path, err)
			failure.cause = err
			again.unanswered = again.unanswered || !connecting(err)
		case found.status < 300 && found.status != http.StatusResetContent:
			return found, nil
		default:
			failure = refusal(found.status, found.body)
			if !again.refused(found) {
				return nil, failure
			}
		}
		if c.limit > again.patience && (err == nil || !connecting(err)) {
			again.deadline = again.deadline.Add(time.Since(began))
		}
		t.leave(base)
		if !again.wait(ctx) {
			failure.Unanswered = again.unanswered
			return nil, failure
		}
	}
}

// connecting reports that a try failed before it was sent.
func connecting(err error) bool {
	var op *net.OpError
	return errors.Is(err, errConnect) || (errors.As(err, &op) && op.Op == "dial")
}

// retry keeps the pauses of one call.
type retry struct {
	patience  time.Duration
	transport *Transport
	deadline  time.Time
	stop      *event
	pause     time.Duration
	after     time.Duration
	defects   int
	// unanswered: a try may have been done.
	unanswered bool
}

func (t *Transport) retry(c call) *retry {
	patience := max(t.patience, 0)
	if c.patience != nil {
		patience = *c.patience
	}
	stop := c.stop
	if stop == nil {
		stop = t.stopped
	}
	return &retry{transport: t, patience: patience, deadline: time.Now().Add(patience), stop: stop, pause: pauseFirst}
}

// refused notes a refusal. It reports whether the call may be tried again.
func (r *retry) refused(found *answer) bool {
	switch found.status {
	case http.StatusInternalServerError:
		r.defects++
	case http.StatusTooManyRequests, http.StatusInsufficientStorage: // said before anything is done
	case http.StatusBadGateway, http.StatusServiceUnavailable, http.StatusGatewayTimeout:
	default:
		return false
	}
	if found.status != http.StatusTooManyRequests && found.status != http.StatusInsufficientStorage {
		r.unanswered = true
	}
	r.after = 0
	if asked, err := strconv.ParseFloat(found.header.Get("Retry-After"), 64); err == nil && asked > 0 {
		r.after = seconds(min(asked, retryAfterMost.Seconds()))
	}
	return true
}

// wait pauses before the next try. It reports whether there is one.
func (r *retry) wait(ctx context.Context) bool {
	left := time.Until(r.deadline)
	if left <= 0 || r.defects >= defectTries || r.stop.isSet() {
		return false
	}
	drawn := time.Duration(float64(r.pause) * r.transport.uniform(0.5, 1))
	pause := max(drawn, r.after)
	r.pause, r.after = min(2*r.pause, pauseMost), 0
	return !r.stop.wait(ctx, min(pause, left))
}

// seconds makes a duration of a number of seconds.
func seconds(s float64) time.Duration {
	return time.Duration(s * float64(time.Second))
}
