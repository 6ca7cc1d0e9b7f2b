package runsc

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/headway-rl/headway/sandbox"
)

// A box's processes on the host are runsc itself, its kernel, what reads files for that, and the
// stubs that the box's programs are in. The first three name the box's directory in their
// arguments, and the stubs end with the kernel.

// processes of a box.
func (d *Driver) processes(id sandbox.ID) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	mark := []byte("=" + d.places.Path(id) + "\x00")
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil {
			continue
		}
		if line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline"); err == nil && bytes.Contains(line, mark) {
			pids = append(pids, pid)
		}
	}
	return pids, nil
}

// kill kills them, and what else is in the box's control group.
func (d *Driver) kill(id sandbox.ID) {
	d.groups.Open(id).Kill()
	pids, _ := d.processes(id)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// sweepEvery is how often it is looked whether killed processes are gone.
const sweepEvery = 5 * time.Millisecond

// sweep kills what there is of a box, waits for its end, and removes its group and what gVisor
// noted of it.
func (d *Driver) sweep(ctx context.Context, id sandbox.ID) error {
	group := d.groups.Open(id)
	group.Kill()
	for {
		pids, err := d.processes(id)
		if err != nil {
			return err
		}
		if len(pids) == 0 {
			break
		}
		for _, pid := range pids {
			_ = syscall.Kill(pid, syscall.SIGKILL)
		}
		select {
		case <-time.After(sweepEvery):
		case <-ctx.Done():
			return fmt.Errorf("processes %v of the box were killed and have not ended: %w", pids, context.Cause(ctx))
		}
	}
	failures := []error{group.Remove()}
	notes, err := os.ReadDir(d.notes)
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		failures = append(failures, err)
	}
	for _, note := range notes {
		// ID_sandbox:ID.state and the like, and runsc-ID.sock.
		if of(note.Name(), string(id)) {
			failures = append(failures, os.RemoveAll(filepath.Join(d.notes, note.Name())))
		}
	}
	return errors.Join(failures...)
}

// of reports whether a file's name has the box's as a whole: x.1 is not of x.10.
func of(name, id string) bool {
	for {
		i := strings.Index(name, id)
		if i < 0 {
			return false
		}
		end := i + len(id)
		if (i == 0 || !inName(name[i-1])) && (end == len(name) || !inName(name[end]) || strings.HasPrefix(name[end:], ".sock") || strings.HasPrefix(name[end:], ".state") || strings.HasPrefix(name[end:], ".lock")) {
			return true
		}
		name = name[end:]
	}
}

// inName reports whether a byte may be part of a box's name; runsc writes "runsc-" before it.
func inName(c byte) bool {
	return c == '.' || '0' <= c && c <= '9' || 'a' <= c && c <= 'z' || 'A' <= c && c <= 'Z'
}
