package verifier

import (
	"bytes"
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
	"time"

	"github.com/headway-rl/headway/sandbox"
	"github.com/headway-rl/headway/taskset"
)

// TokenVariable is the environment variable that gives tests the token of their result line. A test
// that runs the policy's code in its own process takes it out of the environment first: whoever knows
// it can say what passed.
const TokenVariable = "HEADWAY_TEST_TOKEN"

// ResultWord begins the result line: ResultWord, the token, and what passed of how many, as in
// "headway-result TOKEN 3/4", on standard output. There is one such line, or none and the exit code
// counts.
const ResultWord = "headway-result"

// tests runs the task's tests in the box that the policy worked in, with its hidden files.
//
// The policy's files are there as well. What it may have put in the way of hidden files is removed,
// and so are old reward files; but a test that imports the policy's code runs it, with all that the
// test itself may do. A reward file can then be written by that code, and an exit code chosen.
type tests struct{ o Options }

func newTests(o Options) (Verifier, error) {
	if o.RewardDir == "" && o.Source == "file" {
		o.RewardDir = "/logs/verifier"
	}
	if o.RewardKey == "" {
		o.RewardKey = "reward"
	}
	switch {
	case o.Source != "" && o.Source != "file":
		return nil, fmt.Errorf(`verifier: tests' source %q: it must be file, or left out for a result line or else the exit code`, o.Source)
	case o.RewardDir != "" && (!path.IsAbs(o.RewardDir) || path.Dir(path.Clean(o.RewardDir)) == "/" || strings.ContainsRune(o.RewardDir, 0)):
		return nil, fmt.Errorf("verifier: the folder of reward files is %q: it must be an absolute path of two names or more, as it is emptied", o.RewardDir)
	case strings.ContainsRune(o.Test, 0):
		return nil, fmt.Errorf("verifier: there is a NUL in the test %q", o.Test)
	}
	for class, reward := range o.LimitRewards {
		if !isLimit(class) || !finite(reward) || reward < o.Range[0] || reward > o.Range[1] {
			return nil, fmt.Errorf("verifier: a limit of class %q is worth %v: it must be one of a sandbox's limits, and worth something from %v to %v", class, reward, o.Range[0], o.Range[1])
		}
	}
	for _, class := range o.LimitFailures {
		if !isLimit(class) {
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
		return Verdict{}, sandbox.Fail(sandbox.Refused, "verify", "", "the task has no test that can be run: %q", clip(test, 200))
	}
	if met, err := t.prepare(ctx, c); err != nil || met != "" {
		return t.unprepared(met, err)
	}
	token := rand.Text()
	result, err := c.Box.Run(ctx, testCommand(c.Task, test, token))
	if err != nil {
		return Verdict{}, err
	}
	return t.judge(ctx, c.Box, result, token)
}

func testCommand(task *taskset.Task, test, token string) sandbox.Command {
	command := sandbox.Command{Argv: []string{"/bin/sh", "-c", test}, Env: map[string]string{}}
	if task != nil {
		maps.Copy(command.Env, task.Wants.VerifierEnv)
		command.Time = time.Duration(task.Wants.VerifierTimeoutS * float64(time.Second))
	}
	command.Env[TokenVariable] = token
	return command
}

// Close implements Verifier.
func (t *tests) Close() error { return nil }

// clear removes old rewards and whatever lies where hidden files go, and makes the folder of rewards. A
// file in place of a folder goes, too. Arguments are that folder and the files, from where commands
// begin or absolute. Where that is not Work the box has no files of its own: an absolute path would be
// the host's, and nothing is touched.
const clear = `for file do
  case $file in
  ''|./*) ;;
  *) [ "$(pwd -P)" = ` + sandbox.Work + ` ] || { echo "$file: this sandbox has no files of its own outside of ` + sandbox.Work + `" >&2; exit 64; } ;;
  esac
done
rewards=$1
for file do
  folder=${file%/*}
  while [ -n "$folder" ] && [ "$folder" != . ]; do
    [ -d "$folder" ] || rm -f -- "$folder"
    folder=${folder%/*}
  done
  [ -d "$file" ] && [ ! -h "$file" ] && chmod -R u+rwx -- "$file"
  rm -rf -- "$file"
done
[ -z "$rewards" ] || mkdir -p -- "$rewards"`

// prepare puts the hidden files in their place. What the policy did that makes that impossible is the
// limit it met.
func (t *tests) prepare(ctx context.Context, c Case) (met sandbox.Class, err error) {
	var hidden map[string][]byte
	if c.Task != nil {
		hidden = c.Task.Hidden
	}
	names := slices.Sorted(maps.Keys(hidden))
	for _, name := range names {
		if at := inBox(name); at == sandbox.Work || at == "/" {
			return "", sandbox.Fail(sandbox.Refused, "verify", c.Box.ID(), "a hidden file of the task is named %q, which is no file", name)
		}
	}
	rewards := ""
	if t.o.Source == "file" {
		rewards = fromWork(t.o.RewardDir)
	}
	for rest := names; len(rest) > 0 || rewards != ""; rewards = "" {
		some := rest[:min(len(rest), 200)]
		rest = rest[len(some):]
		argv := []string{"/bin/sh", "-c", clear, "clear", rewards}
		for _, name := range some {
			argv = append(argv, fromWork(name))
		}
		result, err := c.Box.Run(ctx, sandbox.Command{Argv: argv})
		if err != nil {
			return "", err
		}
		if result.Limit != "" {
			return result.Limit, nil
		}
		if result.Exit != 0 {
			return "", sandbox.Fail(sandbox.Refused, "verify", c.Box.ID(), "hidden files and rewards have no place in this sandbox: %s", clip(string(result.Stderr), 300))
		}
	}
	for _, name := range names {
		content := hidden[name]
		mode := fs.FileMode(0o644)
		if bytes.HasPrefix(content, []byte("#!")) {
			mode = 0o755
		}
		if err := c.Box.Write(ctx, inBox(name), content, mode); err != nil {
			if class := sandbox.ClassOf(err); isLimit(class) {
				return class, nil
			}
			return "", fmt.Errorf("the hidden file %s cannot be put into the sandbox: %w", name, err)
		}
	}
	return "", nil
}

// fromWork is a path as commands have it, from Work or absolute.
func fromWork(name string) string {
	if below, ok := strings.CutPrefix(inBox(name), sandbox.Work+"/"); ok {
		return "./" + below
	}
	return inBox(name)
}

func inBox(name string) string {
	if path.IsAbs(name) {
		return path.Clean(name)
	}
	return path.Join(sandbox.Work, name)
}

// unprepared is what is said of a box in which tests cannot run.
func (t *tests) unprepared(met sandbox.Class, err error) (Verdict, error) {
	if err != nil {
		return Verdict{}, err
	}
	return t.limited(Verdict{Reward: t.o.Range[0], Limit: met, Note: fmt.Sprintf("the tests could not be put in place: the limit %s is met by what the policy left", met)}.checked(t.o.Range))
}

// judge makes a verdict of a test that ran.
func (t *tests) judge(ctx context.Context, box sandbox.Box, result sandbox.Result, token string) (Verdict, error) {
	if t.o.Source == "file" {
		return t.limited(t.fromFile(ctx, box, result))
	}
	share, found, err := resultLine(result.Stdout, token)
	switch {
	case err != nil:
		return Verdict{}, sandbox.Fail(sandbox.VerifierProtocol, "verify", box.ID(), "the tests' result line: %w", err)
	case found:
		return t.limited(t.verdict(share, result), nil)
	case result.Limit == "" && (result.Exit == 126 || result.Exit == 127):
		return Verdict{}, sandbox.Fail(sandbox.VerifierCrash, "verify", box.ID(), "the shell cannot run the test (exit code %d): %s", result.Exit, clip(string(result.Stderr), 300))
	}
	share = 0
	if result.Exit == 0 {
		share = 1
	}
	return t.limited(t.verdict(share, result), nil)
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

// fromFile reads what the tests left: reward.json, or reward.txt with one number.
func (t *tests) fromFile(ctx context.Context, box sandbox.Box, result sandbox.Result) (Verdict, error) {
	v := Verdict{Limit: result.Limit, Note: noteOf(result)}
	text, err := box.Read(ctx, path.Join(t.o.RewardDir, "reward.json"), rewardFileMax)
	if err == nil {
		err = t.scores(text, &v)
		return t.filed(box, v, err)
	}
	if !errors.Is(err, fs.ErrNotExist) {
		return Verdict{}, t.unread(box, "reward.json", err)
	}
	text, err = box.Read(ctx, path.Join(t.o.RewardDir, "reward.txt"), rewardFileMax)
	switch {
	case err == nil:
		v.Reward, err = number(text)
		return t.filed(box, v, err)
	case !errors.Is(err, fs.ErrNotExist):
		return Verdict{}, t.unread(box, "reward.txt", err)
	case result.Limit != "": // what ended them is known, and is the policy's
		v.Reward = t.o.Range[0]
		return v, nil
	}
	return Verdict{}, sandbox.Fail(sandbox.VerifierProtocol, "verify", box.ID(), "the tests left neither reward.json nor reward.txt in %s (exit code %d): %s", t.o.RewardDir, result.Exit, lastBytes(result.Stderr, 300))
}

func (t *tests) unread(box sandbox.Box, name string, err error) error {
	if errors.Is(err, fs.ErrInvalid) || errors.Is(err, sandbox.ErrTooLarge) {
		return sandbox.Fail(sandbox.VerifierProtocol, "verify", box.ID(), "%s is no reward file: %w", name, err)
	}
	return err
}

func (t *tests) filed(box sandbox.Box, v Verdict, err error) (Verdict, error) {
	if err != nil {
		return Verdict{}, sandbox.Fail(sandbox.VerifierProtocol, "verify", box.ID(), "the tests' reward file: %w", err)
	}
	v.Exact = v.Reward == t.o.Range[1]
	return v.checked(t.o.Range)
}

// scores reads reward.json: the key that counts, or the only one there is; others are metrics.
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
	for name, score := range named {
		if x, err := number(score); err == nil && name != key {
			if v.Metrics == nil {
				v.Metrics = map[string]float64{}
			}
			v.Metrics[name] = x
		}
	}
	return nil
}
