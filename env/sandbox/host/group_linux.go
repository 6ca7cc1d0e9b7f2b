package host

import (
	"cmp"
	"errors"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/env/sandbox/agent"
)

// Group is a box's control group, or several in as many hierarchies.
type Group struct {
	memory, pids, cpu string
	unified           bool
	entrance          *os.File // of a group that a process is started in, until it is removed

	mu      sync.Mutex
	removed bool
	before  counts // as they were when the command began
	last    counts // as they were when the group was removed
}

var _ agent.Meter = (*Group)(nil)

// counts are what a group has counted since it was made, and the most memory since it was asked to forget.
type counts struct {
	kills, refusals int64
	memory          int64
	cpu             time.Duration
}

// dirs are the group's directories, each once.
func (g *Group) dirs() []string {
	var dirs []string
	for _, dir := range []string{g.memory, g.pids, g.cpu} {
		if dir != "" && (len(dirs) == 0 || dirs[len(dirs)-1] != dir) {
			dirs = append(dirs, dir)
		}
	}
	return dirs
}

// Bounds reports whether memory and processes are bounded.
func (g *Group) Bounds() bool { return g.memory != "" && g.pids != "" }

// enterScript writes a shell's own number, as 0, into each file it is given before "--" and then
// becomes the program after it. For a process that moves itself the kernel has nothing to wait for;
// to move another it waits until all its processors have passed by, which takes 10 ms and more.
const enterScript = `while [ "$1" != -- ]; do echo 0 > "$1" || exit 1; shift; done; shift; exec "$@"`

// Enter has a command that was not started yet be in the group before its program begins, with all
// that it ever starts. The program's path becomes its argv[0] where a shell goes before it.
func (g *Group) Enter(command *exec.Cmd) error {
	dirs := g.dirs()
	if len(dirs) == 0 {
		return nil
	}
	file := "tasks"
	if g.unified {
		if startsInGroups() {
			return g.enterUnified(command)
		}
		file = "cgroup.procs"
	}
	args := []string{"sh", "-c", enterScript, "sh"}
	for _, dir := range dirs {
		args = append(args, filepath.Join(dir, file))
	}
	args = append(args, "--", command.Path)
	command.Path, command.Args = "/bin/sh", append(args, command.Args[1:]...)
	return nil
}

func (g *Group) enterUnified(command *exec.Cmd) error {
	dir, err := os.Open(g.memory)
	if err != nil {
		return err
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.entrance = dir
	command.SysProcAttr = cmp.Or(command.SysProcAttr, &syscall.SysProcAttr{})
	command.SysProcAttr.UseCgroupFD, command.SysProcAttr.CgroupFD = true, int(dir.Fd())
	return nil
}

// startsInGroups reports whether this process may call clone3, which some containers forbid: it
// refuses arguments that are none, and does not say that it is not there.
var startsInGroups = sync.OnceValue(func() bool {
	_, _, errno := unix.RawSyscall(unix.SYS_CLONE3, 0, 0, 0)
	return errno == unix.EINVAL || errno == unix.EFAULT
})

// Begin forgets what was before.
func (g *Group) Begin() {
	if g.memory != "" {
		peak := "memory.max_usage_in_bytes"
		if g.unified {
			peak = "memory.peak" // kernels before 6.12 cannot forget it: it is then the most there ever was
		}
		_ = writeExisting(filepath.Join(g.memory, peak), "0")
	}
	g.mu.Lock()
	defer g.mu.Unlock()
	g.before = g.read()
}

// End says what has been since Begin, also of a group that was removed meanwhile.
func (g *Group) End() agent.Usage {
	g.mu.Lock()
	defer g.mu.Unlock()
	now := g.last
	if !g.removed {
		now = g.read()
	}
	return agent.Usage{
		OutOfMemory: now.kills > g.before.kills,
		Processes:   now.refusals > g.before.refusals,
		Memory:      now.memory,
		CPU:         max(0, now.cpu-g.before.cpu),
	}
}

func (g *Group) read() counts {
	var c counts
	if g.unified {
		c.kills = field(filepath.Join(g.memory, "memory.events"), "oom_kill")
		c.memory = field(filepath.Join(g.memory, "memory.peak"), "")
		c.cpu = time.Duration(field(filepath.Join(g.cpu, "cpu.stat"), "usage_usec")) * time.Microsecond
	} else if g.memory != "" {
		c.kills = field(filepath.Join(g.memory, "memory.oom_control"), "oom_kill")
		c.memory = field(filepath.Join(g.memory, "memory.max_usage_in_bytes"), "")
	}
	if g.pids != "" {
		c.refusals = field(filepath.Join(g.pids, "pids.events"), "max")
	}
	return c
}

// field is the number after a name in a file of names and numbers, or the file's only number.
func field(file, name string) int64 {
	text, _ := os.ReadFile(file)
	for line := range strings.Lines(string(text)) {
		key, value, ok := strings.Cut(strings.TrimSpace(line), " ")
		if name == "" {
			key, value, ok = "", key, true
		}
		if ok && key == name {
			n, _ := strconv.ParseInt(value, 10, 64)
			return n
		}
	}
	return 0
}

// giveUp bounds how long the kernel is waited for to let go of processes that were killed.
const giveUp = 10 * time.Second

// Kill ends all processes of the group.
func (g *Group) Kill() {
	dirs := g.dirs()
	if len(dirs) == 0 || g.unified && writeExisting(filepath.Join(dirs[0], "cgroup.kill"), "1") == nil {
		return
	}
	// One that forks while it is looked at is met the next time.
	for end := time.Now().Add(giveUp); time.Now().Before(end); time.Sleep(time.Millisecond) {
		text, _ := os.ReadFile(filepath.Join(dirs[0], "cgroup.procs"))
		pids := strings.Fields(string(text))
		if len(pids) == 0 {
			return
		}
		for _, field := range pids {
			if pid, err := strconv.Atoi(field); err == nil && pid > 1 {
				_ = syscall.Kill(pid, syscall.SIGKILL)
			}
		}
	}
}

// Remove removes the group. Its processes have ended or are about to.
func (g *Group) Remove() error {
	g.mu.Lock()
	defer g.mu.Unlock()
	if !g.removed {
		g.last, g.removed = g.read(), true
	}
	if g.entrance != nil {
		g.entrance.Close()
		g.entrance = nil
	}
	var failed error
	for _, dir := range g.dirs() {
		failed = errors.Join(failed, removeGroup(dir))
	}
	return failed
}

// removeGroup removes a directory once the kernel has let go of the last process in it.
func removeGroup(dir string) error {
	for end := time.Now().Add(giveUp); ; time.Sleep(time.Millisecond) {
		err := syscall.Rmdir(dir)
		switch {
		case err == nil, errors.Is(err, fs.ErrNotExist):
			return nil
		case !errors.Is(err, syscall.EBUSY) || time.Now().After(end):
			return &fs.PathError{Op: "rmdir", Path: dir, Err: err}
		}
	}
}
