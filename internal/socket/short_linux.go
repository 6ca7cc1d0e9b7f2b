//go:build linux && !race

package socket

import (
	"errors"
	"io"
	"net"
	"os"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// ShortReads returns a connection that is c, but for its reads. Only one of TCP differs.
func ShortReads(c net.Conn) net.Conn {
	tcp, raw := rawOf(c)
	if raw == nil {
		return c
	}
	r := &shortReader{TCPConn: tcp, raw: raw}
	r.try = func(fd uintptr) bool {
		for {
			n, _, errno := syscall.RawSyscall(syscall.SYS_READ, fd, uintptr(unsafe.Pointer(unsafe.SliceData(r.p))), uintptr(len(r.p)))
			if errno != syscall.EINTR {
				r.n, r.errno = int(n), errno
				return errno != syscall.EAGAIN
			}
		}
	}
	return r
}

// ShortWrites returns a connection that is c, but for its writes. Only one of TCP differs.
func ShortWrites(c net.Conn) net.Conn {
	tcp, raw := rawOf(c)
	if raw == nil {
		return c
	}
	w := &shortWriter{TCPConn: tcp, raw: raw}
	w.try = func(fd uintptr) bool {
		for w.n < len(w.p) {
			n, _, errno := syscall.RawSyscall(syscall.SYS_WRITE, fd, uintptr(unsafe.Pointer(&w.p[w.n])), uintptr(len(w.p)-w.n))
			switch errno {
			case 0:
				w.n += int(n)
			case syscall.EINTR:
			case syscall.EAGAIN:
				return false
			default:
				w.errno = errno
				return true
			}
		}
		return true
	}
	return w
}

func rawOf(c net.Conn) (*net.TCPConn, syscall.RawConn) {
	tcp, ok := c.(*net.TCPConn)
	if !ok {
		return nil, nil
	}
	raw, err := tcp.SyscallConn()
	if err != nil {
		return nil, nil
	}
	return tcp, raw
}

// half is a read or a write under way; mu is held by whoever makes it.
type half struct {
	mu    sync.Mutex
	try   func(fd uintptr) bool // true when there is nothing to wait for
	p     []byte
	n     int
	errno syscall.Errno
}

// run has a call of the connection try until it is done, and returns its error by the name of op.
func (h *half) run(op string, c *net.TCPConn, call func(func(uintptr) bool) error, p []byte) (int, error) {
	h.mu.Lock()
	defer h.mu.Unlock()
	h.p, h.n, h.errno = p, 0, 0
	err := call(h.try)
	h.p = nil
	if named, ok := errors.AsType[*net.OpError](err); ok { // the connection was closed, or its deadline has passed
		named.Op = op
	}
	if err == nil && h.errno != 0 {
		err = &net.OpError{Op: op, Net: "tcp", Source: c.LocalAddr(), Addr: c.RemoteAddr(), Err: os.NewSyscallError(op, h.errno)}
	}
	return max(h.n, 0), err
}

// shortReader is what ShortReads returns.
type shortReader struct {
	*net.TCPConn
	raw syscall.RawConn
	half
}

// Read implements net.Conn.
func (r *shortReader) Read(p []byte) (int, error) {
	if len(p) == 0 || len(p) > shortBytes {
		return r.TCPConn.Read(p)
	}
	n, err := r.run("read", r.TCPConn, r.raw.Read, p)
	if err != nil {
		return 0, err
	}
	if n == 0 {
		return 0, io.EOF
	}
	return n, nil
}

// shortWriter is what ShortWrites returns.
type shortWriter struct {
	*net.TCPConn
	raw syscall.RawConn
	half
}

// Write implements net.Conn.
func (w *shortWriter) Write(p []byte) (int, error) {
	if len(p) == 0 || len(p) > shortBytes {
		return w.TCPConn.Write(p)
	}
	return w.run("write", w.TCPConn, w.raw.Write, p)
}

// rawRoom is Room without telling the runtime.
func rawRoom(fd uintptr) bool {
	asked := unix.PollFd{Fd: int32(fd), Events: unix.POLLOUT}
	var atOnce unix.Timespec
	n, _, errno := syscall.RawSyscall6(syscall.SYS_PPOLL, uintptr(unsafe.Pointer(&asked)), 1, uintptr(unsafe.Pointer(&atOnce)), 0, 0, 0)
	return errno == 0 && n == 1 && asked.Revents == unix.POLLOUT
}
