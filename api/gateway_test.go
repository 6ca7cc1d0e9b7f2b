package api

import (
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"github.com/headway-rl/headway/api/protocol"
)

// agents is a gateway that says what it was asked, and has a metric.
type agents struct {
	calls atomic.Int64
	count prometheus.Counter
}

func newAgents() *agents {
	return &agents{count: prometheus.NewCounter(prometheus.CounterOpts{Name: "headway_gateway_test_total", Help: "A test's."})}
}

func (a *agents) Describe(ch chan<- *prometheus.Desc) { a.count.Describe(ch) }
func (a *agents) Collect(ch chan<- prometheus.Metric) { a.count.Collect(ch) }

func (a *agents) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	a.calls.Add(1)
	a.count.Inc()
	body, err := io.ReadAll(r.Body)
	if err != nil {
		http.Error(w, err.Error(), http.StatusTeapot)
		return
	}
	r.Body.Close()
	fmt.Fprintf(w, "%s %s rollout=%q authorization=%q body=%d call=%d", r.Method, r.URL.Path, r.Header.Get(protocol.RolloutHeader), r.Header.Get("Authorization"), len(body), a.calls.Load())
}

func startGateway(t *testing.T, o Options) (*client, *agents) {
	t.Helper()
	a := newAgents()
	c := start(t, o, nil)
	if err := c.server.Mount(Ports{Plane: c.plane, Gateway: a}); err != nil {
		t.Fatal(err)
	}
	return c, a
}

// One rollout's key takes its share of what all keys may have under way, and leaves the rest to others.
func TestCallsOfARollout(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	c := start(t, Options{Run: "r", RequestsMax: 2 * rolloutCallsMin}, nil)
	gateway := http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		entered <- struct{}{}
		<-leave
	})
	if err := c.server.Mount(Ports{Plane: c.plane, Gateway: gateway}); err != nil {
		t.Fatal(err)
	}
	done := make(chan int, rolloutCallsMin+1)
	sample := func(id string) answer {
		return c.do("POST", "/v1/completions", "{}", "Authorization", "Bearer "+c.server.keys.key(id))
	}
	for range rolloutCallsMin {
		go func() { done <- sample("g1-s0-a1").status }()
		<-entered
	}
	more := make(chan answer, 1)
	go func() { more <- sample("g1-s0-a1") }()
	select {
	case a := <-more:
		if a.status != 429 || !strings.Contains(a.body, "8 calls with this rollout's key") {
			t.Errorf("one more: %d %s", a.status, a.body)
		}
	case <-entered:
		t.Error("one more was let in")
	}
	go func() { done <- sample("g1-s1-a1").status }()
	<-entered
	close(leave)
	for range cap(done) {
		if status := <-done; status != 200 {
			t.Errorf("got %d", status)
		}
	}
	c.server.callsMu.Lock()
	defer c.server.callsMu.Unlock()
	if len(c.server.calls) != 0 {
		t.Errorf("calls that have ended still count: %v", c.server.calls)
	}
}

// A rollout's key samples for it, with tokens and without; nothing else does, and the refusal says what is wanted.
func TestAgentsAreAdmitted(t *testing.T) {
	secret := secrets["environment"]
	for _, tokens := range []bool{false, true} {
		o := Options{Run: "r"}
		if tokens {
			o.Tokens = testTokens(t)
		}
		cl, port := startGateway(t, o)
		key, foreign := cl.server.keys.key("g1-s2-a3"), newClaimKeys("r", "").key("g1-s2-a3")
		for _, c := range []struct {
			key, header string
			status      int
			says        string
		}{
			{key, "", 200, `rollout="g1-s2-a3"`},
			{key, "g1-s2-a3", 200, `rollout="g1-s2-a3"`},
			{key, "g9-s9-a9", 400, "different rollouts"},
			{foreign, "", 410, "claim another"},
			{"g1-s2-a4" + strings.TrimPrefix(key, "g1-s2-a3"), "", 410, "claim another"},
			{"g1-s2-a3." + cl.server.keys.sign(purposeSecret, "g1-s2-a3"), "", 410, "claim another"},
			{key[:len(key)-1], "", 401, "claim's key"},
			{key + "A", "", 401, "claim's key"},
			{"", "", 401, "no API key: want the claim's key"},
			{"", "g1-s2-a3", 401, "no API key: want the claim's key"},
			{"EMPTY", "g1-s2-a3", 401, "want the claim's key"},
			{"g1-s2-a3", "", 401, "a claim's id alone: want the claim's key"},
			{secret + ":g1-s2-a3", "", 401, "is TOKEN:ROLLOUT, which would give the worker's token to its agent: want the claim's key"},
			{secret + ":" + key, "", 401, "want the claim's key"},
			{secret, "g1-s2-a3", map[bool]int{false: 401, true: 403}[tokens], "the claim's key"},
			{secrets["admin"], "g1-s2-a3", map[bool]int{false: 401, true: 403}[tokens], "the claim's key"},
		} {
			before := port.calls.Load()
			var headers []string
			if c.key != "" {
				headers = append(headers, "Authorization", "Bearer "+c.key)
			}
			if c.header != "" {
				headers = append(headers, protocol.RolloutHeader, c.header)
			}
			a := cl.do("POST", "/v1/chat/completions", `{}`, headers...)
			if a.status != c.status || !strings.Contains(a.body, c.says) {
				t.Errorf("tokens %v, %+v: %d %s", tokens, c, a.status, a.body)
			}
			if c.status == 200 {
				if !strings.Contains(a.body, `authorization=""`) {
					t.Errorf("%+v: %s", c, a.body)
				}
				continue
			}
			var body struct{ Error protocol.CompletionError }
			if err := json.Unmarshal([]byte(a.body), &body); err != nil || body.Error.Type == "" || body.Error.Code == "" || port.calls.Load() != before {
				t.Errorf("%+v: %v %s", c, err, a.body)
			}
			if said := cl.logs.String() + a.body; strings.Contains(said, secret) || strings.Contains(said, key) || strings.Contains(said, foreign) {
				t.Errorf("%+v: a secret is told on: %s", c, said)
			}
		}
	}
}

// Everybody who is known may see the models; unknown names of models reach the gateway whole.
func TestModelsAreListed(t *testing.T) {
	c, _ := startGateway(t, Options{Tokens: testTokens(t)})
	viewer := []string{"Authorization", "Bearer " + secrets["viewer"]}
	if a := c.do("GET", "/v1/models", "", viewer...); a.status != 200 {
		t.Errorf("%d %s", a.status, a.body)
	}
	for _, spelled := range []string{"Qwen/Qwen3-8B", "Qwen%2FQwen3-8B"} { // libraries escape the name or not
		if a := c.do("GET", "/v1/models/"+spelled, "", viewer...); a.status != 200 || !strings.Contains(a.body, "/v1/models/Qwen/Qwen3-8B ") {
			t.Errorf("%d %s", a.status, a.body)
		}
	}
	for _, climbing := range []string{"..%2Fstatus", "%2F%2Fx", "a%5Cb"} {
		if a := c.do("GET", "/v1/models/"+climbing, "", viewer...); a.status != 400 {
			t.Errorf("%s: %d %s", climbing, a.status, a.body)
		}
	}
	if a := c.do("GET", "/v1/models", ""); a.status != 401 {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// A stream is never kept: a call that is sent again with its Idempotency-Key is made again.
func TestStreamsAreNotKept(t *testing.T) {
	c, port := startGateway(t, Options{})
	key := c.server.keys.key("g1-s0-a1")
	for range 2 {
		if a := c.do("POST", "/v1/completions", `{}`, "Idempotency-Key", "k", "Authorization", "Bearer "+key); a.status != 200 || a.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%d %v", a.status, a.header)
		}
	}
	if n := port.calls.Load(); n != 2 {
		t.Errorf("%d calls", n)
	}
}

// A body over the limit, a run without a gateway, a path that is not there, a server that is not ready.
func TestAgentsAreRefused(t *testing.T) {
	c, _ := startGateway(t, Options{BodyBytesMax: 2048})
	auth := []string{"Authorization", "Bearer " + c.server.keys.key("g1-s0-a1")}
	if a := c.do("POST", "/v1/completions", strings.Repeat(" ", 2000)+"{}", auth...); a.status != 200 || !strings.Contains(a.body, "body=2002") {
		t.Errorf("%d %s", a.status, a.body)
	}
	if a := c.do("POST", "/v1/completions", strings.Repeat(" ", 3000), auth...); a.status != 413 || !strings.Contains(a.body, `"type":"invalid_request_error"`) {
		t.Errorf("%d %s", a.status, a.body)
	}
	c.plane.setReady(protocol.Refuse(protocol.CodeUnavailable, "starting"))
	writers := []string{"Authorization", "Bearer " + newClaimKeys("r", "").key("g1-s0-a1")} // its claim may go on there
	for _, auth := range [][]string{auth, writers} {
		if a := c.do("POST", "/v1/completions", `{}`, auth...); a.status != 503 || a.header.Get("Retry-After") == "" || a.header.Get("X-Should-Retry") != "true" {
			t.Errorf("%d %v", a.status, a.header)
		}
	}
	c.plane.setReady(nil)
	if a := c.do("POST", "/v1/completions", `{}`, writers...); a.status != 410 {
		t.Errorf("a key that the writer does not know: %d %s", a.status, a.body)
	}
	without := start(t, Options{}, nil)
	if a := without.do("POST", "/v1/completions", `{}`, "Authorization", "Bearer "+without.server.keys.key("g1-s0-a1")); a.status != 404 || !strings.Contains(a.body, "environment.kind: remote") {
		t.Errorf("%d %s", a.status, a.body)
	}
}

// The room that bodies take of their role's is given back once they are decoded.
func TestAgentsBodiesAreReleased(t *testing.T) {
	c, _ := startGateway(t, Options{BodyBytesMax: 2048, BodiesBytesMax: 2048})
	for range 5 {
		if a := c.do("POST", "/v1/completions", strings.Repeat(" ", 1500)+"{}", "Authorization", "Bearer "+c.server.keys.key("g1-s0-a1")); a.status != 200 {
			t.Fatalf("%d %s", a.status, a.body)
		}
	}
	for i := range c.server.held {
		if n := c.server.held[i].Load(); n != 0 {
			t.Errorf("%d bytes are held", n)
		}
	}
}

// The gateway's metrics stand beside the server's, of the gateway that is mounted.
func TestGatewayMetrics(t *testing.T) {
	c, _ := startGateway(t, Options{})
	c.do("POST", "/v1/completions", `{}`, "Authorization", "Bearer "+c.server.keys.key("g1-s0-a1"))
	body := c.do("GET", "/metrics", "").body
	for _, want := range []string{"headway_gateway_test_total 1", `headway_http_requests_total{code="200",path="/v1/completions"} 1`} {
		if !strings.Contains(body, want) {
			t.Errorf("no %s in the metrics", want)
		}
	}
}

func TestClaimID(t *testing.T) {
	for text, want := range map[string]bool{"g1-s0-a0": true, "g123-s45-a6": true, "": false, "g1-s0": false, "g01-s0-a0": false, "g1-s0-a0 ": false,
		"g-1-s0-a0": false, "s1-g0-a0": false, "g1-s0-a0-x1": false, "e200-s3-a1": true, "e200-e3-a1": false, "ge1-s0-a0": false, "gg1-s0-a0": false, "x1-s0-a0": false, "g+1-s0-a0": false, "g99999999999999999999-s0-a0": false} {
		if isClaimID(text) != want {
			t.Errorf("%q: %v", text, !want)
		}
	}
}

// What is not there below /v1 is the gateway's to say, in the form that its clients read.
func TestUnknownPathsOfAgents(t *testing.T) {
	c, port := startGateway(t, Options{})
	for i, path := range []string{"/v1/responses", "/v1/embeddings", "/v1/chat"} {
		if a := c.do(http.MethodPost, path, `{}`, "Authorization", "Bearer "+c.server.keys.key("g1-s0-a1")); a.status != 200 || !strings.Contains(a.body, path) || port.calls.Load() != int64(i+1) {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := c.do(http.MethodGet, "/v1/chat/completions", `{}`, "Authorization", "Bearer "+c.server.keys.key("g1-s0-a1")); a.status != 200 || !strings.Contains(a.body, "GET /v1/chat/completions") {
		t.Errorf("GET: %d %s", a.status, a.body)
	}
}
