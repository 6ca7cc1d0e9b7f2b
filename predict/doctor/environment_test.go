package doctor

import (
	"slices"
	"strings"
	"testing"
)

// environmentExample shows a finding about what rollouts are played with, and what was found that makes it go.
type environmentExample struct {
	code     string
	severity Severity
	key      string
	found    EnvironmentFound
	want     string
}

var environmentExamples = []environmentExample{
	{"tasks", Error, keyTasks, EnvironmentFound{Tasks: &TasksFound{Mistakes: []string{"t.jsonl:3: no prompt", "t.jsonl:9: an id twice"}, More: 7}}, "has 9 mistakes: t.jsonl:3: no prompt; t.jsonl:9: an id twice; and 7 more"},
	{"tasks", Warning, keyTasks, EnvironmentFound{Tasks: &TasksFound{Trained: 4, Odd: []string{"a Dockerfile is not built"}}}, "a Dockerfile is not built"},
	{"tasks", Info, keyTasks, EnvironmentFound{Tasks: &TasksFound{Trained: 4, HeldOut: 2}}, "4 tasks to train on, and 2 held out"},
	{"tasks-unmet", Warning, keyTasks, EnvironmentFound{Tasks: &TasksFound{Trained: 4, Unmet: []string{"3 tasks want 2048 MiB of memory"}}}, "3 tasks want 2048 MiB"},
	{"fleet", Error, keyFleet, EnvironmentFound{Fleet: &Fleet{Driver: "process", Err: "there is no vllm", Do: "install it"}}, "process can start no engine: there is no vllm"},
	{"fleet", Warning, keyFleet, EnvironmentFound{Fleet: &Fleet{Driver: "kubernetes", Notes: []string{"podManagementPolicy Parallel"}}}, "not as it should be: podManagementPolicy"},
	{"fleet", Info, keyFleet, EnvironmentFound{Fleet: &Fleet{Driver: "process", Where: "as /usr/bin/vllm on this machine"}}, "starts engines: as /usr/bin/vllm"},
	{"verifier", Error, keyVerifier, EnvironmentFound{Verifier: &VerifierFound{Kind: "starlark", Err: "expression:1:3: got newline"}}, "starlark does not judge: expression:1:3"},
	{"verifier", Info, keyVerifier, EnvironmentFound{Verifier: &VerifierFound{Kind: "exact", Judged: true, Reward: 1, Seconds: 0.25}}, "a reward of 1 "},
	{"sandbox", Error, keyDriver, EnvironmentFound{Sandbox: &SandboxFound{Driver: "bwrap", Err: "there is no bwrap", Do: "install bubblewrap"}}, "no sandbox of bwrap works here: there is no bwrap"},
	{"sandbox", Warning, keyDriver, EnvironmentFound{Sandbox: &SandboxFound{Driver: "process", Lacks: "it shares everything"}}, "process is no boundary here: it shares everything"},
	{"sandbox", Warning, keyDriver, EnvironmentFound{Sandbox: &SandboxFound{Driver: "bwrap", Secure: true, Lacks: "memory is not bounded"}}, "not all of its limits do: memory is not bounded"},
	{"sandbox", Info, keyDriver, EnvironmentFound{Sandbox: &SandboxFound{Driver: "bwrap", Secure: true, Started: true, StartS: 0.03, RunS: 0.002}}, "started in 0.03 s"},
	{"openenv-unreachable", Error, keyOpenEnv, EnvironmentFound{OpenEnv: &Answer{Err: "connection refused"}}, "connection refused"},
}

func TestEnvironments(t *testing.T) {
	look := func(found *EnvironmentFound) []Finding {
		c := caseOf(t)
		c.Environment = found
		e := newExamination(c)
		for _, check := range environmentChecks {
			e.kind = check.kind
			check.look(e)
		}
		slices.SortStableFunc(e.findings, func(a, b Finding) int { return a.Severity.rank() - b.Severity.rank() })
		return e.findings
	}
	for _, x := range environmentExamples {
		t.Run(x.code+"/"+string(x.severity), func(t *testing.T) {
			found := look(&x.found)
			f, ok := find(found, x.code)
			if !ok || f.Severity != x.severity || f.Key != x.key || !strings.Contains(f.What, x.want) {
				t.Errorf("found %+v, want a %s %s about %s that %q", found, x.severity, x.code, x.key, x.want)
			}
			wellFormed(t, found)
		})
	}
	for name, nothing := range map[string]*EnvironmentFound{
		"not looked at": nil, "nothing there": {}, "not asked": {Verifier: &VerifierFound{Kind: "http"}, Sandbox: &SandboxFound{Driver: "bwrap", Secure: true}, OpenEnv: &Answer{}},
	} {
		if found := look(nothing); len(found) > 0 {
			t.Errorf("%s: found %+v", name, found)
		}
	}
}
