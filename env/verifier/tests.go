package verifier

import (
	"bytes"
	"cmp"
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/taskset"
)

// ResultWord begins the result line: ResultWord, the token, and the share that passed, as in "headway-result TOKEN
// 3/4", on standard output. The token is the first line of the test's standard input.
const ResultWord = "headway-result"

// WorkVariable is the environment variable that gives tests the folder that the policy worked in.
const WorkVariable = "HEADWAY_WORK"

// Tampered is the limit of a verdict whose tests left what no tests leave: two result lines, no reward file,
// or one that is none. The policy's code can bring that about, so it is worth the lowest reward and is not played
// again. Where it befalls every rollout, the tests themselves are wrong.
const Tampered sandbox.Class = "tampered"

// Sources of what tests are worth.
const (
	// SourceLine: the result line. Without one nothing passed, for any exit code.
	SourceLine = "line"
	// SourceExit: the exit code alone. A test that imports the policy's code lets that choose it.
	SourceExit = "exit"
	// SourceFile: reward.json or reward.txt.
	SourceFile = "file"
)

// tests runs the task's tests in the box that the policy worked in, with its hidden files.
//
// They run once all of the policy's processes are gone, in /tests, emptied before, with HOME, TMPDIR and
// Python's paths of their own: what the policy left in its folder is met only by who names it. The token
// comes by a pipe that is empty once it was read: a test reads it before it starts the policy's code.
//
// What no box can keep from code that a test starts as the same user: it writes where the test may write,
// the reward file as well, it ends the test, and in the test's own process it reads its memory, the
// token too, and chooses its exit code. A test that is to withstand that starts the policy's code as a
// process of another user, or asks it for answers alone and compares them with what it never had. In a
// box whose programs the policy may change, none of this holds. Plain processes have no /tests: theirs
// is a folder in the policy's.
type tests struct{ o Options }

func newTests(o Options) (Verifier, error) {
	o.RewardDir = cmp.Or(o.RewardDir, "/logs/verifier")
	o.RewardKey = cmp.Or(o.RewardKey, "reward")
	switch {
	case !slices.Contains([]string{"", SourceLine, SourceExit, SourceFile}, o.Source):
		return nil, fmt.Errorf("verifier: tests' source %q: it must be line, exit or file, or left out for file with Harbor's tasks and line with others", o.Source)
	case (!path.IsAbs(o.RewardDir) || path.Dir(path.Clean(o.RewardDir)) == "/" || strings.ContainsRune(o.RewardDir, 0)):
		return nil, fmt.Errorf("verifier: the folder of reward files is %q: it must be an absolute path of two names or more, as it is emptied", o.RewardDir)
	case strings.ContainsRune(o.Test, 0):
		return nil, fmt.Errorf("verifier: there is a NUL in the test %q", o.Test)
	}
	for class, reward := range o.LimitRewards {
		if !class.Kind().Limit || !finite(reward) || reward < o.Range[0] || reward > o.Range[1] {
			return nil, fmt.Errorf("verifier: a limit of class %q is worth %v: it must be one of a sandbox's limits, and worth something from %v to %v", class, reward, o.Range[0], o.Range[1])
		}
	}
	for _, class := range o.LimitFailures {
		if !class.Kind().Limit {
			return nil, fmt.Errorf("verifier: %q is no limit of a sandbox", class)
		}
	}
	return &tests{o}, nil
}

// Verify implements Verifier.
func (t *tests) Verify(ctx context.Context, c Case) (Verdict, error) {
	test := t.o.Test
	if c.Task != nil && c.Task.Test != "" {
		test = c.Task.Test
	}
	switch {
	case c.Box == nil:
		return Verdict{}, sandbox.Fail(sandbox.Refused, "verify", "", "tests need a sandbox, and this rollout has none")
	case test == "" || strings.ContainsRune(test, 0):
		return Verdict{}, sandbox.Fail(sandbox.BadTask, "verify", "", "the task has no test that can be run: %q", clip(test, 200))
	}
	r := &testRun{box: c.Box, source: t.source(c.Task), rewardDir: t.o.RewardDir, test: test}
	if c.Task != nil {
		r.hidden, r.wants = c.Task.Hidden, c.Task.Wants
	}
	if met, err := r.prepare(ctx); err != nil || met != "" {
		return t.unprepared(met, err)
	}
	token := rand.Text()
	result, err := c.Box.Run(ctx, r.command(token))
	if err != nil {
		return Verdict{}, err
	}
	return t.judge(ctx, r, result, token)
}

// source says what a task's tests are worth by.
func (t *tests) source(task *taskset.Task) string {
	switch {
	case t.o.Source != "":
		return t.o.Source
	case task != nil && task.Hidden[testsDir+"/test.sh"] != nil: // Harbor's layout
		return SourceFile
	}
	return SourceLine
}

// Close implements Verifier.
func (t *tests) Close() error { return nil }

// unprepared is what is said of a box in which tests cannot run.
func (t *tests) unprepared(met sandbox.Class, err error) (Verdict, error) {
	if err != nil {
		return Verdict{}, err
	}
	return t.limited(Verdict{Reward: t.o.Range[0], Limit: met, Note: fmt.Sprintf("the tests could not be put in place: the limit %s is met by what the policy left", met)}.checked(t.o.Range))
}

// judge makes a verdict of a test that ran.
func (t *tests) judge(ctx context.Context, r *testRun, result sandbox.Result, token string) (Verdict, error) {
	share := 0.0
	switch r.source {
	case SourceFile:
		return t.limited(t.fromFile(ctx, r.box, result))
	case SourceExit:
		if result.Exit == 0 {
			share = 1
		}
		return t.limited(t.verdict(share, result), nil)
	}
	share, found, err := resultLine(result.Stdout, token)
	v := t.verdict(share, result)
	switch {
	case err != nil:
		v = t.tampered(result, "the tests' result line: %v", err)
	case found && result.Limit == "" && (result.Signal != "" || result.Exit > 128):
		v = t.tampered(result, "the tests were ended by a signal (exit code %d) after their result line", result.Exit)
	case !found && result.StdoutCut:
		v.Note = strings.TrimPrefix(v.Note+"; ", "; ") + fmt.Sprintf("no result line is in the first %d bytes that the tests wrote, and more is not kept", len(result.Stdout))
	case !found && result.Exit == 0 && result.Limit == "":
		v.Note = "the tests wrote no result line"
	}
	return t.limited(v, nil)
}

// tampered is the verdict of tests that left what none leave; a limit that they met says more.
func (t *tests) tampered(result sandbox.Result, format string, args ...any) Verdict {
	v := Verdict{Reward: t.o.Range[0], Limit: Tampered, Note: fmt.Sprintf(format, args...)}
	if result.Limit != "" {
		v.Limit, v.Note = result.Limit, noteOf(result)+"; "+v.Note
	}
	return v
}

// verdict is that of a share of tests passed.
func (t *tests) verdict(share float64, result sandbox.Result) Verdict {
	low, high := t.o.Range[0], t.o.Range[1]
	v := Verdict{Reward: low + (high-low)*share, Exact: share == 1, Limit: result.Limit, Metrics: map[string]float64{"passed": share}}
	if share == 1 { // without what rounding does to the sum
		v.Reward = high
	}
	v.Note = noteOf(result)
	return v
}

// noteOf says how a test ended that did not simply pass.
func noteOf(result sandbox.Result) string {
	switch {
	case result.Limit != "":
		return fmt.Sprintf("the tests met the limit %s (exit code %d)", result.Limit, result.Exit)
	case result.Exit != 0:
		return fmt.Sprintf("exit code %d: %s", result.Exit, lastBytes(result.Stderr, 300))
	}
	return ""
}

func lastBytes(text []byte, most int) string {
	return strings.TrimSpace(strings.ToValidUTF8(string(text[max(0, len(text)-most):]), "\uFFFD"))
}

// limited applies what a limit is worth.
func (t *tests) limited(v Verdict, err error) (Verdict, error) {
	if err != nil || v.Limit == "" {
		return v, err
	}
	if slices.Contains(t.o.LimitFailures, v.Limit) {
		return Verdict{}, sandbox.Fail(v.Limit, "verify", "", "%s, which is not judged here", v.Note)
	}
	if reward, ok := t.o.LimitRewards[v.Limit]; ok {
		v.Reward, v.Exact = reward, reward == t.o.Range[1]
	}
	return v, nil
}

// resultLine looks for the one line that has the token. Lines with another are the policy's own words.
func resultLine(output []byte, token string) (share float64, found bool, err error) {
	for text := range bytes.Lines(output) {
		fields := strings.Fields(string(text))
		if len(fields) < 2 || fields[0] != ResultWord || fields[1] != token {
			continue
		}
		if found {
			return 0, true, errors.New("there are two of them")
		}
		if share, err = passedOf(fields[2:]); err != nil {
			return 0, true, err
		}
		found = true
	}
	return share, found, nil
}

func passedOf(fields []string) (float64, error) {
	if len(fields) == 1 {
		passed, total, ok := strings.Cut(fields[0], "/")
		p, errPassed := strconv.ParseUint(passed, 10, 31)
		n, errTotal := strconv.ParseUint(total, 10, 31)
		if ok && errPassed == nil && errTotal == nil && n > 0 && p <= n {
			return float64(p) / float64(n), nil
		}
	}
	return 0, fmt.Errorf("%q: it must be passed/total, such as 3/4", clip(strings.Join(fields, " "), 80))
}

// rewardFileMax bounds a reward file, in bytes.
const rewardFileMax = 64 << 10

// fromFile reads what the tests left: reward.json, or reward.txt with one number. Where both are there they
// have to agree.
func (t *tests) fromFile(ctx context.Context, box sandbox.Box, result sandbox.Result) (Verdict, error) {
	v := Verdict{Limit: result.Limit, Note: noteOf(result)}
	var rewards []float64
	for _, name := range []string{"reward.json", "reward.txt"} {
		text, err := box.Read(ctx, path.Join(t.o.RewardDir, name), rewardFileMax)
		switch {
		case errors.Is(err, fs.ErrNotExist):
			continue
		case errors.Is(err, fs.ErrInvalid) || errors.Is(err, sandbox.ErrTooLarge) || sandbox.ClassOf(err) == sandbox.Refused:
			return t.tampered(result, "%s is no reward file: %v", name, err), nil
		case err != nil:
			return Verdict{}, err
		case name == "reward.json":
			err = t.scores(text, &v)
		default:
			v.Reward, err = written(text)
		}
		if err == nil {
			v.Exact = v.Reward == t.o.Range[1]
			_, err = v.checked(t.o.Range)
		}
		if err != nil {
			return t.tampered(result, "the tests' reward file: %v", err), nil
		}
		rewards = append(rewards, v.Reward)
	}
	switch {
	case len(rewards) == 2 && rewards[0] != rewards[1]:
		return t.tampered(result, "reward.json says %v and reward.txt %v", rewards[0], rewards[1]), nil
	case len(rewards) > 0:
		return v, nil
	}
	return t.tampered(result, "the tests left neither reward.json nor reward.txt in %s (exit code %d): %s", t.o.RewardDir, result.Exit, lastBytes(result.Stderr, 300)), nil
}

// written reads the number of a reward.txt as programs write one: bc has .75 for three quarters.
func written(text []byte) (float64, error) {
	digits := strings.TrimPrefix(strings.TrimSpace(string(text)), "+")
	if x, err := strconv.ParseFloat(digits, 64); err == nil && strings.HasPrefix(digits, ".") {
		return x, nil
	}
	return number(json.RawMessage(digits))
}

// scores reads reward.json: the key that counts, or the only one there is; others are metrics. Those that are too many
// or named too long are left out, and the note says so: many tests are no offence.
func (t *tests) scores(text []byte, v *Verdict) error {
	var named map[string]json.RawMessage
	if err := json.Unmarshal(text, &named); err != nil {
		return notAnObject(text, err)
	}
	key := t.o.RewardKey
	if _, ok := named[key]; !ok && len(named) == 1 {
		for only := range named {
			key = only
		}
	}
	value, ok := named[key]
	if !ok {
		return fmt.Errorf("reward.json has no %q among its %d scores: %q", key, len(named), slices.Sorted(maps.Keys(named)))
	}
	var err error
	if v.Reward, err = number(value); err != nil {
		return fmt.Errorf("%q: %w", key, err)
	}
	left := 0
	for _, name := range slices.Sorted(maps.Keys(named)) {
		x, err := number(named[name])
		switch {
		case err != nil || name == key:
		case !isMetric(name, x) || len(v.Metrics) == metricsMax:
			left++
		default:
			if v.Metrics == nil {
				v.Metrics = map[string]float64{}
			}
			v.Metrics[name] = x
		}
	}
	if left > 0 {
		v.Note = strings.TrimPrefix(v.Note+"; ", "; ") + fmt.Sprintf("%d scores of reward.json are left out: at most %d are kept, with names of 1 to %d bytes", left, metricsMax, nameMax)
	}
	return nil
}
