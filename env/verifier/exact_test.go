package verifier_test

import (
	"encoding/json"
	"math"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
)

// caseOf is a rollout of a task with an answer, as JSON.
func caseOf(response, answer string) verifier.Case {
	return verifier.Case{Task: &taskset.Task{ID: "t1", Answer: json.RawMessage(answer)}, Rollout: "g1-s0-a0", Response: response}
}

// newBounded makes a verifier, which ends with the test.
func newBounded(t *testing.T, o verifier.Options) *verifier.Bounded {
	t.Helper()
	j, err := verifier.New(o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := j.Close(); err != nil {
			t.Error(err)
		}
	})
	return j
}

func TestExact(t *testing.T) {
	for _, test := range []struct {
		name, response, answer string
		options                verifier.Options
		right                  bool
	}{
		{"the same", "Paris", `"Paris"`, verifier.Options{}, true},
		{"white space at the ends", " \n Paris\t\n", `"Paris"`, verifier.Options{}, true},
		{"another", "London", `"Paris"`, verifier.Options{}, false},
		{"case counts", "paris", `"Paris"`, verifier.Options{}, false},
		{"case ignored", "paris", `"Paris"`, verifier.Options{IgnoreCase: true}, true},
		{"space counts", "new  york", `"new york"`, verifier.Options{}, false},
		{"space ignored", "new \n york", `"new york"`, verifier.Options{IgnoreSpace: true}, true},
		{"number as number", "0.50", `0.5`, verifier.Options{}, true},
		{"number as text", "0.50", `"0.5"`, verifier.Options{Text: true}, false},
		{"fraction", "-2/4", `"-0.5"`, verifier.Options{}, true},
		{"fraction of fractions is none", "1/2/2", `"0.25"`, verifier.Options{}, false},
		{"by nothing", "1/0", `1`, verifier.Options{}, false},
		{"thousands", "$1,234.50", `1234.5`, verifier.Options{}, true},
		{"thousands misplaced", "12,34", `1234`, verifier.Options{}, false},
		{"exponent", "6e3", `6000`, verifier.Options{}, true},
		{"an exponent without end", "1e999999999999", `1`, verifier.Options{}, false},
		{"decimals exactly", "0.1000000000000000055", `0.1`, verifier.Options{}, false},
		{"close enough", "3.1416", `3.14159`, verifier.Options{Tolerance: 1e-4}, true},
		{"not close enough", "3.15", `3.14159`, verifier.Options{Tolerance: 1e-4}, false},
		{"near nothing", "0.001", `0`, verifier.Options{Tolerance: 0.5}, false},
		{"one of several", "b", `["a","b"]`, verifier.Options{}, true},
		{"none of several", "c", `["a","b"]`, verifier.Options{}, false},
		{"true", "true", `true`, verifier.Options{}, true},
		{"last line", "I think\nthat\n42\n\n", `42`, verifier.Options{Extract: "last-line"}, true},
		{"last line of nothing", " \n ", `""`, verifier.Options{Extract: "last-line"}, false},
		{"behind the marker", "12 #### 13\nor rather #### 42 \nas I said", `42`, verifier.Options{Extract: "marker", Marker: "####"}, true},
		{"no marker", "42", `42`, verifier.Options{Extract: "marker", Marker: "####"}, false},
		{"boxed", `so \boxed{1} no, \boxed{\frac{1}{2}}.`, `"\\frac{1}{2}"`, verifier.Options{Extract: "boxed"}, true},
		{"boxed without end", `\boxed{42`, `42`, verifier.Options{Extract: "boxed"}, false},
		{"pattern", "answer=41 answer=42", `42`, verifier.Options{Extract: "pattern", Pattern: `answer=(\d+)`}, true},
		{"pattern without match", "42", `42`, verifier.Options{Extract: "pattern", Pattern: `answer=(\d+)`}, false},
		{"bytes that are no text", "\xff\xfe", `"x"`, verifier.Options{}, false},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.Kind, test.options.Range = verifier.Exact, [2]float64{-1, 2}
			v, err := newBounded(t, test.options).Verify(t.Context(), caseOf(test.response, test.answer))
			if err != nil {
				t.Fatal(err)
			}
			want := -1.0
			if test.right {
				want = 2
			}
			if v.Reward != want || v.Exact != test.right {
				t.Errorf("reward %v, exact %v (%s), want %v, %v", v.Reward, v.Exact, v.Note, want, test.right)
			}
		})
	}
}

// A task without an answer was not judged: that is no reward of 0.
func TestExactWithoutAnswer(t *testing.T) {
	for _, answer := range []string{``, `null`, `{}`, `[]`, `[{}]`, `[null]`} {
		j := newBounded(t, verifier.Options{Kind: verifier.Exact})
		if _, err := j.Verify(t.Context(), caseOf("", answer)); sandbox.ClassOf(err) != sandbox.BadTask {
			t.Errorf("answer %q: %v", answer, err)
		}
		if failures := j.Status().Failures; failures[sandbox.BadTask] != 1 {
			t.Errorf("answer %q: counted %v", answer, failures)
		}
	}
}

func TestOptionsRefused(t *testing.T) {
	for _, test := range []struct {
		says    string
		options verifier.Options
	}{
		{"command, exact, http, starlark, tests", verifier.Options{Kind: "exakt"}},
		{"range", verifier.Options{Kind: verifier.Exact, Range: [2]float64{1, 0}}},
		{"range", verifier.Options{Kind: verifier.Exact, Range: [2]float64{0, math.NaN()}}},
		{"range", verifier.Options{Kind: verifier.Exact, Range: [2]float64{0, math.Inf(1)}}},
		{"time limit", verifier.Options{Kind: verifier.Exact, TimeoutS: -1}},
		{"time limit", verifier.Options{Kind: verifier.Exact, TimeoutS: math.NaN()}},
		{"concurrency", verifier.Options{Kind: verifier.Exact, Concurrency: -1}},
		{"no such class", verifier.Options{Kind: verifier.Exact, RetryOn: []sandbox.Class{"nonsense"}}},
		{"last-line, marker, boxed or pattern", verifier.Options{Kind: verifier.Exact, Extract: "box"}},
		{"####", verifier.Options{Kind: verifier.Exact, Extract: "marker"}},
		{"parentheses", verifier.Options{Kind: verifier.Exact, Extract: "pattern", Pattern: "a"}},
		{"missing closing", verifier.Options{Kind: verifier.Exact, Extract: "pattern", Pattern: "(a"}},
		{"tolerance", verifier.Options{Kind: verifier.Exact, Tolerance: math.NaN()}},
		{"needs a program", verifier.Options{Kind: verifier.Command}},
		{"NUL", verifier.Options{Kind: verifier.Command, Command: []string{"/bin/true", "a\x00b"}}},
		{"NUL", verifier.Options{Kind: verifier.Command, Command: []string{"/bin/true"}, Env: map[string]string{"A": "\x00"}}},
		{"without =", verifier.Options{Kind: verifier.Command, Command: []string{"/bin/true"}, Env: map[string]string{"A=B": ""}}},
		{"not found", verifier.Options{Kind: verifier.Command, Command: []string{"no-such-program-of-ours"}}},
		{"http://", verifier.Options{Kind: verifier.HTTP, URL: "localhost:8000"}},
		{"http://", verifier.Options{Kind: verifier.HTTP}},
		{"must be line, exit or file", verifier.Options{Kind: verifier.Tests, Source: "files"}},
		{"two names", verifier.Options{Kind: verifier.Tests, RewardDir: "/tmp/../work"}},
		{"absolute", verifier.Options{Kind: verifier.Tests, RewardDir: "logs"}},
		{"is worth 2", verifier.Options{Kind: verifier.Tests, LimitRewards: map[sandbox.Class]float64{sandbox.Disk: 2}}},
		{"one of a sandbox's limits", verifier.Options{Kind: verifier.Tests, LimitRewards: map[sandbox.Class]float64{sandbox.Lost: 0}}},
		{"no limit", verifier.Options{Kind: verifier.Tests, LimitFailures: []sandbox.Class{sandbox.Quota}}},
	} {
		j, err := verifier.New(test.options)
		if err == nil {
			j.Close()
			t.Errorf("%+v was taken", test.options)
		} else if !strings.Contains(err.Error(), test.says) {
			t.Errorf("%v, which does not say %q", err, test.says)
		}
	}
}
