package sandboxtest

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"unsafe"
)

// init makes the test's own binary the program of the attacks, or the victim on the host.
func init() {
	if len(os.Args) < 2 {
		return
	}
	switch strings.TrimPrefix(filepath.Base(os.Args[0]), "setuid-") {
	case victimName:
		_, _ = io.Copy(io.Discard, os.Stdin)
		os.Exit(0)
	case armName:
		tools[os.Args[1]](os.Args[2:])
		os.Exit(0)
	}
}

// tools are what needs system calls; the rest of the attacks are scripts.
var tools = map[string]func(args []string){
	"search": search, "processes": lookAtProcesses, "connect": connect, "raw-sockets": rawSockets,
	"memory": takeMemory, "memory-files": takeMemoryFiles, "files": makeFiles, "disk": fillDisk,
	"signals": signal, "ptrace": ptrace, "pipes": writePipes, "clock": setClock, "mount": mount, "devices": openDevices,
	"keys": readKeys, "shared": readShared, "kernel": enterKernel, "settings": changeSettings,
	"chroot": leaveChroot, "whoami": whoAmI, "setuid": runSetuid, "gain": gainCapabilities,
}

func held(format string, args ...any)    { fmt.Printf("held: "+format+"\n", args...) }
func escaped(format string, args ...any) { fmt.Printf("escaped: "+format+"\n", args...) }

// judge prints what became of a call that must not go well.
func judge(what string, err error) {
	if err == nil {
		escaped("%s went well", what)
		return
	}
	held("%s: %v", what, err)
}

// call is a system call that may go wrong.
func call(number uintptr, args ...uintptr) (uintptr, error) {
	args = append(args, 0, 0, 0, 0, 0, 0)
	result, _, errno := syscall.Syscall6(number, args[0], args[1], args[2], args[3], args[4], args[5])
	if errno != 0 {
		return result, errno
	}
	return result, nil
}

func text(s string) uintptr { return uintptr(unsafe.Pointer(unsafe.StringData(s + "\x00"))) }

// show prints what has a canary in it.
func show(where string, content []byte) bool {
	i := strings.Index(string(content), canary)
	if i < 0 {
		return false
	}
	end := min(len(content), i+80)
	fmt.Printf("escaped: %s has %q\n", where, content[i:end])
	return true
}

// readSome reads the beginning of what may be anything, without waiting for a pipe's writer.
func readSome(path string) ([]byte, error) {
	fd, err := syscall.Open(path, syscall.O_RDONLY|syscall.O_NONBLOCK|syscall.O_CLOEXEC, 0)
	if err != nil {
		return nil, err
	}
	defer syscall.Close(fd)
	buffer := make([]byte, 1<<16)
	n, err := syscall.Read(fd, buffer)
	return buffer[:max(n, 0)], err
}

// search looks for the secret in the files that are named and in all that can be listed, but for
// the host's programs, which boxes are given.
func search(args []string) {
	seen, found := 0, false
	look := func(path string) {
		if content, err := readSome(path); err == nil {
			seen++
			found = show(path, content) || found
		}
	}
	for _, path := range args {
		for _, prefix := range []string{"", "/proc/self/root", "/proc/1/root", "/proc/self/cwd/../../../../../..", "/work/../../../../..", "/proc/self/fd/../../../.."} {
			look(prefix + path)
		}
	}
	if shadow, err := readSome("/etc/shadow"); err == nil && strings.Contains(string(shadow), ":") {
		escaped("/etc/shadow has %.40q", shadow)
	}
	listed := 0
	_ = filepath.WalkDir("/", func(path string, entry os.DirEntry, err error) error {
		if err != nil {
			return nil
		}
		if strings.HasPrefix(entry.Name(), placed) {
			escaped("%s is there", path)
		}
		if entry.IsDir() && slices.Contains([]string{"/proc", "/sys", "/usr", armsDir}, path) {
			return filepath.SkipDir
		}
		listed++
		if info, err := entry.Info(); err == nil && info.Mode().IsRegular() && info.Size() < 1<<16 {
			look(path)
		}
		return nil
	})
	if !found {
		held("%d paths were listed, %d files read, none is the host's data", listed, seen)
	}
}

// lookAtProcesses reads what /proc has of all processes and of the kernel.
func lookAtProcesses(args []string) {
	found, read := false, 0
	dirs, _ := filepath.Glob("/proc/[0-9]*")
	for _, dir := range append(dirs, "/proc/"+args[0], "/proc/self/task/"+args[0]) {
		for _, name := range []string{"cmdline", "environ", "root/etc/shadow", "root" + args[1], "cwd" + args[1], "mounts", "mem"} {
			if content, err := readSome(dir + "/" + name); err == nil {
				read++
				found = show(dir+"/"+name, content) || found
			}
		}
	}
	if _, err := os.Stat("/proc/" + args[0] + "/" + "cmdline"); err == nil {
		if line, _ := os.ReadFile("/proc/" + args[0] + "/cmdline"); strings.HasPrefix(string(line), victimName) {
			escaped("process %s of the host is seen", args[0])
			found = true
		}
	}
	if core, err := readSome("/proc/kcore"); err == nil && len(core) > 4096 {
		escaped("/proc/kcore gives %d bytes", len(core))
		found = true
	}
	if !found {
		held("%d processes are seen, %d of their files read, none has the secret", len(dirs), read)
	}
	file, err := os.OpenFile("/proc/sysrq-trigger", os.O_WRONLY, 0)
	if err == nil {
		_, err = file.WriteString("h") // prints help, nothing else
	}
	judge("/proc/sysrq-trigger", err)
}

// whoAmI prints what a program may, for runSetuid to compare.
func whoAmI([]string) {
	status, _ := os.ReadFile("/proc/self/status")
	for line := range strings.Lines(string(status)) {
		for _, field := range []string{"CapEff:", "CapPrm:", "Uid:", "Gid:"} {
			if strings.HasPrefix(line, field) {
				fmt.Print(line)
			}
		}
	}
}
