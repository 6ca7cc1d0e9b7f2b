package agent

import (
	"errors"
	"fmt"
	"os"
	"syscall"
	"time"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/env/sandbox"
)

// drain reads what a command writes to one stream, keeps the beginning and throws the rest away.
type drain struct {
	pipe  *os.File
	limit int64
	over  chan<- struct{} // told when the command has written outputFactor times the limit
	kept  []byte
	cut   bool
	done  chan struct{}
}

// newDrain returns a drain and the end of its pipe that the command writes to.
func newDrain(limit int64, over chan<- struct{}) (*drain, int, error) {
	var ends [2]int
	if err := syscall.Pipe2(ends[:], syscall.O_CLOEXEC); err != nil {
		return nil, 0, err
	}
	if err := syscall.SetNonblock(ends[0], true); err != nil {
		return nil, 0, err
	}
	pipe := os.NewFile(uintptr(ends[0]), "output")
	return &drain{pipe: pipe, limit: limit, over: over, done: make(chan struct{})}, ends[1], nil
}

func (d *drain) read() {
	defer close(d.done)
	defer d.pipe.Close()
	buf := make([]byte, 64<<10)
	total, told := int64(0), false
	for {
		n, err := d.pipe.Read(buf)
		if room := d.limit - int64(len(d.kept)); int64(n) > room {
			d.kept, d.cut = append(d.kept, buf[:room]...), true
		} else {
			d.kept = append(d.kept, buf[:n]...)
		}
		total += int64(n)
		if total/outputFactor >= d.limit && total > d.limit && !told {
			told = true
			d.over <- struct{}{}
		}
		if err != nil {
			return
		}
	}
}

// wait returns once all was read. All that could write has ended; where the box is no boundary
// somebody outside may hold the pipe, and is not waited for.
func (d *drain) wait() {
	_ = d.pipe.SetReadDeadline(time.Now().Add(time.Second))
	<-d.done
}

// abandon closes a drain that nothing was started for.
func (d *drain) abandon() { d.pipe.Close() }

// notBegun is the result of a command whose program did not start, in the words and numbers of a shell.
func notBegun(exit int, limit sandbox.Class, format string, args ...any) *sandbox.Result {
	return &sandbox.Result{Exit: exit, Limit: limit, Stderr: fmt.Appendf(nil, format+"\n", args...)}
}

func exitOf(err error) int {
	if errors.Is(err, syscall.ENOENT) {
		return 127
	}
	return 126
}

func limitOf(err error) sandbox.Class {
	switch {
	case errors.Is(err, syscall.EAGAIN):
		return sandbox.Processes
	case errors.Is(err, syscall.ENOMEM):
		return sandbox.OutOfMemory
	}
	return ""
}

// full reports whether the box's own file system has no room or no file left.
func (a *agent) full() bool {
	if !a.setup.Mount {
		return false
	}
	var s unix.Statfs_t
	if unix.Statfs(a.setup.Places.Work, &s) != nil {
		return false
	}
	return s.Bfree == 0 || s.Files > 0 && s.Ffree == 0
}
