package sglang

import (
	"io"
	"net/http"
	"net/http/httptest"
	"testing"

	"github.com/headway-rl/headway/engine/upstream"
)

// A response that somebody aborts, as another who pauses the server, tells nothing of what it can.
func TestAbortedSampleIsAnError(t *testing.T) {
	reason := `{"type":"abort","message":"Abort in waiting queue"}`
	server := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, _ *http.Request) {
		_, _ = io.WriteString(w, `{"output_ids":[],"meta_info":{"completion_tokens":0,"finish_reason":`+reason+`}}`)
	}))
	defer server.Close()
	s, err := upstream.NewServer(upstream.ServerOptions{URL: server.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	p := &prober{ctx: t.Context(), s: s, caps: &upstream.Capabilities{}}
	if err := p.sampling(); err == nil {
		t.Errorf("it was found to return token ids: %t", p.caps.TokenIDs)
	}
	reason = `{"type":"length","length":0}`
	if err := p.sampling(); err != nil {
		t.Error(err)
	}
}
