package runsc

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/agent"
	"github.com/headway-rl/headway/env/sandbox/host"
)

// Driver makes boxes with gVisor. It is safe for concurrent use.
type Driver struct {
	options Options
	places  *host.State
	groups  *host.Groups
	notes   string // what gVisor keeps of its containers
	mu      sync.Mutex
	open    map[sandbox.ID]*agent.Box // nil while one is made
}

var _ sandbox.Driver = (*Driver)(nil)

// New makes a driver. Whether gVisor is there is said by Check and Create.
func New(o Options) (*Driver, error) {
	o.Platform = cmp.Or(o.Platform, "systrap")
	if o.Dir == "" {
		o.Dir = host.DefaultDir()
	}
	places, err := host.OpenState(o.Dir, "runsc")
	if err != nil {
		return nil, err
	}
	notes := filepath.Join(o.Dir, "runsc-state")
	if err := os.MkdirAll(notes, 0o700); err != nil {
		return nil, fmt.Errorf("the directory of boxes: %w", err)
	}
	return &Driver{options: o, places: places, groups: host.FindGroups(), notes: notes, open: map[sandbox.ID]*agent.Box{}}, nil
}

// Name is "runsc".
func (d *Driver) Name() string { return "runsc" }

// Create starts a box.
func (d *Driver) Create(ctx context.Context, id sandbox.ID, spec sandbox.Spec) (sandbox.Box, error) {
	if err := errors.Join(id.Check("create"), spec.Check(id)); err != nil {
		return nil, err
	}
	if err := ctx.Err(); err != nil {
		return nil, sandbox.Fail(sandbox.StartTimeout, "create", id, "%w", context.Cause(ctx))
	}
	spec.Limits = spec.Limits.WithDefaults()
	program, err := program(d.options.Program)
	if err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "%w", err)
	}
	entry, err := d.reserve(id)
	if err != nil {
		return nil, err
	}
	box, err := d.start(ctx, entry, spec, program)
	if err != nil {
		return nil, err // nothing is left of it
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, reserved := d.open[id]; reserved { // it may have ended already
		d.open[id] = box
	}
	return box, nil
}

// reserve takes a name, of which there is one on this host.
func (d *Driver) reserve(id sandbox.ID) (*host.Entry, error) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, taken := d.open[id]; taken {
		return nil, sandbox.Fail(sandbox.Refused, "create", id, "there is a box of this name: destroy it or name another")
	}
	entry, err := d.places.Make(id)
	if err == nil {
		d.open[id] = nil
	}
	return entry, err
}

// release removes a box's directory and gives its name back, in this order.
func (d *Driver) release(entry *host.Entry) error {
	err := entry.Remove()
	d.forget(entry.ID)
	return err
}

// forget has a box be one that only its directory knows of.
func (d *Driver) forget(id sandbox.ID) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
}

// bundleDir is where a box's bundle lies, by whose name its processes are known: it has the box's
// token in it, so that they are no other's of the same name.
func bundleDir(entry *host.Entry) string { return filepath.Join(entry.Path(), entry.Token) }

// start makes the box's bundle and group, and gVisor in it.
func (d *Driver) start(ctx context.Context, entry *host.Entry, spec sandbox.Spec, program string) (*agent.Box, error) {
	id := entry.ID
	fail := func(class sandbox.Class, err error) (*agent.Box, error) {
		return nil, sandbox.Fail(class, "create", id, "%w", errors.Join(err, d.release(entry)))
	}
	self, err := os.Executable()
	if err != nil {
		return fail(sandbox.StartFailed, err)
	}
	if err := writeBundle(bundleDir(entry), spec, self); err != nil {
		return fail(sandbox.Refused, err)
	}
	group, err := d.groups.Make(entry.Name(), groupLimits(spec.Limits), 0)
	if err != nil {
		return fail(sandbox.StartFailed, fmt.Errorf("its control group: %w", err))
	}
	command := exec.Command(program, d.arguments(entry, spec)...)
	command.Env = []string{"PATH=" + boxPath, "GOMAXPROCS=2"}
	command.Dir = "/"
	// A signal from the terminal is for headway, which ends its boxes itself.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := group.Enter(command); err != nil {
		return fail(sandbox.StartFailed, fmt.Errorf("its control group: %w", errors.Join(err, group.Remove())))
	}
	return agent.Start(ctx, agent.Options{
		ID: id, Command: command, Setup: setup(spec), Meter: meter{group}, Patience: closePatience,
		Started: func(pid int, _ agent.Held) error { return entry.Record(pid) },
		Kill:    func() { d.kill(entry) },
		Ended: func() error {
			err := d.sweep(context.Background(), entry)
			if err == nil { // by its directory it is found again
				return d.release(entry)
			}
			d.forget(id)
			return err
		},
	})
}

// What gVisor takes itself, beside what a box's programs do: its kernel, what reads files for it
// and their threads, and a stub for each of the box's threads. These are bounds against a defect,
// far from what is used; the box's own limits are watched inside, where they can be told apart.
const (
	kernelMemory  = 256 << 20
	kernelThreads = 256
	stubsEach     = 4
)

func groupLimits(l sandbox.Limits) sandbox.Limits {
	l.Memory += kernelMemory
	l.Processes = l.Processes*stubsEach + kernelThreads
	return l
}

// meter is what the group knows better than the agent: processor time, gVisor's own included, and
// that the host's kernel ended the box for its memory.
type meter struct{ group *host.Group }

func (m meter) Begin() { m.group.Begin() }

func (m meter) End() agent.Usage {
	used := m.group.End()
	return agent.Usage{OutOfMemory: used.OutOfMemory, CPU: used.CPU}
}

// closePatience is how long a box has to end by itself: gVisor takes its container down then, and
// leaves nothing to look for.
const closePatience = 2 * time.Second

// boxPath is PATH in a box.
const boxPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (d *Driver) arguments(entry *host.Entry, spec sandbox.Spec) []string {
	network := "none"
	if spec.Network {
		network = "host"
	}
	return []string{
		"--root=" + d.notes, "--platform=" + d.options.Platform, "--network=" + network,
		"--rootless=" + strconv.FormatBool(os.Geteuid() != 0), "--ignore-cgroups",
		// What is mounted is read alone, and nothing may be written over it, in memory or elsewhere.
		"--overlay2=none", "--file-access-mounts=exclusive", "--host-uds=none", "--host-fifo=none",
		"--gofer-network-namespace=new", "--host-settings=ignore", "--log=/dev/null",
		"run", "-bundle=" + bundleDir(entry), entry.Token,
	}
}

// nobody is who programs of a box run as that root has made: what is mounted is read by gVisor as
// root, so that it is the box's own kernel that keeps them from what only root may read.
const nobody = 65534

func setup(spec sandbox.Spec) agent.Setup {
	env := map[string]string{"PATH": boxPath, "HOME": homeDir, "LANG": "C.UTF-8"}
	maps.Copy(env, spec.Env)
	user := 0
	if os.Geteuid() == 0 {
		user = nobody
	}
	return agent.Setup{
		User: user, Group: user,
		Places: agent.Places{Work: sandbox.Work, Tmp: "/tmp", Home: homeDir, Shm: "/dev/shm", More: moreDirs},
		Limits: spec.Limits, Env: env, Mount: true, Confine: true, OwnKernel: true, OwnNetwork: !spec.Network,
	}
}

// List names the boxes of an owner that have a directory: it is made before anything else and
// removed last. It removes boxes of other owners where the process that made them has ended.
func (d *Driver) List(ctx context.Context, owner string) ([]sandbox.ID, error) {
	d.groups.Sweep()
	d.places.Sweep(owner, func(id sandbox.ID) error { return d.Destroy(ctx, id) })
	return d.places.List(owner)
}

// Destroy ends a box, also one that another process made.
func (d *Driver) Destroy(ctx context.Context, id sandbox.ID) error {
	if err := id.Check("destroy"); err != nil {
		return err
	}
	d.mu.Lock()
	box, own := d.open[id]
	d.mu.Unlock()
	if own && box != nil {
		return box.Close(ctx)
	}
	if own {
		return sandbox.Fail(sandbox.Lost, "destroy", id, "it is being made or ended in this process: try again")
	}
	entry := d.places.Find(id)
	if entry == nil {
		return nil
	}
	err := d.sweep(ctx, entry)
	if err == nil {
		err = entry.Remove()
	}
	if err != nil {
		return sandbox.Fail(sandbox.Lost, "destroy", id, "%w", err)
	}
	return nil
}

// Check says whether gVisor is here, and what a box keeps apart.
func (d *Driver) Check(ctx context.Context) (sandbox.Boundary, error) {
	path, err := program(d.options.Program)
	if err != nil {
		return sandbox.Boundary{}, sandbox.Fail(sandbox.BackendDown, "check", "", "%w", err)
	}
	if said, err := exec.CommandContext(ctx, path, "--version").CombinedOutput(); err != nil {
		return sandbox.Boundary{}, sandbox.Fail(sandbox.BackendDown, "check", "", "%s --version: %w: %.200s", path, err, said)
	}
	if os.Geteuid() != 0 {
		if err := userNamespaces(); err != nil {
			return sandbox.Boundary{}, sandbox.Fail(sandbox.BackendDown, "check", "", "%w", err)
		}
	}
	b := sandbox.Boundary{
		Files: true, Processes: true, Network: true, Kernel: true,
		Memory: d.groups.Memory(), CPU: d.groups.CPU(), ProcessCount: true, Disk: true, FileCount: true,
	}
	switch {
	case !b.Memory:
		b.Why = "Memory is watched from inside alone, 20 times a second, and nothing bounds what gVisor itself takes. " + d.groups.Why()
	case !b.CPU:
		b.Why = d.groups.Why()
	}
	return b, nil
}

// userNamespaces says what keeps a user who is not root from starting gVisor.
func userNamespaces() error {
	for _, setting := range []struct{ path, refuses, command string }{
		{"/proc/sys/user/max_user_namespaces", "0", "sysctl user.max_user_namespaces=10000"},
		{"/proc/sys/kernel/unprivileged_userns_clone", "0", "sysctl kernel.unprivileged_userns_clone=1"},
		{"/proc/sys/kernel/apparmor_restrict_unprivileged_userns", "1", "sysctl kernel.apparmor_restrict_unprivileged_userns=0, or a profile of AppArmor for runsc"},
	} {
		text, err := os.ReadFile(setting.path)
		if err == nil && len(text) > 0 && string(text[:len(text)-1]) == setting.refuses {
			return fmt.Errorf("without root gVisor needs user namespaces, and %s is %s: as root, %s; or run headway as root", setting.path, setting.refuses, setting.command)
		}
	}
	return nil
}
