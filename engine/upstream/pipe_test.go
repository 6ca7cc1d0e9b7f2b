package upstream

import (
	"context"
	"net"
	"os"
	"sync"
	"syscall"
)

// errRefusedHere is what the kernel makes of a port on which nobody listens.
var errRefusedHere = &net.OpError{Op: "dial", Net: "tcp", Err: os.NewSyscallError("connect", syscall.ECONNREFUSED)}

// pipeListener accepts connections that are pipes.
type pipeListener struct {
	conns   chan net.Conn
	closed  chan struct{}
	once    sync.Once
	mu      sync.Mutex
	refuses bool
}

func newPipeListener() *pipeListener {
	return &pipeListener{conns: make(chan net.Conn), closed: make(chan struct{})}
}

func (l *pipeListener) refuse(refuses bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.refuses = refuses
	if refuses {
		l.once.Do(func() { close(l.closed) })
		return
	}
	l.conns, l.closed, l.once = make(chan net.Conn), make(chan struct{}), sync.Once{}
}

func (l *pipeListener) parts() (chan net.Conn, chan struct{}, bool) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.conns, l.closed, l.refuses
}

func (l *pipeListener) dial(ctx context.Context, _, _ string) (net.Conn, error) {
	conns, closed, refuses := l.parts()
	if refuses {
		return nil, errRefusedHere
	}
	near, far := net.Pipe()
	select {
	case conns <- far:
		return near, nil
	case <-closed:
		return nil, errRefusedHere
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

func (l *pipeListener) Accept() (net.Conn, error) {
	conns, closed, _ := l.parts()
	select {
	case c := <-conns:
		return c, nil
	case <-closed:
		return nil, net.ErrClosed
	}
}

func (l *pipeListener) Close() error { return nil }

func (l *pipeListener) Addr() net.Addr { return &net.UnixAddr{Name: "pipe"} }
