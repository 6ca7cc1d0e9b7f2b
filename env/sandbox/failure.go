package sandbox

import (
	"errors"
	"fmt"
)

// Class says what went wrong with code that was to run, in one word.
type Class string

// The limits that a command may meet. They are of a Result: it ran, and this is how it ended.
const (
	OutOfMemory Class = "out_of_memory"
	Timeout     Class = "timeout"
	Processes   Class = "processes"
	Disk        Class = "disk"
	Output      Class = "output"
)

// Failures of boxes, and of verifiers. They are of a Failure: there is no result.
const (
	// StartFailed: the box did not come up. StartTimeout: not in time.
	StartFailed  Class = "start_failed"
	StartTimeout Class = "start_timeout"
	// Quota: the backend has no room for another box.
	Quota Class = "quota"
	// BackendDown: the maker of boxes does not answer, or is held to be sick.
	BackendDown Class = "backend_down"
	// Lost: a box that was there is gone.
	Lost Class = "lost"
	// VerifierCrash: the verifier ended without a verdict. VerifierTimeout: gave none in time.
	// VerifierProtocol: gave one that is none, such as a reward that is no number.
	VerifierCrash    Class = "verifier_crash"
	VerifierTimeout  Class = "verifier_timeout"
	VerifierProtocol Class = "verifier_protocol"
	// Protocol: an answer of a box or an environment elsewhere breaks its protocol.
	Protocol Class = "protocol"
	// Refused: no driver can serve the request, such as a NUL in an argument or a path that is not absolute.
	Refused Class = "refused"
	// BadTask: the task itself cannot be played or judged, such as one without an answer. It says nothing of
	// machines, and another attempt would fail likewise.
	BadTask Class = "bad_task"
)

// Kind is what there is to know of a class.
type Kind struct {
	Class Class
	// Limit: a command met it. Again: the same may go well at another try.
	Limit, Again bool
}

// Classes has all of them, limits first, each with whether asking again may help.
var Classes = []Kind{
	{OutOfMemory, true, false}, {Timeout, true, false}, {Processes, true, false}, {Disk, true, false}, {Output, true, false},
	{StartFailed, false, true}, {StartTimeout, false, true}, {Quota, false, true}, {BackendDown, false, true}, {Lost, false, true},
	{VerifierCrash, false, true}, {VerifierTimeout, false, true}, {VerifierProtocol, false, true}, {Protocol, false, true},
	{Refused, false, false}, {BadTask, false, false},
}

// Kind is what there is to know of the class; the zero value of one that is not known.
func (c Class) Kind() Kind {
	for _, kind := range Classes {
		if kind.Class == c {
			return kind
		}
	}
	return Kind{}
}

// Failure is an error that says what class it is of.
type Failure struct {
	Class Class
	// Op is what was being done: create, run, read, write, reset, close, verify.
	Op string
	// ID of the box, empty where there is none.
	ID  ID
	Err error
}

// Fail makes a Failure.
func Fail(class Class, op string, id ID, format string, args ...any) *Failure {
	return &Failure{class, op, id, fmt.Errorf(format, args...)}
}

func (f *Failure) Error() string {
	if f.ID == "" {
		return fmt.Sprintf("sandbox: %s: %s: %v", f.Op, f.Class, f.Err)
	}
	return fmt.Sprintf("sandbox: %s %s: %s: %v", f.Op, f.ID, f.Class, f.Err)
}

func (f *Failure) Unwrap() error { return f.Err }

// ClassOf is the class of an error, empty for one that wraps no Failure.
func ClassOf(err error) Class {
	if failure, ok := errors.AsType[*Failure](err); ok {
		return failure.Class
	}
	return ""
}
