package taskset

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math"
	"path"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/headway-rl/headway/internal/spelling"
)

// decoder makes a task of a row.
type decoder struct {
	parts  [partCount]part
	whole  [partCount]string
	system string
	work   string
}

func newDecoder(opt *Options) decoder {
	d := decoder{parts: opt.Map.parts(), system: opt.System, work: opt.Work}
	for i := range d.parts {
		d.whole[i] = d.parts[i].field()
	}
	return d
}

// problem is what is wrong with one part of a row. missing: the field is not there.
type problem struct {
	part    int
	missing bool
	text    string
}

// row is a task that is being made.
type row struct {
	*decoder
	raw      json.RawMessage
	values   [partCount]json.RawMessage
	task     Task
	problems []problem
	// repeated is a field that stands twice, leaks: the prompt ends with an assistant's message.
	repeated string
	leaks    bool
}

// decode makes a task of a row's object, which is valid JSON and UTF-8. name is the task's where
// the row has none.
func (d *decoder) decode(raw json.RawMessage, name string) *row {
	r := &row{decoder: d, raw: raw}
	r.task.ID = name
	r.find()
	r.prompt()
	r.rest()
	return r
}

// find finds the fields of all parts in one pass.
func (r *row) find() {
	var messages json.RawMessage
	members(r.raw, func(name []byte, value json.RawMessage) bool {
		for i := range r.parts {
			p := &r.parts[i]
			switch {
			case string(name) == r.whole[i]:
				if r.values[i] != nil {
					r.repeated = r.whole[i]
				}
				r.values[i] = value
			case len(p.path) > 1 && string(name) == p.path[0] && r.values[i] == nil:
				r.values[i] = member(value, p.path[1:])
			}
		}
		if string(name) == "messages" {
			messages = value
		}
		return true
	})
	if v := r.values[partPrompt]; (v == nil || string(v) == "null") && !r.parts[partPrompt].given {
		r.values[partPrompt] = messages
	}
	for i, value := range r.values {
		if string(value) == "null" {
			r.values[i] = nil
		}
		if r.values[i] == nil && r.parts[i].each {
			r.problems = append(r.problems, problem{i, true, r.lacks(i)})
		}
	}
	if r.repeated != "" {
		r.report(partID, "the field %q stands twice: which one is meant is anybody's guess", r.repeated)
	}
}

// lacks says that a row has no such field, and which it may be.
func (r *row) lacks(i int) string {
	p := &r.parts[i]
	names := fieldNames(r.raw)
	text := fmt.Sprintf("there is no %s: the field %q is missing or null", p.name, r.whole[i])
	if i == partPrompt && !p.given {
		text = `there is no prompt: neither a field "prompt" nor one "messages"`
	}
	if near := spelling.Nearest(r.whole[i], names); near != "" && near != r.whole[i] {
		return text + fmt.Sprintf("; did you mean %q?", near)
	}
	return text + "; there are " + listed(names)
}

// listed prints names, at most a dozen.
func listed(names []string) string {
	const most = 12
	if len(names) == 0 {
		return "none"
	}
	if len(names) > most {
		return fmt.Sprintf("%s and %d more", strings.Join(names[:most], ", "), len(names)-most)
	}
	return strings.Join(names, ", ")
}

func (r *row) report(part int, format string, args ...any) {
	r.problems = append(r.problems, problem{part: part, text: fmt.Sprintf(format, args...)})
}

// text decodes a text; what is no text that can be sampled from is a problem.
func (r *row) text(part int, what string, value json.RawMessage) string {
	if value[0] != '"' {
		r.report(part, "%s is %s: want a text", what, aKind(value))
		return ""
	}
	var text string
	json.Unmarshal(value, &text)
	switch {
	case strings.IndexByte(text, 0) >= 0:
		r.report(part, "%s has a NUL: want text without it", what)
	case strings.ContainsRune(text, utf8.RuneError) && !bytes.ContainsRune(value, utf8.RuneError) && !bytes.Contains(bytes.ToLower(value), []byte(`\ufffd`)):
		r.report(part, "%s has half a surrogate pair (\\ud800 to \\udfff alone), which is no character", what)
	}
	return text
}

// roles that a message may have.
var roles = []string{"system", "developer", "user", "assistant", "tool", "function"}

// prompt makes the chat.
func (r *row) prompt() {
	value := r.values[partPrompt]
	if value == nil {
		return
	}
	first := ""
	switch value[0] {
	case '"':
		text := r.text(partPrompt, "the prompt", value)
		if strings.TrimSpace(text) == "" {
			r.report(partPrompt, "the prompt is empty")
		}
		r.task.Messages = append(r.task.Messages, message("user", value))
	case '[':
		var list []json.RawMessage
		json.Unmarshal(value, &list)
		if len(list) == 0 {
			r.report(partPrompt, "the prompt is an empty list: want at least one message")
		}
		last := ""
		for i, m := range list {
			last = r.message(i+1, m)
			if i == 0 {
				first = last
			}
		}
		r.task.Messages, r.leaks = list, last == "assistant"
	default:
		r.report(partPrompt, "the prompt is %s: want a text or a list of messages", aKind(value))
	}
	r.addSystem(first == "system" || first == "developer")
}

// message checks one message of a prompt, counted from 1, and returns its role.
func (r *row) message(n int, m json.RawMessage) string {
	if m[0] != '{' {
		r.report(partPrompt, "message %d of the prompt is %s: want an object with role and content", n, aKind(m))
		return ""
	}
	role, content, calls := member(m, []string{"role"}), member(m, []string{"content"}), member(m, []string{"tool_calls"})
	if role == nil {
		r.report(partPrompt, "message %d of the prompt has no role: want one of %s; it has %s", n, strings.Join(roles, ", "), listed(fieldNames(m)))
		return ""
	}
	name := r.text(partPrompt, fmt.Sprintf("the role of message %d of the prompt", n), role)
	if !slices.Contains(roles, name) && role[0] == '"' {
		hint := ""
		if near := spelling.Nearest(name, roles); near != "" {
			hint = fmt.Sprintf("; did you mean %q?", near)
		}
		r.report(partPrompt, "message %d of the prompt has the role %.40q: want one of %s%s", n, name, strings.Join(roles, ", "), hint)
	}
	r.content(n, content, name == "assistant" && calls != nil)
	return name
}

// content checks what a message says; one that calls tools may say nothing.
func (r *row) content(n int, content json.RawMessage, calls bool) {
	what := fmt.Sprintf("the content of message %d of the prompt", n)
	switch {
	case content == nil && !calls:
		r.report(partPrompt, "message %d of the prompt has no content", n)
	case content == nil:
	case content[0] == '"':
		r.text(partPrompt, what, content)
	case content[0] == '[':
		var list []json.RawMessage
		json.Unmarshal(content, &list)
		for i, one := range list {
			kindOf := member(one, []string{"type"})
			if kindOf == nil || kindOf[0] != '"' {
				r.report(partPrompt, "%s: its part %d has no type: want objects such as {\"type\": \"text\", \"text\": …}", what, i+1)
			} else if text := member(one, []string{"text"}); text != nil {
				r.text(partPrompt, what, text)
			}
		}
	default:
		r.report(partPrompt, "%s is %s: want a text or a list of parts", what, aKind(content))
	}
}

// message makes a chat message of a JSON text.
func message(role string, content json.RawMessage) json.RawMessage {
	m := make([]byte, 0, len(content)+32)
	m = append(append(m, `{"role":"`+role+`","content":`...), content...)
	return append(m, '}')
}

// addSystem puts the row's system text, or the set's, before the chat.
func (r *row) addSystem(has bool) {
	value := r.values[partSystem]
	switch {
	case value != nil && has:
		r.report(partSystem, "there is a system text, and the prompt begins with a system message: want one of them")
	case value != nil:
		r.text(partSystem, "the system text", value)
	case r.system == "" || has:
		return
	default:
		value, _ = json.Marshal(r.system)
	}
	r.task.Messages = append([]json.RawMessage{message("system", value)}, r.task.Messages...)
}

// rest makes all but the chat.
func (r *row) rest() {
	t, v := &r.task, &r.values
	t.Answer = v[partAnswer]
	if v[partID] != nil {
		t.ID = r.id(v[partID])
	}
	if v[partLevel] != nil {
		t.Level = r.level(v[partLevel])
	}
	t.Files, t.Hidden = r.files(partFiles), r.files(partHidden)
	if v[partTest] != nil {
		t.Test = r.text(partTest, "the test", v[partTest])
	}
	if v[partTurnsMax] != nil {
		t.TurnsMax = int(r.number(partTurnsMax, "a whole number from 1", 1, 1e6, true))
	}
	if v[partTimeoutS] != nil {
		t.TimeoutS = r.number(partTimeoutS, "seconds above 0", 1e-3, 1e8, false)
	}
}

// idMax bounds an id, in bytes: it is in records and file names.
const idMax = 512

func (r *row) id(value json.RawMessage) string {
	if k := kind(value); k == "number" {
		if _, err := strconv.ParseInt(string(value), 10, 64); err != nil {
			r.report(partID, "the id is %.40s: want a text or a whole number", value)
		}
		return string(value)
	}
	id := r.text(partID, "the id", value)
	switch {
	case value[0] != '"':
	case id == "" || len(id) > idMax:
		r.report(partID, "the id has %d bytes: want 1 to %d", len(id), idMax)
	case strings.ContainsAny(id, "\n\r"):
		r.report(partID, "the id %.40q has a line break", id)
	}
	return id
}

// levelMax bounds levels: more are no levels.
const levelMax = 10_000

// level reads a difficulty: 3, 3.0, "3" and "Level 3" are the same.
func (r *row) level(value json.RawMessage) int {
	word := string(value)
	if value[0] == '"' {
		word = strings.TrimSpace(r.text(partLevel, "the level", value))
		if _, err := strconv.ParseFloat(word, 64); err != nil {
			before := strings.TrimRight(word, "0123456789")
			if last, _ := utf8.DecodeLastRuneInString(before); !strings.ContainsRune(".,-+", last) {
				word = word[len(before):]
			}
		}
	}
	level, err := strconv.ParseFloat(word, 64)
	if err != nil || level < 0 || level > levelMax || level != math.Trunc(level) {
		r.report(partLevel, "the level is %.40s: want a whole number from 0 to %d, or a text that ends in one", value, levelMax)
		return 0
	}
	return int(level)
}

func (r *row) number(part int, want string, low, high float64, whole bool) float64 {
	value := r.values[part]
	n, err := strconv.ParseFloat(string(value), 64)
	if err != nil || n < low || n > high || whole && n != math.Trunc(n) {
		r.report(part, "%s is %.40s: want %s", r.whole[part], value, want)
		return 0
	}
	return n
}

// files reads an object of texts by path.
func (r *row) files(part int) map[string][]byte {
	value := r.values[part]
	if value == nil {
		return nil
	}
	if value[0] != '{' {
		r.report(part, "%s is %s: want an object of texts by path", r.whole[part], aKind(value))
		return nil
	}
	files := map[string][]byte{}
	members(value, func(raw []byte, content json.RawMessage) bool {
		name := string(raw)
		if string(content) == "null" { // a member that other rows of a Parquet file have
			return true
		}
		at, err := place(r.work, name)
		if err != nil {
			r.report(part, "%s: %v", r.whole[part], err)
			return true
		}
		if _, twice := files[at]; twice {
			r.report(part, "%s: two files are %s", r.whole[part], at)
		}
		if content[0] != '"' {
			r.report(part, "%s: the file %.80q is %s: want a text", r.whole[part], name, aKind(content))
			return true
		}
		var text string
		json.Unmarshal(content, &text)
		files[at] = []byte(text)
		return true
	})
	for at := range files {
		for folder := path.Dir(at); folder != "/"; folder = path.Dir(folder) {
			if _, file := files[folder]; file {
				r.report(part, "%s: %s is a file, and the folder of %s", r.whole[part], folder, at)
			}
		}
	}
	return files
}

// place is where a file lies in the sandbox.
func place(work, name string) (string, error) {
	at := name
	if !strings.HasPrefix(name, "/") {
		at = work + "/" + name
	}
	clean := path.Clean(at)
	switch {
	case name == "" || strings.HasSuffix(name, "/") || clean == "/" || clean == work:
		return "", fmt.Errorf("the path %.80q names no file", name)
	case strings.IndexByte(name, 0) >= 0:
		return "", fmt.Errorf("the path %.80q has a NUL", name)
	case clean != at && strings.Contains("/"+name+"/", "/../"):
		return "", fmt.Errorf("the path %.80q has \"..\": want one that says where the file lies", name)
	}
	return clean, nil
}
