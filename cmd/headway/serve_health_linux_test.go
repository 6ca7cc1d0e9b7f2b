package main

import (
	"fmt"
	"io"
	"net/http"
	"net/http/httptest"
	"net/http/httputil"
	"net/url"
	"os"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/enginetest"
	"github.com/headway-rl/headway/internal/failure"
)

// until returns when the program has said a text, or has ended.
func (s *served) until(text string) bool {
	for {
		if strings.Contains(s.text(), text) {
			return true
		}
		select {
		case <-s.ended:
			return strings.Contains(s.text(), text)
		case <-s.t.Context().Done():
			return false
		default:
			s.call("/healthz", "", nil) // the program runs on meanwhile
		}
	}
}

// claim claims one rollout.
func (s *served) claim() protocol.Claim {
	s.t.Helper()
	for {
		var claims protocol.Claims
		switch status := s.ask("/api/v1/rollouts/claim", protocol.ClaimRequest{Worker: "w", Max: 1, WaitS: 5}, &claims); {
		case status == http.StatusOK && len(claims.Rollouts) > 0:
			return claims.Rollouts[0]
		case status != http.StatusOK && status != http.StatusNoContent:
			s.t.Fatalf("claim: %d", status)
		}
	}
}

// chat asks once, and returns the status and the answer.
func (s *served) chat(key string) (int, string) {
	body := `{"messages":[{"role":"user","content":"a"}],"max_tokens":8}`
	r, err := http.NewRequestWithContext(s.t.Context(), http.MethodPost, s.url+"/v1/chat/completions", strings.NewReader(body))
	if err != nil {
		return 0, err.Error()
	}
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Authorization", "Bearer "+key)
	res, err := http.DefaultClient.Do(r)
	if err != nil {
		return 0, err.Error()
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil {
		return 0, err.Error()
	}
	return res.StatusCode, string(text)
}

// A chat that comes while the only server is gone is held until it is back, and the loop learns that it
// is gone although no response was under way; a drained control plane then ends without a farewell.
func TestChatsOutliveTheirServer(t *testing.T) {
	policy := policyServer(t, true)
	behind, err := url.Parse(policy.URL())
	if err != nil {
		t.Fatal(err)
	}
	var down atomic.Bool
	mux := http.NewServeMux()
	mux.HandleFunc("POST /tokenize", enginetest.StrictTemplate)
	mux.HandleFunc("POST /detokenize", func(w http.ResponseWriter, _ *http.Request) { _, _ = io.WriteString(w, `{"prompt":"x"}`) })
	mux.Handle("/", httputil.NewSingleHostReverseProxy(behind))
	front := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if down.Load() {
			panic(http.ErrAbortHandler) // the connection ends without a word
		}
		mux.ServeHTTP(w, r)
	}))
	t.Cleanup(front.Close)
	engine := fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 8}", front.URL)
	s := startServe(t, t.TempDir(), fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), engine, 3))
	key := s.claim().Key
	down.Store(true)
	answered := make(chan string, 1)
	go func() {
		status, text := s.chat(key)
		answered <- fmt.Sprint(status, " ", text)
	}()
	if !s.until("engine a: nobody answers at " + front.URL) {
		t.Fatal("nobody noticed that the server is gone")
	}
	select {
	case text := <-answered:
		t.Fatalf("the chat was not held: %s", text)
	default:
	}
	down.Store(false)
	if text := <-answered; !strings.HasPrefix(text, "200 ") || !strings.Contains(text, `"finish_reason"`) {
		t.Errorf("the chat that was held is answered %s", text)
	}
	if err := s.cmd.Process.Signal(os.Interrupt); err != nil {
		t.Fatal(err)
	}
	<-s.ended
	if code := s.cmd.ProcessState.ExitCode(); code != 0 || !strings.Contains(s.text(), "draining") || strings.Contains(s.text(), farewell) {
		t.Errorf("a drained control plane ends with %d and says\n%s", code, s.text())
	}
}

// A control plane that is starting says what it waits for: to whom may read its status with the addresses, to
// everybody else without.
func TestServeSaysWhatItsStartWaitsFor(t *testing.T) {
	closed := httptest.NewServer(nil)
	closed.Close()
	s := startServe(t, t.TempDir(), fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), fmt.Sprintf("{kind: vllm, name: a, url: %q, slots: 4}", closed.URL), 3))
	if !s.until("engines unreachable") {
		t.Fatal(s.text())
	}
	status := s.status()
	if want := "1 of 1 engine to answer: engine a: asking " + closed.URL; status.State != "starting" || !strings.HasPrefix(status.Waits, want) {
		t.Errorf("it is %s and waits for %q, want %q", status.State, status.Waits, want)
	}
	res, err := http.Get(s.url + "/readyz")
	if err != nil {
		t.Fatal(err)
	}
	defer res.Body.Close()
	text, err := io.ReadAll(res.Body)
	if err != nil || !strings.Contains(string(text), "the control plane is starting: it waits for 1 of 1 engine to answer") || strings.Contains(string(text), closed.URL) {
		t.Errorf("readyz says %s, %v", text, err)
	}
	if out, _, _ := askStatus(t, s.url); !strings.Contains(out, "waits for 1 of 1 engine to answer: engine a") {
		t.Errorf("headway status prints\n%s", out)
	}
}

// A server that answers and is of another kind will not change: the start ends at once, and doctor says so by a
// code of its own.
func TestServeDoesNotWaitForAnotherKind(t *testing.T) {
	other := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		if r.URL.Path != "/v1/models" {
			w.WriteHeader(http.StatusNotFound)
			return
		}
		fmt.Fprint(w, `{"data": [{"id": "m"}]}`)
	}))
	defer other.Close()
	for _, kind := range []string{"vllm", "sglang", "llamacpp"} {
		text := fmt.Sprintf(servedDocument, tinyModel(t, servedPolicy.Vocabulary), fmt.Sprintf("{kind: %s, name: a, url: %q, slots: 4}", kind, other.URL), 3)
		file := document(t, text)
		code, _, stderr := headway(t, "serve", file, "--dir", t.TempDir(), "--listen", "127.0.0.1:0")
		if code != failure.ExitUsage || strings.Contains(stderr, "waiting") || !strings.Contains(stderr, "engines.*.kind") {
			t.Errorf("%s: serve ended with %d: %s", kind, code, stderr)
		}
		if _, stdout, _ := headway(t, "doctor", "--full", file); !strings.Contains(stdout, "engine-kind") || strings.Contains(stdout, "engine-unreachable") {
			t.Errorf("%s: doctor says\n%s", kind, stdout)
		}
	}
}
