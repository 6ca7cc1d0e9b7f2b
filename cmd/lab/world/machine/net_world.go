//go:build faketime

package machine

import (
	"net"
	"syscall"
)

func connect(w *World) {
	net.WorldDial, net.WorldListen = w.network.dial, w.network.listen
	syscall.World = w.disks
}
