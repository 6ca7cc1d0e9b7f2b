package gateway

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/headway-rl/headway/api/protocol"
)

func always(r response) func(int, protocol.TurnRequest) response {
	return func(int, protocol.TurnRequest) response { return r }
}

// A chat goes on with the tokens that were sampled, in the spelling in which they were.
func TestChatGoesOn(t *testing.T) {
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return says(fmt.Sprintf("answer %d", n)) })
	chat := []any{object{"role": "system", "content": "be brief"}, user("hello")}
	first := h.ask(object{"model": "m", "messages": chat})
	if c := first.Choices[0]; c.Headway.Began != beganFirst || c.Headway.Branch != 0 || c.FinishReason != "stop" {
		t.Fatalf("%+v", c)
	}
	second := h.ask(object{"model": "m", "messages": append(chat, first.answer(t, 0), user("and then"))})
	if c := second.Choices[0]; c.Headway.Began != "" || c.Headway.Branch != 0 {
		t.Fatalf("%+v", c)
	}
	records := h.port.seen()
	want := slices.Concat(records[0].prompt, spell("answer 0"), []int32{imEnd}, encode("\n"),
		renderOne(referenceMessage{Role: "user"}, "and then"), opening)
	equalTokens(t, "the second prompt", records[1].prompt, want)
	if second.Usage.Prompt != len(want) || second.Usage.Total != len(want)+len(spell("answer 1"))+1 {
		t.Errorf("%+v", second.Usage)
	}
}

// What closes an answer is what of it was not sampled.
func TestClosing(t *testing.T) {
	for name, r := range map[string]response{
		"stopped":              {tokens: append(spell("abc"), imEnd), finish: "stop"},
		"cut by length":        {tokens: spell("abc"), finish: "length"},
		"cut at the newline":   {tokens: spell("abc\n"), finish: "length"},
		"whole closing":        {tokens: append(append(spell("abc"), imEnd), encode("\n")...), finish: "stop"},
		"another end of text":  {tokens: append(spell("abc"), endText), finish: "stop"},
		"nothing but the end":  {tokens: []int32{imEnd}, finish: "stop"},
		"stop text, no end":    {tokens: spell("abc STOP"), finish: "stop"},
		"end inside, and more": {tokens: append(append(spell("a"), imEnd), spell("b")...), finish: "length"},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, always(r))
			reply := h.ask(object{"messages": []any{user("x")}})
			h.ask(object{"messages": []any{user("x"), reply.answer(t, 0), user("y")}})
			records := h.port.seen()
			closing := append([]int32{imEnd}, encode("\n")...)
			switch name {
			case "stopped", "nothing but the end":
				closing = encode("\n")
			case "whole closing":
				closing = nil
			}
			want := slices.Concat(records[0].prompt, r.tokens, closing, renderOne(referenceMessage{Role: "user"}, "y"), opening)
			equalTokens(t, "prompt", records[1].prompt, want)
			if records[1].branch != 0 {
				t.Errorf("branch %d", records[1].branch)
			}
		})
	}
}

// Clients send back what they were told in forms of their own.
func TestAnswerIsRecognised(t *testing.T) {
	call := `<tool_call>{"name": "look", "arguments": {"b": 1, "a": "x"}}</tool_call>`
	tools := []any{object{"type": "function", "function": object{"name": "look"}}}
	for name, form := range map[string]struct {
		text string
		same bool
		echo func(a answer) any
	}{
		"as it was": {"abc", true, func(a answer) any { return a }},
		"nulls": {"abc", true, func(a answer) any {
			return object{"role": "assistant", "content": *a.Content, "tool_calls": nil, "audio": nil}
		}},
		"empty lists": {"abc", true, func(a answer) any {
			return object{"role": "assistant", "content": *a.Content, "tool_calls": []any{}, "annotations": []any{}}
		}},
		"one part": {"abc", true, func(a answer) any {
			return object{"role": "assistant", "content": []any{object{"type": "text", "text": *a.Content}}}
		}},
		"another text":     {"abc", false, func(a answer) any { return object{"role": "assistant", "content": *a.Content + " "} }},
		"another role":     {"abc", false, func(a answer) any { return object{"role": "user", "content": *a.Content} }},
		"call":             {call, true, func(a answer) any { return a }},
		"call, no content": {call, true, func(a answer) any { return object{"role": "assistant", "content": "", "tool_calls": a.ToolCalls} }},
		"call with index":  {call, true, func(a answer) any { return withCall(a, func(c object) { c["index"] = 0 }) }},
		"call, no type":    {call, true, func(a answer) any { return withCall(a, func(c object) { delete(c, "type") }) }},
		"arguments anew": {call, true, func(a answer) any {
			return withCall(a, func(c object) { c["function"] = object{"name": "look", "arguments": `{"a":"x","b":1}`} })
		}},
		"arguments as JSON": {call, true, func(a answer) any {
			return withCall(a, func(c object) { c["function"] = object{"name": "look", "arguments": object{"a": "x", "b": 1}} })
		}},
		"other arguments": {call, false, func(a answer) any {
			return withCall(a, func(c object) { c["function"] = object{"name": "look", "arguments": `{"a":"x","b":2}`} })
		}},
		"another id": {call, false, func(a answer) any { return withCall(a, func(c object) { c["id"] = "call_1" }) }},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, func(n int, _ protocol.TurnRequest) response {
				if n == 0 {
					return says(form.text)
				}
				return says("done")
			})
			reply := h.ask(object{"messages": []any{user("x")}, "tools": tools})
			next := h.ask(object{"messages": []any{user("x"), form.echo(reply.answer(t, 0)), object{"role": "tool", "content": "ok"}}, "tools": tools})
			began := next.Choices[0].Headway.Began
			if form.same && began != "" || !form.same && began != beganChanged {
				t.Errorf("began %q", began)
			}
		})
	}
}

// withCall is an answer whose first call was changed.
func withCall(a answer, change func(call object)) object {
	call := object{"id": a.ToolCalls[0].ID, "type": "function", "function": a.ToolCalls[0].Function}
	change(call)
	return object{"role": "assistant", "content": nil, "tool_calls": []any{call}}
}

// A template that leaves out earlier thinking cannot go on from it, and says so.
func TestFallback(t *testing.T) {
	var logged []string
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return says("<think>hm</think>so") }, func(o *Options) {
		o.Logf = func(format string, args ...any) { logged = append(logged, fmt.Sprintf(format, args...)) }
	})
	h.template.forgetful = true
	chat := []any{user("x")}
	for turn := range 3 {
		reply := h.ask(object{"messages": chat})
		want := beganFirst
		if turn > 0 {
			want = beganFallback
		}
		if c := reply.Choices[0]; c.Headway.Began != want || c.Headway.Branch != turn {
			t.Errorf("turn %d: %+v", turn, c.Headway)
		}
		equalTokens(t, "the prompt is the template's", h.port.seen()[turn].prompt, must(h.template.Render(t.Context(), []byte(mustJSON(t, chat)), nil, true)))
		chat = append(chat, reply.answer(t, 0), user("y"))
	}
	if len(logged) != 1 || !strings.Contains(logged[0], "fallback") {
		t.Errorf("logged %q", logged)
	}
	// A tool's answer follows the thinking that the template keeps.
	chat[len(chat)-1] = object{"role": "tool", "content": "42"}
	if reply := h.ask(object{"messages": chat}); reply.Choices[0].Headway.Began != "" || reply.Choices[0].Headway.Branch != 2 {
		t.Errorf("%+v", reply.Choices[0].Headway)
	}
}

// A template that marks the last answer alone with an empty block of thinking is gone on from all the
// same: what was sampled stands as it was, and only thinking that was sampled and is left out is not.
func TestDecoratedAnswer(t *testing.T) {
	answers := []string{"so", "<think></think>well", "no", "<think>hm</think>yes", "end"}
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return says(answers[n]) })
	h.template.blank = true
	chat := []any{user("x")}
	prompt := must(h.template.Render(t.Context(), []byte(mustJSON(t, chat)), nil, true))
	for turn, answer := range answers[:4] {
		reply := h.ask(object{"messages": chat})
		if c := reply.Choices[0]; c.Headway.Branch != 0 || c.Headway.Began != "" && turn > 0 {
			t.Errorf("turn %d: %+v", turn, c.Headway)
		}
		equalTokens(t, fmt.Sprintf("turn %d", turn), h.port.seen()[turn].prompt, prompt)
		said := fmt.Sprint("y", turn)
		prompt = slices.Concat(prompt, says(answer).tokens, encode("\n"), renderOne(referenceMessage{Role: "user"}, said), opening)
		chat = append(chat, reply.answer(t, 0), user(said))
	}
	if c := h.ask(object{"messages": chat}).Choices[0]; c.Headway.Branch != 1 || c.Headway.Began != beganFallback {
		t.Errorf("thinking that the template leaves out is gone on from: %+v", c.Headway)
	}
}

func must(ids []int32, err error) []int32 {
	if err != nil {
		panic(err)
	}
	return ids
}

// A template that refuses to end in an answer is no failure of the chat.
func TestMuteTemplateFallsBack(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	h.template.mute = true
	reply := h.ask(object{"messages": []any{user("x")}})
	reply = h.ask(object{"messages": []any{user("x"), reply.answer(t, 0), user("y")}})
	if reply.Choices[0].Headway.Began != beganFallback {
		t.Errorf("%+v", reply.Choices[0].Headway)
	}
}

// Why a branch begins.
func TestReasons(t *testing.T) {
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return says(fmt.Sprint("answer ", n)) })
	first := h.ask(object{"messages": []any{user("x")}, "n": 3})
	for i, want := range []string{beganFirst, beganChoice, beganChoice} {
		if c := first.Choices[i]; c.Headway.Began != want || c.Headway.Branch != i || c.Index != i {
			t.Errorf("choice %d: %+v", i, c)
		}
	}
	if first.Usage.Prompt != len(h.port.seen()[0].prompt) || first.Usage.Completion != 3*(len("answer 0")+1) {
		t.Errorf("%+v", first.Usage)
	}
	for i, step := range []struct {
		chat   []any
		began  string
		branch int
	}{
		{[]any{user("x"), first.answer(t, 1), user("y")}, "", 1},
		{[]any{user("x"), first.answer(t, 1), user("z")}, beganRepeated, 3},
		{[]any{user("x")}, beganRepeated, 4},
		{[]any{user("other")}, beganChanged, 5},
		{[]any{user("x"), first.answer(t, 2), user("y")}, "", 2},
	} {
		c := h.ask(object{"messages": step.chat}).Choices[0]
		if c.Headway.Began != step.began || c.Headway.Branch != step.branch {
			t.Errorf("step %d: %+v", i, c.Headway)
		}
	}
}

// path is one history of a random conversation, with the tokens that stand for it.
type path struct {
	messages []any
	tokens   []int32
}

// Over random conversations that go on, go back, change and are cut, every prompt is made of the very
// tokens that were sampled and of the rendering of what was added, by a rule that is written out
// here a second time.
func TestTokensAreExact(t *testing.T) {
	for seed := range uint64(60) {
		rng := rand.New(rand.NewPCG(seed, 6))
		var last response
		h := newHouse(t, func(n int, _ protocol.TurnRequest) response {
			last = randomResponse(rng, n)
			return last
		})
		tools := []any{object{"type": "function", "function": object{"name": "look"}}}
		start := renderOne(referenceMessage{Role: "system"}, "tools: "+string(canonical([]byte(mustJSON(t, tools)))))
		paths := []path{{tokens: start}}
		for turn := range 12 {
			p := paths[rng.IntN(len(paths))]
			if rng.IntN(3) > 0 {
				p = paths[len(paths)-1]
			}
			p.messages, p.tokens = slices.Clone(p.messages), slices.Clone(p.tokens)
			for range 1 + rng.IntN(2) {
				role, text := []string{"user", "tool"}[rng.IntN(2)], randomText(rng)
				p.messages = append(p.messages, object{"role": role, "content": text})
				p.tokens = append(p.tokens, renderOne(referenceMessage{Role: role}, text)...)
			}
			prompt := append(slices.Clone(p.tokens), opening...)
			reply := h.ask(object{"messages": p.messages, "tools": tools})
			equalTokens(t, fmt.Sprintf("seed %d, turn %d", seed, turn), h.port.seen()[turn].prompt, prompt)
			p.messages = append(p.messages, reply.answer(t, 0))
			p.tokens = append(prompt, last.tokens...)
			if last.tokens[len(last.tokens)-1] != imEnd {
				p.tokens = append(p.tokens, imEnd)
			}
			p.tokens = append(p.tokens, encode("\n")...)
			paths = append(paths, p)
		}
	}
}

func randomText(rng *rand.Rand) string {
	words := []string{"ab", "céé", "日本", "x", " ", "\n", "{", "\"", "</think>", "<tool", "🙂", "z7"}
	var b strings.Builder
	for range 1 + rng.IntN(6) {
		b.WriteString(words[rng.IntN(len(words))])
	}
	return b.String()
}

// randomResponse spells a text at random, so that encode would spell it otherwise.
func randomResponse(rng *rand.Rand, n int) response {
	text := fmt.Sprint(randomText(rng), n) // no two alike: else either may be gone on from
	if rng.IntN(3) == 0 {
		text += fmt.Sprintf(`<tool_call>{"name":"look","arguments":{"q":%q}}</tool_call>`, randomText(rng))
	}
	r := response{finish: "stop", silent: rng.IntN(2) == 0, cut: rng.IntN(4)}
	for len(text) > 0 {
		n := 1 + rng.IntN(len(text))
		if rng.IntN(2) == 0 {
			r.tokens = append(r.tokens, spell(text[:n])...)
		} else {
			r.tokens = append(r.tokens, encode(text[:n])...)
		}
		text = text[n:]
	}
	switch rng.IntN(3) {
	case 0:
		r.finish = "length"
	default:
		r.tokens = append(r.tokens, imEnd)
	}
	return r
}

// The rollouts of a group share the rendering of their first chat.
func TestSiblingsShareRenderings(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	done := make(chan struct{})
	for range 8 {
		go func() {
			defer func() { done <- struct{}{} }()
			h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
		}()
	}
	for range 8 {
		<-done
	}
	if n := h.template.called("render"); n != 1 {
		t.Errorf("rendered %d times", n)
	}
}

// Renderings past the bound are forgotten, the oldest first.
func TestRenderingsAreBounded(t *testing.T) {
	inner := &reference{}
	r := newTemplates(inner, 2*renderingOverhead+60, &pictures{mark: "none"})
	for i := range 20 {
		if _, err := r.chat(t.Context(), []json.RawMessage{json.RawMessage(fmt.Sprintf(`{"role":"user","content":"%d"}`, i))}, nil, true); err != nil {
			t.Fatal(err)
		}
		if r.tokens > r.tokensMax || r.recent.Len() != len(r.rendered) {
			t.Fatalf("%d tokens, %d and %d renderings", r.tokens, r.recent.Len(), len(r.rendered))
		}
	}
	before := inner.called("render")
	_, _ = r.chat(t.Context(), []json.RawMessage{json.RawMessage(`{"role":"user","content":"19"}`)}, nil, true)
	_, _ = r.chat(t.Context(), []json.RawMessage{json.RawMessage(`{"role":"user","content":"0"}`)}, nil, true)
	if n := inner.called("render") - before; n != 1 {
		t.Errorf("rendered %d of the newest and the oldest", n)
	}
}

// Turns past the bound are forgotten: the chat goes on as a new branch, and nothing else is lost.
func TestTurnsAreBounded(t *testing.T) {
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return says(fmt.Sprint("answer ", n)) }, func(o *Options) { o.TurnsMax = 2 })
	first := h.ask(object{"messages": []any{user("a")}})
	h.ask(object{"messages": []any{user("b")}})
	third := h.ask(object{"messages": []any{user("c")}})
	if c := h.ask(object{"messages": []any{user("a"), first.answer(t, 0), user("y")}}).Choices[0]; c.Headway.Began != beganChanged {
		t.Errorf("%+v", c.Headway)
	}
	if c := h.ask(object{"messages": []any{user("c"), third.answer(t, 0), user("y")}}).Choices[0]; c.Headway.Began != "" {
		t.Errorf("%+v", c.Headway)
	}
}

// A conversation is forgotten when its claim ends.
func TestConversationsEnd(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	h.ask(object{"messages": []any{user("a")}})
	close(h.port.ended)
	h.gateway.watching.Wait()
	if n := len(h.gateway.conversations); n != 0 {
		t.Errorf("%d conversations are kept", n)
	}
	w := h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}]}`)
	if w.Code != 410 || w.Header().Get("X-Should-Retry") != "false" {
		t.Errorf("%d %v %s", w.Code, w.Header(), w.Body)
	}
}

// The requests of one rollout may come at once: each is joined to what it follows, whatever the
// others do meanwhile.
func TestConcurrentRequests(t *testing.T) {
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return says(fmt.Sprint("answer ", n)) })
	first := h.ask(object{"messages": []any{user("x")}})
	before := slices.Concat(h.port.seen()[0].prompt, spell("answer 0"), []int32{imEnd}, encode("\n"))
	done := make(chan struct{})
	const askers = 8
	for i := range askers {
		go func() {
			defer func() { done <- struct{}{} }()
			h.post("/v1/chat/completions", mustJSON(t, object{"messages": []any{user("x"), first.answer(t, 0), user(fmt.Sprint("question ", i))}, "stream": i%2 == 0}))
		}()
	}
	for range askers {
		<-done
	}
	records := h.port.seen()
	if len(records) != 1+askers {
		t.Fatalf("%d turns", len(records))
	}
	branches := make(map[int]bool)
	for _, r := range records[1:] {
		if branches[r.branch] || len(r.prompt) < len(before) || !slices.Equal(r.prompt[:len(before)], before) {
			t.Errorf("branch %d: %s", r.branch, shown(r.prompt))
		}
		branches[r.branch] = true
	}
}

// What an operator counts: requests by status, tokens, and why branches began.
func TestMetrics(t *testing.T) {
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response { return says(fmt.Sprint("answer ", n)) })
	h.template.forgetful = true
	first := h.ask(object{"messages": []any{user("x")}, "n": 2, "frequency_penalty": 1})
	h.ask(object{"messages": []any{user("x"), first.answer(t, 0), user("y")}})
	h.post("/v1/chat/completions", "{")
	if got := h.gateway.Status(); got != (protocol.Gateway{Requests: 3, Refused: 1, Turns: 3, Tokens: 27}) {
		t.Errorf("%+v", got)
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(h.gateway)
	w := httptest.NewRecorder()
	promhttp.HandlerFor(registry, promhttp.HandlerOpts{}).ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/metrics", nil))
	prompts := h.port.seen()
	for _, want := range []string{
		`headway_gateway_requests_total{path="/v1/chat/completions",status="200"} 2`,
		`headway_gateway_requests_total{path="/v1/chat/completions",status="400"} 1`,
		`headway_gateway_branches_total{reason="first"} 1`, `headway_gateway_branches_total{reason="n"} 1`,
		`headway_gateway_overridden_total{setting="frequency_penalty"} 2`,
		`headway_gateway_time_to_first_token_seconds_count{path="/v1/chat/completions"} 2`,
		`headway_gateway_tokens_total{kind="completion"} 27`,
		fmt.Sprintf(`headway_gateway_tokens_total{kind="prompt"} %d`, len(prompts[0].prompt)+len(prompts[2].prompt)),
		fmt.Sprintf(`headway_gateway_tokens_total{kind="reused"} %d`, len(prompts[0].prompt)+9),
	} {
		if !strings.Contains(w.Body.String(), want+"\n") {
			t.Errorf("no %s in\n%s", want, w.Body)
		}
	}
}
