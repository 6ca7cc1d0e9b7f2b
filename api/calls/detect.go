package calls

import (
	"bytes"
	"encoding/json"
	"slices"
	"strconv"
	"strings"
)

// Model is what the files of a model in the layout of Hugging Face say of how it writes calls.
type Model struct {
	// Types are model_type and those below it, Template the chat template; empty where nothing says them.
	Types    []string
	Template string
	// Tokens are the tokens that a tokenizer has beside those of its vocabulary, by their text.
	Tokens map[string]int32
}

// ReadModel reads a model's files: read returns the text of one, nil where there is none. A file that cannot
// be read says nothing.
func ReadModel(read func(name string) []byte) Model {
	m := Model{Tokens: make(map[string]int32)}
	m.readTypes(read("config.json"))
	var tokenizer struct {
		Template json.RawMessage `json:"chat_template"`
		Added    map[string]struct {
			Content string `json:"content"`
		} `json:"added_tokens_decoder"`
	}
	_ = json.Unmarshal(read("tokenizer_config.json"), &tokenizer) // what it does not say, others may
	for id, token := range tokenizer.Added {
		if n, err := strconv.ParseInt(id, 10, 32); err == nil {
			m.Tokens[token.Content] = int32(n)
		}
	}
	if len(m.Tokens) == 0 {
		m.readAdded(read("tokenizer.json"))
	}
	if len(m.Tokens) == 0 {
		m.readTekken(read("tekken.json"))
	}
	m.Template = string(read("chat_template.jinja"))
	if m.Template == "" {
		m.Template = templateText(tokenizer.Template)
	}
	if m.Template == "" {
		var other struct {
			Template json.RawMessage `json:"chat_template"`
		}
		_ = json.Unmarshal(read("chat_template.json"), &other)
		m.Template = templateText(other.Template)
	}
	return m
}

func (m *Model) readTypes(text []byte) {
	var config struct {
		Type string `json:"model_type"`
		Text struct {
			Type string `json:"model_type"`
		} `json:"text_config"`
	}
	if json.Unmarshal(text, &config) != nil {
		return
	}
	for _, t := range []string{config.Type, config.Text.Type} {
		if t != "" {
			m.Types = append(m.Types, t)
		}
	}
}

// readAdded reads added_tokens of a tokenizer.json, which stand before what makes it large.
func (m *Model) readAdded(text []byte) {
	decoder := json.NewDecoder(bytes.NewReader(text))
	if open, err := decoder.Token(); err != nil || open != json.Delim('{') {
		return
	}
	for decoder.More() {
		key, err := decoder.Token()
		if err != nil {
			return
		}
		if key != "added_tokens" {
			var skipped json.RawMessage
			if decoder.Decode(&skipped) != nil {
				return
			}
			continue
		}
		var added []struct {
			ID      int32  `json:"id"`
			Content string `json:"content"`
		}
		if decoder.Decode(&added) != nil {
			return
		}
		for _, token := range added {
			m.Tokens[token.Content] = token.ID
		}
		return
	}
}

// readTekken reads the special tokens of Mistral's own format.
func (m *Model) readTekken(text []byte) {
	var tekken struct {
		Special []struct {
			Rank int32  `json:"rank"`
			Text string `json:"token_str"`
		} `json:"special_tokens"`
	}
	if json.Unmarshal(text, &tekken) != nil {
		return
	}
	for _, token := range tekken.Special {
		m.Tokens[token.Text] = token.Rank
	}
}

// templateText is a template, or several of them by name.
func templateText(raw json.RawMessage) string {
	var one string
	if json.Unmarshal(raw, &one) == nil {
		return one
	}
	var named []struct {
		Template string `json:"template"`
	}
	if json.Unmarshal(raw, &named) != nil {
		return ""
	}
	var all strings.Builder
	for _, t := range named {
		all.WriteString(t.Template)
	}
	return all.String()
}

// sign is what tells a grammar: words that the chat template writes calls with, or a model's type, or the
// tokens of its tokenizer.
type sign struct {
	grammar  string
	template []string
	types    []string
	tokens   []string
}

// signs are looked at in order: the first that fits decides. Words in the template come before types, since
// models of one type are trained to write calls in several ways. A type is there only if it tells one way.
var signs = []sign{
	{"harmony", []string{"<|channel|>"}, []string{"gpt_oss"}, nil},
	{"kimi_k2", []string{"<|tool_calls_section_begin|>"}, []string{"kimi_k2"}, []string{"<|tool_calls_section_begin|>"}},
	{"minimax_m2", []string{"<minimax:tool_call>"}, []string{"minimax_m2"}, []string{"<minimax:tool_call>"}},
	{"deepseek_v41", []string{dsml + " calls"}, []string{"deepseek_v41"}, nil},
	{"deepseek_v4", []string{dsml + "tool_calls"}, []string{"deepseek_v4"}, nil},
	{"deepseek_v32", []string{dsml + "function_calls"}, []string{"deepseek_v32"}, nil},
	{"deepseek_v3", []string{"<｜tool▁sep｜>", "```json"}, nil, nil},
	{"deepseek_v31", []string{"<｜tool▁sep｜>"}, []string{"deepseek_v3"}, nil},
	{"glm45", []string{"<arg_key>"}, []string{"glm4_moe", "glm4_moe_lite", "glm_moe_dsa"}, nil},
	{"qwen3_coder", []string{"<function="}, []string{"qwen3_5", "qwen3_5_moe"}, nil},
	{"mistral", []string{"[TOOL_CALLS]"}, nil, []string{"[TOOL_CALLS]"}},
	{"hermes", []string{callOpens}, []string{"qwen2", "qwen2_moe", "qwen3", "qwen3_moe"}, nil},
	{"pythonic", []string{"<|python_start|>"}, []string{"llama4", "llama4_text"}, nil},
	{"llama3", []string{pythonTag}, nil, nil},
}

// Choose returns the grammar that a model's own files tell, nil where they tell none.
func Choose(m Model) *Grammar {
	for _, told := range []func(sign) bool{
		func(s sign) bool { return m.writes(s.template) },
		func(s sign) bool {
			return slices.ContainsFunc(s.types, func(t string) bool { return slices.Contains(m.Types, t) })
		},
		func(s sign) bool {
			return slices.ContainsFunc(s.tokens, func(t string) bool { _, ok := m.Tokens[t]; return ok })
		},
	} {
		for _, s := range signs {
			if told(s) {
				return ByName(s.grammar)
			}
		}
	}
	return nil
}

// writes reports whether the template has all words.
func (m Model) writes(words []string) bool {
	for _, word := range words {
		if !strings.Contains(m.Template, word) {
			return false
		}
	}
	return len(words) > 0
}

// Thinks reports whether a prompt has opened reasoning that the response goes on with. Its last tokens are
// the opening word then, and perhaps the end of a line.
func (d *Dialect) Thinks(prompt []int32) bool {
	if d == nil || d.think[0] == "" {
		return false
	}
	for i := len(prompt) - 1; i >= max(0, len(prompt)-thinkTail); i-- {
		if at, ok := d.ids[prompt[i]]; ok {
			return d.words[at] == d.think[0]
		}
	}
	return false
}

// thinkTail is how many tokens a template may put between the word that opens reasoning and the response.
const thinkTail = 3
