package verifier_test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/verifier"
)

// serve is a verifier of the kind http whose server is a handler.
func serve(t *testing.T, o verifier.Options, handler http.HandlerFunc) *verifier.Bounded {
	t.Helper()
	server := httptest.NewServer(handler)
	t.Cleanup(server.Close)
	o.Kind, o.URL = verifier.HTTP, server.URL+"/verify"
	return newBounded(t, o)
}

func TestHTTP(t *testing.T) {
	j := serve(t, verifier.Options{Headers: map[string]string{"Authorization": "Bearer x"}}, func(w http.ResponseWriter, r *http.Request) {
		var c struct {
			ID, Rollout, Response string
			Answer                json.RawMessage
			Messages              []json.RawMessage
			Task                  struct{ ID string }
		}
		if err := json.NewDecoder(r.Body).Decode(&c); err != nil || r.Method != "POST" || r.Header.Get("Content-Type") != "application/json" || r.Header.Get("Authorization") != "Bearer x" {
			t.Errorf("%s %v: %v", r.Method, r.Header, err)
		}
		if c.Rollout != "g1-s0-a0" || c.Task.ID != "t1" || string(c.Answer) != "42" || c.Messages == nil {
			t.Errorf("%+v", c)
		}
		fmt.Fprintf(w, `{"id":%q,"reward":%s}`, c.ID, c.Response)
	})
	if v, err := j.Verify(t.Context(), caseOf("0.5", `42`)); err != nil || v.Reward != 0.5 {
		t.Errorf("%v, %v", v, err)
	}
}

// What a server answers but a verdict is a failure that says what it was, and is asked again only where
// nothing can have been judged.
func TestHTTPFailures(t *testing.T) {
	write := func(status int, body string) http.HandlerFunc {
		return func(w http.ResponseWriter, r *http.Request) {
			_, _ = io.Copy(io.Discard, r.Body)
			w.Header().Set("Retry-After", "0")
			w.WriteHeader(status)
			_, _ = io.WriteString(w, body)
		}
	}
	for _, test := range []struct {
		name, says string
		handler    http.HandlerFunc
		class      sandbox.Class
		asked      int64
	}{
		{"no JSON", "one JSON object", write(200, "<html>"), sandbox.VerifierProtocol, 1},
		{"NaN", "NaN is no JSON", write(200, `{"reward":NaN}`), sandbox.VerifierProtocol, 1},
		{"out of range", "from 0 to 1", write(200, `{"reward":7}`), sandbox.VerifierProtocol, 1},
		{"another case", `case "x"`, write(200, `{"id":"x","reward":1}`), sandbox.VerifierProtocol, 1},
		{"megabytes", "more than", write(200, strings.Repeat(" ", 2<<20)), sandbox.VerifierProtocol, 1},
		{"redirect", "302", write(302, ""), sandbox.VerifierProtocol, 1},
		{"not found", "no such page", write(404, "no such page"), sandbox.VerifierProtocol, 1},
		{"failure", "out of GPUs", write(500, "out of GPUs"), sandbox.VerifierCrash, 1},
		{"busy", "429", write(429, ""), sandbox.VerifierCrash, 3},
		{"unavailable", "503", write(503, ""), sandbox.VerifierCrash, 3},
		{"broken off", "EOF", func(w http.ResponseWriter, _ *http.Request) {
			w.Header().Set("Content-Length", "100")
			_, _ = io.WriteString(w, `{"reward":1}`)
		}, sandbox.VerifierCrash, 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			var asked atomic.Int64
			j := serve(t, verifier.Options{}, func(w http.ResponseWriter, r *http.Request) {
				asked.Add(1)
				test.handler(w, r)
			})
			v, err := j.Verify(t.Context(), caseOf("1", `1`))
			if sandbox.ClassOf(err) != test.class || !strings.Contains(err.Error(), test.says) || v.Reward != 0 {
				t.Errorf("%v, %v; want %s: %s", v, err, test.class, test.says)
			}
			if asked.Load() != test.asked {
				t.Errorf("asked %d times, want %d", asked.Load(), test.asked)
			}
		})
	}
}

// A server that was busy is asked again once it said so.
func TestHTTPBusyAtFirst(t *testing.T) {
	var asked atomic.Int64
	j := serve(t, verifier.Options{}, func(w http.ResponseWriter, _ *http.Request) {
		if asked.Add(1) < 3 {
			w.WriteHeader(http.StatusServiceUnavailable)
			return
		}
		_, _ = io.WriteString(w, `{"reward":1}`)
	})
	if v, err := j.Verify(t.Context(), caseOf("1", `1`)); err != nil || v.Reward != 1 {
		t.Errorf("%v, %v", v, err)
	}
}

// One that is told to wait for longer than a case may take is given up.
func TestHTTPBusyForLong(t *testing.T) {
	j := serve(t, verifier.Options{TimeoutS: 0.2}, func(w http.ResponseWriter, _ *http.Request) {
		w.Header().Set("Retry-After", "3600")
		w.WriteHeader(http.StatusTooManyRequests)
	})
	_, err := j.Verify(t.Context(), caseOf("1", `1`))
	if sandbox.ClassOf(err) != sandbox.VerifierTimeout {
		t.Error(err)
	}
}

// Where nobody listens nothing was judged, and it is asked again.
func TestHTTPUnreachable(t *testing.T) {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	at := listener.Addr().String()
	listener.Close()
	j := newBounded(t, verifier.Options{Kind: verifier.HTTP, URL: "http://user:secret@" + at, Retries: 1})
	_, err = j.Verify(t.Context(), caseOf("1", `1`))
	if sandbox.ClassOf(err) != sandbox.VerifierCrash || strings.Contains(err.Error(), "secret") {
		t.Error(err)
	}
	if s := j.Status(); s.Retries != 1 {
		t.Errorf("%+v", s)
	}
}

// A server that never answers is left when the time is over.
func TestHTTPHangs(t *testing.T) {
	j := serve(t, verifier.Options{TimeoutS: 0.2}, func(_ http.ResponseWriter, r *http.Request) {
		_, _ = io.Copy(io.Discard, r.Body)
		<-r.Context().Done()
	})
	if _, err := j.Verify(t.Context(), caseOf("1", `1`)); sandbox.ClassOf(err) != sandbox.VerifierTimeout {
		t.Error(err)
	}
}
