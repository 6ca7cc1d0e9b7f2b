//go:build !faketime

package machine

func connect(w *World) {
	_, _ = w.network.dial, w.network.listen
	panic("machine: this program is not built with the world's overlay: make world")
}
