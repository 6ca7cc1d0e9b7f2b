package apitest

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"sync"
	"text/tabwriter"
	"time"
)

// Report is how requests were answered.
type Report struct {
	// Requests that were sent. Cut counts those whose connection ended without an answer.
	Requests, Cut int
	// Statuses counts answers by route and status.
	Statuses map[string]map[int]int
	// Faults are answers that no request should get, at most 50 of them.
	Faults []string
}

// String is a table of statuses by route.
func (r *Report) String() string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d requests, %d without an answer, %d faults\n", r.Requests, r.Cut, len(r.Faults))
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	for _, route := range sortedKeys(r.Statuses) {
		fmt.Fprint(w, route)
		for _, status := range sortedKeys(r.Statuses[route]) {
			fmt.Fprintf(w, "\t%d: %d", status, r.Statuses[route][status])
		}
		fmt.Fprintln(w)
	}
	_ = w.Flush() // into memory
	return b.String()
}

func sortedKeys[K interface{ ~int | ~string }, V any](m map[K]V) []K {
	keys := make([]K, 0, len(m))
	for k := range m {
		keys = append(keys, k)
	}
	slices.Sort(keys)
	return keys
}

// patience is how long an answer is waited for. A request that waits for work is left then, as a client leaves.
const patience = time.Second

// Send makes so many requests from a seed, some at a time, and reports how they were answered.
func Send(ctx context.Context, target Target, seed uint64, requests, clients int) *Report {
	report := &Report{Statuses: map[string]map[int]int{}}
	var mu sync.Mutex
	var sending sync.WaitGroup
	for number := range clients {
		sending.Go(func() {
			g := &generator{&target, rand.New(rand.NewPCG(seed, uint64(number)))}
			transport := &http.Transport{DisableCompression: true, MaxIdleConnsPerHost: 2}
			defer transport.CloseIdleConnections()
			client := &http.Client{Transport: transport, CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}
			for range requests / clients {
				if ctx.Err() != nil {
					return
				}
				q := g.next()
				status, fault := g.ask(ctx, client, q)
				mu.Lock()
				report.note(q, status, fault)
				mu.Unlock()
			}
		})
	}
	sending.Wait()
	return report
}

func (r *Report) note(q *request, status int, fault string) {
	r.Requests++
	if status == 0 {
		r.Cut++
	} else {
		pattern := q.route.Pattern()
		if !q.right {
			pattern = "(broken, or another path or method)"
		}
		if r.Statuses[pattern] == nil {
			r.Statuses[pattern] = map[int]int{}
		}
		r.Statuses[pattern][status]++
	}
	if fault != "" && len(r.Faults) < 50 {
		r.Faults = append(r.Faults, fmt.Sprintf("%s: %d to %s %.200q as %s (%s) with the body %.300q", fault, status, q.method, q.target, q.caller, strings.Join(q.how, ", "), q.body))
	}
}

// ask sends a request and judges the answer. A status of 0 is none.
func (g *generator) ask(ctx context.Context, client *http.Client, q *request) (status int, fault string) {
	ctx, leave := context.WithTimeout(ctx, patience)
	defer leave()
	var response *http.Response
	var err error
	if q.raw != "" {
		response, err = g.askRaw(ctx, q)
	} else {
		response, err = g.askPlainly(ctx, client, q)
	}
	if err != nil {
		return 0, ""
	}
	defer response.Body.Close()
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/event-stream") {
		return response.StatusCode, g.judge(q, response, nil)
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return 0, ""
	}
	return response.StatusCode, g.judge(q, response, body)
}

func (g *generator) askPlainly(ctx context.Context, client *http.Client, q *request) (*http.Response, error) {
	// The target is set by its parts, so that the client does not clean it.
	path, query, _ := strings.Cut(q.target, "?")
	at, err := url.Parse(g.URL)
	if err != nil {
		return nil, err
	}
	if at.Path, err = url.PathUnescape(path); err != nil {
		return nil, err
	}
	at.RawPath, at.RawQuery = path, query
	r, err := http.NewRequestWithContext(ctx, http.MethodGet, g.URL, strings.NewReader(q.body))
	if err != nil {
		return nil, err
	}
	r.Method, r.URL, r.Header = q.method, at, q.header
	if q.host != "" {
		r.Host = q.host
	}
	return client.Do(r)
}

// askRaw writes a request as it is, says that nothing follows, and reads what is answered.
func (g *generator) askRaw(ctx context.Context, q *request) (*http.Response, error) {
	at, err := url.Parse(g.URL)
	if err != nil {
		return nil, err
	}
	conn, err := (&net.Dialer{}).DialContext(ctx, "tcp", at.Host)
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	end, _ := ctx.Deadline()
	if err := conn.SetDeadline(end); err != nil {
		return nil, err
	}
	if _, err := io.WriteString(conn, q.raw); err != nil {
		return nil, err
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		return nil, err
	}
	response, err := http.ReadResponse(bufio.NewReader(conn), &http.Request{Method: q.method})
	if err != nil {
		return nil, err
	}
	body, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	response.Body = io.NopCloser(strings.NewReader(string(body)))
	return response, err
}

// judge says what is wrong with an answer, nothing if it is right.
func (g *generator) judge(q *request, response *http.Response, body []byte) string {
	status := response.StatusCode
	if q.raw != "" && (status == http.StatusNotImplemented || status == http.StatusHTTPVersionNotSupported) {
		return "" // net/http's own words for what it does not speak
	}
	for _, secret := range append([]string{g.Secret, g.Key}, tokensOf(g.Tokens)...) {
		if len(secret) > 16 && strings.Contains(string(body), secret) && !strings.Contains(q.body+q.target, secret) {
			return "a secret is told"
		}
	}
	switch {
	case status >= 500 && status != http.StatusServiceUnavailable:
		return "a defect of the server"
	case status == http.StatusServiceUnavailable && response.Header.Get("Retry-After") == "":
		return "no word of when to try again"
	case status < 300 && status != http.StatusSwitchingProtocols && q.sure && q.raw == "":
		return "a wrong request is taken"
	case status < 300 && q.right && q.raw == "" && !g.allowed(q):
		return "a caller does what it may not"
	case status < 400, status == http.StatusExpectationFailed, // net/http's own, without a body
		response.Request != nil && response.Request.Method == http.MethodHead || q.method == http.MethodHead:
		return ""
	}
	if plain := strings.TrimSpace(string(body)); g.Plain && (plain == "404 page not found" || plain == http.StatusText(status)) {
		return ""
	}
	return refusalFault(response, body)
}

func tokensOf(tokens map[string]string) (secrets []string) {
	for _, secret := range tokens {
		secrets = append(secrets, secret)
	}
	return secrets
}

// allowed reports whether the table lets a caller in. What takes the claim's secret is let in with that alone, which no
// request of these has.
func (g *generator) allowed(q *request) bool { return q.route.may[q.caller] == mayYes }

// refusalFault says in what a refusal is not one: a JSON error with a code, or OpenAI's type, and a message.
func refusalFault(response *http.Response, body []byte) string {
	if strings.HasPrefix(response.Header.Get("Content-Type"), "text/plain") && strings.HasPrefix(string(body), fmt.Sprintf("%d ", response.StatusCode)) {
		return "" // net/http's own, of what is no HTTP
	}
	var said struct {
		Error struct {
			Code, Type, Message string
		}
	}
	if err := json.Unmarshal(body, &said); err != nil {
		return fmt.Sprintf("a refusal that is no JSON error (%v: %.100q)", err, body)
	}
	if said.Error.Code == "" && said.Error.Type == "" || said.Error.Message == "" {
		return fmt.Sprintf("a refusal without a code or a message (%.200q)", body)
	}
	return ""
}
