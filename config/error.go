package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/printable"
)

// Error is one thing wrong with a document. Its text names the place, the key,
// the bad value, what is allowed and, where one is near, the key that was
// probably meant.
type Error struct {
	// File is the document's name, "--set" for an override, "" for a Config
	// built by a program.
	File string
	// Line and Column are where in the file, from 1; 0 when unknown.
	Line, Column int
	// Key is the dotted path, such as rollout.group_size; "" for the document.
	Key string
	// Value is what was given, as written; "" when nothing was.
	Value string
	// Problem says what is wrong in a few words, such as "unknown key".
	Problem string
	// Allowed says what is accepted, "" where Problem says it all.
	Allowed string
	// Nearest is the known key or value that was probably meant, "" for none.
	Nearest string
	// Cause is the error underneath, nil for none.
	Cause error
	// derived: nobody gave the key, nor a section or list that it is in.
	derived bool
	// replicated: the key is of an engine that an entry with a count or a range stands for.
	replicated bool
	// document is the text that Line and Column are of, nil where unknown.
	document []byte
}

// userinfo is what an address says before its host: a password, as a rule. A slash in one that was not
// encoded belongs to it.
var userinfo = regexp.MustCompile(`://([^/\s"]*:[^\s"]*|[^/\s"]*)@`)

// Error renders the error on one line, without passwords of addresses. It escapes what a terminal would obey.
func (e *Error) Error() string {
	var text strings.Builder
	switch {
	case e.Line > 0:
		fmt.Fprintf(&text, "%s:%d:%d: ", e.File, e.Line, e.Column)
	case e.File != "":
		text.WriteString(e.File + ": ")
	}
	if e.Key != "" {
		text.WriteString(e.Key + ": ")
	}
	if e.Value != "" {
		text.WriteString(e.Value + " ")
	}
	text.WriteString(e.Problem)
	if e.Nearest != "" {
		fmt.Fprintf(&text, ", did you mean %s?", e.Nearest)
	}
	if e.Allowed != "" {
		text.WriteString(" (allowed: " + e.Allowed + ")")
	}
	line := userinfo.ReplaceAllString(text.String(), "://REDACTED@")
	return printable.Text(line, len(line))
}

// Unwrap returns the cause.
func (e *Error) Unwrap() error { return e.Cause }

// UsageFault marks the error as the caller's: a command ends with exit code 2.
func (e *Error) UsageFault() {}

// Faults returns the error by its parts, without passwords of addresses.
func (e *Error) Faults() []failure.Fault {
	return []failure.Fault{{File: e.File, Line: e.Line, Column: e.Column, Key: e.Key, Value: userinfo.ReplaceAllString(e.Value, "://REDACTED@"),
		Problem: e.Problem, Allowed: e.Allowed, Nearest: e.Nearest}}
}

// Errors are all the things wrong with a document, in the order in which a
// reader meets them. Every element is reachable by errors.As.
type Errors []*Error

// errorsShownMax bounds a message: past it nobody reads on.
const errorsShownMax = 20

// Error renders one error a line.
func (e Errors) Error() string { return e.rendered((*Error).Error) }

// rendered joins the errors, each rendered by one function, up to so many.
func (e Errors) rendered(one func(*Error) string) string {
	lines := make([]string, 0, len(e))
	for i, err := range e {
		if i == errorsShownMax {
			lines = append(lines, fmt.Sprintf("and %d more", len(e)-i))
			break
		}
		lines = append(lines, one(err))
	}
	return strings.Join(lines, "\n")
}

// Unwrap returns the errors one by one.
func (e Errors) Unwrap() []error {
	all := make([]error, len(e))
	for i, err := range e {
		all[i] = err
	}
	return all
}

// UsageFault marks the errors as the caller's.
func (e Errors) UsageFault() {}

// Faults returns the errors by their parts, all of them.
func (e Errors) Faults() []failure.Fault {
	var faults []failure.Fault
	for _, err := range e {
		faults = append(faults, err.Faults()...)
	}
	return faults
}

// withoutFollowing leaves out values that were derived from others, where others are wrong that were given: a default
// is sound by itself.
func (e Errors) withoutFollowing() Errors {
	if !slices.ContainsFunc(e, func(err *Error) bool { return !err.derived }) {
		return e
	}
	return slices.DeleteFunc(e, func(err *Error) bool { return err.derived })
}

// orNil sorts by place and turns no errors into a nil error.
func (e Errors) orNil() error {
	if len(e) == 0 {
		return nil
	}
	slices.SortStableFunc(e, func(a, b *Error) int {
		if a.Line != b.Line {
			return a.Line - b.Line
		}
		return a.Column - b.Column
	})
	return e
}

// Refuse returns an error about a key, placed where the document gave it. Commands
// use it for relations that only they can check, such as a context too short for a
// task's prompts. The problem follows the value in the message; allowed may be
// empty.
func (c Config) Refuse(key, problem, allowed string) error {
	return Errors{c.problem(key, "", problem, allowed)}
}
