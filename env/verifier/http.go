package verifier

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"strconv"
	"sync/atomic"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// answerMax bounds what a program or a server may answer to one case, in bytes.
const answerMax = 1 << 20

// server asks over HTTP: one POST a case, in the words that programs are asked in.
type server struct {
	o      Options
	client *http.Client
	at     *url.URL
	asked  atomic.Int64
}

func newHTTP(o Options) (Verifier, error) {
	at, err := url.Parse(o.URL)
	if err != nil || (at.Scheme != "http" && at.Scheme != "https") || at.Host == "" {
		return nil, fmt.Errorf("verifier: http needs a URL such as http://127.0.0.1:9000/verify, not %q", o.URL)
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.MaxIdleConnsPerHost = o.Concurrency
	return &server{o: o, at: at, client: &http.Client{
		Transport:     transport,
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse },
	}}, nil
}

// Verify implements Verifier.
func (s *server) Verify(ctx context.Context, c Case) (Verdict, error) {
	id := strconv.FormatInt(s.asked.Add(1), 10)
	text, err := c.request(id)
	if err != nil {
		return Verdict{}, err
	}
	body, err := s.post(ctx, text)
	if err != nil {
		return Verdict{}, err
	}
	a, err := parseAnswer(body)
	if err == nil && a.id != "" && a.id != id {
		err = fmt.Errorf("the answer is to case %q, and %q was asked", clip(a.id, 80), id)
	}
	if err != nil {
		return Verdict{}, sandbox.Fail(sandbox.VerifierProtocol, "verify", "", "%s answered what is no verdict: %w", s.at.Redacted(), err)
	}
	return a.finish(s.o.Range)
}

// post sends a case and returns what was answered. Sent again is only what has certainly not been
// judged: where no connection came about, or the server says itself that it has no time now.
func (s *server) post(ctx context.Context, text []byte) ([]byte, error) {
	r, err := http.NewRequestWithContext(ctx, http.MethodPost, s.at.String(), bytes.NewReader(text))
	if err != nil {
		return nil, sandbox.Fail(sandbox.Refused, "verify", "", "%w", err)
	}
	r.Header.Set("Content-Type", "application/json")
	for name, value := range s.o.Headers {
		r.Header.Set(name, value)
	}
	response, err := s.client.Do(r)
	if err != nil {
		return nil, unreached(err)
	}
	defer response.Body.Close()
	body, err := io.ReadAll(io.LimitReader(response.Body, answerMax+1))
	switch code := response.StatusCode; {
	case code == http.StatusTooManyRequests || code == http.StatusServiceUnavailable:
		busy := sandbox.Fail(sandbox.VerifierCrash, "verify", "", "%s has no time: %s: %q", s.at.Redacted(), response.Status, clip(string(body), 200))
		return nil, Again(busy, waitFor(response.Header.Get("Retry-After")))
	case code >= 500:
		return nil, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "%s failed: %s: %q", s.at.Redacted(), response.Status, clip(string(body), 200))
	case code < 200 || code > 299:
		return nil, sandbox.Fail(sandbox.VerifierProtocol, "verify", "", "%s refused: %s: %q", s.at.Redacted(), response.Status, clip(string(body), 200))
	case err != nil:
		return nil, sandbox.Fail(sandbox.VerifierCrash, "verify", "", "%s broke off its answer: %w", s.at.Redacted(), err)
	case len(body) > answerMax:
		return nil, sandbox.Fail(sandbox.VerifierProtocol, "verify", "", "%s answered more than %d bytes", s.at.Redacted(), answerMax)
	}
	return body, nil
}

func unreached(err error) error {
	failed := sandbox.Fail(sandbox.VerifierCrash, "verify", "", "%w", err)
	if op, ok := errors.AsType[*net.OpError](err); ok && op.Op == "dial" {
		return Again(failed, 0)
	}
	return failed
}

// waitFor reads Retry-After, in seconds or as a date.
func waitFor(header string) time.Duration {
	if seconds, err := strconv.ParseUint(header, 10, 20); err == nil {
		return time.Duration(seconds) * time.Second
	}
	if at, err := http.ParseTime(header); err == nil {
		return max(time.Until(at), 0)
	}
	return 0
}

// Close implements Verifier.
func (s *server) Close() error {
	s.client.CloseIdleConnections()
	return nil
}
