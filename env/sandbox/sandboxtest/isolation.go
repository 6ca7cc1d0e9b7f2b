//go:build linux && amd64

package sandboxtest

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// reportEnv names the directory that reports are written to; without it they are not.
const reportEnv = "HEADWAY_SANDBOX_RESULTS"

// attack is one way to try to get out.
type attack struct {
	name, tries string
	// command is run in the box; do replaces it where more than that is tried.
	command sandbox.Command
	do      func(t *testing.T, i *isolation, box sandbox.Box) (how string, err error)
	// change is made to the box's Spec.
	change func(*sandbox.Spec)
	// unhurt is that the host is as it was, looked at from the host.
	unhurt func(i *isolation) error
	// limited reports whether the boundary claims the limit that is attacked; nil is always.
	limited func(b sandbox.Boundary) bool
	// keeps: the box still works afterwards. Others may be lost to what was tried in them.
	keeps bool
}

// isolation is a driver under attack.
type isolation struct {
	*suite
	host *host
}

// Isolation attacks the boundary of a driver that claims one, from inside and by the paths that are
// handed to it. It looks on the host whether anything came of it.
func Isolation(t *testing.T, subject Subject, versions map[string]string) {
	if testing.Short() {
		t.Skip("attacks take half a minute: without -short")
	}
	i := &isolation{host: newHost(t)}
	i.suite = newSuite(t, subject)
	if !i.boundary.Secure() {
		t.Skip("no boundary is claimed: " + i.boundary.Why)
	}
	report := Report{Driver: i.driver.Name(), Boundary: i.boundary, Versions: versions, Date: time.Now().UTC().Format(time.DateOnly)}
	for _, a := range attacks(i) {
		t.Run(a.name, func(t *testing.T) {
			row := Row{Attack: a.name, Tries: a.tries, Outcome: Contained}
			if a.limited != nil && !a.limited(i.boundary) {
				row.Outcome, row.How = NotLimited, i.boundary.Why
				report.Rows = append(report.Rows, row)
				t.Skip("no such limit is claimed: " + i.boundary.Why)
			}
			how, err := i.try(t, a)
			row.How = how
			if err != nil {
				row.Outcome, row.How = Escaped, err.Error()
				t.Errorf("%s: not contained: %v", a.tries, err)
			}
			report.Rows = append(report.Rows, row)
			t.Logf("%s: %s", row.Outcome, row.How)
		})
	}
	if dir := os.Getenv(reportEnv); dir != "" {
		if err := report.write(dir); err != nil {
			t.Error(err)
		}
	}
}

// try makes a box, attacks in it, and looks at the answer, the box and the host.
func (i *isolation) try(t *testing.T, a attack) (how string, err error) {
	id := i.id()
	box, err := i.driver.Create(bounded(t), id, i.spec(i.armed, func(spec *sandbox.Spec) {
		if a.change != nil {
			a.change(spec)
		}
	}))
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	defer box.Close(context.WithoutCancel(t.Context()))
	if a.do != nil {
		how, err = a.do(t, i, box)
	} else {
		how, err = i.judged(box.Run(bounded(t), a.command))
	}
	if err != nil {
		return how, err
	}
	if result, err := box.Run(bounded(t), shell("echo well")); err != nil {
		if a.keeps || sandbox.ClassOf(err) != sandbox.Lost {
			return how, fmt.Errorf("%s; afterwards the box fails: %w", how, err)
		}
		how += "; the box is lost"
	} else if string(result.Stdout) != "well\n" {
		return how, fmt.Errorf("%s; afterwards the box answers %s", how, described(result))
	}
	if err := box.Close(bounded(t)); err != nil {
		return how, fmt.Errorf("close: %w", err)
	}
	if err := i.gone(t, id); err != nil {
		return how, err
	}
	if err := i.host.alive(); err != nil {
		return how, err
	}
	if a.unhurt != nil {
		if err := a.unhurt(i); err != nil {
			return how, err
		}
	}
	return how, nil
}

// armed gives a box the program of the attacks.
func (i *isolation) armed(spec *sandbox.Spec) {
	if i.boundary.Secure() { // elsewhere it sees all that the host has
		spec.Mounts = append(spec.Mounts, sandbox.Mount{Host: i.host.arms, Box: armsDir})
	}
	spec.Limits.Processes, spec.Limits.Time = 64, 20*time.Second
}

// judged is what a command that attacked has to say for itself: it prints "escaped: …" for what it
// got, "held: …" for what it did not, or lets the secret slip.
func (i *isolation) judged(result sandbox.Result, err error) (string, error) {
	if err != nil {
		if sandbox.ClassOf(err) == sandbox.Lost {
			return "the box ended", nil
		}
		return "", err
	}
	said := string(result.Stdout) + string(result.Stderr)
	if strings.Contains(said, i.host.secret) {
		return "", fmt.Errorf("the secret is out: %.500q", said)
	}
	if _, what, escaped := strings.Cut(said, "escaped: "); escaped {
		what, _, _ = strings.Cut(what, "\n")
		return "", fmt.Errorf("%s", what)
	}
	if result.Exit == 127 || result.Exit == 126 {
		return "", fmt.Errorf("it did not run, so nothing is known: %s", described(result))
	}
	if result.Limit != "" {
		return fmt.Sprintf("it met the limit %s", result.Limit), nil
	}
	var held []string
	for line := range strings.Lines(said) {
		if what, is := strings.CutPrefix(strings.TrimSpace(line), "held: "); is {
			held = append(held, what)
		}
	}
	if len(held) == 0 && result.Signal == "" {
		return "", fmt.Errorf("it says nothing of what it tried: %s", described(result))
	}
	if result.Signal != "" {
		held = append(held, "it ended with "+result.Signal)
	}
	return strings.Join(held, "; "), nil
}

// gone is that nothing of a closed box is left on the host.
func (i *isolation) gone(t *testing.T, id sandbox.ID) error {
	for _, word := range []string{string(id), armsDir + "/" + armName} {
		var left []string
		for _, process := range processesOf(t, word) {
			if word == string(id) && !hasWord(process, word) {
				continue
			}
			left = append(left, process)
		}
		if len(left) != 0 {
			return fmt.Errorf("processes are left on the host: %q", left)
		}
	}
	return nil
}

// hasWord keeps x.1 apart from x.10.
func hasWord(text, word string) bool {
	for {
		i := strings.Index(text, word)
		if i < 0 {
			return false
		}
		text = text[i+len(word):]
		if text == "" || text[0] < '0' || text[0] > '9' {
			return true
		}
	}
}

func (r *Report) write(dir string) error {
	if r.Versions == nil {
		r.Versions = map[string]string{}
	}
	r.Versions["system"] = runtime.GOOS + "/" + runtime.GOARCH
	if release, err := os.ReadFile("/proc/sys/kernel/osrelease"); err == nil {
		r.Versions["kernel"], _, _ = strings.Cut(strings.TrimSpace(string(release)), "-")
	}
	r.Versions["user"] = "root"
	if os.Geteuid() != 0 {
		r.Versions["user"] = "not root"
	}
	text, err := json.MarshalIndent(r, "", " ")
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, r.Driver+".json"), append(text, '\n'), 0o644)
}
