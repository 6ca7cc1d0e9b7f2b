package agent

import (
	"fmt"
	"os"
	"runtime"
	"slices"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// openFiles is how many a process may have open; the agent has few.
const openFiles = 1024

// spareThreads are threads that the agent has beside those it always uses. They are there before
// the first command: one that takes all processes there may be must not keep the agent from a
// thread, which ends a Go program.
const spareThreads = 5

// Reserve is how many processes and threads of a box are the agent's and its helpers'. A driver adds it to the limit
// that it sets for all of them.
const Reserve = 16

// prepare makes the box as the client asked. The order matters: each step takes away what the one
// before it needed.
func (a *agent) prepare() (*Held, error) {
	readyThreads(spareThreads)
	if a.setup.Mount {
		if err := mountPlaces(a.setup); err != nil {
			return nil, err
		}
	}
	if err := hide(a.setup.Hide); err != nil {
		return nil, err
	}
	if !a.first {
		if err := unix.Prctl(unix.PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("become the parent of orphans: %w", err)
		}
	}
	a.oomScore, _ = os.OpenFile("/proc/self/oom_score_adj", os.O_WRONLY, 0)
	if err := a.limitSelf(); err != nil {
		return nil, err
	}
	if err := becomeUser(a.setup); err != nil {
		return nil, err
	}
	// Nobody of the same user may trace the agent or open its files by way of /proc.
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return nil, fmt.Errorf("hide the agent: %w", err)
	}
	held := &Held{First: a.first}
	if a.setup.Confine {
		if err := dropCapabilities(); err != nil {
			return nil, err
		}
		if err := unix.Prctl(unix.PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0); err != nil {
			return nil, fmt.Errorf("forbid new privileges: %w", err)
		}
		held.Seccomp = filterCalls() == nil
	}
	var err error
	held.Caps, err = capabilities()
	return held, err
}

// rlimit is a limit of the kernel's for one process, or for a user's processes.
type rlimit struct {
	name     string
	resource int
	value    uint64
}

// limitSelf sets the limits that commands inherit and cannot raise. Those of memory and processes
// count for each process and user, and stand in for a control group alone.
func (a *agent) limitSelf() error {
	l := a.setup.Limits
	limits := []rlimit{
		{"core files", unix.RLIMIT_CORE, 0},
		{"open files", unix.RLIMIT_NOFILE, openFiles},
		{"file size", unix.RLIMIT_FSIZE, uint64(l.Disk)},
	}
	if a.setup.NoCgroup || a.setup.OwnKernel {
		limits = append(limits, rlimit{"processes", unix.RLIMIT_NPROC, uint64(l.Processes + Reserve)})
	}
	for _, limit := range limits {
		var was unix.Rlimit
		if err := unix.Getrlimit(limit.resource, &was); err != nil {
			return fmt.Errorf("limit %s: %w", limit.name, err)
		}
		value := min(limit.value, was.Max)
		if err := unix.Setrlimit(limit.resource, &unix.Rlimit{Cur: value, Max: value}); err != nil {
			return fmt.Errorf("limit %s: %w", limit.name, err)
		}
	}
	return nil
}

// mountPlaces makes one file system in memory with room for the box's files, and puts each place
// where a directory of it belongs. Its own root is out of sight afterwards.
func mountPlaces(s Setup) error {
	options := fmt.Sprintf("size=%d,nr_inodes=%d,mode=0755", s.Limits.Disk, s.Limits.Files+8)
	under := s.Places.Tmp
	if err := unix.Mount("box", under, "tmpfs", unix.MS_NOSUID|unix.MS_NODEV, options); err != nil {
		return fmt.Errorf("mount the box's own files on %s: %w", under, err)
	}
	// Tmp comes last: it covers the file system that the others are taken from.
	places := s.Places.all()
	tmp := slices.IndexFunc(places, func(p place) bool { return p.at == under })
	last := places[tmp]
	places = append(slices.Delete(places, tmp, tmp+1), last)
	for _, place := range places {
		from := under + "/" + place.name
		if err := unix.Mkdir(from, 0o700); err != nil {
			return fmt.Errorf("make %s: %w", place.at, err)
		}
		if err := unix.Chmod(from, place.mode); err != nil {
			return fmt.Errorf("make %s: %w", place.at, err)
		}
		if s.User != 0 {
			if err := unix.Chown(from, s.User, s.Group); err != nil {
				return fmt.Errorf("make %s: %w", place.at, err)
			}
		}
		if err := unix.Mount(from, place.at, "", unix.MS_BIND, ""); err != nil {
			return fmt.Errorf("put %s in its place: %w", place.at, err)
		}
	}
	return nil
}

// hide covers files with the device that is empty, and directories with empty ones.
func hide(paths []string) error {
	for _, path := range paths {
		var stat unix.Stat_t
		if unix.Lstat(path, &stat) != nil {
			continue
		}
		var err error
		if stat.Mode&unix.S_IFMT == unix.S_IFDIR {
			err = unix.Mount("none", path, "tmpfs", unix.MS_RDONLY|unix.MS_NOSUID|unix.MS_NODEV, "size=4k,mode=0755")
		} else {
			err = unix.Mount("/dev/null", path, "", unix.MS_BIND, "")
		}
		if err != nil {
			return fmt.Errorf("hide %s: %w", path, err)
		}
	}
	return nil
}

// becomeUser gives up root for good, on all threads.
func becomeUser(s Setup) error {
	if s.User == 0 {
		return nil
	}
	dropBounding() // while there is the capability to
	err := syscall.Setgroups([]int{})
	if err == nil {
		err = syscall.Setresgid(s.Group, s.Group, s.Group)
	}
	if err == nil {
		err = syscall.Setresuid(s.User, s.User, s.User)
	}
	if err != nil {
		return fmt.Errorf("become user %d: %w", s.User, err)
	}
	return nil
}

// dropBounding has no program that is started get a capability again. Errors are of capabilities
// that this kernel has not, or of a user who may not: no new privileges stands in for it there.
func dropBounding() {
	for c := uintptr(0); c <= unix.CAP_LAST_CAP; c++ {
		_ = unix.Prctl(unix.PR_CAPBSET_DROP, c, 0, 0, 0)
	}
}

// dropCapabilities leaves this thread, which starts all commands, none, and no way to get any.
func dropCapabilities() error {
	if err := unix.Prctl(unix.PR_CAP_AMBIENT, unix.PR_CAP_AMBIENT_CLEAR_ALL, 0, 0, 0); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	dropBounding()
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var none [2]unix.CapUserData
	if err := unix.Capset(&header, &none[0]); err != nil {
		return fmt.Errorf("drop capabilities: %w", err)
	}
	return nil
}

// capabilities are those that this thread could use or get.
func capabilities() (uint64, error) {
	header := unix.CapUserHeader{Version: unix.LINUX_CAPABILITY_VERSION_3}
	var has [2]unix.CapUserData
	if err := unix.Capget(&header, &has[0]); err != nil {
		return 0, fmt.Errorf("read capabilities: %w", err)
	}
	return uint64(has[0].Permitted|has[0].Effective) | uint64(has[1].Permitted|has[1].Effective)<<32, nil
}

// readyThreads makes the runtime have so many threads: each is held by a goroutine until all are there.
func readyThreads(n int) {
	release := make(chan struct{})
	var begun, done sync.WaitGroup
	begun.Add(n)
	for range n {
		done.Go(func() {
			runtime.LockOSThread()
			defer runtime.UnlockOSThread()
			begun.Done()
			<-release
		})
	}
	begun.Wait()
	close(release)
	done.Wait()
}

// filterCalls refuses system calls that no program of a box needs: those that reach into other
// processes, make name spaces or mount, and large ones that defects were found in. It holds for all threads.
func filterCalls() error {
	program := callFilter()
	prog := unix.SockFprog{Len: uint16(len(program)), Filter: &program[0]}
	_, _, errno := syscall.RawSyscall(unix.SYS_SECCOMP, unix.SECCOMP_SET_MODE_FILTER, unix.SECCOMP_FILTER_FLAG_TSYNC, uintptr(unsafe.Pointer(&prog)))
	runtime.KeepAlive(program)
	if errno != 0 {
		return errno
	}
	return nil
}
