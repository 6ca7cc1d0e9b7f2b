package verifier_test

import (
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/verifier"
)

// An expression that multiplies a response takes memory in its own process alone, which ends.
func TestStarlarkMemoryIsBounded(t *testing.T) {
	response := strings.Repeat("a b,", 10_000)
	before := peakMemory(t)
	for name, attack := range map[string]string{
		"a text as often as it is long": `len(response * len(response)) > 0`,
		"a text often":                  `len(response * 20000) > 0`,
		"a list often":                  `len(list(response.elems()) * 20000) > 0`,
		"doubling": `
def verify(response, answer, task, messages):
  for _ in range(40): response += response
  return len(response) > 0`,
		"a list that doubles": `
def verify(response, answer, task, messages):
  all = [response]
  for _ in range(40): all.extend(all)
  return len(all) > 0`,
		"a format":      `len(("%s" * 20000) % tuple([response] * 20000)) > 0`,
		"a replacement": `len(response.replace("a", response)) > 0`,
		"dicts":         `len([{x: [x]} for x in range(10000000)]) > 0`,
		"a note": `
def verify(response, answer, task, messages):
  return {"reward": 1, "note": response * 20000}`,
	} {
		j := newBounded(t, verifier.Options{Kind: verifier.Starlark, Concurrency: 1, TimeoutS: 120, Expression: attack})
		if v, err := j.Verify(t.Context(), caseOf(response, `"x"`)); sandbox.ClassOf(err) != sandbox.VerifierCrash {
			t.Errorf("%s: %v, %v", name, v, err)
		}
		if s := j.Status(); s.Retries > 0 {
			t.Errorf("%s: was tried again", name)
		}
	}
	if grown := peakMemory(t) - before; grown > 128<<20 {
		t.Errorf("this process grew by %d MiB", grown>>20)
	}
	var children syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_CHILDREN, &children); err != nil {
		t.Fatal(err)
	}
	if children.Maxrss>>10 > 450 {
		t.Errorf("a process that evaluates took %d MiB", children.Maxrss>>10)
	}
}

// peakMemory is the most memory that this process has had, in bytes.
func peakMemory(t *testing.T) (kib int64) {
	t.Helper()
	text, err := os.ReadFile("/proc/self/status")
	if err != nil {
		t.Fatal(err)
	}
	_, after, _ := strings.Cut(string(text), "\nVmHWM:")
	if _, err := fmt.Sscan(after, &kib); err != nil {
		t.Fatal(err)
	}
	return kib << 10
}
