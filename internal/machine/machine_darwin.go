package machine

import "golang.org/x/sys/unix"

// systemMemory is the machine's, 0 if it does not say.
func systemMemory() int64 {
	n, err := unix.SysctlUint64("hw.memsize")
	if err != nil {
		return 0
	}
	return int64(n)
}
