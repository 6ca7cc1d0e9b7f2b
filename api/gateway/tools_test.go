package gateway

import (
	"encoding/json"
	"strings"
	"testing"

	"github.com/headway-rl/headway/api/protocol"
)

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
