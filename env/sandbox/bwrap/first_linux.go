package bwrap

import (
	"fmt"
	"os"
	"strconv"
	"strings"
	"sync"

	"golang.org/x/sys/unix"
)

// firstProcess is a box's process 1, by a descriptor: its number may be another's by the time it is
// killed. With it the kernel ends all others of the box, and lets it go only after them.
type firstProcess struct {
	mu sync.Mutex
	fd int // 0 while there is none
}

// find looks for the only child of a bubblewrap and holds it.
func (f *firstProcess) find(bwrap int) (pid int, err error) {
	number := strconv.Itoa(bwrap)
	text, err := os.ReadFile("/proc/" + number + "/task/" + number + "/children")
	if err != nil {
		return 0, err
	}
	pid, err = strconv.Atoi(strings.TrimSpace(string(text)))
	if err != nil {
		return 0, fmt.Errorf("bwrap has the children %q, want one", text)
	}
	return pid, f.hold(pid)
}

func (f *firstProcess) hold(pid int) error {
	fd, err := unix.PidfdOpen(pid, 0)
	if err != nil {
		return fmt.Errorf("hold the box's first process: %w", err)
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.fd = fd
	return nil
}

// kill reports whether there is such a process: it was killed, or has ended.
func (f *firstProcess) kill() bool {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd > 0 {
		_ = unix.PidfdSendSignal(f.fd, unix.SIGKILL, nil, 0)
	}
	return f.fd > 0
}

// wait returns once nothing of the box runs any more, and lets go of it. It reports whether that is
// known: there was a first process, and it has ended in time. It is called once.
func (f *firstProcess) wait() bool {
	f.mu.Lock()
	fd := f.fd
	f.mu.Unlock()
	if fd <= 0 {
		return false
	}
	defer f.release()
	poll := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLIN}}
	n, err := 0, error(unix.EINTR)
	for err == unix.EINTR {
		n, err = unix.Poll(poll, int(endTime.Milliseconds()))
	}
	return n == 1
}

// release lets go of a process.
func (f *firstProcess) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	unix.Close(f.fd)
	f.fd = 0
}
