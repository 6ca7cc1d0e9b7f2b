//go:build !faketime

package machine

func connect(*network) {
	panic("machine: this program is not built with the world's overlay: make world")
}
