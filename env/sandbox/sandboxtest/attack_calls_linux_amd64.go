package sandboxtest

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"
	"unsafe"
)

// connect tries every address of the host that it is told.
func connect(args []string) {
	reached := 0
	for _, arg := range args {
		network, address, _ := strings.Cut(arg, " ")
		c, err := net.DialTimeout(network, address, 2*time.Second)
		if err != nil {
			continue
		}
		if network == "udp" {
			// Nothing says that it arrived: the host counts.
			c.Write([]byte("x"))
			c.Close()
			continue
		}
		reached++
		answer, _ := io.ReadAll(c)
		show(arg, answer)
		escaped("%s was reached", arg)
		c.Close()
	}
	if reached == 0 {
		held("none of %d addresses was reached", len(args))
	}
	interfaces, _ := net.Interfaces()
	for _, i := range interfaces {
		if i.Flags&net.FlagLoopback == 0 && i.Flags&net.FlagUp != 0 {
			escaped("the interface %s is up", i.Name)
		}
	}
	held("%d interfaces, none but loopback is up", len(interfaces))
}

func rawSockets([]string) {
	for what, domain := range map[string][3]int{
		"a packet socket on an interface": {syscall.AF_PACKET, syscall.SOCK_RAW, 0x300},
		"a vsock":                         {40, syscall.SOCK_STREAM, 0},
	} {
		fd, err := syscall.Socket(domain[0], domain[1], domain[2])
		if err == nil && domain[0] == syscall.AF_PACKET {
			// It may be had in a network of one's own, where only loopback is heard.
			syscall.SetsockoptTimeval(fd, syscall.SOL_SOCKET, syscall.SO_RCVTIMEO, &syscall.Timeval{Usec: 200000})
			var heard int
			heard, _, err = syscall.Recvfrom(fd, make([]byte, 2048), 0)
			if err == nil {
				escaped("%s: %d bytes heard", what, heard)
				continue
			}
		} else if err == nil && domain[0] == 40 {
			// The machine that this one runs on answers at 2.
			address := []byte{40, 0, 0, 0, 22, 0, 0, 0, 2, 0, 0, 0, 0, 0, 0, 0}
			_, err = call(syscall.SYS_CONNECT, uintptr(fd), uintptr(unsafe.Pointer(&address[0])), 16)
			if err == syscall.ECONNRESET || err == syscall.ECONNREFUSED {
				escaped("%s: the machine that this one runs on answers: %v", what, err)
			}
		}
		judge(what, err)
	}
}

// signal aims at everything, at the first process, and at one of the host.
func signal(args []string) {
	victim, _ := strconv.Atoi(args[0])
	if syscall.Kill(victim, 0) == nil {
		if line, _ := os.ReadFile("/proc/" + args[0] + "/cmdline"); strings.HasPrefix(string(line), victimName) {
			escaped("process %s of the host can be signalled", args[0])
		}
	}
	_ = syscall.Kill(victim, syscall.SIGKILL) // the host looks whether it lives
	signals := []syscall.Signal{syscall.SIGSTOP, syscall.SIGTERM, syscall.SIGHUP, syscall.SIGINT, syscall.SIGPIPE, syscall.SIGUSR1, syscall.SIGQUIT, syscall.SIGSEGV, syscall.SIGKILL}
	own := os.Getpid()
	for task := 1; task < min(own, 64); task++ {
		for _, s := range signals {
			_ = syscall.Kill(task, s)
			call(syscall.SYS_TKILL, uintptr(task), uintptr(s))
			call(syscall.SYS_TGKILL, 1, uintptr(task), uintptr(s))
		}
	}
	held("signals to %s, to the first process and its threads, and to all", args[0])
	_ = syscall.Kill(-1, syscall.SIGKILL)
}

func ptrace(args []string) {
	victim, _ := strconv.Atoi(args[0])
	for what, pid := range map[string]int{"the first process": 1, "a process of the host": victim} {
		_, err := call(syscall.SYS_PTRACE, syscall.PTRACE_ATTACH, uintptr(pid))
		judge("ptrace of "+what, err)
		var local, remote [2]uintptr
		content := make([]byte, 16)
		local = [2]uintptr{uintptr(unsafe.Pointer(&content[0])), 16}
		remote = [2]uintptr{0x400000, 16}
		_, err = call(310, uintptr(pid), uintptr(unsafe.Pointer(&local)), 1, uintptr(unsafe.Pointer(&remote)), 1)
		if err != syscall.EFAULT {
			judge("reading the memory of "+what, err)
		} else {
			escaped("the memory of %s can be read", what)
		}
	}
	for _, name := range []string{"/proc/1/mem", "/proc/1/environ", "/proc/1/maps", "/proc/1/auxv"} {
		flag := os.O_RDONLY
		if name == "/proc/1/mem" {
			flag = os.O_RDWR
		}
		file, err := os.OpenFile(name, flag, 0)
		if err == nil && name != "/proc/1/mem" {
			// What is there to open may still say nothing.
			content, _ := io.ReadAll(file)
			if show(name, content) {
				continue
			}
			held("%s: %d bytes", name, len(content))
			continue
		}
		judge(name, err)
	}
}

// writePipes writes to whatever the first process has open.
func writePipes([]string) {
	entries, err := os.ReadDir("/proc/1/fd")
	if err != nil {
		held("/proc/1/fd: %v", err)
	}
	names := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "9"}
	for _, entry := range entries {
		if !slices.Contains(names, entry.Name()) {
			names = append(names, entry.Name())
		}
	}
	reached := 0
	for _, name := range names {
		fd, err := syscall.Open("/proc/1/fd/"+name, syscall.O_WRONLY|syscall.O_NONBLOCK, 0)
		if err != nil {
			continue
		}
		target, _ := os.Readlink("/proc/1/fd/" + name)
		if strings.HasPrefix(target, "pipe:") || strings.HasPrefix(target, "socket:") || strings.HasPrefix(target, "host:") {
			_, err = syscall.Write(fd, slices.Repeat([]byte("\x00\x00\x00\x01x"), 100))
			escaped("%s of the first process can be written: %v", target, err)
			reached++
		}
		syscall.Close(fd)
	}
	if pidfd, err := call(434, 1); err == nil {
		for fd := range uintptr(10) {
			if _, err := call(438, pidfd, fd); err == nil {
				escaped("descriptor %d of the first process was taken", fd)
				reached++
			}
		}
	}
	if reached == 0 {
		held("none of %d descriptors of the first process could be had", len(names))
	}
}

func setClock([]string) {
	var now syscall.Timespec
	for _, clock := range []uintptr{0, 1, 7} {
		if _, err := call(syscall.SYS_CLOCK_GETTIME, clock, uintptr(unsafe.Pointer(&now))); err != nil {
			continue
		}
		_, err := call(syscall.SYS_CLOCK_SETTIME, clock, uintptr(unsafe.Pointer(&now)))
		judge(fmt.Sprintf("clock_settime of clock %d", clock), err)
	}
	var value syscall.Timeval
	_ = syscall.Gettimeofday(&value)
	judge("settimeofday", syscall.Settimeofday(&value))
	change := syscall.Timex{Modes: 0x2, Freq: 0}
	_, err := syscall.Adjtimex(&change)
	judge("adjtimex", err)
}

// mount tries to make what is read-only writable, and to see the host's files again.
func mount(args []string) {
	_ = os.MkdirAll("/work/m", 0o755)
	attempts := func(where string) {
		for what, err := range map[string]error{
			"remounting / writable":    syscall.Mount("", "/", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""),
			"remounting /usr writable": syscall.Mount("", "/usr", "", syscall.MS_REMOUNT|syscall.MS_BIND, ""),
			"remounting arms writable": syscall.Mount("", armsDir, "", syscall.MS_REMOUNT|syscall.MS_BIND, ""),
		} {
			held("%s%s: %v", where, what, err)
		}
		for _, dir := range []string{"/usr", armsDir} {
			if os.WriteFile(filepath.Join(dir, args[0]), []byte("x"), 0o644) == nil {
				escaped("%sa file was written to %s", where, dir)
			}
		}
		for _, kind := range []string{"proc", "sysfs", "devtmpfs", "cgroup", "cgroup2"} {
			if err := syscall.Mount(kind, "/work/m", kind, 0, ""); err == nil {
				for _, name := range []string{"kmsg", "mem", "1/root" + args[1], "sysrq-trigger"} {
					if content, err := readSome("/work/m/" + name); err == nil && len(content) > 0 {
						escaped("%s%s of a %s has %.40q", where, name, kind, content)
					}
				}
				_ = syscall.Unmount("/work/m", syscall.MNT_DETACH)
			}
		}
	}
	attempts("")
	if err := syscall.Unmount("/proc", syscall.MNT_DETACH); err == nil {
		held("/proc can be taken away")
	}
	if err := syscall.Unshare(syscall.CLONE_NEWNS); err == nil {
		attempts("in a view of its own: ")
	}
	// A user namespace may only be left by one thread alone, so another program has it.
	again := exec.Command("/proc/self/exe", args...)
	again.Args = append([]string{armName, "gain"}, args...)
	again.SysProcAttr = &syscall.SysProcAttr{Cloneflags: syscall.CLONE_NEWUSER | syscall.CLONE_NEWNS,
		UidMappings: []syscall.SysProcIDMap{{HostID: os.Getuid(), Size: 1}}, GidMappings: []syscall.SysProcIDMap{{HostID: os.Getgid(), Size: 1}}}
	said, err := again.CombinedOutput()
	fmt.Printf("%s", said)
	if err != nil {
		held("a user namespace: %v", err)
	}
}

// gainCapabilities is what mount starts in a user namespace of its own.
func gainCapabilities(args []string) {
	for _, dir := range []string{"/usr", armsDir} {
		_ = syscall.Mount("", dir, "", syscall.MS_REMOUNT|syscall.MS_BIND, "")
		if os.WriteFile(filepath.Join(dir, args[0]), []byte("x"), 0o644) == nil {
			escaped("in a user namespace a file was written to %s", dir)
		}
	}
	if err := syscall.Mount("/", "/work/m", "", syscall.MS_BIND|syscall.MS_REC, ""); err == nil {
		if content, err := readSome("/work/m" + args[1]); err == nil {
			show("a second view of /", content)
		}
	}
	held("a user namespace gives nothing of the host")
}
