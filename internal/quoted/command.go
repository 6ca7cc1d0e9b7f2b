package quoted

import (
	"regexp"
	"slices"
	"strings"
)

// Commands splits a line of shell into its simple commands, each as its words, without quotes,
// assignments, redirections and comments. The commands within $(…) come after the one they are in.
// A remark after two spaces or more, or after #, is no part of a command. Where a remark is itself a
// command, it is one more of them. Brackets around what may be left out go, and so do words that are
// an ellipsis alone.
func Commands(line string) (commands [][]string) {
	r := reader{rest: []rune(line)}
	r.read()
	for _, words := range append(r.commands, r.inner...) {
		if words = plain(words); len(words) > 0 {
			commands = append(commands, words)
		}
	}
	return commands
}

// reader takes a line of shell apart.
type reader struct {
	rest            []rune
	word            strings.Builder
	some            bool // a word has begun
	skip            bool // the next word is a redirection's file
	words           []string
	commands, inner [][]string
}

// read takes all of the line.
func (r *reader) read() {
	for len(r.rest) > 0 {
		c := r.rest[0]
		switch {
		case c == '\'' || c == '"':
			r.quoted(c)
			continue
		case c == '\\' && len(r.rest) > 1:
			r.add(r.rest[1])
			r.rest = r.rest[1:]
		case c == '$' && len(r.rest) > 1 && r.rest[1] == '(':
			r.substitution()
			continue
		case c == ' ' || c == '\t':
			r.endWord()
			if len(r.rest) > 1 && (r.rest[1] == ' ' || r.rest[1] == '#') {
				r.remark()
				return
			}
		case c == '>' || c == '<':
			r.redirection()
			continue
		case strings.ContainsRune("|&;()`", c):
			r.endCommand()
		default:
			r.add(c)
		}
		r.rest = r.rest[1:]
	}
	r.endCommand()
}

func (r *reader) add(c rune) {
	r.word.WriteRune(c)
	r.some = true
}

func (r *reader) endWord() {
	if r.some && !r.skip {
		r.words = append(r.words, r.word.String())
	}
	if r.some {
		r.skip = false
	}
	r.word.Reset()
	r.some = false
}

func (r *reader) endCommand() {
	r.endWord()
	r.skip = false
	if len(r.words) > 0 {
		r.commands = append(r.commands, r.words)
	}
	r.words = nil
}

// quoted takes what stands in quotes as part of a word.
func (r *reader) quoted(mark rune) {
	r.some = true
	for r.rest = r.rest[1:]; len(r.rest) > 0 && r.rest[0] != mark; {
		if mark == '"' && len(r.rest) > 1 && r.rest[0] == '$' && r.rest[1] == '(' {
			r.substitution()
			continue
		}
		r.add(r.rest[0])
		r.rest = r.rest[1:]
	}
	if len(r.rest) > 0 {
		r.rest = r.rest[1:]
	}
}

// substitution takes $(…) as "…", and its commands as commands.
func (r *reader) substitution() {
	depth, end := 0, len(r.rest)
	for i, c := range r.rest {
		if c == '(' {
			depth++
		}
		if c == ')' {
			if depth--; depth == 0 {
				end = i
				break
			}
		}
	}
	r.inner = append(r.inner, Commands(string(r.rest[2:end]))...)
	r.rest = r.rest[min(end+1, len(r.rest)):]
	r.add('…')
}

// redirection leaves out > and < with what they are to.
func (r *reader) redirection() {
	if strings.Trim(r.word.String(), "0123456789") == "" { // the number of a stream
		r.word.Reset()
		r.some = false
	}
	r.endWord()
	for len(r.rest) > 0 && strings.ContainsRune("<>&", r.rest[0]) {
		r.rest = r.rest[1:]
	}
	r.skip = true
}

// remark ends the command. What is remarked may be a command.
func (r *reader) remark() {
	r.endCommand()
	text := strings.TrimSpace(string(r.rest))
	if at := said.FindStringIndex(text); at != nil && strings.Trim(text[:at[0]], "# ") == "" {
		r.inner = append(r.inner, Commands(text[at[0]:])...)
	} else if text != "" && text[0] != '#' && operator.MatchString(text) {
		r.inner = append(r.inner, Commands(text)...) // spaces that only align
	}
}

var (
	said       = regexp.MustCompile(`go (run|test) \./|headway [a-z]+ `)
	operator   = regexp.MustCompile(`^(&&|\|\||[|;>])`)
	assignment = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*=`)
)

// before are words that a command may have before it.
var before = map[string]bool{"sudo": true, "nohup": true, "exec": true, "time": true, "env": true, "if": true, "then": true, "else": true, "do": true, "!": true}

// plain leaves out what a command does not get as a word.
func plain(words []string) (out []string) {
	for _, word := range words {
		if len(out) == 0 && (assignment.MatchString(word) || before[word]) {
			continue
		}
		word = strings.TrimPrefix(word, "[")
		if !strings.Contains(word, "[") {
			word = strings.TrimSuffix(word, "]")
		}
		if word != "" && word != "…" && word != "..." {
			out = append(out, word)
		}
	}
	return out
}

// Headway returns the arguments of a command that is this program by one of its names. Those are
// headway, a path to it, go run ./cmd/headway, or either after -- of another program.
func Headway(words []string) (arguments []string, is bool) {
	for i, word := range words {
		if i > 0 && words[i-1] != "--" {
			continue
		}
		if word == "headway" || strings.HasSuffix(word, "/headway") && !strings.HasSuffix(word, "cmd/headway") {
			return words[i+1:], true
		}
	}
	return goRun(words, "./cmd/headway")
}

// Lab returns the arguments of a command that is the program of the studies: go run ./cmd/lab.
func Lab(words []string) (arguments []string, is bool) { return goRun(words, "./cmd/lab") }

// World returns the arguments of a command line of worlds: go run ./cmd/lab/world soak.
func World(words []string) (arguments []string, is bool) { return goRun(words, "./cmd/lab/world") }

// goRun returns the arguments that go run hands to the program of a folder.
func goRun(words []string, folder string) (arguments []string, is bool) {
	if len(words) > 1 && words[0] == "go" && words[1] == "run" {
		if i := slices.Index(words, folder); i > 0 {
			return words[i+1:], true
		}
	}
	return nil, false
}

// placeholder stands for something of the reader's: FILE, KEY=VALUE, http://HOST, run-….
var placeholder = regexp.MustCompile(`[A-Z]{2}|\b[A-Z]\b|[…$*{}<>@]|\.\.\.`)

// capitals are names of files that stand for nothing else.
var capitals = strings.NewReplacer("README", "", "ARCHITECTURE", "", "AGENTS", "", "LICENSE", "")

// Placeholder says whether a word, or a part of it, stands for something of the reader's.
func Placeholder(word string) bool { return placeholder.MatchString(word) }

// Paths returns the paths into the repository that a word names. That is the word itself or its part
// after an equals sign, where it begins with one of the repository's top folders and a slash.
func Paths(word string, folders []string) (paths []string) {
	for part := range strings.FieldsFuncSeq(word, func(c rune) bool { return strings.ContainsRune("=,;()'\"", c) }) {
		part = strings.TrimPrefix(part, "./")
		for _, folder := range folders {
			if strings.HasPrefix(part, folder+"/") && !Placeholder(capitals.Replace(part)) {
				paths = append(paths, part)
			}
		}
	}
	return paths
}
