package parts

import (
	"fmt"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
	"github.com/headway-rl/headway/internal/failure"
)

// WithVerifier is the document with verifier kind tests where it says nothing of a verifier and the tasks
// have tests and no answers. It refuses tasks without what their judge needs.
func WithVerifier(cfg config.Config, set *taskset.Set) (config.Config, error) {
	tested, answered := set.Tested(), set.Answered()
	if comparesByDefault(cfg) && answered.Tasks == 0 && tested.Tasks > 0 {
		judged, err := cfg.SetWith(config.Override{Flag: cfg.Environment.Tasks.File, Text: "environment.verifier.kind=" + verifier.Tests})
		if err == nil {
			judged, err = judged.Resolve()
		}
		if err != nil {
			return cfg, err
		}
		cfg = judged
	}
	switch v := cfg.Environment.Verifier; {
	case v.Kind == verifier.Exact && answered.Lacks > 0:
		return cfg, failure.Usage("give each task an answer, or name its field in environment.tasks.answer. Where tasks have a test, choose environment.verifier.kind tests",
			"environment.verifier.kind exact: task %.80s has no answer to compare with%s", answered.First, otherTasks(answered))
	case v.Kind == verifier.Tests && v.Test == "" && tested.Lacks > 0:
		return cfg, failure.Usage("give each task a test, name its field in environment.tasks.test, or set environment.verifier.test for all. Where tasks have an answer, choose environment.verifier.kind exact",
			"environment.verifier.kind tests: task %.80s has no test%s", tested.First, otherTasks(tested))
	}
	return cfg, nil
}

// comparesByDefault reports whether the document judges by kind exact because it says nothing else.
func comparesByDefault(cfg config.Config) bool {
	v := cfg.Environment.Verifier
	return v.Kind == verifier.Exact && !cfg.Given("environment.verifier.kind") && v.Extract == "" && !v.IgnoreCase && !v.IgnoreSpace && !v.Text && v.Tolerance == 0
}

// otherTasks says how many tasks lack something where it is more than the first.
func otherTasks(h taskset.Having) string {
	if h.Lacks == 1 {
		return ""
	}
	return fmt.Sprintf("; %d tasks lack one", h.Lacks)
}
