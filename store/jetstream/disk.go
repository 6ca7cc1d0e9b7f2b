package jetstream

import (
	"fmt"
	"sync"
	"time"

	"github.com/headway-rl/headway/live"
)

const (
	// diskEvery and diskBytes are how often the free space is looked up: after so long,
	// or after so much was written.
	diskEvery = time.Second
	diskBytes = 4 << 20
)

// disk refuses writes before the disk is full. A server whose disk is full stops JetStream
// as a whole; one that was never asked goes on as soon as there is space again.
type disk struct {
	dir   string // empty: not ours to look at
	least int64
	free  func(dir string) (int64, error)

	mutex   sync.Mutex
	at      time.Time
	written int64
	full    error
}

// room says, as an error that wraps live.ErrNoSpace, that there is no room for n more bytes.
func (d *disk) room(n int) error {
	if d.dir == "" || d.least < 0 {
		return nil
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	d.written += int64(n)
	if d.full == nil && d.written < diskBytes && time.Since(d.at) < diskEvery {
		return nil
	}
	free, err := d.free(d.dir)
	if err != nil {
		return nil // then the server finds out
	}
	d.at, d.written, d.full = time.Now(), 0, nil
	if free < d.least+int64(n) {
		d.full = fmt.Errorf("store: %w: the disk of %s has %d bytes left, of which %d stay free: make room, the run goes on by itself", live.ErrNoSpace, d.dir, free, d.least)
	}
	return d.full
}
