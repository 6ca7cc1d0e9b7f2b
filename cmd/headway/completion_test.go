package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/internal/failure"
)

// Completion knows commands, commands below them, flags, values, models, keys and runs.
func TestCompletionCandidates(t *testing.T) {
	t.Chdir(t.TempDir())
	if err := os.MkdirAll(filepath.Join("runs", "mine"), 0o700); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join("runs", "mine", "config.yaml"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		words []string
		want  string
		all   bool // nothing else is offered
	}{
		{[]string{"sim"}, "simulate", true},
		{[]string{"weights", "pr"}, "prune", true},
		{[]string{"weights", "prune", "--ke"}, "--keep", true},
		{[]string{"weights", "prune", "--run", "runs/m"}, "runs/mine", true},
		{[]string{"view", ""}, "runs/mine", true},
		{[]string{"plan", "--model", "llama-3.1-8"}, "llama-3.1-8b", true},
		{[]string{"plan", "--gpu", "h"}, "h200", false},
		{[]string{"simulate", "--set", "rollout.group_s"}, "rollout.group_size=", true},
		{[]string{"weights", "diff", "--encoding", "x"}, "xor", true},
		{[]string{"completion", "f"}, "fish", true},
		{[]string{""}, "clean", false},
	} {
		code, stdout, stderr := headway(t, append([]string{"complete", "--"}, test.words...)...)
		found := strings.Fields(stdout)
		if code != failure.ExitDone || !slices.Contains(found, test.want) || test.all && len(found) != 1 {
			t.Errorf("%q: code %d, %q %s, want %s", test.words, code, found, stderr, test.want)
		}
		if slices.Contains(found, "complete") || slices.Contains(found, "study") {
			t.Errorf("%q: %q has a hidden command", test.words, found)
		}
	}
}

// Bash fills in what the program prints, and executes none of it.
func TestBashCompletes(t *testing.T) {
	bash, err := exec.LookPath("bash")
	if err != nil {
		t.Skip("bash is not here")
	}
	dir := t.TempDir()
	program := filepath.Join(dir, "headway")
	said := "#!/bin/sh\n[ \"$*\" = 'complete -- view runs/' ] && printf '%s\\n' 'runs/a b' 'runs/$(touch executed)'\n"
	if err := os.WriteFile(program, []byte(said), 0o700); err != nil {
		t.Fatal(err)
	}
	command := exec.Command(bash, "--norc", "-c", scripts["bash"]+`COMP_WORDS=("$1" view runs/) COMP_CWORD=2; _headway; printf '%s\n' "${COMPREPLY[@]}"`, "bash", program)
	command.Dir = dir
	out, err := command.CombinedOutput()
	if want := "runs/a\\ b\nruns/\\$\\(touch\\ executed\\)\n"; err != nil || string(out) != want {
		t.Errorf("%v, bash offers %q, want %q", err, out, want)
	}
	if _, err := os.Stat(filepath.Join(dir, "executed")); err == nil {
		t.Error("a candidate is executed")
	}
}

// Completion installs itself, says which files it wrote, and changes nothing by a second time.
func TestCompletionInstalls(t *testing.T) {
	home := t.TempDir()
	for name, value := range map[string]string{"HOME": home, "SHELL": "/usr/bin/zsh", "ZDOTDIR": "", "XDG_DATA_HOME": "", "XDG_CONFIG_HOME": ""} {
		t.Setenv(name, value)
	}
	settings := filepath.Join(home, ".bashrc")
	if err := os.WriteFile(settings, []byte("alias a=b"), 0o600); err != nil {
		t.Fatal(err)
	}
	for _, arguments := range [][]string{{"bash"}, {"bash"}, {}, {"fish"}} {
		code, stdout, stderr := headway(t, append([]string{"completion", "--install"}, arguments...)...)
		if code != failure.ExitDone || !strings.Contains(stdout, "wrote "+home) {
			t.Fatalf("%q: code %d, %q, %s", arguments, code, stdout, stderr)
		}
	}
	script := filepath.Join(home, ".local/share/headway/completion.bash")
	want := "alias a=b\n" + sourced(script) + "\n"
	if text, err := os.ReadFile(settings); err != nil || string(text) != want {
		t.Errorf("%s is %q, %v, want %q", settings, text, err, want)
	}
	if text, err := os.ReadFile(script); err != nil || string(text) != scripts["bash"] {
		t.Errorf("the script is %q, %v", text, err)
	}
	for _, path := range []string{".zshrc", ".local/share/headway/completion.zsh", ".config/fish/completions/headway.fish"} {
		if _, err := os.Stat(filepath.Join(home, path)); err != nil {
			t.Error(err)
		}
	}
	t.Setenv("SHELL", "/bin/tcsh")
	if code, _, stderr := headway(t, "completion", "--install"); code != failure.ExitUsage || !strings.Contains(stderr, "tcsh") {
		t.Errorf("tcsh: code %d, %s", code, stderr)
	}
}
