//go:build unix

package machine

import "golang.org/x/sys/unix"

// descriptorsMost is reckoned with where there is no limit, or one that no process reaches.
const descriptorsMost = 1 << 20

// Descriptors is how many files and connections this process may have open. Go's runtime has raised it
// to what the system allows.
func Descriptors() int {
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		return 1024
	}
	return int(min(uint64(limit.Cur), descriptorsMost)) // signed on some systems
}
