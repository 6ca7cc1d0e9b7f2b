package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/internal/failure"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/trace"
)

// binary builds the program once for all tests that start it as a process.
var binary = sync.OnceValues(func() (string, error) { return buildProgram() })

// programs are the directories of the programs that tests have built. The tests' main removes them.
var programs []string

func TestMain(m *testing.M) {
	code := m.Run()
	for _, dir := range programs {
		_ = os.RemoveAll(dir)
	}
	os.Exit(code)
}

// buildProgram builds the program with more flags. Tests call it one at a time.
func buildProgram(flags ...string) (string, error) {
	dir, err := os.MkdirTemp("", "headway-test")
	if err != nil {
		return "", err
	}
	programs = append(programs, dir)
	path := filepath.Join(dir, "headway")
	out, err := exec.Command("go", slices.Concat([]string{"build"}, flags, []string{"-o", path, "."})...).CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("%w: %s", err, out)
	}
	return path, nil
}

func program(t *testing.T) string {
	t.Helper()
	path, err := binary()
	if err != nil {
		t.Fatal(err)
	}
	return path
}

// crashConfig is a run small enough to be killed many times and still end soon.
const crashConfig = `
seed: 7
rollout: {concurrency: 24, group_size: 4}
train: {batch: 16}
queue: {policy: drop, factor: 2}
model: {layers: 1, width: 16, heads: 2}
engines: [{kind: embedded, decode_step_s: 0.0005}]
environment:
  task: reverse
  service_time: {kind: lognormal, mean_s: 0.002, tailness: 70}
trainer: {steps: 150}
store: {snapshot_every: 5}
evaluate: {prompts: 20, every: 0}
filter: {zero_advantage: false}
`

// process is the program running in a directory.
type process struct {
	cmd    *exec.Cmd
	stdout bytes.Buffer
	stderr bytes.Buffer
}

func startProgram(t *testing.T, dir string, args ...string) *process {
	t.Helper()
	p := &process{cmd: exec.Command(program(t), args...)}
	p.cmd.Dir = dir
	p.cmd.Stdout, p.cmd.Stderr = &p.stdout, &p.stderr
	if err := p.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	return p
}

// signalAt sends a signal once the run's trace has grown past a size, and reports
// whether the process was still there to receive it.
func (p *process) signalAt(t *testing.T, runDir string, size int64, sig syscall.Signal) bool {
	t.Helper()
	watch, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		t.Fatal(err)
	}
	events := os.NewFile(uintptr(watch), "inotify")
	exited := make(chan error, 1)
	go func() {
		exited <- p.cmd.Wait()
		events.Close()
	}()
	// The parent tells of the run directory's birth, the directory of the trace's growth.
	for _, dir := range []string{filepath.Dir(filepath.Dir(runDir)), filepath.Dir(runDir), runDir} {
		for {
			if _, err := unix.InotifyAddWatch(watch, dir, unix.IN_MODIFY|unix.IN_CREATE|unix.IN_MOVED_TO); err == nil {
				break
			}
			if !awaitEvent(events) {
				<-exited
				return false
			}
		}
	}
	for {
		if info, err := os.Stat(filepath.Join(runDir, trace.FileName)); err == nil && info.Size() >= size {
			break
		}
		if !awaitEvent(events) {
			<-exited
			return false
		}
	}
	sent := p.cmd.Process.Signal(sig) == nil
	<-exited
	return sent && p.cmd.ProcessState.ExitCode() != 0
}

// end waits for a process that ends well by itself.
func (p *process) end(t *testing.T) {
	t.Helper()
	if p.cmd.ProcessState == nil {
		_ = p.cmd.Wait() // its exit code is in ProcessState
	}
	if code := p.cmd.ProcessState.ExitCode(); code != failure.ExitDone {
		t.Fatalf("it ended with %d\n%s", code, p.stderr.String())
	}
}

// awaitEvent blocks until something happens in a watched directory; false once the process has ended.
func awaitEvent(events *os.File) bool {
	buf := make([]byte, 4096)
	n, err := events.Read(buf)
	return err == nil && n > 0
}

func size(t *testing.T, runDir string) int64 {
	info, err := os.Stat(filepath.Join(runDir, trace.FileName))
	if err != nil {
		return 0
	}
	return info.Size()
}

// report is what a process printed that has ended.
func (p *process) report(t *testing.T) (report runReport) {
	t.Helper()
	if err := json.Unmarshal(p.stdout.Bytes(), &report); err != nil {
		t.Fatalf("%v in %s\n%s", err, p.stdout.String(), p.stderr.String())
	}
	return report
}

// checkRun replays a finished run and reads its ledger.
func checkRun(t *testing.T, dir string, p *process, steps int) {
	t.Helper()
	report := p.report(t)
	if !report.Ledger.Balanced || report.Steps != loop.Version(steps) {
		t.Errorf("%d steps, ledger %+v", report.Steps, report.Ledger)
	}
	out, err := exec.Command(program(t), "replay", filepath.Join(dir, "runs", "k")).CombinedOutput()
	if err != nil {
		t.Errorf("replay: %v\n%s", err, out)
	}
}

// TestKill ends a run by kill -9 at random moments and resumes it each time: under
// the default rules, with rollouts that stand interrupted, are cut as superfluous and
// fail for good, and with groups that are trained again.
func TestKill(t *testing.T) {
	for name, c := range map[string]struct {
		kills int
		rules string
	}{
		"drop": {kills: 10},
		"partial": {kills: 5, rules: `
rollout: {concurrency: 24, group_size: 4, redundancy: 1, partial: {interrupt: batch, max_spans: 3}}
sync: {mode: restart}
failures: {max_attempts: 1, on_failure: shrink}
`},
		"replay": {kills: 5, rules: `
queue: {policy: replay, capacity: 64, max_uses: 3, evict: drift}
`},
	} {
		if os.Getenv("HEADWAY_LONG") != "" {
			c.kills *= 4
		}
		t.Run(name, func(t *testing.T) { checkKills(t, c.kills, c.rules) })
	}
}

// checkKills kills runs so many times in all: on a busy machine one may have ended before it is, and
// another is begun. It kills more often, up to four times as many, where no run has recovered from a snapshot yet.
func checkKills(t *testing.T, kills int, rules string) {
	seed := rand.Uint64()
	rng := rand.New(rand.NewPCG(seed, 1))
	t.Logf("seed %d", seed)
	done, fromSnapshot := 0, 0
	more := func() bool { return done < kills || fromSnapshot == 0 && done < 4*kills }
	for more() {
		dir := t.TempDir()
		runDir := filepath.Join(dir, "runs", "k")
		if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(withRules(rules)), 0o644); err != nil {
			t.Fatal(err)
		}
		p := startProgram(t, dir, "run", "c.yaml", "--name", "k", "--json")
		recovered := func() {
			if strings.Contains(p.stderr.String(), "recovered from the snapshot at event") {
				fromSnapshot++
			}
		}
		// The whole log is about 150 steps of some 25 kB.
		for more() && p.signalAt(t, runDir, size(t, runDir)+rng.Int64N(35_000), syscall.SIGKILL) {
			done++
			recovered()
			if rng.IntN(4) == 0 {
				damageSnapshot(t, runDir)
			}
			p = startProgram(t, dir, "run", "--resume", "runs/k", "--json")
		}
		p.end(t)
		recovered()
		checkRun(t, dir, p, 150)
	}
	if fromSnapshot == 0 {
		t.Errorf("killed %d times, and never recovered from a snapshot", done)
	}
}

// damageSnapshot flips a bit of the newest snapshot of a run, if there is one.
func damageSnapshot(t *testing.T, runDir string) {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(runDir, "state", "snapshot-*"))
	if err != nil {
		t.Fatal(err)
	}
	names = slices.DeleteFunc(names, func(name string) bool { return strings.HasSuffix(name, ".tmp") })
	if len(names) == 0 {
		return
	}
	newest := slices.Max(names)
	text, err := os.ReadFile(newest)
	if err != nil {
		t.Fatal(err)
	}
	text[len(text)/2] ^= 1
	if err := os.WriteFile(newest, text, 0o644); err != nil {
		t.Fatal(err)
	}
}

// withRules returns crashConfig with sections replaced or added.
func withRules(rules string) string {
	lines := strings.Split(crashConfig, "\n")
	for rule := range strings.Lines(rules) {
		section, _, ok := strings.Cut(rule, ":")
		if !ok {
			continue
		}
		at := slices.IndexFunc(lines, func(l string) bool { return strings.HasPrefix(l, section+":") })
		if at < 0 {
			lines = append(lines, strings.TrimSpace(rule))
			continue
		}
		lines[at] = strings.TrimSpace(rule)
	}
	return strings.Join(lines, "\n")
}

// TestInterrupt stops by Ctrl-C, which finishes the step and says how to resume. A run that has ended
// before it is told to, on a busy machine, is followed by another.
func TestInterrupt(t *testing.T) {
	for stopped := 0; stopped < 3; {
		dir := t.TempDir()
		runDir := filepath.Join(dir, "runs", "k")
		if err := os.WriteFile(filepath.Join(dir, "c.yaml"), []byte(crashConfig), 0o644); err != nil {
			t.Fatal(err)
		}
		p := startProgram(t, dir, "run", "c.yaml", "--name", "k", "--json")
		for stopped < 3 {
			p.signalAt(t, runDir, size(t, runDir)+15_000, syscall.SIGINT)
			p.end(t)
			if p.report(t).Finished == loop.ReasonSteps.String() {
				break
			}
			if !bytes.Contains(p.stderr.Bytes(), []byte("--resume runs/k")) {
				t.Fatalf("does not say how to resume:\n%s", p.stderr.String())
			}
			checkStopped(t, p)
			stopped++
			p = startProgram(t, dir, "run", "--resume", "runs/k", "--json")
		}
		p.end(t)
		checkRun(t, dir, p, 150)
	}
}

func checkStopped(t *testing.T, p *process) {
	t.Helper()
	report := p.report(t)
	if report.Finished != loop.ReasonStopped.String() || !report.Ledger.Balanced || report.Steps >= 150 {
		t.Errorf("finished by %q after %d steps, ledger %+v", report.Finished, report.Steps, report.Ledger)
	}
}
