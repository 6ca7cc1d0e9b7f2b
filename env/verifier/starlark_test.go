package verifier_test

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
)

func TestStarlark(t *testing.T) {
	for _, test := range []struct {
		expression, response, answer string
		want                         string
	}{
		{`response.strip() == answer`, " 42 ", `"42"`, "1 exact"},
		{`response == answer`, "41", `"42"`, "0"},
		{`number(response) == answer`, "4.2e1", `42`, "1 exact"},
		{`0.5`, "", `null`, "0.5"},
		{`1`, "", `null`, "1 exact"},
		{`number(boxed(response)) / answer`, `\boxed{3}`, `4`, "0.75"},
		{`last_line(response) in answer`, "x\nb", `["a","b"]`, "1 exact"},
		{`search("a(.)c", response)[1] == "b"`, "xabc", `null`, "1 exact"},
		{`search("a(.)c", response) == None`, "x", `null`, "1 exact"},
		{`boxed(response) == None and number("x") == None`, "", `null`, "1 exact"},
		{`json.decode(response)["a"] == answer["a"]`, `{"a": [1]}`, `{"a": [1]}`, "1 exact"},
		{`math.exp(-abs(number(response) - answer))`, "3", `3`, "1 exact"},
		{`task["id"] == "t1" and len(messages) == 0`, "", `1`, "1 exact"},
		{`{"reward": 0.25, "exact": True, "steps": [1, 2.5], "metrics": {"a": 1}, "note": "why"}`, "", `1`, "0.25 exact [1 2.5] map[a:1] why"},
		{`{"steps": [0.25, 0.5]}`, "", `1`, "0.75 [0.25 0.5]"},
		{"def verify(response, answer, task, messages):\n  print('seen', response)\n  return len(response) / 10\n", "abc", `1`, "0.3 seen abc"},

		{`float("nan")`, "", `1`, "verifier_protocol: NaN"},
		{`float("inf")`, "", `1`, "verifier_protocol: +Inf"},
		{`int("1" + "0" * 400)`, "", `1`, "verifier_protocol: +Inf"},
		{`1.0001`, "", `1`, "verifier_protocol: from 0 to 1"},
		{`-1`, "", `1`, "verifier_protocol: from 0 to 1"},
		{`None`, "", `1`, "verifier_protocol: NoneType"},
		{`"1"`, "", `1`, "verifier_protocol: string"},
		{`{"reward": True}`, "", `1`, "verifier_protocol: no number"},
		{`{"reward": "1"}`, "", `1`, "verifier_protocol: no number"},
		{`{"rewards": 1}`, "", `1`, "verifier_protocol: no such word"},
		{`{}`, "", `1`, `verifier_protocol: no "reward"`},
		{`{"steps": [0.5, float("nan")]}`, "", `1`, "verifier_protocol: NaN"},
		{`{"steps": [0.75, 0.75]}`, "", `1`, "verifier_protocol: from 0 to 1"},
		{`{"reward": 1, "metrics": {"a": float("inf")}}`, "", `1`, "verifier_protocol: finite"},
		{`{"reward": 1, "exact": 1}`, "", `1`, "verifier_protocol: True or False"},
		{`number(response) + 1`, "x", `1`, "verifier_crash: expression:1:18"},
		{`[x for x in range(1000000000)]`, "", `1`, "verifier_crash: too many steps"},
		{"def verify(response, answer, task, messages):\n  return answer['b']", "", `{"a":1}`, `verifier_crash: expression:2:16`},
	} {
		j := newBounded(t, verifier.Options{Kind: verifier.Starlark, Expression: test.expression, Steps: 100_000})
		v, err := j.Verify(t.Context(), caseOf(test.response, test.answer))
		class, says, _ := strings.Cut(test.want, ": ")
		if strings.HasPrefix(class, "verifier_") {
			if string(sandbox.ClassOf(err)) != class || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v, %v; want %s", test.expression, v, err, test.want)
			}
			continue
		}
		if got := told(v); err != nil || got != test.want {
			t.Errorf("%s: %s, %v; want %s", test.expression, got, err, test.want)
		}
	}
}

// told is a verdict in one line.
func told(v verifier.Verdict) string {
	text := fmt.Sprint(v.Reward)
	if v.Exact {
		text += " exact"
	}
	if v.Limit != "" {
		text += " " + string(v.Limit)
	}
	if len(v.Steps) > 0 {
		text += fmt.Sprintf(" %v", v.Steps)
	}
	if len(v.Metrics) > 0 {
		text += fmt.Sprintf(" %v", v.Metrics)
	}
	return strings.TrimSpace(text + " " + v.Note)
}

// Mistakes of a program are found when it is read, with where they are.
func TestStarlarkMistakes(t *testing.T) {
	for source, says := range map[string]string{
		"response ==":       "expression:1:12",
		"respond == answer": "expression:1:1: undefined: respond",
		"def verify(response, answer, task, messages):\n  retrun 1":                    "expression:2:11",
		"def verify(response):\n  return 1":                                            "takes 1 parameters",
		"load('a', 'b')\ndef verify(response, answer, task, messages):\n  return b(1)": "nothing to load",
		"x = 1 // 0\ndef verify(response, answer, task, messages):\n  return 1":        "expression:1:7",
		"def verify_it(response, answer, task, messages):\n  return 1":                 "no function verify",
		"def verify(response, answer, task, messages):\n  while True:\n    pass":       "expression:2:3",
		"": "needs an expression",
	} {
		_, err := verifier.New(verifier.Options{Kind: verifier.Starlark, Expression: source})
		if err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%q: %v, which does not say %q", source, err, says)
		}
	}
	if _, err := verifier.New(verifier.Options{Kind: verifier.Starlark, File: filepath.Join(t.TempDir(), "none.star")}); err == nil {
		t.Error("a file that is not there was read")
	}
}

// A program has no state: what one case leaves, no other finds, and any number are judged at once.
func TestStarlarkIsFrozen(t *testing.T) {
	file := filepath.Join(t.TempDir(), "verify.star")
	program := "seen = []\ndef verify(response, answer, task, messages):\n  if answer == 'change': seen.append(1)\n  return len(response) / 100 + len(seen)\n"
	if err := os.WriteFile(file, []byte(program), 0o644); err != nil {
		t.Fatal(err)
	}
	j := newBounded(t, verifier.Options{Kind: verifier.Starlark, File: file})
	if _, err := j.Verify(t.Context(), caseOf("", `"change"`)); sandbox.ClassOf(err) != sandbox.VerifierCrash || !strings.Contains(err.Error(), "frozen") {
		t.Errorf("a program kept state: %v", err)
	}
	var all sync.WaitGroup
	for i := range 50 {
		all.Go(func() {
			v, err := j.Verify(t.Context(), caseOf(strings.Repeat("x", i), `1`))
			if err != nil || v.Reward != float64(i)/100 {
				t.Errorf("case %d: %v, %v", i, v.Reward, err)
			}
		})
	}
	all.Wait()
	if s := j.Status(); s.Verdicts != 50 || s.Waiting != 0 || s.Running != 0 {
		t.Errorf("%+v", s)
	}
}

// What is too large is refused before Starlark sees it.
func TestStarlarkInputIsBounded(t *testing.T) {
	j := newBounded(t, verifier.Options{Kind: verifier.Starlark, Expression: "len(response) > 0"})
	_, err := j.Verify(t.Context(), caseOf(strings.Repeat("x", 17<<20), `1`))
	if sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("%v", err)
	}
}

// Text that a policy wrote is decoded or is a mistake, however deep its brackets lie: it does not end the
// program by its stack.
func TestStarlarkDecodesWhateverText(t *testing.T) {
	size := 8 << 20
	if testing.Short() { // under the race detector each letter takes ten times as long
		size = 1 << 20
	}
	deep, digits := strings.Repeat("[", size), strings.Repeat("9", size)
	objects := strings.Repeat(`{"a":`, size/4)
	for _, test := range []struct{ expression, response, says string }{
		{"json.decode(response) == 1", deep, "deep in one another"},
		{"json.decode(response) == 1", objects, "deep in one another"},
		{"json.decode(response) == 1", digits, "digits"},
		{"int(response) == 1", digits, "more than"},
		{"float(response) == 1", digits, "more than"},
		{"int(response) + int('10', base = 2) + float('1.5') == 12.5", "9", ""},
		{"json.indent(response) == 1", deep, "depth"},
		{"json.decode(response, default = 7) == 7", deep, ""},
		{"json.decode(response) == []", `[]`, ""},
		{`json.decode(response) == "` + strings.Repeat("[", 20000) + `"`, `"` + strings.Repeat("[", 20000) + `"`, ""},
		{`len(json.decode(response)) == 20001`, "[0" + strings.Repeat(", [[{}]]", 20000) + "]", ""},
		{"str(json.decode(response)) == response", strings.Repeat("[", 9000) + strings.Repeat("]", 9000), ""},
	} {
		j := newBounded(t, verifier.Options{Kind: verifier.Starlark, Expression: test.expression})
		v, err := j.Verify(t.Context(), verifier.Case{Task: &taskset.Task{ID: "t"}, Response: test.response})
		name := fmt.Sprintf("%.60s of %.10s...", test.expression, test.response)
		if test.says == "" && (err != nil || v.Reward != 1) {
			t.Errorf("%s: %v, %.200v", name, v, err)
		}
		// Under the race detector a process takes several times the memory, and may meet that bound first.
		if test.says != "" && (sandbox.ClassOf(err) != sandbox.VerifierCrash || !strings.Contains(err.Error(), test.says) && !strings.Contains(err.Error(), "needs more than 256 MiB")) {
			t.Errorf("%s: %v, %.200v; want %s", name, v, err, test.says)
		}
	}
}
