//go:build unix && (!linux || race)

package socket

func rawRoom(fd uintptr) bool { return Room(fd, false) }
