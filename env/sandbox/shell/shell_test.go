package shell

import (
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

// sh runs a script in the machine's own shell.
func sh(t *testing.T, script, stdin string) (stdout string, exit int) {
	t.Helper()
	command := exec.CommandContext(t.Context(), "/bin/sh", "-c", script)
	command.Stdin = strings.NewReader(stdin)
	out, err := command.Output()
	if failed, is := errors.AsType[*exec.ExitError](err); is {
		return string(out), failed.ExitCode()
	}
	if err != nil {
		t.Fatal(err)
	}
	return string(out), 0
}

func TestCommandsReachTheProgramAsTheyAre(t *testing.T) {
	dir := t.TempDir()
	awkward := "a'b \"c\" $HOME `id`\nd\\"
	script := Command(map[string]string{"BOX": "1", "BOTH": "box"}, sandbox.Command{
		Argv: []string{"sh", "-c", `printf '%s|' "$1" "$BOX" "$BOTH" "$PWD" "$HOME"`, "sh", awkward},
		Dir:  dir, Env: map[string]string{"BOTH": awkward},
	}, "")
	want := strings.Join([]string{awkward, "1", awkward, dir, sandbox.Work, ""}, "|")
	if got, exit := sh(t, script, ""); exit != 0 || got != want {
		t.Errorf("exit %d, printed\n%q, want\n%q", exit, got, want)
	}
	if _, exit := sh(t, Command(nil, sandbox.Command{Argv: []string{"true"}, Dir: dir + "/none"}, ""), ""); exit != NoDirectory {
		t.Errorf("exit %d without the directory, want %d", exit, NoDirectory)
	}
	program := filepath.Join(dir, "a=b")
	if err := os.WriteFile(program, []byte("#!/bin/sh\necho \"$1\"\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	if got, exit := sh(t, Command(nil, sandbox.Command{Argv: []string{program, "x"}, Dir: dir}, ""), ""); got != "x\n" {
		t.Errorf("a program whose name has an equals sign printed %q, exit %d", got, exit)
	}
	in := filepath.Join(dir, "in")
	if err := os.WriteFile(in, []byte("from a file"), 0o600); err != nil {
		t.Fatal(err)
	}
	if got, _ := sh(t, "in="+in+"\n"+Command(nil, sandbox.Command{Argv: []string{"cat"}, Dir: dir}, `<"$in" `), ""); got != "from a file" {
		t.Errorf("read %q from the redirected file", got)
	}
}

// A program cannot pass for one whose directory is not there, by its exit code or by removing its directory.
func TestBegunIsNoWordOfTheProgram(t *testing.T) {
	for name, test := range map[string]struct {
		dir, program, own string
		begun             bool
	}{
		"no directory":    {"/none", "true", "", false},
		"its exit code":   {t.TempDir(), "exit 98", "", true},
		"its words":       {t.TempDir(), `printf 'sh: 1: cd: no\000' >&2; exit 98`, "sh: 1: cd: no\x00", true},
		"a directory off": {t.TempDir(), `rmdir "$PWD"; exec 2>&-; exit 98`, "", true},
	} {
		script := exec.CommandContext(t.Context(), "/bin/sh", "-c", Command(nil, sandbox.Command{Argv: []string{"sh", "-c", test.program}, Dir: test.dir}, ""))
		_, err := script.Output()
		failed, is := errors.AsType[*exec.ExitError](err)
		if !is || failed.ExitCode() != NoDirectory {
			t.Fatalf("%s: %v", name, err)
		}
		own, begun := Begun(failed.Stderr)
		if begun != test.begun || begun && string(own) != test.own || !begun && len(own) == 0 {
			t.Errorf("%s: begun %t with %q", name, begun, own)
		}
	}
}

func TestFilesAreWrittenAndRead(t *testing.T) {
	dir := t.TempDir()
	name := filepath.Join(dir, "deep", "it's a file")
	if _, exit := sh(t, Write(name, "", 0o640), "content\x00"); exit != 0 {
		t.Fatalf("writing ended with %d", exit)
	}
	if info, err := os.Stat(name); err != nil || info.Mode().Perm() != 0o640 {
		t.Errorf("the file has %v, %v", info.Mode(), err)
	}
	if got, exit := sh(t, Read(name, 100), ""); exit != 0 || got != "content\x00" {
		t.Errorf("read %q, exit %d", got, exit)
	}
	if got, _ := sh(t, Read(name, 3), ""); got != "cont" {
		t.Errorf("of a limit of 3 bytes came %q, want one more", got)
	}
	second := filepath.Join(dir, "copy")
	if _, exit := sh(t, Write(second, Quote(name), 0o600), ""); exit != 0 {
		t.Errorf("writing from a file ended with %d", exit)
	}
	for script, want := range map[string]error{Read(name+"x", 1): fs.ErrNotExist, Read(dir, 1): fs.ErrInvalid, Write(dir, "", 0o600): fs.ErrInvalid} {
		_, exit := sh(t, script, "")
		if err := FileError("read", "b1", "f", exit, "", nil); !errors.Is(err, want) {
			t.Errorf("exit %d is %v, want %v", exit, err, want)
		}
	}
}

func TestFileErrorsHaveTheirClass(t *testing.T) {
	for _, c := range []struct {
		exit   int
		limit  sandbox.Class
		stderr string
		want   sandbox.Class
	}{{1, "", "cat: No space left on device", sandbox.Disk}, {Denied, "", "Permission denied", sandbox.Refused}, {137, sandbox.Timeout, "", sandbox.Lost}} {
		failure, is := errors.AsType[*sandbox.Failure](FileError("write", "b1", "f", c.exit, c.limit, []byte(c.stderr)))
		if !is || failure.Class != c.want {
			t.Errorf("exit %d with %q is %v, want the class %s", c.exit, c.stderr, failure, c.want)
		}
	}
	if err := FileError("read", "b1", "f", 0, "", []byte("a warning")); err != nil {
		t.Errorf("a read that went well is %v", err)
	}
}

func TestStreamsKeepTheirBeginning(t *testing.T) {
	s := Stream{Limit: 4}
	s.Add([]byte("abc"))
	if s.Cut() {
		t.Error("cut before its limit")
	}
	s.Add([]byte("def"))
	if string(s.Text) != "abcd" || s.Seen != 6 || !s.Cut() || s.Floods() {
		t.Errorf("kept %q of %d bytes", s.Text, s.Seen)
	}
	s.Add(make([]byte, 64*4))
	if !s.Floods() {
		t.Error("64 times its limit is no flood")
	}
}
