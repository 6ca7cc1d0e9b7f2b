// Package sandboxtest has the suites that every sandbox.Driver must pass. There is the conformance
// suite, and for those that claim to be a boundary the isolation suite. Attacks of the latter run
// inside and are looked for on the host.
package sandboxtest

import (
	"context"
	"crypto/rand"
	"fmt"
	"maps"
	"os"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// Subject is the driver under test.
type Subject struct {
	// New makes the driver. Two that are made with the same directory, also in two processes, know
	// each other's boxes; the directory is there and empty at first. A driver whose boxes live
	// elsewhere has no use for it.
	New func(t testing.TB, dir string) sandbox.Driver
	// Spec is what every box is made of, beside what a test asks for; mostly empty.
	Spec sandbox.Spec
	// Env is set in the process that is killed: how its New finds what this one found.
	Env []string
	// Remote boxes leave nothing on this host, so that nothing is looked for here.
	Remote bool
	// Plain boxes are handed a POSIX shell and its usual programs and nothing else of a Unix. Tests
	// of limits and of links are passed over, with this reason.
	Plain string
}

// patience bounds what must not hang. It is far beyond what anything takes.
const patience = 2 * time.Minute

// suite is one driver during its tests.
type suite struct {
	Subject
	dir      string
	driver   sandbox.Driver
	boundary sandbox.Boundary
	owner    string
	made     atomic.Int64
}

func newSuite(t *testing.T, subject Subject) *suite {
	t.Helper()
	dir := t.TempDir()
	s := &suite{Subject: subject, dir: dir, owner: "suite" + strings.ToLower(rand.Text()[:8])}
	s.driver = subject.New(t, dir)
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	boundary, err := s.driver.Check(ctx)
	if err != nil {
		unavailable(t, s.driver.Name(), err)
	}
	s.boundary = boundary
	t.Cleanup(func() { s.destroyAll(t, s.owner) })
	return s
}

// unavailable ends a test for want of what the driver needs. Where it was said to be installed it
// is a failure: a suite that is passed over must not look like one that passed.
func unavailable(t testing.TB, name string, err error) {
	t.Helper()
	if strings.Contains(","+os.Getenv("HEADWAY_SANDBOXES")+",", ","+name+",") {
		t.Fatalf("HEADWAY_SANDBOXES says that %s is installed: %v", name, err)
	}
	t.Skipf("no boxes can be made here: %v", err)
}

// destroyAll removes what an owner's tests left, also when one failed.
func (s *suite) destroyAll(t testing.TB, owner string) {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ids, err := s.driver.List(ctx, owner)
	if err != nil {
		t.Errorf("list: %v", err)
	}
	for _, id := range ids {
		if err := s.driver.Destroy(ctx, id); err != nil {
			t.Errorf("destroy %s: %v", id, err)
		}
	}
}

func (s *suite) id() sandbox.ID {
	return sandbox.ID(fmt.Sprintf("%s.%d", s.owner, s.made.Add(1)))
}

// spec is small, so that what exhausts it is quick.
func (s *suite) spec(changes ...func(*sandbox.Spec)) sandbox.Spec {
	spec := s.Spec
	spec.Env = maps.Clone(spec.Env)
	small := &spec.Limits
	small.Memory, small.Processes, small.Disk, small.Files = 128<<20, 40, 16<<20, 1000
	small.Output, small.Time = 64<<10, time.Minute
	for _, change := range changes {
		change(&spec)
	}
	return spec
}

// bounded is the context of one call that must not hang.
func bounded(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// box makes a box that is closed at the end of the test.
func (s *suite) box(t *testing.T, changes ...func(*sandbox.Spec)) sandbox.Box {
	t.Helper()
	box, err := s.driver.Create(bounded(t), s.id(), s.spec(changes...))
	if err != nil {
		t.Fatalf("create: %v", err)
	}
	t.Cleanup(func() {
		if err := box.Close(bounded(t)); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return box
}

func run(t *testing.T, box sandbox.Box, command sandbox.Command) sandbox.Result {
	t.Helper()
	result, err := box.Run(bounded(t), command)
	if err != nil {
		t.Fatalf("run %.200q: %v", command.Argv, err)
	}
	return result
}

// shell is a command of a script.
func shell(script string) sandbox.Command {
	return sandbox.Command{Argv: []string{"/bin/sh", "-c", script}}
}

// says runs a script that must end well and returns what it printed.
func says(t *testing.T, box sandbox.Box, script string) string {
	t.Helper()
	result := run(t, box, shell(script))
	if result.Exit != 0 || result.Limit != "" {
		t.Fatalf("%s\nended with %s", script, described(result))
	}
	return string(result.Stdout)
}

// described is a result in one line.
func described(r sandbox.Result) string {
	return fmt.Sprintf("exit %d, signal %q, limit %q, stdout %.300q, stderr %.300q, wall %s, cpu %s, memory %d", r.Exit, r.Signal, r.Limit, r.Stdout, r.Stderr, r.Wall, r.CPU, r.Memory)
}

// works is that a box runs a command as if nothing had happened to it.
func works(t *testing.T, box sandbox.Box) {
	t.Helper()
	if got := says(t, box, "echo well"); got != "well\n" {
		t.Fatalf("a command after it printed %q", got)
	}
}

func wantClass(t *testing.T, what string, err error, want sandbox.Class) {
	t.Helper()
	if err == nil {
		t.Errorf("%s: no error, want one of class %s", what, want)
	} else if got := sandbox.ClassOf(err); got != want {
		t.Errorf("%s: class %q of %v, want %s", what, got, err, want)
	}
}
