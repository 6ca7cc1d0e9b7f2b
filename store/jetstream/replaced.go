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

// ended reports whether the log is followed no longer.
func (f *followed) ended() bool {
	f.mutex.Lock()
	defer f.mutex.Unlock()
	return f.over != nil
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

// shared asks a question once for all who wait for its answer. No answer is of a question that began before its caller came.
type shared struct {
	ask func() error

	mutex sync.Mutex
	asks  bool
	next  *question // it begins when the one under way has ended; nil where nobody waits
}

type question struct {
	answered chan struct{}
	err      error
}

func (s *shared) answer(ctx context.Context) error {
	s.mutex.Lock()
	if s.next == nil {
		s.next = &question{answered: make(chan struct{})}
	}
	q := s.next
	if !s.asks {
		s.asks = true
		go s.run()
	}
	s.mutex.Unlock()
	select {
	case <-q.answered:
		return q.err
	case <-ctx.Done():
		return context.Cause(ctx)
	}
}

// run asks until nobody waits.
func (s *shared) run() {
	for {
		s.mutex.Lock()
		q := s.next
		s.next, s.asks = nil, q != nil
		s.mutex.Unlock()
		if q == nil {
			return
		}
		q.err = s.ask()
		close(q.answered)
	}
}

// Replaced says why another process of the cell may be in the place of this one. It asks the leader of the log for its end, and waits
// until all up to there is followed. A process does nothing before the log has its hello. Replaced asks until there is an answer, or
// the context ends. Calls at the same time share a question.
func (l *Link) Replaced(ctx context.Context) error {
	for {
		err := l.newest.answer(ctx)
		if err == nil {
			return nil
		}
		if l.followed.ended() || !l.store.pause(ctx, retryWait) {
			return fmt.Errorf("store: cell %s may have another process: %w", l.cell, err)
		}
	}
}

// reachEnd waits until all is followed that the log has now.
func (l *Link) reachEnd() error {
	ctx, cancel := context.WithTimeout(l.store.ctx, apiTimeout)
	defer cancel()
	info, err := l.store.log.Info(ctx)
	if err != nil {
		return err
	}
	return l.followed.reach(ctx, info.State.LastSeq)
}
