package program

import (
	"encoding/json"
	"errors"
	"fmt"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/outcome"
)

// Rules that the driver itself finds broken. Those of the checker have names of their own.
const (
	Stuck   = "stuck"   // the run did not go on after everything was healed
	Panic   = "panic"   // a panic, or a fault of Go's runtime, ended the program
	Race    = "race"    // the race detector found two goroutines at one variable
	Hang    = "hang"    // the world took longer than its limit
	Crash   = "crash"   // a signal, or an exit code without a meaning, ended the program
	Answer  = "answer"  // the program's answer is not one line of JSON, or contradicts its exit code
	Harness = "harness" // the harness itself failed: nothing is known of the run
)

// raceExit is the exit code of a process in which the race detector has found something: GORACE in environment.
const raceExit = 66

// Result is the answer of one world, and the failure in it.
type Result struct {
	outcome.Outcome
	// Answered says that the outcome is the program's own. Without it, seed and plan alone are known.
	Answered bool
	// Rule is the rule that is broken: the first violation's, or one of the driver's own. It is "" for a clean run.
	Rule string
	// Text says in a line how it is broken.
	Text string
	// Stdout and Stderr are what the program printed, or the beginning and the end of it.
	Stdout, Stderr string
	// Wall is how long the process took.
	Wall time.Duration
}

// Breaks reports whether a run breaks the rule, be it as the first one or as a later one.
func (r Result) Breaks(rule string) bool {
	return rule != "" && (r.Rule == rule || slices.ContainsFunc(r.Violations, func(v outcome.Violation) bool { return v.Rule == rule }))
}

// panics finds the line by which Go's runtime begins to say why it ends a program.
var panics = regexp.MustCompile(`(?m)^(panic: |fatal error: |unexpected fault address|SIG[A-Z]+: ).*$`)

// judge reads how a process ended and what it answered.
func judge(e ending, limit time.Duration, stdout, stderr string) Result {
	r := Result{Stdout: stdout, Stderr: stderr}
	unread := one(stdout, &r.Outcome)
	if r.Answered = unread == nil; !r.Answered {
		r.Outcome = outcome.Outcome{}
	}
	said := panics.FindString(stderr)
	meant := e.signal == 0 && (e.code == outcome.Clean || e.code == outcome.Broken)
	switch {
	case e.late:
		r.Rule, r.Text = Hang, fmt.Sprintf("the world took longer than %s; the list of its goroutines is kept", limit)
	case meant && unread == nil:
		r.Rule, r.Text = answered(e.code, r.Outcome)
	case meant:
		r.Rule, r.Text = Answer, unread.Error()
	case e.code == raceExit:
		r.Rule, r.Text = Race, "the race detector found two goroutines at one variable"
	case said != "":
		r.Rule, r.Text = Panic, strings.TrimSpace(said)
	case e.signal != 0:
		r.Rule, r.Text = Crash, "a signal ended the program: "+e.signal.String()
	case e.code == outcome.Harness:
		r.Rule, r.Text = Harness, lastLine(stderr)
	default:
		r.Rule, r.Text = Crash, fmt.Sprintf("the program ended with exit code %d: %s", e.code, lastLine(stderr))
	}
	return r
}

// answered is the rule that an answer names, and how it is broken.
func answered(code int, o outcome.Outcome) (rule, text string) {
	switch {
	case len(o.Violations) > 0:
		rule, text = o.Violations[0].Rule, o.Violations[0].Text
	case o.Stuck != "":
		rule, text = Stuck, o.Stuck
	}
	if broken := rule != ""; broken != (code == outcome.Broken) {
		return Answer, fmt.Sprintf("the exit code is %d, and the answer names the broken rule %q: %s", code, rule, text)
	}
	return rule, text
}

// one reads exactly one line of JSON.
func one(text string, into any) error {
	text = strings.TrimSpace(text)
	if text == "" {
		return errors.New("the program printed nothing, want one line of JSON")
	}
	line, rest, more := strings.Cut(text, "\n")
	if more {
		return fmt.Errorf("the program printed more than one line: the first begins with %.60q, the second with %.60q; want one line of JSON", line, rest)
	}
	if err := json.Unmarshal([]byte(line), into); err != nil {
		return fmt.Errorf("the program printed %.60q, want one line of JSON: %w", line, err)
	}
	return nil
}

// lastLine is the last line that is not empty.
func lastLine(text string) string {
	text = strings.TrimSpace(text)
	return text[strings.LastIndex(text, "\n")+1:]
}
