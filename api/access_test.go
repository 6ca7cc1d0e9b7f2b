package api

import (
	"context"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"os"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// Who may ask: nobody known, the roles of tokens, and the holder of a rollout's key.
var callers = append(append([]string{"none"}, tokenRoles...), "key")

// reached is every port that a refused call must not come to.
type reached struct {
	Rollouts
	Trainers
	Meetings
	Receivers
	Senders
	Settings
	calls atomic.Int64
}

func (p *reached) ServeHTTP(w http.ResponseWriter, _ *http.Request) {
	p.calls.Add(1)
	w.WriteHeader(http.StatusOK)
}

func (p *reached) call() error {
	p.calls.Add(1)
	return protocol.Refuse(protocol.CodeConflict, "a test")
}

func (p *reached) Claim(context.Context, protocol.ClaimRequest) (protocol.Claims, error) {
	return protocol.Claims{}, p.call()
}

func (p *reached) Sample(context.Context, string, protocol.SampleRequest) (protocol.SampleReply, error) {
	return protocol.SampleReply{}, p.call()
}

func (p *reached) Lasting(_ context.Context, _ string, err error) error { return err }

func (p *reached) Touch(context.Context, string, protocol.TouchRequest) (protocol.TouchReply, error) {
	return protocol.TouchReply{}, p.call()
}

func (p *reached) Finish(context.Context, string, protocol.FinishRequest) (protocol.FinishReply, error) {
	return protocol.FinishReply{}, p.call()
}

// may is what an endpoint's roles say of a caller: yes, no, or with the claim's secret.
func (e endpoint) may(who string, tokens bool) string {
	allowed := e.roles == 0
	switch at := slices.Index(roleNames[:], who); {
	case e.roles == roleAgent || who == "key":
		allowed = allowed || who == "key" && e.roles&roleAgent != 0
	case !tokens:
		allowed = true
	case at >= 0:
		allowed = allowed || e.roles&(1<<at) != 0
	}
	switch {
	case !allowed:
		return "no"
	case e.flags&takesSecret != 0:
		return "secret"
	}
	return "yes"
}

// accessTable is who may call what, in Markdown. What answers that there is no such path is left out.
func accessTable(endpoints []endpoint) string {
	var b strings.Builder
	fmt.Fprintf(&b, "| call | %s | without tokens | with a key, without tokens |\n|---%s|---|---|\n", strings.Join(callers, " | "), strings.Repeat("|---", len(callers)))
	for _, e := range endpoints {
		if e.pattern == "/" || e.pattern == "/v1/" {
			continue
		}
		cells := []string{"`" + strings.Replace(e.pattern, "/{$}", "/", 1) + "`"}
		for _, who := range callers {
			cells = append(cells, e.may(who, true))
		}
		cells = append(cells, e.may("none", false), e.may("key", false))
		fmt.Fprintf(&b, "| %s |\n", strings.Join(cells, " | "))
	}
	return b.String()
}

// openServer is a server on loopback with every port that has rights of its own.
func openServer(t *testing.T, tokens *Tokens) (*Server, *reached, string) {
	t.Helper()
	port := &reached{}
	page := http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, "page") })
	s, err := New(Options{Run: "r", Tokens: tokens, Pages: map[string]http.Handler{"/": page}}, Ports{Plane: newPlane(), Rollouts: port, Gateway: port, View: port, Chunks: port})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.Handler())
	t.Cleanup(listener.Close)
	return s, port, listener.URL
}

// Every caller tries every path, with tokens and without, and is let in where docs/reference/access.md says so.
func TestAccess(t *testing.T) {
	for _, tokens := range []bool{true, false} {
		var known *Tokens
		if tokens {
			known = testTokens(t)
		}
		s, port, url := openServer(t, known)
		for _, e := range s.endpoints {
			for _, who := range callers {
				before := port.calls.Load()
				status, body := tryAs(t, s, url, e, who)
				got := "yes"
				switch {
				case status == http.StatusUnauthorized || status == http.StatusForbidden:
					got = "no"
				case strings.Contains(body, "secret is missing"):
					got = "secret"
				}
				if want := e.may(who, tokens); got != want {
					t.Errorf("%s as %s, tokens %v: %d %s: %s, want %s", e.pattern, who, tokens, status, body, got, want)
				}
				if got != "yes" && port.calls.Load() != before {
					t.Errorf("%s as %s, tokens %v: refused, and done", e.pattern, who, tokens)
				}
			}
		}
		if port.calls.Load() == 0 {
			t.Error("no call reached a port")
		}
	}
}

// tryAs makes a call. A stream is left once its status is known.
func tryAs(t *testing.T, s *Server, url string, e endpoint, who string) (int, string) {
	t.Helper()
	method, path, ok := strings.Cut(e.pattern, " ")
	if !ok {
		method, path = http.MethodGet, e.pattern+"x"
	}
	path = regexp.MustCompile(`\{[^}]*\}`).ReplaceAllStringFunc(path, func(name string) string {
		return map[string]string{"{$}": "", "{id}": "g1-s0-a1", "{lease}": "1", "{group}": "1", "{version}": "1"}[name] + map[string]string{"{path...}": "x", "{id...}": "m", "{name}": "n"}[name]
	})
	ctx, leave := context.WithCancel(t.Context())
	defer leave()
	r, err := http.NewRequestWithContext(ctx, method, url+path, strings.NewReader(`{"worker":"w"}`))
	if err != nil {
		t.Fatal(err)
	}
	r.Header.Set("Content-Type", "application/json")
	switch who {
	case "none":
	case "key":
		r.Header.Set("Authorization", "Bearer "+s.keys.key("g1-s0-a1"))
	default:
		r.Header.Set("Authorization", "Bearer "+secrets[who])
	}
	reply, err := http.DefaultClient.Do(r)
	if err != nil {
		t.Fatal(err)
	}
	defer reply.Body.Close()
	if strings.HasPrefix(reply.Header.Get("Content-Type"), "text/event-stream") {
		return reply.StatusCode, ""
	}
	body, err := io.ReadAll(reply.Body)
	if err != nil {
		t.Fatal(err)
	}
	return reply.StatusCode, string(body)
}

// docs/reference/access.md has the table of the paths that there are.
func TestAccessDocument(t *testing.T) {
	const path = "../docs/reference/access.md"
	const begin, end = "<!-- begin: who may call what (make generate) -->\n", "<!-- end: who may call what -->\n"
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	s, _, _ := openServer(t, nil)
	before, rest, ok := strings.Cut(string(text), begin)
	_, after, closed := strings.Cut(rest, end)
	if !ok || !closed {
		t.Fatalf("%s has no place for the table: %q and %q", path, begin, end)
	}
	want := before + begin + accessTable(s.endpoints) + end + after
	if os.Getenv("HEADWAY_REWRITE") != "" {
		if err := os.WriteFile(path, []byte(want), 0o644); err != nil {
			t.Fatal(err)
		}
	} else if want != string(text) {
		t.Error("docs/reference/access.md is not what the paths say: HEADWAY_REWRITE=1 go test ./api -run AccessDocument")
	}
}
