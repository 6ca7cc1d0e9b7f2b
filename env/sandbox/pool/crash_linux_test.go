package pool_test

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/bwrap"
	"github.com/headway-rl/headway/env/sandbox/pool"
	"github.com/headway-rl/headway/env/sandbox/process"
	"github.com/headway-rl/headway/env/sandbox/runsc"
)

// drivers of this host with which the pool is tested for real; each keeps what it knows below a directory.
// The process that is killed has so many boxes of it.
var drivers = map[string]struct {
	make  func(dir string) (sandbox.Driver, error)
	holds int
}{
	"process": {func(dir string) (sandbox.Driver, error) { return process.New(dir) }, 100},
	"bwrap":   {func(dir string) (sandbox.Driver, error) { return bwrap.New(dir) }, 100},
	"runsc":   {func(dir string) (sandbox.Driver, error) { return runsc.New(runsc.Options{Dir: dir}) }, 8},
}

// real returns a driver, or passes the test over where its boxes cannot be made; where HEADWAY_SANDBOXES
// says that they can, that is a failure.
func real(t *testing.T, name, dir string) sandbox.Driver {
	t.Helper()
	d, err := drivers[name].make(dir)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := d.Check(t.Context()); err != nil {
		if slices.Contains(strings.Split(os.Getenv("HEADWAY_SANDBOXES"), ","), name) {
			t.Fatalf("HEADWAY_SANDBOXES says that %s is installed: %v", name, err)
		}
		t.Skipf("no boxes can be made here: %v", err)
	}
	return d
}

// small is a box for small programs.
var small = sandbox.Spec{Limits: sandbox.Limits{Memory: 64 << 20, Disk: 4 << 20, Processes: 32}}

// TestHolds is no test by itself: it is the process that is killed with its boxes open.
func TestHolds(t *testing.T) {
	dir, name := os.Getenv("HEADWAY_POOL_DIR"), os.Getenv("HEADWAY_POOL_DRIVER")
	if dir == "" {
		t.Skip("it is started by TestKilled")
	}
	p, err := pool.Open(t.Context(), pool.Options{Driver: real(t, name, dir), Spec: small, Owner: "killed",
		File: filepath.Join(dir, "boxes.jsonl"), WarmMin: 2, StartTimeout: 5 * time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	var wait sync.WaitGroup
	holding := drivers[name].holds
	for i := range holding {
		wait.Go(func() {
			l, err := p.Lease(t.Context(), fmt.Sprintf("g%d-s0-a0", i))
			if err == nil {
				err = l.Ready(t.Context())
			}
			if err != nil {
				t.Error(err)
				return
			}
			wait.Go(func() { // each is in the midst of something
				_, _ = l.Run(t.Context(), sandbox.Command{Argv: []string{"sleep", "600"}, Time: 10 * time.Minute})
			})
			if i == 0 {
				return
			}
			if _, err := l.Read(t.Context(), sandbox.Work+"/none", 1); err == nil {
				t.Error("an empty box has a file")
			}
		})
	}
	for p.Status().Leased < holding && !t.Failed() {
		<-time.After(time.Millisecond)
	}
	fmt.Println("holding")
	wait.Wait()
}

// A process that is killed with a hundred boxes open leaves them to the next one of its owner, which
// removes every one and says whose it was.
func TestKilled(t *testing.T) {
	for name := range drivers {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			driver := real(t, name, dir)
			inside := killHolder(t, dir, name)
			began := time.Now()
			p, err := pool.Open(t.Context(), pool.Options{Driver: driver, Spec: small, Owner: "killed", File: filepath.Join(dir, "boxes.jsonl")})
			if err != nil {
				t.Fatal(err)
			}
			if left, err := driver.List(t.Context(), "killed"); err != nil || len(left) != 0 {
				t.Errorf("%d boxes are left: %v, %v", len(left), left, err)
			}
			waitFor(t, "the processes of the boxes are gone", func() bool { return !slices.ContainsFunc(inside, living) })
			t.Logf("%d boxes with %d processes are gone %v after the restart", len(p.Lost()), len(inside), time.Since(began))
			accounted(t, p, drivers[name].holds)
			if err := p.Close(t.Context()); err != nil {
				t.Error(err)
			}
		})
	}
}

// accounted is that every lease of the process that was killed is named, once.
func accounted(t *testing.T, p *pool.Pool, holding int) {
	t.Helper()
	holders := map[string]int{}
	for _, o := range p.Lost() {
		if o.Holder != "" {
			holders[o.Holder]++
		}
	}
	for i := range holding {
		if name := fmt.Sprintf("g%d-s0-a0", i); holders[name] != 1 {
			t.Errorf("the holder %s is named %d times", name, holders[name])
		}
	}
	if len(holders) != holding || p.Status().Orphans < int64(holding) {
		t.Errorf("%d holders, %d orphans; want %d", len(holders), p.Status().Orphans, holding)
	}
}

// killHolder starts a process that opens boxes, kills it, and returns the processes that were below it.
func killHolder(t *testing.T, dir, name string) []life {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 4*time.Minute)
	defer cancel()
	holder := exec.CommandContext(ctx, os.Args[0], "-test.run", "^TestHolds$", "-test.v")
	holder.Env = append(os.Environ(), "HEADWAY_POOL_DIR="+dir, "HEADWAY_POOL_DRIVER="+name)
	out, err := holder.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	holder.Stderr = os.Stderr
	if err := holder.Start(); err != nil {
		t.Fatal(err)
	}
	said, holds := "", false
	for lines := bufio.NewScanner(out); !holds && lines.Scan(); said += lines.Text() + "\n" {
		holds = strings.Contains(lines.Text(), "holding")
	}
	inside := below(holder.Process.Pid)
	_ = holder.Process.Kill()
	_ = holder.Wait()
	if !holds || len(inside) < drivers[name].holds {
		t.Fatalf("it holds %d processes, and said:\n%s", len(inside), said)
	}
	return inside
}

// waitFor polls for what must come about within a minute.
func waitFor(t *testing.T, what string, holds func() bool) {
	t.Helper()
	deadline := time.After(time.Minute)
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for !holds() {
		select {
		case <-deadline:
			t.Fatalf("after a minute not: %s", what)
		case <-tick.C:
		}
	}
}

// life is a process: its number, and when it started, since numbers are used again.
type life struct {
	pid     int
	started string
}

// stat is what there is to know of a process, from its parent on; nil for one that is not there.
func stat(pid int) []string {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return nil
	}
	return strings.Fields(string(text[bytes.LastIndexByte(text, ')')+1:]))[1:]
}

func living(l life) bool {
	fields := stat(l.pid)
	return fields != nil && fields[18] == l.started
}

// below are the processes below one.
func below(pid int) (out []life) {
	children := map[int][]life{}
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range dirs {
		child, _ := strconv.Atoi(filepath.Base(dir))
		if fields := stat(child); fields != nil {
			parent, _ := strconv.Atoi(fields[0])
			children[parent] = append(children[parent], life{child, fields[18]})
		}
	}
	for next := children[pid]; len(next) > 0; {
		out = append(out, next[0])
		next = append(next[1:], children[next[0].pid]...)
	}
	return out
}
