//go:build linux || darwin || freebsd

package weights

import "syscall"

// Free asks the file system for the room that this user may fill.
func Free(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
