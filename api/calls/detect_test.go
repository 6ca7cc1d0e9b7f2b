package calls

import "testing"

func TestChoose(t *testing.T) {
	for _, c := range []struct {
		name  string
		files map[string]string
		want  string
	}{
		{"nothing", nil, ""},
		{"a type", map[string]string{"config.json": `{"model_type":"qwen3_moe"}`}, "hermes"},
		{"a template before a type", map[string]string{"config.json": `{"model_type":"qwen3_moe"}`, "chat_template.jinja": "<tool_call>\n<function="}, "qwen3_coder"},
		{"a type that tells nothing", map[string]string{"config.json": `{"model_type":"llama"}`}, ""},
		{"a llama that was trained otherwise", map[string]string{"config.json": `{"model_type":"llama"}`, "tokenizer_config.json": `{"chat_template":"<|python_tag|> <tool_call>"}`}, "hermes"},
		{"llama 3", map[string]string{"tokenizer_config.json": `{"chat_template":[{"name":"default","template":"x"},{"name":"tool_use","template":"<|python_tag|>"}]}`}, "llama3"},
		{"a type below", map[string]string{"config.json": `{"model_type":"x","text_config":{"model_type":"qwen3_5"}}`}, "qwen3_coder"},
		{"deepseek v3", map[string]string{"chat_template.json": "{\"chat_template\":\"<｜tool▁sep｜> ```json\"}"}, "deepseek_v3"},
		{"deepseek v3.1", map[string]string{"chat_template.jinja": "<｜tool▁sep｜>"}, "deepseek_v31"},
		{"kimi, whose architecture is deepseek's", map[string]string{"config.json": `{"model_type":"kimi_k2"}`}, "kimi_k2"},
		{"mistral's own tokenizer", map[string]string{"config.json": `{"model_type":"mistral"}`, "tekken.json": `{"special_tokens":[{"rank":9,"token_str":"[TOOL_CALLS]"}]}`}, "mistral"},
		{"broken files", map[string]string{"config.json": `[`, "tokenizer.json": `{"version":`, "tokenizer_config.json": `7`}, ""},
	} {
		m := ReadModel(func(name string) []byte { return []byte(c.files[name]) })
		got := ""
		if g := Choose(m); g != nil {
			got = g.Name
		}
		if got != c.want {
			t.Errorf("%s: %q, want %q", c.name, got, c.want)
		}
	}
	for _, s := range signs {
		if ByName(s.grammar) == nil {
			t.Errorf("%s is no grammar", s.grammar)
		}
	}
}

func TestTokensOfAModel(t *testing.T) {
	for name, text := range map[string]string{
		"tokenizer_config.json": `{"added_tokens_decoder":{"7":{"content":"<think>"},"x":{"content":"y"}}}`,
		"tokenizer.json":        `{"version":"1","padding":{"a":[1]},"added_tokens":[{"id":7,"content":"<think>","special":false}],"model":{`,
		"tekken.json":           `{"special_tokens":[{"rank":7,"token_str":"<think>"}]}`,
	} {
		m := ReadModel(func(n string) []byte {
			if n == name {
				return []byte(text)
			}
			return nil
		})
		if len(m.Tokens) != 1 || m.Tokens["<think>"] != 7 {
			t.Errorf("%s: %v", name, m.Tokens)
		}
	}
}

func TestThinks(t *testing.T) {
	g := ByName("hermes")
	ids := wordIDs(g)
	d := g.In(ids)
	for _, c := range []struct {
		prompt []int32
		want   bool
	}{
		{nil, false},
		{[]int32{1, ids[thinkOpens], 2}, true},
		{[]int32{1, ids[thinkOpens], 2, ids[thinkCloses], 2}, false},
		{[]int32{ids[thinkOpens], 1, 2, 3, 4}, false},
	} {
		if got := d.Thinks(c.prompt); got != c.want {
			t.Errorf("%v: %v", c.prompt, got)
		}
	}
	if (*Dialect)(nil).Thinks([]int32{1}) || g.In(nil).Thinks([]int32{1}) {
		t.Error("reasoning is opened by nothing")
	}
}
