package episode_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"testing/synctest"
	"time"
	"unicode/utf8"

	"github.com/headway-rl/headway/env/episode"
	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/bwrap"
	"github.com/headway-rl/headway/env/sandbox/process"
	"github.com/headway-rl/headway/env/verifier"
)

// processBox is a real box of plain processes: what these tests run is their own.
func processBox(t *testing.T, limits sandbox.Limits) sandbox.Box {
	t.Helper()
	driver, err := process.New(filepath.Join(t.TempDir(), "boxes"))
	if err != nil {
		t.Fatal(err)
	}
	box, err := driver.Create(t.Context(), sandbox.ID("t."+rand.Text()), sandbox.Spec{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return box
}

func sandboxed(t *testing.T, box sandbox.Box, o episode.SandboxedOptions) *episode.Sandboxed {
	t.Helper()
	w, err := episode.NewSandboxed(box, o)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := w.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return w
}

// bwrapBox is a box with files of its own.
func bwrapBox(t *testing.T, limits sandbox.Limits) sandbox.Box {
	t.Helper()
	driver, err := bwrap.New(filepath.Join(t.TempDir(), "boxes"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	box, err := driver.Create(t.Context(), sandbox.ID("t."+rand.Text()), sandbox.Spec{Limits: limits})
	if err != nil {
		t.Fatal(err)
	}
	return box
}

type args map[string]any

// answersOf are what a policy was told by tools.
func answersOf(t *testing.T, messages []json.RawMessage) (answers []string) {
	t.Helper()
	for _, raw := range messages {
		var m struct {
			Role, Content string
			ToolCallID    string `json:"tool_call_id"`
		}
		if err := json.Unmarshal(raw, &m); err != nil {
			t.Fatal(err)
		}
		if m.Role == "tool" {
			answers = append(answers, m.Content)
			if m.ToolCallID == "" {
				t.Errorf("%s answers no call", raw)
			}
		}
	}
	return answers
}

// A policy works with tools in a real box, on the task's files, and is judged by tests it never saw.
func TestSandboxed(t *testing.T) {
	for name, make := range map[string]func(*testing.T, sandbox.Limits) sandbox.Box{"process": processBox, "bwrap": bwrapBox} {
		t.Run(name, func(t *testing.T) { playSandboxed(t, make(t, sandbox.Limits{})) })
	}
}

func playSandboxed(t *testing.T, box sandbox.Box) {
	task := question()
	task.Files = map[string][]byte{"/work/add.py": []byte("def add(a, b):\n    return a - b\n")}
	task.Hidden = map[string][]byte{"/work/test_add.py": []byte("import os, sys\nsys.path.append(os.environ['HEADWAY_WORK'])\nimport add\nassert add.add(2, 3) == 5\n")}
	task.Test = "python3 test_add.py"
	fix := call("write_file", args{"path": "add.py", "content": "def add(a, b):\n    return a + b\n"})
	fix.version = 5
	p := &script{lines: []line{
		call("shell", args{"command": "ls; cat test_add.py"}),
		call("read_file", args{"path": "/work/add.py"}),
		fix,
		call("python", args{"code": "import add; print(add.add(2, 3))"}),
		{text: "done", version: 9},
	}}
	tests, err := verifier.New(verifier.Options{Kind: verifier.Tests, Source: verifier.SourceExit})
	if err != nil {
		t.Fatal(err)
	}
	o, err := episode.Play(t.Context(), task, p, sandboxed(t, box, episode.SandboxedOptions{}), tests, episode.Options{})
	if err != nil || o.Verdict.Reward != 1 || !o.Verdict.Exact || o.Turns != 5 {
		t.Fatalf("%+v, %v", o, err)
	}
	answers := answersOf(t, o.Messages)
	for i, want := range []string{"add.py\n", "def add(a, b):\n    return a - b\n", "[32 bytes written to /work/add.py]", "5\n"} {
		if !strings.HasPrefix(answers[i], want) {
			t.Errorf("answer %d is %q, want %q", i, answers[i], want)
		}
	}
	if !strings.Contains(answers[0], "No such file") || !strings.Contains(answers[0], "[exit code 1]") {
		t.Errorf("the hidden file was there: %q", answers[0])
	}
	if o.StateLow != 0 || o.StateHigh != 6 || *o.Record.StateHigh != 6 || !strings.HasPrefix(o.Record.Box, "t.") {
		t.Errorf("the state is of %d to %d: %+v", o.StateLow, o.StateHigh, o.Record)
	}
	if text := lines(o.Record); !strings.Contains(text, "tool@0:files=") || !strings.Contains(text, "tool@3:python=") || !strings.Contains(text, "verifier@4=") {
		t.Error(text)
	}
}

// What a policy does wrong it is told, and the rollout goes on.
func TestMistakes(t *testing.T) {
	raw := func(name, arguments string) line {
		return line{calls: []episode.Call{{ID: "c", Name: name, Arguments: arguments}}}
	}
	crowd := line{}
	for i := range 4 {
		crowd.calls = append(crowd.calls, episode.Call{ID: fmt.Sprint(i), Name: "shell", Arguments: `{"command":"echo hi"}`})
	}
	for _, test := range []struct {
		says string
		line line
	}{
		{`there is no tool "bash"; there are shell, python, write_file, read_file`, raw("bash", `{}`)},
		{`must be one JSON object with "command"`, raw("shell", `{"command": "l`)},
		{`it is null`, raw("shell", `null`)},
		{`must be one JSON object`, raw("shell", `"ls"`)},
		{`"command" is missing`, raw("shell", `{}`)},
		{`must be a text`, raw("shell", `{"command": ["ls"]}`)},
		{`must be a text`, raw("shell", `{"command": null}`)},
		{`and not ["cwd"]`, raw("shell", `{"command": "ls", "cwd": "/"}`)},
		{`has a NUL`, raw("shell", `{"command": "a\u0000b"}`)},
		{`has a NUL`, raw("read_file", `{"path": "a\u0000b"}`)},
		{`is empty`, raw("read_file", `{"path": ""}`)},
		{`may have`, call("shell", args{"command": strings.Repeat("x", 130<<10)})},
		{`may have`, call("write_file", args{"path": strings.Repeat("x", 5000), "content": ""})},
		{`the arguments have`, raw("write_file", strings.Repeat(" ", 2<<20))},
		{`error:`, raw("read_file", `{"path": "nowhere"}`)},
		{`error:`, raw("read_file", `{"path": "/work"}`)},
		{`error:`, raw("write_file", `{"path": "/work", "content": "x"}`)},
		{`error:`, raw("read_file", `{"path": "large"}`)},
		{`SyntaxError`, raw("python", `{"code": "print("}`)},
		{`[exit code 3]`, raw("shell", `{"command": "exit 3"}`)},
		{`[no output]`, raw("shell", `{"command": "true"}`)},
		{`one message may call 3 tools`, crowd},
	} {
		p := &script{lines: []line{call("shell", args{"command": "head -c 2000000 /dev/zero > large"}), test.line, {text: "0.5"}}}
		o, err := episode.Play(t.Context(), question(), p, sandboxed(t, processBox(t, sandbox.Limits{}), episode.SandboxedOptions{CallsMax: 3}), says(t), episode.Options{})
		if err != nil || o.Verdict.Reward != 0.5 {
			t.Errorf("%s: %v", test.says, err)
			continue
		}
		answers := answersOf(t, o.Messages)
		if last := answers[len(answers)-1]; len(answers) != 1+len(test.line.calls) || !strings.Contains(last, test.says) {
			t.Errorf("%d answers, the last %.300q, which does not say %q", len(answers), last, test.says)
		}
	}
}

// Output of any bytes and any length is text of a bounded length, that says what is left out.
func TestOutputIsText(t *testing.T) {
	for command, wants := range map[string][]string{
		`printf 'a\377\376b'`: {"a\uFFFDb"},
		`seq 100000`:          {"1\n2\n", "\n100000\n", "bytes left out"},
		`seq 100000 >&2`:      {"[standard error]\n1\n2\n", "\n100000\n", "bytes left out"},
		`yes é | head -c 5000000; seq 100000 >&2; exit 2`: {"é\né", "there was more", "[standard error]\n1\n2\n", "[exit code 2]"},
		`echo out; echo err >&2`:                          {"out\n[standard error]\nerr\n"},
	} {
		p := &script{lines: []line{call("shell", args{"command": command}), {text: "1"}}}
		o, err := episode.Play(t.Context(), question(), p, sandboxed(t, processBox(t, sandbox.Limits{}), episode.SandboxedOptions{OutputMax: 1000}), says(t), episode.Options{})
		if err != nil {
			t.Fatal(err)
		}
		answer := answersOf(t, o.Messages)[0]
		for _, want := range wants {
			if !strings.Contains(answer, want) {
				t.Errorf("%s: %q, which does not have %q", command, answer, want)
			}
		}
		if len(answer) > 1300 || !utf8.ValidString(answer) {
			t.Errorf("%s: %d bytes, valid %v", command, len(answer), utf8.ValidString(answer))
		}
	}
}

// A limit that a tool meets is told to the policy, counted, and on its span.
func TestLimitOfATool(t *testing.T) {
	for name, test := range map[string]struct {
		limits  sandbox.Limits
		options episode.SandboxedOptions
		class   sandbox.Class
	}{
		"the box's":      {sandbox.Limits{Time: 300 * time.Millisecond}, episode.SandboxedOptions{}, sandbox.Timeout},
		"all tools'":     {sandbox.Limits{}, episode.SandboxedOptions{ToolTime: 300 * time.Millisecond}, sandbox.Timeout},
		"the one tool's": {sandbox.Limits{}, episode.SandboxedOptions{ToolTime: time.Minute, ToolTimes: map[string]time.Duration{"shell": 300 * time.Millisecond}}, sandbox.Timeout},
	} {
		p := &script{lines: []line{call("shell", args{"command": "echo began; sleep 3600"}), {text: "1"}}}
		o, err := episode.Play(t.Context(), question(), p, sandboxed(t, processBox(t, test.limits), test.options), says(t), episode.Options{})
		if err != nil {
			t.Fatal(err)
		}
		answer := answersOf(t, o.Messages)[0]
		if !strings.Contains(answer, "the sandbox's limit was met: "+string(test.class)) || o.Limits[test.class] != 1 || o.Record.Limits[string(test.class)] != 1 {
			t.Errorf("%s: %q, %v", name, answer, o.Limits)
		}
		if text := lines(o.Record); !strings.Contains(text, "tool@0:shell:"+string(test.class)+"=") || o.Record.Failure != "" {
			t.Errorf("%s: %s", name, text)
		}
	}
}

// lease is a box that is made at its first use and then fails as it is told. It stands for a pool on a
// bad day.
type lease struct {
	waits, starts time.Duration
	// startErrs and runErrs are returned one after the other.
	startErrs, runErrs []error
	waited, started    time.Duration
	readies, runs      int
	wrote              []string
	closed             bool
}

func (l *lease) ID() sandbox.ID { return "pool.7" }

func (l *lease) Ready(ctx context.Context) error {
	l.readies++
	for _, part := range []struct {
		takes time.Duration
		into  *time.Duration
	}{{l.waits, &l.waited}, {l.starts, &l.started}} {
		began := time.Now()
		select {
		case <-time.After(part.takes):
			*part.into += part.takes
		case <-ctx.Done():
			*part.into += time.Since(began)
			return sandbox.Fail(sandbox.StartTimeout, "create", l.ID(), "%w", ctx.Err())
		}
	}
	return next(&l.startErrs)
}

func (l *lease) Waited() time.Duration  { return l.waited }
func (l *lease) Started() time.Duration { return l.started }

func (l *lease) Run(_ context.Context, command sandbox.Command) (sandbox.Result, error) {
	l.runs++
	if strings.Contains(strings.Join(command.Argv, " "), ".headway-tests") { // where do tests lie?
		return sandbox.Result{Stdout: []byte("/work\n/tests\n")}, next(&l.runErrs)
	}
	return sandbox.Result{Stdout: []byte("ran\n")}, next(&l.runErrs)
}

func (l *lease) Read(context.Context, string, int64) ([]byte, error) { return nil, next(&l.runErrs) }

func (l *lease) Write(_ context.Context, path string, _ []byte, _ fs.FileMode) error {
	l.wrote = append(l.wrote, path)
	return next(&l.runErrs)
}

func (l *lease) Close(context.Context) error {
	l.closed = true
	return nil
}

func next(errs *[]error) error {
	if len(*errs) == 0 {
		return nil
	}
	err := (*errs)[0]
	*errs = (*errs)[1:]
	return err
}

// A box is made when a tool first needs it, once, and its wait and its start are spans of their own.
func TestBoxIsLazy(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{waits: 2 * time.Second, starts: 3 * time.Second}
		p := &script{lines: []line{
			call("bash", args{}), call("shell", args{"command": "a"}), call("shell", args{"command": "b"}), {text: "1", takes: time.Second},
		}}
		o, err := episode.Play(t.Context(), question(), p, sandboxed(t, l, episode.SandboxedOptions{}), says(t), episode.Options{})
		if err != nil || l.readies != 1 || l.runs != 2 {
			t.Errorf("%d starts, %d runs: %v", l.readies, l.runs, err)
		}
		if want := "sandbox_wait@1=2s sandbox_start@1=3s model@3=1s"; lines(o.Record) != want {
			t.Errorf("%s, want %s", lines(o.Record), want)
		}
		checkSpans(t, o.Record, 0, 6*time.Second)

		idle := &lease{}
		o, err = episode.Play(t.Context(), question(), &script{lines: []line{{text: "1"}}}, sandboxed(t, idle, episode.SandboxedOptions{}), says(t), episode.Options{})
		if err != nil || idle.readies != 0 || o.StateLow != -1 || o.Record.StateLow != nil {
			t.Errorf("a box was made that nobody used: %v", err)
		}
	})
}

// Where only tests use the box its start is no part of the judging.
func TestBoxOfTestsAlone(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{waits: 2 * time.Second, starts: 3 * time.Second}
		task := question()
		task.Test, task.Files = "true", map[string][]byte{"/work/b": nil, "/work/a": nil}
		tests, err := verifier.New(verifier.Options{Kind: verifier.Tests, Source: verifier.SourceExit})
		if err != nil {
			t.Fatal(err)
		}
		w := sandboxed(t, l, episode.SandboxedOptions{Tools: []string{}})
		if w.Tools() != nil {
			t.Errorf("tools %s", w.Tools())
		}
		o, err := episode.Play(t.Context(), task, &script{lines: []line{{text: "x", takes: time.Second}}}, w, tests, episode.Options{})
		if err != nil || o.Verdict.Reward != 1 || o.Turns != 1 || fmt.Sprint(l.wrote) != "[/work/a /work/b]" {
			t.Errorf("%+v, wrote %v: %v", o.Verdict, l.wrote, err)
		}
		if want := "model@0=1s sandbox_wait@0=2s sandbox_start@0=3s"; lines(o.Record) != want {
			t.Errorf("%s, want %s", lines(o.Record), want)
		}
	})
}

// Only what failed before anything can have happened is tried again.
func TestRetriesOfTools(t *testing.T) {
	fail := func(class sandbox.Class) error { return sandbox.Fail(class, "run", "pool.7", "no") }
	for _, test := range []struct {
		name          string
		start, run    []error
		retries       int
		readies, runs int
		class         sandbox.Class
	}{
		{"a start, once", []error{fail(sandbox.StartFailed)}, nil, 0, 2, 1, ""},
		{"a start, too often", []error{fail(sandbox.Quota), fail(sandbox.BackendDown)}, nil, 0, 2, 0, sandbox.BackendDown},
		{"a start, never", []error{fail(sandbox.StartTimeout)}, nil, -1, 1, 0, sandbox.StartTimeout},
		{"a start within a run", nil, []error{fail(sandbox.StartFailed)}, 0, 1, 2, ""},
		{"a box that is lost", nil, []error{fail(sandbox.Lost)}, 3, 1, 1, sandbox.Lost},
		{"an answer that is none", nil, []error{fail(sandbox.Protocol)}, 3, 1, 1, sandbox.Protocol},
		{"what is refused is the policy's mistake", nil, []error{fail(sandbox.Refused)}, 3, 1, 1, ""},
		{"and so is a limit", nil, []error{fail(sandbox.Disk)}, 3, 1, 1, ""},
	} {
		t.Run(test.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				l := &lease{startErrs: test.start, runErrs: test.run}
				p := &script{lines: []line{call("shell", args{"command": "x"}), {text: "1"}}}
				o, err := episode.Play(t.Context(), question(), p, sandboxed(t, l, episode.SandboxedOptions{Retries: test.retries}), says(t), episode.Options{})
				if sandbox.ClassOf(err) != test.class || o.Record.Failure != test.class || l.readies != test.readies || l.runs != test.runs {
					t.Errorf("%d starts, %d runs: %v", l.readies, l.runs, err)
				}
				if (err == nil) != (o.Record.Reward != nil) {
					t.Errorf("%+v", o.Record)
				}
			})
		})
	}
}

// A file of the task that cannot be put into the box is a failure: the rollout would be of another task.
func TestFilesThatFail(t *testing.T) {
	l := &lease{runErrs: []error{sandbox.Fail(sandbox.Lost, "write", "pool.7", "gone")}}
	task := question()
	task.Files = map[string][]byte{"/work/a": []byte("x")}
	p := &script{lines: []line{call("shell", args{"command": "x"})}}
	_, err := episode.Play(t.Context(), task, p, sandboxed(t, l, episode.SandboxedOptions{}), says(t), episode.Options{})
	if sandbox.ClassOf(err) != sandbox.Lost || !strings.Contains(err.Error(), "/work/a") || l.runs != 0 {
		t.Error(err)
	}
}

// The time of a rollout ends its wait for a box.
func TestTimeoutWhileABoxStarts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		l := &lease{waits: time.Hour}
		p := &script{lines: []line{call("shell", args{"command": "x"})}}
		w := sandboxed(t, l, episode.SandboxedOptions{})
		o, err := episode.Play(t.Context(), question(), p, w, says(t), episode.Options{Timeout: time.Minute})
		if o.Record.Failure != sandbox.Timeout || lines(o.Record) != "sandbox_wait@0:timeout=1m0s" {
			t.Errorf("%s: %v", lines(o.Record), err)
		}
		checkSpans(t, o.Record, 0, time.Minute)
	})
}

// Tools are described as OpenAI's are, those alone that there are.
func TestToolSchema(t *testing.T) {
	var described []struct {
		Type     string
		Function struct {
			Name, Description string
			Parameters        struct {
				Type       string
				Properties map[string]struct{ Type, Description string }
				Required   []string
			}
		}
	}
	w := sandboxed(t, &lease{}, episode.SandboxedOptions{Tools: []string{"write_file", "shell"}})
	if err := json.Unmarshal(w.Tools(), &described); err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range described {
		names = append(names, d.Function.Name)
		if d.Type != "function" || d.Function.Description == "" || d.Function.Parameters.Type != "object" || len(d.Function.Parameters.Required) != len(d.Function.Parameters.Properties) {
			t.Errorf("%+v", d)
		}
	}
	if fmt.Sprint(names) != "[shell write_file]" {
		t.Errorf("%v", names)
	}
	for says, o := range map[string]episode.SandboxedOptions{
		`"bash"`: {Tools: []string{"bash"}},
		`"pyth"`: {ToolTimes: map[string]time.Duration{"pyth": 1}},
		"NUL":    {Python: "a\x00"},
	} {
		if _, err := episode.NewSandboxed(&lease{}, o); err == nil || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, which does not say %s", err, says)
		}
	}
}

// Whatever a policy writes as arguments, it is answered.
func FuzzArguments(f *testing.F) {
	for _, text := range []string{``, `{`, `{"command":"x"}`, `{"path":"../../etc/passwd","content":"\u0000"}`, `[]`, `{"code":1e999}`, `{"command":"\ud800"}`} {
		f.Add("shell", text)
		f.Add("write_file", text)
	}
	f.Fuzz(func(t *testing.T, name, arguments string) {
		w, err := episode.NewSandboxed(&lease{}, episode.SandboxedOptions{})
		if err != nil {
			t.Fatal(err)
		}
		a, err := w.Act(t.Context(), episode.Message{Calls: []episode.Call{{ID: "1", Name: name, Arguments: arguments}}})
		if err != nil || len(a.Messages) != 1 || !json.Valid(a.Messages[0]) || a.Done {
			t.Errorf("%+v, %v", a, err)
		}
	})
}

// Files of a task keep what makes them programs. A box of plain processes has none outside of its folder: it would be the host's.
func TestFilesOfATask(t *testing.T) {
	for name, box := range map[string]sandbox.Box{"process": processBox(t, sandbox.Limits{}), "bwrap": bwrapBox(t, sandbox.Limits{})} {
		task := question()
		task.Files = map[string][]byte{"/work/run.sh": []byte("#!/bin/sh\necho it runs\n")}
		policy := &script{lines: []line{call("shell", map[string]string{"command": "./run.sh"}), {text: "1"}}}
		if _, err := episode.Play(t.Context(), task, policy, sandboxed(t, box, episode.SandboxedOptions{}), says(t), episode.Options{}); err != nil || !strings.Contains(fmt.Sprintf("%s", policy.saw[1]), "it runs") {
			t.Errorf("%s: %s, %v", name, policy.saw, err)
		}
	}
	outside := filepath.Join(t.TempDir(), "x")
	task := question()
	task.Files = map[string][]byte{outside: []byte("1")}
	policy := &script{lines: []line{call("shell", map[string]string{"command": "true"}), {text: "1"}}}
	_, err := episode.Play(t.Context(), task, policy, sandboxed(t, processBox(t, sandbox.Limits{}), episode.SandboxedOptions{}), says(t), episode.Options{})
	if _, there := os.Stat(outside); sandbox.ClassOf(err) != sandbox.BadTask || there == nil {
		t.Errorf("a file of the host's: %v, %v", err, there)
	}
}

// killed is a box in which the machine ends every command.
type killed struct {
	sandbox.Box
	result sandbox.Result
}

func (k killed) Run(context.Context, sandbox.Command) (sandbox.Result, error) { return k.result, nil }

// A shell that is ended as it looks where a task's files go says nothing of the task, which another box may hold.
func TestKilledBeforeTheFiles(t *testing.T) {
	for _, result := range []sandbox.Result{{Exit: 137, Signal: "SIGKILL", Limit: sandbox.OutOfMemory}, {Exit: 137, Signal: "SIGKILL", Limit: sandbox.Timeout}, {Exit: 143, Signal: "SIGTERM"}, {Exit: 137}} {
		task := question()
		task.Files = map[string][]byte{"/data/x": []byte("1")}
		policy := &script{lines: []line{call("shell", map[string]string{"command": "true"}), {text: "1"}}}
		world := sandboxed(t, killed{processBox(t, sandbox.Limits{}), result}, episode.SandboxedOptions{})
		if _, err := episode.Play(t.Context(), task, policy, world, says(t), episode.Options{}); sandbox.ClassOf(err) != sandbox.Lost {
			t.Errorf("%+v is %v, want class %s", result, err, sandbox.Lost)
		}
	}
}
