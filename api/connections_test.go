package api

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"runtime"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// bound is what the server says of one of its bounds.
func (c *client) bound(name string) protocol.Bound {
	c.t.Helper()
	for _, b := range c.server.Bounds() {
		if b.Name == name {
			return b
		}
	}
	c.t.Fatalf("no bound %s", name)
	return protocol.Bound{}
}

// line is a connection that a test keeps.
type line struct {
	net.Conn
	read *bufio.Reader
}

func (c *client) dial() *line {
	c.t.Helper()
	connection, err := net.Dial("tcp", c.address)
	if err != nil {
		c.t.Fatal(err)
	}
	c.t.Cleanup(func() { connection.Close() })
	return &line{connection, bufio.NewReader(connection)}
}

// ask sends a request whose body, if any, is an empty object. It has the token of a role, unless that is empty.
func (l *line) ask(method, path, role string) {
	authorization, body := "", ""
	if role != "" {
		authorization = "Authorization: Bearer " + secrets[role] + "\r\n"
	}
	if method == "POST" {
		body = "{}"
	}
	fmt.Fprintf(l, "%s %s HTTP/1.1\r\nHost: localhost\r\n%sContent-Length: %d\r\n\r\n%s", method, path, authorization, len(body), body)
}

// reply reads the next reply: status 0 for a connection that closed.
func (l *line) reply() answer {
	res, err := http.ReadResponse(l.read, nil)
	if err != nil {
		return answer{}
	}
	text, _ := io.ReadAll(res.Body)
	return answer{res.StatusCode, res.Header, string(text)}
}

// herd opens connections that each send a text and wait.
func (c *client) herd(n int, text string) []*line {
	c.t.Helper()
	herd := make([]*line, n)
	for i := range herd {
		herd[i] = c.dial()
		_, _ = io.WriteString(herd[i], text)
	}
	return herd
}

// strangers are herds that show no token: half-open, slow with a header, slow with a body, idle after a probe.
var strangers = map[string]string{
	"half-open":   "",
	"slow header": "GET /healthz HTTP/1.1\r\nHost: localhost\r\nX-Slow: ",
	"slow body":   "POST /test HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n{",
	"idle":        "GET /healthz HTTP/1.1\r\nHost: localhost\r\n\r\n",
}

// Connections over which no token came cannot keep anybody out, however many there are: probes and clients are
// answered, and a request that waits gets its reply. Nothing of them is left.
func TestStrangersKeepNobodyOut(t *testing.T) {
	for name, text := range strangers {
		t.Run(name, func(t *testing.T) { testStrangers(t, text) })
	}
}

func testStrangers(t *testing.T, text string) {
	entered, leave := make(chan struct{}), make(chan struct{})
	c := start(t, Options{Tokens: testTokens(t), ConnectionsMax: 32}, func(s *Server) {
		s.route("POST /test", RoleTrainer, func(w http.ResponseWriter, r *http.Request) error {
			entered <- struct{}{}
			<-leave
			return writeJSON(w, struct{}{})
		})
	})
	waits, kept := c.dial(), c.dial()
	waits.ask("POST", "/test", "trainer")
	<-entered
	kept.ask("GET", "/api/v1/status", "viewer")
	if a := kept.reply(); a.status != 200 {
		t.Fatalf("a client: %d %s", a.status, a.body)
	}
	before := runtime.NumGoroutine()
	herd := c.herd(300, text)
	for _, path := range []string{"/healthz", "/readyz"} {
		if a := c.do("GET", path, ""); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	a := c.do("GET", "/api/v1/status", "", "Authorization", "Bearer "+secrets["admin"])
	if a.status != 200 || !strings.Contains(a.body, `"name":"newcomers"`) {
		t.Errorf("a new client: %d %s", a.status, a.body)
	}
	if b := c.bound("newcomers"); b.Max != 4 || b.Held > b.Max || b.Refused < 290 {
		t.Errorf("newcomers: %+v", b)
	}
	if b := c.bound("connections"); b.Max != 28 || b.Held > 3 || b.Binding || b.Refused != 0 {
		t.Errorf("connections: %+v", b)
	}
	kept.ask("GET", "/api/v1/status", "viewer")
	if a := kept.reply(); a.status != 200 {
		t.Errorf("the client that was idle: %d %s", a.status, a.body)
	}
	close(leave)
	if a := waits.reply(); a.status != 200 {
		t.Errorf("the request that waited: %d %s", a.status, a.body)
	}
	for _, l := range herd {
		l.Close()
	}
	for c.bound("newcomers").Held > 0 || runtime.NumGoroutine() > before { // their goroutines end soon
		runtime.Gosched()
	}
}

// With a request under way on every connection of clients, the next is told so; probes, metrics and the status are answered,
// and what is under way ends well.
func TestConnectionsOfClients(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	c := start(t, Options{ConnectionsMax: 8, RequestsMax: 100}, func(s *Server) {
		s.route("POST /test", roleAny, func(w http.ResponseWriter, r *http.Request) error {
			entered <- struct{}{}
			<-leave
			return writeJSON(w, struct{}{})
		})
	})
	herd := make([]*line, 7)
	for i := range herd {
		herd[i] = c.dial()
		herd[i].ask("POST", "/test", "")
		<-entered
	}
	a := c.do("POST", "/test", "{}")
	if a.status != 429 || a.code() != protocol.CodeBusy || !strings.Contains(a.body, `"bound":"connections"`) || a.header.Get("Retry-After") == "" {
		t.Errorf("one more: %d %s", a.status, a.body)
	}
	for _, path := range []string{"/healthz", "/readyz", "/metrics", "/api/v1/status"} {
		if a := c.do("GET", path, ""); a.status != 200 {
			t.Errorf("%s: %d %s", path, a.status, a.body)
		}
	}
	if a := c.do("GET", "/metrics", ""); !strings.Contains(a.body, `headway_bound_binding{bound="connections"} 1`) || !strings.Contains(a.body, `headway_bound_refused_total{bound="connections"} 1`) {
		t.Error("the metrics do not say that connections bind")
	}
	if b := c.bound("connections"); b != (protocol.Bound{Name: "connections", Held: 7, Max: 7, Binding: true, Refused: 1}) {
		t.Errorf("the bound: %+v", b)
	}
	close(leave)
	for i, l := range herd {
		if a := l.reply(); a.status != 200 {
			t.Errorf("request %d: %d %s", i, a.status, a.body)
		}
	}
	for b := c.bound("connections"); b.Binding; b = c.bound("connections") {
		runtime.Gosched()
	}
	next := c.dial() // an idle one makes place
	next.ask("GET", "/api/v1/view/x", "")
	if a := next.reply(); a.status == 429 {
		t.Errorf("the next: %d %s", a.status, a.body)
	}
}

// The tokens of one role hold half of the connections: a viewer's that wait keep no environment out.
func TestConnectionsOfARole(t *testing.T) {
	entered, leave := make(chan struct{}), make(chan struct{})
	defer close(leave)
	c := start(t, Options{ConnectionsMax: 8, RequestsMax: 100, Tokens: testTokens(t)}, func(s *Server) {
		s.route("POST /test", roleAny, func(w http.ResponseWriter, r *http.Request) error {
			entered <- struct{}{}
			<-leave
			return writeJSON(w, struct{}{})
		}, unbounded)
		s.route("POST /now", roleAny, func(w http.ResponseWriter, r *http.Request) error { return writeJSON(w, struct{}{}) })
	})
	for range 4 {
		c.dial().ask("POST", "/test", "viewer")
		<-entered
	}
	more := c.dial()
	more.ask("POST", "/now", "viewer")
	if a := more.reply(); a.status != 429 || a.code() != protocol.CodeBusy || !strings.Contains(a.body, "role viewer has requests under way on half of 8") {
		t.Errorf("one more: %d %s", a.status, a.body)
	}
	for _, role := range []string{"environment", "trainer", "admin"} {
		other := c.dial()
		other.ask("POST", "/now", role)
		if a := other.reply(); a.status != 200 {
			t.Errorf("role %s: %d %s", role, a.status, a.body)
		}
	}
}
