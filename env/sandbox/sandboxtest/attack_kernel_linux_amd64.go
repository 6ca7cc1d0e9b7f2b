package sandboxtest

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"unsafe"
)

// openDevices opens nodes of the host's memory and disks, those that are there and new ones.
func openDevices(args []string) {
	for _, path := range []string{"/dev/mem", "/dev/kmem", "/dev/port", "/dev/kmsg", "/dev/sda", "/dev/vda", "/dev/nvme0n1", "/dev/kvm", "/dev/vsock", "/dev/input/event0"} {
		if fd, err := syscall.Open(path, syscall.O_RDWR, 0); err == nil {
			escaped("%s was opened", path)
			syscall.Close(fd)
		}
	}
	nodes := map[string][2]uint64{"disk": {uint64(syscall.S_IFBLK), 0}, "memory": {uint64(syscall.S_IFCHR), 1<<8 | 1}, "kmsg": {uint64(syscall.S_IFCHR), 1<<8 | 11}}
	device, _ := strconv.ParseUint(args[0], 10, 64)
	nodes["disk"] = [2]uint64{uint64(syscall.S_IFBLK), device}
	for name, node := range nodes {
		for _, dir := range []string{"/work", "/tmp", "/dev"} {
			path := filepath.Join(dir, "headway-"+name)
			err := syscall.Mknod(path, uint32(node[0])|0o600, int(node[1]))
			if err == nil {
				var content []byte
				content, err = readSome(path)
				if err == nil {
					escaped("a new node of %s in %s gives %d bytes", name, dir, len(content))
				}
			}
			judge("a new node of "+name+" in "+dir, err)
		}
	}
}

// sysKeyctl and its commands, and the names of keyrings.
const (
	sysAddKey, sysRequestKey, sysKeyctl       = 248, 249, 250
	keyctlSearch, keyctlRead, keyctlDescribe  = 10, 11, 6
	ringThread, ringProcess, ringSession      = -1, -2, -3
	ringUser, ringUserSession, keyDescription = -4, -5, canary + "key"
)

// placeKey puts the secret into the keyring of the host's user, if there are keyrings.
func (h *host) placeKey(t interface {
	Logf(string, ...any)
	Cleanup(func())
}) {
	payload := []byte(h.secret)
	user := int64(ringUser)
	key, err := call(sysAddKey, text("user"), text(keyDescription), uintptr(unsafe.Pointer(&payload[0])), uintptr(len(payload)), uintptr(user))
	if err != nil {
		t.Logf("the host has no keyrings: %v", err)
		return
	}
	t.Cleanup(func() { call(sysKeyctl, 9, key, uintptr(user)) })
}

func readKeys([]string) {
	found := false
	for _, ring := range []int64{ringThread, ringProcess, ringSession, ringUser, ringUserSession} {
		key, err := call(sysKeyctl, keyctlSearch, uintptr(ring), text("user"), text(keyDescription), 0)
		if err != nil {
			continue
		}
		content := make([]byte, 256)
		n, err := call(sysKeyctl, keyctlRead, key, uintptr(unsafe.Pointer(&content[0])), uintptr(len(content)))
		if err != nil {
			escaped("a key of the host is found, and cannot be read: %v", err)
		} else {
			show("a keyring", content[:n])
		}
		found = true
	}
	if key, err := call(sysRequestKey, text("user"), text(keyDescription), 0, 0); err == nil {
		escaped("the host's key %d was had by its name", key)
		found = true
	}
	if keys, err := os.ReadFile("/proc/keys"); err == nil && strings.Contains(string(keys), keyDescription) {
		escaped("/proc/keys names the host's key")
		found = true
	}
	if !found {
		held("no key of the host is found")
	}
}

// sharedKey names the System V segment that the host has.
const sharedKey = 0x68647779

func (h *host) placeShared() (remove func(), err error) {
	segment, err := call(syscall.SYS_SHMGET, sharedKey, 4096, 0o1000|0o666)
	if err != nil {
		return func() {}, err
	}
	address, err := call(syscall.SYS_SHMAT, segment, 0, 0)
	if err != nil {
		return func() {}, err
	}
	copy(sharedBytes(address, 4096), h.secret)
	return func() {
		call(syscall.SYS_SHMDT, address)
		call(syscall.SYS_SHMCTL, segment, 0, 0)
	}, nil
}

func readShared([]string) {
	segment, err := call(syscall.SYS_SHMGET, sharedKey, 4096, 0)
	if err != nil {
		held("shmget of the host's segment: %v", err)
		return
	}
	address, err := call(syscall.SYS_SHMAT, segment, 0, 0o10000)
	if err != nil {
		escaped("the host's segment is found, and cannot be attached: %v", err)
		return
	}
	show("the host's shared memory", sharedBytes(address, 4096))
}

// sharedBytes is memory that the system placed, which no garbage collector knows.
func sharedBytes(address uintptr, n int) []byte {
	return unsafe.Slice((*byte)(*(*unsafe.Pointer)(unsafe.Pointer(&address))), n)
}

func fillShared(address uintptr, n int) {
	block := sharedBytes(address, n)
	for i := 0; i < n; i += 4096 {
		block[i] = 1
	}
}

// enterKernel tries what only the system's owner may, with arguments that do nothing.
func enterKernel([]string) {
	for _, c := range []struct {
		name   string
		number uintptr
		args   []uintptr
		passed []error
	}{
		{"init_module", syscall.SYS_INIT_MODULE, []uintptr{text("x"), 1, text("")}, []error{syscall.ENOEXEC}},
		{"kexec_load", syscall.SYS_KEXEC_LOAD, []uintptr{0, 0, 0, 0}, nil},
		{"swapon", syscall.SYS_SWAPON, []uintptr{text("/work"), 0}, []error{syscall.EINVAL}},
		{"acct", syscall.SYS_ACCT, []uintptr{0}, nil},
		{"iopl", syscall.SYS_IOPL, []uintptr{3}, nil},
		{"syslog", syscall.SYS_SYSLOG, []uintptr{2, uintptr(unsafe.Pointer(&make([]byte, 512)[0])), 512}, nil},
		{"perf_event_open of all processes", 298, []uintptr{uintptr(unsafe.Pointer(&make([]byte, 128)[0])), ^uintptr(0), 0, ^uintptr(0), 0}, nil},
		{"open_by_handle_at", 304, []uintptr{3, uintptr(unsafe.Pointer(&[4]uint32{8, 1, 2, 0})), 0}, nil},
	} {
		_, err := call(c.number, c.args...)
		for _, passed := range c.passed {
			if err == passed {
				escaped("%s was let through: %v", c.name, err)
			}
		}
		judge(c.name, err)
	}
}

// changeSettings writes to what is the host's, were it there; the host looks whether it is.
func changeSettings(args []string) {
	tried := 0
	for _, path := range []string{"/proc/sys/vm/laptop_mode", "/proc/sys/kernel/hostname"} {
		if os.WriteFile(path, []byte(args[0]), 0) == nil {
			tried++
		}
	}
	_ = syscall.Sethostname([]byte(args[1]))
	dirs, _ := filepath.Glob("/sys/fs/cgroup/*")
	for _, dir := range append(dirs, "/sys/fs/cgroup") {
		if os.Mkdir(filepath.Join(dir, args[1]), 0o755) == nil {
			tried++
		}
		if os.WriteFile(filepath.Join(dir, "release_agent"), []byte("/work/x"), 0) == nil {
			escaped("%s/release_agent was written", dir)
		}
	}
	held("%d settings could be written; the host's are as they were", tried)
}

// leaveChroot is the old way out of a root directory.
func leaveChroot(args []string) {
	_ = os.Mkdir("/work/inner", 0o755)
	here, err := syscall.Open("/", syscall.O_RDONLY, 0)
	if err != nil {
		held("/: %v", err)
		return
	}
	if err := syscall.Chroot("/work/inner"); err != nil {
		held("chroot: %v", err)
	}
	_ = syscall.Fchdir(here)
	for range 20 {
		_ = syscall.Chdir("..")
	}
	_ = syscall.Chroot(".")
	for _, path := range args {
		if content, err := readSome(path); err == nil {
			show(path, content)
		}
	}
	held("the root is the box's")
}

// runSetuid runs a copy of this program that its owner made run as root.
func runSetuid([]string) {
	before, err := exec.Command(filepath.Join(armsDir, armName), "whoami").Output()
	if err != nil {
		held("the program itself: %v", err)
	}
	after, err := exec.Command(filepath.Join(armsDir, "setuid-"+armName), "whoami").Output()
	if err != nil {
		held("the setuid program: %v", err)
		return
	}
	if string(before) != string(after) {
		escaped("a setuid program is %q, this one %q", after, before)
		return
	}
	_ = os.WriteFile("/work/own", []byte("#!/bin/sh\n"), 0o755)
	err = os.Chmod("/work/own", 0o4755|os.ModeSetuid)
	held("a setuid program may what any may: %s", strings.Join(strings.Fields(string(after)), " "))
	fmt.Println("held: its own mark:", err)
}
