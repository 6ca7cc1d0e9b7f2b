package main

import (
	"fmt"
	"io"
	"net"
	"os"
)

// relay copies bytes between whoever connects and an address, for as long as the program lives: what a Go program costs
// that does nothing with an event but wake, read and write. It prints where it listens.
func relay(to string) error {
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	fmt.Println(listener.Addr())
	for {
		near, err := listener.Accept()
		if err != nil {
			return err
		}
		go join(near, to)
	}
}

// join connects a connection with an address until either side ends. The copies go through user space, as a gateway's do.
func join(near net.Conn, to string) {
	far, err := net.Dial("tcp", to)
	if err != nil {
		fmt.Fprintln(os.Stderr, "relay:", err)
		near.Close()
		return
	}
	copyAll := func(to, from net.Conn) {
		_, _ = io.Copy(struct{ io.Writer }{to}, struct{ io.Reader }{from})
		to.Close()
	}
	go copyAll(far, near)
	copyAll(near, far)
}
