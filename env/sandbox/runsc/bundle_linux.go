package runsc

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"

	"github.com/headway-rl/headway/env/sandbox"
	"github.com/headway-rl/headway/env/sandbox/agent"
)

// bundle is what an OCI runtime starts a container from, as far as it is said here. The names are
// those of the OCI runtime specification.
type bundle struct {
	Version  string        `json:"ociVersion"`
	Process  process       `json:"process"`
	Root     root          `json:"root"`
	Hostname string        `json:"hostname"`
	Mounts   []mount       `json:"mounts"`
	Linux    linuxSettings `json:"linux"`
}

type process struct {
	User            user                `json:"user"`
	Args            []string            `json:"args"`
	Env             []string            `json:"env"`
	Cwd             string              `json:"cwd"`
	Capabilities    map[string][]string `json:"capabilities"`
	NoNewPrivileges bool                `json:"noNewPrivileges"`
}

type user struct {
	UID int `json:"uid"`
	GID int `json:"gid"`
}

type root struct {
	Path     string `json:"path"`
	Readonly bool   `json:"readonly"`
}

type mount struct {
	Destination string   `json:"destination"`
	Type        string   `json:"type"`
	Source      string   `json:"source"`
	Options     []string `json:"options,omitempty"`
}

type linuxSettings struct {
	Namespaces []namespace `json:"namespaces"`
}

type namespace struct {
	Type string `json:"type"`
}

// agentDir is where the agent's program lies in a box.
const agentDir = "/.headway"

// homeDir is HOME in a box: it may be written to, and what is there counts with all else.
const homeDir = "/home/box"

// moreDirs may be written to as Work may: tasks in Harbor's form keep what they need there.
var moreDirs = []string{"/logs", "/tests", "/solution"}

// ownDirs are the box's own, whatever the root file system has of that name.
var ownDirs = []string{"proc", "dev", "sys", "tmp", "work", "home", "run", "logs", "tests", "solution", strings.TrimPrefix(agentDir, "/")}

// writeBundle makes a box's bundle in its directory.
func writeBundle(dir string, spec sandbox.Spec, self string) error {
	rootfs := filepath.Join(dir, "rootfs")
	b := bundle{
		Version: "1.0.0",
		Process: process{
			Args: []string{agentDir + "/" + agent.Name},
			Env:  agent.Environment(),
			Cwd:  "/",
			// The agent mounts the box's own files and then gives all of these up, also for what it starts.
			Capabilities: map[string][]string{},
		},
		Root:     root{rootfs, true},
		Hostname: "box",
		Mounts:   []mount{{"/proc", "proc", "proc", nil}, {"/dev", "dev", "dev", []string{"ro", "nosuid", "noexec"}}, {"/dev/shm", "tmpfs", "tmpfs", []string{"size=4096", "nosuid", "nodev"}}},
	}
	for _, set := range []string{"bounding", "effective", "permitted"} {
		b.Process.Capabilities[set] = []string{"CAP_SYS_ADMIN", "CAP_SETPCAP", "CAP_DAC_OVERRIDE", "CAP_SETUID", "CAP_SETGID", "CAP_CHOWN"}
	}
	for _, kind := range []string{"pid", "network", "ipc", "uts", "mount"} {
		if kind != "network" || !spec.Network {
			b.Linux.Namespaces = append(b.Linux.Namespaces, namespace{kind})
		}
	}
	for _, name := range ownDirs {
		if err := os.MkdirAll(filepath.Join(rootfs, name), 0o755); err != nil {
			return err
		}
	}
	if err := os.MkdirAll(filepath.Join(rootfs, homeDir), 0o755); err != nil {
		return err
	}
	m := mounter{rootfs: rootfs, mounts: &b.Mounts}
	var err error
	if spec.Root == "" {
		err = m.hostPrograms(spec.Network)
	} else {
		err = m.rootOf(spec.Root)
	}
	if err == nil {
		err = m.file(self, agentDir+"/"+agent.Name)
	}
	for _, asked := range spec.Mounts {
		if err == nil {
			err = m.asked(asked)
		}
	}
	if err != nil {
		return err
	}
	text, err := json.Marshal(b)
	if err != nil {
		return err
	}
	return os.WriteFile(filepath.Join(dir, "config.json"), text, 0o600)
}

// mounter lays out a root file system: directories of the host are mounted to be read on empty ones
// of the same name, so that nothing is ever made in a directory that is not the box's.
type mounter struct {
	rootfs string
	mounts *[]mount
}

func (m mounter) add(host, box string) {
	*m.mounts = append(*m.mounts, mount{box, "bind", host, []string{"ro", "rbind", "nosuid", "nodev"}})
}

func (m mounter) directory(host, box string) error {
	if err := os.MkdirAll(filepath.Join(m.rootfs, box), 0o755); err != nil {
		return err
	}
	m.add(host, box)
	return nil
}

func (m mounter) file(host, box string) error {
	if err := m.write(box, nil); err != nil {
		return err
	}
	m.add(host, box)
	return nil
}

func (m mounter) write(box string, content []byte) error {
	path := filepath.Join(m.rootfs, box)
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return err
	}
	return os.WriteFile(path, content, 0o644)
}

// entry gives the box what the host has at a path: a directory and a file by a mount, a link as a
// link. What is not there is left out.
func (m mounter) entry(host, box string) error {
	info, err := os.Lstat(host)
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	switch info.Mode().Type() {
	case fs.ModeDir:
		return m.directory(host, box)
	case 0:
		return m.file(host, box)
	case fs.ModeSymlink:
		target, err := os.Readlink(host)
		if err != nil {
			return err
		}
		path := filepath.Join(m.rootfs, box)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			return err
		}
		return os.Symlink(target, path)
	}
	return nil
}

// programs are what of the host's root programs need, and settings what of /etc.
var (
	programs = []string{"/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32"}
	settings = []string{"/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime", "/etc/timezone",
		"/etc/mime.types", "/etc/protocols", "/etc/services", "/etc/ssl/certs", "/etc/ssl/openssl.cnf", "/etc/ca-certificates", "/etc/pki/tls/certs", "/etc/pki/ca-trust/extracted", "/etc/python3", "/etc/terminfo"}
	networkSettings = []string{"/etc/resolv.conf", "/etc/hosts"}
)

func (m mounter) hostPrograms(network bool) error {
	paths := append(append([]string{}, programs...), settings...)
	if network {
		paths = append(paths, networkSettings...)
	}
	for _, path := range paths {
		if network && (path == "/etc/resolv.conf" || path == "/etc/hosts") {
			if resolved, err := filepath.EvalSymlinks(path); err == nil {
				if err := m.file(resolved, path); err != nil {
					return err
				}
			}
			continue
		}
		if err := m.entry(path, path); err != nil {
			return err
		}
	}
	for name, content := range map[string]string{
		"/etc/passwd":        "root:x:0:0:root:" + homeDir + ":/bin/sh\nbox:x:65534:65534:box:" + homeDir + ":/bin/sh\n",
		"/etc/group":         "root:x:0:\nbox:x:65534:\n",
		"/etc/nsswitch.conf": "passwd: files\ngroup: files\nhosts: files dns\n",
	} {
		if err := m.write(name, []byte(content)); err != nil {
			return err
		}
	}
	if !network {
		return m.write("/etc/hosts", []byte("127.0.0.1 localhost box\n::1 localhost\n"))
	}
	return nil
}

// rootOf mounts what lies in a root file system, one by one, so that the box's own directories need
// not be there and nothing is made in it.
func (m mounter) rootOf(dir string) error {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return fmt.Errorf("the root file system: %w", err)
	}
	for _, entry := range entries {
		own := false
		for _, name := range ownDirs {
			own = own || entry.Name() == name
		}
		if !own {
			if err := m.entry(filepath.Join(dir, entry.Name()), "/"+entry.Name()); err != nil {
				return err
			}
		}
	}
	return nil
}

// asked mounts a directory of Spec.Mounts. Where it lies below another mount its place has to be
// there already: nothing is made in a directory of the host.
func (m mounter) asked(asked sandbox.Mount) error {
	info, err := os.Stat(asked.Host)
	if err != nil {
		return fmt.Errorf("a directory to be mounted: %w", err)
	}
	if !info.IsDir() {
		return fmt.Errorf("%s is to be mounted and is no directory", asked.Host)
	}
	for _, other := range *m.mounts {
		if other.Type != "bind" || !strings.HasPrefix(asked.Box, other.Destination+"/") {
			continue
		}
		inner := filepath.Join(other.Source, strings.TrimPrefix(asked.Box, other.Destination))
		if there, err := os.Stat(inner); err != nil || !there.IsDir() {
			return fmt.Errorf("%s cannot be mounted at %s: that is in %s, which is only read and has no such directory; mount it elsewhere", asked.Host, asked.Box, other.Destination)
		}
		m.add(asked.Host, asked.Box)
		return nil
	}
	return m.directory(asked.Host, asked.Box)
}
