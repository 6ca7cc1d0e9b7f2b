//go:build linux || darwin || freebsd

package file

import "syscall"

// Free returns the bytes that this user may still write to the file system of a directory, -1 where
// nobody knows.
func Free(dir string) int64 {
	var s syscall.Statfs_t
	if syscall.Statfs(dir, &s) != nil {
		return -1
	}
	return int64(s.Bavail) * int64(s.Bsize)
}
