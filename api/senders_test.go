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
	"github.com/headway-rl/headway/engine/upstream"
)

// TestSenderPath: a sender is told what to hold, and its word reaches the engine; it takes a trainer's token,
// and a run whose engines take weights otherwise says so.
func TestSenderPath(t *testing.T) {
	coordinator := collective.NewCoordinator(collective.Options{Meetings: collective.NewRendezvous(collective.RendezvousOptions{})})
	tokens, err := api.ParseTokens(strings.NewReader("trainer trainer-secret-0123456789\nengine engine-secret-0123456789\n"))
	if err != nil {
		t.Fatal(err)
	}
	s, err := api.New(api.Options{Tokens: tokens}, api.Ports{Plane: readyPlane{}, Senders: coordinator})
	if err != nil {
		t.Fatal(err)
	}
	listener := httptest.NewServer(s.Handler())
	defer listener.Close()
	post := func(role, name, body string) (int, string) {
		t.Helper()
		request, err := http.NewRequestWithContext(t.Context(), http.MethodPost, listener.URL+"/api/v1/senders/"+name, strings.NewReader(body))
		if err != nil {
			t.Fatal(err)
		}
		request.Header.Set("Authorization", "Bearer "+role+"-secret-0123456789")
		reply, err := http.DefaultClient.Do(request)
		if err != nil {
			t.Fatal(err)
		}
		defer reply.Body.Close()
		text, err := io.ReadAll(reply.Body)
		if err != nil {
			t.Fatal(err)
		}
		return reply.StatusCode, string(text)
	}
	type held struct {
		upstream.Held
		err error
	}
	holding := make(chan held, 1)
	go func() {
		h, err := coordinator.Hold(t.Context(), "e0", 3)
		holding <- held{h, err}
	}()
	if status, text := post("trainer", "t", `{"instance":"a","backend":"gloo","wait_s":0}`); status != http.StatusOK || !strings.Contains(text, `"groups":[]`) {
		t.Errorf("the first word was answered %d %s", status, text)
	}
	var reply protocol.SenderReply
	for len(reply.Commands) == 0 { // the engine may not have asked yet
		status, text := post("trainer", "t", `{"instance":"a","backend":"gloo","wait_s":60}`)
		if err := json.Unmarshal([]byte(text), &reply); status != http.StatusOK || err != nil {
			t.Fatalf("answered %d %s, %v", status, text, err)
		}
	}
	if c := reply.Commands[0]; c.Kind != protocol.SenderHold || c.Engine != "e0" || c.Version != 3 {
		t.Errorf("told %+v", c)
	}
	word := protocol.SenderRequest{Instance: "a", Backend: "gloo", Done: []protocol.SenderDone{{Seq: reply.Commands[0].Seq, Digest: "d"}}}
	for range 20000 { // of tensors there are many: more than a message of another path may have
		word.Done[0].Tensors = append(word.Done[0].Tensors, protocol.SenderTensor{Name: "model.layers.0.mlp.experts.0.gate_proj.weight", DType: "bfloat16", Shape: []int64{4, 8}})
	}
	text, err := json.Marshal(word)
	if err != nil {
		t.Fatal(err)
	}
	if status, answer := post("trainer", "t", string(text)); status != http.StatusOK || answer != `{"commands":[],"groups":[]}`+"\n" {
		t.Errorf("its word was answered %d %s", status, answer)
	}
	if h := <-holding; h.err != nil || h.Digest != "d" || len(h.Tensors) != 20000 {
		t.Errorf("held %d tensors, digest %q: %v", len(h.Tensors), h.Digest, h.err)
	}
	for _, bad := range []struct {
		role, name, body string
		status           int
		code             protocol.Code
		word             string
	}{
		{"engine", "t", `{"instance":"a","backend":"gloo"}`, 403, protocol.CodeForbidden, "role"},
		{"trainer", "t", `{"instance":"a","backend":"gloo","wait_s":61}`, 400, protocol.CodeInvalid, "wait_s"},
		{"trainer", "t", `{"instance":"a","backend":"mpi"}`, 400, protocol.CodeInvalid, "nccl or gloo"},
		{"trainer", "t", `{"instance":"a","backend":"gloo","tensors":[]}`, 400, protocol.CodeInvalid, "tensors"},
		{"trainer", "u", `{"instance":"b","backend":"gloo"}`, 409, protocol.CodeConflict, "sender t is this run's"},
	} {
		status, text := post(bad.role, bad.name, bad.body)
		var body protocol.ErrorBody
		if err := json.Unmarshal([]byte(text), &body); err != nil || status != bad.status || body.Error.Code != bad.code || !strings.Contains(body.Error.Message, bad.word) {
			t.Errorf("%s answered %d %s: want %d %s with %q", bad.body, status, text, bad.status, bad.code, bad.word)
		}
	}
	if err := s.Mount(api.Ports{Plane: readyPlane{}}); err != nil {
		t.Fatal(err)
	}
	if status, text := post("trainer", "t", `{"instance":"a","backend":"gloo"}`); status != http.StatusNotFound || !strings.Contains(text, "an engine with weights: distributed") {
		t.Errorf("a run without such engines answered %d %s", status, text)
	}
}
