package parts

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/internal/failure"
)

// checked is a driver that says what it is told, and makes nothing.
type checked struct {
	sandbox.Driver
	boundary sandbox.Boundary
	err      error
}

func (c checked) Check(context.Context) (sandbox.Boundary, error) { return c.boundary, c.err }

// runsCode is a document for each way in which a run executes what its policy writes, by the key that says so.
var runsCode = map[string]string{
	"environment.tools":               "environment: {kind: tasks, tasks: {file: t}, tools: [shell]}\n",
	"environment.verifier.kind tests": "environment: {kind: tasks, tasks: {file: t}, verifier: {kind: tests}}\n",
	"environment.task code":           "environment: {task: code}\n",
}

func TestUsableDriver(t *testing.T) {
	secure := sandbox.Boundary{Files: true, Processes: true, Network: true}
	missing := errors.New("it is not in PATH")
	for name, c := range map[string]struct {
		goos, sandbox string
		drivers       map[string]checked
		want          []string // the error has them; none is no error
		code          int
	}{
		"bwrap":          {"linux", "{}", map[string]checked{"bwrap": {boundary: secure}}, nil, 0},
		"bwrap said":     {"linux", "{driver: bwrap}", map[string]checked{"bwrap": {boundary: secure}}, nil, 0},
		"bwrap missing":  {"linux", "{}", map[string]checked{"bwrap": {err: missing}, "runsc": {err: missing}}, []string{"sandbox.driver: the default bwrap makes no boundary here", "it is not in PATH", "install it, or name sandbox.driver swerex, kubernetes or e2b", "sandbox: {driver: process, boundary: none}"}, failure.ExitUsage},
		"runsc instead":  {"linux", "{driver: bwrap}", map[string]checked{"bwrap": {err: missing}, "runsc": {boundary: secure}}, []string{`run.yaml:2:19: sandbox.driver: "bwrap" makes no boundary here`, "name sandbox.driver runsc, which makes sandboxes here"}, failure.ExitUsage},
		"half a bwrap":   {"linux", "{}", map[string]checked{"bwrap": {boundary: sandbox.Boundary{Files: true, Why: "the network is shared"}}, "runsc": {err: missing}}, []string{"the network is shared"}, failure.ExitUsage},
		"process":        {"linux", "{driver: process}", map[string]checked{"bwrap": {boundary: secure}, "runsc": {boundary: secure}}, []string{`"process" makes no boundary here`, "all rights of this user", "name sandbox.driver bwrap or runsc, which makes", "boundary: none}"}, failure.ExitUsage},
		"process alone":  {"linux", "{driver: process}", map[string]checked{"bwrap": {err: missing}, "runsc": {err: missing}}, []string{"apt-get install bubblewrap"}, failure.ExitUsage},
		"process said":   {"linux", "{driver: process, boundary: none}", map[string]checked{"process": {}}, nil, 0},
		"swerex":         {"linux", "{driver: swerex, urls: ['http://a']}", map[string]checked{"swerex": {boundary: sandbox.Boundary{Why: "write sandbox.isolated: true"}}}, []string{"write sandbox.isolated: true", "sandbox: {driver: swerex, boundary: none}"}, failure.ExitUsage},
		"swerex said":    {"linux", "{driver: swerex, urls: ['http://a'], boundary: none}", map[string]checked{"swerex": {}}, nil, 0},
		"swerex away":    {"linux", "{driver: swerex, urls: ['http://a'], isolated: true}", map[string]checked{"swerex": {err: missing}}, []string{"sandbox.driver swerex: it is not in PATH"}, failure.ExitFailure},
		"macOS":          {"darwin", "{}", map[string]checked{"bwrap": {boundary: secure}}, []string{"the default bwrap makes no boundary here", "it needs Linux, and this is darwin", "name sandbox.driver swerex, kubernetes or e2b"}, failure.ExitUsage},
		"macOS, runsc":   {"darwin", "{driver: runsc}", map[string]checked{"runsc": {boundary: secure}}, []string{"it needs Linux, and this is darwin"}, failure.ExitUsage},
		"macOS, none":    {"darwin", "{driver: process, boundary: none}", map[string]checked{"process": {}}, []string{"it needs Linux, and this is darwin"}, failure.ExitUsage},
		"macOS, cluster": {"darwin", "{driver: kubernetes, image: a, isolated: true}", map[string]checked{"kubernetes": {boundary: secure}}, nil, 0},
	} {
		for key, environment := range runsCode {
			t.Run(name+"/"+key, func(t *testing.T) {
				cfg, err := config.Parse("run.yaml", []byte(environment+"sandbox: "+c.sandbox+"\n"))
				if err == nil {
					cfg, err = cfg.Resolve()
				}
				if err != nil {
					t.Fatal(err)
				}
				_, _, err = usableDriver(t.Context(), cfg, host{c.goos, func(cfg config.Config) (sandbox.Driver, error) { return c.drivers[cfg.Sandbox.Driver], nil }})
				checkRefusal(t, err, c.code, c.want)
				if c.code == failure.ExitUsage && !strings.Contains(err.Error(), key) {
					t.Errorf("the refusal does not name %s: %v", key, err)
				}
			})
		}
	}
}

// checkRefusal holds an error, with its hint, against its exit code and what it has to say.
func checkRefusal(t *testing.T, err error, code int, want []string) {
	t.Helper()
	var said *failure.Error
	if !errors.As(err, &said) {
		if err != nil || code != 0 {
			t.Fatalf("the error is %v, want exit code %d", err, code)
		}
		return
	}
	text := said.Error() + "\n" + said.Hint
	for _, part := range want {
		if !strings.Contains(text, part) {
			t.Errorf("the refusal lacks %q:\n%s", part, text)
		}
	}
	if said.Code != code {
		t.Errorf("exit code %d, want %d: %s", said.Code, code, text)
	}
}

// TestExamplesNeedABoundary builds each example document whose run executes code of the policy, on a machine that has
// neither bubblewrap nor gVisor. Other examples are not refused for that.
func TestExamplesNeedABoundary(t *testing.T) {
	nothing := t.TempDir()
	t.Setenv("PATH", nothing)
	t.Setenv("HOME", nothing)
	documents, err := filepath.Glob("../../examples/*.yaml")
	more, errMore := filepath.Glob("../../examples/*/*.yaml")
	if err = errors.Join(err, errMore); err != nil {
		t.Fatal(err)
	}
	refused := map[string]bool{}
	for _, path := range append(documents, more...) {
		cfg, err := config.Load(path)
		if err != nil {
			t.Fatal(err)
		}
		dir := filepath.Join(t.TempDir(), "run")
		_, err = New(cfg, dir, RunRules(cfg), nil)
		name := filepath.Base(path)
		if said := err != nil && strings.Contains(err.Error(), "no boundary"); said != cfg.UsesSandbox() {
			t.Errorf("%s runs code of the policy: %t. It is refused for want of a boundary: %t, %v", name, cfg.UsesSandbox(), said, err)
		}
		if cfg.UsesSandbox() {
			refused[name] = true
			checkRefusal(t, err, failure.ExitUsage, []string{path + ":", "sandbox.driver", "swerex, kubernetes or e2b"})
		}
		if _, err := os.Stat(dir); err == nil {
			t.Errorf("%s left a directory", name)
		}
	}
	if !refused["coding.yaml"] || !refused["tools.yaml"] {
		t.Errorf("examples/coding and examples/tasks run code, and %v were refused", refused)
	}
}

// TestPartial says what a boundary lacks, and nothing of one that holds whole.
func TestPartial(t *testing.T) {
	whole := sandbox.Boundary{Files: true, Processes: true, Network: true, Memory: true, CPU: true, ProcessCount: true, Disk: true, FileCount: true, Why: "the kernel is shared"}
	if said := partial(whole); said != "" {
		t.Errorf("a whole boundary is said to lack something: %s", said)
	}
	whole.Memory, whole.Why = false, "no control groups"
	if said := partial(whole); !strings.Contains(said, "not every limit") || !strings.Contains(said, "no control groups") {
		t.Errorf("without a limit of memory it says %q", said)
	}
	if said := partial(sandbox.Boundary{Why: "plain processes"}); !strings.Contains(said, "no boundary, as sandbox.boundary says. plain processes") {
		t.Errorf("of no boundary it says %q", said)
	}
}
