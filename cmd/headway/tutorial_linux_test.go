package main

import (
	"bufio"
	"context"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"syscall"
	"testing"
	"time"
)

// A tutorial is a page of docs/tutorials whose fenced blocks are played, in order, in one shell in an empty
// directory beside the repository's examples:
//
//	```console            each line that begins with "$ " is a command; the lines after it must come in its
//	                      output, in that order. "…" stands for anything within a line, and a line of "…"
//	                      for any lines. A comment after "# exit 1" says how the command ends, else 0.
//	```yaml file=NAME     is written to the file before what follows is played. Any language will do.
//	```console python     is played where HEADWAY_PYTHON names a Python with the client, as in make test-python
type tutorial struct {
	path  string
	steps []tutorialStep
	// python: it needs one.
	python bool
}

// tutorialStep is a file to write or a command with what it must print.
type tutorialStep struct {
	line    int
	file    string
	command string
	exit    int
	lines   []string
}

// readTutorial finds what a page has to play.
func readTutorial(path string) (tutorial, error) {
	raw, err := os.ReadFile(path)
	if err != nil {
		return tutorial{}, err
	}
	page := tutorial{path: path}
	lines := strings.Split(string(raw), "\n")
	for i := 0; i < len(lines); i++ {
		info, opens := strings.CutPrefix(lines[i], "```")
		if !opens {
			continue
		}
		begin := i + 1
		for i++; i < len(lines) && lines[i] != "```"; i++ {
		}
		if i == len(lines) {
			return page, fmt.Errorf("%s:%d: a fenced block without an end", path, begin)
		}
		words := strings.Fields(info)
		switch {
		case len(words) > 0 && words[0] == "console":
			page.python = page.python || len(words) > 1 && words[1] == "python"
			page.steps = append(page.steps, commandsOf(lines[begin:i], begin)...)
		case len(words) > 1 && strings.HasPrefix(words[1], "file="):
			page.steps = append(page.steps, tutorialStep{line: begin, file: strings.TrimPrefix(words[1], "file="), lines: lines[begin:i]})
		}
	}
	return page, nil
}

var exitComment = regexp.MustCompile(` +# exit (\d)$`)

func commandsOf(lines []string, begin int) (steps []tutorialStep) {
	for i, line := range lines {
		if command, is := strings.CutPrefix(line, "$ "); is {
			step := tutorialStep{line: begin + i + 1, command: command}
			if found := exitComment.FindStringSubmatch(command); found != nil {
				step.exit = int(found[1][0] - '0')
			}
			steps = append(steps, step)
		} else if len(steps) > 0 {
			last := &steps[len(steps)-1]
			if strings.HasSuffix(last.command, `\`) {
				last.command += "\n" + line
			} else {
				last.lines = append(last.lines, line)
			}
		}
	}
	return steps
}

// missing is the first line that an output lacks, "" for none.
func missing(want []string, output string) string {
	got := strings.Split(output, "\n")
	for _, line := range want {
		line = strings.TrimRight(line, " ")
		if line == "…" || line == "" {
			continue
		}
		parts := strings.Split(line, "…")
		for i := range parts {
			parts[i] = regexp.QuoteMeta(strings.Join(strings.Fields(parts[i]), " "))
		}
		pattern := regexp.MustCompile(strings.Join(parts, " ?.* ?"))
		found := -1
		for i, candidate := range got {
			if pattern.MatchString(strings.Join(strings.Fields(candidate), " ")) {
				found = i
				break
			}
		}
		if found < 0 {
			return line
		}
		got = got[found+1:]
	}
	return ""
}

func TestTutorials(t *testing.T) {
	pages, err := filepath.Glob("../../docs/tutorials/*.md")
	if err != nil || len(pages) == 0 {
		t.Fatalf("no tutorials: %v", err)
	}
	for _, path := range pages {
		t.Run(strings.TrimSuffix(filepath.Base(path), ".md"), func(t *testing.T) {
			page, err := readTutorial(path)
			if err != nil {
				t.Fatal(err)
			}
			python := os.Getenv("HEADWAY_PYTHON")
			switch {
			case len(page.steps) == 0:
				if filepath.Base(path) != "README.md" {
					t.Fatal("nothing is played")
				}
			case page.python && python == "":
				t.Skip("it needs HEADWAY_PYTHON, a Python with the client: make test-python plays it")
			default:
				page.play(t, python)
			}
		})
	}
}

// play plays the steps in one shell.
func (page tutorial) play(t *testing.T, python string) {
	dir := t.TempDir()
	for _, name := range []string{"examples", "clients", "explain"} {
		target, err := filepath.Abs(filepath.Join("../..", name))
		if err == nil {
			err = os.Symlink(target, filepath.Join(dir, name))
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
	defer cancel()
	shell := exec.CommandContext(ctx, "/bin/sh")
	shell.Dir = dir
	path := filepath.Dir(program(t)) + ":" + os.Getenv("PATH")
	if python != "" {
		path = filepath.Dir(python) + ":" + path
	}
	shell.Env = append(os.Environ(), "PATH="+path, "NO_COLOR=1", "PYTHONPATH="+filepath.Join(dir, "clients/python/src"))
	shell.SysProcAttr = &syscall.SysProcAttr{Setpgid: true} // so that what it started in the background goes with it
	shell.Cancel = func() error { return syscall.Kill(-shell.Process.Pid, syscall.SIGKILL) }
	shell.WaitDelay = 10 * time.Second
	to, err := shell.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	from, into := io.Pipe()
	shell.Stdout, shell.Stderr = into, into
	if err := shell.Start(); err != nil {
		t.Fatal(err)
	}
	defer func() {
		_ = syscall.Kill(-shell.Process.Pid, syscall.SIGKILL)
		go func() { _, _ = io.Copy(io.Discard, from) }()
		_ = shell.Wait()
	}()
	output := bufio.NewReader(from)
	for i, step := range page.steps {
		if step.file != "" {
			if err := os.WriteFile(filepath.Join(dir, step.file), []byte(strings.Join(step.lines, "\n")+"\n"), 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		mark := fmt.Sprintf("~~~%d~~~", i)
		fmt.Fprintf(to, "%s\nprintf '\\n%s%%d\\n' $?\n", step.command, mark)
		printed, exit, err := until(output, mark)
		if err != nil {
			t.Fatalf("%s:%d: $ %s\n%s\nit did not end: %v", page.path, step.line, step.command, printed, err)
		}
		if exit != fmt.Sprint(step.exit) {
			t.Fatalf("%s:%d: $ %s\n%s\nended with %s, want %d", page.path, step.line, step.command, printed, exit, step.exit)
		}
		if line := missing(step.lines, printed); line != "" {
			t.Fatalf("%s:%d: $ %s\n%s\nlacks, in its order, the line\n%s", page.path, step.line, step.command, printed, line)
		}
	}
}

// until reads up to the line that begins with a mark; the rest of that line is what a command ended with.
func until(r *bufio.Reader, mark string) (printed, exit string, err error) {
	var text strings.Builder
	for {
		line, err := r.ReadString('\n')
		if rest, found := strings.CutPrefix(line, mark); found {
			return text.String(), strings.TrimSpace(rest), nil
		}
		text.WriteString(line)
		if err != nil {
			return text.String(), "", err
		}
	}
}

// What the runner must notice, so that a tutorial that is wrong fails.
func TestTutorialsAreHeldToTheirOutput(t *testing.T) {
	const output = "run  base: 600 train steps\nstaleness   1.26 versions\nledger balanced\n"
	for _, c := range []struct {
		want []string
		miss string
	}{
		{[]string{"run …: 600 train steps", "…", "ledger balanced"}, ""},
		{[]string{"staleness … versions"}, ""},
		{[]string{"ledger balanced", "run …"}, "run …"},
		{[]string{"staleness 2… versions"}, "staleness 2… versions"},
	} {
		if got := missing(c.want, output); got != c.miss {
			t.Errorf("of %q it misses %q, want %q", c.want, got, c.miss)
		}
	}
	steps := commandsOf([]string{"$ headway run \\", "    --steps 3", "done", "$ false  # exit 1"}, 10)
	if len(steps) != 2 || steps[0].command != "headway run \\\n    --steps 3" || len(steps[0].lines) != 1 || steps[1].exit != 1 || steps[1].line != 14 {
		t.Errorf("read as %+v", steps)
	}
}
