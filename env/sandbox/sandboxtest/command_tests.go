package sandboxtest

import (
	"bytes"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
)

func testExit(t *testing.T, s *suite) {
	box := s.box(t)
	for _, c := range []struct {
		argv   []string
		exit   int
		signal string
	}{
		{[]string{"true"}, 0, ""},
		{[]string{"/bin/sh", "-c", "exit 1"}, 1, ""},
		{[]string{"sh", "-c", "exit 98"}, 98, ""},
		{[]string{"sh", "-c", "exit 255"}, 255, ""},
		{[]string{"sh", "-c", "exit 137"}, 137, ""},
		{[]string{"sh", "-c", "kill -TERM $$; sleep 100"}, 143, "SIGTERM"},
		{[]string{"sh", "-c", "kill -KILL $$; sleep 100"}, 137, "SIGKILL"},
		{[]string{"sh", "-c", "kill -SEGV $$; sleep 100"}, 139, "SIGSEGV"},
		{[]string{"no-such-program"}, 127, ""},
		{[]string{"/no/such/program"}, 127, ""},
		{[]string{"/tmp"}, 126, ""},
	} {
		result := run(t, box, sandbox.Command{Argv: c.argv})
		if result.Exit != c.exit || result.Signal != c.signal || result.Limit != "" {
			t.Errorf("%q: %s, want exit %d and signal %q", c.argv, described(result), c.exit, c.signal)
		}
		if c.exit == 126 || c.exit == 127 {
			if len(result.Stderr) == 0 {
				t.Errorf("%q: nothing says why it did not start", c.argv)
			}
		}
	}
	if result := run(t, box, shell("i=0; while [ $i -lt 2000 ]; do i=$((i+1)); done")); result.Wall <= 0 {
		t.Errorf("a loop took no time: %s", described(result))
	}
}

// everyByte is each byte once, twice over, with NULs and no valid UTF-8.
func everyByte() []byte {
	var all []byte
	for i := range 512 {
		all = append(all, byte(i))
	}
	return all
}

func testStdin(t *testing.T, s *suite) {
	box := s.box(t, func(spec *sandbox.Spec) { spec.Limits.Output = 2 << 20 })
	large := bytes.Repeat(everyByte(), 2048) // 1 MiB
	for _, stdin := range [][]byte{nil, {}, []byte("one line\n"), everyByte(), large} {
		result := run(t, box, sandbox.Command{Argv: []string{"cat"}, Stdin: stdin})
		if result.Exit != 0 || !bytes.Equal(result.Stdout, stdin) || result.StdoutCut {
			t.Errorf("cat of %d bytes gave %d of them: %s", len(stdin), len(result.Stdout), described(result))
		}
	}
	// Nobody has to read it.
	if result := run(t, box, sandbox.Command{Argv: []string{"true"}, Stdin: large}); result.Exit != 0 {
		t.Errorf("true with input: %s", described(result))
	}
	if result := run(t, box, sandbox.Command{Argv: []string{"sh", "-c", "exec 0<&-; echo closed"}, Stdin: large}); string(result.Stdout) != "closed\n" {
		t.Errorf("input closed: %s", described(result))
	}
}

func testOutput(t *testing.T, s *suite) {
	box := s.box(t)
	result := run(t, box, shell(`printf 'out\000\377\376'; printf '\200err\000' >&2`))
	if string(result.Stdout) != "out\x00\xff\xfe" || string(result.Stderr) != "\x80err\x00" || result.StdoutCut || result.StderrCut {
		t.Errorf("%s", described(result))
	}
	if result := run(t, box, sandbox.Command{Argv: []string{"true"}}); len(result.Stdout)+len(result.Stderr) != 0 {
		t.Errorf("true printed: %s", described(result))
	}
	if result := run(t, box, shell("exec 1>&- 2>&-; exit 3")); result.Exit != 3 {
		t.Errorf("a command that closes its output: %s", described(result))
	}
	if result := run(t, box, shell("printf unfinished")); string(result.Stdout) != "unfinished" {
		t.Errorf("a line without its end: %s", described(result))
	}
}

func testEnvironment(t *testing.T, s *suite) {
	t.Setenv("HEADWAY_SANDBOXTEST_HOST", "of the host")
	box := s.box(t, func(spec *sandbox.Spec) {
		spec.Env = map[string]string{"SPEC": "of the spec", "BOTH": "of the spec", "EMPTY": "", "ODD": "two\nlines = 'and' \xff"}
	})
	result := run(t, box, sandbox.Command{Argv: []string{"env", "-0"}, Env: map[string]string{"BOTH": "of the command", "COMMAND": "of the command"}})
	got := strings.Split(strings.TrimSuffix(string(result.Stdout), "\x00"), "\x00")
	names := map[string]string{}
	for _, variable := range got {
		name, value, _ := strings.Cut(variable, "=")
		names[name] = value
	}
	for name, want := range map[string]string{
		"SPEC": "of the spec", "BOTH": "of the command", "EMPTY": "", "ODD": "two\nlines = 'and' \xff", "COMMAND": "of the command",
	} {
		if value, there := names[name]; !there || value != want {
			t.Errorf("%s is %q (there: %t), want %q", name, value, there, want)
		}
		delete(names, name)
	}
	for _, name := range []string{"PATH", "HOME", "LANG"} {
		if names[name] == "" {
			t.Errorf("%s is not set", name)
		}
		delete(names, name)
	}
	for name := range s.Spec.Env {
		delete(names, name)
	}
	if !s.boundary.Files { // its own /tmp is elsewhere on the host, and has to be said
		delete(names, "TMPDIR")
	}
	if len(names) != 0 || len(got) > 9+len(s.Spec.Env) {
		t.Errorf("more than was given: %q", got)
	}
	if again := says(t, box, "echo $COMMAND$BOTH"); again != "of the spec\n" {
		t.Errorf("a command's environment stayed: %q", again)
	}
}

func testDirectory(t *testing.T, s *suite) {
	box := s.box(t)
	if err := box.Write(bounded(t), sandbox.Work+"/inner/file", []byte("here"), 0o644); err != nil {
		t.Fatal(err)
	}
	if got := says(t, box, "cat inner/file"); got != "here" {
		t.Errorf("the file from %s: %q", sandbox.Work, got)
	}
	result := run(t, box, sandbox.Command{Argv: []string{"cat", "file"}, Dir: sandbox.Work + "/inner"})
	if string(result.Stdout) != "here" {
		t.Errorf("the file from its directory: %s", described(result))
	}
	if s.boundary.Files {
		if got := says(t, box, "pwd; cd /tmp; pwd; echo x > /tmp/x; cat /tmp/x"); got != sandbox.Work+"\n/tmp\nx\n" {
			t.Errorf("where commands are: %q", got)
		}
	}
	missing, err := box.Run(bounded(t), sandbox.Command{Argv: []string{"true"}, Dir: sandbox.Work + "/missing"})
	if err == nil && missing.Exit == 0 {
		t.Errorf("a command ran in a directory that is not there: %s", described(missing))
	} else if err != nil {
		wantClass(t, "a directory that is not there", err, sandbox.Refused)
	}
	works(t, box)
}

func testArguments(t *testing.T, s *suite) {
	box := s.box(t, func(spec *sandbox.Spec) { spec.Limits.Output = 1 << 20 })
	odd := []string{"", " ", "a b", "'\"$`\\", "line\nbreak", "\xff\xfe", "-n", "*", strings.Repeat("x", 50000)}
	result := run(t, box, sandbox.Command{Argv: append([]string{"sh", "-c", `for a; do printf '%s\000' "$a"; done`, "name"}, odd...)})
	if got := strings.Split(strings.TrimSuffix(string(result.Stdout), "\x00"), "\x00"); !slices.Equal(got, odd) {
		t.Errorf("arguments arrived as %.300q: %s", got, described(result))
	}
	many := sandbox.Command{Argv: []string{"sh", "-c", "echo $#", "name"}}
	for range 20000 {
		many.Argv = append(many.Argv, "a")
	}
	if result := run(t, box, many); string(result.Stdout) != "20000\n" {
		t.Errorf("20000 arguments: %s", described(result))
	}
}

func testRefused(t *testing.T, s *suite) {
	box := s.box(t)
	for what, command := range map[string]sandbox.Command{
		"no arguments":                    {},
		"a program of no name":            {Argv: []string{""}},
		"a NUL in an argument":            {Argv: []string{"echo", "a\x00b"}},
		"a NUL in the program":            {Argv: []string{"ec\x00ho"}},
		"arguments of 200 KiB":            {Argv: []string{"echo", strings.Repeat("x", 100<<10), strings.Repeat("x", 100<<10)}},
		"one argument of a gigabyte's 64": {Argv: []string{"echo", strings.Repeat("x", 16<<20)}},
		"a NUL in the environment":        {Argv: []string{"echo"}, Env: map[string]string{"A": "\x00"}},
		"a name with =":                   {Argv: []string{"echo"}, Env: map[string]string{"A=B": "c"}},
		"a name of nothing":               {Argv: []string{"echo"}, Env: map[string]string{"": "c"}},
		"a relative directory":            {Argv: []string{"echo"}, Dir: "work"},
		"a NUL in the directory":          {Argv: []string{"echo"}, Dir: "/work\x00"},
		"a negative time":                 {Argv: []string{"echo"}, Time: -1},
	} {
		_, err := box.Run(bounded(t), command)
		wantClass(t, what, err, sandbox.Refused)
	}
	for _, path := range []string{"", "relative", "../work/x", "./x", "/work/\x00", "\x00"} {
		_, err := box.Read(bounded(t), path, 10)
		wantClass(t, "read "+path, err, sandbox.Refused)
		wantClass(t, "write "+path, box.Write(bounded(t), path, []byte("x"), 0o644), sandbox.Refused)
	}
	for _, id := range []sandbox.ID{"", ".", "..", "../x.1", "x/y.1", "1x.1", "-x.1", "x y.1", "x.1\x00", "é.1", sandbox.ID("x." + strings.Repeat("1", 63))} {
		created, err := s.driver.Create(bounded(t), id, s.spec())
		wantClass(t, "create "+string(id), err, sandbox.Refused)
		if err == nil {
			created.Close(bounded(t))
		}
	}
	works(t, box)
}

// testDescriptors: nothing that the agent or the driver has open is open in a command.
func testDescriptors(t *testing.T, s *suite) {
	box := s.box(t)
	if got := strings.Fields(says(t, box, "for f in /proc/self/fd/*; do [ -e $f ] && echo ${f##*/}; done; true")); !slices.Equal(got, []string{"0", "1", "2"}) {
		t.Errorf("open in a command: %q, want 0 1 2", got)
	}
}

// testLeftBehind: a command that has ended is waited for no longer, whatever it started goes, and
// it cannot hide from that.
func testLeftBehind(t *testing.T, s *suite) {
	box := s.box(t)
	for name, script := range map[string]string{
		"in the background":             `sleep 1000 & echo $! > pid`,
		"in a session of its own":       `setsid sh -c 'echo $$ > pid; exec sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done`,
		"deaf to signals":               `sh -c 'trap "" TERM HUP INT; echo $$ > pid; while :; do sleep 1; done' & while [ ! -s pid ]; do sleep 0.01; done`,
		"a daemon":                      `(setsid sh -c 'echo $$ > pid; exec sleep 1000' </dev/null >/dev/null 2>&1 &) & while [ ! -s pid ]; do sleep 0.01; done`,
		"holding the output of another": `setsid sh -c 'echo $$ > pid; sleep 1000 | sleep 1000' & while [ ! -s pid ]; do sleep 0.01; done`,
		"stopped":                       `setsid sh -c 'echo $$ > pid; kill -STOP $$' & while [ ! -s pid ]; do sleep 0.01; done`,
	} {
		result := run(t, box, shell("rm -f pid; "+script+"; echo ended"))
		if string(result.Stdout) != "ended\n" || result.Limit != "" || result.Exit != 0 {
			t.Errorf("%s: %s", name, described(result))
		}
		// What has ended and whose end the first process has not taken yet does not run.
		if got := says(t, box, `case $(cut -d " " -f 3 /proc/$(cat pid)/stat 2>/dev/null) in ""|Z|X) echo gone ;; *) cat /proc/$(cat pid)/stat ;; esac`); got != "gone\n" {
			t.Errorf("%s: it still runs: %s", name, got)
		}
	}
	if s.boundary.Processes {
		// The agent, this shell and its ls: no zombie of what was reaped either.
		got := says(t, box, `n=0; for p in /proc/[0-9]*; do n=$((n+1)); done; [ $n -le 4 ] && echo few || for p in /proc/[0-9]*; do cat $p/stat; done`)
		if got != "few\n" {
			t.Errorf("processes that are left:\n%s", got)
		}
	}
}
