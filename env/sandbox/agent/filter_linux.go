package agent

import (
	"os"
	"runtime"
	"strconv"

	"golang.org/x/sys/unix"
)

// Offsets into what a filter is shown of a call.
const (
	callNumber = 0
	callArch   = 4
	callArgs   = 16
	x32Bit     = 0x40000000
)

// deniedCalls are refused whatever their arguments are.
var deniedCalls = append([]uint32{
	unix.SYS_PTRACE, unix.SYS_PROCESS_VM_READV, unix.SYS_PROCESS_VM_WRITEV, unix.SYS_KCMP, unix.SYS_PIDFD_GETFD,
	unix.SYS_MOUNT, unix.SYS_UMOUNT2, unix.SYS_PIVOT_ROOT, unix.SYS_CHROOT, unix.SYS_MOVE_MOUNT, unix.SYS_OPEN_TREE,
	unix.SYS_FSOPEN, unix.SYS_FSMOUNT, unix.SYS_FSCONFIG, unix.SYS_FSPICK, unix.SYS_MOUNT_SETATTR,
	unix.SYS_UNSHARE, unix.SYS_SETNS, unix.SYS_BPF, unix.SYS_PERF_EVENT_OPEN, unix.SYS_USERFAULTFD,
	unix.SYS_KEYCTL, unix.SYS_ADD_KEY, unix.SYS_REQUEST_KEY,
	unix.SYS_INIT_MODULE, unix.SYS_FINIT_MODULE, unix.SYS_DELETE_MODULE, unix.SYS_KEXEC_LOAD, unix.SYS_KEXEC_FILE_LOAD,
	unix.SYS_REBOOT, unix.SYS_SWAPON, unix.SYS_SWAPOFF, unix.SYS_ACCT, unix.SYS_SETTIMEOFDAY, unix.SYS_CLOCK_SETTIME,
	unix.SYS_CLOCK_ADJTIME, unix.SYS_SETHOSTNAME, unix.SYS_SETDOMAINNAME, unix.SYS_SYSLOG, unix.SYS_QUOTACTL,
	unix.SYS_OPEN_BY_HANDLE_AT, unix.SYS_NAME_TO_HANDLE_AT, unix.SYS_IO_URING_SETUP, unix.SYS_IO_URING_ENTER, unix.SYS_IO_URING_REGISTER,
}, deniedHere...)

// absentCalls are answered as a kernel does that lacks them: programs then use what they replaced,
// whose arguments can be seen here. A signal sent by way of a process's descriptor could also pass
// for a fault of the agent's own.
// System V's shared memory, messages and semaphores and POSIX's message queues stay when all
// processes have ended, so that a reset would hand them on; the host counts the latter by user.
var absentCalls = []uint32{
	unix.SYS_CLONE3, unix.SYS_PIDFD_SEND_SIGNAL,
	unix.SYS_SHMGET, unix.SYS_MSGGET, unix.SYS_SEMGET, unix.SYS_MQ_OPEN,
}

// A deniedArg refuses a call where an argument's low half is the value, or has any bit of the mask.
type deniedArg struct {
	call  uint32
	arg   uint32
	value uint32
	mask  bool
}

// deniedArgs: name spaces, terminals, and what would change the agent, which is process 1.
var deniedArgs = []deniedArg{
	{call: unix.SYS_CLONE, arg: 0, mask: true, value: unix.CLONE_NEWUSER | unix.CLONE_NEWNS | unix.CLONE_NEWPID | unix.CLONE_NEWNET |
		unix.CLONE_NEWIPC | unix.CLONE_NEWUTS | unix.CLONE_NEWCGROUP},
	{call: unix.SYS_IOCTL, arg: 1, value: unix.TIOCSTI},
	{call: unix.SYS_FCNTL, arg: 1, value: unix.F_SETSIG},
	{call: unix.SYS_SETPRIORITY, arg: 0, value: unix.PRIO_PGRP},
	{call: unix.SYS_SETPRIORITY, arg: 0, value: unix.PRIO_USER},
	{call: unix.SYS_IOPRIO_SET, arg: 0, value: ioprioGroup},
	{call: unix.SYS_IOPRIO_SET, arg: 0, value: ioprioUser},
}

// families are those of sockets that may be made. Others are large, and not all of them know name
// spaces: by AF_VSOCK a program reaches the machine that the host itself runs on.
var families = []uint32{unix.AF_UNIX, unix.AF_INET, unix.AF_INET6, unix.AF_NETLINK}

// The kernel's names of whom ioprio_set means, beside a process (1).
const (
	ioprioGroup = 2
	ioprioUser  = 3
)

// A taskCall acts on the task whose number is an argument.
type taskCall struct{ call, arg uint32 }

// taskCalls send a signal to a task, or change how it is run. The kernel spares the first process of
// a name space from signals; that of gVisor spares it from kill(-1) alone, and a program that could
// end its box could have its answer passed for one that was lost. An agent that is run last, or on
// one processor, stays so after a reset, and with it all that it starts.
var taskCalls = []taskCall{
	{unix.SYS_KILL, 0}, {unix.SYS_TKILL, 0}, {unix.SYS_TGKILL, 0}, {unix.SYS_RT_SIGQUEUEINFO, 0}, {unix.SYS_RT_TGSIGQUEUEINFO, 0},
	{unix.SYS_PRLIMIT64, 0}, {unix.SYS_SETPRIORITY, 1}, {unix.SYS_IOPRIO_SET, 1},
	{unix.SYS_SCHED_SETAFFINITY, 0}, {unix.SYS_SCHED_SETSCHEDULER, 0}, {unix.SYS_SCHED_SETPARAM, 0}, {unix.SYS_SCHED_SETATTR, 0},
}

// lastTask is the highest number of the agent's threads, 0 where it is not the first process: what
// commands start has higher ones.
func lastTask() uint32 {
	tasks, err := os.ReadDir("/proc/self/task")
	if os.Getpid() != 1 || err != nil {
		return 0
	}
	last := uint64(1)
	for _, task := range tasks {
		if n, err := strconv.ParseUint(task.Name(), 10, 32); err == nil {
			last = max(last, n)
		}
	}
	return uint32(last)
}

func callFilter() []unix.SockFilter {
	const (
		refuse = unix.SECCOMP_RET_ERRNO | uint32(unix.EPERM)
		absent = unix.SECCOMP_RET_ERRNO | uint32(unix.ENOSYS)
	)
	load := func(at uint32) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_LD | unix.BPF_W | unix.BPF_ABS, K: at}
	}
	// unless skips so many instructions where the comparison fails.
	unless := func(how uint16, k uint32, skip uint8) unix.SockFilter {
		return unix.SockFilter{Code: unix.BPF_JMP | how | unix.BPF_K, Jf: skip, K: k}
	}
	answer := func(with uint32) unix.SockFilter { return unix.SockFilter{Code: unix.BPF_RET | unix.BPF_K, K: with} }

	program := []unix.SockFilter{
		load(callArch),
		{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: auditArch},
		answer(absent), // calls of another architecture
		load(callNumber),
	}
	if runtime.GOARCH == "amd64" {
		program = append(program, unless(unix.BPF_JSET, x32Bit, 1), answer(absent))
	}
	for _, call := range deniedCalls {
		program = append(program, unless(unix.BPF_JEQ, call, 1), answer(refuse))
	}
	for _, call := range absentCalls {
		program = append(program, unless(unix.BPF_JEQ, call, 1), answer(absent))
	}
	for _, d := range deniedArgs {
		how := uint16(unix.BPF_JEQ)
		if d.mask {
			how = unix.BPF_JSET
		}
		program = append(program,
			unless(unix.BPF_JEQ, d.call, 4),
			load(callArgs+8*d.arg), // both architectures have the low half first
			unless(how, d.value, 1),
			answer(refuse),
			load(callNumber))
	}
	program = append(program, unless(unix.BPF_JEQ, unix.SYS_SOCKET, uint8(len(families)+3)), load(callArgs))
	for i, family := range families { // one that may be made jumps over the refusal
		program = append(program, unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: uint8(len(families) - i), K: family})
	}
	program = append(program, answer(unix.SECCOMP_RET_ERRNO|uint32(unix.EAFNOSUPPORT)), load(callNumber))
	for last, i := lastTask(), 0; last > 0 && i < len(taskCalls); i++ {
		program = append(program,
			unless(unix.BPF_JEQ, taskCalls[i].call, 5),
			load(callArgs+8*taskCalls[i].arg),
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JGT | unix.BPF_K, Jt: 2, K: last}, // also what is negative
			unix.SockFilter{Code: unix.BPF_JMP | unix.BPF_JEQ | unix.BPF_K, Jt: 1, K: 0},
			answer(refuse),
			load(callNumber))
	}
	return append(program, answer(unix.SECCOMP_RET_ALLOW))
}
