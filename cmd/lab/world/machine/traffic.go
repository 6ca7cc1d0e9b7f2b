package machine

import (
	"bytes"
	"math/rand/v2"
	"slices"
	"time"
)

// Trouble is what happens to some of the writes from one host to another. Others, on the same link, pass.
type Trouble struct {
	// Drop: the write is lost, and its connection breaks. Without it, the packet is sent again after resend. Later writes on
	// its connection come behind it.
	Drop bool
	// One write in so many is met.
	One int
	// Path: only requests of HTTP whose path has it. Empty for all that is written.
	Path string
}

// resend is how long a kernel waits at least before it sends a packet again.
const resend = 200 * time.Millisecond

// Trouble begins on the writes from one host to another, and ends when the function that it returns is called.
func (w *World) Trouble(from, to string, t Trouble) (end func()) {
	n, at := w.network, pair{from, to}
	n.mu.Lock()
	defer n.mu.Unlock()
	mine := &t
	n.troubles[at] = append(n.troubles[at], mine)
	return func() {
		n.mu.Lock()
		defer n.mu.Unlock()
		n.troubles[at] = slices.DeleteFunc(n.troubles[at], func(other *Trouble) bool { return other == mine })
	}
}

// troubled says what becomes of a write: whether it is lost, or how much later it comes.
func (n *network) troubled(c *conn, p []byte) (lost bool, late time.Duration) {
	for _, t := range n.troubles[pair{c.ip, c.peer.ip}] {
		if !t.meets(p) || rand.IntN(max(t.One, 1)) > 0 {
			continue
		}
		if t.Drop {
			return true, 0
		}
		late = resend
	}
	return false, late
}

// meets says whether a write is of the kind that the trouble is about.
func (t *Trouble) meets(p []byte) bool {
	if t.Path == "" {
		return true
	}
	line, _, _ := bytes.Cut(p, []byte(" HTTP/1.1\r\n"))
	return len(line) < 200 && bytes.Contains(line, []byte(t.Path))
}
