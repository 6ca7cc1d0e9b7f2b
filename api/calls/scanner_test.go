package calls

import (
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"
)

// part is a piece of a response in a test: text, or a token that is a word of the frame.
type part struct {
	text string
	mark int32
}

// wordIDs are tokens for all words of a grammar.
func wordIDs(g *Grammar) map[string]int32 {
	ids := make(map[string]int32)
	for i, word := range g.words {
		ids[word] = int32(1000 + i)
	}
	return ids
}

// tokens reads a text whose words of the frame are tokens. What stands between « and » is quoted: letters.
func tokens(g *Grammar, text string) []part {
	ids := wordIDs(g)
	var parts []part
	quoted := false
	for text != "" {
		word := ""
		for w := range ids {
			if strings.HasPrefix(text, w) && len(w) > len(word) && !quoted {
				word = w
			}
		}
		switch {
		case word != "":
			parts = append(parts, part{mark: ids[word]})
			text = text[len(word):]
		case strings.HasPrefix(text, "«"):
			quoted, text = true, text[len("«"):]
		case strings.HasPrefix(text, "»"):
			quoted, text = false, text[len("»"):]
		default:
			n := 1
			for n < len(text) && text[n]&0xC0 == 0x80 {
				n++
			}
			parts = append(parts, part{text: text[:n]})
			text = text[n:]
		}
	}
	return parts
}

// response is a whole response, as its deltas add up.
type response struct {
	text, reasoning string
	calls           []string
	ids             []string
	counts          Counts
}

func (r response) String() string {
	var counts []string
	for _, s := range Statuses() {
		if r.counts[s] > 0 {
			counts = append(counts, fmt.Sprintf("%s=%d", s, r.counts[s]))
		}
	}
	return fmt.Sprintf("%q think %q calls %q %s", r.text, r.reasoning, r.calls, strings.Join(counts, " "))
}

// hear reads parts, so many at a time as cut says, and checks what every delta promises.
func hear(t testing.TB, s *Scanner, parts []part, stopped bool, cut func() int) response {
	t.Helper()
	var r response
	names, arguments, broken, ids := map[int]string{}, map[int]string{}, map[int]bool{}, map[int]string{}
	count := 0
	out := &Out{}
	take := func() {
		r.text += string(out.Text)
		r.reasoning += string(out.Reasoning)
		for _, d := range out.Deltas {
			if d.Name != "" {
				if d.Index != count || names[d.Index] != "" {
					t.Fatalf("call %d is named after %d calls, before %q", d.Index, count, names[d.Index])
				}
				count++
				names[d.Index], ids[d.Index] = d.Name, d.ID
			}
			if names[d.Index] == "" || broken[d.Index] {
				t.Fatalf("a delta of no call: %+v", d)
			}
			arguments[d.Index] += string(d.Arguments)
			broken[d.Index] = d.Broken
		}
		out.Reset()
	}
	text, left := "", 0
	flush := func() {
		if text != "" {
			s.Text([]byte(text), out)
			text = ""
			take()
		}
	}
	for _, p := range parts {
		if p.mark != 0 {
			flush()
			s.Mark(p.mark, out)
			take()
			continue
		}
		text += p.text
		if left--; left <= 0 {
			flush()
			left = cut()
		}
	}
	flush()
	s.Finish(stopped, out)
	take()
	for i := range count {
		if broken[i] {
			continue
		}
		var object map[string]any
		if err := json.Unmarshal([]byte(arguments[i]), &object); err != nil || object == nil {
			t.Fatalf("arguments %q of %s: %v", arguments[i], names[i], err)
		}
		r.calls = append(r.calls, names[i]+arguments[i])
		r.ids = append(r.ids, ids[i])
	}
	r.counts = s.Counts()
	return r
}

func whole() int { return 1 << 30 }

// someTools are what the tests offer.
var someTools = Tools{"f": ReadTool([]byte(`{"properties":{"s":{"type":"string"},"n":{"type":"integer"},"o":{"anyOf":[{"type":"string"},{"type":"number"}]}}}`)), "g": {}}

func scan(t testing.TB, name, text string, stopped bool) response {
	g := ByName(name)
	parts := tokens(g, text)
	got := hear(t, NewScanner(g.In(wordIDs(g)), someTools, true), parts, stopped, whole)
	// However a response is cut, it says the same.
	for seed := range uint64(4) {
		draw := rand.New(rand.NewPCG(seed, 1))
		cut := hear(t, NewScanner(g.In(wordIDs(g)), someTools, true), parts, stopped, func() int { return 1 + draw.IntN(1+int(seed)*3) })
		if cut.String() != got.String() {
			t.Errorf("%s %q: whole %v, in pieces %v", name, text, got, cut)
		}
	}
	return got
}

func TestGrammars(t *testing.T) {
	for _, c := range []struct{ grammar, text, want string }{
		{"hermes", `plain`, `"plain" think "" calls [] `},
		{"hermes", ` `, `" " think "" calls [] `},
		{"hermes", `<tool_call>{"name":"f","arguments":{"s": "a\"}</"}}</tool_call>`, `"" think "" calls ["f{\"s\": \"a\\\"}</\"}"] ok=1`},
		{"hermes", "Look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {}}\n</tool_call>\n<tool_call>\n{\"name\": \"g\"}\n</tool_call>\n", `"Look.\n" think "" calls ["f{}" "g{}"] ok=2`},
		{"hermes", "\n <tool_call>{\"name\":\"f\"}</tool_call> after", `" after" think "" calls ["f{}"] ok=1`},
		{"hermes", "<think>\nhm «<tool_call>» \n</think>\n\nyes", `"yes" think "hm <tool_call>" calls [] `},
		{"hermes", "<think>a<tool_call>{\"name\":\"f\"}</tool_call>", `"" think "a" calls ["f{}"] ok=1`},
		{"hermes", `say «<tool_call>{"name":"f"}</tool_call>»`, `"say <tool_call>{\"name\":\"f\"}</tool_call>" think "" calls [] `},
		{"hermes", `<tool_call>{"name":"f","arguments":{<tool_call>{"name":"g"}</tool_call>`, `"<tool_call>{\"name\":\"f\",\"arguments\":{" think "" calls ["g{}"] ok=1 invalid_json=1`},
		{"hermes", `<tool_call>{"name":"f","arguments":{"s":"half</tool_call><tool_call>{"name":"g"}</tool_call>`, `"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"half</tool_call>" think "" calls ["g{}"] ok=1 invalid_json=1`},
		{"hermes", `<tool_call>{"name":"f","arguments":{"s":1}`, `"<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":1}" think "" calls [] unclosed=1`},
		{"hermes", `<tool_call>{"name":"f"}`, `"" think "" calls ["f{}"] ok=1`},
		{"hermes", `<tool_call>{bad}</tool_call>`, `"<tool_call>{bad}</tool_call>" think "" calls [] invalid_json=1`},
		{"hermes", `<tool_call>{"name":""}</tool_call>`, `"<tool_call>{\"name\":\"\"}</tool_call>" think "" calls [] missing_name=1`},
		{"hermes", `<tool_call>{"name":"f","arguments":[1]}</tool_call>`, `"<tool_call>{\"name\":\"f\",\"arguments\":[1]}</tool_call>" think "" calls [] malformed=1`},
		{"hermes", `<tool_call>{"name":"f","arguments":"{\"a\":1}"}</tool_call>`, `"" think "" calls ["f{\"a\":1}"] ok=1`},
		{"hermes", `<tool_call>{"arguments":{"a":[1,{}]},"name":"f"}</tool_call>`, `"" think "" calls ["f{\"a\":[1,{}]}"] ok=1`},
		{"hermes", `<tool_call>{"name":"h"}</tool_call>`, `"" think "" calls ["h{}"] unknown_tool=1`},
		{"hermes", `<tool_call>{"name":"f","arguments":{"a":1}} x</tool_call>`, `"<tool_call>{\"name\":\"f\",\"arguments\":{\"a\":1}} x</tool_call>" think "" calls [] malformed=1`},
		{"qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>\n1 <b>\n</parameter>\n<parameter=n>\n2\n</parameter>\n<parameter=o>\nx\n</parameter>\n</function>\n</tool_call>", `"" think "" calls ["f{\"s\": \"1 <b>\", \"n\": 2, \"o\": \"x\"}"] ok=1`},
		{"qwen3_coder", "<tool_call>\n<function=f>\n</function>\n</tool_call>", `"" think "" calls ["f{}"] ok=1`},
		{"qwen3_coder", "<tool_call>\nhm</tool_call>", `"<tool_call>\nhm</tool_call>" think "" calls [] malformed=1`},
		{"llama3", `{"name":"f","parameters":{"a":1}}`, `"" think "" calls ["f{\"a\":1}"] ok=1`},
		{"llama3", "\n" + `<|python_tag|>{"name":"f","arguments":{}}; {"name":"g"}`, `"" think "" calls ["f{}" "g{}"] ok=2`},
		{"llama3", `{"name":"Ada","parameters":{}}`, `"{\"name\":\"Ada\",\"parameters\":{}}" think "" calls [] unknown_tool=1`},
		{"llama3", `{"answer":1}`, `"{\"answer\":1}" think "" calls [] `},
		{"llama3", `{"name":"f"} and more`, `"{\"name\":\"f\"} and more" think "" calls [] invalid_json=1`},
		{"llama3", `say {"name":"f"}`, `"say {\"name\":\"f\"}" think "" calls [] `},
		{"pythonic", `[f(s='a', n=-1.5, o=[True, None, {"k": (1,)}]), g()]`, `"" think "" calls ["f{\"s\": \"a\", \"n\": -1.5, \"o\": [true, null, {\"k\": [1]}]}" "g{}"] ok=2`},
		{"pythonic", `<|python_start|>[f(s="<|python_end|>")]<|python_end|>`, `"" think "" calls ["f{\"s\": \"<|python_end|>\"}"] ok=1`},
		{"pythonic", `[f(n=12345678901234567890123, o=-9223372036854775809)]`, `"" think "" calls ["f{\"n\": 12345678901234567890123, \"o\": -9223372036854775809}"] ok=1`},
		{"pythonic", `[f(s="a"`, `"[f(s=\"a\"" think "" calls [] unclosed=1`},
		{"pythonic", `[1, 2]`, `"[1, 2]" think "" calls [] `},
		{"mistral", `Hi[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS]g[CALL_ID]x1[ARGS]{}`, `"Hi" think "" calls ["f{\"a\": 1}" "g{}"] ok=2`},
		{"mistral", `[THINK]hm[/THINK][TOOL_CALLS] [{"name": "f", "arguments": {"a": 1}}, {"name":"g","arguments":{}}]`, `"" think "hm" calls ["f{\"a\": 1}" "g{}"] ok=2`},
		{"deepseek_v3", "a<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{\"a\": 1}\n```<｜tool▁call▁end｜>\n<｜tool▁call▁begin｜>function<｜tool▁sep｜>g\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>", `"a" think "" calls ["f{\"a\": 1}" "g{}"] ok=2`},
		{"deepseek_v31", "<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>f<｜tool▁sep｜>{\"a\": 1}<｜tool▁call▁end｜><｜tool▁calls▁end｜>", `"" think "" calls ["f{\"a\": 1}"] ok=1`},
		{"deepseek_v32", "<｜DSML｜function_calls>\n<｜DSML｜invoke name=\"f\">\n<｜DSML｜parameter name=\"s\" string=\"true\">1</｜DSML｜parameter>\n<｜DSML｜parameter name=\"n\" string=\"false\">[2]</｜DSML｜parameter>\n</｜DSML｜invoke>\n</｜DSML｜function_calls>", `"" think "" calls ["f{\"s\": \"1\", \"n\": [2]}"] ok=1`},
		{"deepseek_v4", "<｜DSML｜tool_calls>\n<｜DSML｜invoke name=\"g\">\n</｜DSML｜invoke>\n</｜DSML｜tool_calls>", `"" think "" calls ["g{}"] ok=1`},
		{"deepseek_v41", "<｜DSML｜ calls>\n<｜DSML｜ invoke name=\"f\">\n<｜DSML｜ parameter name=\"s\" string=\"true\">1</｜DSML｜ parameter>\n</｜DSML｜ invoke>\n</｜DSML｜ calls>", `"" think "" calls ["f{\"s\": \"1\"}"] ok=1`},
		{"glm45", "<think>x</think>\n<tool_call>f\n<arg_key>s</arg_key>\n<arg_value>1</arg_value>\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>", `"" think "x" calls ["f{\"s\": \"1\", \"n\": 1}"] ok=1`},
		{"glm45", "<tool_call>f<arg_key>n</arg_key><arg_value>1</arg_value></tool_call><tool_call>g</tool_call>", `"" think "" calls ["f{\"n\": 1}" "g{}"] ok=2`},
		{"glm45", "<tool_call>f\n<arg_value>1</arg_value></tool_call>", `"<tool_call>f\n<arg_value>1</arg_value></tool_call>" think "" calls [] malformed=1`},
		{"kimi_k2", "<|tool_calls_section_begin|><|tool_call_begin|>functions.f:0<|tool_call_argument_begin|>{\"a\": 1}<|tool_call_end|><|tool_call_begin|>functions.g:1<|tool_call_argument_begin|>{}<|tool_call_end|><|tool_calls_section_end|>", `"" think "" calls ["f{\"a\": 1}" "g{}"] ok=2`},
		{"kimi_k2", "<|tool_calls_section_begin|>", `"<|tool_calls_section_begin|>" think "" calls [] unclosed=1`},
		{"harmony", `<|channel|>analysis<|message|>hm «<|call|>»<|end|><|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"a": 1}<|call|>`, `"" think "hm <|call|>" calls ["f{\"a\": 1}"] ok=1`},
		{"harmony", `<|channel|>analysis<|message|>hm<|end|><|start|>assistant<|channel|>final<|message|>Hello<|return|>`, `"Hello" think "hm" calls [] `},
		{"harmony", `<|channel|>commentary to=functions.f<|message|>{"a": <|call|>`, `"<|channel|>commentary to=functions.f<|message|>{\"a\": " think "" calls [] invalid_json=1`},
		{"harmony", `Hello`, `"Hello" think "" calls [] `},
		{"minimax_m2", "<think>a</think>\n\n<minimax:tool_call>\n<invoke name=\"f\">\n<parameter name=\"s\">1</parameter>\n<parameter name=\"n\">1</parameter>\n</invoke>\n<invoke name=\"g\">\n</invoke>\n</minimax:tool_call>", `"" think "a" calls ["f{\"s\": \"1\", \"n\": 1}" "g{}"] ok=2`},
	} {
		if got := scan(t, c.grammar, c.text, true).String(); got != c.want {
			t.Errorf("%s %q:\n got %s\nwant %s", c.grammar, c.text, got, c.want)
		}
	}
}

// Where a tokenizer has no token for a word, its letters count: reasoning at the beginning alone, since
// letters that come later are quoted.
func TestLetters(t *testing.T) {
	for text, want := range map[string]string{
		"<think>a</think>b": `"b" think "a" calls [] `,
		"say <think> aloud": `"say <think> aloud" think "" calls [] `,
		"<think>a <tool_call>{\"name\":\"f\"}</tool_call></think>b":                       `"b" think "a <tool_call>{\"name\":\"f\"}</tool_call>" calls [] `,
		"a<tool_call>{\"name\":\"f\",\"arguments\":{\"s\":\"</tool_call>\"}}</tool_call>": `"a" think "" calls ["f{\"s\":\"</tool_call>\"}"] ok=1`,
	} {
		for n := 1; n < 9; n++ {
			var parts []part
			for _, letter := range text {
				parts = append(parts, part{text: string(letter)})
			}
			if got := hear(t, NewScanner(ByName("hermes").In(nil), someTools, true), parts, true, func() int { return n }).String(); got != want {
				t.Errorf("%q by %d: %s, want %s", text, n, got, want)
			}
		}
	}
}
