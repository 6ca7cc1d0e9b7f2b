//go:build unix

package private

import (
	"os"
	"syscall"
)

// foreignOwner returns the user that a directory or link belongs to, and whether that is neither this process nor root.
// Some file systems call this process by another number, as NFS does root: there its new files show it.
func foreignOwner(dir string, info os.FileInfo) (user int, foreign bool) {
	stat, ok := info.Sys().(*syscall.Stat_t)
	if !ok || stat.Uid == 0 || int(stat.Uid) == os.Geteuid() {
		return 0, false
	}
	user = int(stat.Uid)
	probe, err := os.CreateTemp(dir, ".owner-*")
	if err != nil {
		return user, true
	}
	defer os.Remove(probe.Name())
	defer probe.Close()
	made, err := probe.Stat()
	if err != nil {
		return user, true
	}
	own, ok := made.Sys().(*syscall.Stat_t)
	return user, !ok || own.Uid != stat.Uid
}
