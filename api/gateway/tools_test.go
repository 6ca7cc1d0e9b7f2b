package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

// heard is what a parser makes of a text that comes in pieces.
func heard(p callParser, pieces []string, stopped bool) (string, []toolCall) {
	var text strings.Builder
	var calls []toolCall
	s := &said{}
	take := func() {
		text.Write(s.text)
		calls = append(calls, s.calls...)
		s.text, s.calls = s.text[:0], nil
	}
	for _, piece := range pieces {
		p.feed([]byte(piece), s)
		take()
	}
	p.finish(stopped, s)
	take()
	return text.String(), calls
}

func parserOf(dialect string) callParser {
	return newCallParser(&request{calls: dialect != "none", offered: map[string]bool{"f": true, "g": true}}, dialect)
}

func TestToolCalls(t *testing.T) {
	for _, c := range []struct {
		dialect, text string
		cut           bool
		content       string
		calls         string
	}{
		{"hermes", `plain`, false, `plain`, ``},
		{"hermes", ` `, false, ` `, ``},
		{"hermes", `<tool_call>{"name":"f","arguments":{"a": 1}}</tool_call>`, false, ``, `f{"a": 1}`},
		{"hermes", "Look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\"}\n</tool_call>\n", false, "Look.\n", `f{} g{}`},
		{"hermes", "\n <tool_call>{\"name\":\"f\"}</tool_call> after", false, " after", `f{}`},
		{"hermes", `<tool_call>{"name":"f"}`, false, ``, `f{}`},
		{"hermes", `<tool_call>{"name":"f"}`, true, `<tool_call>{"name":"f"}`, ``},
		{"hermes", `<tool_call>{"name":"f"`, false, `<tool_call>{"name":"f"`, ``},
		{"hermes", `<tool_call>{bad}</tool_call>`, false, `<tool_call>{bad}</tool_call>`, ``},
		{"hermes", `<tool_call>{"name":""}</tool_call>`, false, `<tool_call>{"name":""}</tool_call>`, ``},
		{"hermes", `<tool_call>{"name":"f","arguments":[1]}</tool_call>`, false, `<tool_call>{"name":"f","arguments":[1]}</tool_call>`, ``},
		{"hermes", `<tool_call>{"name":"f","arguments":"{\"a\":1}"}</tool_call>`, false, ``, `f{"a":1}`},
		{"hermes", `<tool_call>{"name":"f","arguments":"x"}</tool_call>`, false, `<tool_call>{"name":"f","arguments":"x"}</tool_call>`, ``},
		{"hermes", `a <tool_call> is a tag: <tool_call>{"name":"f"}</tool_call>`, false, `a <tool_call> is a tag: `, `f{}`},
		{"hermes", `<tool_call>x</tool_call><tool_call>{"name":"f"}</tool_call>`, false, `<tool_call>x</tool_call>`, `f{}`},
		{"hermes", `a <tool_cal`, false, `a <tool_cal`, ``},
		{"hermes", `<tool_<tool_call>{"name":"f"}</tool_call>`, false, `<tool_`, `f{}`},
		{"llama3", `{"name":"f","parameters":{"a":1}}`, false, ``, `f{"a":1}`},
		{"llama3", "\n" + `<|python_tag|>{"name":"f","arguments":{}}; {"name":"g"}`, false, ``, `f{} g{}`},
		{"llama3", `{"name":"Ada","parameters":{}}`, false, `{"name":"Ada","parameters":{}}`, ``},
		{"llama3", `{"name":"f"} and more`, false, `{"name":"f"} and more`, ``},
		{"llama3", `{"name":"f"`, true, `{"name":"f"`, ``},
		{"llama3", `say {"name":"f"}`, false, `say {"name":"f"}`, ``},
		{"llama3", ` `, false, ` `, ``},
		{"llama3", `<|python`, false, `<|python`, ``},
		{"none", `<tool_call>{"name":"f"}</tool_call>`, false, `<tool_call>{"name":"f"}</tool_call>`, ``},
	} {
		content, calls := heard(parserOf(c.dialect), []string{c.text}, !c.cut)
		var names []string
		for _, call := range calls {
			names = append(names, call.Function.Name+call.Function.Arguments)
		}
		if content != c.content || strings.Join(names, " ") != c.calls {
			t.Errorf("%s %q: %q %q, want %q %q", c.dialect, c.text, content, names, c.content, c.calls)
		}
		// Without tools in the request, text that looks like a call is text.
		if plain, calls := heard(newCallParser(&request{}, c.dialect), []string{c.text}, true); plain != c.text || calls != nil {
			t.Errorf("%q: %q %v", c.text, plain, calls)
		}
	}
}

// However a response is cut, it says the same; every call has a name, arguments that are an object,
// and an id of its own; and what is no call is text, whole.
func FuzzToolCalls(f *testing.F) {
	f.Add("Look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call> x <tool_call>", []byte{3, 1, 7}, false)
	f.Add(`{"name":"f"}; {"name":"g","parameters":{"a":[1]}}`, []byte{1}, true)
	f.Add(`<|python_tag|>{"name":"f"}`, []byte{2, 2}, true)
	f.Fuzz(func(t *testing.T, text string, cuts []byte, llama bool) {
		dialect := "hermes"
		if llama {
			dialect = "llama3"
		}
		var pieces []string
		for rest := text; len(rest) > 0; {
			n := len(rest)
			if len(cuts) > 0 {
				n, cuts = min(n, 1+int(cuts[0]%16)), cuts[1:]
			}
			pieces, rest = append(pieces, rest[:n]), rest[n:]
		}
		for _, stopped := range []bool{true, false} {
			content, calls := heard(parserOf(dialect), []string{text}, stopped)
			inPieces, callsInPieces := heard(parserOf(dialect), pieces, stopped)
			if content != inPieces || len(calls) != len(callsInPieces) {
				t.Fatalf("whole %q and %d calls, in pieces %q and %d", content, len(calls), inPieces, len(callsInPieces))
			}
			if len(calls) == 0 && content != text {
				t.Fatalf("%q became %q", text, content)
			}
			ids := make(map[string]bool)
			for i, call := range calls {
				if call.Function != callsInPieces[i].Function || call.Function.Name == "" || ids[call.ID] {
					t.Fatalf("%+v and %+v", call, callsInPieces[i])
				}
				ids[call.ID] = true
				var object map[string]any
				if err := json.Unmarshal([]byte(call.Function.Arguments), &object); err != nil || object == nil {
					t.Fatalf("arguments %q: %v", call.Function.Arguments, err)
				}
			}
		}
	})
}

// Events are JSON on one line, whatever is in them.
func FuzzAppendText(f *testing.F) {
	f.Add("a\"\\\n\r\t\x00\x1f\u2028\u2029\u0085\xff\xf0\x9f é🙂")
	f.Fuzz(func(t *testing.T, text string) {
		line := appendText(nil, []byte(text))
		var back string
		if err := json.Unmarshal(line, &back); err != nil || strings.ContainsAny(string(line), "\n\r\u2028\u2029\u0085") {
			t.Fatalf("%q: %v", line, err)
		}
		want, err := json.Marshal(text)
		if err != nil {
			t.Fatal(err)
		}
		var same string
		if err := json.Unmarshal(want, &same); err != nil || back != same {
			t.Fatalf("%q became %q, want %q", text, back, same)
		}
	})
}

// A response that is nothing but opening tags costs no more than another.
func TestManyOpenTags(t *testing.T) {
	const tags = 20_000
	for _, tail := range []string{"", "</tool_call>"} {
		text := strings.Repeat(callOpens, tags) + tail
		content, calls := heard(parserOf("hermes"), []string{text[:len(text)/2], text[len(text)/2:]}, true)
		if content != text || calls != nil {
			t.Errorf("%d bytes became %d", len(text), len(content))
		}
	}
}

// Tools that the template does not render in a chat are refused before anything is sampled, wherever it
// would render them; what was said without them, or is not to call any, is sampled.
func TestToolsThatNobodySees(t *testing.T) {
	tools := []any{object{"type": "function", "function": object{"name": "look"}}}
	system := object{"role": "system", "content": "help"}
	toolless, shy, strict := func(r *reference) { r.toolless = true }, func(r *reference) { r.shy = true }, func(r *reference) { r.strict = true }
	for name, c := range map[string]struct {
		template func(*reference)
		body     object
		seen     bool
	}{
		"toolless":                {toolless, object{"messages": []any{user("x")}, "tools": tools}, false},
		"toolless, none to call":  {toolless, object{"messages": []any{user("x")}, "tools": tools, "tool_choice": "none"}, true},
		"toolless, without tools": {toolless, object{"messages": []any{user("x")}}, true},
		"in another position":     {shy, object{"messages": []any{user("x")}, "tools": tools}, false},
		"in this position":        {shy, object{"messages": []any{system, user("x")}, "tools": tools}, true},
		"with tools alone":        {strict, object{"messages": []any{user("x")}, "tools": tools}, true},
	} {
		t.Run(name, func(t *testing.T) {
			h := newHouse(t, always(says("abc")))
			c.template(h.template)
			w := h.post("/v1/chat/completions", mustJSON(t, c.body))
			if c.seen {
				if w.Code != 200 {
					t.Errorf("%d %s", w.Code, w.Body)
				}
				return
			}
			e := refusedAs(t, w)
			if w.Code != 400 || e.Code != protocol.CodeInvalid || e.Param == nil || *e.Param != "tools" || !strings.Contains(e.Message, "says nothing of tools") || len(h.port.seen()) != 0 {
				t.Errorf("%d %s", w.Code, w.Body)
			}
		})
	}
}

// That tools show is asked once for the beginning of a chat: not of the turns that go on from it, nor of
// those that a template begins anew, nor of a sibling's beginning.
func TestToolsAreLookedForOnce(t *testing.T) {
	tools := []any{object{"type": "function", "function": object{"name": "look"}}}
	for _, forgetful := range []bool{false, true} {
		h := newHouse(t, always(says("<think>a</think>b")))
		h.template.forgetful = forgetful
		messages := []any{user("x")}
		for range 3 {
			reply := h.ask(object{"messages": messages, "tools": tools})
			messages = append(messages, reply.answer(t, 0), user("y"))
		}
		h.ask(object{"messages": []any{user("x")}, "tools": tools})
		if got := h.template.called("bare"); got != 1 {
			t.Errorf("forgetful %v: %d chats were rendered without tools, want 1", forgetful, got)
		}
	}
}

// A template that cannot be reached is not one that hides tools.
func TestToolsOfNoTemplate(t *testing.T) {
	h := newHouse(t, always(says("abc")))
	h.template.bareFails = protocol.Refuse(protocol.CodeUnavailable, "away")
	w := h.post("/v1/chat/completions", `{"messages":[{"role":"user","content":"x"}],"tools":[{"type":"function","function":{"name":"look"}}]}`)
	if e := refusedAs(t, w); w.Code != 503 || e.Code != protocol.CodeUnavailable {
		t.Errorf("%d %s", w.Code, w.Body)
	}
}
