package verifier_test

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/verifier"
)

// programVariable makes this test's own program a verifier of the kind command, which does what the
// variable says.
const programVariable = "HEADWAY_TEST_VERIFIER"

func TestMain(m *testing.M) {
	if how := os.Getenv(programVariable); how != "" {
		os.Exit(judgeAs(how))
	}
	os.Exit(m.Run())
}

// judgeAs reads cases and answers them, well or badly.
func judgeAs(how string) int {
	if how == "deaf" {
		time.Sleep(time.Hour) // it is killed
	}
	in := bufio.NewReaderSize(os.Stdin, 1<<20)
	for count := 1; ; count++ {
		text, err := in.ReadBytes('\n')
		if err != nil {
			return 0
		}
		var c struct {
			ID, Response, Rollout string
			Answer                json.RawMessage
			Messages              []json.RawMessage
			Task                  struct{ ID string }
		}
		if err := json.Unmarshal(text, &c); err != nil || c.Messages == nil {
			fmt.Fprintln(os.Stderr, "this is no case:", err)
			return 3
		}
		if code, over := answerAs(how, c.ID, c.Response, count); over {
			return code
		}
	}
}

func answerAs(how, id, response string, count int) (code int, over bool) {
	switch how {
	case "right": // the response is the reward
		fmt.Printf(`{"id":%q,"reward":%s,"note":"case %d of %d","metrics":{"pid":%d}}`+"\n", id, response, count, os.Getpid(), os.Getpid())
	case "raw": // the response is the answer
		fmt.Println(strings.ReplaceAll(response, "ID", id))
	case "environment": // how many variables it was given beside those that are its own
		fmt.Printf(`{"id":%q,"reward":0,"metrics":{"others":%d}}`+"\n", id, len(slices.DeleteFunc(os.Environ(), func(entry string) bool {
			name, _, _ := strings.Cut(entry, "=")
			return slices.Contains([]string{"PATH", "HOME", "LANG", programVariable}, name)
		})))
	case "crash":
		fmt.Fprintln(os.Stderr, "Traceback: no module named torch")
		return 7, true
	case "crash-once": // the file counts processes
		path := os.Getenv("HEADWAY_TEST_FILE")
		if _, err := os.Stat(path); errors.Is(err, os.ErrNotExist) {
			_ = os.WriteFile(path, nil, 0o600)
			return 7, true
		}
		fmt.Printf(`{"id":%q,"reward":1}`+"\n", id)
	case "flood":
		chunk := []byte(strings.Repeat("x", 1<<20))
		for {
			if _, err := os.Stdout.Write(chunk); err != nil {
				return 0, true
			}
		}
	case "late-twice": // the second answer comes when the next case is asked
		fmt.Printf(`{"id":%q,"reward":0.5}`+"\n", id)
		if count == 2 {
			fmt.Printf(`{"id":"1","reward":1}` + "\n")
		}
	case "hang": // with a child in a session of its own, and a pipe that both hold open
		alive, err := os.OpenFile(os.Getenv("HEADWAY_TEST_FILE"), os.O_WRONLY, 0)
		if err != nil {
			return 9, true
		}
		child := exec.Command("/bin/sh", "-c", "sleep 3600")
		child.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		child.Stdout, child.ExtraFiles = os.Stdout, []*os.File{alive}
		if err := child.Run(); err != nil {
			return 9, true
		}
	case "half":
		fmt.Printf(`{"id":%q,"rew`, id)
		return 0, true
	}
	return 0, false
}

// program is a verifier of the kind command that does what it is told.
func program(t *testing.T, how string, o verifier.Options) *verifier.Bounded {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o.Kind, o.Command = verifier.Command, []string{self}
	env := map[string]string{programVariable: how}
	for name, value := range o.Env {
		env[name] = value
	}
	o.Env = env
	return newBounded(t, o)
}

// Processes live from case to case, there are as many as may judge at once, and each answers its own.
func TestCommand(t *testing.T) {
	j := program(t, "right", verifier.Options{Concurrency: 3})
	var mu sync.Mutex
	pids := map[float64]int{}
	var all sync.WaitGroup
	for i := range 60 {
		all.Go(func() {
			want := float64(i) / 100
			v, err := j.Verify(t.Context(), caseOf(fmt.Sprint(want), `1`))
			if err != nil || v.Reward != want {
				t.Errorf("%v, %v; want %v", v, err, want)
			}
			mu.Lock()
			defer mu.Unlock()
			pids[v.Metrics["pid"]]++
		})
	}
	all.Wait()
	if len(pids) == 0 || len(pids) > 3 {
		t.Errorf("processes %v, want at most 3", pids)
	}
}

// Whatever a program writes, only one answer to the case that was asked, with a number within the
// range, is a verdict.
func TestCommandAnswers(t *testing.T) {
	j := program(t, "raw", verifier.Options{Concurrency: 1, Retries: -1})
	for _, test := range []struct{ answer, want string }{
		{`{"id":"ID","reward":0.5,"exact":true,"steps":[1,-2],"metrics":{"a":3},"note":"n","other":[1]}`, "0.5 exact [1 -2] map[a:3] n"},
		{`{"id":"ID","reward":1}`, "1 exact"},
		{`{"id":"ID","steps":[0.25,0.25]}`, "0.5 [0.25 0.25]"},
		{`{"id":"ID","reward":1,"exact":false,"note":null}`, "1"},
		{`{"id":"ID","reward":NaN}`, "NaN is no JSON"},
		{`{"id":"ID","reward":Infinity}`, "Infinity is no JSON"},
		{`{"id":"ID","reward":"NaN"}`, "no number"},
		{`{"id":"ID","reward":"1"}`, "no number"},
		{`{"id":"ID","reward":true}`, "no number"},
		{`{"id":"ID","reward":null}`, "no number"},
		{`{"id":"ID","reward":1e999}`, "no number that can be trained on"},
		{`{"id":"ID","reward":1.01}`, "from 0 to 1"},
		{`{"id":"ID","reward":-1e-300}`, "from 0 to 1"},
		{`{"id":"ID"}`, `no "reward"`},
		{`{"id":"ID","Reward":1}`, `no "reward"`},
		{`{"id":"ID","reward":0,"reward":1}`, "twice"},
		{`{"id":"ID","steps":[1e999]}`, "step 0"},
		{`{"id":"ID","steps":1}`, "steps"},
		{`{"id":"ID","reward":1,"metrics":{"a":"b"}}`, "metrics"},
		{`{"reward":1}`, `no "id"`},
		{`{"id":"x","reward":1}`, `case "x"`},
		{`{"id":"ID","reward":1}{"id":"ID","reward":0}`, "more behind the object"},
		{"{\"id\":\"ID\",\"reward\":1}\n{\"id\":\"ID\",\"reward\":0}", "one case has one answer"},
		{`1`, "one JSON object"},
		{`[]`, "one JSON object"},
		{``, "one JSON object"},
		{`judging...`, "standard error"},
		{`{"id":"ID","error":"no GPU"}`, "no GPU"},
		{`{"id":"ID","error":""}`, "empty"},
	} {
		before := j.Status()
		v, err := j.Verify(t.Context(), caseOf(test.answer, `1`))
		if err == nil {
			if told(v) != test.want {
				t.Errorf("%s: %s, want %s", test.answer, told(v), test.want)
			}
			continue
		}
		class := sandbox.VerifierProtocol
		if strings.Contains(test.answer, "GPU") {
			class = sandbox.VerifierCrash
		}
		if sandbox.ClassOf(err) != class || !strings.Contains(err.Error(), test.want) || told(v) != "0" {
			t.Errorf("%s: %v, %v; want %s", test.answer, told(v), err, test.want)
		}
		if after := j.Status(); after.Failures[class] != before.Failures[class]+1 || after.Verdicts != before.Verdicts {
			t.Errorf("%s: counted %+v", test.answer, after)
		}
	}
}

// What ends, floods or never reads is told apart, and a new process judges the next case.
func TestCommandFailures(t *testing.T) {
	for _, test := range []struct {
		how, says string
		class     sandbox.Class
	}{
		{"crash", "no module named torch", sandbox.VerifierCrash},
		{"flood", "without a newline", sandbox.VerifierProtocol},
		{"half", "in the middle of the line", sandbox.VerifierCrash},
	} {
		j := program(t, test.how, verifier.Options{Retries: 1})
		_, err := j.Verify(t.Context(), caseOf("1", `1`))
		if sandbox.ClassOf(err) != test.class || !strings.Contains(err.Error(), test.says) {
			t.Errorf("%s: %v; want %s", test.how, err, test.says)
		}
		if s := j.Status(); s.Retries != 1 || s.Failures[test.class] != 1 || s.Verdicts != 0 {
			t.Errorf("%s: %+v", test.how, s)
		}
	}
}

func TestCommandStartsAgain(t *testing.T) {
	j := program(t, "crash-once", verifier.Options{Concurrency: 1, Env: map[string]string{"HEADWAY_TEST_FILE": filepath.Join(t.TempDir(), "started")}})
	if v, err := j.Verify(t.Context(), caseOf("1", `1`)); err != nil || v.Reward != 1 {
		t.Errorf("%v, %v", v, err)
	}
	if s := j.Status(); s.Retries != 1 || s.Verdicts != 1 {
		t.Errorf("%+v", s)
	}
}

// A second answer that comes when nobody asks ends the process at the next case, whose verdict is that of
// a new one.
func TestCommandAnswersTwiceLate(t *testing.T) {
	j := program(t, "late-twice", verifier.Options{Concurrency: 1})
	for range 8 {
		if v, err := j.Verify(t.Context(), caseOf("1", `1`)); err != nil || v.Reward != 0.5 {
			t.Errorf("%v, %v", v, err)
		}
	}
	if s := j.Status(); s.Retries == 0 || s.Verdicts != 8 {
		t.Errorf("%+v", s)
	}
}

// One that never answers is ended with all that it started, even in a session of its own: both hold a
// pipe open that ends with the last of them.
func TestCommandIsEndedWithItsTree(t *testing.T) {
	pipe := filepath.Join(t.TempDir(), "alive")
	if err := syscall.Mkfifo(pipe, 0o600); err != nil {
		t.Fatal(err)
	}
	began, ended := make(chan struct{}), make(chan error, 1)
	go func() {
		file, err := os.Open(pipe) // waits until the program has opened it
		close(began)
		if err == nil {
			defer file.Close()
			_, err = io.Copy(io.Discard, file)
		}
		ended <- err
	}()
	j := program(t, "hang", verifier.Options{TimeoutS: 600, Env: map[string]string{"HEADWAY_TEST_FILE": pipe}})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		<-began
		cancel()
	}()
	if _, err := j.Verify(ctx, caseOf("1", `1`)); !errors.Is(err, context.Canceled) {
		t.Error(err)
	}
	if err := <-ended; err != nil {
		t.Error(err)
	}
}

// A case larger than a pipe holds, to a program that reads nothing, ends by time.
func TestCommandThatDoesNotRead(t *testing.T) {
	j := program(t, "deaf", verifier.Options{TimeoutS: 0.2})
	_, err := j.Verify(t.Context(), caseOf(strings.Repeat("x", 1<<20), `1`))
	if sandbox.ClassOf(err) != sandbox.VerifierTimeout {
		t.Error(err)
	}
}

// Any bytes of the policy's reach the program as text.
func TestCommandIsGivenAnyResponse(t *testing.T) {
	j := program(t, "right", verifier.Options{Concurrency: 1, Retries: -1})
	_, err := j.Verify(t.Context(), caseOf("\x00\xff\n{", `1`))
	if sandbox.ClassOf(err) != sandbox.VerifierProtocol || strings.Contains(err.Error(), "no case") {
		t.Error(err)
	}
	if v, err := j.Verify(t.Context(), caseOf("0.25", `1`)); err != nil || v.Reward != 0.25 {
		t.Errorf("%v, %v", v, err)
	}
}

// A program has none of this process's secrets.
func TestCommandsEnvironment(t *testing.T) {
	t.Setenv("HEADWAY_TEST_SECRET", "secret")
	v, err := program(t, "environment", verifier.Options{}).Verify(t.Context(), caseOf("1", `1`))
	if others, there := v.Metrics["others"]; err != nil || !there || others != 0 {
		t.Errorf("%v, %v: want no variable but PATH, HOME and LANG", v, err)
	}
}

// After Close nothing runs and nothing is judged.
func TestCommandCloses(t *testing.T) {
	j := program(t, "right", verifier.Options{Concurrency: 2})
	v, err := j.Verify(t.Context(), caseOf("1", `1`))
	if err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	if _, err := os.Stat("/proc/" + strconv.Itoa(int(v.Metrics["pid"]))); err == nil {
		t.Error("the process is there still")
	}
	if _, err := j.Verify(t.Context(), caseOf("1", `1`)); sandbox.ClassOf(err) != sandbox.VerifierCrash {
		t.Error(err)
	}
}

func BenchmarkCommand(b *testing.B) {
	self, err := os.Executable()
	if err != nil {
		b.Fatal(err)
	}
	j, err := verifier.New(verifier.Options{Kind: verifier.Command, Command: []string{self}, Env: map[string]string{programVariable: "right"}})
	if err != nil {
		b.Fatal(err)
	}
	defer j.Close()
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Verify(b.Context(), caseOf("1", `1`)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkStarlark(b *testing.B) {
	j, err := verifier.New(verifier.Options{Kind: verifier.Starlark, Expression: `number(response) == answer`})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Verify(b.Context(), caseOf("42", `42`)); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkExact(b *testing.B) {
	j, err := verifier.New(verifier.Options{Kind: verifier.Exact, Extract: "last-line"})
	if err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := j.Verify(b.Context(), caseOf("it is\n42", `42`)); err != nil {
			b.Fatal(err)
		}
	}
}
