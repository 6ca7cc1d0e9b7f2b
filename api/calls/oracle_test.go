package calls

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"reflect"
	"slices"
	"strings"
	"testing"
)

var update = flag.Bool("update", false, "write testdata anew from the oracles, with HEADWAY_CALLS_PYTHON")

// oracles are parsers of others. Each runs in a process of its own.
var oracles = []string{"renderers", "openai-harmony", "vllm"}

// generated is a response that oracle/judge.py has made.
type generated struct {
	Family string            `json:"family"`
	Number int               `json:"number"`
	Kind   string            `json:"kind"`
	Parts  []json.RawMessage `json:"parts"`
	// Answers are what the oracles have made of it.
	Answers map[string]*judgement `json:"answers"`
}

// judgement is an answer: its calls are names with arguments.
type judgement struct {
	Content   string   `json:"content"`
	Reasoning string   `json:"reasoning"`
	Calls     [][2]any `json:"calls"`
	// Status of every attempt, where the oracle says one.
	Status []string `json:"status,omitempty"`
	Error  string   `json:"error,omitempty"`
}

const answersFile = "testdata/answers.jsonl"

func recorded(t *testing.T) []*generated {
	t.Helper()
	text, err := os.ReadFile(answersFile)
	if err != nil {
		t.Fatal(err)
	}
	return readLines[generated](t, text)
}

func readLines[T any](t *testing.T, text []byte) []*T {
	t.Helper()
	var all []*T
	for line := range bytes.Lines(text) {
		one := new(T)
		if err := json.Unmarshal(line, one); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		all = append(all, one)
	}
	return all
}

// oracleTools are those of judge.py.
var oracleTools = Tools{"look": ReadTool([]byte(`{"properties":{"place":{"type":"string"},"days":{"type":"integer"},"metric":{"type":"boolean"},"tags":{"type":"array"},"more":{"type":"object"},"ratio":{"type":"number"}}}`)), "list_all": {}}

func (c *generated) parts(t *testing.T) []part {
	ids := wordIDs(ByName(c.Family))
	var parts []part
	for _, raw := range c.Parts {
		var text string
		var word [1]string
		switch {
		case json.Unmarshal(raw, &text) == nil:
			for _, letter := range text {
				parts = append(parts, part{text: string(letter)})
			}
		case json.Unmarshal(raw, &word) == nil && ids[word[0]] != 0:
			parts = append(parts, part{mark: ids[word[0]]})
		default:
			t.Fatalf("%s is neither text nor a word of %s", raw, c.Family)
		}
	}
	return parts
}

// ours is this package's answer in the same form.
func (c *generated) ours(t *testing.T) *judgement {
	g := ByName(c.Family)
	got := hear(t, NewScanner(g.In(wordIDs(g)), oracleTools, true), c.parts(t), c.Kind != "cut", whole)
	o := &judgement{Content: strings.TrimSpace(got.text), Reasoning: got.reasoning, Calls: [][2]any{}}
	for _, call := range got.calls {
		name, arguments, _ := strings.Cut(call, "{")
		var value any
		if err := json.Unmarshal([]byte("{"+arguments), &value); err != nil {
			t.Fatal(err)
		}
		o.Calls = append(o.Calls, [2]any{name, value})
	}
	for _, s := range Statuses() {
		o.Status = append(o.Status, slices.Repeat([]string{s.String()}, got.counts[s])...)
	}
	slices.Sort(o.Status)
	return o
}

// excused is why an oracle is no judge of a case, empty where it is.
func (c *generated) excused(oracle string) string {
	vllm := oracle == "vllm"
	switch {
	case c.Kind == "quoted" && (vllm || c.Family == "deepseek_v4"):
		return "it reads text, so that quoted calls are calls"
	case oracle != "renderers" && (c.Kind == "cut" || c.Kind == "broken"):
		return "it hands on what is left of a call"
	case vllm && c.Kind == "unknown" && slices.Contains([]string{"glm45", "minimax_m2"}, c.Family):
		return "it drops calls of tools that were not offered"
	case c.Kind == "unknown" && slices.Contains([]string{"llama3", "pythonic"}, c.Family):
		return "it takes an answer in JSON for a call of a tool that was not offered"
	case c.Kind == "unknown" && c.Family == "qwen3_coder":
		return "it types the arguments of a tool that was not offered otherwise"
	case oracle == "renderers" && c.Family == "llama3" && strings.Contains(fmt.Sprintf("%s", c.Parts), `}; {`):
		return "it reads one call a response"
	case oracle == "renderers" && c.Family == "minimax_m2" && c.Kind == "cut":
		return "it drops complete calls of a row that is not closed"
	}
	return ""
}

// What oracles have made of generated responses, and this package makes of them.
func TestOracles(t *testing.T) {
	judged, excused := map[string]int{}, map[string]int{}
	for _, c := range recorded(t) {
		ours := c.ours(t)
		for oracle, theirs := range c.Answers {
			key := c.Family + " by " + oracle
			if why := c.excused(oracle); why != "" || theirs.Error != "" {
				excused[key+": "+why+theirs.Error]++
				continue
			}
			judged[key]++
			differs := !reflect.DeepEqual(ours.Calls, theirs.Calls)
			if c.Kind != "cut" && c.Kind != "broken" { // else they drop the text of calls that are none
				differs = differs || ours.Content != theirs.Content || ours.Reasoning != theirs.Reasoning
			}
			if theirs.Status != nil {
				differs = differs || formed(ours.Status) != formed(theirs.Status)
			}
			if differs {
				t.Errorf("%s %d (%s) %s:\n ours   %+v\n theirs %+v", key, c.Number, c.Kind, c.Parts, *ours, *theirs)
			}
		}
	}
	for _, g := range grammars {
		family := g.Name
		if judged[family+" by vllm"]+judged[family+" by renderers"]+judged[family+" by openai-harmony"] == 0 {
			t.Errorf("%s has no oracle", family)
		}
	}
	for _, key := range slices.Sorted(maps.Keys(judged)) {
		t.Logf("%4d cases of %s", judged[key], key)
	}
	for _, key := range slices.Sorted(maps.Keys(excused)) {
		t.Logf("%4d cases not of %s", excused[key], key)
	}
}

// formed reports whether every attempt was a call. Oracles have other words for some that were none, and
// renderers asks for one family alone whether a tool was offered.
func formed(status []string) bool {
	return !slices.ContainsFunc(status, func(s string) bool { return s != OK.String() && s != UnknownTool.String() })
}

// The oracles still say what is recorded of them. HEADWAY_CALLS_PYTHON is a Python that has them; make
// test-engines installs it.
func TestOraclesAreCurrent(t *testing.T) {
	python := os.Getenv("HEADWAY_CALLS_PYTHON")
	if python == "" {
		t.Skip("HEADWAY_CALLS_PYTHON names no Python that has the oracles: make test-engines does")
	}
	cases := readLines[generated](t, judge(t, python, "cases"))
	for _, oracle := range oracles {
		type answer struct {
			Family string `json:"family"`
			Number int    `json:"number"`
			judgement
		}
		answers := make(map[string]*judgement)
		for _, a := range readLines[answer](t, judge(t, python, oracle)) {
			answers[fmt.Sprintf("%s %d", a.Family, a.Number)] = &a.judgement
		}
		for _, c := range cases {
			if a := answers[fmt.Sprintf("%s %d", c.Family, c.Number)]; a != nil {
				if c.Answers == nil {
					c.Answers = make(map[string]*judgement)
				}
				c.Answers[oracle] = a
			}
		}
	}
	var now bytes.Buffer
	encoder := json.NewEncoder(&now)
	encoder.SetEscapeHTML(false)
	for _, c := range cases {
		if err := encoder.Encode(c); err != nil {
			t.Fatal(err)
		}
	}
	if *update {
		if err := os.WriteFile(answersFile, now.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	was, err := os.ReadFile(answersFile)
	if err != nil || !bytes.Equal(was, now.Bytes()) {
		t.Errorf("%s is not what the oracles say now (%v): run with -update, and read what changed", answersFile, err)
	}
}

// judge runs oracle/judge.py. The vocabulary that openai-harmony needs lies beside that Python.
func judge(t *testing.T, python, oracle string) []byte {
	t.Helper()
	command := exec.Command(python, "oracle/judge.py", oracle)
	command.Env = append(os.Environ(), "TIKTOKEN_ENCODINGS_BASE="+t.TempDir(), "VLLM_LOGGING_LEVEL=ERROR", "HF_HUB_OFFLINE=1")
	var said bytes.Buffer
	command.Stderr = &said
	out, err := command.Output()
	if err != nil {
		t.Fatalf("%s: %v\n%s", oracle, err, said.Bytes())
	}
	return out
}

// A document can name every grammar.
func TestDocumentsNameEveryGrammar(t *testing.T) {
	text, err := os.ReadFile("../../config/headway.schema.json")
	if err != nil {
		t.Fatal(err)
	}
	var schema map[string]any
	if err := json.Unmarshal(text, &schema); err != nil {
		t.Fatal(err)
	}
	words := allowed(schema, "tool_format")
	for _, g := range grammars {
		if !slices.Contains(words, any(g.Name)) {
			t.Errorf("tool_format allows %v, not %s", words, g.Name)
		}
	}
}

// allowed are the words of a key, wherever in a schema it is.
func allowed(tree any, key string) []any {
	object, _ := tree.(map[string]any)
	if found, is := object[key].(map[string]any); is {
		words, _ := found["enum"].([]any)
		return words
	}
	for _, inner := range object {
		if words := allowed(inner, key); words != nil {
			return words
		}
	}
	return nil
}
