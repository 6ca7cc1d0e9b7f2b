package kubernetes

import (
	"bytes"
	"context"
	"crypto/tls"
	"crypto/x509"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"os"
	"strings"

	"github.com/headway-rl/headway/sandbox"
)

// Cluster is where a Kubernetes API is and who asks. The zero Cluster is found as kubectl finds it: by
// KUBECONFIG, in the home directory, or as the account of this process's pod.
type Cluster struct {
	// Config is a kubeconfig file, Context one of its contexts; empty is its current one.
	Config, Context string
	// URL of an API that asks for nothing, such as that of kubectl proxy: http://127.0.0.1:8001.
	URL string
}

// account is where Kubernetes puts what a pod needs to speak to its API.
const account = "/var/run/secrets/kubernetes.io/serviceaccount"

// access is what is needed to speak to an API.
type access struct {
	url, namespace string
	// token is sent as it is; tokenFile is read anew for every request, for tokens there are short-lived.
	token, tokenFile string
	ca, cert, key    []byte // PEM
	insecure         bool
}

// api speaks to a Kubernetes API.
type api struct {
	access
	client *http.Client
}

func newAPI(c Cluster) (*api, error) {
	found, err := c.access()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	a := &api{access: found}
	a.url = strings.TrimRight(a.url, "/")
	if u, err := url.Parse(a.url); err != nil || u.Host == "" || u.Scheme != "http" && u.Scheme != "https" {
		return nil, fmt.Errorf("kubernetes: %q is no address of an API, such as https://host:6443", a.url)
	}
	trust := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: a.insecure} // as the kubeconfig says
	if len(a.ca) > 0 {
		trust.RootCAs = x509.NewCertPool()
		if !trust.RootCAs.AppendCertsFromPEM(a.ca) {
			return nil, errors.New("kubernetes: the certificate authority has no certificate in PEM")
		}
	}
	if len(a.cert) > 0 {
		pair, err := tls.X509KeyPair(a.cert, a.key)
		if err != nil {
			return nil, fmt.Errorf("kubernetes: the client's certificate: %w", err)
		}
		trust.Certificates = []tls.Certificate{pair}
	}
	transport := http.DefaultTransport.(*http.Transport).Clone()
	transport.TLSClientConfig = trust
	transport.ForceAttemptHTTP2 = false // commands are WebSockets, which HTTP/1.1 carries
	transport.TLSNextProto = map[string]func(string, *tls.Conn) http.RoundTripper{}
	a.client = &http.Client{Transport: transport}
	return a, nil
}

// call is one request.
type call struct {
	op           string
	id           sandbox.ID
	method, path string
	query        map[string]string
	body         any
}

// errNotFound is wrapped by the error of what the API does not have.
var errNotFound = errors.New("not found")

// header is what says who asks.
func (a *api) header() (http.Header, error) {
	header := http.Header{"Accept": {"application/json"}}
	if a.token != "" {
		header.Set("Authorization", "Bearer "+a.token)
	}
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, fmt.Errorf("kubernetes: %w", err)
		}
		header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return header, nil
}

// do asks for something once. What the API refuses has the class of why.
func (a *api) do(ctx context.Context, c call, into any) error {
	var body io.Reader
	if c.body != nil {
		text, err := json.Marshal(c.body)
		if err != nil {
			return err
		}
		body = bytes.NewReader(text)
	}
	query := url.Values{}
	for name, value := range c.query {
		if value != "" {
			query.Set(name, value)
		}
	}
	address := a.url + c.path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, c.method, address, body)
	if err != nil {
		return err
	}
	if request.Header, err = a.header(); err != nil {
		return sandbox.Fail(sandbox.Refused, c.op, c.id, "%w", err)
	}
	request.Header.Set("Content-Type", "application/json")
	response, err := a.client.Do(request)
	if err != nil {
		return sandbox.Fail(sandbox.BackendDown, c.op, c.id, "no answer from the Kubernetes API: %w", err)
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 64<<20))
	if err != nil {
		return sandbox.Fail(sandbox.BackendDown, c.op, c.id, "half an answer from the Kubernetes API: %w", err)
	}
	if response.StatusCode >= 300 {
		return refusal(c.op, c.id, response.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return sandbox.Fail(sandbox.Protocol, c.op, c.id, "%s answered %.200q: %w", c.path, text, err)
	}
	return nil
}

// status is Kubernetes' form of what came of a request, or of a command.
type status struct {
	Status, Reason, Message string
	Details                 struct {
		Causes []struct{ Reason, Message string }
	}
}

// refusal is the error of an answer that is none.
func refusal(op string, id sandbox.ID, code int, text []byte) error {
	var s status
	if json.Unmarshal(text, &s) != nil || s.Message == "" {
		s.Message = fmt.Sprintf("%.300s", text)
	}
	class := sandbox.Protocol
	switch {
	case code == http.StatusNotFound:
		return sandbox.Fail(sandbox.Lost, op, id, "%w: %s", errNotFound, s.Message)
	case code == http.StatusForbidden && strings.Contains(s.Message, "exceeded quota"), code == http.StatusTooManyRequests:
		class = sandbox.Quota
	case code == http.StatusForbidden, code == http.StatusUnauthorized, code == http.StatusUnprocessableEntity, code == http.StatusConflict, code == http.StatusBadRequest:
		class = sandbox.Refused
	case code >= 500:
		class = sandbox.BackendDown
	}
	return sandbox.Fail(class, op, id, "HTTP %d %s: %s", code, s.Reason, s.Message)
}
