package runsc

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"sync"
	"syscall"
	"time"

	"github.com/headway-rl/headway/sandbox"
	"github.com/headway-rl/headway/sandbox/agent"
	"github.com/headway-rl/headway/sandbox/host"
)

// Options of a driver.
type Options struct {
	// Program is gVisor's runsc; empty looks for it on the PATH and where `make sandboxes` puts it.
	Program string
	// Dir is where boxes lie, of all processes of this user that are to know each other's; empty is
	// host.DefaultDir.
	Dir string
	// Platform is how gVisor catches system calls: systrap (the default), kvm or ptrace.
	Platform string
}

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
	if o.Platform == "" {
		o.Platform = "systrap"
	}
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
	if err := d.reserve(id); err != nil {
		return nil, err
	}
	box, err := d.start(ctx, id, spec, program)
	if err != nil {
		d.release(id)
		return nil, err
	}
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, reserved := d.open[id]; reserved { // it may have ended already
		d.open[id] = box
	}
	return box, nil
}

// reserve takes a name, of which there is one on this host.
func (d *Driver) reserve(id sandbox.ID) error {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, taken := d.open[id]; taken {
		return sandbox.Fail(sandbox.Refused, "create", id, "there is a box of this name: destroy it or name another")
	}
	if _, err := d.places.Make(id); err != nil {
		return err
	}
	d.open[id] = nil
	return nil
}

// release removes a box's directory and gives its name back, in this order.
func (d *Driver) release(id sandbox.ID) error {
	err := agent.RemoveAll(d.places.Path(id))
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.open, id)
	return err
}

// start makes the box's bundle and group, and gVisor in it.
func (d *Driver) start(ctx context.Context, id sandbox.ID, spec sandbox.Spec, program string) (*agent.Box, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "%w", err)
	}
	if err := writeBundle(d.places.Path(id), spec, self); err != nil {
		return nil, sandbox.Fail(sandbox.Refused, "create", id, "%w", err)
	}
	group, err := d.groups.Make(id, groupLimits(spec.Limits), 0)
	if err != nil {
		return nil, sandbox.Fail(sandbox.StartFailed, "create", id, "its control group: %w", err)
	}
	command := entering(group.Entries(), append([]string{program}, d.arguments(id, spec)...))
	command.Env = []string{"PATH=" + boxPath, "GOMAXPROCS=2"}
	command.Dir = "/"
	// A signal from the terminal is for headway, which ends its boxes itself.
	command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	return agent.Start(ctx, agent.Options{
		ID: id, Command: command, Setup: setup(spec), Meter: meter{group}, Patience: closePatience,
		Started: func(pid int, _ agent.Held) error { return d.places.Record(id, pid) },
		Kill:    func() { d.kill(id) },
		Ended:   func() error { return errors.Join(d.sweep(context.Background(), id), d.release(id)) },
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

// entering is a command that enters control groups before it starts: gVisor starts others at once.
func entering(entries, argv []string) *exec.Cmd {
	if len(entries) == 0 {
		return exec.Command(argv[0], argv[1:]...)
	}
	const script = `n=$1; shift; while [ "$n" -gt 0 ]; do echo $$ > "$1" || exit 1; shift; n=$((n-1)); done; exec "$@"`
	args := append([]string{"-c", script, "sh", strconv.Itoa(len(entries))}, entries...)
	return exec.Command("/bin/sh", append(args, argv...)...)
}

// closePatience is how long a box has to end by itself: gVisor takes its container down then, and
// leaves nothing to look for.
const closePatience = 2 * time.Second

// boxPath is PATH in a box.
const boxPath = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

func (d *Driver) arguments(id sandbox.ID, spec sandbox.Spec) []string {
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
		"run", "-bundle=" + d.places.Path(id), string(id),
	}
}

func setup(spec sandbox.Spec) agent.Setup {
	env := map[string]string{"PATH": boxPath, "HOME": homeDir, "LANG": "C.UTF-8"}
	maps.Copy(env, spec.Env)
	return agent.Setup{
		Places: agent.Places{Work: sandbox.Work, Tmp: "/tmp", Home: homeDir, Shm: "/dev/shm", More: moreDirs},
		Limits: spec.Limits, Env: env, Mount: true, Confine: true, OwnKernel: true,
	}
}

// List names the boxes of an owner that have a directory: it is made before anything else and
// removed last.
func (d *Driver) List(_ context.Context, owner string) ([]sandbox.ID, error) {
	return d.places.List(owner)
}

// Destroy ends a box, whoever made it.
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
	if _, err := os.Lstat(d.places.Path(id)); errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err := errors.Join(d.sweep(ctx, id), agent.RemoveAll(d.places.Path(id))); err != nil {
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
