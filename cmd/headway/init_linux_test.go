package main

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/app"
	"github.com/headway-rl/headway/app/starter"
	"github.com/headway-rl/headway/internal/failure"
)

// whole are all choices that fit.
func whole() (all []starter.Choice) {
	var c starter.Choice
	parts := c.Parts()
	for _, trainer := range c.Open(parts[0]) {
		for _, engine := range (&starter.Choice{Trainer: trainer.Name}).Open(parts[1]) {
			for _, environment := range c.Open(parts[2]) {
				all = append(all, starter.Choice{Trainer: trainer.Name, Engine: engine.Name, Environment: environment.Name})
			}
		}
	}
	return all
}

// What init writes of every choice passes doctor. Servers are not asked, since there are none.
func TestInitPassesDoctor(t *testing.T) {
	model := tinyModel(t, 40)
	config := `{"vocab_size": 40, "max_position_embeddings": 4096, "eos_token_id": 2}`
	if err := os.WriteFile(filepath.Join(model, "config.json"), []byte(config), 0o600); err != nil {
		t.Fatal(err)
	}
	all := whole()
	if len(all) != 27 {
		t.Fatalf("%d choices, want 27", len(all))
	}
	for _, c := range all {
		t.Run(fmt.Sprintf("%s-%s-%s", c.Trainer, c.Engine, c.Environment), func(t *testing.T) {
			t.Chdir(t.TempDir())
			code, _, stderr := headway(t, "init", "new", "--trainer", c.Trainer, "--engine", c.Engine, "--environment", c.Environment)
			if code != failure.ExitDone {
				t.Fatalf("code %d, %s", code, stderr)
			}
			t.Chdir("new")
			if c.Engine != "embedded" {
				if err := os.Symlink(model, "model"); err != nil {
					t.Fatal(err)
				}
			}
			code, stdout, stderr := headway(t, "doctor", "run.yaml", "--no-probe", "--full")
			if code != failure.ExitDone || strings.Contains(stdout, "\nwarning ") || strings.Contains(stderr, "warning:") {
				t.Errorf("code %d, %s%s", code, stdout, stderr)
			}
			page, err := os.ReadFile("README.md")
			if err != nil {
				t.Fatal(err)
			}
			for _, name := range []string{"environment.py", "tasks.jsonl", "train.py"} {
				_, err := os.Stat(name)
				if named := strings.Contains(string(page), "`"+name+"`"); named != (err == nil) {
					t.Errorf("README.md names %s: %v, and it is there: %v", name, named, err)
				}
			}
		})
	}
}

// What init writes trains, in real processes: here what needs no Python.
func TestInitTrains(t *testing.T) {
	program(t) // before the directory changes
	t.Chdir(t.TempDir())
	if code, _, stderr := headway(t, "init", "new", "--trainer", "embedded", "--environment", "tasks"); code != failure.ExitDone {
		t.Fatalf("code %d, %s", code, stderr)
	}
	t.Chdir("new")
	document, err := os.ReadFile("run.yaml")
	if err != nil {
		t.Fatal(err)
	}
	s := startServe(t, ".", string(document), "--set", "trainer.steps=5", "--json")
	if status := s.final(); status.Version != 5 || !status.Ledger.Balanced {
		t.Errorf("version %d, ledger %+v\n%s", status.Version, status.Ledger, s.text())
	}
}

// Nothing is overwritten, each file that is there is named, and nothing is left of what was not written.
func TestInitOverwritesNothing(t *testing.T) {
	t.Chdir(t.TempDir())
	for name, content := range map[string]string{"there/run.yaml": "mine", "there/tasks.jsonl": "mine", "there/notes": "mine", "file": "mine"} {
		if err := os.MkdirAll("there", 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, []byte(content), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	flags := []string{"--trainer", "embedded", "--environment"}
	code, _, stderr := headway(t, append([]string{"init", "there"}, append(flags, "tasks")...)...)
	if code != failure.ExitUsage || !strings.Contains(stderr, "there is already: there/run.yaml, there/tasks.jsonl\n") {
		t.Errorf("code %d, %s", code, stderr)
	}
	if have := entries(t, "there"); !slices.Equal(have, []string{"notes", "run.yaml", "tasks.jsonl"}) {
		t.Errorf("there are %v", have)
	}
	for _, name := range []string{"run.yaml", "tasks.jsonl"} {
		if err := os.Remove(filepath.Join("there", name)); err != nil {
			t.Fatal(err)
		}
	}
	if code, _, stderr := headway(t, append([]string{"init", "there"}, append(flags, "tasks")...)...); code != failure.ExitDone {
		t.Errorf("beside other files: code %d, %s", code, stderr)
	}
	if have := entries(t, "there"); !slices.Equal(have, []string{"README.md", "notes", "run.yaml", "tasks.jsonl"}) {
		t.Errorf("there are %v", have)
	}
	for _, bad := range []string{"", "file", "file/new", "none/new"} {
		if code, _, stderr := headway(t, append([]string{"init", bad}, append(flags, "tasks")...)...); code != failure.ExitUsage {
			t.Errorf("%s: code %d, %s", bad, code, stderr)
		}
	}
	if have := entries(t, "."); !slices.Equal(have, []string{"file", "there"}) {
		t.Errorf("there are %v", have)
	}
}

// Flags that do not go together are refused by what does.
func TestInitNamesWhatFits(t *testing.T) {
	t.Chdir(t.TempDir())
	for _, test := range []struct{ flags, want string }{
		{"--trainer jax --engine vllm", "--trainer jax takes --engine embedded; --engine vllm takes --trainer hf, distill"},
		{"--trainer hf --engine tinker", "--trainer hf takes --engine vllm, sglang, llamacpp; --engine tinker takes --trainer tinker"},
		{"--trainer hf --environment agent", "say --engine with one of vllm, sglang, llamacpp"},
		{"--engine embedded --environment agent", "say --trainer with one of torch, jax, embedded"},
	} {
		code, _, stderr := headway(t, append([]string{"init", "new"}, strings.Fields(test.flags)...)...)
		if code != failure.ExitUsage || !strings.Contains(stderr, test.want) {
			t.Errorf("%s: code %d, %s", test.flags, code, stderr)
		}
	}
	if have := entries(t, "."); len(have) > 0 {
		t.Errorf("there are %v", have)
	}
}

// A terminal is asked for what is open, again where the answer is none, and not where one option fits.
func TestInitAsks(t *testing.T) {
	t.Chdir(t.TempDir())
	ask := func(c *initCmd, answers string) (string, error) {
		var out, asked bytes.Buffer
		a := &app.Process{Stdin: strings.NewReader(answers), Stdout: &out, Stderr: &asked, Now: time.Now, Getenv: func(string) string { return "" }}
		a.IsTerminal = func(stream any) bool { _, is := stream.(io.Reader); return is }
		err := c.Run(a)
		return asked.String(), err
	}
	said, err := ask(&initCmd{Dir: "new"}, "verl\nHF\n3\n\n")
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"verl" is none of them: say a name, or a number from 1 to 6`, "  3  llamacpp ", "environment [python] "} {
		if !strings.Contains(said, want) {
			t.Errorf("it lacks %q:\n%s", want, said)
		}
	}
	document, err := os.ReadFile("new/run.yaml")
	if err != nil || !strings.Contains(string(document), "kind: llamacpp") || !strings.Contains(string(document), "name: sums") {
		t.Errorf("%v, the document is\n%s", err, document)
	}
	if said, err := ask(&initCmd{Dir: "other", Trainer: "torch"}, ""); err == nil || strings.Contains(said, "engine") || !strings.Contains(err.Error(), "answers end") {
		t.Errorf("%v, asked %s", err, said)
	}
	if have := entries(t, "."); !slices.Equal(have, []string{"new"}) {
		t.Errorf("there are %v", have)
	}
}

// The commands that init prints can be typed, whatever the directory's name.
func TestInitPrintsCommandsForAnyName(t *testing.T) {
	t.Chdir(t.TempDir())
	code, stdout, stderr := headway(t, "init", "my run", "--trainer", "embedded", "--environment", "tasks")
	if code != failure.ExitDone || !strings.Contains(stdout, "\n  cd 'my run'\n") {
		t.Errorf("code %d, %s%s", code, stdout, stderr)
	}
}
