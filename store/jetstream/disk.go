package jetstream

import (
	"fmt"
	"sync"
	"time"

	"github.com/headway-rl/headway/loop/port"
)

const (
	// diskEvery and diskBytes are how often the free space is looked up: after so long,
	// or after so much was written.
	diskEvery = time.Second
	diskBytes = 4 << 20
	// failureEvery is how often an embedded server is asked whether it takes writes, and how
	// long there is between two tries to start it anew.
	failureEvery = time.Second
	// restartBytes is the least that must be free for that.
	restartBytes = 4 << 20
)

// disk refuses writes before the disk is full. A server that runs into a full disk takes no
// writes until it is started anew; one that was never asked goes on as soon as there is
// space again.
type disk struct {
	dir   string // empty: not ours to look at
	least int64
	free  func(dir string) (int64, error)

	mutex   sync.Mutex
	at      time.Time
	written int64
	full    error
	// failed, if not nil, is why the server takes no writes; down is closed as long.
	failed error
	down   chan struct{}
}

// fail says that the server takes no writes, and why; nil that it does again.
func (d *disk) fail(err error) {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	switch {
	case err != nil && d.failed == nil:
		close(d.down)
	case err == nil && d.failed != nil:
		d.down = make(chan struct{})
	}
	d.failed, d.at = err, time.Time{}
}

// failing is closed while the server takes no writes.
func (d *disk) failing() <-chan struct{} {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.down
}

// refusal is why the server takes no writes, nil while it does.
func (d *disk) refusal() error {
	d.mutex.Lock()
	defer d.mutex.Unlock()
	return d.failed
}

// watch starts the server anew where it takes no more writes, once there is room for some.
func (s *Store) watch() {
	defer s.wait.Done()
	for s.pause(s.ctx, failureEvery) {
		why := s.embedded.failure()
		if why == "" {
			continue
		}
		if s.disk.refusal() == nil {
			s.options.Logf("store: the embedded NATS server in %s takes no writes: %s: see to that, such as by making room, and the run goes on by itself", s.options.Dir, why)
			s.disk.fail(fmt.Errorf("store: %w: the server in %s takes no writes (%s): see to that, such as by making room, and the run goes on by itself", port.ErrNoSpace, s.options.Dir, why))
		}
		if free, err := s.disk.free(s.options.Dir); err == nil && free < max(s.disk.least, restartBytes) {
			continue
		}
		if err := s.embedded.restart(); err != nil {
			s.options.Logf("%v", err)
			continue
		}
		s.disk.fail(nil)
		s.options.Logf("store: the embedded NATS server in %s was started anew and takes writes again", s.options.Dir)
	}
}

// room says, as an error that wraps port.ErrNoSpace, that there is no room for n more bytes.
func (d *disk) room(n int) error {
	if d.dir == "" {
		return nil
	}
	d.mutex.Lock()
	defer d.mutex.Unlock()
	if d.failed != nil || d.least < 0 {
		return d.failed
	}
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
		d.full = fmt.Errorf("store: %w: the disk of %s has %d bytes left, of which %d stay free: make room, the run goes on by itself", port.ErrNoSpace, d.dir, free, d.least)
	}
	return d.full
}
