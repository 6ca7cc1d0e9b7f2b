package gateway

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/calls"
	"github.com/headway-rl/headway/api/protocol"
)

// frameWords are those of hermes: as tokens that engines leave out of their text, and as such that they show.
var frameWords = map[bool]map[string]int32{
	false: {"<tool_call>": 4, "</tool_call>": 5, "<think>": 6, "</think>": 7},
	true:  {"<tool_call>": shownIDs, "</tool_call>": shownIDs + 1, "<think>": shownIDs + 2, "</think>": shownIDs + 3},
}

// inTokens spells a text whose frame is tokens; between « and » all is letters.
func inTokens(ids map[string]int32, text string) []int32 {
	var tokens []int32
	quoted := false
	for text != "" {
		word := ""
		for w := range ids {
			if strings.HasPrefix(text, w) && !quoted {
				word = w
			}
		}
		switch {
		case word != "":
			tokens, text = append(tokens, ids[word]), text[len(word):]
		case strings.HasPrefix(text, "«"), strings.HasPrefix(text, "»"):
			quoted = strings.HasPrefix(text, "«")
			text = text[len("«"):]
		default:
			tokens, text = append(tokens, spell(text[:1])...), text[1:]
		}
	}
	return tokens
}

// A word of the frame counts as the token that it is, wherever the engine's text is cut, however far it
// lags behind, and whether it has any; every token is named once.
func TestCallsOfTokens(t *testing.T) {
	const text = "<think>\né: «</think>»?\n</think>\n\nSay «<tool_call>{}</tool_call>» 日.\n<tool_call>\n{\"name\": \"look\", \"arguments\": {\"at\": \"«</tool_call>» é\"}}\n</tool_call>\n<tool_call>{\"name\": \"look\"}</tool_call>"
	for seed := range uint64(60) {
		draw := rand.New(rand.NewPCG(seed, 3))
		ids := frameWords[seed%2 == 0]
		r := response{tokens: append(inTokens(ids, text), imEnd), finish: "stop", cut: 1 + draw.IntN(5), silent: seed%5 == 4, lag: draw.IntN(9)}
		h := newHouse(t, always(r), func(o *Options) { o.Calls = calls.ByName("hermes").In(ids) })
		chat := `{"messages":[{"role":"user","content":"x"}],` + tooled + `"return_token_ids":true`
		var whole parsed
		if err := jsonInto(h.post("/v1/chat/completions", chat+"}"), &whole); err != nil {
			t.Fatal(err)
		}
		events, _, done := readEvents(t, h.post("/v1/chat/completions", chat+`,"stream":true}`).Body.String())
		got, want := gather(t, events)[0], whole.answer(t, 0)
		if !done || want.Content == nil || *want.Content != "Say <tool_call>{}</tool_call> 日.\n" || want.Reasoning != "é: </think>?" || len(want.ToolCalls) != 2 ||
			want.ToolCalls[0].Function != (calledByName{"look", `{"at": "</tool_call> é"}`}) || want.ToolCalls[1].Function != (calledByName{"look", "{}"}) {
			t.Fatalf("seed %d: %q %+v", seed, *want.Content, want)
		}
		if got.content != *want.Content || got.thought != want.Reasoning || len(got.calls) != 2 || got.calls[0].Function != want.ToolCalls[0].Function || got.calls[1].Function != want.ToolCalls[1].Function || got.finish != "tool_calls" {
			t.Fatalf("seed %d: %+v, want %+v", seed, got, want)
		}
		equalTokens(t, "streamed", got.tokens, r.tokens)
		equalTokens(t, "whole", whole.Choices[0].TokenIDs, r.tokens)
	}
}

// A character that never comes whole costs itself, and no call.
func TestCutCharacterBeforeACall(t *testing.T) {
	for _, shows := range []bool{true, false} {
		for cut := 1; cut < 6; cut++ {
			ids := frameWords[shows]
			tokens := slices.Concat(spell("a\xe6\x97"), inTokens(ids, `<tool_call>{"name":"look"}</tool_call>é\xe6`), inTokens(ids, `<tool_call>{"name":"look"}</tool_call>`), []int32{imEnd})
			h := newHouse(t, always(response{tokens: tokens, finish: "stop", cut: cut}), func(o *Options) { o.Calls = calls.ByName("hermes").In(ids) })
			events, _, done := readEvents(t, h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],`+tooled+`"stream":true}`).Body.String())
			got := gather(t, events)[0]
			if !done || len(got.calls) != 2 || !strings.HasPrefix(got.content, "a") {
				t.Errorf("%v, %d tokens a piece: %+v", shows, cut, got)
			}
		}
	}
}

// include_reasoning false hides what was thought, and no token and no log-prob.
func TestReasoningIsHidden(t *testing.T) {
	ids := frameWords[true]
	r := response{tokens: append(inTokens(ids, "<think>hm</think>yes"), imEnd), finish: "stop", cut: 2}
	h := newHouse(t, always(r), func(o *Options) { o.Calls = calls.ByName("hermes").In(ids) })
	const chat = `{"messages":[{"role":"user","content":"x"}],"include_reasoning":false,"return_token_ids":true,"logprobs":true`
	var whole parsed
	if err := jsonInto(h.post("/v1/chat/completions", chat+"}"), &whole); err != nil {
		t.Fatal(err)
	}
	text := h.post("/v1/chat/completions", chat+`,"stream":true}`).Body.String()
	events, _, _ := readEvents(t, text)
	got, want := gather(t, events)[0], whole.answer(t, 0)
	if strings.Contains(text, "reasoning_content") || want.Reasoning != "" || *want.Content != "yes" || got.content != "yes" {
		t.Errorf("%+v, %+v", got, want)
	}
	equalTokens(t, "streamed", got.tokens, r.tokens)
	equalTokens(t, "whole", whole.Choices[0].TokenIDs, r.tokens)
	if got.logprobs != len(r.tokens) {
		t.Errorf("%d log-probs for %d tokens", got.logprobs, len(r.tokens))
	}
}

// A prompt that has opened reasoning is gone on with by reasoning.
func TestPromptThinks(t *testing.T) {
	ids := frameWords[false]
	for _, thinks := range []bool{true, false} {
		port := newPort(always(response{tokens: append(inTokens(ids, "hm</think>yes"), imEnd), finish: "stop"}))
		template := &scripted{render: func(messages []referenceMessage, generation bool) []int32 {
			if generation && thinks {
				return append(encode("x"), ids["<think>"])
			}
			return encode("x")
		}}
		g, err := New(Options{Rollouts: port, Templates: template, Model: "tiny", Logf: t.Logf, Calls: calls.ByName("hermes").In(ids)})
		if err != nil {
			t.Fatal(err)
		}
		defer g.Close()
		a := (&house{t: t, gateway: g, port: port}).ask(object{"messages": []any{user("x")}}).answer(t, 0)
		if thinks && (a.Reasoning != "hm" || *a.Content != "yes") || !thinks && (a.Reasoning != "" || *a.Content != "hm</think>yes") {
			t.Errorf("%v: %+v, %q", thinks, a, *a.Content)
		}
	}
}

// Clients send back what was thought or leave it out; both go on from the tokens. Of two answers that say
// the same, the one is gone on from whose thoughts come back.
func TestThoughtsComeBack(t *testing.T) {
	thoughts := []string{"one", "two"}
	ids := frameWords[false]
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response {
		return response{tokens: append(inTokens(ids, "<think>"+thoughts[n%2]+"</think>yes"), imEnd), finish: "stop"}
	}, func(o *Options) { o.Calls = calls.ByName("hermes").In(ids) })
	first := h.ask(object{"messages": []any{user("x")}, "n": 2})
	for i, back := range []object{{"role": "assistant", "content": "yes"}, {"role": "assistant", "content": "yes", "reasoning_content": "two"}, {"role": "assistant", "content": "yes", "reasoning": "one"}} {
		got := h.ask(object{"messages": []any{user("x"), back, user("y")}})
		want := []int{0, 1, 0}[i]
		if i < 2 && got.Choices[0].Headway.Branch != want {
			t.Errorf("%v: branch %+v", back, got.Choices[0].Headway)
		}
		sampled := first.Choices[want]
		prompt := h.port.seen()[2+i].prompt
		if !contains(prompt, inTokens(ids, "<think>"+thoughts[want]+"</think>yes")) {
			t.Errorf("%v: the prompt has not what choice %d sampled: %s", back, sampled.Index, shown(prompt))
		}
	}
}

func contains(tokens, part []int32) bool {
	for i := 0; i+len(part) <= len(tokens); i++ {
		if slices.Equal(tokens[i:i+len(part)], part) {
			return true
		}
	}
	return false
}

// The beginning of a call that turns out to be none cannot be taken back from a stream; its client goes on
// from the same tokens as that of a whole answer.
func TestBrokenCall(t *testing.T) {
	const text = `<tool_call>{"name":"look","arguments":{"a":1}} no</tool_call>`
	ids := frameWords[true]
	h := newHouse(t, func(n int, _ protocol.TurnRequest) response {
		return response{tokens: append(inTokens(ids, text), imEnd), finish: "stop", cut: 3}
	}, func(o *Options) { o.Calls = calls.ByName("hermes").In(ids) })
	events, _, _ := readEvents(t, h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],`+tooled+`"stream":true}`).Body.String())
	got := gather(t, events)[0]
	if got.content != text || got.finish != "stop" || len(got.calls) != 1 || !strings.Contains(got.headway, `"calls":{"malformed":1}`) {
		t.Fatalf("%+v", got)
	}
	tools := []any{object{"type": "function", "function": object{"name": "look"}}}
	for _, back := range []object{{"role": "assistant", "content": text, "tool_calls": got.calls}, {"role": "assistant", "content": text}} {
		h.ask(object{"messages": []any{user("x"), back, user("y")}, "tools": tools})
		records := h.port.seen()
		if prompt := records[len(records)-1].prompt; !contains(prompt, inTokens(ids, text)) {
			t.Errorf("%v does not go on from what was sampled: %s", back, shown(prompt))
		}
	}
}

// A tool that asks for strict calls is not heeded, and said so; a forced call is refused.
func TestStrictCalls(t *testing.T) {
	h := newHouse(t, always(says("yes")))
	const chat = `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"look","strict":true}}]`
	w := h.post("/v1/chat/completions", chat+`,"parallel_tool_calls":false}`)
	if w.Code != 200 || !strings.Contains(w.Body.String(), `"overridden":["tools.strict","parallel_tool_calls"]`) || w.Header().Get(samplingHeader) != "tools.strict, parallel_tool_calls" {
		t.Errorf("%d %s", w.Code, w.Body)
	}
	for _, choice := range []string{`"required"`, `{"type":"function","function":{"name":"look"}}`} {
		w := h.post("/v1/chat/completions", chat+`,"tool_choice":`+choice+"}")
		if e := refusedAs(t, w); w.Code != 400 || e.Param == nil || *e.Param != "tool_choice" {
			t.Errorf("%s: %d %s", choice, w.Code, w.Body)
		}
	}
}

// Where tools were offered many times and no call has ever been told, the status says so; one call ends it.
func TestNoCallEver(t *testing.T) {
	text := "no idea"
	h := newHouse(t, func(int, protocol.TurnRequest) response { return says(text) })
	ask := func() {
		if w := h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],`+tooled+`"n":8}`); w.Code != 200 {
			t.Fatal(w.Body)
		}
	}
	for range noCallTurns/8 - 1 {
		ask()
	}
	if f := h.gateway.Status().Finding; f != nil {
		t.Errorf("early: %+v", f)
	}
	ask()
	if f := h.gateway.Status().Finding; f == nil || f.Code != "no_call" || !strings.Contains(f.Message, "none is begun") {
		t.Errorf("%+v", f)
	}
	text = "<tool_call>{bad}</tool_call>"
	ask()
	if f := h.gateway.Status().Finding; f == nil || !strings.Contains(f.Message, "8 attempts") {
		t.Errorf("%+v", f)
	}
	text = `<tool_call>{"name":"look"}</tool_call>`
	ask()
	if s := h.gateway.Status(); s.Finding != nil || s.Calls != 8 || s.CallsMissed != 8 || s.Offered != noCallTurns+16 {
		t.Errorf("%+v", s)
	}
}

// scripted renders a chat word by word, with an end that it writes otherwise once the chat goes on.
type scripted struct {
	reference
	render func(messages []referenceMessage, generation bool) []int32
}

func (s *scripted) Render(_ context.Context, messages, tools []byte, generation bool) ([]int32, error) {
	var all []referenceMessage
	if err := json.Unmarshal(messages, &all); err != nil {
		return nil, err
	}
	ids := s.render(all, generation)
	if tools != nil {
		ids = append(encode("tools"), ids...)
	}
	return ids, nil
}

// gpt-oss ends a conversation otherwise than a message within one, and a call otherwise than both; GLM ends
// a message by the beginning of the next. Such turns are gone on from, and no end stands there twice.
func TestEndsOfOtherFamilies(t *testing.T) {
	const start, channel, message, end, call, returns = 4, 5, 6, 7, 8, 9
	harmony := func(messages []referenceMessage, generation bool) []int32 {
		var ids []int32
		for i, m := range messages {
			ids = append(append(append(ids, start), encode(m.Role)...), message)
			ids = append(ids, encode(m.text())...)
			switch {
			case len(m.ToolCalls) > 0:
				ids = append(ids, call)
			case m.Role == "assistant" && i == len(messages)-1:
				ids = append(ids, returns)
			default:
				ids = append(ids, end)
			}
		}
		if generation {
			ids = append(append(ids, start), encode("assistant")...)
		}
		return ids
	}
	glm := func(messages []referenceMessage, generation bool) []int32 {
		var ids []int32
		for _, m := range messages {
			ids = append(append(ids, map[string]int32{"user": start, "assistant": channel, "tool": message}[m.Role]), encode(m.text())...)
		}
		if generation {
			ids = append(ids, channel)
		}
		return ids
	}
	words := map[string]int32{"<|start|>": start, "<|channel|>": channel, "<|message|>": message, "<|end|>": end, "<|call|>": call, "<|return|>": returns}
	toolBack := object{"role": "tool", "content": "r", "tool_call_id": "c"}
	for name, c := range map[string]struct {
		dialect  *calls.Dialect
		render   func([]referenceMessage, bool) []int32
		response []int32
		next     object
		want     []int32
	}{
		"harmony, an answer": {calls.ByName("harmony").In(words), harmony,
			slices.Concat([]int32{channel}, spell("final"), []int32{message}, spell("ab"), []int32{returns}), user("y"),
			slices.Concat([]int32{start}, encode("user"), []int32{message}, encode("y"), []int32{end, start}, encode("assistant"))},
		"harmony, a call": {calls.ByName("harmony").In(words), harmony,
			slices.Concat([]int32{channel}, spell("commentary to=functions.look"), []int32{message}, spell("{}"), []int32{call}), toolBack,
			slices.Concat([]int32{start}, encode("tool"), []int32{message}, encode("r"), []int32{end, start}, encode("assistant"))},
		"glm": {calls.ByName("glm45").In(nil), glm, append(spell("<tool_call>look</tool_call>"), message), toolBack,
			slices.Concat(encode("r"), []int32{channel})},
	} {
		t.Run(name, func(t *testing.T) {
			port := newPort(always(response{tokens: c.response, finish: "stop"}))
			g, err := New(Options{Rollouts: port, Templates: &scripted{render: c.render}, Model: "tiny", Logf: t.Logf, Calls: c.dialect})
			if err != nil {
				t.Fatal(err)
			}
			defer g.Close()
			h := &house{t: t, gateway: g, port: port}
			first := h.ask(object{"messages": []any{user("x")}, "tools": []any{object{"type": "function", "function": object{"name": "look"}}}})
			a := first.answer(t, 0)
			h.ask(object{"messages": []any{user("x"), a, c.next}, "tools": []any{object{"type": "function", "function": object{"name": "look"}}}})
			records := port.seen()
			before := slices.Concat(records[0].prompt, c.response)
			equalTokens(t, "prompt", records[1].prompt, append(before, c.want...))
			if records[1].branch != 0 {
				t.Errorf("branch %d of %s", records[1].branch, fmt.Sprint(a))
			}
		})
	}
}
