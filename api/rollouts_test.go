package api_test

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/env/remote"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// readyPlane is a control plane of which nothing is asked but whether it is ready.
type readyPlane struct{ api.Plane }

func (readyPlane) Ready() error { return nil }

// sampler answers at once, with two tokens.
type sampler struct{}

func (sampler) Sample(context.Context, port.SampleRequest) (port.Generation, error) {
	return port.Generation{Tokens: []int32{4, 2}, Logprobs: []float32{-0.5, -1}, Versions: []loop.Version{3, 3}}, nil
}

// workplace is a server over an environment with a worker's client.
type workplace struct {
	t      *testing.T
	env    *remote.Dispatcher
	server *api.Server
	url    string
}

func newWorkplace(t *testing.T) *workplace {
	t.Helper()
	e, err := remote.New(remote.Options{Name: "reverse", Seed: 9, ClaimTTL: time.Minute, Vocabulary: 30, Newest: func() loop.Version { return 3 }})
	if err != nil {
		t.Fatal(err)
	}
	s, err := api.New(api.Options{BodyBytesMax: 4096}, api.Ports{Plane: readyPlane{}, Rollouts: e})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.Handler())
	t.Cleanup(listener.Close)
	return &workplace{t: t, env: e, server: s, url: listener.URL}
}

// post sends a body and returns the status and the reply.
func (w *workplace) post(path, body string) (int, string) {
	w.t.Helper()
	reply, err := http.Post(w.url+"/api/v1/rollouts/"+path, "application/json", strings.NewReader(body))
	if err != nil {
		w.t.Fatal(err)
	}
	defer reply.Body.Close()
	text, err := io.ReadAll(reply.Body)
	if err != nil {
		w.t.Fatal(err)
	}
	return reply.StatusCode, string(bytes.TrimSpace(text))
}

// claim claims the rollout that is offered.
func (w *workplace) claim() protocol.Claim {
	w.t.Helper()
	var claims protocol.Claims
	status, text := w.post("claim", `{"worker":"w","environments":["reverse"],"max":4,"wait_s":60}`)
	if err := json.Unmarshal([]byte(text), &claims); err != nil || status != http.StatusOK || len(claims.Rollouts) != 1 {
		w.t.Fatalf("claim answered %d %s: %v", status, text, err)
	}
	return claims.Rollouts[0]
}

// with adds a claim's secret to a body that names its worker.
func with(secret, body string) string {
	return strings.Replace(body, `"worker"`, `"secret":"`+secret+`","worker"`, 1)
}

// play plays a rollout and logs it once its sample is there.
func (w *workplace) play(group loop.GroupID) (sample func() port.Sample) {
	var wg sync.WaitGroup
	var s port.Sample
	id := port.RolloutID{Group: group, Attempt: 1}
	wg.Go(func() {
		var err error
		if s, err = w.env.Play(w.t.Context(), port.RolloutRequest{ID: id}, sampler{}); err == nil {
			w.env.Logged(id, true)
		}
	})
	return func() port.Sample { wg.Wait(); return s }
}

// TestRolloutPaths: a rollout from claim to finish over HTTP, as a client in any language writes it.
func TestRolloutPaths(t *testing.T) {
	w := newWorkplace(t)
	done := w.play(12)
	c := w.claim()
	want := protocol.Claim{ID: "g12-s0-a1", Group: 12, Attempt: 1, Key: c.Key, Secret: c.Secret, Environment: "reverse", Prompt: 12, Seed: 9, DeadlineS: 60}
	if c != want || !strings.HasPrefix(c.Key, "g12-s0-a1.") || len(c.Secret) != 43 || strings.Contains(c.Key, c.Secret) {
		t.Fatalf("claimed %+v, want %+v", c, want)
	}
	for _, step := range []struct{ path, body, want string }{
		{"g12-s0-a1/touch", `{"worker":"w"}`, `{"deadline_s":60,"wanted":true}`},
		{"g12-s0-a1/sample", `{"worker":"w","turn":0,"prompt":[0,5,1],"max_tokens":8}`, `{"tokens":[4,2],"logprobs":[-0.5,-1],"versions":[3,3],"finish":"stop"}`},
		{"g12-s0-a1/finish", `{"worker":"w","reward":0.75,"response_text":"b."}`, `{"counted":true}`},
		{"g12-s0-a1/finish", `{"worker":"w","reward":0.75,"response_text":"b."}`, `{"counted":true}`},
		{"g12-s0-a1/touch", `{"worker":"w"}`, `{"deadline_s":0,"wanted":false}`},
	} {
		if status, text := w.post(step.path, with(c.Secret, step.body)); status != http.StatusOK || text != step.want {
			t.Errorf("%s answered %d %s, want %s", step.path, status, text, step.want)
		}
	}
	if s := done(); s.Reward != 0.75 || len(s.Tokens) != 5 || s.Response != "b." {
		t.Errorf("sample %+v", s)
	}

	done = w.play(13)
	c = w.claim()
	own := `{"worker":"w","reward":1,"tokens":[0,5,1,4,2],"loss_mask":[0,0,0,1,1],"logprobs":[0,0,0,-0.5,-1],"versions":[-1,-1,-1,2,3]}`
	if status, text := w.post("g13-s0-a1/finish", with(c.Secret, own)); status != http.StatusOK {
		t.Errorf("sampled elsewhere: %d %s", status, text)
	}
	if s := done(); len(s.LossMask) != 5 || s.ResponseTokens() != 2 {
		t.Errorf("sample %+v", s)
	}
	if status, text := w.post("claim", `{"worker":"w","wait_s":0}`); status != http.StatusNoContent || text != "" {
		t.Errorf("no rollout is offered: %d %s", status, text)
	}
	w.env.EndRun()
	if status, _ := w.post("claim", `{"worker":"w","wait_s":60}`); status != http.StatusResetContent {
		t.Errorf("the run has ended: %d", status)
	}
}

// TestClaimsElsewhere: where several answer for the address that workers claim at, one that has nothing to play lets its worker go.
func TestClaimsElsewhere(t *testing.T) {
	for url, want := range map[string]bool{"": false, "http://cell-1.cells:7070": true} {
		w := newWorkplace(t)
		s, err := api.New(api.Options{URL: url}, api.Ports{Plane: readyPlane{}, Rollouts: w.env})
		if err != nil {
			t.Fatal(err)
		}
		listener := httptest.NewServer(s.Handler())
		t.Cleanup(listener.Close)
		claims := func(want, waitS int) bool {
			t.Helper()
			body := fmt.Sprintf(`{"worker":"w","wait_s":%d}`, waitS)
			reply, err := http.Post(listener.URL+"/api/v1/rollouts/claim", "application/json", strings.NewReader(body))
			if err != nil {
				t.Fatal(err)
			}
			defer reply.Body.Close()
			if reply.StatusCode != want {
				t.Errorf("%d, want %d", reply.StatusCode, want)
			}
			return reply.Close
		}
		if got := claims(http.StatusNoContent, 0); got != want {
			t.Errorf("%q: after no rollout the connection closes: %t", url, got)
		}
		w.play(1)
		if claims(http.StatusOK, 60) { // it is offered a moment later
			t.Errorf("%q: the connection closes after a claim", url)
		}
		w.env.Drain()
		if got := claims(http.StatusServiceUnavailable, 0); got != want {
			t.Errorf("%q: after a refusal the connection closes: %t", url, got)
		}
	}
}

// TestRolloutRefusals: status and code of what workers do wrong.
func TestRolloutRefusals(t *testing.T) {
	w := newWorkplace(t)
	w.play(1)
	c := w.claim()
	for _, bad := range []struct {
		path, body string
		status     int
		code       protocol.Code
		word       string
	}{
		{"claim", `{"worker":"w","wait":1}`, 400, protocol.CodeInvalid, "wait_s"},
		{"claim", `{"worker":"w","wait_s":61}`, 400, protocol.CodeInvalid, "0 to 60"},
		{"claim", `{"worker":"no spaces"}`, 400, protocol.CodeInvalid, "worker"},
		{"claim", `{"worker":"w"} {}`, 400, protocol.CodeInvalid, "follows"},
		{"claim", ``, 400, protocol.CodeInvalid, "empty"},
		{"g1-s0-a1/sample", `{"worker":"w","prompt":[0,99],"max_tokens":8}`, 400, protocol.CodeInvalid, "prompt[1]"},
		{"g1-s0-a1/sample", `{"worker":"w","prompt":[4294967296],"max_tokens":8}`, 400, protocol.CodeInvalid, "prompt"},
		{"g1-s0-a1/finish", `{"worker":"w","reward":1}`, 400, protocol.CodeInvalid, "Sample first"},
		{"g1-s0-a1/finish", `{"worker":"w"}`, 400, protocol.CodeInvalid, "reward is missing or null"},
		{"g1-s0-a1/finish", `{"worker":"w","reward":null}`, 400, protocol.CodeInvalid, "reward is missing or null"},
		{"g1-s0-a1/finish", `{"worker":"w","reward":1e99}`, 400, protocol.CodeInvalid, "reward"},
		{"g1-s0-a1/finish", `{"worker":"w","reward":NaN}`, 400, protocol.CodeInvalid, "finite"},
		{"g1-s0-a1/finish", `{"worker":"v","reward":1}`, 409, protocol.CodeConflict, "under the name v"},
		{"g1-s0-a2/finish", `{"worker":"w","reward":1}`, 410, protocol.CodeExpired, "claim another"},
		{"one/finish", `{"worker":"w","reward":1}`, 404, protocol.CodeNotFound, "g12-s3-a1"},
		{"g1-s0-a1/sample", `{"worker":"w","prompt":[` + strings.Repeat("1,", 4096) + `1]}`, 413, protocol.CodeTooLarge, ""},
	} {
		if bad.path != "claim" {
			bad.body = with(c.Secret, bad.body)
		}
		status, text := w.post(bad.path, bad.body)
		var body protocol.ErrorBody
		if err := json.Unmarshal([]byte(text), &body); err != nil || status != bad.status || body.Error.Code != bad.code || !strings.Contains(body.Error.Message, bad.word) {
			t.Errorf("%s %.60s answered %d %s: want %d %s with %q", bad.path, bad.body, status, text, bad.status, bad.code, bad.word)
		}
	}
	if status, text := w.post("g1-s0-a1/sample", with(c.Secret, `{"worker":"w","prompt":[0],"max_tokens":8}`)); status != 200 {
		t.Errorf("the claim did not survive bad calls: %d %s", status, text)
	}
	w.server.Drain()
	if status, _ := w.post("claim", `{"worker":"w","wait_s":60}`); status != 503 {
		t.Errorf("claim under a drain: %d", status)
	}
	if status, _ := w.post("g1-s0-a1/touch", with(c.Secret, `{"worker":"w"}`)); status != 200 {
		t.Errorf("touch under a drain: %d", status)
	}
}

// TestNoEnvironment: a run that plays its own rollouts says so.
func TestNoEnvironment(t *testing.T) {
	s, err := api.New(api.Options{}, api.Ports{Plane: readyPlane{}})
	if err != nil {
		t.Fatal(err)
	}
	for _, path := range []string{"claim", "g1-s0-a1/sample", "g1-s0-a1/touch", "g1-s0-a1/finish"} {
		r := httptest.NewRequest(http.MethodPost, "http://localhost/api/v1/rollouts/"+path, strings.NewReader(`{"worker":"w"}`))
		reply := httptest.NewRecorder()
		s.Handler().ServeHTTP(reply, r)
		if reply.Code != http.StatusNotFound || !strings.Contains(reply.Body.String(), "environment.kind") {
			t.Errorf("%s answered %d %s", path, reply.Code, reply.Body)
		}
	}
}

// Whoever has not the claim's secret can neither sample nor touch nor finish it, and learns nothing of it:
// not which rollouts there are, not who plays them. Who has it can do so under the claim's name alone.
func TestSecretsOfClaims(t *testing.T) {
	w := newWorkplace(t)
	w.play(1)
	mine := w.claim()
	w.play(2)
	other := w.claim()
	if mine.Secret == other.Secret || mine.Key == other.Key {
		t.Fatalf("two claims have the same secret: %+v, %+v", mine, other)
	}
	calls := map[string]string{"touch": `{"worker":"w"}`, "sample": `{"worker":"w","prompt":[0],"max_tokens":8}`, "finish": `{"worker":"w","reward":1}`,
		"finish ": `{"worker":"v","failed":"no"}`}
	_, signature, _ := strings.Cut(mine.Key, ".")
	for call, body := range calls {
		call = strings.TrimSpace(call)
		refusals := make(map[string]bool)
		for _, id := range []string{mine.ID, "g7-s0-a1", "g1-s0-a2"} {
			for _, secret := range []string{other.Secret, mine.Key, signature, "x", mine.Secret[1:], strings.ToUpper(mine.Secret)} {
				status, text := w.post(id+"/"+call, with(secret, body))
				if status != http.StatusGone || strings.Contains(text, secret) && secret != "x" {
					t.Errorf("%s of %s with another secret: %d %s", call, id, status, text)
				}
				refusals[strings.ReplaceAll(text, id, "ID")] = true
			}
			if status, text := w.post(id+"/"+call, body); status != http.StatusBadRequest || !strings.Contains(text, "secret is missing") {
				t.Errorf("%s of %s without a secret: %d %s", call, id, status, text)
			}
		}
		if len(refusals) != 1 {
			t.Errorf("refusals of %s tell rollouts apart: %v", call, refusals)
		}
	}
	status, text := w.post(mine.ID+"/touch", with(mine.Secret, `{"worker":"v"}`))
	if status != http.StatusConflict || strings.Contains(text, `"w"`) || strings.Contains(text, "worker w") {
		t.Errorf("under another name: %d %s", status, text)
	}
	if status, text := w.post(mine.ID+"/touch", with(mine.Secret, calls["touch"])); status != http.StatusOK {
		t.Errorf("with its secret: %d %s", status, text)
	}
}
