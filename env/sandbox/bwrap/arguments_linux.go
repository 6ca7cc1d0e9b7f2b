package bwrap

import (
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/agent"
	"github.com/headway-rl/headway/env/sandbox/host"
)

// homeDir is HOME in a box. moreDirs may be written to as well: task folders of Harbor's kind have
// their tests and rewards there.
const homeDir = "/home/box"

var moreDirs = []string{"/logs", "/tests", "/solution"}

// agentDir is where the agent's file is in a box.
const agentDir = "/run/headway"

// hostEtc are the files of the host's /etc that its programs need, and that tell nothing of it.
var hostEtc = []string{
	"ld.so.cache", "ld.so.conf", "ld.so.conf.d", "alternatives", "ssl/certs", "ssl/openssl.cnf", "ca-certificates",
	"pki/tls/certs", "pki/ca-trust", "localtime", "timezone", "mime.types", "os-release", "debian_version",
	"services", "protocols", "shells", "inputrc", "terminfo",
}

// ownRoot are the directories of a root file system that a box has its own of.
var ownRoot = []string{"proc", "dev", "sys", "tmp", "work", "home", "run", "logs", "tests", "solution", "mnt", "media", "lost+found"}

// hidden tells of the host as a whole. The agent covers it: bubblewrap, which reads all mounts again
// after each, takes far longer.
var hidden = []string{
	"/proc/keys", "/proc/key-users", "/proc/kcore", "/proc/kallsyms", "/proc/kmsg", "/proc/timer_list",
	"/proc/sched_debug", "/proc/latency_stats", "/proc/config.gz", "/proc/acpi", "/proc/scsi",
}

// devices that a box has.
var devices = []string{"null", "zero", "full", "random", "urandom"}

// layout collects what a bubblewrap is told, in the order in which it does it.
type layout struct {
	args []string
	made map[string]bool
}

func (l *layout) add(args ...string) { l.args = append(l.args, args...) }

// dir makes a directory that all may enter, and those above it: bubblewrap's own are its user's alone.
func (l *layout) dir(path string) {
	if path == "/" || l.made[path] {
		return
	}
	l.dir(filepath.Dir(path))
	l.made[path] = true
	l.add("--perms", "0755", "--dir", path)
}

// bind has a file or directory of the host be seen in a box, which does not write to it.
func (l *layout) bind(how, from, to string) {
	l.dir(filepath.Dir(to))
	l.made[to] = true
	l.add(how, from, to)
}

// show binds what is there, a link as the same link, and leaves out what is not.
func (l *layout) show(from, to string) {
	info, err := os.Lstat(from)
	if err != nil {
		return
	}
	if info.Mode()&os.ModeSymlink == 0 {
		l.bind("--ro-bind", from, to)
		return
	}
	if target, err := os.Readlink(from); err == nil {
		l.dir(filepath.Dir(to))
		l.made[to] = true
		l.add("--symlink", target, to)
	}
}

// arguments are those of a bubblewrap that makes a box and starts the agent in it. Its processes are
// known by the mark. A file of users takes the place of the shared one.
func (d *Driver) arguments(id sandbox.ID, mark, passwd string, spec sandbox.Spec) ([]string, error) {
	l := &layout{made: map[string]bool{}}
	l.add("bwrap", "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try",
		"--hostname", "sandbox", "--die-with-parent", "--new-session", "--as-pid-1", "--cap-drop", "ALL",
		"--setenv", markName, mark)
	caps := []string{"CAP_SYS_ADMIN"} // to mount its own files, before it gives this up
	if d.root {
		caps = append(caps, "CAP_SETUID", "CAP_SETGID", "CAP_SETPCAP", "CAP_CHOWN")
	} else {
		user := strconv.Itoa(insideUser)
		l.add("--unshare-user", "--uid", user, "--gid", user)
	}
	for _, c := range caps {
		l.add("--cap-add", c)
	}
	if !spec.Network {
		l.add("--unshare-net")
	}
	if err := d.system(l, id, spec); err != nil {
		return nil, err
	}
	if passwd != "" && spec.Root == "" {
		l.add("--ro-bind", passwd, "/etc/passwd")
	}
	l.add("--proc", "/proc")
	for _, device := range devices {
		l.bind("--dev-bind", "/dev/"+device, "/dev/"+device)
	}
	for i, name := range []string{"stdin", "stdout", "stderr"} {
		l.add("--symlink", "/proc/self/fd/"+strconv.Itoa(i), "/dev/"+name)
	}
	l.add("--symlink", "/proc/self/fd", "/dev/fd")
	for _, dir := range append([]string{sandbox.Work, "/tmp", homeDir, "/dev/shm"}, moreDirs...) {
		l.dir(dir)
	}
	for _, m := range spec.Mounts {
		if info, err := os.Stat(m.Host); err != nil || !info.IsDir() {
			return nil, sandbox.Fail(sandbox.Refused, "create", id, "the mount's host directory %s is no directory that can be read (%v)", m.Host, err)
		}
		l.bind("--ro-bind", m.Host, m.Box)
	}
	inside := agentDir + "/" + agent.Name
	l.bind("--ro-bind", d.program, inside)
	l.add("--remount-ro", "/", "--chdir", "/", "--", inside)
	return l.args, nil
}

// system lays out the programs of a box: those of a root file system, or the host's.
func (d *Driver) system(l *layout, id sandbox.ID, spec sandbox.Spec) error {
	if spec.Root == "" {
		d.hostSystem(l, spec)
		return nil
	}
	entries, err := os.ReadDir(spec.Root)
	if err != nil {
		return sandbox.Fail(sandbox.Refused, "create", id, "the root file system: %w", err)
	}
	before := len(l.args)
	for _, entry := range entries {
		if name := entry.Name(); !slices.Contains(ownRoot, name) {
			l.show(filepath.Join(spec.Root, name), "/"+name)
		}
	}
	if len(l.args) == before {
		return sandbox.Fail(sandbox.Refused, "create", id, "the root file system %s has no programs: unpack an image into it", spec.Root)
	}
	return nil
}

func (d *Driver) hostSystem(l *layout, spec sandbox.Spec) {
	for _, name := range []string{"usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32"} {
		l.show("/"+name, "/"+name)
	}
	l.bind("--ro-bind", d.etc, "/etc")
	if spec.Network {
		// Below a link of the host's it may change with its network.
		if resolv, err := filepath.EvalSymlinks("/etc/resolv.conf"); err == nil {
			l.add("--ro-bind", resolv, "/etc/resolv.conf")
		}
	}
}

// madeEtc are the files of /etc that a box needs and the host does not show.
func (d *Driver) madeEtc() map[string]string {
	group := insideUser
	if d.root {
		group = nobody
	}
	return map[string]string{
		"passwd":        users(insideUser, insideUser), // as root each box has its own in its place
		"group":         fmt.Sprintf("root:x:0:\nbox:x:%d:\n", group),
		"hosts":         "127.0.0.1 localhost sandbox\n::1 localhost\n",
		"resolv.conf":   "", // in its place with a network, the host's
		"nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	}
}

// users is a file of users with that of a box.
func users(user, group int) string {
	return fmt.Sprintf("root:x:0:0:root:/:/bin/sh\nbox:x:%d:%d:box:%s:/bin/sh\n", user, group, homeDir)
}

// writeUser writes the file of users of a box that has a user of its own.
func (d *Driver) writeUser(entry *host.Entry) (path string, err error) {
	if !d.root {
		return "", nil
	}
	path = filepath.Join(entry.Path(), "passwd")
	return path, os.WriteFile(path, []byte(users(ownUser(entry.Token), nobody)), 0o644)
}

// prepare makes what all boxes share, once: a directory for /etc, which is one mount where each of its
// files would be another, and the agent's own file.
func (d *Driver) prepare() error {
	d.ready.Lock()
	defer d.ready.Unlock()
	if d.program != "" {
		return nil
	}
	etc := d.state.Path("-etc") // no box has this name
	for _, name := range hostEtc {
		if err := copyTree(filepath.Join("/etc", name), filepath.Join(etc, name)); err != nil {
			return fmt.Errorf("the files of /etc: %w", err)
		}
	}
	for name, text := range d.madeEtc() {
		if err := writeWhole(filepath.Join(etc, name), strings.NewReader(text), 0o644); err != nil {
			return fmt.Errorf("the files of /etc: %w", err)
		}
	}
	program, err := d.ownProgram()
	if err != nil {
		return fmt.Errorf("headway's own program file: %w", err)
	}
	d.etc, d.program = etc, program
	return nil
}

// ownProgram is the file of this program, or a copy where that has been replaced since it started.
func (d *Driver) ownProgram() (string, error) {
	running, err := os.Stat("/proc/self/exe")
	if err != nil {
		return "", err
	}
	path, err := os.Executable()
	if err != nil {
		return "", err
	}
	if there, err := os.Stat(path); err == nil && os.SameFile(there, running) {
		return path, nil
	}
	from, err := os.Open("/proc/self/exe")
	if err != nil {
		return "", err
	}
	defer from.Close()
	copied := d.state.Path("-agent")
	return copied, writeWhole(copied, from, 0o755)
}

// copyTree copies what all may read of a file or directory. A link below /usr stays one, as that is
// in the box as well; another becomes what it leads to. What is not there is left out.
func copyTree(from, to string) error {
	info, err := os.Lstat(from)
	if err != nil {
		return nil
	}
	if info.Mode()&os.ModeSymlink != 0 {
		target, err := filepath.EvalSymlinks(from)
		if err != nil {
			return nil
		}
		if strings.HasPrefix(target, "/usr/") {
			if err := os.Symlink(target, to); err != nil && !errors.Is(err, os.ErrExist) {
				return err
			}
			return nil
		}
		from = target
		if info, err = os.Stat(target); err != nil {
			return nil
		}
	}
	if info.IsDir() {
		entries, err := os.ReadDir(from)
		if err != nil {
			return nil
		}
		failed := os.MkdirAll(to, 0o755)
		for _, entry := range entries {
			failed = errors.Join(failed, copyTree(filepath.Join(from, entry.Name()), filepath.Join(to, entry.Name())))
		}
		return failed
	}
	if !info.Mode().IsRegular() || info.Mode().Perm()&0o004 == 0 {
		return nil
	}
	file, err := os.Open(from)
	if err != nil {
		return nil
	}
	defer file.Close()
	return writeWhole(to, file, 0o644)
}

// writeWhole makes a file whole or not at all: other processes of the same user make the same ones.
func writeWhole(path string, content io.Reader, mode os.FileMode) error {
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	file, err := os.CreateTemp(filepath.Dir(path), "-new-*")
	if err != nil {
		return err
	}
	_, err = io.Copy(file, content)
	err = errors.Join(err, file.Chmod(mode), file.Close())
	if err == nil {
		err = os.Rename(file.Name(), path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(file.Name()))
	}
	return nil
}
