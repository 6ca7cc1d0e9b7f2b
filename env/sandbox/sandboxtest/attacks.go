//go:build linux && amd64

package sandboxtest

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/headway-rl/headway/env/sandbox"
)

// tool is the program of the attacks with one of them.
func tool(name string, args ...string) sandbox.Command {
	return sandbox.Command{Argv: append([]string{armsDir + "/" + armName, name}, args...)}
}

// attacks are all of them, in the order of the table.
func attacks(i *isolation) []attack {
	victim := strconv.Itoa(i.host.victim.Process.Pid)
	secretFile := i.host.files[0]
	mark := ".headway-attack-" + i.owner
	return []attack{
		{name: "network", tries: "reach listeners of the host on loopback, on its addresses and by unix sockets, abstract ones too; see interfaces", command: tool("connect", i.host.addresses...), keeps: true},
		{name: "raw network", tries: "hear packets of the host, reach the machine below by vsock", command: tool("raw-sockets"), keeps: true},
		{name: "host files", tries: "read a secret in /root, /home, /tmp, /etc, /var, /dev/shm and others, by `..`, /proc/self/root and /proc/1/root; list all that can be listed", command: tool("search", i.host.files...), keeps: true},
		{name: "host files written", tries: "write over the same files and programs of the host", do: writeHost, keeps: true, unhurt: noMark(mark)},
		{name: "chroot", tries: "leave the root directory with chroot and an open directory", command: tool("chroot", i.host.files...), keeps: true},
		{name: "read by a link", tries: "have the driver read the host's files by links", do: readByLinks, keeps: true},
		{name: "write by a link", tries: "have the driver write the host's files by links", do: writeByLinks, keeps: true},
		{name: "race of links", tries: "swap a directory for a link to the host's while the driver reads and writes", do: raceOfLinks, keeps: true},
		{name: "processes", tries: "see processes of the host, their arguments and environment, /proc/kcore, sysrq", command: tool("processes", victim, secretFile), keeps: true},
		{name: "environment", tries: "find the host's environment in that of any process", command: shell("cat /proc/*/environ | tr '\\0' '\\n'; env; echo 'held: only what was given is there'"), keeps: true},
		{name: "another sandbox", tries: "find files and processes of another box", do: findOther, keeps: true},
		{name: "signals", tries: "end the first process and its threads, a process of the host, and everything (kill -1)", command: tool("signals", victim), keeps: true},
		{name: "ptrace", tries: "trace the first process and one of the host, read their memory", command: tool("ptrace", victim), keeps: true},
		{name: "pipes of the agent", tries: "write to what the first process has open, and take its descriptors", command: tool("pipes"), keeps: true},
		{name: "fork bomb", tries: "start processes without end", do: forkBomb, limited: processesLimited},
		{name: "memory bomb", tries: "touch 2 GiB of 128 MiB", do: atMost("memory", 2<<30, 256<<20), limited: memoryLimited},
		{name: "memory in files without names", tries: "fill shared memory and memfd, 2 GiB of 128 MiB", do: atMost("memory-files", 2<<30, 256<<20), limited: memoryLimited},
		{name: "a million files", tries: "make them in every directory that can be written, 1000 allowed", do: atMost("files", 1000000, 8000), limited: func(b sandbox.Boundary) bool { return b.FileCount }, keeps: true},
		{name: "a full disk", tries: "write 2 GiB to every directory that can be written, 16 MiB allowed", do: atMost("disk", 2<<30, 128<<20), limited: func(b sandbox.Boundary) bool { return b.Disk }},
		{name: "gigabytes of output", tries: "print without end", do: endlessOutput, keeps: true},
		{name: "clock", tries: "set the clocks", command: tool("clock"), keeps: true},
		{name: "mounts", tries: "make read-only directories writable, mount the kernel's file systems, also in namespaces of its own", command: tool("mount", mark, secretFile), unhurt: noMark(mark), keeps: true},
		{name: "devices", tries: "open memory, disks and other devices, by nodes that are there and new ones", command: tool("devices", rootDevice()), keeps: true},
		{name: "setuid programs", tries: "gain by programs that run as their owner", command: tool("setuid"), keeps: true},
		{name: "keyrings", tries: "find a key of the host's user", command: tool("keys"), keeps: true},
		{name: "shared memory", tries: "attach a System V segment of the host", do: sharedMemory, keeps: true},
		{name: "kernel", tries: "load modules, another kernel, swap; read its log; count its events; open files by handle", command: tool("kernel"), keeps: true},
		{name: "settings", tries: "write to /proc/sys, the host's name and control groups", do: settings(mark), keeps: true},
	}
}

func memoryLimited(b sandbox.Boundary) bool    { return b.Memory }
func processesLimited(b sandbox.Boundary) bool { return b.ProcessCount }

// noMark is that no file of that name came to be on the host.
func noMark(mark string) func(i *isolation) error {
	return func(i *isolation) error {
		for _, dir := range []string{"/usr", "/usr/bin", "/", "/etc", i.host.arms} {
			if _, err := os.Lstat(filepath.Join(dir, mark)); err == nil {
				os.Remove(filepath.Join(dir, mark))
				return fmt.Errorf("a file was made in %s of the host", dir)
			}
		}
		return nil
	}
}

func rootDevice() string {
	var stat syscall.Stat_t
	if err := syscall.Stat("/", &stat); err != nil {
		return "0"
	}
	return strconv.FormatUint(stat.Dev, 10)
}

func writeHost(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	var script strings.Builder
	for _, path := range i.host.files {
		for _, prefix := range []string{"", "/proc/self/root", "/proc/1/root", "/work/../../.."} {
			fmt.Fprintf(&script, "echo overwritten 2>/dev/null > '%s%s'\n", prefix, path)
		}
	}
	for _, dir := range []string{"/usr", "/usr/bin", "/", "/etc", armsDir} {
		fmt.Fprintf(&script, "echo x 2>/dev/null > %s/.headway-attack-%s\n", dir, i.owner)
	}
	script.WriteString("echo x 2>/dev/null > " + armsDir + "/" + armName + "; chmod 777 /usr/bin/env 2>/dev/null; echo held: the host\\'s files are as they were")
	before, err := os.Stat(filepath.Join(i.host.arms, armName))
	if err != nil {
		t.Fatal(err)
	}
	how, err := i.judged(box.Run(bounded(t), shell(script.String())))
	if after, statErr := os.Stat(filepath.Join(i.host.arms, armName)); statErr != nil || after.Size() != before.Size() {
		err = errors.Join(err, fmt.Errorf("a program of a mount was written"))
	}
	return how, err
}

// linked are paths in the box that lead to a file of the host, if links are followed on the host.
func linked(t *testing.T, box sandbox.Box, secret string) []string {
	dir := filepath.Dir(secret)
	says(t, box, fmt.Sprintf("rm -rf l && mkdir l && cd l && ln -s '%s' file && ln -s '%s' dir && ln -s / top && ln -s /proc/self/root self && ln -s ../../../../../.. up && ln -s /proc/1/root one && ln -s /proc/self/cwd cwd", secret, dir))
	l := sandbox.Work + "/l/"
	return []string{l + "file", l + "dir/" + filepath.Base(secret), l + "top" + secret, l + "self" + secret, l + "up" + secret, l + "one" + secret, l + "cwd/../../../../../.." + secret, sandbox.Work + "/../../../../../.." + secret}
}

func readByLinks(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	tried := 0
	for _, secret := range i.host.files {
		for _, path := range linked(t, box, secret) {
			tried++
			if content, err := box.Read(bounded(t), path, 1<<16); err == nil && strings.Contains(string(content), i.host.secret) {
				return "", fmt.Errorf("read %s gave the secret", path)
			}
		}
	}
	for _, path := range []string{"/proc/1/environ", "/proc/self/environ", "/proc/self/cmdline", "/etc/shadow"} {
		tried++
		content, err := box.Read(bounded(t), path, 1<<16)
		if err == nil && (strings.Contains(string(content), i.host.secret) || path == "/etc/shadow" && strings.Contains(string(content), ":")) {
			return "", fmt.Errorf("read %s gave %.40q", path, content)
		}
	}
	return fmt.Sprintf("%d paths, none gave the secret", tried), nil
}

func writeByLinks(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	tried, went := 0, 0
	for _, secret := range i.host.files {
		for _, path := range linked(t, box, secret) {
			tried++
			if box.Write(bounded(t), path, []byte("overwritten"), 0o666) == nil {
				went++
			}
		}
	}
	return fmt.Sprintf("%d paths, %d of them could be written, in the box alone", tried, went), nil
}

// raceOfLinks has a process that swaps outlive its command, if it can, and the driver read and
// write where it swaps.
func raceOfLinks(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	secret := i.host.files[0]
	dir, base := filepath.Dir(secret), filepath.Base(secret)
	says(t, box, fmt.Sprintf(`mkdir plain && echo inside > 'plain/%s' && ln -s '%s' link
	setsid sh -c 'trap "" HUP TERM; while :; do rm -f d; ln -s plain d; mv -T link d2; mv -T d2 link; rm -f d; ln -s link d; done' </dev/null >/dev/null 2>&1 &
	while [ ! -e d ]; do :; done; true`, base, dir))
	read := 0
	for range 200 {
		path := sandbox.Work + "/d/" + base
		if content, err := box.Read(bounded(t), path, 1<<16); err == nil {
			read++
			if strings.Contains(string(content), i.host.secret) {
				return "", fmt.Errorf("a read in the race gave the secret")
			}
		}
		_ = box.Write(bounded(t), path, []byte("inside"), 0o666)
	}
	return fmt.Sprintf("200 reads (%d went well) and 200 writes stayed inside", read), nil
}

func findOther(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	other, err := i.driver.Create(bounded(t), i.id(), i.spec(func(spec *sandbox.Spec) { spec.Env = map[string]string{"SECRET": i.host.secret} }))
	if err != nil {
		t.Fatal(err)
	}
	defer other.Close(bounded(t))
	for _, dir := range []string{sandbox.Work, "/tmp", "/dev/shm"} {
		if err := other.Write(bounded(t), dir+"/"+placed+"other", []byte(i.host.secret), 0o666); err != nil && dir != "/dev/shm" {
			t.Fatal(err)
		}
	}
	ended := make(chan error, 1)
	go func() {
		_, err := other.Run(bounded(t), shell("while [ ! -e end ]; do sleep 0.05; done # "+i.host.secret))
		ended <- err
	}()
	how, err := i.judged(box.Run(bounded(t), tool("processes", "2", sandbox.Work+"/"+placed+"other")))
	if err == nil {
		how, err = i.judged(box.Run(bounded(t), tool("search", sandbox.Work+"/"+placed+"other", "/tmp/"+placed+"other")))
	}
	if closed := other.Close(bounded(t)); closed != nil {
		t.Error(closed)
	}
	if ran := <-ended; sandbox.ClassOf(ran) != sandbox.Lost {
		err = errors.Join(err, fmt.Errorf("the command of the other ended: %w", ran))
	}
	return how, err
}

func forkBomb(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	bomb := shell("b() { b | b & }; b; while :; do b; done")
	bomb.Time = 5 * time.Second
	result, err := box.Run(bounded(t), bomb)
	if sandbox.ClassOf(err) == sandbox.Lost {
		return "the box ended", nil
	}
	if err != nil {
		return "", err
	}
	if result.Limit == "" && result.Exit == 0 {
		return "", fmt.Errorf("it went on as if nothing limited it: %s", described(result))
	}
	if result.Limit == "" {
		return fmt.Sprintf("it could start no more and ended with exit %d", result.Exit), nil
	}
	return fmt.Sprintf("it met the limit %s", result.Limit), nil
}

// atMost runs what takes without end, and is that it got at most so much.
func atMost(name string, wants, most int64) func(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	return func(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
		result, err := box.Run(bounded(t), tool(name, strconv.FormatInt(wants, 10)))
		if sandbox.ClassOf(err) == sandbox.Lost {
			return "the box ended", nil
		}
		if err != nil {
			return "", err
		}
		got := int64(-1)
		for line := range strings.Lines(string(result.Stdout)) {
			if n, is := strings.CutPrefix(strings.TrimSpace(line), "progress: "); is {
				if v, err := strconv.ParseInt(n, 10, 64); err == nil {
					got = max(got, v)
				}
			}
		}
		if got > most {
			return "", fmt.Errorf("it got %d, at most %d were to be had: %s", got, most, described(result))
		}
		if got < 0 && result.Limit == "" && !strings.Contains(string(result.Stdout), "held: ") {
			return "", fmt.Errorf("it did not try: %s", described(result))
		}
		how := fmt.Sprintf("it got %d", max(got, 0))
		if most > 1<<20 {
			how = fmt.Sprintf("it got %d MiB", max(got, 0)>>20)
		}
		if result.Limit != "" {
			how += fmt.Sprintf(" and met the limit %s", result.Limit)
		}
		return how, nil
	}
}

func endlessOutput(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	result, err := box.Run(bounded(t), shell("cat /dev/zero & cat /dev/zero >&2 & cat /dev/zero"))
	if err != nil {
		return "", err
	}
	if kept := len(result.Stdout) + len(result.Stderr); kept > 2*64<<10 || result.Limit != sandbox.Output {
		return "", fmt.Errorf("%d bytes were kept: limit %q, exit %d", kept, result.Limit, result.Exit)
	}
	return fmt.Sprintf("ended with the limit %s, %d KiB kept", result.Limit, (len(result.Stdout)+len(result.Stderr))>>10), nil
}

func sharedMemory(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	remove, err := i.host.placeShared()
	defer remove()
	if err != nil {
		t.Logf("the host has no shared memory: %v", err)
	}
	return i.judged(box.Run(bounded(t), tool("shared")))
}

// settings writes a value that the host has not, and looks there.
func settings(mark string) func(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
	const path = "/proc/sys/vm/laptop_mode"
	return func(t *testing.T, i *isolation, box sandbox.Box) (string, error) {
		before, _ := os.ReadFile(path)
		name, _ := os.Hostname()
		how, err := i.judged(box.Run(bounded(t), tool("settings", "7", mark)))
		if after, _ := os.ReadFile(path); string(after) != string(before) {
			os.WriteFile(path, before, 0)
			err = errors.Join(err, fmt.Errorf("%s of the host was %q and is %q", path, before, after))
		}
		if after, _ := os.Hostname(); after != name {
			syscall.Sethostname([]byte(name))
			err = errors.Join(err, fmt.Errorf("the host's name was %q and is %q", name, after))
		}
		groups, _ := filepath.Glob("/sys/fs/cgroup/*/" + mark)
		own, _ := filepath.Glob("/sys/fs/cgroup/" + mark)
		for _, group := range append(groups, own...) {
			os.Remove(group)
			err = errors.Join(err, fmt.Errorf("the control group %s was made on the host", group))
		}
		return how, err
	}
}
