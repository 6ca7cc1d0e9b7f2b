package process

import (
	"bytes"
	"os"
	"strconv"
)

// marked are the processes of a box, found by their environment, but for those that have ended and
// are not reaped yet.
func marked(home string) []int {
	entries, _ := os.ReadDir("/proc")
	mark := []byte("HOME=" + home)
	var pids []int
	for _, entry := range entries {
		pid, err := strconv.Atoi(entry.Name())
		if err != nil || pid <= 1 || pid == os.Getpid() {
			continue
		}
		env, err := os.ReadFile("/proc/" + entry.Name() + "/environ") // of a zombie it is empty
		if err != nil {
			continue
		}
		for variable := range bytes.SplitSeq(env, []byte{0}) {
			if bytes.Equal(variable, mark) {
				pids = append(pids, pid)
				break
			}
		}
	}
	return pids
}
