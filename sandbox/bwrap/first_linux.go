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

func (f *firstProcess) kill() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd > 0 {
		_ = unix.PidfdSendSignal(f.fd, unix.SIGKILL, nil, 0)
	}
}

// wait returns once nothing of the box runs any more, and lets go of it.
func (f *firstProcess) wait() {
	f.mu.Lock()
	defer f.mu.Unlock()
	if f.fd <= 0 {
		return
	}
	poll := []unix.PollFd{{Fd: int32(f.fd), Events: unix.POLLIN}}
	for {
		if _, err := unix.Poll(poll, int(endTime.Milliseconds())); err != unix.EINTR {
			break
		}
	}
	unix.Close(f.fd)
	f.fd = 0
}

// release lets go of a process that is another's.
func (f *firstProcess) release() {
	f.mu.Lock()
	defer f.mu.Unlock()
	unix.Close(f.fd)
	f.fd = 0
}
