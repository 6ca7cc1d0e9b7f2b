package api

import (
	"context"
	"encoding/json"
	"net/http"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// offering gives out one rollout at every claim.
type offering struct {
	Rollouts
	touched *[]string // by id and worker; nil notes none
	sampled *int      // the number of calls; nil counts none
}

func (offering) Claim(context.Context, protocol.ClaimRequest) (protocol.Claims, error) {
	return protocol.Claims{Rollouts: []protocol.Claim{{ID: "g1-s0-a1"}}}, nil
}

func (offering) Lasting(_ context.Context, _ string, err error) error { return err }

func (o offering) Touch(_ context.Context, id string, req protocol.TouchRequest) (protocol.TouchReply, error) {
	if o.touched != nil {
		*o.touched = append(*o.touched, id+" by "+req.Worker)
	}
	return protocol.TouchReply{Wanted: req.Secret == ""}, nil
}

func (o offering) Sample(context.Context, string, protocol.SampleRequest) (protocol.SampleReply, error) {
	if o.sampled != nil {
		*o.sampled++
	}
	return protocol.SampleReply{Finish: "stop"}, nil
}

// A signature is of one purpose, one rollout, one run and one process.
func TestSignatures(t *testing.T) {
	k := newClaimKeys("r", "")
	seen := map[string]string{}
	add := func(what, mac string) {
		if other, twice := seen[mac]; twice || len(mac) != macChars {
			t.Errorf("%s has the signature of %q, %q", what, other, mac)
		}
		seen[mac] = what
	}
	for _, id := range []string{"g1-s0-a1", "g1-s0-a2", "g11-s0-a1"} {
		add("key "+id, k.sign(purposeKey, id))
		add("secret "+id, k.sign(purposeSecret, id))
	}
	add("another process", newClaimKeys("r", "").sign(purposeKey, "g1-s0-a1"))
	other := newClaimKeys("s", "")
	other.secret.Store(k.secret.Load())
	add("another run", other.sign(purposeKey, "g1-s0-a1"))
	if id := k.rollout(k.key("g1-s0-a1")); id != "g1-s0-a1" {
		t.Errorf("the key's rollout is %q", id)
	}
	for _, bad := range []string{"", ".", "g1-s0-a1", "g1-s0-a1.", k.key("g1-s0-a1") + "A", "x." + k.sign(purposeKey, "x"), other.key("g1-s0-a1")} {
		if id := k.rollout(bad); id != "" {
			t.Errorf("%q is a key of %s", bad, id)
		}
	}
}

// A claim that is sent again is answered with the same key and secret, and neither is kept in clear. No port
// sees a secret.
func TestClaimsSentAgain(t *testing.T) {
	c := start(t, Options{}, nil)
	var touched []string
	sampled := 0
	if err := c.server.Mount(Ports{Plane: c.plane, Rollouts: offering{touched: &touched, sampled: &sampled}}); err != nil {
		t.Fatal(err)
	}
	ask := func() answer {
		return c.do("POST", "/api/v1/rollouts/claim", `{"worker":"w"}`, "Idempotency-Key", "the-callers-own")
	}
	first, again := ask(), ask()
	var claims protocol.Claims
	if err := json.Unmarshal([]byte(first.body), &claims); err != nil || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" {
		t.Fatalf("%v: first %v, again %v", err, first, again)
	}
	if !slices.Equal(touched, []string{"g1-s0-a1 by w"}) {
		t.Errorf("the second call is a word to %q", touched)
	}
	key, secret := claims.Rollouts[0].Key, claims.Rollouts[0].Secret
	for name, k := range c.server.replies.byKey {
		if text := string(k.text); strings.Contains(text, secret) || strings.Contains(text, key) || strings.Contains(text, "g1-s0-a1") || strings.Contains(string(name.key[:]), "callers") {
			t.Errorf("kept in clear: %q", text)
		}
	}
	for range 2 { // a touch that is sent again renews the claim again, and no reply of before is its answer
		a := c.do("POST", "/api/v1/rollouts/g1-s0-a1/touch", `{"worker":"w","secret":"`+secret+`"}`, "Idempotency-Key", "touched")
		if a.status != http.StatusOK || !strings.Contains(a.body, "true") || a.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%d %s %v", a.status, a.body, a.header)
		}
	}
	for n := range 2 { // so does a sample
		a := c.do("POST", "/api/v1/rollouts/g1-s0-a1/sample", `{"worker":"w","secret":"`+secret+`"}`, "Idempotency-Key", "sampled")
		if a.status != http.StatusOK || sampled != n+1 || a.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%d calls of %d came to the claim: %d %s %v", sampled, n+1, a.status, a.body, a.header)
		}
	}
}

// Neither key nor secret is in a log, whatever is logged and wherever a client has put them.
func TestKeysAreNotLogged(t *testing.T) {
	c := start(t, Options{LogPayloads: true}, func(s *Server) { s.route("POST /test", roleAny, echo) })
	key, secret := c.server.keys.key("g1-s0-a1"), c.server.keys.sign(purposeSecret, "g1-s0-a1")
	bearer := []string{"Authorization", "Bearer " + key}
	for _, body := range []string{`{"worker":"w","secret":"` + secret + `"}`, `{ "SECRET" : "` + secret, `{"worker":"` + key + `"}`} {
		c.do("POST", "/test", body)
		c.do("POST", "/api/v1/rollouts/g1-s0-a1/finish", body, bearer...)
		c.do("POST", "/v1/completions", body, bearer...)
	}
	c.do("POST", "/api/v1/rollouts/"+key+"/finish", `{"worker":"w"}`)
	c.do("GET", "/api/v1/status?x="+key, "", bearer...)
	if text := c.logs.String(); strings.Contains(text, secret) || strings.Contains(text, strings.TrimPrefix(key, "g1-s0-a1.")) || !strings.Contains(text, `secret\":\"…`) || !strings.Contains(text, "g1-s0-a1.…") {
		t.Errorf("logged: %s", text)
	}
}

// replaced is of a process in whose place another may be.
type replaced struct{ offering }

func (replaced) Lasting(_ context.Context, id string, _ error) error {
	return protocol.Refuse(protocol.CodeUnavailable, "rollout %s may go on at another process", id)
}

// Keys and secrets of another process are refused for now where that may be in the place of this one.
func TestKeysOfTheProcessInItsPlace(t *testing.T) {
	gateway := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	other := newClaimKeys("r", "")
	for _, test := range []struct {
		rollouts Rollouts
		want     int
	}{{offering{}, http.StatusGone}, {replaced{}, http.StatusServiceUnavailable}} {
		c := start(t, Options{Run: "r"}, nil)
		if err := c.server.Mount(Ports{Plane: c.plane, Gateway: gateway, Rollouts: test.rollouts}); err != nil {
			t.Fatal(err)
		}
		if a := c.do("POST", "/v1/completions", "{}", "Authorization", "Bearer "+other.key("g1-s0-a1")); a.status != test.want {
			t.Errorf("an agent: %d %s, want %d", a.status, a.body, test.want)
		}
		secret := other.sign(purposeSecret, "g1-s0-a1")
		if a := c.do("POST", "/api/v1/rollouts/g1-s0-a1/touch", `{"worker":"w","secret":"`+secret+`"}`); a.status != test.want {
			t.Errorf("a worker: %d %s, want %d", a.status, a.body, test.want)
		}
	}
}

// opening is a plane that becomes ready just as it is asked, with the secret of the process before.
type opening struct {
	*plane
	open func()
}

func (o *opening) Ready() error {
	o.open()
	return nil
}

// A key of the process before holds also where a call comes while this one becomes ready.
func TestKeyWhileThePlaneOpens(t *testing.T) {
	before := newClaimKeys("r", "")
	c := start(t, Options{Run: "r"}, nil)
	gateway := http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) { w.WriteHeader(http.StatusNoContent) })
	plane := &opening{plane: c.plane}
	plane.open = func() {
		if err := c.server.Mount(Ports{Plane: plane, Gateway: gateway, Signing: before.secret.Load()}); err != nil {
			t.Error(err)
		}
	}
	if err := c.server.Mount(Ports{Plane: plane}); err != nil {
		t.Fatal(err)
	}
	if a := c.do("POST", "/v1/completions", "{}", "Authorization", "Bearer "+before.key("g1-s0-a1")); a.status != http.StatusNoContent {
		t.Errorf("%d %s", a.status, a.body)
	}
}
