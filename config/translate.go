package config

import (
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/printable"
)

// Translated is a document of another framework as one of Headway's.
type Translated struct {
	// Text is the document. Every line names the keys that it comes from, and comments at its end name the keys that it leaves out.
	Text []byte
	// Carried and Left count the keys of the framework's document that Text says, and those that it leaves out.
	Carried, Left int
}

// TranslateFile translates the document of a framework, of which verl is known. The error is an [Errors] where the
// document is to blame.
func TranslateFile(framework, path string) (Translated, error) {
	if framework != "verl" {
		return Translated{}, fmt.Errorf("config: no documents of %q are known", framework)
	}
	text, err := readFile(path)
	if err != nil {
		return Translated{}, err
	}
	return translateVerl(path, text)
}

// line is one value of a document that is written, with a comment that says where it comes from.
type line struct {
	key, value, comment string
	// from is the key of the framework's document that is to blame for a value that is refused, "" for none.
	from string
}

// writtenLines prints lines as a document, in the schema's order. A list of sections gets one section.
func writtenLines(lines []line) string {
	var text strings.Builder
	writeLines(&text, lines, document, "", "")
	return text.String()
}

func writeLines(text *strings.Builder, lines []line, fields []field, path, indent string) {
	first := indent
	for _, known := range fields {
		key := join(path, known.key)
		inside := slices.ContainsFunc(lines, func(l line) bool { return strings.HasPrefix(l.key, key+".") })
		at := slices.IndexFunc(lines, func(l line) bool { return l.key == key })
		switch {
		case inside && known.kind.Kind() == reflect.Slice:
			fmt.Fprintf(text, "%s%s:\n", first, known.key)
			writeLines(text, lines, known.fields, key+".0", indent+"  - ")
		case inside:
			fmt.Fprintf(text, "%s%s:\n", first, known.key)
			writeLines(text, lines, known.fields, key, strings.Repeat(" ", len(indent))+"  ")
		case at >= 0:
			fmt.Fprintf(text, "%s%s: %s # %s\n", first, known.key, lines[at].value, lines[at].comment)
		default:
			continue
		}
		first = strings.Repeat(" ", len(indent)) // behind the dash of a list's element
	}
}

// leftOut is why keys below a prefix are left out.
type leftOut struct{ prefix, reason string }

// writtenLeft lists the keys that are left out by the reason of their longest prefix, as comments.
func (h *hydra) writtenLeft(reasons []leftOut) string {
	groups := make([][]string, len(reasons))
	var others []string
	for _, key := range h.unread() {
		best := -1
		for i, r := range reasons {
			if below(key, r.prefix) && (best < 0 || len(r.prefix) > len(reasons[best].prefix)) {
				best = i
			}
		}
		if best < 0 {
			others = append(others, key)
			continue
		}
		groups[best] = append(groups[best], key)
	}
	var text strings.Builder
	for i := range groups {
		if slices.ContainsFunc(reasons[:i], func(r leftOut) bool { return r.reason == reasons[i].reason }) {
			continue // said with the first of this reason
		}
		var names []string
		for k := i; k < len(groups); k++ {
			if reasons[k].reason == reasons[i].reason {
				names = append(names, h.together(groups[k], reasons[k].prefix)...)
			}
		}
		writeLeft(&text, reasons[i].reason, names)
	}
	writeLeft(&text, "No key of Headway says this.", h.together(others, ""))
	return text.String()
}

// together names keys below a prefix. A section of which no key is carried over stands for its keys.
func (h *hydra) together(keys []string, prefix string) []string {
	var names []string
	for _, key := range keys {
		name := key
		if within, is := strings.CutPrefix(key, prefix+"."); is || prefix == "" {
			if prefix == "" {
				within = key
			}
			first, _, deeper := strings.Cut(within, ".")
			section := join(prefix, first)
			if deeper && !h.readBelow(section) {
				name = section + ".*"
			}
		}
		if name = printable.Text(name, len(name)); !slices.Contains(names, name) {
			names = append(names, name)
		}
	}
	return names
}

// readBelow reports whether a key of a section is carried over.
func (h *hydra) readBelow(section string) bool {
	for key := range h.read {
		if below(key, section) {
			return true
		}
	}
	return false
}

// writeLeft writes names behind the reason for which they are left out.
func writeLeft(text *strings.Builder, reason string, names []string) {
	if len(names) > 0 {
		fmt.Fprintf(text, "#\n# %s\n", reason)
		writeWrapped(text, names)
	}
}

// commentColumns is how wide a comment with names is.
const commentColumns = 100

// writeWrapped writes names as lines of a comment.
func writeWrapped(text *strings.Builder, names []string) {
	have := "#  "
	for i, name := range names {
		if i < len(names)-1 {
			name += ","
		}
		if len(have)+1+len(name) > commentColumns && have != "#  " {
			text.WriteString(have + "\n")
			have = "#  "
		}
		have += " " + name
	}
	text.WriteString(have + "\n")
}

// checkTranslated resolves what was written. What it refuses is placed at the keys of the framework's document.
func (h *hydra) checkTranslated(text string, lines []line) error {
	parsed, err := Parse(h.file, []byte(text))
	if err == nil {
		_, err = parsed.Resolve()
	}
	refused, is := err.(Errors)
	if err == nil || !is {
		return err
	}
	for _, e := range refused {
		at := slices.IndexFunc(lines, func(l line) bool { return l.key == e.Key && l.from != "" })
		if at < 0 {
			h.errs = append(h.errs, &Error{File: h.file, Key: e.Key, Value: e.Value, Problem: e.Problem, Allowed: e.Allowed})
			continue
		}
		h.fail(h.leaves[lines[at].from], lines[at].from, fmt.Sprintf("makes %s %s, which %s", e.Key, e.Value, e.Problem), e.Allowed)
	}
	return h.errs.in(h.text).orNil()
}
