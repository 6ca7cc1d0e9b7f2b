package program

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/plan"
)

// environment is all that a world's process is given. The user's own variables would be part of its plan. By PWD, the
// path of the working directory is the same to every world: the control plane says it in answers.
var environment = []string{
	"GOMAXPROCS=1", "GODEBUG=asyncpreemptoff=1", "GOGC=off", "GOTRACEBACK=all", "GORACE=halt_on_error=1 exitcode=66", "HOME=/", "PWD=/proc/self/cwd", "TMPDIR=.", "TZ=UTC",
}

// Job is one world to run: the plan that a seed draws, or a plan.
type Job struct {
	Seed uint64
	// Plan takes the seed's place; nil for none.
	Plan *plan.Plan
	// Keep is an empty folder in which the world is run and which stays; "" for a folder that is removed.
	Keep string
	// History is the path of the file to which the program writes its history; "" for none.
	History string
}

// Run runs one world. An error says that it could not be run, or that the context ended: nothing is known of the world.
func (p *Program) Run(ctx context.Context, job Job) (Result, error) {
	name := fmt.Sprintf("%09d", p.worlds.Add(1)) // of one length: it is a part of the path of the world's folder
	arguments := []string{"-seed", strconv.FormatUint(job.Seed, 10)}
	if job.Plan != nil {
		text, err := json.Marshal(job.Plan)
		if err != nil {
			return Result{}, err
		}
		path := filepath.Join(p.folder, name+".json")
		defer os.Remove(path)
		if err := os.WriteFile(path, text, 0o644); err != nil {
			return Result{}, err
		}
		arguments = []string{"-plan", path}
	}
	if job.History != "" {
		arguments = append(arguments, "-history", job.History)
	}
	dir := job.Keep
	if dir == "" {
		dir = filepath.Join(p.folder, name)
		if err := os.Mkdir(dir, 0o755); err != nil {
			return Result{}, err
		}
		defer os.RemoveAll(dir)
	}
	within, cancel := limited(ctx, p.Limit)
	defer cancel()
	var stdout, stderr kept
	began := time.Now()
	e, err := execute(within, dir, p.path, arguments, !p.Race, &stdout, &stderr)
	wall := time.Since(began)
	if err == nil {
		err = ctx.Err()
	}
	if err != nil {
		return Result{}, err
	}
	r := judge(e, p.Limit, stdout.String(), stderr.String())
	r.Wall = wall
	switch {
	case r.Answered:
	case job.Plan != nil:
		r.Plan, r.Seed = *job.Plan, job.Plan.Seed
	default:
		r.Plan, r.Seed = plan.Draw(job.Seed), job.Seed
	}
	return r, nil
}

// ending is how a process ended.
type ending struct {
	code   int
	signal syscall.Signal // 0 for none
	late   bool           // it was ended because its time was over
}

// dumpTime is how long a program that hangs has to print its goroutines.
const dumpTime = 10 * time.Second

// execute runs a program until it ends. When its time is over, SIGQUIT has it print its goroutines and end. A bounded
// one may take only so much memory.
func execute(ctx context.Context, dir, path string, arguments []string, bounded bool, stdout, stderr io.Writer) (ending, error) {
	cmd := exec.CommandContext(ctx, path, arguments...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = dir, environment, stdout, stderr
	cmd.WaitDelay = dumpTime // then it is killed
	late := false
	cmd.Cancel = func() error {
		if late = errors.Is(context.Cause(ctx), errLimit); late {
			return cmd.Process.Signal(syscall.SIGQUIT)
		}
		return cmd.Process.Kill()
	}
	apart(cmd)
	if err := cmd.Start(); err != nil {
		return ending{}, fmt.Errorf("the world's program does not start: %w", err)
	}
	if bounded {
		bound(cmd.Process.Pid)
	}
	if err := cmd.Wait(); cmd.ProcessState == nil {
		return ending{}, err
	}
	e := ending{code: cmd.ProcessState.ExitCode(), late: late} // Wait has waited for Cancel
	if status, ok := cmd.ProcessState.Sys().(syscall.WaitStatus); ok && status.Signaled() {
		e.signal = status.Signal()
	}
	return e, nil
}
