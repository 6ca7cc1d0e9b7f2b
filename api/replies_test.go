package api

import (
	"crypto/sha256"
	"fmt"
	"io"
	"net/http"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// A call that is sent again gets the reply of the first, whatever has become of it.
func TestCallsSentAgain(t *testing.T) {
	var calls atomic.Int64
	entered, leave := make(chan struct{}, 8), make(chan struct{})
	c := start(t, Options{Tokens: testTokens(t)}, func(s *Server) {
		s.route("POST /test/{name}", RoleTrainer|RoleEnvironment, func(w http.ResponseWriter, r *http.Request) error {
			text, _ := io.ReadAll(r.Body)
			n := calls.Add(1)
			switch r.PathValue("name") {
			case "refused":
				return protocol.Refuse(protocol.CodeExpired, "call %d", n)
			case "large":
				_, _ = w.Write(make([]byte, keptBytesMax+1))
				return nil
			case "empty":
				w.WriteHeader(http.StatusNoContent)
				return nil
			case "slow":
				entered <- struct{}{}
				<-leave
			}
			return writeJSON(w, fmt.Sprintf("call %d of %s", n, text))
		})
	})
	call := func(role, name, key, body string) answer {
		return c.do("POST", "/test/"+name, body, "Authorization", "Bearer "+secrets[role], "Idempotency-Key", key)
	}
	first := call("trainer", "a", "k", "{}")
	again := call("trainer", "a", "k", "{}")
	if first.status != 200 || again.body != first.body || again.header.Get("Idempotency-Replayed") != "true" || first.header.Get("Idempotency-Replayed") != "" {
		t.Errorf("first %v, again %v", first, again)
	}
	if a := call("trainer", "a", "k", "{ }"); a.status != 409 || a.code() != protocol.CodeConflict {
		t.Errorf("another body: %d %s", a.status, a.body)
	}
	for name, other := range map[string]answer{"caller": call("environment", "a", "k", "{}"), "path": call("trainer", "b", "k", "{}"), "key": call("trainer", "a", "l", "{}")} {
		if other.status != 200 || other.body == first.body {
			t.Errorf("another %s: %v", name, other)
		}
	}
	for _, name := range []string{"refused", "large", "empty"} {
		before := calls.Load()
		call("trainer", name, "k", "{}")
		if a := call("trainer", name, "k", "{}"); calls.Load() != before+2 || a.header.Get("Idempotency-Replayed") != "" {
			t.Errorf("%s: kept: %v", name, a.status)
		}
	}
	if a := call("trainer", "a", strings.Repeat("k", 129), "{}"); a.status != 400 {
		t.Errorf("a long key: %d", a.status)
	}

	before := calls.Load()
	answers := make(chan answer, 3)
	for range 3 {
		go func() { answers <- call("trainer", "slow", "k", "{}") }()
	}
	<-entered
	close(leave)
	one, two, three := <-answers, <-answers, <-answers
	if calls.Load() != before+1 || one.body != two.body || two.body != three.body {
		t.Errorf("%d calls at a time ran %d times: %q %q %q", 3, calls.Load()-before, one.body, two.body, three.body)
	}
}

// If the first of several calls fails, the next of them does it.
func TestCallAfterAFailure(t *testing.T) {
	var calls atomic.Int64
	entered, leave := make(chan struct{}, 2), make(chan struct{})
	c := start(t, Options{}, func(s *Server) {
		s.route("POST /test", roleAny, func(w http.ResponseWriter, r *http.Request) error {
			if calls.Add(1) == 1 {
				entered <- struct{}{}
				<-leave
				panic("the first")
			}
			return writeJSON(w, "done")
		})
	})
	statuses := make(chan int, 2)
	ask := func() { statuses <- c.do("POST", "/test", "{}", "Idempotency-Key", "k").status }
	go ask()
	<-entered
	go ask()
	close(leave)
	if a, b := <-statuses, <-statuses; a+b != 500+200 {
		t.Errorf("got %d and %d", a, b)
	}
}

// What is kept is bounded by count, bytes and age.
func TestRepliesAreBounded(t *testing.T) {
	now := time.Unix(0, 0)
	c := newReplies(Options{Clock: func() time.Time { return now }, RepliesMax: 10, ReplyBytesMax: 20_000, ReplyAge: time.Minute})
	add := func(i, size int) {
		k, mine, err := c.begin(replyKey{key: sha256.Sum256([]byte(fmt.Sprint(i)))}, sha256.Sum256(nil))
		if err != nil || !mine {
			t.Fatalf("%d: %v %v", i, mine, err)
		}
		k.text = make([]byte, size)
		c.end(k, true)
	}
	for i := range 100_000 {
		add(i, 10)
		if len(c.byKey) > 10 || c.done.Len() != len(c.byKey) {
			t.Fatalf("after %d: %d kept, %d listed", i, len(c.byKey), c.done.Len())
		}
	}
	for i := range 100 {
		add(-1-i, 5000)
		if c.bytes > 20_000 {
			t.Fatalf("%d bytes are kept", c.bytes)
		}
	}
	now = now.Add(time.Minute)
	add(200_000, 1)
	if len(c.byKey) != 1 || c.bytes != 1+keptOverhead {
		t.Errorf("after their age %d are kept, %d bytes", len(c.byKey), c.bytes)
	}
}
