package gateway

import (
	"context"
	"errors"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// frozen is a tokenizer that takes questions and answers those of Decode after a time, which may be for ever.
type frozen struct {
	*reference
	answers <-chan time.Time
}

func (f frozen) Decode(ctx context.Context, ids []int32) (string, error) {
	select {
	case <-f.answers:
		return f.reference.Decode(ctx, ids)
	case <-ctx.Done():
		return "", ctx.Err()
	}
}

// silently says a text of which the engine gives none.
func silently(text string) response {
	r := says(text)
	r.silent, r.cut = true, 0
	return r
}

// A tokenizer that never answers does not keep the request of a client that has left: it ends with
// its rollout or with the gateway, and by itself after a while.
func TestUnreadEndsOnceItsClientHasLeft(t *testing.T) {
	for name, c := range map[string]struct {
		then  func(h *house)
		after time.Duration
	}{
		"the rollout ends":  {func(h *house) { close(h.port.ended) }, 0},
		"the gateway stops": {func(h *house) { h.gateway.Close() }, 0},
		"nothing else ends": {func(*house) {}, lingerMax},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				h := newHouse(t, always(silently("abc")), func(o *Options) { o.Templates = frozen{&reference{}, nil} })
				client, leave := context.WithCancel(t.Context())
				r := httptest.NewRequest(http.MethodPost, "/v1/completions", strings.NewReader(`{"prompt":[5,6],"stream":true}`)).WithContext(client)
				r.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
				done := make(chan struct{})
				go func() {
					defer close(done)
					h.gateway.ServeHTTP(httptest.NewRecorder(), r)
				}()
				synctest.Wait() // it is recorded and being read
				leave()
				left := time.Now()
				c.then(h)
				select {
				case <-done:
				case <-time.After(time.Hour):
					t.Fatal("an hour later it has not ended")
				}
				if took := time.Since(left); took != c.after || h.gateway.Status().Open != 0 {
					t.Errorf("it has ended after %s, want %s; %d are open", took, c.after, h.gateway.Status().Open)
				}
			})
		})
	}
}

// A client that listens gets its text as late as it may come: a server may be away for minutes.
func TestUnreadWaitsWithItsClient(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, always(silently("abc")), func(o *Options) { o.Templates = frozen{&reference{}, time.After(3 * lingerMax)} })
		events, _, done := readEvents(t, h.post("/v1/completions", `{"prompt":[5,6],"stream":true}`).Body.String())
		if got := gather(t, events)[0]; !done || got.content != "abc" {
			t.Errorf("%+v, done %v", got, done)
		}
	})
}

// away is a tokenizer that cannot be asked for a while.
type away struct {
	*reference
	gone *atomic.Bool
}

func (a away) Decode(ctx context.Context, ids []int32) (string, error) {
	if a.gone.Load() {
		return "", errors.New("no answer")
	}
	return a.reference.Decode(ctx, ids)
}

// A chat does not go on from a response that nobody could read: an agent that says something in its
// place, be it nothing, has not seen it. It is counted as every other that is recorded.
func TestUnreadIsNotGoneOnFrom(t *testing.T) {
	for _, stream := range []string{"false", "true"} {
		var gone atomic.Bool
		h := newHouse(t, always(silently("never shown")), func(o *Options) { o.Templates = away{&reference{}, &gone} })
		gone.Store(true)
		h.post("/v1/chat/completions", `{"stream":`+stream+`,"messages":[{"role":"user","content":"hi"}]}`)
		gone.Store(false)
		reply := h.ask(object{"messages": []object{user("hi"), {"role": "assistant", "content": ""}, user("again")}})
		seen := h.port.seen()
		if len(seen) != 2 || h.gateway.Status().Turns != 2 {
			t.Fatalf("stream %s: %d turns are recorded and %d counted, want 2", stream, len(seen), h.gateway.Status().Turns)
		}
		if prompt := decodeIDs(seen[1].prompt); strings.Contains(prompt, "never shown") {
			t.Errorf("stream %s: the policy was shown %q", stream, prompt)
		}
		if got := reply.Choices[0].Headway; got.Branch != 1 || got.Began != beganChanged {
			t.Errorf("stream %s: branch %d began by %q", stream, got.Branch, got.Began)
		}
	}
}

// lossy says a text in two pieces on the way, between which one may be missing, and all says in the end.
type lossy struct {
	*port
	pieces [2]string
	all    string
}

func (l lossy) Turn(_ context.Context, _ string, _ protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	tokens := append(spell("Hello world"), imEnd)
	logprobs := logprobsOf(tokens)
	onTokens(protocol.TurnDelta{Tokens: tokens[:6], Logprobs: logprobs[:6], Text: l.pieces[0]})
	onTokens(protocol.TurnDelta{Tokens: tokens[6:], Logprobs: logprobs[6:], Text: l.pieces[1]})
	return protocol.TurnReply{Tokens: tokens, Logprobs: logprobs, Versions: make([]loop.Version, len(tokens)), Text: l.all, Finish: "stop"}, nil
}

// A stream that lacks a piece of its text says so where nothing that follows makes it right. One that
// lacks the end alone is completed, by the tokens where the engine does not say it.
func TestStreamWithAPieceLost(t *testing.T) {
	for name, c := range map[string]struct {
		pieces   [2]string
		all      string
		content  string
		complete bool
	}{
		"nothing is lost":                           {[2]string{"Hello ", "world"}, "Hello world", "Hello world", true},
		"the end, and the engine says it":           {[2]string{"Hello", " wo"}, "Hello world", "Hello world", true},
		"the end, and the engine says no text":      {[2]string{"Hello", " wo"}, "", "Hello world", true},
		"the middle, and the engine says all":       {[2]string{"Hel", "world"}, "Hello world", "Helworld", false},
		"the middle, and the engine says no text":   {[2]string{"Hel", "world"}, "", "Helworld", false},
		"the end has more than the text that it is": {[2]string{"Hello", " world."}, "Hello world", "Hello world.", false},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, nil, func(o *Options) { o.Rollouts = lossy{newPort(nil), c.pieces, c.all} })
			events, _, done := readEvents(t, h.post("/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"hi"}]}`).Body.String())
			last := events[len(events)-1].Error
			if got := gather(t, events)[0]; got.content != c.content || done != c.complete || (got.finish == "") == c.complete {
				t.Errorf("said %q, finish %q, done %v: want %q, complete %v", got.content, got.finish, done, c.content, c.complete)
			}
			if !c.complete && (last == nil || last.Code != protocol.CodeConflict || !strings.Contains(last.Message, "is recorded, and its text cannot be read")) {
				t.Errorf("it ends with the error %+v", last)
			}
			if n := h.gateway.Status().Turns; n != 1 {
				t.Errorf("%d turns are counted, want 1", n)
			}
		})
	}
}

// shortLived is a tokenizer that cannot be asked any more after so many answers.
type shortLived struct {
	*reference
	left *int
}

func (l shortLived) Decode(ctx context.Context, ids []int32) (string, error) {
	if *l.left--; *l.left < 0 {
		return "", protocol.Refuse(protocol.CodeUnavailable, "nobody reads the tokens: send it again")
	}
	return l.reference.Decode(ctx, ids)
}

// A stream that cannot be read on says "later" only where no response of the request is recorded.
func TestStreamSaysLaterOnlyIfNothingIsRecorded(t *testing.T) {
	behind := 0
	for answers := range 12 {
		left := answers
		said := silently("abc def")
		said.cut = 2
		h := newHouse(t, always(said), func(o *Options) { o.Templates = shortLived{&reference{}, &left} })
		reply := h.post("/v1/completions", `{"prompt":[5,6],"stream":true,"n":3}`)
		turns, later := h.gateway.Status().Turns, reply.Code == http.StatusServiceUnavailable
		if reply.Code == http.StatusOK {
			events, _, done := readEvents(t, reply.Body.String())
			if done {
				break
			}
			last := events[len(events)-1].Error
			later = last != nil && last.Code == protocol.CodeUnavailable
		}
		if later != (turns == 0) {
			t.Errorf("after %d answers %d responses are recorded, and it says later: %v", answers, turns, later)
		}
		if turns > 1 {
			behind++
		}
	}
	if behind == 0 {
		t.Error("no stream broke off behind a response")
	}
}
