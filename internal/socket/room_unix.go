//go:build unix

package socket

import "golang.org/x/sys/unix"

// Room reports whether the kernel has room for some kilobytes to be written on a connection. Where raw, the
// runtime is not told of the question.
func Room(fd uintptr, raw bool) bool {
	if raw {
		return rawRoom(fd)
	}
	asked := []unix.PollFd{{Fd: int32(fd), Events: unix.POLLOUT}}
	n, err := unix.Poll(asked, 0)
	return err == nil && n == 1 && asked[0].Revents == unix.POLLOUT
}
