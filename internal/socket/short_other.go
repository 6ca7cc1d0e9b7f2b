//go:build !linux || race

package socket

import "net"

// ShortReads returns c: elsewhere than on Linux there is no other way. The race detector knows the ordinary reads and
// writes, by which goroutines wait for each other as well.
func ShortReads(c net.Conn) net.Conn { return c }

// ShortWrites returns c, as ShortReads does.
func ShortWrites(c net.Conn) net.Conn { return c }
