package verifier_test

import (
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/verifier"
)

// A response for which a good expression raises, returns no reward or takes too much is worth the lowest
// reward, and is counted: a policy that has learned to write such gains nothing.
func TestRaisingResponses(t *testing.T) {
	j := newBounded(t, verifier.Options{Kind: verifier.Starlark, Range: [2]float64{-1, 1}, Steps: 1000, Concurrency: 1, Expression: `
def verify(response, answer, task, messages):
  if response == "return": return None
  if response == "loop": [x for x in range(1000000)]
  if response == "take": return len("x" * 1000000000)
  return 1 / int(response)`})
	for range 8 {
		if v, err := j.Verify(t.Context(), caseOf("2", `1`)); err != nil || v.Reward != 0.5 || v.Limit != "" {
			t.Fatalf("%v, %v", v, err)
		}
	}
	for response, says := range map[string]string{
		"x": "invalid literal", "0": "division by zero", "return": "NoneType", "loop": "too many steps",
		"take": "256 MiB", strings.Repeat("9", 17<<20): "more than the",
	} {
		v, err := j.Verify(t.Context(), caseOf(response, `1`))
		if err != nil || v.Reward != -1 || v.Exact || v.Limit != verifier.Raised || !strings.Contains(v.Note, says) {
			t.Errorf("%.10s: %v, %v; want %q", response, v, err, says)
		}
	}
	if _, err := j.Verify(t.Context(), caseOf("2", `1e999`)); sandbox.ClassOf(err) != sandbox.BadTask {
		t.Errorf("an answer that is no number: %v", err)
	}
	if s := j.Status(); s.Limits[verifier.Raised] != 6 || s.Failures[sandbox.BadTask] != 1 || len(s.Failures) > 1 {
		t.Errorf("%+v", s)
	}
}

// An expression that is wrong gives no reward: at the start, and as soon as it has raised for half of the
// last cases. It is believed again once it judges.
func TestWrongExpressions(t *testing.T) {
	j := newBounded(t, verifier.Options{Kind: verifier.Starlark, Expression: `1 / int(response)`})
	scored := func(response string) bool {
		t.Helper()
		v, err := j.Verify(t.Context(), caseOf(response, `1`))
		if err != nil && sandbox.ClassOf(err) != sandbox.VerifierCrash || err == nil && v.Limit == verifier.Raised && v.Reward != 0 {
			t.Fatalf("%s: %v, %v", response, v, err)
		}
		return err == nil
	}
	if scored("x") {
		t.Error("the first case was scored by an expression that raised")
	}
	for range 64 {
		scored("1")
	}
	lost := 0
	for range 40 {
		if !scored("x") {
			lost++
		}
	}
	if lost != 40-31 {
		t.Errorf("%d of 40 responses were not scored, want 9: 31 are less than half of 64", lost)
	}
	for range 20 {
		scored("1")
	}
	if scored("x") {
		t.Error("an expression that raised for 40 of 61 cases was believed")
	}
	for range 64 {
		scored("1")
	}
	if !scored("x") {
		t.Error("an expression that judges again was not believed")
	}
}
