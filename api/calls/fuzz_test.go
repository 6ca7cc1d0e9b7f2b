package calls

import (
	"math/rand/v2"
	"strings"
	"testing"
)

// However a response is cut, it says the same; every call has a name and arguments that are an object;
// and of a response without a call nothing is lost but what frames reasoning, and spaces.
func FuzzScanner(f *testing.F) {
	for i, seed := range []string{
		"Look.\n<tool_call>\n{\"name\": \"f\", \"arguments\": {\"a\": [1, \"}\"]}}\n</tool_call> x <tool_call>",
		"<think>a</think><tool_call>\n<function=f>\n<parameter=s>\n1\n</parameter>\n</function>\n</tool_call>",
		`{"name":"f"}; {"name":"g","parameters":{"a":[1]}}`,
		`[f(s='a\n', n=-1.5, o=[True, None, {"k": (1,)}]), g()]`,
		`[THINK]a[/THINK]b[TOOL_CALLS]f[ARGS]{"a": 1}[TOOL_CALLS][{"name":"f"}]`,
		"<｜tool▁calls▁begin｜><｜tool▁call▁begin｜>function<｜tool▁sep｜>f\n```json\n{}\n```<｜tool▁call▁end｜><｜tool▁calls▁end｜>",
		"<tool_call>f\n<arg_key>n</arg_key>\n<arg_value>1</arg_value>\n</tool_call>",
		`<|channel|>analysis<|message|>a<|end|><|start|>assistant<|channel|>commentary to=functions.f<|message|>{}<|call|>`,
	} {
		f.Add(seed, uint64(i), i%2 == 0, true)
	}
	f.Fuzz(func(t *testing.T, text string, seed uint64, letters, stopped bool) {
		if len(text) > 4096 || strings.ContainsAny(text, "«»") {
			return
		}
		text = strings.ToValidUTF8(text, "\uFFFD") // as the text of engines is
		for _, g := range grammars {
			ids, parts := wordIDs(g), tokens(g, text)
			if letters { // a tokenizer without the words
				ids, parts = nil, []part{{text: text}}
			}
			whole := hear(t, NewScanner(g.In(ids), someTools, true), parts, stopped, whole)
			draw := rand.New(rand.NewPCG(seed, 2))
			pieces := parts
			if letters {
				pieces = nil
				for _, r := range parts[0].text {
					pieces = append(pieces, part{text: string(r)})
				}
			}
			cut := hear(t, NewScanner(g.In(ids), someTools, true), pieces, stopped, func() int { return 1 + draw.IntN(7) })
			if whole.String() != cut.String() {
				t.Fatalf("%s %q: whole %v, in pieces %v", g.Name, text, whole, cut)
			}
			if len(whole.calls) == 0 && whole.reasoning == "" && g.body != asChannels {
				if said, was := letterless(g, whole.text), letterless(g, text); said != was {
					t.Fatalf("%s: %q became %q", g.Name, text, whole.text)
				}
			}
		}
	})
}

// letterless is a text without spaces and the words that frame reasoning.
func letterless(g *Grammar, text string) string {
	for _, word := range g.think {
		if word != "" {
			text = strings.ReplaceAll(text, word, "")
		}
	}
	return strings.Join(strings.Fields(text), "")
}

// A response that is nothing but opening words costs no more than another.
func TestManyOpenWords(t *testing.T) {
	for _, g := range grammars {
		for _, ids := range []map[string]int32{nil, wordIDs(g)} {
			word := g.open
			if g.section[0] != "" {
				word = g.section[0]
			}
			text := strings.Repeat(word, 20_000)
			parts := []part{{text: text}}
			if ids != nil {
				parts = tokens(g, text[:len(word)*2000])
				text = text[:len(word)*2000]
			}
			got := hear(t, NewScanner(g.In(ids), someTools, true), parts, true, func() int { return 1 })
			if got.text != text || got.calls != nil {
				t.Errorf("%s: %d bytes became %d", g.Name, len(text), len(got.text))
			}
		}
	}
}

// BenchmarkScanner is what a token costs: of plain text, and of the arguments of a call.
func BenchmarkScanner(b *testing.B) {
	for _, c := range []struct{ name, grammar, begin, token string }{
		{"none", "", "", " word"},
		{"text", "hermes", "", " word"},
		{"reasoning", "hermes", "<think>", " word"},
		{"json", "hermes", `<tool_call>{"name":"f","arguments":{"s":"`, " word"},
		{"tags", "qwen3_coder", "<tool_call>\n<function=f>\n<parameter=s>", " word"},
	} {
		b.Run(c.name, func(b *testing.B) {
			var d *Dialect
			out := &Out{}
			if g := ByName(c.grammar); g != nil {
				d = g.In(wordIDs(g))
			}
			s := NewScanner(d, someTools, true)
			if d != nil {
				for _, p := range tokens(d.Grammar, c.begin) {
					if p.mark != 0 {
						s.Mark(p.mark, out)
					} else {
						s.Text([]byte(p.text), out)
					}
				}
			}
			token := []byte(c.token)
			b.ReportAllocs()
			for b.Loop() {
				out.Reset()
				s.Text(token, out)
			}
		})
	}
}
