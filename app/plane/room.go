package plane

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/store/jetstream"
	"github.com/headway-rl/headway/store/weights"
)

const (
	// roomMin is what the disk of a run must have free for the run to start: an embedded server's bound, and
	// something to write beyond it.
	roomMin = jetstream.FreeBytesMinDefault + 8<<20
	// roomEvery is the time between two looks.
	roomEvery = time.Second
)

// awaitRoom waits for room on the disk where the store is in this process, as a run does that goes on. A start
// that failed would be started again, and again, with less to read of why.
func (p *Plane) awaitRoom(ctx context.Context) error {
	if !p.Cfg.Store.NATS.Inside() {
		return nil
	}
	every := time.NewTicker(roomEvery)
	defer every.Stop()
	told := false
	for {
		free := weights.Free(standing(p.Dir))
		if free < 0 || free >= roomMin { // it is not known everywhere
			break
		}
		why := fmt.Sprintf("the disk of %s has %s free, and a run needs %s to start", p.Dir, report.Bytes(free), report.Bytes(roomMin))
		p.awaits("room on the disk", why)
		if !told {
			p.logf("waiting for room: %s: make room, the start goes on by itself", why)
		}
		told = true
		select {
		case <-every.C:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
	p.awaits("", "")
	if told {
		p.logf("the disk of %s has room again: the start goes on", p.Dir)
	}
	return nil
}

// standing is the path, or the nearest folder above it that is there.
func standing(path string) string {
	for {
		above := filepath.Dir(path)
		if _, err := os.Stat(path); err == nil || above == path {
			return path
		}
		path = above
	}
}
