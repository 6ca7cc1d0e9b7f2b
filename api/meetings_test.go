package api_test

import (
	"encoding/json"
	"io"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/collective"
)

// TestRendezvousPath: trainer and engine meet over HTTP; who cannot is refused with a code.
func TestRendezvousPath(t *testing.T) {
	s, err := api.New(api.Options{}, api.Ports{Plane: readyPlane{}, Meetings: collective.NewRendezvous(collective.RendezvousOptions{Engines: 1})})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.Handler())
	defer listener.Close()
	post := func(name, body string) (int, string) {
		reply, err := http.Post(listener.URL+"/api/v1/rendezvous/"+name, "application/json", strings.NewReader(body))
		if err != nil {
			t.Error(err)
			return 0, ""
		}
		defer reply.Body.Close()
		text, _ := io.ReadAll(reply.Body)
		return reply.StatusCode, string(text)
	}
	engine := make(chan string)
	go func() {
		_, text := post("weights", `{"member":"e0","role":"engine","ranks":2,"backend":"gloo","epoch":0,"wait_s":60}`)
		engine <- text
	}()
	status, text := post("weights", `{"member":"t0","role":"trainer","ranks":1,"address":"127.0.0.1:29500","backend":"gloo","epoch":0,"wait_s":60}`)
	want := `{"epoch":1,"master_address":"127.0.0.1","master_port":29500,"world_size":3,"rank_offset":0,"backend":"gloo","members":["t0","e0"]}` + "\n"
	if status != http.StatusOK || text != want {
		t.Errorf("the trainer was answered %d %s, want %s", status, text, want)
	}
	if text := <-engine; text != strings.Replace(want, `"rank_offset":0`, `"rank_offset":1`, 1) {
		t.Errorf("the engine was answered %s", text)
	}
	for _, bad := range []struct {
		body   string
		status int
		code   protocol.Code
		word   string
	}{
		{`{"member":"t0","role":"trainer","address":"127.0.0.1:29500","backend":"gloo","epoch":1,"wait_s":61}`, 400, protocol.CodeInvalid, "wait_s"},
		{`{"member":"t0","role":"chief","backend":"gloo"}`, 400, protocol.CodeInvalid, "role"},
		{`{"member":"t0","role":"engine","rank":1}`, 400, protocol.CodeInvalid, "ranks"},
		{`{"member":"e1","role":"engine","backend":"gloo","epoch":7,"wait_s":0}`, 410, protocol.CodeExpired, "epoch 7"},
		{`{"member":"t0","role":"trainer","address":"127.0.0.1:29500","backend":"gloo","epoch":0,"wait_s":0.01}`, 503, protocol.CodeUnavailable, "engine e0"},
	} {
		status, text := post("weights", bad.body)
		var body protocol.ErrorBody
		if err := json.Unmarshal([]byte(text), &body); err != nil || status != bad.status || body.Error.Code != bad.code || !strings.Contains(body.Error.Message, bad.word) {
			t.Errorf("%s answered %d %s: want %d %s with %q", bad.body, status, text, bad.status, bad.code, bad.word)
		}
	}
}

// TestRendezvousRoles: a member's role is its token's, whatever its body says.
func TestRendezvousRoles(t *testing.T) {
	tokens, err := api.ParseTokens(strings.NewReader("trainer trainer-secret-0123456789\nengine engine-secret-0123456789\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := api.New(api.Options{Tokens: tokens}, api.Ports{Plane: readyPlane{}, Meetings: collective.NewRendezvous(collective.RendezvousOptions{Engines: 1})})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.Handler())
	defer listener.Close()
	for _, c := range []struct {
		role, as string
		status   int
	}{{"engine", "trainer", 403}, {"trainer", "engine", 403}, {"engine", "engine", 503}, {"trainer", "trainer", 503}} {
		body := `{"member":"m","role":"` + c.as + `","backend":"gloo","epoch":0,"wait_s":0.01`
		if c.as == "trainer" {
			body += `,"address":"10.0.0.7:29500"`
		}
		request, _ := http.NewRequest(http.MethodPost, listener.URL+"/api/v1/rendezvous/weights", strings.NewReader(body+"}"))
		request.Header.Set("Authorization", "Bearer "+c.role+"-secret-0123456789")
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		text, _ := io.ReadAll(reply.Body)
		reply.Body.Close()
		if reply.StatusCode != c.status {
			t.Errorf("a token of role %s as %s: %d %s, want %d", c.role, c.as, reply.StatusCode, text, c.status)
		}
	}
}
