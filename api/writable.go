//go:build unix

package api

import (
	"context"
	"net"
	"syscall"

	"github.com/headway-rl/headway/internal/socket"
)

// connectionKey is the context key of a request's connection.
type connectionKey struct{}

// withConnection keeps a connection in the context of its requests.
func withConnection(ctx context.Context, connection net.Conn) context.Context {
	for {
		around, ok := connection.(interface{ NetConn() net.Conn }) // TLS, and the bound
		if !ok {
			break
		}
		connection = around.NetConn()
	}
	if plain, ok := connection.(syscall.Conn); ok {
		if raw, err := plain.SyscallConn(); err == nil {
			return context.WithValue(ctx, connectionKey{}, raw)
		}
	}
	return ctx
}

// room asks the kernel for room to write on a connection.
type room struct {
	connection syscall.RawConn
	ask        func(fd uintptr)
	free       bool
}

// roomOf returns the room of a request's connection, nil where the connection is not known.
func roomOf(ctx context.Context, rawIO bool) *room {
	raw, ok := ctx.Value(connectionKey{}).(syscall.RawConn)
	if !ok {
		return nil
	}
	r := &room{connection: raw}
	r.ask = func(fd uintptr) { r.free = socket.Room(fd, rawIO) }
	return r
}

// writable reports whether the kernel has room. It is for one goroutine at a time.
func (r *room) writable() bool {
	if r == nil {
		return false
	}
	r.free = false
	return r.connection.Control(r.ask) == nil && r.free
}
