// Package process runs commands as plain processes of the user's. It is no boundary: a program in such a box can do
// everything that the user can who runs headway. It is there for programs that one's own tests made, and for hosts that
// have nothing else.
//
// A box has a directory and a session of its own, limits for each process, and a control group where one can
// be had. No process of it outlives it, unless it means to.
package process

import (
	"context"
	"errors"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/agent"
	"github.com/headway-rl/headway/env/sandbox/host"
)

// patience is how long a box that is closed may take to end its processes by itself, from within,
// where its first process knows all of them.
const patience = 3 * time.Second

// Driver makes boxes that are plain processes.
type Driver struct {
	state  *host.State
	groups *host.Groups
}

var _ sandbox.Driver = (*Driver)(nil)

// New returns a driver whose boxes are below a directory; empty is host.DefaultDir.
func New(dir string) (*Driver, error) {
	state, err := host.OpenState(dir, "process")
	if err != nil {
		return nil, err
	}
	return &Driver{state, host.FindGroups()}, nil
}

// Name as configs have it.
func (d *Driver) Name() string { return "process" }

// Check says what holds: limits at most.
func (d *Driver) Check(context.Context) (sandbox.Boundary, error) {
	return sandbox.Boundary{
		Why: "plain processes are no boundary: a program can read and write all that the user can, reach the network, signal the user's other processes and, if it means to, outlive its box; run only what you wrote yourself, or use bwrap or runsc. " + d.groups.Why(),
	}, nil
}

// Create makes a directory and starts the box's first process.
func (d *Driver) Create(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := errors.Join(id.Check("create"), spec.Check(id)); err != nil {
		return nil, err
	}
	if spec.Root != "" || spec.Image != "" || len(spec.Mounts) > 0 {
		return nil, sandbox.Fail(sandbox.Refused, "create", id, "plain processes see the host's own files: root, image and mounts need bwrap, runsc or a backend that has images")
	}
	entry, err := d.state.Make(id)
	if err != nil {
		return nil, err
	}
	spec.Limits = spec.Limits.WithDefaults()
	files := filepath.Join(entry.Path(), entry.Token)
	places := agent.Places{Work: filepath.Join(files, "work"), Tmp: filepath.Join(files, "tmp"), Home: home(entry), Named: true}
	for _, place := range []string{places.Work, places.Tmp, places.Home} {
		if err := os.MkdirAll(place, 0o755); err != nil {
			return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "%w", errors.Join(err, entry.Remove()))
		}
	}
	group, err := d.groups.Make(entry.Name(), spec.Limits, agent.Reserve)
	if err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "its control group: %w", errors.Join(err, entry.Remove()))
	}
	o := options(entry, spec, places, group)
	// This program's file, also where it was replaced since it started, by a name that makes it the agent.
	err = os.Symlink("/proc/"+strconv.Itoa(os.Getpid())+"/exe", o.Command.Path)
	if err == nil {
		err = group.Enter(o.Command)
	}
	if err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "%w", errors.Join(err, group.Remove(), entry.Remove()))
	}
	return started(agent.Start(ctx, o))
}

// started keeps a nil box from becoming an interface that is not.
func started(box *agent.Box, err error) (sandbox.Box, error) {
	if err != nil {
		return nil, err
	}
	return box, nil
}

func options(entry *host.Entry, spec sandbox.Spec, places agent.Places, group *host.Group) agent.Options {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8",
		"TMPDIR": places.Tmp,
	}
	maps.Copy(env, spec.Env)
	env["HOME"] = places.Home
	command := &exec.Cmd{
		Path: filepath.Join(entry.Path(), agent.Name),
		Args: []string{agent.Name}, Dir: "/",
		Env:         append(agent.Environment(), "HOME="+places.Home),
		SysProcAttr: &syscall.SysProcAttr{Setsid: true},
	}
	return agent.Options{
		ID: entry.ID, Command: command,
		Setup: agent.Setup{Places: places, Limits: spec.Limits, Env: env, NoCgroup: !group.Bounds()},
		Meter: group,
		Started: func(pid int, _ agent.Held) error {
			return entry.Record(pid)
		},
		Patience: patience,
		Kill:     func() { end(entry) },
		Ended: func() error {
			if command.ProcessState == nil || !command.ProcessState.Success() {
				group.Kill()
				end(entry)
			}
			return remove(entry, group)
		},
	}
}

// remove removes a box's directory once its group is gone: by that it is found again.
func remove(entry *host.Entry, group *host.Group) error {
	if err := group.Remove(); err != nil {
		return err
	}
	return entry.Remove()
}

// home is HOME of a box, by which its processes are known from outside.
func home(entry *host.Entry) string { return filepath.Join(entry.Path(), entry.Token, "home") }

// List names the boxes of an owner that are there. It removes boxes of other owners where the process that made them
// has ended.
func (d *Driver) List(ctx context.Context, owner string) ([]sandbox.ID, error) {
	d.groups.Sweep()
	d.state.Sweep(owner, func(id sandbox.ID) error { return d.Destroy(ctx, id) })
	return d.state.List(owner)
}

// Destroy ends a box by its name.
func (d *Driver) Destroy(_ context.Context, id sandbox.ID) error {
	if err := id.Check("destroy"); err != nil {
		return err
	}
	entry := d.state.Find(id)
	if entry == nil {
		return nil
	}
	group := d.groups.Open(entry.Name())
	group.Kill()
	end(entry)
	if err := remove(entry, group); err != nil {
		return sandbox.Fail(sandbox.Lost, "destroy", id, "%w", err)
	}
	return nil
}

// end kills a box's first process, which hides its environment from its own user, and those that
// carry the box's mark, until there are none. It gives up on one that the kernel does not let go of.
func end(entry *host.Entry) {
	if pid, alive := entry.Alive(); alive {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
	for range 200 {
		pids := marked(home(entry))
		if len(pids) == 0 {
			return
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		time.Sleep(time.Millisecond)
	}
}
