package agent

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"

	"golang.org/x/sys/unix"

	"github.com/headway-rl/headway/env/sandbox"
)

// place is where a path of the box is for the agent: the same, unless the box has no view of its own.
func (a *agent) place(path string) string {
	if !a.setup.Places.Named {
		return path
	}
	for _, p := range []struct{ box, here string }{{sandbox.Work, a.setup.Places.Work}, {"/tmp", a.setup.Places.Tmp}} {
		if rest, ok := strings.CutPrefix(path, p.box); ok && (rest == "" || rest[0] == '/') {
			return p.here + rest
		}
	}
	return path
}

// openPlain opens a plain file, and neither waits for nor touches what is none.
func openPlain(path string, flags int, mode uint32) (*os.File, *fault) {
	fd, err := unix.Open(path, flags|unix.O_NONBLOCK|unix.O_NOCTTY|unix.O_CLOEXEC, mode)
	if err != nil {
		return nil, faultOf(path, err)
	}
	var stat unix.Stat_t
	var system unix.Statfs_t
	if err := errors.Join(unix.Fstat(fd, &stat), unix.Fstatfs(fd, &system)); err != nil {
		unix.Close(fd)
		return nil, faultOf(path, err)
	}
	// Files of /proc are plain by their mode alone: one may be the agent's own memory.
	if stat.Mode&unix.S_IFMT != unix.S_IFREG || system.Type == unix.PROC_SUPER_MAGIC || system.Type == unix.SYSFS_MAGIC {
		unix.Close(fd)
		return nil, faulty(faultInvalid, "%s is no plain file", path)
	}
	return os.NewFile(uintptr(fd), path), nil
}

// faultOf is an error of the file system as a fault.
func faultOf(path string, err error) *fault {
	kind := faultRefused
	switch {
	case errors.Is(err, fs.ErrNotExist):
		kind = faultMissing
	case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT):
		kind = faultNoRoom
	case errors.Is(err, syscall.EFBIG):
		kind = faultDisk
	case errors.Is(err, syscall.ENXIO), errors.Is(err, syscall.EISDIR), errors.Is(err, syscall.ELOOP), errors.Is(err, syscall.ENOTDIR), errors.Is(err, syscall.ENODEV):
		kind = faultInvalid
	}
	if pathErr, ok := errors.AsType[*fs.PathError](err); ok {
		err = pathErr.Err
	}
	return faulty(kind, "%s: %v", path, err)
}

func (a *agent) serveRead(r request, ans answer) error {
	path := a.place(string(r.Path))
	file, bad := openPlain(path, unix.O_RDONLY, 0)
	if bad != nil {
		ans.Fault = bad
		return a.wire.send(ans)
	}
	defer file.Close()
	if info, err := file.Stat(); err == nil && info.Size() > r.Limit {
		ans.Fault = faulty(faultTooLarge, "%s is %d bytes, more than %d", path, info.Size(), r.Limit)
		return a.wire.send(ans)
	}
	if err := a.wire.writeHeader(ans); err != nil {
		return err
	}
	// A file that grows meanwhile is cut where it may be read to; one that cannot be read on, where that is.
	buf := make([]byte, 64<<10)
	for left := r.Limit; left > 0; {
		n, err := file.Read(buf[:min(int64(len(buf)), left)])
		left -= int64(n)
		if _, wireErr := a.wire.Write(buf[:n]); wireErr != nil {
			return wireErr
		}
		if err != nil {
			break
		}
	}
	return a.wire.end()
}

// writeFile makes a file of what next returns, and the directories above it.
func (a *agent) writeFile(r request, next func() ([]byte, error)) *fault {
	path := a.place(string(r.Path))
	if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
		return faultOf(path, err)
	}
	mode := uint32(r.Mode.Perm())
	file, bad := openPlain(path, unix.O_WRONLY|unix.O_CREAT, 0o600)
	if bad != nil && bad.Kind == faultRefused {
		// A file of our own that may not be written to is replaced, as its owner may.
		if info, err := os.Lstat(path); err == nil && info.Mode().IsRegular() && os.Remove(path) == nil {
			file, bad = openPlain(path, unix.O_WRONLY|unix.O_CREAT|unix.O_EXCL, 0o600)
		}
	}
	if bad != nil {
		return bad
	}
	defer file.Close()
	if err := file.Truncate(0); err != nil {
		return faultOf(path, err)
	}
	for {
		data, err := next()
		if err != nil || data == nil {
			break
		}
		if _, err := file.Write(data); err != nil {
			return faultOf(path, err)
		}
	}
	if err := unix.Fchmod(int(file.Fd()), mode); err != nil {
		return faultOf(path, err)
	}
	return nil
}

// reset ends what runs and removes all that was written.
func (a *agent) reset() *fault {
	a.endAll()
	for _, place := range a.setup.Places.all() {
		if err := empty(place); err != nil {
			return faulty(faultBroken, "empty %s: %v", place.at, err)
		}
	}
	return nil
}

// networkUsed is a fault where something of the box's own network outlives the processes. The kernel keeps ports of
// connections that ended, and counts; sockets that refer to one another keep the memory that was sent over them. The
// next user would meet all of it.
func (a *agent) networkUsed() *fault {
	if a.setup.OwnNetwork && network() != a.network {
		return faulty(faultUsed, "its network was used, and keeps what it was used for")
	}
	return nil
}

// network is what the kernel has counted on the loopback device, and how many unix sockets there are.
func network() string {
	text, _ := os.ReadFile("/proc/net/dev")
	_, counts, _ := strings.Cut(string(text), "lo:")
	counts, _, _ = strings.Cut(counts, "\n")
	sockets, _ := os.ReadFile("/proc/net/unix")
	return fmt.Sprint(counts, bytes.Count(sockets, []byte("\n")))
}

// A place is a directory that a box may write to, with its mode when nobody has yet.
type place struct {
	name, at string
	mode     uint32
}

func (p Places) all() []place {
	all := []place{{"work", p.Work, 0o755}, {"tmp", p.Tmp, 0o1777}}
	if p.Home != "" {
		all = append(all, place{"home", p.Home, 0o755})
	}
	if p.Shm != "" {
		all = append(all, place{"shm", p.Shm, 0o1777})
	}
	for i, at := range p.More {
		all = append(all, place{fmt.Sprintf("more%d", i), at, 0o755})
	}
	return all
}

// empty removes all that is in a place, and makes it as it was.
func empty(p place) error {
	info, err := os.Lstat(p.at)
	if err != nil {
		return err
	}
	if !info.IsDir() {
		return fmt.Errorf("it is a %s now", info.Mode().Type())
	}
	// Whoever ran here may have taken our rights to it. As it is the agent's own, they can be had again.
	if err := unix.Chmod(p.at, p.mode); err != nil {
		return err
	}
	if err := removeAttributes(p.at); err != nil {
		return err
	}
	entries, err := os.ReadDir(p.at)
	if err != nil {
		return err
	}
	for _, entry := range entries {
		if err := RemoveAll(filepath.Join(p.at, entry.Name())); err != nil {
			return err
		}
	}
	return nil
}

// removeAttributes takes from a directory what it hands on beside its files: access lists, which
// files made in it inherit, and texts.
func removeAttributes(dir string) error {
	names := make([]byte, 64<<10) // all that the kernel lets a file have
	n, err := unix.Llistxattr(dir, names)
	if errors.Is(err, unix.ENOTSUP) || errors.Is(err, unix.ENOSYS) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("read its attributes: %w", err)
	}
	for name := range strings.SplitSeq(string(names[:n]), "\x00") {
		if !strings.HasPrefix(name, "user.") && !strings.HasPrefix(name, "system.posix_acl_") {
			continue // the host's
		}
		if err := unix.Lremovexattr(dir, name); err != nil && !errors.Is(err, unix.ENODATA) {
			return fmt.Errorf("remove its attribute %s: %w", name, err)
		}
	}
	return nil
}

// RemoveAll is os.RemoveAll for a tree whose directories may forbid their owner to change them.
// It follows no link.
func RemoveAll(path string) error {
	err := os.RemoveAll(path)
	if err == nil {
		return nil
	}
	root, openErr := os.OpenRoot(filepath.Dir(path))
	if openErr != nil {
		return err
	}
	defer root.Close()
	if walkErr := allow(root, filepath.Base(path)); walkErr != nil && !errors.Is(walkErr, fs.ErrNotExist) {
		return errors.Join(err, walkErr)
	}
	return os.RemoveAll(path)
}

// allow gives the owner of a tree all rights to its directories.
func allow(root *os.Root, name string) error {
	info, err := root.Lstat(name)
	if err != nil || !info.IsDir() {
		return err
	}
	if info.Mode().Perm()&0o700 != 0o700 {
		if err := root.Chmod(name, 0o700); err != nil {
			return err
		}
	}
	dir, err := root.OpenRoot(name)
	if err != nil {
		return err
	}
	defer dir.Close()
	open, err := dir.Open(".")
	if err != nil {
		return err
	}
	defer open.Close()
	for {
		names, err := open.Readdirnames(256)
		for _, child := range names {
			if err := allow(dir, child); err != nil {
				return err
			}
		}
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
	}
}
