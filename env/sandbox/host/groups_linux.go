package host

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
)

// groupName is the directory of all boxes' control groups, in each hierarchy: whoever makes boxes sweeps
// there what an ended process has left.
const groupName = "headway-sandboxes"

// agentMemory is what a box's first process and who waits for it take themselves, in bytes, beside the limit of what it runs.
const agentMemory = 28 << 20

// sharesPerCPU is the weight of all boxes together, for each processor: that of four processes.
const sharesPerCPU = 4 * 1024

// cpuPeriod is the time in which a box may use its share of processors, in microseconds.
const cpuPeriod = 100_000

// Groups knows where control groups can be made on this host by this user.
type Groups struct {
	// memory, pids and cpu are the directories that boxes' groups are made in, empty where there is
	// none. With version 2 they are the same one.
	memory, pids, cpu string
	unified           bool
	why               []string
	// name is the directory's, in each hierarchy.
	name string
}

// FindGroups looks for control groups, of version 2 where it has the controllers, else of version 1.
func FindGroups() *Groups { return findGroups("/proc/self", groupName) }

func findGroups(self, name string) *Groups {
	g := &Groups{name: name}
	mounts := groupMounts(self)
	if !g.findUnified(mounts[""], self) {
		for _, c := range []struct {
			name string
			at   *string
		}{{"memory", &g.memory}, {"pids", &g.pids}, {"cpu", &g.cpu}} {
			if dir := mounts[c.name]; dir != "" {
				*c.at = g.tryDir(filepath.Join(dir, name))
			}
		}
		if g.cpu != "" {
			// All boxes together would count as one process beside those of the host's top group.
			_ = writeExisting(filepath.Join(g.cpu, "cpu.shares"), strconv.Itoa(sharesPerCPU*runtime.NumCPU()))
		}
	}
	return g
}

// groupMounts are the mounted hierarchies by controller; that of version 2 is under the empty name.
func groupMounts(self string) map[string]string {
	mounts := map[string]string{}
	text, _ := os.ReadFile(self + "/mountinfo")
	for line := range strings.Lines(string(text)) {
		before, after, ok := strings.Cut(strings.TrimSpace(line), " - ")
		fields, kind := strings.Fields(before), strings.Fields(after)
		if !ok || len(fields) < 5 || len(kind) < 3 {
			continue
		}
		switch kind[0] {
		case "cgroup2":
			mounts[""] = fields[4]
		case "cgroup":
			for option := range strings.SplitSeq(kind[2], ",") {
				mounts[option] = fields[4]
			}
		}
	}
	return mounts
}

// tryDir makes a directory of groups and returns it, or notes why there is none.
func (g *Groups) tryDir(dir string) string {
	err := os.Mkdir(dir, 0o755)
	if err != nil && !errors.Is(err, os.ErrExist) {
		g.note("%v", err)
		return ""
	}
	probe := filepath.Join(dir, "probe-"+strconv.Itoa(os.Getpid()))
	if err := os.Mkdir(probe, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
		g.note("%v", err)
		return ""
	}
	_ = os.Remove(probe)
	return dir
}

func (g *Groups) note(format string, args ...any) {
	g.why = append(g.why, fmt.Sprintf(format, args...))
}

// findUnified uses version 2 at the top of what is seen of it, or, for a user to whom it was
// delegated, in the group that this process is in.
func (g *Groups) findUnified(mount, self string) bool {
	if mount == "" {
		return false
	}
	for _, base := range []string{mount, ownGroup(mount, self)} {
		if base == "" || !hasAll(base+"/cgroup.controllers") {
			continue
		}
		if base != mount && !moveAside(base) {
			g.note("the group %s has other processes in it: start headway in one of its own, as with systemd-run --user --scope -p Delegate=yes", base)
			continue
		}
		dir, ok := g.enable(base)
		if ok {
			g.memory, g.pids, g.cpu, g.unified = dir, dir, dir, true
			return true
		}
	}
	return false
}

// enable has the controllers bound the groups below a group of ours.
func (g *Groups) enable(base string) (string, bool) {
	const all = "+memory +pids +cpu"
	if !hasAll(base + "/cgroup.subtree_control") {
		if err := writeFile(base+"/cgroup.subtree_control", all); err != nil {
			g.note("%v", err)
			return "", false
		}
	}
	dir := g.tryDir(filepath.Join(base, g.name))
	if dir == "" {
		return "", false
	}
	if !hasAll(dir + "/cgroup.subtree_control") {
		if err := writeFile(dir+"/cgroup.subtree_control", all); err != nil {
			g.note("%v", err)
			return "", false
		}
	}
	return dir, true
}

func hasAll(file string) bool {
	text, _ := os.ReadFile(file)
	has := strings.Fields(string(text))
	return slices.Contains(has, "memory") && slices.Contains(has, "pids") && slices.Contains(has, "cpu")
}

// ownGroup is the group of this process in the hierarchy of version 2.
func ownGroup(mount, self string) string {
	text, _ := os.ReadFile(self + "/cgroup")
	for line := range strings.Lines(string(text)) {
		if path, ok := strings.CutPrefix(strings.TrimSpace(line), "0::"); ok && path != "/" {
			return filepath.Join(mount, path)
		}
	}
	return ""
}

// moveAside puts this process, where it is alone in its group, into one below it: a group that
// bounds others has no process itself.
func moveAside(base string) bool {
	text, err := os.ReadFile(base + "/cgroup.procs")
	own := strconv.Itoa(os.Getpid())
	if err != nil {
		return false
	}
	switch strings.TrimSpace(string(text)) {
	case "":
		return true
	case own:
		aside := filepath.Join(base, "headway")
		if err := os.Mkdir(aside, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return false
		}
		return writeFile(aside+"/cgroup.procs", own) == nil
	}
	return false
}

// Memory, Processes and CPU report whether a group bounds them.
func (g *Groups) Memory() bool { return g.memory != "" }

// Processes reports whether a group bounds the number of processes.
func (g *Groups) Processes() bool { return g.pids != "" }

// CPU reports whether a group bounds processor time.
func (g *Groups) CPU() bool { return g.cpu != "" }

// Why says in words which resources no group bounds and how to get a group that does; empty where all is bounded.
func (g *Groups) Why() string {
	var missing []string
	for _, c := range []struct {
		name string
		has  bool
	}{{"memory", g.Memory()}, {"processes", g.Processes()}, {"cpu", g.CPU()}} {
		if !c.has {
			missing = append(missing, c.name)
		}
	}
	if len(missing) == 0 {
		return ""
	}
	why := "No control group bounds " + strings.Join(missing, ", ") + " of a box together: each process is limited by itself. Start headway as root, or in a group that is delegated to it: systemd-run --user --scope -p Delegate=yes headway …"
	if len(g.why) > 0 {
		why += " (" + strings.Join(g.why, "; ") + ")"
	}
	return why
}

func writeFile(name, text string) error { return os.WriteFile(name, []byte(text), 0o644) }

// Make makes a box's group. Where none can be made it returns one that bounds nothing, with the error.
func (g *Groups) Make(name sandbox.ID, l sandbox.Limits, reserve int) (*Group, error) {
	group := g.Open(name)
	for _, dir := range group.dirs() {
		if err := os.Mkdir(dir, 0o755); err != nil && !errors.Is(err, os.ErrExist) {
			return group, errors.Join(err, group.Remove())
		}
	}
	memory := strconv.FormatInt(l.Memory+agentMemory, 10)
	processes := strconv.Itoa(l.Processes + reserve)
	quota := max(int64(l.CPUs*cpuPeriod), 1000)
	settings := []struct {
		dir, file, value string
		optional         bool
	}{
		{group.memory, "memory.limit_in_bytes", memory, false},
		{group.memory, "memory.memsw.limit_in_bytes", memory, true}, // only where swap is counted
		// Buffers of sockets, UDP's as well, are not counted before this is set. Some kernels lack it.
		{group.memory, "memory.kmem.tcp.limit_in_bytes", memory, true},
		{group.pids, "pids.max", processes, false},
		{group.cpu, "cpu.cfs_period_us", strconv.Itoa(cpuPeriod), false},
		{group.cpu, "cpu.cfs_quota_us", strconv.FormatInt(quota, 10), false},
	}
	if g.unified {
		settings = settings[:0]
		settings = append(settings, []struct {
			dir, file, value string
			optional         bool
		}{
			{group.memory, "memory.max", memory, false},
			{group.memory, "memory.swap.max", "0", true},
			{group.pids, "pids.max", processes, false},
			{group.cpu, "cpu.max", fmt.Sprintf("%d %d", quota, cpuPeriod), false},
		}...)
	}
	for _, s := range settings {
		if s.dir == "" {
			continue
		}
		if err := writeExisting(filepath.Join(s.dir, s.file), s.value); err != nil && !s.optional {
			return group, errors.Join(err, group.Remove())
		}
	}
	return group, nil
}

// writeExisting writes to a file of a control group, which none makes.
func writeExisting(name, text string) error {
	file, err := os.OpenFile(name, os.O_WRONLY, 0)
	if err != nil {
		return err
	}
	_, err = file.WriteString(text)
	return errors.Join(err, file.Close())
}

// Open returns the group of a box that may be there.
func (g *Groups) Open(name sandbox.ID) *Group {
	under := func(dir string) string {
		if dir == "" {
			return ""
		}
		return filepath.Join(dir, string(name))
	}
	return &Group{memory: under(g.memory), pids: under(g.pids), cpu: under(g.cpu), unified: g.unified}
}

// Sweep removes groups whose makers have ended, and ends the processes that still run in them: no process has their
// pipes. Processes that the kernel does not let go of are met again the next time.
func (g *Groups) Sweep() {
	names := map[sandbox.ID]bool{}
	for _, dir := range []string{g.memory, g.pids, g.cpu} {
		if dir == "" {
			continue
		}
		entries, _ := os.ReadDir(dir)
		for _, entry := range entries {
			if entry.IsDir() && abandoned(entry.Name()) {
				names[sandbox.ID(entry.Name())] = true
			}
		}
	}
	for name := range names {
		group := g.Open(name)
		group.Kill()
		_ = group.Remove()
	}
}
