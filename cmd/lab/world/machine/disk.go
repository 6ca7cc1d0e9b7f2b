package machine

import (
	"io/fs"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"
)

// disks are those of all hosts: real files below the working directory, with faults before the calls.
type disks struct {
	w     *World
	mu    sync.Mutex
	files map[int]*file
}

func (d *disks) file(fd int) *file {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.files[fd]
}

// file is an open file of a host.
type file struct {
	host *Host
	path string
	sync bool // each write waits for the disk
}

// change is a write that no sync has followed, with the bytes that were there before.
type change struct {
	offset int64
	old    []byte
	size   int64 // of the file before
	length int   // of the bytes that were written; 0 for a truncation
}

// disk is a host's, and its successors': its state, and the bytes that a loss of power would take. Locks here order nothing,
// since one goroutine runs at a time: they are for the race detector, which sees no other order.
type disk struct {
	full atomic.Bool
	rot  atomic.Bool
	drag atomic.Int64 // in nanoseconds
	// keeps: unsynced has the writes that no sync has followed.
	keeps    bool
	mu       sync.Mutex
	unsynced []inode
}

// inode is a file, which may be renamed. There is no map by number: numbers differ from run to run, and with them the
// growth of a map, and with that where everything else lies in memory.
type inode struct {
	number  uint64
	changes []change
}

func (d *disk) note(number uint64, c change) {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.unsynced, func(f inode) bool { return f.number == number })
	if i < 0 {
		i = len(d.unsynced)
		d.unsynced = append(d.unsynced, inode{number: number})
	}
	d.unsynced[i].changes = append(d.unsynced[i].changes, c)
}

// take forgets the changes of a file, and returns them.
func (d *disk) take(number uint64) []change {
	d.mu.Lock()
	defer d.mu.Unlock()
	i := slices.IndexFunc(d.unsynced, func(f inode) bool { return f.number == number })
	if i < 0 {
		return nil
	}
	changes := d.unsynced[i].changes
	d.unsynced = slices.Delete(d.unsynced, i, i+1)
	return changes
}

func newDisks(w *World) *disks { return &disks{w: w, files: map[int]*file{}} }

const writing = syscall.O_WRONLY | syscall.O_RDWR

func (d *disks) Open(path string, flags int) error {
	if strings.HasPrefix(path, "/sys/") || strings.HasPrefix(path, "/proc/") && !strings.HasPrefix(path, "/proc/self/cwd/") {
		return syscall.ENOENT // what the real machine says of itself differs from run to run
	}
	h := d.w.current()
	if h.disk.full.Load() && flags&syscall.O_CREAT != 0 {
		return syscall.ENOSPC
	}
	return nil
}

func (d *disks) Opened(fd int, path string, flags int) {
	h := d.w.current()
	d.mu.Lock()
	defer d.mu.Unlock()
	d.files[fd] = &file{host: h, path: path, sync: flags&(syscall.O_SYNC|syscall.O_DSYNC) != 0}
	if flags&(syscall.O_TRUNC|syscall.O_CREAT) != 0 && flags&writing != 0 && h.disk.keeps {
		var stat syscall.Stat_t
		if syscall.Fstat(fd, &stat) == nil && stat.Size == 0 { // a number may be that of a file that is gone
			h.disk.take(stat.Ino)
		}
	}
}

func (d *disks) Closed(fd int) {
	d.mu.Lock()
	defer d.mu.Unlock()
	delete(d.files, fd)
}

func (d *disks) Write(fd int, p []byte, offset int64) error {
	f := d.file(fd)
	if f == nil || f.host.ID == 0 {
		return nil
	}
	if d.w.Wrote != nil {
		d.w.Wrote(f.host, f.path)
	}
	if drag := time.Duration(f.host.disk.drag.Load()); drag > 0 {
		time.Sleep(drag)
	}
	if f.host.disk.full.Load() {
		return syscall.ENOSPC
	}
	f.note(fd, len(p), offset)
	if f.host.disk.rot.Load() && offset >= 0 && len(p) > 0 {
		p[rand.IntN(len(p))] ^= 1 << rand.IntN(8)
	}
	return nil
}

// note keeps what a write is about to change, until the file is synced.
func (f *file) note(fd, n int, offset int64) {
	if !f.host.disk.keeps || f.sync {
		return
	}
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) != nil || stat.Mode&syscall.S_IFMT != syscall.S_IFREG {
		return
	}
	if offset < 0 {
		at, err := syscall.Seek(fd, 0, 1)
		if err != nil {
			return
		}
		offset = at
	}
	c := change{offset: offset, size: stat.Size, length: n}
	if over := min(int64(n), stat.Size-offset); over > 0 {
		c.old = readAt(f.path, offset, int(over))
	}
	f.host.disk.note(stat.Ino, c)
}

func readAt(path string, offset int64, n int) []byte {
	fd, err := syscall.Open(path, syscall.O_RDONLY, 0)
	if err != nil {
		return nil
	}
	defer func() { _ = syscall.Close(fd) }()
	p := make([]byte, n)
	n, _ = syscall.Pread(fd, p, offset)
	return p[:max(n, 0)]
}

func (d *disks) Truncate(fd int, size int64) error {
	f := d.file(fd)
	if f == nil || !f.host.disk.keeps {
		return nil
	}
	var stat syscall.Stat_t
	if syscall.Fstat(fd, &stat) == nil {
		c := change{offset: size, size: stat.Size}
		if stat.Size > size {
			c.old = readAt(f.path, size, int(stat.Size-size))
		}
		f.host.disk.note(stat.Ino, c)
	}
	return nil
}

func (d *disks) Sync(fd int) error {
	f := d.file(fd)
	if f == nil {
		return nil
	}
	if drag := time.Duration(f.host.disk.drag.Load()); drag > 0 {
		time.Sleep(drag)
	}
	var stat syscall.Stat_t
	if f.host.disk.keeps && syscall.Fstat(fd, &stat) == nil {
		f.host.disk.take(stat.Ino)
	}
	return nil
}

func (d *disks) Room(buf *syscall.Statfs_t) {
	buf.Blocks, buf.Bfree, buf.Bavail = 1<<24, 1<<23, 1<<23
	if d.w.current().disk.full.Load() {
		buf.Bfree, buf.Bavail = 0, 0
	}
}

// release closes every file of a host as the kernel does at the end of a process. The numbers stay taken, so that a
// file of the dead program that is closed late closes nobody else's.
func (d *disks) release(h *Host) {
	null, err := syscall.Open("/dev/null", syscall.O_RDWR, 0)
	if err != nil {
		panic(err)
	}
	defer func() { _ = syscall.Close(null) }()
	d.mu.Lock()
	defer d.mu.Unlock()
	for fd, f := range d.files {
		if f.host == h {
			_ = syscall.Dup3(null, fd, syscall.O_CLOEXEC)
			delete(d.files, fd)
		}
	}
}

// lose undoes, per file, a drawn number of the last writes that were not synced, and tears the first of them.
func (d *disks) lose(h *Host) {
	if !h.disk.keeps {
		return
	}
	_ = filepath.WalkDir(".", func(path string, _ fs.DirEntry, _ error) error {
		var stat syscall.Stat_t
		if syscall.Lstat(path, &stat) == nil {
			d.undo(path, h.disk.take(stat.Ino)) // once: it may have two names
		}
		return nil
	})
	h.disk.mu.Lock()
	defer h.disk.mu.Unlock()
	h.disk.unsynced = nil
}

// undo takes a drawn number of the last changes of a file back.
func (d *disks) undo(path string, changes []change) {
	if len(changes) == 0 {
		return
	}
	kept := rand.IntN(len(changes) + 1)
	fd, err := syscall.Open(path, syscall.O_RDWR, 0)
	if err != nil {
		return
	}
	defer func() { _ = syscall.Close(fd) }()
	for i := len(changes) - 1; i >= kept; i-- {
		c, from := changes[i], 0
		if i == kept && c.length > 0 && rand.IntN(2) == 0 {
			from = rand.IntN(c.length) // the sectors before it had been written
		}
		if from < len(c.old) {
			_, _ = syscall.Pwrite(fd, c.old[from:], c.offset+int64(from))
		}
		_ = syscall.Ftruncate(fd, max(c.size, min(c.offset+int64(from), c.offset+int64(c.length))))
	}
}

// Flip changes one drawn bit of the files below dir whose paths have part in them, and returns its file; "" for none.
func (h *Host) Flip(dir, part string) string {
	var paths []string
	var ends []int64 // where each file ends, as if they lay one behind the other
	var all int64
	_ = filepath.WalkDir(dir, func(path string, e fs.DirEntry, err error) error {
		if err == nil && e.Type().IsRegular() && strings.Contains(path, part) {
			if info, err := e.Info(); err == nil && info.Size() > 0 {
				all += info.Size()
				paths, ends = append(paths, path), append(ends, all)
			}
		}
		return nil
	})
	if all == 0 {
		return ""
	}
	at := rand.Int64N(all)
	i := slices.IndexFunc(ends, func(end int64) bool { return at < end })
	fd, err := syscall.Open(paths[i], syscall.O_RDWR, 0)
	if err != nil {
		return ""
	}
	defer func() { _ = syscall.Close(fd) }()
	if i > 0 {
		at -= ends[i-1]
	}
	p := make([]byte, 1)
	_, _ = syscall.Pread(fd, p, at)
	p[0] ^= 1 << rand.IntN(8)
	_, _ = syscall.Pwrite(fd, p, at)
	return paths[i]
}
