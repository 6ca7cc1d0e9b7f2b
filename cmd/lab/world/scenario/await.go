package scenario

import (
	"bytes"
	"slices"
	"strings"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
)

// awaitMost is how long a fault waits for its event.
const awaitMost = 10 * time.Second

// awaited is an event for which a fault waits.
type awaited struct {
	plan.Await
	met chan struct{}
}

// awaits returns when an event has come, or was waited for long enough.
func (w *World) awaits(event plan.Await) {
	if event.By == "" {
		return
	}
	a := &awaited{event, make(chan struct{})}
	w.mu.Lock()
	w.awaited = append(w.awaited, a)
	w.mu.Unlock()
	select {
	case <-a.met:
	case <-time.After(awaitMost):
	}
	w.mu.Lock()
	w.awaited = slices.DeleteFunc(w.awaited, func(b *awaited) bool { return a == b })
	w.mu.Unlock()
	time.Sleep(time.Duration(event.LaterMS) * time.Millisecond)
}

// met counts an event of a host for the faults that wait for it. It is called with mu held.
func (w *World) met(host string, is func(a *awaited) bool) {
	w.awaited = slices.DeleteFunc(w.awaited, func(a *awaited) bool {
		if a.By != host && a.By != roleOf(host) || !is(a) {
			return false
		}
		if a.N > 1 {
			a.N--
			return false
		}
		close(a.met)
		return true
	})
}

// wrote is told of each write to a file.
func (w *World) wrote(h *machine.Host, path string) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if strings.Contains(path, logStream+"/") {
		select {
		case w.logged <- struct{}{}:
		default:
		}
	}
	w.met(h.Name, func(a *awaited) bool { return a.Writes != "" && strings.Contains(path, a.Writes) })
}

// sent is told of each write to a connection.
func (w *World) sent(h *machine.Host, p []byte) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.met(h.Name, func(a *awaited) bool { return a.Sends != "" && bytes.Contains(p, []byte(a.Sends)) })
}
