package sandboxtest

import (
	"bufio"
	"bytes"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"
)

// attackEnv names the attack that a container's test is to make, and rowMark begins the line with what came of it.
const (
	attackEnv = "HEADWAY_SANDBOX_ATTACK"
	rowMark   = "headway-row: "
)

// Unbounded makes the attacks of [Isolation] on a driver that claims no boundary. They would reach this host. So each
// one has a host of its own, a container of bubblewrap with a test of the same name in it. The driver has the rights there
// of a user who owns all files. An outcome that differs from the recorded one fails the test.
func Unbounded(t *testing.T, subject Subject, versions map[string]string) {
	if name := os.Getenv(attackEnv); name != "" {
		attackOnce(t, subject, name)
		return
	}
	results := os.Getenv(reportEnv) // an absolute path
	if results == "" && os.Getenv("HEADWAY_LONG") == "" {
		t.Skip("a container for each attack takes half a minute: HEADWAY_LONG=1 makes them")
	}
	if _, err := exec.LookPath("bwrap"); err != nil {
		unavailable(t, "bwrap", err)
	}
	report := &Report{Driver: subject.New(t, t.TempDir()).Name(), Versions: versions, Date: time.Now().UTC().Format(time.DateOnly)}
	for _, a := range attacks(nowhere()) {
		t.Run(a.name, func(t *testing.T) {
			row := Row{Attack: a.name, Tries: a.tries}
			row.Outcome, row.How = contain(t, a.name)
			report.Rows = append(report.Rows, row)
			t.Logf("%s: %s", row.Outcome, row.How)
		})
	}
	if results != "" {
		if err := report.write(results); err != nil {
			t.Error(err)
		}
		return
	}
	compareRows(t, report)
}

// nowhere is what attacks are named by, and never made on.
func nowhere() *isolation {
	return &isolation{&suite{}, &host{files: []string{"/none"}, victim: &exec.Cmd{Process: &os.Process{Pid: 1}}}}
}

// compareRows holds the outcomes against the recorded ones.
func compareRows(t *testing.T, report *Report) {
	recorded, err := ReadReports("../sandboxtest/results")
	if err != nil {
		t.Fatal(err)
	}
	want := map[string]string{}
	for _, r := range recorded {
		for _, row := range r.Rows {
			if r.Driver == report.Driver {
				want[row.Attack] = row.Outcome
			}
		}
	}
	for _, row := range report.Rows {
		if want[row.Attack] != row.Outcome {
			t.Errorf("%s: %s (%s), and recorded is %q", row.Attack, row.Outcome, row.How, want[row.Attack])
		}
	}
}

// attackOnce makes one attack and prints its row.
func attackOnce(t *testing.T, subject Subject, name string) {
	i := &isolation{host: newHost(t)}
	i.suite = newSuite(t, subject)
	if err := os.Symlink(i.host.arms, armsDir); err != nil {
		t.Fatal(err)
	}
	for _, a := range attacks(i) {
		if a.name != name {
			continue
		}
		row := Row{Outcome: NotLimited, How: "no such limit is claimed without control groups"}
		if a.limited == nil || a.limited(i.boundary) {
			var err error
			if row.How, err = i.try(t, a); err != nil {
				row.Outcome, row.How = Escaped, err.Error()
			} else {
				row.Outcome = Contained
			}
		}
		row.How = brief(row.How)
		text, err := json.Marshal(row)
		if err != nil {
			t.Fatal(err)
		}
		_, _ = os.Stdout.WriteString(rowMark + string(text) + "\n")
	}
}

// brief is how an attack got out, without all that it found.
func brief(how string) string {
	how, _, _ = strings.Cut(how, "\n")
	if out, _, is := strings.Cut(how, ": "); is && out == "the secret is out" {
		return out
	}
	return how
}

// contain makes an attack in a container of its own. All that is in one may be ended: that is an escape, too.
func contain(t *testing.T, name string) (outcome, how string) {
	program, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	const inside = "/headway.test"
	args := []string{"--die-with-parent", "--new-session", "--unshare-pid", "--unshare-net", "--unshare-ipc", "--unshare-uts",
		"--cap-drop", "ALL", "--ro-bind", program, inside, "--proc", "/proc", "--ro-bind", "/proc/sys", "/proc/sys", "--dev", "/dev"}
	for _, dir := range []string{"/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc/alternatives", "/etc/ld.so.cache"} {
		if _, err := os.Stat(dir); err == nil {
			args = append(args, "--ro-bind", dir, dir)
		}
	}
	for _, dir := range []string{"/tmp", "/var/tmp", "/var/lib", "/root", "/home", "/opt", "/srv", "/run", "/dev/shm"} {
		args = append(args, "--tmpfs", dir)
	}
	args = append(args, "--clearenv", "--setenv", "PATH", "/usr/bin:/bin", "--setenv", "HOME", "/root", "--setenv", attackEnv, name,
		"--", inside, "-test.run=^"+t.Name()[:strings.IndexByte(t.Name(), '/')]+"$", "-test.timeout=2m")
	command := exec.CommandContext(bounded(t), "bwrap", args...)
	command.Env = []string{"PATH=" + os.Getenv("PATH")} // its first process has them, and attacks print them
	row, said, err := rowOf(command)
	var ended *exec.ExitError
	switch {
	case row.Outcome == "" && errors.As(err, &ended) && (ended.ExitCode() == 128+9 || ended.ExitCode() == -1):
		return Escaped, "all processes of its host were ended"
	case row.Outcome == "" || strings.Contains(row.How, "it did not run"):
		t.Errorf("nothing is known of it: %v\n%s", err, said)
	}
	return row.Outcome, row.How
}

// rowOf starts a container and ends it once it has said its row, since an attack may have stopped its first process.
func rowOf(command *exec.Cmd) (row Row, said []byte, err error) {
	out, err := command.StdoutPipe()
	if err == nil {
		err = command.Start()
	}
	if err != nil {
		return row, nil, err
	}
	for lines := bufio.NewReader(out); err == nil && row.Outcome == ""; {
		var line []byte
		line, err = lines.ReadBytes('\n')
		said = append(said, line...)
		if _, text, is := bytes.Cut(line, []byte(rowMark)); is { // attacks write to the pipe as well
			err = json.Unmarshal(text, &row)
		}
	}
	if row.Outcome != "" {
		_ = command.Process.Kill()
	}
	return row, said, command.Wait()
}
