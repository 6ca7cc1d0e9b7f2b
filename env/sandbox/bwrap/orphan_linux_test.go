package bwrap

import (
	"context"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/host"
)

// TestStartsCancelled: starts that are cancelled at any instant leave no process, no group and no
// directory, also where no group holds the processes.
func TestStartsCancelled(t *testing.T) {
	for name, groups := range map[string]*host.Groups{"groups": host.FindGroups(), "no groups": {}} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			d, err := New(dir)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := d.Check(t.Context()); err != nil {
				t.Skip(err)
			}
			d.groups = groups
			owner := "cancel" + strings.ToLower(filepath.Base(filepath.Dir(dir))[:4]) + fmt.Sprint(os.Getpid())
			starts, atOnce := 100, 8
			if os.Getenv("HEADWAY_LONG") != "" {
				starts = 300
			}
			random := rand.New(rand.NewPCG(1, 2))
			var work sync.WaitGroup
			room := make(chan struct{}, atOnce)
			for i := range starts {
				after := time.Duration(random.Int64N(int64(15 * time.Millisecond)))
				room <- struct{}{}
				work.Go(func() {
					defer func() { <-room }()
					ctx, cancel := context.WithTimeout(context.Background(), after)
					defer cancel()
					box, err := d.Create(ctx, sandbox.ID(fmt.Sprintf("%s.%d", owner, i)), sandbox.Spec{})
					if err == nil {
						err = box.Close(context.Background())
						if err != nil {
							t.Errorf("close: %v", err)
						}
					} else if ctx.Err() == nil {
						t.Errorf("create: %v", err)
					}
				})
			}
			work.Wait()
			nothingOf(t, d, owner)
		})
	}
}

// TestOrphan: a bubblewrap that is killed as it starts leaves a child that waits for it for ever.
// Whoever lists boxes after its maker has gone finds it by its mark and ends it.
func TestOrphan(t *testing.T) {
	dir := t.TempDir()
	d, err := New(dir)
	if err != nil {
		t.Fatal(err)
	}
	d.groups = &host.Groups{}
	owner := "orphan" + fmt.Sprint(os.Getpid()) // programs that others run here name orphans too
	id := sandbox.ID(owner + ".1")
	entry, err := d.state.Make(id)
	if err != nil {
		t.Fatal(err)
	}
	// Any process with the mark in its arguments stands for it; this one is not reaped by a bubblewrap.
	script := "echo ready; read never; exit # " + string(entry.Name())
	orphan := startMarked(t, script, string(entry.Name()))
	if len(marked(string(entry.Name()))) != 1 {
		t.Fatal("the mark is not found")
	}
	if err := d.Destroy(t.Context(), id); err != nil {
		t.Error(err)
	}
	if err := orphan.Wait(); err == nil || !strings.Contains(err.Error(), "killed") {
		t.Errorf("the orphan has ended with %v, want it killed", err)
	}
	nothingOf(t, d, owner)
}

// nothingOf is that no process, group or directory has an owner's name in it.
func nothingOf(t *testing.T, d *Driver, owner string) {
	t.Helper()
	lines, _ := filepath.Glob("/proc/[0-9]*/cmdline")
	for _, line := range lines {
		if text, err := os.ReadFile(line); err == nil && strings.Contains(string(text), owner+".") {
			t.Errorf("%s is left: %.300q", line, text)
		}
	}
	if ids, err := d.List(t.Context(), owner); err != nil || len(ids) > 0 {
		t.Errorf("boxes %v are left, %v", ids, err)
	}
	for _, pattern := range []string{"/sys/fs/cgroup/*/headway-sandboxes/" + owner + ".*", d.state.Path("*" + sandbox.ID(owner) + ".*")} {
		if left, _ := filepath.Glob(pattern); len(left) > 0 {
			t.Errorf("%v are left", left)
		}
	}
}

func startMarked(t *testing.T, script, mark string) *exec.Cmd {
	t.Helper()
	command := exec.Command("/bin/sh", "-c", script, "sh", "--setenv", markName, mark, "end")
	in, err := command.StdinPipe()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { in.Close() })
	out, err := command.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := command.Start(); err != nil {
		t.Fatal(err)
	}
	if _, err := io.ReadFull(out, make([]byte, len("ready\n"))); err != nil {
		t.Fatal(err)
	}
	return command
}
