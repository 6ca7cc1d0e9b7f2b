package process

import (
	"context"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

func newDriver(t testing.TB) *Driver {
	t.Helper()
	d, err := New(filepath.Join(t.TempDir(), "boxes"))
	if err != nil {
		t.Fatal(err)
	}
	return d
}

func newBox(t testing.TB, d *Driver, id sandbox.ID, spec sandbox.Spec) sandbox.Box {
	t.Helper()
	box, err := d.Create(t.Context(), id, spec)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := box.Close(context.Background()); err != nil {
			t.Errorf("close: %v", err)
		}
	})
	return box
}

func run(t testing.TB, box sandbox.Box, c sandbox.Command) sandbox.Result {
	t.Helper()
	r, err := box.Run(t.Context(), c)
	if err != nil {
		t.Fatal(err)
	}
	return r
}

func shell(script string) sandbox.Command {
	return sandbox.Command{Argv: []string{"sh", "-c", script}}
}

// TestRun: a command has its arguments, environment, directory and input byte by byte, and its
// output and code come back.
func TestRun(t *testing.T) {
	box := newBox(t, newDriver(t), "t.run", sandbox.Spec{Env: map[string]string{"A": "1", "B": "2"}})
	r := run(t, box, sandbox.Command{
		Argv:  []string{"sh", "-c", `cat; printf '%s' "$1$A$B" >&2; exit 7`, "sh", "\xff\xfe"},
		Env:   map[string]string{"B": "\x80"},
		Stdin: []byte("a\x00\xffb"),
	})
	if string(r.Stdout) != "a\x00\xffb" || string(r.Stderr) != "\xff\xfe1\x80" || r.Exit != 7 || r.Limit != "" {
		t.Errorf("got %q, %q, exit %d, limit %q", r.Stdout, r.Stderr, r.Exit, r.Limit)
	}
	if r := run(t, box, shell("kill -TERM $$")); r.Exit != 143 || r.Signal != "SIGTERM" {
		t.Errorf("ended by a signal: exit %d, signal %q", r.Exit, r.Signal)
	}
	if r := run(t, box, sandbox.Command{Argv: []string{"no-such-program"}}); r.Exit != 127 || !strings.Contains(string(r.Stderr), "no such file") {
		t.Errorf("a program that is not there: exit %d, %q", r.Exit, r.Stderr)
	}
	if r := run(t, box, shell("env | sort | cut -d= -f1 | tr '\\n' ' '")); string(r.Stdout) != "A B HOME LANG PATH PWD TMPDIR " {
		t.Errorf("the environment is %q", r.Stdout)
	}
}

// TestFiles: what is written is read, whatever bytes it has, and what is no plain file is refused.
func TestFiles(t *testing.T) {
	box := newBox(t, newDriver(t), "t.files", sandbox.Spec{})
	ctx := t.Context()
	content := []byte(strings.Repeat("\x00\xff", 300<<10))
	if err := box.Write(ctx, "/work/a/b/c", content, 0o755); err != nil {
		t.Fatal(err)
	}
	if got, err := box.Read(ctx, "/work/a/b/c", 1<<20); err != nil || string(got) != string(content) {
		t.Errorf("read %d bytes, %v", len(got), err)
	}
	if r := run(t, box, shell("stat -c %a a/b/c; mkfifo pipe; ln -s /proc/self/environ env; ln -s pipe link")); string(r.Stdout) != "755\n" {
		t.Errorf("mode %q %s", r.Stdout, r.Stderr)
	}
	for path, want := range map[string]error{
		"/work/pipe": fs.ErrInvalid, "/work/link": fs.ErrInvalid, "/work/env": fs.ErrInvalid, "/work/a": fs.ErrInvalid,
		"/work/none": fs.ErrNotExist,
	} {
		if _, err := box.Read(ctx, path, 10); !errors.Is(err, want) {
			t.Errorf("read of %s: %v, want %v", path, err, want)
		}
	}
	if _, err := box.Read(ctx, "/work/a/b/c", 10); !errors.Is(err, sandbox.ErrTooLarge) {
		t.Errorf("a file that is too large: %v", err)
	}
	for _, path := range []string{"/work/pipe", "/work/env", "/work/a"} {
		if err := box.Write(ctx, path, []byte("x"), 0o644); !errors.Is(err, fs.ErrInvalid) {
			t.Errorf("write to %s: %v", path, err)
		}
	}
}

// TestLeftBehind: what a command leaves running has ended when Run returns, daemons too.
func TestLeftBehind(t *testing.T) {
	d := newDriver(t)
	box := newBox(t, d, "t.left", sandbox.Spec{})
	r := run(t, box, shell("setsid sh -c 'sleep 1000 & setsid sleep 1000 & wait' >/dev/null 2>&1 & echo begun"))
	if string(r.Stdout) != "begun\n" {
		t.Errorf("got %q", r.Stdout)
	}
	if pids := marked(home(d.state.Find("t.left"))); len(pids) > 1 {
		t.Errorf("%d processes carry the box's mark, want its first one alone", len(pids))
	}
}

// TestLimits: time and output are bounded, and the result says which was met.
func TestLimits(t *testing.T) {
	box := newBox(t, newDriver(t), "t.limits", sandbox.Spec{Limits: sandbox.Limits{Output: 1000, Disk: 1 << 20}})
	for script, want := range map[string]sandbox.Class{
		"trap '' TERM INT; sleep 1000":  sandbox.Timeout,
		"yes":                           sandbox.Output,
		"head -c 5000000 /dev/zero > f": sandbox.Disk,
	} {
		c := shell(script)
		if want == sandbox.Timeout {
			c.Time = 50 * time.Millisecond
		}
		r := run(t, box, c)
		if want == sandbox.Disk && r.Limit == "" && r.Exit != 0 {
			continue // head says what it met, and ends by itself: there is no boundary that would know
		}
		if r.Limit != want || len(r.Stdout) > 1000 {
			t.Errorf("%s: limit %q, exit %d, %d bytes kept", script, r.Limit, r.Exit, len(r.Stdout))
		}
	}
	if r := run(t, box, shell("head -c 2000 /dev/zero")); !r.StdoutCut || len(r.Stdout) != 1000 || r.Limit != "" {
		t.Errorf("an output that is cut: %v, %d bytes, limit %q", r.StdoutCut, len(r.Stdout), r.Limit)
	}
}

// TestCancel: a context that ends ends the command, and the box goes on.
func TestCancel(t *testing.T) {
	d := newDriver(t)
	box := newBox(t, d, "t.cancel", sandbox.Spec{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		for ctx.Err() == nil { // the command has begun once its mark is on a second process
			if len(marked(home(d.state.Find("t.cancel")))) > 1 {
				cancel()
			}
		}
	}()
	if _, err := box.Run(ctx, shell("sleep 1000")); !errors.Is(err, context.Canceled) {
		t.Errorf("got %v", err)
	}
	if r := run(t, box, shell("echo on")); string(r.Stdout) != "on\n" {
		t.Errorf("got %q", r.Stdout)
	}
}

// TestResetSnapshot: a reset leaves nothing; a snapshot brings all of Work back, and no link in it
// leads a restore out.
func TestResetSnapshot(t *testing.T) {
	d := newDriver(t)
	box := newBox(t, d, "t.snap", sandbox.Spec{})
	ctx := t.Context()
	if r := run(t, box, shell("mkdir -p d/e; echo x > d/e/f; chmod 640 d/e/f; ln -s ../outside d/l; mkfifo p; chmod 500 d/e d; echo y > $TMPDIR/t; echo z > $HOME/.h")); r.Exit != 0 {
		t.Fatalf("%s", r.Stderr)
	}
	snapper := box.(sandbox.Snapshotter)
	kept, err := snapper.Snapshot(ctx)
	if err != nil {
		t.Fatal(err)
	}
	if err := box.(sandbox.Resetter).Reset(ctx); err != nil {
		t.Fatal(err)
	}
	if r := run(t, box, shell("find . $TMPDIR $HOME -mindepth 1")); len(r.Stdout) != 0 {
		t.Errorf("a reset leaves %q", r.Stdout)
	}
	other := newBox(t, d, "t.snap2", sandbox.Spec{})
	if err := other.(sandbox.Snapshotter).Restore(ctx, kept); err != nil {
		t.Fatal(err)
	}
	if r := run(t, other, shell("cat d/e/f; stat -c %a d d/e d/e/f; readlink d/l; ls")); string(r.Stdout) != "x\n500\n500\n640\n../outside\nd\n" {
		t.Errorf("restored %q %s", r.Stdout, r.Stderr)
	}
	if err := other.(sandbox.Snapshotter).Restore(ctx, []byte("none")); sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("a snapshot that is none: %v", err)
	}
}

// TestLost: a box whose first process is killed is lost, and says so; nothing of it is left.
func TestLost(t *testing.T) {
	d := newDriver(t)
	box, err := d.Create(t.Context(), "t.lost", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	mark := home(d.state.Find("t.lost"))
	if _, err := box.Run(t.Context(), shell("setsid sleep 1000 & kill -9 $PPID; sleep 1000")); sandbox.ClassOf(err) != sandbox.Lost || !strings.Contains(err.Error(), "killed") {
		t.Errorf("got %v", err)
	}
	if _, err := box.Read(t.Context(), "/work/x", 1); sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("a read afterwards: %v", err)
	}
	if err := box.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if ids, err := d.List(t.Context(), "t"); err != nil || len(ids) > 0 {
		t.Errorf("boxes %v, %v", ids, err)
	}
	if pids := marked(mark); len(pids) > 0 {
		t.Errorf("%d processes are left", len(pids))
	}
}

// TestDestroy: another driver on the same directory, as after a crash, finds a box and ends it.
func TestDestroy(t *testing.T) {
	d := newDriver(t)
	box, err := d.Create(t.Context(), "t.destroy", sandbox.Spec{})
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Create(t.Context(), "t.destroy", sandbox.Spec{}); sandbox.ClassOf(err) != sandbox.Refused {
		t.Errorf("a name twice: %v", err)
	}
	again, err := New(filepath.Dir(filepath.Dir(d.state.Path("t.destroy"))))
	if err != nil {
		t.Fatal(err)
	}
	if ids, err := again.List(t.Context(), "t"); err != nil || len(ids) != 1 || ids[0] != "t.destroy" {
		t.Errorf("boxes %v, %v", ids, err)
	}
	for range 2 {
		if err := again.Destroy(t.Context(), "t.destroy"); err != nil {
			t.Error(err)
		}
	}
	if _, err := box.Run(t.Context(), shell("true")); sandbox.ClassOf(err) != sandbox.Lost {
		t.Errorf("a box that was destroyed: %v", err)
	}
	if err := box.Close(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Lstat(d.state.Path("t.destroy")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("its directory: %v", err)
	}
}
