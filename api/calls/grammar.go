package calls

import (
	"slices"
	"strings"
)

// body is how a call says its name and its arguments.
type body int

const (
	// asObject: one JSON object has both.
	asObject body = iota
	// asNamed: the name stands before an object of arguments.
	asNamed
	// asTags: the name, and every argument between tags of its own.
	asTags
	// asList: like asNamed; or one JSON object with both, or a list of such objects.
	asList
	// asChannels: messages with a header each, which says whom they are for.
	asChannels
	// asWholeObjects and asPython have no frame: the whole response is calls, or an answer.
	asWholeObjects
	asPython
)

// typing says how the text of an argument between tags becomes JSON.
type typing int

const (
	// bySchema: a text where the tool's schema says text, else JSON where it is JSON.
	bySchema typing = iota
	// asText and asJSON are said by the tag itself.
	asText
	asJSON
)

// valueTag is one way to open an argument's value.
type valueTag struct {
	tag    string
	typing typing
}

// Grammar is how a family of models writes calls and reasoning. All of it is data: the words of the
// frame, and which of three bodies stands in it.
type Grammar struct {
	// Name is the word for it in a document. Body says how a call is written.
	Name string
	body body
	// think opens and closes reasoning. section opens and closes a row of calls.
	think, section [2]string
	// open begins a call, end ends it; no end where the arguments' last brace does.
	open, end string
	// nameEnd ends the name; so do the words of peek, which belong to what follows. The name is what stands
	// behind nameAfter, where that is not empty. nameID: the name says which call it is, too.
	nameEnd   string
	peek      []string
	nameAfter string
	nameID    bool
	// param opens an argument, keyEnd ends its name, one of values (if any) opens its value, which valueEnd ends.
	param, keyEnd, valueEnd string
	values                  []valueTag
	// line: a value stands on lines of its own. trim: spaces around it are not part of it.
	line, trim bool
	// words are those of the frame for which a tokenizer may have one token each.
	words []string
}

const (
	thinkOpens  = "<think>"
	thinkCloses = "</think>"
	callOpens   = "<tool_call>"
	callCloses  = "</tool_call>"
	pythonTag   = "<|python_tag|>"
	dsml        = "｜DSML｜"
)

var thinks = [2]string{thinkOpens, thinkCloses}

// grammars are all families, in the order in which documents list them.
var grammars = []*Grammar{
	{Name: "hermes", body: asObject, think: thinks, open: callOpens, end: callCloses,
		words: []string{callOpens, callCloses, thinkOpens, thinkCloses}},
	{Name: "qwen3_coder", body: asTags, think: thinks, section: [2]string{callOpens, callCloses},
		open: "<function=", nameEnd: ">", end: "</function>",
		param: "<parameter=", keyEnd: ">", valueEnd: "</parameter>", line: true,
		words: []string{callOpens, callCloses, thinkOpens, thinkCloses}},
	{Name: "llama3", body: asWholeObjects, words: []string{pythonTag}},
	{Name: "pythonic", body: asPython, words: []string{"<|python_start|>", "<|python_end|>"}},
	{Name: "mistral", body: asList, think: [2]string{"[THINK]", "[/THINK]"},
		open: "[TOOL_CALLS]", nameEnd: "[ARGS]", peek: []string{"{"},
		words: []string{"[TOOL_CALLS]", "[ARGS]", "[CALL_ID]", "[THINK]", "[/THINK]"}},
	{Name: "deepseek_v3", body: asNamed, think: thinks, section: [2]string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
		open: "<｜tool▁call▁begin｜>", nameAfter: "<｜tool▁sep｜>", nameEnd: "\n```json\n", end: "```<｜tool▁call▁end｜>",
		words: deepseekWords},
	{Name: "deepseek_v31", body: asNamed, think: thinks, section: [2]string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"},
		open: "<｜tool▁call▁begin｜>", nameEnd: "<｜tool▁sep｜>", end: "<｜tool▁call▁end｜>",
		words: deepseekWords},
	marked("deepseek_v32", "", "function_calls"),
	marked("deepseek_v4", "", "tool_calls"),
	marked("deepseek_v41", " ", "calls"),
	{Name: "glm45", body: asTags, think: thinks, open: callOpens, peek: []string{"<arg_key>", callCloses}, end: callCloses,
		param: "<arg_key>", keyEnd: "</arg_key>", values: []valueTag{{"<arg_value>", bySchema}}, valueEnd: "</arg_value>", trim: true,
		words: []string{callOpens, callCloses, thinkOpens, thinkCloses, "<arg_key>", "</arg_key>", "<arg_value>", "</arg_value>"}},
	{Name: "kimi_k2", body: asNamed, think: thinks, section: [2]string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>"},
		open: "<|tool_call_begin|>", nameEnd: "<|tool_call_argument_begin|>", end: "<|tool_call_end|>", nameID: true,
		words: []string{"<|tool_calls_section_begin|>", "<|tool_calls_section_end|>", "<|tool_call_begin|>", "<|tool_call_argument_begin|>", "<|tool_call_end|>", thinkOpens, thinkCloses}},
	{Name: "harmony", body: asChannels,
		words: []string{"<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>"}},
	{Name: "minimax_m2", body: asTags, think: thinks, section: [2]string{"<minimax:tool_call>", "</minimax:tool_call>"},
		open: `<invoke name="`, nameEnd: `">`, end: "</invoke>",
		param: `<parameter name="`, keyEnd: `">`, valueEnd: "</parameter>",
		words: []string{"<minimax:tool_call>", "</minimax:tool_call>", thinkOpens, thinkCloses}},
}

var deepseekWords = []string{"<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>", "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>", "<｜tool▁sep｜>", thinkOpens, thinkCloses}

// marked is a grammar of DeepSeek's tags, which have a token in each of them.
func marked(name, space, section string) *Grammar {
	opens, closes := "<"+dsml+space, "</"+dsml+space
	return &Grammar{Name: name, body: asTags, think: thinks, section: [2]string{opens + section + ">", closes + section + ">"},
		open: opens + `invoke name="`, nameEnd: `">`, end: closes + "invoke>",
		param: opens + `parameter name="`, keyEnd: `"`, valueEnd: closes + "parameter>",
		values: []valueTag{{` string="true">`, asText}, {` string="false">`, asJSON}, {">", bySchema}},
		words:  []string{dsml, thinkOpens, thinkCloses}}
}

// ByName returns a grammar, nil where there is none of that name.
func ByName(name string) *Grammar {
	for _, g := range grammars {
		if g.Name == name {
			return g
		}
	}
	return nil
}

// Words are those of the frame for which a tokenizer may have one token each.
func (g *Grammar) Words() []string { return slices.Clone(g.words) }

// A word that is a token stands in a scanner's input as two bytes that no text has.
const (
	symbolByte  = 0xFF
	symbolFirst = 0x80
)

// Dialect is a grammar in the tokens of one tokenizer. It is immutable and safe for concurrent use.
type Dialect struct {
	*Grammar
	// ids has the word of every token that is one, by its place in words.
	ids map[int32]int
	// The words of the grammar as they stand in a scanner's input.
	thinkOpen, thinkClose     []byte
	sectionOpen, sectionClose []byte
	opens, ends               []byte
	nameEnds                  [][]byte
	after                     []byte
	params, keyEnds           []byte
	valueTags                 [][]byte
	valueEnds                 []byte
	// head has the words of asChannels; enders are those that end a call.
	head, enders [][]byte
}

// In returns the grammar in the tokens of a tokenizer: ids has the token of a word, for words that have one.
// No grammar is no dialect.
func (g *Grammar) In(ids map[string]int32) *Dialect {
	if g == nil {
		return nil
	}
	d := &Dialect{Grammar: g, ids: make(map[int32]int)}
	for i, word := range g.words {
		if id, ok := ids[word]; ok {
			d.ids[id] = i
		}
	}
	d.thinkOpen, d.thinkClose = d.put(g.think[0]), d.put(g.think[1])
	d.sectionOpen, d.sectionClose = d.put(g.section[0]), d.put(g.section[1])
	d.opens, d.ends = d.put(g.open), d.put(g.end)
	if g.nameEnd != "" {
		d.nameEnds = append(d.nameEnds, d.put(g.nameEnd))
	}
	for _, word := range g.peek {
		d.nameEnds = append(d.nameEnds, d.put(word))
	}
	d.after, d.params, d.keyEnds = d.put(g.nameAfter), d.put(g.param), d.put(g.keyEnd)
	for _, v := range g.values {
		d.valueTags = append(d.valueTags, d.put(v.tag))
	}
	d.valueEnds, d.enders = d.put(g.valueEnd), [][]byte{d.ends}
	if g.body == asChannels {
		for _, word := range g.words {
			d.head = append(d.head, d.put(word))
		}
		d.enders = d.head[wordEnd:]
	}
	return d
}

// put writes the words of a text that are tokens as symbols. Words that are part of longer ones come later in words.
func (d *Dialect) put(text string) []byte {
	if text == "" {
		return nil
	}
	for _, at := range d.ids {
		text = strings.ReplaceAll(text, d.words[at], string([]byte{symbolByte, symbolFirst + byte(at)}))
	}
	return []byte(text)
}

// token reports whether a word stands in the input as a token.
func token(word []byte) bool { return slices.Contains(word, symbolByte) }

// Marks reports whether a token is a word of the frame, so that the text before it has to be known.
func (d *Dialect) Marks(id int32) bool {
	if d == nil {
		return false
	}
	_, ok := d.ids[id]
	return ok
}

// Word is the text of a token that Marks.
func (d *Dialect) Word(id int32) string { return d.words[d.ids[id]] }

// Ends reports whether a token ends a message, of those for which a template may write another later.
func (d *Dialect) Ends(id int32) bool {
	if d == nil || d.body != asChannels {
		return false
	}
	at, ok := d.ids[id]
	return ok && at >= wordEnd
}

// Thought is reasoning as it stands before an answer, empty for none and where it is a message of its own.
func (d *Dialect) Thought(reasoning string) string {
	if d == nil || d.think[0] == "" || reasoning == "" {
		return ""
	}
	return d.think[0] + "\n" + reasoning + "\n" + d.think[1] + "\n\n"
}
