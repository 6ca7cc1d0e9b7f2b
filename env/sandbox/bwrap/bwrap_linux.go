// Package bwrap makes boxes of the host kernel's name spaces, by bubblewrap. They have files,
// processes and network of their own, no capabilities, a filter of system calls, and limits by a
// control group.
//
// As root the name spaces are made with root's rights. The box's first process then gives those up
// for those of a user who owns nothing. An ordinary user's box has a user name space. Neither keeps a
// program from a defect of the kernel: that takes env/sandbox/runsc.
package bwrap

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"hash/fnv"
	"maps"
	"os"
	"os/exec"
	"strings"
	"sync"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/agent"
	"github.com/headway-rl/headway/env/sandbox/host"
)

const (
	// install is what to do where bubblewrap is missing.
	install = "install bubblewrap: apt-get install bubblewrap, dnf install bubblewrap or pacman -S bubblewrap"
	// nobody is a group that owns nothing on a host. Boxes made by root are in it.
	nobody = 65534
	// insideUser is who a box of an ordinary user runs as, by its own view.
	insideUser = 1000
)

// Driver makes boxes with bubblewrap.
type Driver struct {
	state  *host.State
	groups *host.Groups
	bwrap  string
	// root: this process may mount. The boxes need no user name space.
	root bool

	ready   sync.Mutex
	program string // the agent's file, empty until it was looked for
	etc     string // the directory of the files of /etc that are made
}

var _ sandbox.Driver = (*Driver)(nil)

// New returns a driver that knows its boxes by a directory; empty is host.DefaultDir. A bubblewrap
// that is missing is said by Check and Create.
func New(dir string) (*Driver, error) {
	state, err := host.OpenState(dir, "bwrap")
	if err != nil {
		return nil, err
	}
	d := &Driver{state: state, groups: host.FindGroups(), root: mayMount()}
	d.bwrap, _ = exec.LookPath("bwrap")
	return d, nil
}

// mayMount reports whether this process is root and has CAP_SYS_ADMIN: in a container it may not.
func mayMount() bool {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	return os.Geteuid() == 0 && unix.Capget(&header, &has[0]) == nil && has[0].Effective&(1<<unix.CAP_SYS_ADMIN) != 0
}

// Name as configs have it.
func (d *Driver) Name() string { return "bwrap" }

// Check has bubblewrap make the name spaces of a box around a program that ends at once.
func (d *Driver) Check(ctx context.Context) (sandbox.Boundary, error) {
	if d.bwrap == "" {
		return sandbox.Boundary{}, fmt.Errorf("bwrap is not in PATH: %s", install)
	}
	if err := d.prepare(); err != nil {
		return sandbox.Boundary{}, err
	}
	mark := rand.Text()
	args, err := d.arguments("check", "check-"+mark, "", sandbox.Spec{})
	if err != nil {
		return sandbox.Boundary{}, err
	}
	// The agent ends well where its client's end of the pipe is closed from the start.
	command := exec.CommandContext(ctx, d.bwrap, args[1:]...)
	command.Env = agent.Environment()
	in, err := command.StdinPipe()
	if err != nil {
		return sandbox.Boundary{}, err
	}
	said := &strings.Builder{}
	out, err := command.StdoutPipe()
	if err != nil {
		return sandbox.Boundary{}, err
	}
	command.Stderr = said
	err = command.Start()
	if err == nil {
		in.Close()
		err = command.Wait()
		out.Close()
	}
	if err != nil {
		err = errors.Join(err, endMarked("check-"+mark))
		return sandbox.Boundary{}, fmt.Errorf("bwrap makes no box: %w: %s; %s", err, strings.TrimSpace(said.String()), d.advice())
	}
	return d.boundary(), nil
}

// advice is what usually keeps bubblewrap from making name spaces.
func (d *Driver) advice() string {
	var why []string
	for _, setting := range []struct{ file, bad, then string }{
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "an AppArmor profile for bwrap that allows userns, or sysctl kernel.apparmor_restrict_unprivileged_userns=0"},
	} {
		if text, err := os.ReadFile(setting.file); err == nil && strings.TrimSpace(string(text)) == setting.bad {
			why = append(why, fmt.Sprintf("%s is %s: %s", setting.file, setting.bad, setting.then))
		}
	}
	if len(why) == 0 {
		return "name spaces have to be allowed to this user; in a container that takes --privileged, or --cap-add SYS_ADMIN and a seccomp profile that allows unshare and mount"
	}
	return strings.Join(why, "; ")
}

func (d *Driver) boundary() sandbox.Boundary {
	why := "The kernel is the host's: a defect of it that a program reaches is one of the boundary; runsc has a kernel of its own. "
	return sandbox.Boundary{
		Files: true, Processes: true, Network: true,
		Memory: d.groups.Memory(), CPU: d.groups.CPU(), ProcessCount: d.groups.Processes(), Disk: true, FileCount: true,
		Why: strings.TrimSpace(why + d.groups.Why()),
	}
}

// Create makes a box.
func (d *Driver) Create(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := errors.Join(id.Check("create"), spec.Check(id)); err != nil {
		return nil, err
	}
	if spec.Image != "" {
		return nil, sandbox.Fail(sandbox.Refused, "create", id, "bwrap has no images: unpack %q into a directory and name that as root", spec.Image)
	}
	if d.bwrap == "" {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "bwrap is not in PATH: %s", install)
	}
	if err := d.prepare(); err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "%w", err)
	}
	entry, err := d.state.Make(id)
	if err != nil {
		return nil, err
	}
	passwd, err := d.writeUser(entry)
	if err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "%w", errors.Join(err, entry.Remove()))
	}
	args, err := d.arguments(id, string(entry.Name()), passwd, spec)
	if err != nil {
		return nil, errors.Join(err, entry.Remove())
	}
	spec.Limits = spec.Limits.WithDefaults()
	group, err := d.groups.Make(entry.Name(), spec.Limits, agent.Reserve+1) // one is bubblewrap's own
	if err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "its control group: %w", errors.Join(err, entry.Remove()))
	}
	o := d.options(entry, spec, args, group)
	if err := group.Enter(o.Command); err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "its control group: %w", errors.Join(err, group.Remove(), entry.Remove()))
	}
	box, err := agent.Start(ctx, o)
	if err != nil {
		return nil, err
	}
	return box, nil
}

func (d *Driver) options(entry *host.Entry, spec sandbox.Spec, args []string, group *host.Group) agent.Options {
	env := map[string]string{
		"PATH": "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "LANG": "C.UTF-8", "HOME": homeDir,
	}
	maps.Copy(env, spec.Env)
	setup := agent.Setup{
		Places: agent.Places{Work: sandbox.Work, Tmp: "/tmp", Home: homeDir, Shm: "/dev/shm", More: moreDirs},
		Limits: spec.Limits, Env: env, Mount: true, Hide: hidden, Confine: true, NoCgroup: !group.Bounds(), OwnNetwork: !spec.Network,
	}
	if d.root {
		setup.User, setup.Group = ownUser(entry.Token), nobody
	}
	first := &firstProcess{}
	return agent.Options{
		ID: entry.ID,
		Command: &exec.Cmd{
			Path: d.bwrap, Args: args, Dir: "/", Env: agent.Environment(),
			SysProcAttr: &syscall.SysProcAttr{Setsid: true},
		},
		Setup: setup,
		Meter: group,
		Started: func(pid int, held agent.Held) error {
			if !held.First || held.Caps != 0 {
				return fmt.Errorf("the box is not as it was asked for: first process %v, capabilities %#x", held.First, held.Caps)
			}
			if !held.Seccomp {
				return errors.New("the kernel takes no filter of system calls (CONFIG_SECCOMP_FILTER)")
			}
			inside, err := first.find(pid)
			if err != nil {
				return err
			}
			return entry.Record(inside)
		},
		Kill:  func() { kill(entry, group, first) },
		Ended: func() error { return d.remove(entry, group, first) },
	}
}

// kill ends a box by its first process, with which all others end. One that has none yet is killed by
// what holds it.
func kill(entry *host.Entry, group *host.Group, first *firstProcess) {
	if first.kill() {
		return
	}
	group.Kill()
	for _, pid := range marked(string(entry.Name())) {
		_ = unix.Kill(pid, unix.SIGKILL)
	}
}

// remove ends what there may be of a box and removes what was made for it. What is not known by its
// first process is ended by its group; where that holds nothing, by its mark.
func (d *Driver) remove(entry *host.Entry, group *host.Group, first *firstProcess) error {
	kill(entry, group, first)
	group.Kill()
	var left error
	if !first.wait() {
		left = endMarked(string(entry.Name()))
	}
	if err := errors.Join(left, group.Remove()); err != nil {
		return err // by its directory it is found again
	}
	return entry.Remove()
}

// ownUser is a user for one box alone: the kernel counts some of what a program takes by its user
// (processes, signals that wait, watches of files, pages of pipes), and bounds it for all of that user.
func ownUser(token string) int {
	hash := fnv.New32a()
	_, _ = hash.Write([]byte(token))
	return 1<<30 + int(hash.Sum32()>>4) // far from those that hosts and name spaces give out
}

// List names the boxes of an owner that are there. It removes boxes of other owners where the process
// that made them has ended.
func (d *Driver) List(ctx context.Context, owner string) ([]sandbox.ID, error) {
	d.groups.Sweep()
	d.state.Sweep(owner, func(id sandbox.ID) error { return d.Destroy(ctx, id) })
	return d.state.List(owner)
}

// Destroy ends a box by its name. Its files lie in its own memory and go with its processes.
func (d *Driver) Destroy(_ context.Context, id sandbox.ID) error {
	if err := id.Check("destroy"); err != nil {
		return err
	}
	entry := d.state.Find(id)
	if entry == nil {
		return nil
	}
	first, alive := recorded(entry)
	if !alive {
		first = &firstProcess{}
	}
	if err := d.remove(entry, d.groups.Open(entry.Name()), first); err != nil {
		return sandbox.Fail(sandbox.Lost, "destroy", id, "%w", err)
	}
	return nil
}

// recorded is a box's first process as it was noted, held before it is looked at again, so that it
// is the same one that is killed.
func recorded(entry *host.Entry) (*firstProcess, bool) {
	pid, alive := entry.Alive()
	if !alive {
		return nil, false
	}
	first := &firstProcess{}
	if first.hold(pid) != nil {
		return nil, false
	}
	if _, alive = entry.Alive(); !alive {
		first.release()
	}
	return first, alive
}

// endTime bounds how long the kernel is waited for to end a box's processes.
const endTime = 10 * time.Second
