package socket

import (
	"bytes"
	"errors"
	"io"
	"net"
	"os"
	"syscall"
	"testing"
	"time"
)

// pair returns both ends of a connection over TCP.
func pair(t *testing.T) (here, there *net.TCPConn) {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer listener.Close()
	dialled, err := net.Dial("tcp", listener.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	accepted, err := listener.Accept()
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { dialled.Close(); accepted.Close() })
	return dialled.(*net.TCPConn), accepted.(*net.TCPConn)
}

// numbered is content of which every part differs.
func numbered(n int) []byte {
	out := make([]byte, n)
	for i := range out {
		out[i] = byte(i ^ i>>8 ^ i>>16)
	}
	return out
}

// What is written in pieces of any size arrives as it was, over a connection whose reader is slower at
// times: short and long reads and writes take turns, and each may find nothing to read or no room.
func TestBytesArriveInOrder(t *testing.T) {
	here, there := pair(t)
	to, from := ShortWrites(here), ShortReads(there)
	want := numbered(16 << 20)
	sizes := []int{1, 7, 4096, shortBytes, shortBytes + 1, 100_000, 2 << 20}
	wrote := make(chan error, 1)
	go func() {
		var err error
		for rest, i := want, 0; len(rest) > 0 && err == nil; i++ {
			var n int
			n, err = to.Write(rest[:min(len(rest), sizes[i%len(sizes)])])
			rest = rest[n:]
		}
		wrote <- errors.Join(err, to.Close())
	}()
	got := make([]byte, 0, len(want)+1)
	for i := 0; ; i++ {
		room := make([]byte, sizes[(i*3+1)%len(sizes)])
		n, err := from.Read(room)
		got = append(got, room[:n]...)
		if err == io.EOF {
			break
		}
		if err != nil {
			t.Fatal(err)
		}
	}
	if err := <-wrote; err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(got, want) {
		t.Fatalf("%d bytes arrived of %d, or others", len(got), len(want))
	}
}

// A read and a write that wait end by their deadline and by the connection's end, with the errors of net.
func TestWaitsEnd(t *testing.T) {
	for _, one := range []struct {
		name string
		wait func(net.Conn) error
		make func(net.Conn) net.Conn
	}{
		{"read", func(c net.Conn) error { _, err := c.Read(make([]byte, 1)); return err }, ShortReads},
		{"write", func(c net.Conn) error {
			for {
				if _, err := c.Write(make([]byte, shortBytes)); err != nil {
					return err
				}
			}
		}, ShortWrites},
	} {
		t.Run(one.name, func(t *testing.T) {
			here, _ := pair(t)
			c := one.make(here)
			_ = c.SetDeadline(time.Now().Add(time.Millisecond))
			err := one.wait(c)
			timeout, ok := errors.AsType[net.Error](err)
			if !ok || !timeout.Timeout() || !errors.Is(err, os.ErrDeadlineExceeded) {
				t.Errorf("past its deadline: %v", err)
			}
			if op, ok := errors.AsType[*net.OpError](err); !ok || op.Op != one.name {
				t.Errorf("%v is not called a %s", err, one.name)
			}
			_ = c.SetDeadline(time.Time{})
			ended := make(chan error, 1)
			go func() { ended <- one.wait(c) }()
			_ = c.Close()
			if err := <-ended; !errors.Is(err, net.ErrClosed) {
				t.Errorf("closed meanwhile: %v", err)
			}
		})
	}
}

// A connection that the other side has reset says so, as any.
func TestReset(t *testing.T) {
	here, there := pair(t)
	read := ShortReads(here)
	_ = there.SetLinger(0)
	_ = there.Close()
	if _, err := read.Read(make([]byte, 1)); !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("reading: %v", err)
	}
	var err error
	for range 3 { // a first write may still be taken
		if _, err = ShortWrites(here).Write([]byte("x")); err != nil {
			break
		}
	}
	if !errors.Is(err, syscall.EPIPE) && !errors.Is(err, syscall.ECONNRESET) {
		t.Errorf("writing: %v", err)
	}
}

// What is no connection of TCP is left as it is.
func TestOthersAreLeft(t *testing.T) {
	here, there := net.Pipe()
	if ShortReads(here) != here || ShortWrites(there) != there {
		t.Error("a pipe was changed")
	}
}
