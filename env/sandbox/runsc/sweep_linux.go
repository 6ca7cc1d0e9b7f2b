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

	"github.com/headway-rl/headway/env/sandbox/host"
)

// A box's processes on the host are runsc itself, its kernel, what reads files for that, and the
// stubs that the box's programs are in. The first three name the box's directory in their
// arguments, and the stubs end with the kernel.

// processes of a box.
func (d *Driver) processes(box *host.Entry) ([]int, error) {
	entries, err := os.ReadDir("/proc")
	if err != nil {
		return nil, err
	}
	mark := []byte("=" + bundleDir(box) + "\x00")
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
func (d *Driver) kill(box *host.Entry) {
	d.groups.Open(box.Name()).Kill()
	pids, _ := d.processes(box)
	for _, pid := range pids {
		_ = syscall.Kill(pid, syscall.SIGKILL)
	}
}

// sweepEvery is how soon it is looked whether killed processes are gone, and later ever more seldom.
const sweepEvery = 5 * time.Millisecond

// sweepTime bounds how long the kernel is waited for.
const sweepTime = 20 * time.Second

// sweep kills what there is of a box, waits for its end, and removes its group and what gVisor
// noted of it. It gives up on what the kernel does not let go of.
func (d *Driver) sweep(ctx context.Context, box *host.Entry) error {
	ctx, cancel := context.WithTimeout(ctx, sweepTime)
	defer cancel()
	group := d.groups.Open(box.Name())
	group.Kill()
	pause := sweepEvery
	for {
		pids, err := d.processes(box)
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
		case <-time.After(pause):
			pause = min(2*pause, time.Second)
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
		// TOKEN_sandbox:TOKEN.state and the like, and runsc-TOKEN.sock.
		if box.Token != "" && strings.Contains(note.Name(), box.Token) {
			failures = append(failures, os.RemoveAll(filepath.Join(d.notes, note.Name())))
		}
	}
	return errors.Join(failures...)
}
