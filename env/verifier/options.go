package verifier

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Kinds that are built in.
const (
	// Exact compares the response with the task's answer.
	Exact = "exact"
	// Starlark evaluates an expression or a function of the user's.
	Starlark = "starlark"
	// Command asks a program of the user's, over JSON lines.
	Command = "command"
	// HTTP asks a server.
	HTTP = "http"
	// Tests runs the task's tests in the rollout's sandbox.
	Tests = "tests"
)

// Options say what verifier to make. They are plain data, as configs have them. A field that the kind has no use for
// must be left zero only where that is said.
type Options struct {
	// Kind is exact, starlark, command, http or tests.
	Kind string
	// Range holds every reward, lowest first; anything outside is no verdict. Zero stands for 0 to 1.
	Range [2]float64
	// Concurrency bounds the cases that are judged at once; others wait. 0 is the kind's default: 4 for
	// command, 32 for http, 8 for exact and starlark, 64 for tests.
	Concurrency int
	// TimeoutS is the longest a case may take, in seconds, retries included. 0 is 30, and 600 for tests.
	TimeoutS float64
	// Retries of a case whose verifier failed where asking again is safe. 0 is 2; a negative number is none.
	Retries int
	// RetryOn are classes that are tried again beside those that the kind itself holds to be safe.
	RetryOn []sandbox.Class

	// Extract says where in the response the answer is (exact). "" is all of it, "last-line" the last line that is not
	// blank. "marker" is the text behind the last Marker, to the end of its line. "boxed" is the text in the last
	// \boxed{}. "pattern" is the first group of the last match of Pattern.
	Extract         string
	Marker, Pattern string
	// IgnoreCase and IgnoreSpace compare without regard to upper case, and with every run of white space
	// as one blank. White space at both ends never counts.
	IgnoreCase, IgnoreSpace bool
	// Text compares numbers as text: else 0.50, 1/2 and .5 are the same.
	Text bool
	// Tolerance is the share of the answer by which a number may differ from it. 0 is none.
	Tolerance float64

	// Expression is Starlark: an expression of response, answer, task and messages, or a program that
	// defines verify(response, answer, task, messages). File has such a program instead.
	Expression, File string
	// Steps are the most that Starlark may take for a case. 0 is 10 million.
	Steps int

	// Command is the program and its arguments, Dir where it starts and Env what it has beside PATH,
	// HOME and LANG of this process.
	Command []string
	Dir     string
	Env     map[string]string

	// URL of the server, and Headers that it is sent.
	URL     string
	Headers map[string]string

	// Test judges by a shell where the task has none of its own.
	Test string
	// Source names the result that says the reward of tests. "line" is the result line with its token, and "file" the
	// reward file. "exit" is the exit code alone, which a test that imports the policy's code must not be judged by. ""
	// is file where the task's hidden files have /tests/test.sh, as Harbor's do, and line elsewhere.
	Source string
	// RewardDir is where tests leave reward.json or reward.txt. Default /logs/verifier.
	RewardDir string
	// RewardKey is the one that counts of reward.json's; the others are metrics. Default reward.
	RewardKey string
	// LimitRewards say the reward of tests that met a limit of the class, regardless of how many passed.
	LimitRewards map[sandbox.Class]float64
	// LimitFailures are limits that make a case one that was not judged: it is played again elsewhere.
	LimitFailures []sandbox.Class
}

// withDefaults fills in what is 0 for every kind.
func (o Options) withDefaults() Options {
	if o.Range == [2]float64{} {
		o.Range = [2]float64{0, 1}
	}
	if o.Concurrency == 0 {
		o.Concurrency = map[string]int{Command: 4, HTTP: 32, Tests: 64}[o.Kind]
	}
	o.Concurrency = cmp.Or(o.Concurrency, 8)
	if o.TimeoutS == 0 {
		o.TimeoutS = 30
		if o.Kind == Tests {
			o.TimeoutS = 600
		}
	}
	switch {
	case o.Retries == 0:
		o.Retries = 2
	case o.Retries < 0:
		o.Retries = 0
	}
	return o
}

// rewardMax bounds ranges: a reward is kept as a float32 later on, and sums of them must be finite.
const rewardMax = 1e30

func (o Options) validate() error {
	low, high := o.Range[0], o.Range[1]
	switch {
	case !(low < high) || math.Abs(low) > rewardMax || math.Abs(high) > rewardMax:
		return fmt.Errorf("verifier: the range %v to %v: the lowest reward must be below the highest, and neither beyond %g", low, high, rewardMax)
	case o.Concurrency < 1:
		return fmt.Errorf("verifier: a concurrency of %d: at least one case must be judged at once", o.Concurrency)
	case !(o.TimeoutS > 0) || o.TimeoutS > 1e6:
		return fmt.Errorf("verifier: a time limit of %v s: it must be above 0 and at most 1e6", o.TimeoutS)
	}
	for _, class := range o.RetryOn {
		if class.Kind() == (sandbox.Kind{}) {
			return fmt.Errorf("verifier: retry on %q: there is no such class; there are %s", class, classNames())
		}
	}
	return nil
}

func classNames() string {
	var names []string
	for _, c := range sandbox.Classes {
		names = append(names, string(c.Class))
	}
	return strings.Join(names, ", ")
}

// kinds make verifiers of each kind.
var kinds = map[string]func(Options) (Verifier, error){
	Exact: newExact, Starlark: newStarlark, Command: newCommand, HTTP: newHTTP, Tests: newTests,
}

// New makes a verifier of the kind that o names, with a Bounded around it.
func New(o Options) (*Bounded, error) {
	make := kinds[o.Kind]
	if make == nil {
		return nil, fmt.Errorf("verifier: the kind %q is not known: there are %s", o.Kind, strings.Join(slices.Sorted(maps.Keys(kinds)), ", "))
	}
	o = o.withDefaults()
	if err := o.validate(); err != nil {
		return nil, err
	}
	v, err := make(o)
	if err != nil {
		return nil, err
	}
	return Bound(v, Bounds{
		Kind: o.Kind, Range: o.Range, Concurrency: o.Concurrency, Retries: o.Retries, RetryOn: o.RetryOn,
		Timeout: time.Duration(o.TimeoutS * float64(time.Second)),
	}), nil
}
