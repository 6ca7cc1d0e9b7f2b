package verifier_test

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/bwrap"
	"github.com/headway-rl/headway/env/sandbox/process"
	"github.com/headway-rl/headway/env/taskset"
	"github.com/headway-rl/headway/env/verifier"
)

// processBox is a real box of plain processes: these tests' programs are their own.
func processBox(t *testing.T) sandbox.Box {
	t.Helper()
	driver, err := process.New(filepath.Join(t.TempDir(), "boxes"))
	if err != nil {
		t.Fatal(err)
	}
	box, err := driver.Create(t.Context(), sandbox.ID("t."+rand.Text()), sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return box
}

// bwrapBox is a box with files of its own.
func bwrapBox(t *testing.T) sandbox.Box {
	t.Helper()
	driver, err := bwrap.New(filepath.Join(t.TempDir(), "boxes"))
	if err != nil {
		t.Fatal(err)
	}
	if _, err := driver.Check(t.Context()); err != nil {
		t.Skip(err)
	}
	box, err := driver.Create(t.Context(), sandbox.ID("t."+rand.Text()), sandbox.Spec{Limits: sandbox.Limits{Disk: 8 << 20}})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return box
}

func testsCase(box sandbox.Box, test string, hidden map[string]string) verifier.Case {
	task := &taskset.Task{ID: "t1", Test: test, Hidden: map[string][]byte{}}
	for name, content := range hidden {
		task.Hidden[name] = []byte(content)
	}
	return verifier.Case{Task: task, Rollout: "g1-s0-a0", Box: box}
}

// Tests see the variables of their sandbox, below those of their own, and what the verifier needs stays.
func TestTestsSeeTheirSandboxsVariables(t *testing.T) {
	c := testsCase(processBox(t), `[ "$DATA $MORE" = "7 own" ] && [ "$PATH" != nowhere ]`, nil)
	c.Task.Wants.Env = map[string]string{"DATA": "7", "MORE": "sandbox", "PATH": "nowhere"}
	c.Task.Wants.VerifierEnv = map[string]string{"MORE": "own"}
	if v, err := newBounded(t, verifier.Options{Kind: verifier.Tests, Source: "exit"}).Verify(t.Context(), c); err != nil || !v.Exact {
		t.Errorf("%s, %v", told(v), err)
	}
}

// What tests are worth, in a real box.
func TestTests(t *testing.T) {
	box := processBox(t)
	for _, test := range []struct {
		name, test string
		options    verifier.Options
		want       string // the verdict, or the class and words of a failure
	}{
		{"passed", "true", verifier.Options{Source: "exit"}, "1 exact map[passed:1]"},
		{"failed", "echo no >&2; exit 3", verifier.Options{Source: "exit"}, "0 map[passed:0] exit code 3: no"},
		{"an exit code without a result line", "exit 0", verifier.Options{}, "0 map[passed:0] the tests wrote no result line"},
		{"a token for nobody", `read -r token; [ -z "$token" ]`, verifier.Options{Source: "exit"}, "1 exact"},
		{"of another range", "exit 1", verifier.Options{Range: [2]float64{-1, 1}}, "-1 map[passed:0] exit code 1:"},
		{"some passed", `echo hello; read -r t; echo "headway-result $t 3/4"; exit 1`, verifier.Options{}, "0.75 map[passed:0.75] exit code 1:"},
		{"all passed, whatever the exit code", `read -r t; echo "headway-result $t 4/4"; exit 1`, verifier.Options{}, "1 exact map[passed:1] exit code 1:"},
		{"another's line", `echo "headway-result x 4/4"; exit 1`, verifier.Options{}, "0 map[passed:0] exit code 1:"},
		{"two lines", `read -r t; for i in 1 2; do echo "headway-result $t 4/4"; done`, verifier.Options{}, "0 tampered the tests' result line: there are two"},
		{"no share", `read -r t; echo "headway-result $t 5/4"`, verifier.Options{}, "0 tampered the tests' result line: "},
		{"of nothing", `read -r t; echo "headway-result $t 0/0"`, verifier.Options{}, "0 tampered the tests' result line: "},
		{"not a number", `read -r t; echo "headway-result $t NaN"`, verifier.Options{}, "0 tampered the tests' result line: "},
		{"no such program", "no-such-program", verifier.Options{}, "verifier_crash: cannot run the test"},
		{"a program that is there and ends like one that is not", "sh -c 'exit 127'", verifier.Options{}, "0 map[passed:0] exit code 127:"},
		{"a result and a signal", `read -r t; echo "headway-result $t 4/4"; kill -9 $$`, verifier.Options{}, "0 tampered the tests were ended by a signal"},
		{"ended by a signal", "kill -9 $$", verifier.Options{}, "0 map[passed:0] exit code 137:"},
		{"more than is kept", `read -r t; yes | head -c 2000000; echo "headway-result $t 4/4"`, verifier.Options{}, "0 map[passed:0] no result line is in the first"},
		{"binary output", `head -c 300 /dev/urandom >&2; exit 1`, verifier.Options{}, "0 map[passed:0] exit code 1:"},

		{"a file", "echo 0.5 > rewards/reward.txt", verifier.Options{Source: "file"}, "0.5"},
		{"a file as bc writes it", "echo .75 > rewards/reward.txt", verifier.Options{Source: "file"}, "0.75"},
		{"a file with a sign", "echo +.5 > rewards/reward.txt", verifier.Options{Source: "file"}, "0.5"},
		{"a file with a point alone", "echo . > rewards/reward.txt", verifier.Options{Source: "file"}, "0 tampered the tests' reward file:"},
		{"a file, whatever the exit code", "echo 1 > rewards/reward.txt; exit 1", verifier.Options{Source: "file"}, "1 exact exit code 1:"},
		{"two that disagree", `echo 0 > rewards/reward.txt; echo '{"reward": 1}' > rewards/reward.json`, verifier.Options{Source: "file"}, "0 tampered reward.json says 1 and reward.txt 0"},
		{"two that agree", `echo 0.25 > rewards/reward.txt; echo '{"reward": 0.25, "speed": 3, "name": "x"}' > rewards/reward.json`, verifier.Options{Source: "file"}, "0.25 map[speed:3]"},
		{"one score", `echo '{"accuracy": 0.25}' > rewards/reward.json`, verifier.Options{Source: "file"}, "0.25"},
		{"a score by name", `echo '{"a": 0.25, "b": 1}' > rewards/reward.json`, verifier.Options{Source: "file", RewardKey: "b"}, "1 exact map[a:0.25]"},
		{"a long name, an empty one, a huge score", `printf '{"reward": 1, "speed": 3, "": 1, "huge": 1e39, "%0129d": 1}' 0 > rewards/reward.json`, verifier.Options{Source: "file"}, "1 exact map[speed:3] 3 scores of reward.json are left out"},
		{"which score", `echo '{"a": 0.25, "b": 1}' > rewards/reward.json`, verifier.Options{Source: "file"}, "0 tampered the tests' reward file: reward.json has no"},
		{"no file", "exit 3", verifier.Options{Source: "file"}, "0 tampered the tests left neither"},
		{"NaN", "echo NaN > rewards/reward.txt", verifier.Options{Source: "file"}, "0 tampered the tests' reward file:"},
		{"NaN in JSON", `echo '{"reward": NaN}' > rewards/reward.json`, verifier.Options{Source: "file"}, "0 tampered the tests' reward file:"},
		{"out of range", "echo 1.5 > rewards/reward.txt", verifier.Options{Source: "file"}, "0 tampered the tests' reward file:"},
		{"too much", "head -c 100000 /dev/zero > rewards/reward.json", verifier.Options{Source: "file"}, "0 tampered reward.json is no reward file"},
		{"a folder", "mkdir rewards/reward.json", verifier.Options{Source: "file"}, "0 tampered reward.json is no reward file"},
	} {
		t.Run(test.name, func(t *testing.T) {
			test.options.Kind = verifier.Tests
			if test.options.Source == "file" {
				test.options.RewardDir = sandbox.Work + "/rewards"
			}
			v, err := newBounded(t, test.options).Verify(t.Context(), testsCase(box, test.test, nil))
			class, says, failed := strings.Cut(test.want, ": ")
			if failed && strings.HasPrefix(class, "verifier_") {
				if string(sandbox.ClassOf(err)) != class || !strings.Contains(err.Error(), says) || v.Reward != 0 {
					t.Errorf("%s, %v; want %s", told(v), err, test.want)
				}
				return
			}
			if err != nil || !strings.HasPrefix(told(v), test.want) {
				t.Errorf("%s, %v; want %s", told(v), err, test.want)
			}
		})
	}
}

// A suite may have more tests than there is room for metrics: its reward counts, and the first of its scores are kept.
func TestManyScores(t *testing.T) {
	const test = `{ echo '{"reward": 1'; for i in $(seq 1000 1299); do echo ", \"s$i\": $i"; done; echo '}'; } > rewards/reward.json; exit 1`
	o := verifier.Options{Kind: verifier.Tests, Source: "file", RewardDir: sandbox.Work + "/rewards"}
	v, err := newBounded(t, o).Verify(t.Context(), testsCase(processBox(t), test, nil))
	if err != nil || v.Reward != 1 || !v.Exact || v.Limit != "" || len(v.Metrics) != 256 || v.Metrics["s1255"] != 1255 {
		t.Errorf("%d metrics, reward %v, limit %q, %v", len(v.Metrics), v.Reward, v.Limit, err)
	}
	if !strings.Contains(v.Note, "exit code 1: ; 44 scores of reward.json are left out") {
		t.Errorf("the note is %q", v.Note)
	}
}

// Whatever the policy has left where hidden files and rewards go, the tests are the task's own.
func TestTestsReplaceWhatIsInTheWay(t *testing.T) {
	for _, left := range []string{
		"true",
		"mkdir -p hidden rewards; echo 1 > rewards/reward.txt; echo 'echo 1 > rewards/reward.txt' > hidden/test.sh",
		"mkdir -p hidden/test.sh/deeper; chmod 000 hidden/test.sh; mkdir -p rewards/reward.txt/deeper",
		"echo 1 > hidden; echo 1 > rewards",
		"ln -s /nowhere hidden; ln -s /nowhere rewards",
		"mkdir mine; ln -s mine hidden; ln -s mine rewards; echo 1 > mine/reward.txt; ln -s /etc/hostname mine/test.sh",
		"mkfifo hidden; mkfifo rewards",
		`(while true; do echo 1 > rewards/reward.txt; done) >/dev/null 2>&1 &`,
	} {
		box := processBox(t)
		if r, err := box.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", left}}); err != nil || r.Exit != 0 {
			t.Fatalf("%s: %+v, %v", left, r, err)
		}
		j := newBounded(t, verifier.Options{Kind: verifier.Tests, Source: "file", RewardDir: sandbox.Work + "/rewards"})
		v, err := j.Verify(t.Context(), testsCase(box, "./hidden/test.sh", map[string]string{"/work/hidden/test.sh": "#!/bin/sh\necho 0.25 > rewards/reward.txt\n"}))
		if err != nil || v.Reward != 0.25 {
			t.Errorf("%s: %v, %v", left, v, err)
		}
	}
}

// A task as Harbor has them: tests in /tests, rewards in /logs/verifier, whatever the policy left there.
func TestTestsOfHarbor(t *testing.T) {
	for _, left := range []string{
		"true",
		"mkdir -p /logs/verifier /tests; echo 1 > /logs/verifier/reward.txt; echo '{\"reward\": 1}' > /logs/verifier/reward.json; echo exit > /tests/test.sh",
		"ln -s /work /logs/verifier; echo 1 > reward.txt",
		"mkdir -p /logs/verifier/reward.json/x; chmod 000 /logs/verifier/reward.json",
	} {
		box := bwrapBox(t)
		if r, err := box.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", left}}); err != nil || r.Exit != 0 {
			t.Fatalf("%s: %+v, %v", left, r, err)
		}
		c := testsCase(box, "bash /tests/test.sh", map[string]string{"/tests/test.sh": "echo 0.25 > /logs/verifier/reward.txt; echo $EXTRA > /logs/verifier/extra"})
		c.Task.Wants.VerifierEnv = map[string]string{"EXTRA": "given"}
		v, err := newBounded(t, verifier.Options{Kind: verifier.Tests, Source: "file"}).Verify(t.Context(), c)
		if err != nil || v.Reward != 0.25 {
			t.Errorf("%s: %v, %v", left, v, err)
		}
		if text, err := box.Read(t.Context(), "/logs/verifier/extra", 100); err != nil || string(text) != "given\n" {
			t.Errorf("%q, %v", text, err)
		}
	}
}

// Tests that never end, or want all memory, meet the limits of a real box, and the task's own time.
func TestTestsMeetLimitsOfABox(t *testing.T) {
	c := testsCase(bwrapBox(t), "sleep 3600", nil)
	c.Task.Wants.VerifierTimeoutS = 0.3
	v, err := newBounded(t, verifier.Options{Kind: verifier.Tests}).Verify(t.Context(), c)
	if err != nil || v.Limit != sandbox.Timeout || v.Reward != 0 || v.Note == "" {
		t.Errorf("%v, %v", v, err)
	}
	full := testsCase(bwrapBox(t), "true", map[string]string{"/work/hidden": strings.Repeat("x", 1<<20)})
	if _, err := full.Box.Run(t.Context(), sandbox.Command{Argv: []string{"/bin/sh", "-c", "head -c 20000000 /dev/zero > full; true"}}); err != nil {
		t.Fatal(err)
	}
	v, err = newBounded(t, verifier.Options{Kind: verifier.Tests}).Verify(t.Context(), full)
	if err != nil || v.Limit != sandbox.Disk || v.Reward != 0 || v.Note == "" {
		t.Errorf("a disk that the policy filled: %v, %v", v, err)
	}
}

// A box without files of its own is not searched for what to remove: those files would be the host's.
func TestTestsLeaveTheHostAlone(t *testing.T) {
	theirs := filepath.Join(t.TempDir(), "theirs")
	if err := os.WriteFile(theirs, []byte("theirs"), 0o600); err != nil {
		t.Fatal(err)
	}
	j := newBounded(t, verifier.Options{Kind: verifier.Tests})
	_, err := j.Verify(t.Context(), testsCase(processBox(t), "true", map[string]string{theirs: "ours"}))
	if sandbox.ClassOf(err) != sandbox.Refused || !strings.Contains(err.Error(), "no files of its own") {
		t.Error(err)
	}
	if text, err := os.ReadFile(theirs); err != nil || string(text) != "theirs" {
		t.Errorf("%q, %v", text, err)
	}
}

// A limit that the policy's code meets in its tests is no failure and no secret.
func TestTestsMeetLimits(t *testing.T) {
	share := "headway-result TOKEN 3/4\n"
	for _, test := range []struct {
		name    string
		options verifier.Options
		result  sandbox.Result
		want    string
	}{
		{"not passed", verifier.Options{}, sandbox.Result{Exit: 137, Limit: sandbox.OutOfMemory}, "0 out_of_memory map[passed:0] the tests met the limit out_of_memory (exit code 137)"},
		{"what passed", verifier.Options{}, sandbox.Result{Exit: 137, Limit: sandbox.Timeout, Stdout: []byte(share)}, "0.75 timeout map[passed:0.75] the tests met"},
		{"passed all the same", verifier.Options{Source: "exit"}, sandbox.Result{Limit: sandbox.Processes}, "1 exact processes map[passed:1] the tests met"},
		{"worth nothing", verifier.Options{LimitRewards: map[sandbox.Class]float64{sandbox.Timeout: 0.1}}, sandbox.Result{Exit: 137, Limit: sandbox.Timeout, Stdout: []byte(share)}, "0.1 timeout"},
		{"worth what passed, for another class", verifier.Options{LimitRewards: map[sandbox.Class]float64{sandbox.Timeout: 0.1}}, sandbox.Result{Exit: 1, Limit: sandbox.Disk, Stdout: []byte(share)}, "0.75 disk"},
		{"a failure", verifier.Options{LimitFailures: []sandbox.Class{sandbox.Timeout}}, sandbox.Result{Exit: 137, Limit: sandbox.Timeout}, "timeout: not judged"},
		{"no reward file", verifier.Options{Source: "file"}, sandbox.Result{Exit: 137, Limit: sandbox.OutOfMemory}, "0 out_of_memory the tests met"},
		{"no program to run, and a limit", verifier.Options{}, sandbox.Result{Exit: 127, Limit: sandbox.Processes}, "0 processes"},
	} {
		test.options.Kind = verifier.Tests
		j := newBounded(t, test.options)
		v, err := j.Verify(t.Context(), testsCase(&fakeBox{result: test.result}, "test", nil))
		if err != nil {
			if class, says, _ := strings.Cut(test.want, ": "); string(sandbox.ClassOf(err)) != class || !strings.Contains(err.Error(), says) {
				t.Errorf("%s: %v; want %s", test.name, err, test.want)
			}
			continue
		}
		if !strings.HasPrefix(told(v), test.want) || v.Note == "" {
			t.Errorf("%s: %s; want %s", test.name, told(v), test.want)
		}
		if s := j.Status(); s.Limits[test.result.Limit] != 1 {
			t.Errorf("%s: counted %v", test.name, s.Limits)
		}
	}
}

// What befalls the box is a failure of its class, wherever it happens, and never a verdict.
func TestTestsFailWithTheBox(t *testing.T) {
	for _, class := range []sandbox.Class{sandbox.Lost, sandbox.StartFailed, sandbox.Quota, sandbox.BackendDown, sandbox.Protocol} {
		for at := range 7 {
			j := newBounded(t, verifier.Options{Kind: verifier.Tests, Source: "file"})
			box := &fakeBox{failAt: at + 1, err: sandbox.Fail(class, "run", "t.1", "no")}
			v, err := j.Verify(t.Context(), testsCase(box, "test", map[string]string{"/tests/a": "x"}))
			if sandbox.ClassOf(err) != class || v.Reward != 0 || v.Note != "" {
				t.Errorf("call %d, %s: %v, %v", at, class, v, err)
			}
		}
	}
	j := newBounded(t, verifier.Options{Kind: verifier.Tests})
	full := &fakeBox{failAt: 4, err: sandbox.Fail(sandbox.Disk, "write", "t.1", "full")}
	if v, err := j.Verify(t.Context(), testsCase(full, "test", map[string]string{"/tests/a": "x"})); err != nil || v.Reward != 0 || v.Limit != sandbox.Disk {
		t.Errorf("a disk that the policy filled: %v, %v", v, err)
	}
}

// A machine that dies while a rollout is judged is a failure, at whatever call it dies, and whether its box says so
// or the commands there are killed. A zero would be a lie about the policy.
func TestFalseZerosFromADeadMachine(t *testing.T) {
	hidden := map[string]string{"/tests/a": "x"}
	for at := 1; ; at++ {
		dead := &fakeBox{failAt: at, err: sandbox.Fail(sandbox.Lost, "run", "t.1", "no route to host")}
		if v, err := newBounded(t, verifier.Options{Kind: verifier.Tests, Source: "file"}).Verify(t.Context(), testsCase(dead, "test", hidden)); sandbox.ClassOf(err) != sandbox.Lost {
			if dead.calls >= at {
				t.Errorf("the machine died at call %d: %s, %v", at, told(v), err)
			}
			break
		}
	}
	kills := 0
	for at := 1; at < 20; at++ {
		dead := &fakeBox{killAt: at}
		v, err := newBounded(t, verifier.Options{Kind: verifier.Tests, Source: "line"}).Verify(t.Context(), testsCase(dead, "test", hidden))
		if dead.killed && sandbox.ClassOf(err) == "" {
			t.Errorf("call %d was killed: %s, %v", at, told(v), err)
		}
		if dead.killed {
			kills++
		}
	}
	if kills < 4 { // begin, clear, unlink, probe
		t.Errorf("%d calls were killed", kills)
	}
}

// What cannot be judged is said before anything runs.
func TestTestsRefused(t *testing.T) {
	j := newBounded(t, verifier.Options{Kind: verifier.Tests})
	if _, err := j.Verify(t.Context(), testsCase(nil, "true", nil)); sandbox.ClassOf(err) != sandbox.Refused || !strings.Contains(err.Error(), "has none") {
		t.Errorf("without a box: %v", err)
	}
	for says, c := range map[string]verifier.Case{
		"no test that can be":   testsCase(&fakeBox{}, "", nil),
		"that can be run":       testsCase(&fakeBox{}, "a\x00b", nil),
		"which is no file":      testsCase(&fakeBox{}, "true", map[string]string{"": "x"}),
		`"/work/a/..", which`:   testsCase(&fakeBox{}, "true", map[string]string{"/work/a/..": "x"}),
		`is named "/", which i`: testsCase(&fakeBox{}, "true", map[string]string{"/": "x"}),
	} {
		if _, err := j.Verify(t.Context(), c); sandbox.ClassOf(err) != sandbox.BadTask || !strings.Contains(err.Error(), says) {
			t.Errorf("%v, which does not say %q", err, says)
		}
	}
	given := newBounded(t, verifier.Options{Kind: verifier.Tests, Test: "true", Source: "exit"})
	if v, err := given.Verify(t.Context(), testsCase(processBox(t), "", nil)); err != nil || v.Reward != 1 {
		t.Errorf("the run's own test: %v, %v", v, err)
	}
}

// fakeBox fails where it is told to, and answers the test's command with a result. It stands for what a
// real box does only on bad days.
type fakeBox struct {
	result sandbox.Result
	failAt int // the call that fails, from 1
	err    error
	calls  int
	killAt int // the call of the verifier's own that is killed, from 1
	killed bool
}

func (b *fakeBox) fail() error {
	if b.calls++; b.calls == b.failAt {
		return b.err
	}
	return nil
}

func (b *fakeBox) ID() sandbox.ID { return "t.1" }

func (b *fakeBox) Run(_ context.Context, command sandbox.Command) (sandbox.Result, error) {
	if err := b.fail(); err != nil {
		return sandbox.Result{}, err
	}
	token := strings.TrimSpace(string(command.Stdin))
	isTest := slices.Contains(command.Argv, "test")
	probe := len(command.Argv) > 3 && command.Argv[3] == "probe"
	switch {
	case b.calls == b.killAt && (!isTest || probe):
		b.killed = true
		return sandbox.Result{Exit: 137, Signal: "SIGKILL"}, nil
	case strings.Contains(command.Argv[2], "mkdir -p \"$dir\""):
		return sandbox.Result{Stdout: []byte("/work\n/tests\n")}, nil
	case !isTest || probe:
		return sandbox.Result{}, nil
	}
	r := b.result
	r.Stdout = []byte(strings.ReplaceAll(string(r.Stdout), "TOKEN", token))
	return r, nil
}

func (b *fakeBox) Read(_ context.Context, path string, _ int64) ([]byte, error) {
	if err := b.fail(); err != nil {
		return nil, err
	}
	return nil, fmt.Errorf("%s: %w", path, fs.ErrNotExist)
}

func (b *fakeBox) Write(context.Context, string, []byte, fs.FileMode) error { return b.fail() }
func (b *fakeBox) Close(context.Context) error                              { return nil }

// Whatever tests print and leave, a verdict's reward is a finite number within the range.
func FuzzTests(f *testing.F) {
	f.Add("headway-result TOKEN 1/2", `{"reward": 0.5}`, 0, false)
	f.Add("headway-result TOKEN 1/2\nheadway-result TOKEN 2/2", `{"reward": NaN}`, 1, true)
	f.Add("headway-result TOKEN -1/2", `{"reward": 1e999}`, 127, false)
	f.Add("headway-result TOKEN 1e9/2", ` [1] `, 1, true)
	f.Add("", `{"reward": 2, "reward": 0}`, 0, true)
	f.Fuzz(func(t *testing.T, output, file string, exit int, fromFile bool) {
		o := verifier.Options{Kind: verifier.Tests}
		if fromFile {
			o.Source = "file"
		}
		box := &rewardBox{fakeBox{result: sandbox.Result{Stdout: []byte(output), Exit: exit}}, file}
		checkReward(t, newBounded(t, o), testsCase(box, "test", nil))
	})
}

// rewardBox is a box in which there is a reward file.
type rewardBox struct {
	fakeBox
	file string
}

func (b *rewardBox) Read(context.Context, string, int64) ([]byte, error) { return []byte(b.file), nil }

// checkReward fails where a verdict is no finite number within 0 to 1, or comes beside an error.
func checkReward(t *testing.T, j *verifier.Bounded, c verifier.Case) {
	t.Helper()
	v, err := j.Verify(t.Context(), c)
	if err != nil && (sandbox.ClassOf(err) == "" || v.Reward != 0) {
		t.Errorf("%v beside %v", v, err)
	}
	if !(v.Reward >= 0 && v.Reward <= 1) {
		t.Errorf("reward %v", v.Reward)
	}
	if _, bad := json.Marshal(v); bad != nil {
		t.Error(errors.Join(err, bad))
	}
}
