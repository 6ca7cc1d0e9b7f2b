// Package machine is the machine below the world: hosts with a network, clocks and states, in one process whose
// Go library is edited (see overlay). It works in a program that is built with that overlay alone.
package machine

import (
	"fmt"
	"math/rand/v2"
	"net"
	"time"
)

// World is the machine of one seed.
type World struct {
	hosts   []*Host
	network *network
	// Latency of a link in one direction.
	Latency func(from, to string) time.Duration
}

// Host is a machine of the world, on which one program runs.
type Host struct {
	ID   int32
	Name string
	IP   string
	w    *World
}

// New makes a world and has the process's randomness come from seed.
func New(seed uint64) *World {
	runtimeSeed(seed)
	w := &World{}
	w.network = newNetwork(w)
	w.hosts = append(w.hosts, &Host{Name: "world", IP: "10.0.0.0", w: w})
	w.Latency = func(string, string) time.Duration {
		return 50*time.Microsecond + time.Duration(rand.IntN(200))*time.Microsecond
	}
	connect(w.network)
	return w
}

// Host adds a host.
func (w *World) Host(name string) *Host {
	h := &Host{ID: int32(len(w.hosts)), Name: name, w: w}
	h.IP = fmt.Sprintf("10.0.0.%d", h.ID)
	w.hosts = append(w.hosts, h)
	return h
}

func (w *World) current() *Host { return w.hosts[runtimeHost()] }

// Go runs f as the host's program.
func (h *Host) Go(f func()) {
	defer runtimeEnter(runtimeEnter(h.ID))
	go f()
}

// Kill ends the host's programs at once: no goroutine of theirs goes on, and their connections are reset.
func (h *Host) Kill() {
	defer runtimeEnter(runtimeEnter(0))
	runtimeState(h.ID, killed)
	n := h.w.network
	n.mu.Lock()
	defer n.mu.Unlock()
	for _, l := range n.listeners {
		if l.host == h {
			l.close()
		}
	}
	for _, c := range append([]*conn(nil), n.conns...) {
		if c.host == h && !c.closed {
			c.closed = true
			n.send(c, nil, true)
		}
	}
}

// Mix says how many goroutines have been picked, and a number of their order.
func (w *World) Mix() (picks, mix uint64) { return runtimeMix() }

func (n *network) latency(from, to string) time.Duration { return n.w.Latency(from, to) }

var _ net.Listener = (*listener)(nil)
