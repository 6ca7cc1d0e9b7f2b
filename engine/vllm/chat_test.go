package vllm

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// What stands between may answer in the server's place: an answer without tokens is none, or a rollout would begin with nothing.
func TestAnswersWithoutTokens(t *testing.T) {
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) { _, _ = w.Write([]byte(`{"tokens":null}`)) }))
	defer server.Close()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	d, caps := New(), &upstream.Capabilities{Model: "m"}
	if got, err := d.Render(t.Context(), s, []byte(`[]`), nil, true, caps); !errors.Is(err, upstream.ErrLied) {
		t.Errorf("a chat: %v, %v", got, err)
	}
	if got, err := d.Encode(t.Context(), s, "a", caps); !errors.Is(err, upstream.ErrLied) {
		t.Errorf("a text: %v, %v", got, err)
	}
	if got, err := d.Decode(t.Context(), s, []int32{5}, caps); !errors.Is(err, upstream.ErrLied) {
		t.Errorf("tokens: %q, %v", got, err)
	}
}
