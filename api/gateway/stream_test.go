package gateway

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

const tooled = `"tools":[{"type":"function","function":{"name":"look"}}],`

// A stream says what the whole answer says, however it was cut, and names every token once.
func TestStreamEqualsWhole(t *testing.T) {
	for seed := range uint64(150) {
		rng := rand.New(rand.NewPCG(seed, 7))
		r := randomResponse(rng, int(seed))
		dialect := []string{"hermes", "llama3", "none"}[seed%3]
		if dialect == "llama3" && seed%2 == 0 {
			r.tokens, r.finish = append(spell(`{"name": "look", "parameters": {"é": "日"}}; {"name":"look"}`), imEnd), "stop"
		}
		h := newHouse(t, always(r), func(o *Options) { o.Calls = calls.ByName(dialect).In(nil) })
		chat := `{"messages":[{"role":"user","content":"x"}],` + tooled + `"logprobs":true,"return_token_ids":true`
		var whole parsed
		w := h.post("/v1/chat/completions", chat+"}")
		if err := jsonInto(w, &whole); err != nil {
			t.Fatal(err)
		}
		events, _, done := readEvents(t, h.post("/v1/chat/completions", chat+`,"stream":true}`).Body.String())
		if !done {
			t.Fatal("no [DONE]")
		}
		got, want := gather(t, events)[0], whole.answer(t, 0)
		content := ""
		if want.Content != nil {
			content = *want.Content
		}
		// A stream cannot take back the beginning of a call that turns out to be none.
		got.calls = slices.DeleteFunc(got.calls, func(call toolCall) bool {
			return !slices.ContainsFunc(want.ToolCalls, func(w toolCall) bool { return w.Function == call.Function })
		})
		if got.content != content || got.thought != want.Reasoning || got.finish != whole.Choices[0].FinishReason || len(got.calls) != len(want.ToolCalls) {
			t.Fatalf("seed %d: %+v, want %q %+v", seed, got, content, want)
		}
		for i, call := range got.calls {
			if call.Function != want.ToolCalls[i].Function || call.ID == "" || call.Type != "function" {
				t.Errorf("seed %d: call %+v, want %+v", seed, call, want.ToolCalls[i])
			}
		}
		equalTokens(t, "streamed", got.tokens, r.tokens)
		equalTokens(t, "whole", whole.Choices[0].TokenIDs, r.tokens)
		equalTokens(t, "prompt", events[0].PromptIDs, whole.PromptIDs)
		if got.logprobs != len(r.tokens) || len(whole.Choices[0].Logprobs.Content) != len(r.tokens) {
			t.Errorf("seed %d: %d log-probs for %d tokens", seed, got.logprobs, len(r.tokens))
		}
	}
}

func jsonInto(w *httptest.ResponseRecorder, to any) error {
	if w.Code != http.StatusOK {
		return fmt.Errorf("%d: %s", w.Code, w.Body)
	}
	return decodeStrict(w.Body.Bytes(), to)
}

// A completion streams like a chat, in its own shape.
func TestCompletionStream(t *testing.T) {
	r := response{tokens: append(spell("日本 ab"), imEnd), versions: []loop.Version{7, 7, 7, 7, 8, 8, 8, 8, 8, 9}, finish: "stop", cut: 2, overridden: []string{"top_p"}}
	h := newHouse(t, always(r))
	body := `{"prompt":[20,21],"n":2,"logprobs":1,"return_token_ids":true,"stream":true,"stream_options":{"include_usage":true},"ignore_eos":true}`
	events, _, done := readEvents(t, h.post("/v1/completions", body).Body.String())
	all := gather(t, events)
	for i := range 2 {
		if g := all[i]; g.content != "日本 ab" || g.finish != "stop" || !slices.Equal(g.tokens, r.tokens) || g.logprobs != len(r.tokens) {
			t.Errorf("choice %d: %+v", i, g)
		}
		began := []string{beganFirst, beganChoice}[i]
		want := fmt.Sprintf(`{"branch":%d,"began":"%s","versions":[{"version":7,"start":0,"end":4},{"version":8,"start":4,"end":9},{"version":9,"start":9,"end":10}],"overridden":["top_p","ignore_eos"]}`, i, began)
		if all[i].headway != want {
			t.Errorf("headway %s\n   want %s", all[i].headway, want)
		}
	}
	if last := events[len(events)-1]; !done || last.Usage == nil || *last.Usage != (usage{2, 20, 22}) || len(last.Choices) != 0 {
		t.Errorf("the last event: %+v", last)
	}
	equalTokens(t, "prompt", events[0].Choices[0].PromptIDs, []int32{20, 21})
}

// leaving is a client that is gone after some writes: its context ends, or its connection breaks.
type leaving struct {
	*httptest.ResponseRecorder
	after  int
	cancel context.CancelFunc
	breaks bool
}

func (l *leaving) Write(p []byte) (int, error) {
	if l.after--; l.after < 0 {
		if l.breaks {
			return 0, errors.New("broken pipe")
		}
		l.cancel()
	}
	return l.ResponseRecorder.Write(p)
}

// Whenever a client leaves, its turn ends and is recorded wholly or not at all, and the rollout goes on.
func TestDisconnect(t *testing.T) {
	r := says("a text of some length")
	r.cut = 1
	writes := len(r.tokens) + 2 // the role, a character each, the end and [DONE]
	for after := range writes {
		for i := range 4 {
			breaks, free := i%2 > 0, i > 1
			gate := make(chan struct{}, writes)
			h := newHouse(t, always(r))
			h.gateway.opt.Rollouts = &stepwise{Rollouts: h.port, gate: gate}
			ctx, cancel := context.WithCancel(t.Context())
			w := &leaving{httptest.NewRecorder(), after, cancel, breaks}
			step := http.ResponseWriter(&steppingWriter{w, gate})
			if free {
				step = roomy{&steppingWriter{w, gate}}
			}
			req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"stream":true,"messages":[{"role":"user","content":"x"}]}`)).WithContext(ctx)
			req.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
			h.gateway.ServeHTTP(step, req)
			cancel()
			h.port.running.Wait()
			if n := len(h.port.seen()); after < len(r.tokens)-1 && n != 0 {
				t.Fatalf("left after %d writes, and %d turns are recorded", after, n)
			}
			if body := w.Body.String(); strings.Contains(body, `"error"`) || (breaks || len(h.port.seen()) == 0) && strings.Contains(body, "[DONE]") {
				t.Fatalf("left after %d: %s", after, body)
			}
			h.gateway.opt.Rollouts = h.port
			before := len(h.port.seen())
			if reply := h.ask(object{"messages": []any{user("x")}}); reply.Choices[0].Headway.Branch != before {
				t.Errorf("left after %d: the next is %+v", after, reply.Choices[0].Headway)
			}
		}
	}
}

// stepwise delivers each piece once the one before was written, so that a test knows which write is which.
type stepwise struct {
	Rollouts
	gate chan struct{}
}

func (s *stepwise) Turn(ctx context.Context, id string, req protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	return s.Rollouts.Turn(ctx, id, req, func(d protocol.TurnDelta) {
		onTokens(d)
		if d.Text == "" {
			return // nothing is written of it
		}
		select {
		case <-s.gate:
		case <-ctx.Done():
		}
	})
}

type steppingWriter struct {
	*leaving
	gate chan struct{}
}

// roomy is a client that always has room: it is written to by the goroutine of the turn.
type roomy struct{ *steppingWriter }

func (roomy) Writable() bool { return true }

// Flush is called once an event is written; the first two events come with the first token.
func (s *steppingWriter) Flush() {
	if body := s.Body.Bytes(); !strings.HasSuffix(string(body), `"content":""},"logprobs":null,"finish_reason":null}]}`+"\n\n") {
		select {
		case s.gate <- struct{}{}:
		default:
		}
	}
}

// A connection is asked for room before the first token, and again before what it has been asked for is
// used up; one that has none is asked each time, and so is one that somebody else has written to.
func TestRoomIsAskedForOnceForMany(t *testing.T) {
	for name, c := range map[string]struct {
		tokens  []int
		full    bool
		between func(w *choiceWriter) // before each but the first
		asked   int
	}{
		"none":                 {},
		"as many as one holds": {tokens: slices.Repeat([]int{1}, tokensAtOnce), asked: 1},
		"one more":             {tokens: slices.Repeat([]int{1}, tokensAtOnce+1), asked: 2},
		"pieces":               {tokens: []int{10, 6, 10, 7, 1}, asked: 3},
		"full":                 {tokens: []int{1, 1, 1}, full: true, asked: 3},
		"another writes": {tokens: []int{1, 1, 1}, asked: 3,
			between: func(w *choiceWriter) { w.broke = errors.New("ended"); _ = w.catchUp() }},
	} {
		t.Run(name, func(t *testing.T) {
			asked := 0
			w := &choiceWriter{free: func() bool { asked++; return !c.full }}
			for i, tokens := range c.tokens {
				if i > 0 && c.between != nil {
					c.between(w)
				}
				if got := w.hasRoom(tokens); got == c.full {
					t.Errorf("piece %d: room %v", i, got)
				}
			}
			if asked != c.asked {
				t.Errorf("asked %d times, want %d", asked, c.asked)
			}
		})
	}
}

// A turn that fails before the first event is a status, one that fails later an event without [DONE].
func TestFailingTurn(t *testing.T) {
	refusal := protocol.Refuse(protocol.CodeBusy, "no slot").With("slots", 3)
	for _, stream := range []bool{false, true} {
		h := newHouse(t, always(response{fails: refusal}))
		w := h.post("/v1/chat/completions", fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"x"}]}`, stream))
		if w.Code != 429 || w.Header().Get("Retry-After") == "" || w.Header().Get("X-Should-Retry") != "true" {
			t.Errorf("stream %v: %d %v %s", stream, w.Code, w.Header(), w.Body)
		}
	}
	h := newHouse(t, always(response{tokens: spell("abc"), cut: 1, fails: refusal}))
	w := h.post("/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"x"}]}`)
	if w.Code == 429 { // it failed before its first token was written
		return
	}
	events, _, done := readEvents(t, w.Body.String())
	if last := events[len(events)-1]; w.Code != 200 || done || last.Error == nil || last.Error.Code != protocol.CodeBusy {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}

// A request of which choices are recorded is not one to send again, which libraries would do by themselves.
func TestLaterChoiceFails(t *testing.T) {
	for _, code := range []protocol.Code{protocol.CodeBusy, protocol.CodeUnavailable, protocol.CodeExpired, ""} {
		h := newHouse(t, func(n int, _ protocol.TurnRequest) response {
			if n == 1 {
				return response{fails: protocol.Refuse(cmp.Or(code, protocol.CodeExpired), "no slot")}
			}
			return says("abc")
		})
		if code == "" {
			h.port.replaced = protocol.Refuse(protocol.CodeUnavailable, "another process may go on with it")
		}
		w := h.post("/v1/chat/completions", `{"n":3,"messages":[{"role":"user","content":"x"}]}`)
		want := protocol.CodeConflict
		if code == protocol.CodeExpired {
			want = code
		}
		if e := refusedAs(t, w); e.Code != want || w.Header().Get("X-Should-Retry") != "false" || want != code && !strings.Contains(e.Message, "1 of the 3 choices are recorded") {
			t.Errorf("%s: %d %v %s", code, w.Code, w.Header(), w.Body)
		}
	}
}

// unreadable renders, and cannot read tokens.
type unreadable struct {
	*reference
	fails error
}

func (u unreadable) Decode(context.Context, []int32) (string, error) { return "", u.fails }

// A response that is recorded and whose text cannot be read is not one to ask for again either.
func TestRecordedAndUnread(t *testing.T) {
	for name, fails := range map[string]error{"silent": errors.New("no answer"), "later": protocol.Refuse(protocol.CodeUnavailable, "no answer")} {
		h := newHouse(t, func(int, protocol.TurnRequest) response {
			r := says("abc")
			r.silent = true
			return r
		}, func(o *Options) { o.Templates = unreadable{&reference{}, fails} })
		w := h.post("/v1/completions", `{"prompt":[5,6]}`)
		if e := refusedAs(t, w); e.Code != protocol.CodeConflict || w.Header().Get("X-Should-Retry") != "false" || !strings.Contains(e.Message, "is recorded") {
			t.Errorf("%s: %d %v %s", name, w.Code, w.Header(), w.Body)
		}
		if n := len(h.port.records); n != 1 {
			t.Errorf("%s: %d turns are recorded", name, n)
		}
	}
}

// While a turn waits, comments keep the connection; then it is answered as if nothing had been.
func TestHeartbeat(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		gate := make(chan struct{})
		r := says("abc")
		r.waits = gate
		h := newHouse(t, always(r))
		time.AfterFunc(40*time.Second, func() { close(gate) })
		events, comments, done := readEvents(t, h.post("/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"x"}]}`).Body.String())
		if comments != 2 || !done || gather(t, events)[0].content != "abc" {
			t.Errorf("%d comments, %+v", comments, events)
		}
	})
}

// Who has waited too long is told to come again: by the status, or by an event once the status is out.
func TestWaitIsBounded(t *testing.T) {
	for _, c := range []struct {
		wait   time.Duration
		stream bool
		status int
	}{{10 * time.Second, false, 429}, {10 * time.Second, true, 429}, {20 * time.Second, true, 200}} {
		synctest.Test(t, func(t *testing.T) {
			h := newHouse(t, always(response{waits: make(chan struct{})}), func(o *Options) { o.Wait = c.wait })
			began := time.Now()
			w := h.post("/v1/chat/completions", fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"x"}]}`, c.stream))
			if w.Code != c.status || time.Since(began) != c.wait || !strings.Contains(w.Body.String(), `"code":"busy"`) || strings.Contains(w.Body.String(), "[DONE]") {
				t.Errorf("%+v: %d after %s: %s", c, w.Code, time.Since(began), w.Body)
			}
			if c.status == 429 && w.Header().Get("Retry-After") != "1" {
				t.Errorf("%v", w.Header())
			}
			if len(h.port.seen()) != 0 {
				t.Error("a turn is recorded")
			}
		})
	}
}

// The wait is for the beginning of a response: one that has begun takes the time that it takes.
func TestWaitEndsWithTheFirstToken(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		h := newHouse(t, always(says("abc")), func(o *Options) { o.Wait = 10 * time.Second })
		h.gateway.opt.Rollouts = &slow{h.port}
		w := h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
		if w.Code != 200 {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	})
}

// slow takes a minute over every piece but the first.
type slow struct{ Rollouts }

func (s *slow) Turn(ctx context.Context, id string, req protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	return s.Rollouts.Turn(ctx, id, req, func(d protocol.TurnDelta) {
		onTokens(d)
		select {
		case <-time.After(time.Minute):
		case <-ctx.Done():
		}
	})
}

// stalled is a client whose first write takes until it is let go.
type stalled struct {
	*httptest.ResponseRecorder
	once   sync.Once
	letGo  <-chan struct{}
	writes int
}

func (s *stalled) Write(p []byte) (int, error) {
	s.once.Do(func() { <-s.letGo })
	s.writes++
	return s.ResponseRecorder.Write(p)
}

// A client that is slow holds up no engine: what has come meanwhile is one event.
func TestSlowClient(t *testing.T) {
	r := says(strings.Repeat("some text ", 50))
	r.cut = 1
	h := newHouse(t, always(r))
	complete := make(chan struct{})
	h.gateway.opt.Rollouts = &telling{h.port, complete}
	w := &stalled{ResponseRecorder: httptest.NewRecorder(), letGo: complete}
	req := httptest.NewRequest(http.MethodPost, "/v1/chat/completions", strings.NewReader(`{"stream":true,"return_token_ids":true,"messages":[{"role":"user","content":"x"}]}`))
	req.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
	h.gateway.ServeHTTP(w, req)
	events, _, done := readEvents(t, w.Body.String())
	g := gather(t, events)[0]
	if !done || g.content != decodeIDs(r.tokens) || !slices.Equal(g.tokens, r.tokens) {
		t.Errorf("%+v", g)
	}
	if w.writes > 6 {
		t.Errorf("%d writes for what had come together", w.writes)
	}
}

// telling closes a channel once a turn is complete.
type telling struct {
	Rollouts
	complete chan struct{}
}

func (s *telling) Turn(ctx context.Context, id string, req protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	defer close(s.complete)
	return s.Rollouts.Turn(ctx, id, req, onTokens)
}

// A turn that panics is a defect of one request.
func TestTurnPanics(t *testing.T) {
	for _, stream := range []bool{false, true} {
		h := newHouse(t, func(int, protocol.TurnRequest) response { panic("broken") })
		h.gateway.opt.Logf = func(string, ...any) {}
		h.gateway.opt.Rollouts = panicking{h.port}
		w := h.post("/v1/chat/completions", fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"x"}]}`, stream))
		if w.Code != 500 || w.Header().Get("X-Should-Retry") != "false" || strings.Contains(w.Body.String(), "broken") {
			t.Errorf("%d %s", w.Code, w.Body)
		}
	}
}

type panicking struct{ Rollouts }

func (panicking) Turn(context.Context, string, protocol.TurnRequest, func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	panic("broken")
}

// Whether an engine gives text is learnt from responses that have some, and unlearnt.
func TestTextOfTokens(t *testing.T) {
	next := response{}
	h := newHouse(t, func(int, protocol.TurnRequest) response { return next })
	ask := func(r response) string {
		next = r
		events, _, _ := readEvents(t, h.post("/v1/chat/completions", `{"stream":true,"messages":[{"role":"user","content":"x"}]}`).Body.String())
		return gather(t, events)[0].content
	}
	ask(response{tokens: []int32{imEnd}, finish: "stop", cut: 1})
	if h.gateway.textless.Load() {
		t.Error("a response of a special token alone says nothing about the engine")
	}
	r := says("日本 🙂")
	r.silent, r.cut = true, 1
	for range 2 {
		if got := ask(r); got != "日本 🙂" || !h.gateway.textless.Load() {
			t.Errorf("%q", got)
		}
	}
	before := h.template.called("decode")
	if got := ask(says("with text")); got != "with text" || h.gateway.textless.Load() {
		t.Errorf("%q", got)
	}
	if n := h.template.called("decode") - before; n != 0 {
		t.Errorf("%d tokens were read of an engine that gives text", n)
	}
}

// Over a real connection, too, a client that leaves takes its turn back.
func TestConnectionBreaks(t *testing.T) {
	h := newHouse(t, always(says("a text of some length")))
	h.gateway.opt.Rollouts = &stepwise{h.port, make(chan struct{})} // the second piece never comes
	server := httptest.NewServer(h.gateway)
	defer server.Close()
	for _, stream := range []bool{true, false} {
		ctx, cancel := context.WithCancel(t.Context())
		req, err := http.NewRequestWithContext(ctx, http.MethodPost, server.URL+"/v1/chat/completions", strings.NewReader(fmt.Sprintf(`{"stream":%v,"messages":[{"role":"user","content":"x"}]}`, stream)))
		if err != nil {
			t.Fatal(err)
		}
		req.Header.Set(protocol.RolloutHeader, "g1-s0-a0")
		if !stream {
			began := make(chan struct{})
			h.gateway.opt.Rollouts = &beginning{h.gateway.opt.Rollouts, began}
			go func() { <-began; cancel() }()
		}
		reply, err := http.DefaultClient.Do(req)
		if stream {
			if err != nil {
				t.Fatal(err)
			}
			if _, err := reply.Body.Read(make([]byte, 64)); err != nil {
				t.Fatal(err)
			}
			reply.Body.Close()
		} else if err == nil {
			t.Fatal("answered")
		}
		cancel()
		h.port.running.Wait()
	}
	server.Close() // its handlers have ended
	if got := h.gateway.Status(); got.Aborted != 2 || got.Open != 0 || got.Turns != 0 || len(h.port.seen()) != 0 {
		t.Errorf("%+v", got)
	}
}

// beginning closes a channel once a turn has brought its first tokens.
type beginning struct {
	Rollouts
	began chan struct{}
}

func (b *beginning) Turn(ctx context.Context, id string, req protocol.TurnRequest, onTokens func(protocol.TurnDelta)) (protocol.TurnReply, error) {
	var once sync.Once
	return b.Rollouts.Turn(ctx, id, req, func(d protocol.TurnDelta) {
		once.Do(func() { close(b.began) })
		onTokens(d)
	})
}
