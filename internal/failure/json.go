package failure

import "errors"

// Fault is one thing wrong with what the caller gave, by its parts.
type Fault struct {
	// File, Line and Column are where it was given; Line and Column count from 1, 0 where unknown.
	File   string `json:"file,omitempty"`
	Line   int    `json:"line,omitempty"`
	Column int    `json:"column,omitempty"`
	// Key is the dotted path of the document's key, or the flag.
	Key string `json:"key,omitempty"`
	// Value is what was given, as written.
	Value string `json:"value,omitempty"`
	// Problem says what is wrong, Allowed what is accepted.
	Problem string `json:"problem,omitempty"`
	Allowed string `json:"allowed,omitempty"`
	// Nearest is the known key or value that was probably meant.
	Nearest string `json:"nearest,omitempty"`
}

// Document is what a command prints to standard output with --json where it fails before it prints
// its result.
type Document struct {
	Error Parts `json:"error"`
}

// Parts are an error's. Code is usage (exit code 2) or failure.
type Parts struct {
	Code     string `json:"code"`
	ExitCode int    `json:"exit_code"`
	// Message says what is wrong and where, Hint what to do.
	Message string `json:"message"`
	Hint    string `json:"hint,omitempty"`
	// Faults are the single mistakes, where they have places and keys.
	Faults []Fault `json:"faults,omitempty"`
}

// DocumentOf is an error as the document that a command ending with that exit code prints.
func DocumentOf(err error, exit int) Document {
	var d Document
	d.Error.Code, d.Error.ExitCode, d.Error.Message = "failure", exit, err.Error()
	if exit == ExitUsage {
		d.Error.Code = "usage"
	}
	if failed, is := errors.AsType[*Error](err); is {
		d.Error.Hint = failed.Hint
	}
	d.Error.Faults = faultsOf(err)
	return d
}

// faulty is an error that knows all mistakes, refusal one that knows its key.
type faulty interface {
	error
	Faults() []Fault
}

type refusal interface {
	error
	Fault() (key, value, allowed string)
}

// faultsOf asks the first error of the chain that knows its parts.
func faultsOf(err error) []Fault {
	if many, is := errors.AsType[faulty](err); is {
		return many.Faults()
	}
	one, is := errors.AsType[refusal](err)
	if !is {
		return nil
	}
	key, value, allowed := one.Fault()
	return []Fault{{Key: key, Value: value, Problem: "is not allowed", Allowed: allowed}}
}
