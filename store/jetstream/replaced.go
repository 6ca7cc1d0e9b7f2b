package jetstream

import (
	"context"
	"fmt"
	"sync"
)

// followed is how far a cell has followed the log.
type followed struct {
	mutex sync.Mutex
	seq   uint64        // the last message that was handed over
	over  error         // why it is followed no longer
	moved chan struct{} // closed with the next change, nil where nobody waits
}

func (f *followed) set(seq uint64, over error) {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	f.seq, f.over = seq, over
	if f.moved != nil {
		close(f.moved)
		f.moved = nil
	}
}

// reach waits until a message was handed over. The error says why none will be.
func (f *followed) reach(ctx context.Context, seq uint64) error {
	for {
		f.mutex.Lock()
		at, over := f.seq, f.over
		if f.moved == nil {
			f.moved = make(chan struct{})
		}
		moved := f.moved
		f.mutex.Unlock()
		switch {
		case over != nil:
			return over
		case at >= seq:
			return nil
		}
		select {
		case <-moved:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// Replaced says why another process of the cell may be in the place of this one. It asks the leader of the log for its end, and waits
// until all up to there is followed. A process does nothing before the log has its hello. Replaced waits up to apiTimeout.
func (l *Link) Replaced(ctx context.Context) error {
	ctx, cancel := context.WithTimeout(ctx, apiTimeout)
	defer cancel()
	log, err := l.store.js.Stream(ctx, l.store.names.log)
	if err == nil {
		err = l.followed.reach(ctx, log.CachedInfo().State.LastSeq)
	}
	if err != nil {
		return fmt.Errorf("store: cell %s may have another process: %w", l.cell, err)
	}
	return nil
}
