package main

import (
	"bytes"
	"encoding/json"
	"errors"
	"github.com/headway-rl/headway/app/command"
	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/internal/licences"
	"io/fs"
	"os/exec"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// headway runs one command line and returns what a shell would see.
func headway(t *testing.T, arguments ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, diagnostics bytes.Buffer
	code = Main(arguments, strings.NewReader(""), &out, &diagnostics)
	return code, out.String(), untimed.ReplaceAllString(diagnostics.String(), "")
}

// untimed are lines of progress, which simulations and diagnoses print that take seconds: a busy machine's do.
var untimed = regexp.MustCompile(`(?m)^([\d,]+ of [\d,]+ (simulations|train steps)\b.*|(reading the trace|resimulating \S+)(: \d+ %)?)\n`)

func TestWithoutArgumentsPrintsHelp(t *testing.T) {
	code, stdout, stderr := headway(t)
	if code != failure.ExitDone || stderr != "" {
		t.Fatalf("code %d, stderr %q", code, stderr)
	}
	for _, want := range []string{"Usage: headway <command>", "version", "completion"} {
		if !strings.Contains(stdout, want) {
			t.Errorf("help lacks %q:\n%s", want, stdout)
		}
	}
}

func TestHelpOfACommand(t *testing.T) {
	code, stdout, stderr := headway(t, "version", "--help")
	if code != failure.ExitDone || stderr != "" || !strings.Contains(stdout, "--json") {
		t.Fatalf("code %d\nstdout %q\nstderr %q", code, stdout, stderr)
	}
}

func TestBadArgumentsNameTheNearest(t *testing.T) {
	tests := []struct {
		arguments []string
		want      []string
	}{
		{[]string{"versoin"}, []string{"versoin", `did you mean "version"`, "headway --help"}},
		{[]string{"version", "--jsn"}, []string{"--jsn", `did you mean "--json"`, "headway version --help"}},
		{[]string{"completion", "tcsh"}, []string{"tcsh", "bash", "headway completion --help"}},
		{[]string{"--nonsense"}, []string{"--nonsense", "headway --help"}},
		{[]string{""}, []string{"headway --help"}},
	}
	for _, test := range tests {
		code, stdout, stderr := headway(t, test.arguments...)
		if code != failure.ExitUsage || stdout != "" {
			t.Errorf("headway %q: code %d, stdout %q; want 2 and nothing", test.arguments, code, stdout)
		}
		for _, want := range test.want {
			if !strings.Contains(stderr, want) {
				t.Errorf("headway %q: message lacks %q:\n%s", test.arguments, want, stderr)
			}
		}
	}
}

// The studies moved to a program of their own: whoever types the old command reads the new one.
func TestStudyMoved(t *testing.T) {
	for _, arguments := range [][]string{{"study"}, {"study", "hold", "--quick"}, {"study", "hold", "--help"}} {
		code, stdout, stderr := headway(t, arguments...)
		want := "headway: the studies are no longer a command of headway\n  in a checkout of the repository: go run ./cmd/lab " + strings.Join(arguments, " ") + "\n"
		if code != failure.ExitUsage || stdout != "" || stderr != want {
			t.Errorf("headway %q: code %d, stdout %q, stderr %q; want 2, nothing and %q", arguments, code, stdout, stderr, want)
		}
	}
}

// A flag of an earlier release is an error that names the present one.
func TestRenamedFlags(t *testing.T) {
	for _, c := range []struct{ line, want string }{
		{"plan --calibrate runs/a", "headway: --calibrate is now --measured: "},
		{"receive --sync --engine e http://localhost:1", "headway: --sync is now --durable: "},
		{"receive --verify --engine e http://localhost:1", "headway: --verify is no flag any more: "},
	} {
		code, stdout, stderr := headway(t, strings.Fields(c.line)...)
		if code != failure.ExitUsage || stdout != "" || !strings.HasPrefix(stderr, c.want) {
			t.Errorf("headway %s: code %d, stdout %q, stderr %q; want 2, nothing and %q", c.line, code, stdout, stderr, c.want)
		}
	}
}

// --version and help are what people try first.
func TestUsualForms(t *testing.T) {
	for typed, ours := range map[string]string{
		"--version": "version", "--version --json": "version --json", "help": "--help", "help plan": "plan --help",
	} {
		code, stdout, stderr := headway(t, strings.Fields(typed)...)
		wantCode, want, _ := headway(t, strings.Fields(ours)...)
		if code != failure.ExitDone || code != wantCode || stdout != want || stdout == "" || stderr != "" {
			t.Errorf("headway %s: code %d, stdout %q, stderr %q; want what headway %s prints", typed, code, stdout, stderr, ours)
		}
	}
}

func TestVersion(t *testing.T) {
	code, stdout, _ := headway(t, "version")
	if code != failure.ExitDone || !strings.HasPrefix(stdout, "headway ") {
		t.Fatalf("code %d, stdout %q", code, stdout)
	}
	code, stdout, _ = headway(t, "version", "--json")
	var current command.Build
	if err := json.Unmarshal([]byte(stdout), &current); code != failure.ExitDone || err != nil {
		t.Fatalf("code %d, %v in %q", code, err, stdout)
	}
	if current.Version == "" || current.Origin != "checkout" || current.Go == "" || current.Platform == "" {
		t.Fatalf("incomplete: %+v", current)
	}
}

// The binary carries the licences of what it is made of: a copy that is passed on has them.
func TestVersionLicences(t *testing.T) {
	code, stdout, _ := headway(t, "version", "--licences")
	for _, want := range []string{"github.com/nats-io/nats-server/v2 ", "preact ", "Apache License", "Redistributions in binary form must reproduce"} {
		if code != failure.ExitDone || !strings.Contains(stdout, want) {
			t.Errorf("code %d, no %q in %d bytes", code, want, len(stdout))
		}
	}
	code, stdout, _ = headway(t, "version", "--licences", "--json")
	var all []licences.Component
	if err := json.Unmarshal([]byte(stdout), &all); code != failure.ExitDone || err != nil || len(all) < 74 || !slices.Equal(all, licences.Components()) {
		t.Errorf("code %d, %v, %d components, want %d", code, err, len(all), len(licences.Components()))
	}
}

// The scripts must be accepted by the shells they are for, where those exist.
func TestCompletionScriptsParse(t *testing.T) {
	for shell, check := range map[string][]string{"bash": {"-n"}, "zsh": {"-n"}, "fish": {"--no-execute"}} {
		code, script, stderr := headway(t, "completion", shell)
		if code != failure.ExitDone || stderr != "" {
			t.Fatalf("%s: code %d, stderr %q", shell, code, stderr)
		}
		if !strings.Contains(script, "complete -- ") {
			t.Errorf("%s: the script does not ask the program:\n%s", shell, script)
		}
		program, err := exec.LookPath(shell)
		if err != nil {
			continue
		}
		command := exec.Command(program, check...)
		command.Stdin = strings.NewReader(script)
		if said, err := command.CombinedOutput(); err != nil {
			t.Errorf("%s refuses its script: %v\n%s", shell, err, said)
		}
	}
}

func TestFailureKeepsItsCauseAndPrintsItsHint(t *testing.T) {
	err := failure.Usage("name an existing file", "reading %s: %w", "run.yaml", fs.ErrNotExist)
	if !errors.Is(err, fs.ErrNotExist) {
		t.Error("the cause is lost")
	}
	var printed bytes.Buffer
	failure.Print(&printed, err)
	want := "headway: reading run.yaml: file does not exist\n  name an existing file\n"
	if printed.String() != want {
		t.Errorf("printed %q, want %q", printed.String(), want)
	}
}

// skipShort leaves what reckons for long to the tests without the race detector.
func skipShort(t *testing.T) {
	t.Helper()
	if testing.Short() {
		t.Skip("long under the race detector; shorter tests run the same goroutines")
	}
}
