//go:build !faketime

package machine

func connect(*World) {
	panic("machine: this program is not built with the world's overlay: make world")
}
