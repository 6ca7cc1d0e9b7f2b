package agent

import (
	"bytes"
	"cmp"
	"errors"
	"io"
	"os"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/env/sandbox"
)

// outputFactor is how much a command may write for every byte of it that is kept.
const outputFactor = 64

// sampleEvery is how often a running command's file system is looked at: one that was full for a
// while and is empty again was still a limit met.
const sampleEvery = 50 * time.Millisecond

// serveRun runs a command to its end.
func (a *agent) serveRun(r request, ans answer) error {
	stdin, err := a.takeStdin()
	a.consumed <- struct{}{}
	if bad, is := errors.AsType[*fault](err); is {
		ans.Fault = bad
		return a.wire.send(ans)
	}
	if err != nil {
		return err
	}
	defer stdin.Close()
	result, err := a.run(r, stdin)
	if err != nil {
		if bad, is := errors.AsType[*fault](err); is {
			ans.Fault = bad
			return a.wire.send(ans)
		}
		return err
	}
	stdout, stderr := result.Stdout, result.Stderr
	result.Stdout, result.Stderr = nil, nil
	ans.Result, ans.Stdout, ans.Stderr = &result, int64(len(stdout)), int64(len(stderr))
	return a.wire.send(ans, stdout, stderr)
}

// takeStdin puts what a command reads into a file in memory: it is all there when the command
// begins, and one that does not read it holds nothing up.
func (a *agent) takeStdin() (*os.File, error) {
	data, err := a.wire.readData()
	if err != nil {
		return nil, err
	}
	if data == nil {
		return os.Open(os.DevNull)
	}
	fd, err := unix.MemfdCreate("stdin", unix.MFD_CLOEXEC)
	if err != nil {
		_, _ = a.wire.readAll(sandbox.MaxStdin)
		return nil, faulty(faultBroken, "standard input: %v", err)
	}
	file := os.NewFile(uintptr(fd), "stdin")
	var failed error
	for ; data != nil; data, err = a.wire.readData() {
		if failed == nil {
			_, failed = file.Write(data)
		}
	}
	if err == nil && failed == nil {
		_, failed = file.Seek(0, io.SeekStart)
	}
	if err != nil || failed != nil {
		file.Close()
	}
	if failed != nil && err == nil {
		return nil, faulty(faultDisk, "standard input: %v", failed)
	}
	return file, err
}

// running is a command between its start and the end of all that it started.
type running struct {
	pid            int
	stdout, stderr *drain
	over           chan struct{}
	status         syscall.WaitStatus
	ended          bool
	cpu            time.Duration
	limit          sandbox.Class
	memory         int64
	// wasFull: the file system has been full since before the command began, which is no limit that it met first.
	wasFull bool
}

// met notes the first limit that was met.
func (r *running) met(limit sandbox.Class) {
	r.limit = cmp.Or(r.limit, limit)
}

func (a *agent) run(r request, stdin *os.File) (sandbox.Result, error) {
	began := time.Now()
	c := &running{over: make(chan struct{}, 2), wasFull: a.full()}
	if refused := a.start(c, r, stdin); refused != nil {
		refused.Wall = time.Since(began)
		return *refused, nil
	}
	gone := a.await(c, r)
	a.watch(c)
	a.finish(c)
	c.stdout.wait()
	c.stderr.wait()
	if gone != nil {
		return sandbox.Result{}, gone
	}
	if a.full() {
		c.met(sandbox.Disk)
	}
	result := sandbox.Result{
		Stdout: c.stdout.kept, StdoutCut: c.stdout.cut, Stderr: c.stderr.kept, StderrCut: c.stderr.cut,
		Limit: c.limit, Wall: time.Since(began), CPU: c.cpu, Memory: c.memory,
	}
	describe(&result, c.status)
	return result, nil
}

// describe says how the command's own process ended.
func describe(result *sandbox.Result, status syscall.WaitStatus) {
	if !status.Signaled() {
		result.Exit = status.ExitStatus()
		return
	}
	result.Exit = 128 + int(status.Signal())
	result.Signal = unix.SignalName(status.Signal())
	switch {
	case result.Limit != "":
	case status.Signal() == syscall.SIGXFSZ:
		result.Limit = sandbox.Disk
	case status.Signal() == syscall.SIGXCPU:
		result.Limit = sandbox.Timeout
	}
}

// await returns once the command's own process has ended, or all were killed for a limit. Its error
// is that the client is gone.
func (a *agent) await(c *running, r request) error {
	allowed := a.setup.Limits.Time
	if r.Time > 0 && r.Time < allowed {
		allowed = r.Time
	}
	timer, sample := time.NewTimer(allowed), time.NewTicker(sampleEvery)
	defer timer.Stop()
	defer sample.Stop()
	for !c.ended {
		select {
		case <-a.children:
			a.reap(c, syscall.WNOHANG)
		case <-timer.C:
			c.met(sandbox.Timeout)
			return nil
		case <-c.over:
			c.met(sandbox.Output)
			return nil
		case <-sample.C:
			full := a.full()
			if full && !c.wasFull {
				c.met(sandbox.Disk)
			}
			c.wasFull = full && c.wasFull
			if a.watch(c) {
				return nil
			}
		case seq := <-a.cancels:
			if seq == r.Seq {
				return nil
			}
		case err := <-a.gone:
			return err
		}
	}
	return nil
}

// finish ends what is left of a command and takes all of it.
func (a *agent) finish(c *running) {
	for {
		a.killAll()
		if !a.reap(c, 0) {
			return
		}
	}
}

// reap takes children that ended: all there are, or with no options at least one. It reports
// whether there are others.
func (a *agent) reap(c *running, options int) bool {
	for {
		var status syscall.WaitStatus
		var used syscall.Rusage
		pid, err := syscall.Wait4(-1, &status, options|unix.WALL, &used)
		switch {
		case err == syscall.EINTR:
			continue
		case err != nil:
			return false
		case pid == 0:
			return true
		}
		c.cpu += time.Duration(used.Utime.Nano() + used.Stime.Nano())
		if pid == c.pid {
			c.status, c.ended = status, true
		}
		if options == 0 {
			return true
		}
	}
}

// start begins a command. What it returns is the result of one that did not begin, as a shell gives it.
func (a *agent) start(c *running, r request, stdin *os.File) *sandbox.Result {
	argv := make([]string, len(r.Argv))
	for i, arg := range r.Argv {
		argv[i] = string(arg)
	}
	env := a.environment(r.Env)
	dir := cmp.Or(a.place(string(r.Path)), a.setup.Places.Work)
	if info, err := os.Stat(dir); err != nil || !info.IsDir() {
		return notBegun(126, "", "the directory %s is not there: %v", r.Path, err)
	}
	program, err := lookPath(argv[0], dir, env)
	if err != nil {
		return notBegun(exitOf(err), "", "%s: %v", argv[0], err)
	}
	var outs [2]int
	drains := [2]*drain{}
	for i := range drains {
		drains[i], outs[i], err = newDrain(a.setup.Limits.Output, c.over)
		if err != nil {
			return notBegun(126, "", "its output: %v", err)
		}
		defer syscall.Close(outs[i])
	}
	c.stdout, c.stderr = drains[0], drains[1]
	a.expendable(func() {
		c.pid, err = syscall.ForkExec(program, argv, &syscall.ProcAttr{
			Dir: dir, Env: env,
			Files: []uintptr{stdin.Fd(), uintptr(outs[0]), uintptr(outs[1])},
			Sys:   &syscall.SysProcAttr{Setsid: true},
		})
	})
	if err == nil && a.setup.NoCgroup {
		// The agent itself could not live with it: the stacks of its threads count, used or not.
		memory := uint64(a.setup.Limits.Memory)
		_ = unix.Prlimit(c.pid, unix.RLIMIT_DATA, &unix.Rlimit{Cur: memory, Max: memory}, nil)
	}
	if err != nil {
		c.stdout.abandon()
		c.stderr.abandon()
		return notBegun(exitOf(err), limitOf(err), "%s: %v", argv[0], err)
	}
	go c.stdout.read()
	go c.stderr.read()
	return nil
}

// expendable does something with the marks that what it starts inherits: the first to go when
// memory ends, and a limit of processor time for each process.
func (a *agent) expendable(start func()) {
	if a.oomScore != nil {
		_, _ = a.oomScore.WriteAt([]byte("1000"), 0)
		defer func() { _, _ = a.oomScore.WriteAt([]byte("0"), 0) }()
	}
	var was unix.Rlimit
	if unix.Getrlimit(unix.RLIMIT_CPU, &was) == nil {
		seconds := uint64(a.setup.Limits.Time/time.Second) + 1
		limited := was
		limited.Cur = min(was.Max, seconds*uint64(a.setup.Limits.CPUs+1))
		_ = unix.Setrlimit(unix.RLIMIT_CPU, &limited)
		defer func() { _ = unix.Setrlimit(unix.RLIMIT_CPU, &was) }()
	}
	start()
}

// environment is that of the box, with what the command adds.
func (a *agent) environment(added [][]byte) []string {
	env := make([]string, 0, len(a.setup.Env)+len(added))
	own := map[string]bool{}
	for _, entry := range added {
		name, _, _ := bytes.Cut(entry, []byte("="))
		own[string(name)] = true
		env = append(env, string(entry))
	}
	for name, value := range a.setup.Env {
		if !own[name] {
			env = append(env, name+"="+value)
		}
	}
	return env
}

// lookPath finds a program as a shell would in that directory with that environment.
func lookPath(name, dir string, env []string) (string, error) {
	if strings.Contains(name, "/") {
		return name, nil
	}
	search := ""
	for _, entry := range env {
		if value, ok := strings.CutPrefix(entry, "PATH="); ok {
			search = value
		}
	}
	found := error(syscall.ENOENT)
	for where := range strings.SplitSeq(search, ":") {
		where = cmp.Or(where, ".")
		if !strings.HasPrefix(where, "/") {
			where = dir + "/" + where
		}
		candidate := where + "/" + name
		info, err := os.Stat(candidate)
		if err != nil || info.IsDir() {
			continue
		}
		if unix.Access(candidate, unix.X_OK) == nil {
			return candidate, nil
		}
		found = syscall.EACCES
	}
	return "", found
}
