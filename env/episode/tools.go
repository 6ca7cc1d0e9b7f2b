package episode

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/headway-rl/headway/env/sandbox"
)

// Names of tools.
const (
	shell     = "shell"
	python    = "python"
	writeFile = "write_file"
	readFile  = "read_file"
)

// Bounds of what a policy may hand in and have back, in bytes.
const (
	argumentsMax = 1 << 20
	// programMax is below what the kernel takes as one argument.
	programMax = 120 << 10
	pathMax    = 4096
	fileMax    = 1 << 20
)

// tool is one that a policy may call. All parameters are texts, and all must be given.
type tool struct {
	name, description string
	parameters        []parameter
}

type parameter struct {
	name, description string
	most              int
}

var toolTable = []tool{
	{shell, "Run a command with /bin/sh in the sandbox and return its output. Each command starts in " + sandbox.Work + ", where files stay; processes end with the command.",
		[]parameter{{"command", "The command line.", programMax}}},
	{python, "Run a Python program in the sandbox and return its output. Nothing but files stays from one call to the next.",
		[]parameter{{"code", "The program.", programMax}}},
	{writeFile, "Write a file in the sandbox, in place of what is there.",
		[]parameter{{"path", "Where, absolute or from " + sandbox.Work + ".", pathMax}, {"content", "The whole text of the file.", argumentsMax}}},
	{readFile, "Read a text file in the sandbox.",
		[]parameter{{"path", "Which, absolute or from " + sandbox.Work + ".", pathMax}}},
}

// ToolNames are the tools of a sandbox, in the order in which policies are told of them.
func ToolNames() []string {
	var names []string
	for _, t := range toolTable {
		names = append(names, t.name)
	}
	return names
}

func find(name string) tool {
	return toolTable[slices.IndexFunc(toolTable, func(t tool) bool { return t.name == name })]
}

// schema describes tools in OpenAI's shape; nil for none.
func schema(names []string) json.RawMessage {
	type object = map[string]any
	var described []object
	for _, t := range toolTable {
		if !slices.Contains(names, t.name) {
			continue
		}
		properties, required := object{}, []string{}
		for _, p := range t.parameters {
			properties[p.name] = object{"type": "string", "description": p.description}
			required = append(required, p.name)
		}
		described = append(described, object{"type": "function", "function": object{
			"name": t.name, "description": t.description,
			"parameters": object{"type": "object", "properties": properties, "required": required, "additionalProperties": false},
		}})
	}
	if described == nil {
		return nil
	}
	text, err := json.Marshal(described)
	if err != nil {
		panic(err) // texts and maps of texts are always JSON
	}
	return text
}

// parseArguments reads what the policy wrote, and says what is wrong with it in words that it can act on.
func parseArguments(call Call) (map[string]string, error) {
	t := find(call.Name)
	if len(call.Arguments) > argumentsMax {
		return nil, fmt.Errorf("the arguments have %d bytes, and may have %d", len(call.Arguments), argumentsMax)
	}
	var given map[string]json.RawMessage
	if err := json.Unmarshal([]byte(call.Arguments), &given); err != nil || given == nil {
		return nil, fmt.Errorf("the arguments of %s must be one JSON object with %s: %w", t.name, t.words(), cause(err))
	}
	arguments := map[string]string{}
	for _, p := range t.parameters {
		value, ok := given[p.name]
		var text *string
		switch err := json.Unmarshal(value, &text); {
		case !ok:
			return nil, fmt.Errorf("%s needs %s, and %q is missing", t.name, t.words(), p.name)
		case err != nil || text == nil:
			return nil, fmt.Errorf("%q of %s must be a text", p.name, t.name)
		case len(*text) > p.most:
			return nil, fmt.Errorf("%q of %s has %d bytes, and may have %d: write a file in parts instead", p.name, t.name, len(*text), p.most)
		case p.name != "content" && strings.ContainsRune(*text, 0):
			return nil, fmt.Errorf("%q of %s has a NUL in it, which no program can be given", p.name, t.name)
		case p.name == "path" && *text == "":
			return nil, fmt.Errorf("%q of %s is empty", p.name, t.name)
		}
		arguments[p.name] = *text
		delete(given, p.name)
	}
	if len(given) > 0 {
		return nil, fmt.Errorf("%s takes %s, and not %q", t.name, t.words(), slices.Sorted(maps.Keys(given)))
	}
	return arguments, nil
}

func cause(err error) error {
	if err == nil {
		return errors.New("it is null")
	}
	return err
}

// words names a tool's parameters.
func (t tool) words() string {
	var names []string
	for _, p := range t.parameters {
		names = append(names, fmt.Sprintf("%q", p.name))
	}
	return strings.Join(names, " and ")
}

// mistake answers an error of the sandbox that is the policy's own doing; any other comes back.
func mistake(err error) (reply, error) {
	class := sandbox.ClassOf(err)
	switch {
	case class.Kind().Limit:
		return reply{fmt.Sprintf("error: the sandbox's limit %s is met: %s", class, brief(err.Error())), class}, nil
	case class == sandbox.Refused || isFileError(err):
		return reply{content: "error: " + brief(err.Error())}, nil
	}
	return reply{}, err
}

// isFileError reports whether an error is about a file alone. One with a class is about the box.
func isFileError(err error) bool {
	if sandbox.ClassOf(err) != "" {
		return false
	}
	of := []error{fs.ErrNotExist, fs.ErrInvalid, fs.ErrPermission, fs.ErrExist, sandbox.ErrTooLarge}
	return slices.ContainsFunc(of, func(of error) bool { return errors.Is(err, of) })
}

// describe is a command's end as the policy reads it: its output, its complaints, and how it ended.
func describe(r sandbox.Result, most int) string {
	var b strings.Builder
	section := func(text []byte, cut bool, title string, room int) {
		if len(text) == 0 {
			return
		}
		if b.Len() > 0 && !strings.HasSuffix(b.String(), "\n") {
			b.WriteByte('\n')
		}
		b.WriteString(title)
		b.WriteString(shorten(valid(text), room))
		if cut {
			b.WriteString("\n[there was more, which is not kept]")
		}
	}
	forErrors := min(len(r.Stderr), most/4)
	section(r.Stdout, r.StdoutCut, "", most-forErrors)
	section(r.Stderr, r.StderrCut, "[standard error]\n", max(forErrors, most-len(r.Stdout)))
	var end string
	switch {
	case r.Limit != "":
		end = fmt.Sprintf("[exit code %d; the sandbox's limit was met: %s]", r.Exit, r.Limit)
	case r.Exit != 0:
		end = fmt.Sprintf("[exit code %d]", r.Exit)
	case b.Len() == 0:
		end = "[no output]"
	}
	section([]byte(end), false, "", len(end))
	return b.String()
}

// valid is text of any bytes: what is no UTF-8 becomes U+FFFD.
func valid(text []byte) string { return strings.ToValidUTF8(string(text), "\uFFFD") }

// shorten leaves out the middle of a text that has more bytes than it may, and says so.
func shorten(text string, most int) string {
	if len(text) <= most {
		return text
	}
	head, tail := most*2/3, len(text)-most/3
	for head > 0 && !utf8.RuneStart(text[head]) {
		head--
	}
	for tail < len(text) && !utf8.RuneStart(text[tail]) {
		tail++
	}
	return fmt.Sprintf("%s\n[… %d bytes left out …]\n%s", text[:head], tail-head, text[tail:])
}
