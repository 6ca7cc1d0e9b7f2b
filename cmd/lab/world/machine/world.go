// Package machine is the machine below the world: hosts with a network, disks and clocks, in one process. It works in a
// program that is built with the edits of Go's library in overlay.
package machine

import (
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"sync"
	"sync/atomic"
	"time"
)

func sorted[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// World is the machine of one seed.
type World struct {
	mu      sync.RWMutex // of hosts
	hosts   []*Host
	network *network
	disks   *disks
	// Wrote is told of each write of a host's program to a file, before it is done. It must not wait.
	Wrote func(h *Host, path string)
	// Sent is told of each write of a host's program to a connection, before it is done. It must not wait.
	Sent func(h *Host, p []byte)
}

// Host is a machine of the world, on which one program runs.
type Host struct {
	ID   int32
	Name string
	IP   string
	w    *World
	disk *disk
	// window bounds the bytes of a connection that are on the way or not read yet, as a kernel's buffers do.
	window int
	// ahead is the time by which its time of day is ahead, in nanoseconds.
	ahead atomic.Int64
}

// New makes a world and has the process's randomness come from seed.
func New(seed uint64) *World {
	runtimeSeed(seed)
	w := &World{}
	w.network, w.disks = newNetwork(w), newDisks(w)
	w.hosts = append(w.hosts, &Host{Name: "world", IP: "10.0.0.0", w: w, disk: &disk{}})
	connect(w)
	return w
}

// Host adds a host. With durable, its disk remembers the writes that were not synced, for [Host.LosePower].
func (w *World) Host(name string, durable bool) *Host {
	return w.add(func(id int32) *Host {
		return &Host{ID: id, Name: name, IP: fmt.Sprintf("10.0.0.%d", id), w: w, window: window, disk: &disk{keeps: durable}}
	})
}

func (w *World) add(host func(id int32) *Host) *Host {
	w.mu.Lock()
	defer w.mu.Unlock()
	h := host(int32(len(w.hosts)))
	w.hosts = append(w.hosts, h)
	return h
}

// Name is the name of the host at an address, HOST:PORT or HOST.
func (w *World) Name(ip string) string {
	w.mu.RLock()
	defer w.mu.RUnlock()
	for _, h := range w.hosts {
		if h.IP == ip {
			return h.Name
		}
	}
	return ip
}

func (w *World) host(id int32) *Host {
	w.mu.RLock()
	defer w.mu.RUnlock()
	return w.hosts[id]
}

func (w *World) current() *Host { return w.host(runtimeHost()) }

// Go runs f as the host's program.
func (h *Host) Go(f func()) {
	defer runtimeEnter(runtimeEnter(h.ID))
	go f()
}

// Go runs f as the world's own, which no fault reaches.
func (w *World) Go(f func()) { w.host(0).Go(f) }

// Kill ends the host's programs at once: no goroutine of theirs goes on, and the kernel closes their files and
// connections.
func (h *Host) Kill() {
	h.end(false)
}

func (h *Host) end(dark bool) {
	runtimeState(h.ID, killed)
	h.w.disks.release(h)
	h.w.network.forget(h, dark)
}

// KillAfter kills the host when the scheduler has picked n more goroutines of it, at the latest after limit, and
// returns then.
func (h *Host) KillAfter(n uint64, limit time.Duration) {
	runtimeDue(h.ID, n, killed)
	for end := time.Now().Add(limit); runtimeStateOf(h.ID) != killed && time.Now().Before(end); {
		time.Sleep(500 * time.Microsecond)
	}
	h.Kill()
}

// Next takes the place of a dead host: another program may be started on the same disk, at the same address.
func (h *Host) Next() *Host {
	next := h.w.add(func(id int32) *Host {
		next := &Host{ID: id, Name: h.Name, IP: h.IP, w: h.w, window: h.window, disk: h.disk}
		next.ahead.Store(h.ahead.Load())
		return next
	})
	h.w.network.light(h.IP)
	return next
}

// LosePower ends the host as one without power, and takes a drawn part of the writes that were not synced from its
// disk. No packet tells its peers, which notice it once the host is back, or by their limits.
func (h *Host) LosePower() {
	h.end(true)
	h.w.disks.lose(h)
}

// Freeze has the host's programs stand still; Thaw has them go on.
func (h *Host) Freeze() { runtimeState(h.ID, frozen) }

// Thaw has the host's programs go on.
func (h *Host) Thaw() {
	if runtimeStateOf(h.ID) == frozen {
		runtimeState(h.ID, runs)
	}
}

// Step moves the host's time of day.
func (h *Host) Step(by time.Duration) {
	runtimeOffset(h.ID, h.ahead.Add(int64(by)))
}

// Narrow has the connections of the host hold no more than so many bytes unread, in each direction; 0 changes nothing.
func (h *Host) Narrow(window int) {
	if window > 0 {
		h.window = window
	}
}

// Full has writes to the host's disk fail, or no more.
func (h *Host) Full(full bool) { h.disk.full.Store(full) }

// Rot has a bit flip in each block that the host writes at a place of its choice, or no more.
func (h *Host) Rot(rot bool) { h.disk.rot.Store(rot) }

// Drag has each write and sync of the host's disk take as long; 0 for no time.
func (h *Host) Drag(d time.Duration) { h.disk.drag.Store(int64(d)) }

// Mix says how many goroutines have been picked, and a number of their order.
func Mix() (picks, mix uint64) { return runtimeMix() }

// draw is a number of microseconds in [low, high], as a time.
func draw(low, high int) time.Duration {
	return time.Duration(low+rand.IntN(high-low+1)) * time.Microsecond
}
