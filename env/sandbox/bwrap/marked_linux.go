package bwrap

import (
	"bytes"
	"fmt"
	"os"
	"strconv"
	"time"

	"golang.org/x/sys/unix"
)

// markName is a variable that bubblewrap is told to set, by whose value its processes are known: one
// that was killed as it started may leave a child that waits for it, and that no other sign is on.
const markName = "HEADWAY_BOX"

// marked are the processes of a bubblewrap that has a mark, but for those that have ended and are
// not reaped yet.
func marked(mark string) []int {
	entries, _ := os.ReadDir("/proc")
	word := []byte("\x00" + markName + "\x00" + mark + "\x00")
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid <= 1 {
			continue
		}
		if line, err := os.ReadFile("/proc/" + entry.Name() + "/cmdline"); err == nil && bytes.Contains(line, word) {
			pids = append(pids, pid)
		}
	}
	return pids
}

// endMarked kills them until there are none.
func endMarked(mark string) error {
	for end := time.Now().Add(endTime); ; time.Sleep(time.Millisecond) {
		pids := marked(mark)
		if len(pids) == 0 {
			return nil
		}
		if time.Now().After(end) {
			return fmt.Errorf("the processes %v of bwrap were killed and have not ended", pids)
		}
		for _, pid := range pids {
			_ = unix.Kill(pid, unix.SIGKILL)
		}
	}
}
