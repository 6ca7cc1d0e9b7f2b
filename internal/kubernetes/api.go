// Package kubernetes speaks to a Kubernetes API over net/http (docs/decisions/0021). It finds the
// cluster and the user as kubectl does, makes requests, and names the fault of a failed one in one
// word.
package kubernetes

import (
	"bytes"
	"cmp"
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
)

// Cluster is where a Kubernetes API is and who asks. The zero Cluster is found as kubectl finds it: by
// KUBECONFIG, in the home directory, or as the account of this process's pod.
type Cluster struct {
	// Config is a kubeconfig file, Context one of its contexts; empty is its current one.
	Config, Context string
	// URL of an API that asks for nothing, such as that of kubectl proxy: http://127.0.0.1:8001.
	URL string
}

// account is where Kubernetes puts what a pod needs to speak to its API. Tests have it elsewhere.
var account = "/var/run/secrets/kubernetes.io/serviceaccount"

// access is what is needed to speak to an API.
type access struct {
	url, namespace string
	// token is sent as it is; tokenFile is read anew for every request, for tokens there are short-lived.
	token, tokenFile string
	ca, cert, key    []byte // PEM
	insecure         bool
}

// API speaks to a Kubernetes API. It is safe for concurrent use.
type API struct {
	access
	client *http.Client
}

// New returns the API of a cluster, which has not been asked for anything.
func New(c Cluster) (*API, error) {
	found, err := c.access()
	if err != nil {
		return nil, fmt.Errorf("kubernetes: %w", err)
	}
	a := &API{access: found}
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

// Namespace is the cluster's own: of the kubeconfig's context, or of this process's pod; empty for none.
func (a *API) Namespace() string { return a.namespace }

// URL is the API's address, without a slash at its end.
func (a *API) URL() string { return a.url }

// Client speaks HTTP/1.1 to the API and trusts what the cluster's access says.
func (a *API) Client() *http.Client { return a.client }

// Header is what says who asks. The error is of a token that cannot be read.
func (a *API) Header() (http.Header, error) {
	header := http.Header{"Accept": {"application/json"}}
	if a.token != "" {
		header.Set("Authorization", "Bearer "+a.token)
	}
	if a.tokenFile != "" {
		token, err := os.ReadFile(a.tokenFile)
		if err != nil {
			return nil, &Error{Kind: Denied, Err: fmt.Errorf("kubernetes: %w", err)}
		}
		header.Set("Authorization", "Bearer "+strings.TrimSpace(string(token)))
	}
	return header, nil
}

// Request is one request.
type Request struct {
	// Method and Path, such as GET and /api/v1/namespaces/default/pods.
	Method, Path string
	// Query's empty values are left out.
	Query map[string]string
	// Body is sent as JSON; nil for none. Type is its content type, empty for application/json.
	Body any
	Type string
}

// MergePatch is the content type of a PATCH whose body names the fields that change.
const MergePatch = "application/merge-patch+json"

// largest is the most of an answer that is read.
const largest = 64 << 20

// Do asks for something once and reads the answer into into, unless that is nil. An error of the API
// wraps an *Error.
func (a *API) Do(ctx context.Context, r Request, into any) error {
	request, err := a.request(ctx, r)
	if err != nil {
		return err
	}
	response, err := a.client.Do(request)
	if err != nil {
		return &Error{Kind: Down, Err: fmt.Errorf("no answer from the Kubernetes API: %w", err)}
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, largest))
	if err != nil {
		return &Error{Kind: Down, Err: fmt.Errorf("half an answer from the Kubernetes API: %w", err)}
	}
	if response.StatusCode >= 300 {
		return Refusal(response.StatusCode, text)
	}
	if into == nil {
		return nil
	}
	if err := json.Unmarshal(text, into); err != nil {
		return &Error{Kind: Garbled, Err: fmt.Errorf("%s answered %.200q: %w", r.Path, text, err)}
	}
	return nil
}

func (a *API) request(ctx context.Context, r Request) (*http.Request, error) {
	var body io.Reader
	if r.Body != nil {
		text, err := json.Marshal(r.Body)
		if err != nil {
			return nil, err
		}
		body = bytes.NewReader(text)
	}
	query := url.Values{}
	for name, value := range r.Query {
		if value != "" {
			query.Set(name, value)
		}
	}
	address := a.url + r.Path
	if len(query) > 0 {
		address += "?" + query.Encode()
	}
	request, err := http.NewRequestWithContext(ctx, r.Method, address, body)
	if err != nil {
		return nil, err
	}
	if request.Header, err = a.Header(); err != nil {
		return nil, err
	}
	request.Header.Set("Content-Type", cmp.Or(r.Type, "application/json"))
	return request, nil
}
