package upstream

import (
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"testing"
)

// A server cannot send prompts on to another address. Within itself it may.
func TestRedirects(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(http.ResponseWriter, *http.Request) {
		t.Error("a redirect to another port was followed")
	}))
	defer other.Close()
	var to string
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path == "/there/" {
			_, _ = w.Write([]byte("{}"))
			return
		}
		http.Redirect(w, r, to, http.StatusTemporaryRedirect)
	}))
	defer front.Close()
	server, err := NewServer(ServerOptions{URL: front.URL})
	if err != nil {
		t.Fatal(err)
	}
	defer server.Close()
	to = "/there/"
	if err := server.Call(t.Context(), http.MethodPost, "/there", map[string]any{"prompt": "secret"}, nil); err != nil {
		t.Errorf("within the server: %v", err)
	}
	for _, away := range []string{other.URL + "/v1/completions", "https" + strings.TrimPrefix(front.URL, "http") + "/there/"} {
		to = away
		err := server.Call(t.Context(), http.MethodPost, "/v1/completions", map[string]any{"prompt": "secret"}, nil)
		if e, ok := errors.AsType[*StatusError](err); !ok || e.Status != http.StatusTemporaryRedirect || !strings.Contains(e.Message, away) {
			t.Errorf("to %s: %v, want a refusal that names it", away, err)
		}
	}
}
