package calls

import "testing"

// The template of Qwen3-Coder writes a truth value of an earlier call as Python does, so that policies do so too.
func TestTruthInPythonsWords(t *testing.T) {
	tools := Tools{"f": ReadTool([]byte(`{"properties":{"b":{"type":"boolean"},"maybe":{"anyOf":[{"type":"boolean"},{"type":"null"}]},
		"s":{"type":"string"},"either":{"type":["boolean","string"]},"any":{}}}`))}
	for value, want := range map[string]string{
		"<parameter=b>\nTrue\n</parameter><parameter=maybe>\nFalse\n</parameter>":      `{"b": true, "maybe": false}`,
		"<parameter=b>\ntrue\n</parameter><parameter=maybe>\nnull\n</parameter>":       `{"b": true, "maybe": null}`,
		"<parameter=b>\ntruE\n</parameter><parameter=s>\nTrue\n</parameter>":           `{"b": "truE", "s": "True"}`,
		"<parameter=either>\nTrue\n</parameter><parameter=any>\nFalse\n</parameter>":   `{"either": "True", "any": "False"}`,
		"<parameter=unknown>\nTrue\n</parameter><parameter=b>\n[True]\n</parameter>":   `{"unknown": "True", "b": "[True]"}`,
		"<parameter=s>\nfalse\n</parameter><parameter=maybe>\n\"False\"\n</parameter>": `{"s": "false", "maybe": "False"}`,
	} {
		g := ByName("qwen3_coder")
		got := hear(t, NewScanner(g.In(wordIDs(g)), tools, true), tokens(g, "<tool_call><function=f>"+value+"</function></tool_call>"), true, func() int { return 1 })
		if len(got.calls) != 1 || got.calls[0] != "f"+want {
			t.Errorf("%q: %q, want %s", value, got.calls, want)
		}
	}
}
