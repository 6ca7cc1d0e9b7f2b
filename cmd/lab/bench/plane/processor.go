package plane

import (
	"fmt"
	"os"
	"strconv"
	"strings"
)

// ProcessorTime is what a process and all its threads have used, in seconds.
func ProcessorTime(pid int) (float64, error) {
	if pid == 0 { // no process
		return 0, nil
	}
	sum := 0.0
	pids := []int{pid}
	for len(pids) > 0 {
		p := pids[0]
		pids = pids[1:]
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p))
		if err != nil {
			return 0, err
		}
		_, rest, _ := strings.Cut(string(text), ") ")
		fields := strings.Fields(rest)
		for _, f := range fields[11:13] { // utime and stime, in hundredths
			n, err := strconv.ParseFloat(f, 64)
			if err != nil {
				return 0, err
			}
			sum += n / 100
		}
		children, err := os.ReadFile(fmt.Sprintf("/proc/%d/task/%d/children", p, p))
		if err != nil {
			continue
		}
		for _, c := range strings.Fields(string(children)) {
			n, _ := strconv.Atoi(c)
			pids = append(pids, n)
		}
	}
	return sum, nil
}
