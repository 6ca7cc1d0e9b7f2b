package jetstream

import (
	"context"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

const (
	// leaseKey is the key of the writer's lease in the run's bucket.
	leaseKey = "writer"
	// cellKeys begins the keys that processes of cells write for their incarnations.
	cellKeys = "cell."
)

// holder is the lease's value: who writes, and since when.
type holder struct {
	Name  string `json:"name"`
	Nonce string `json:"nonce"`
	Since string `json:"since"` // for people; nothing is decided by it
}

// lease is the right to write the run, as long as it is renewed and nobody took over.
type lease struct {
	store    *Store
	bucket   jetstream.KeyValue
	epoch    uint64
	nonce    string
	value    []byte
	revision uint64
	lost     chan struct{}
	fenced   atomic.Bool
	renewed  atomic.Pointer[time.Time] // when the last renewal that succeeded began
	ended    atomic.Bool
	cancel   context.CancelFunc
	done     chan struct{}
}

// Holding says, as an error, that this process may not be the run's writer any more. It has not
// renewed its lease for Options.WriterTTL, and another may have taken over by now. A caller that
// appends to the log need not ask: it is refused.
func (s *Store) Holding() error {
	l, err := s.writer()
	if err != nil {
		return err
	}
	if silent := time.Since(*l.renewed.Load()); s.embedded == nil && silent >= s.options.WriterTTL {
		return fmt.Errorf("store: the writer's lease was not renewed for %v: another process may be the writer by now; try again when NATS answers", silent.Round(time.Millisecond))
	}
	return nil
}

// Stalled returns an error while writes of this process would wait, or count for nothing. It does not hold the run's
// lease, or a connection to NATS is broken. Or a write, or a renewal of the lease, has waited for longer than
// stallAfter. Stalled does not ask the server.
func (s *Store) Stalled() error {
	l, err := s.writer()
	if err != nil {
		return err
	}
	for _, c := range []*nats.Conn{s.control, s.put, s.get} {
		if !c.IsConnected() {
			return fmt.Errorf("store: the connection to NATS is broken (%v)", c.Status())
		}
	}
	if since := s.events.since.Load(); since != nil && time.Since(*since) > stallAfter {
		return fmt.Errorf("store: an append has waited for %v", time.Since(*since).Round(time.Millisecond))
	}
	if silent := time.Since(*l.renewed.Load()); silent > s.options.WriterTTL/3+stallAfter {
		return fmt.Errorf("store: the writer's lease was not renewed for %v", silent.Round(time.Millisecond))
	}
	return nil
}

// stallAfter is how long a write may take before Stalled says that it waits.
const stallAfter = time.Second

// fence ends the lease: this process writes no more.
func (l *lease) fence() {
	if l.fenced.CompareAndSwap(false, true) {
		close(l.lost)
	}
}

// Acquire makes this process the run's writer. While another one renews its lease it blocks, until
// that one closes its store or has not renewed it for Options.WriterTTL. The time is by this
// process's monotonic clock: no wall clock matters. It then ends the epoch of the writer before in
// the log, reads what payloads there are, and completes the mirror. The epoch is higher than that of
// every writer before. The channel lost is closed when another process has taken over, or the lease
// could not be renewed for long. Every call fails from then on.
func (s *Store) Acquire(ctx context.Context, name string) (epoch uint64, lost <-chan struct{}, err error) {
	if s.lease.Load() != nil {
		return 0, nil, errors.New("store: this process writes the run already")
	}
	l := &lease{store: s, nonce: rand.Text(), lost: make(chan struct{}), done: make(chan struct{})}
	if l.value, err = json.Marshal(holder{name, l.nonce, time.Now().UTC().Format(time.RFC3339)}); err != nil {
		return 0, nil, err
	}
	if l.bucket, err = s.leaseBucket(ctx); err != nil {
		return 0, nil, fmt.Errorf("store: the writer's lease: %w", err)
	}
	if err := l.take(ctx); err != nil {
		return 0, nil, fmt.Errorf("store: the writer's lease: %w", err)
	}
	renewing, cancel := context.WithCancel(s.ctx)
	l.cancel = cancel
	go l.renew(renewing)
	if err := s.takeOver(ctx, l); err != nil {
		l.release()
		return 0, nil, err
	}
	return l.epoch, l.lost, nil
}

// takeOver fences the writer before and reads what it left.
func (s *Store) takeOver(ctx context.Context, l *lease) error {
	if err := s.fenceLog(ctx, l); err != nil {
		return err
	}
	before, revision, err := l.takeovers(ctx)
	if err != nil {
		return err
	}
	last, err := s.payloads.load(ctx, before)
	if err != nil {
		return err
	}
	if err := l.record(ctx, before, revision, last); err != nil {
		return err
	}
	if err := s.scrub(ctx); err != nil {
		return err
	}
	m, err := openMirror(s)
	if err != nil {
		return err
	}
	s.mirror = m
	s.lease.Store(l)
	s.payloads.start(l)
	s.wait.Go(s.removeTurns)
	return nil
}

func (s *Store) leaseBucket(ctx context.Context) (jetstream.KeyValue, error) {
	var bucket jetstream.KeyValue
	err := s.again(ctx, func(ctx context.Context) (err error) {
		bucket, err = s.js.CreateOrUpdateKeyValue(ctx, jetstream.KeyValueConfig{
			Bucket: s.names.bucket, Description: "who writes the run " + s.options.Run, Replicas: s.options.Replicas,
		})
		return err
	})
	return bucket, err
}

// take waits until the lease is free and takes it.
func (l *lease) take(ctx context.Context) error {
	var seen uint64
	since := time.Now()
	for {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, apiTimeout)
		entry, err := l.bucket.Get(try, leaseKey)
		var revision uint64
		free := errors.Is(err, jetstream.ErrKeyNotFound)
		if err == nil {
			if entry.Revision() != seen {
				seen, since = entry.Revision(), time.Now()
			}
			// The directory of an embedded server is locked: whoever wrote there is gone.
			free = l.store.embedded != nil || time.Since(since) >= l.store.options.WriterTTL
		}
		switch {
		case free && err == nil:
			revision, err = l.bucket.Update(try, leaseKey, l.value, seen)
		case free:
			revision, err = l.bucket.Create(try, leaseKey, l.value)
		}
		cancel()
		if err == nil && free {
			l.revision, l.epoch = revision, revision
			l.renewed.Store(&began)
			return nil
		}
		if err != nil && !transient(err) && !wrongSequence(err) && !errors.Is(err, jetstream.ErrKeyExists) && !errors.Is(err, jetstream.ErrKeyNotFound) {
			return err
		}
		if !l.store.pause(ctx, l.store.options.WriterTTL/10) {
			if ctx.Err() != nil {
				return context.Cause(ctx)
			}
			return ErrClosed
		}
	}
}

// renew renews the lease at a third of its time until it is lost or given back.
func (l *lease) renew(ctx context.Context) {
	defer close(l.done)
	ttl := l.store.options.WriterTTL
	renewed, away := time.Now(), false
	for l.store.pause(ctx, ttl/3) {
		began := time.Now()
		try, cancel := context.WithTimeout(ctx, max(ttl/3, 500*time.Millisecond))
		err := l.write(try)
		cancel()
		switch {
		case ctx.Err() != nil:
			return
		case err == nil:
			renewed = began
			l.renewed.Store(&began)
			if away {
				away = false
				l.store.options.Logf("store: the writer's lease is renewed again")
			}
		case errors.Is(err, ErrFenced):
			l.store.options.Logf("store: another process has taken the run over")
			l.fence()
			return
		case !away && time.Since(renewed) >= ttl:
			// Not a reason to end the run: a cluster without a leader comes back, and whoever
			// took over meanwhile is found by the next renewal, and by every append.
			away = true
			l.store.options.Logf("store: the writer's lease could not be renewed for %v: %v; no version is committed until it is", time.Since(renewed).Round(time.Millisecond), err)
		}
	}
}

// write writes the lease anew, unless another process has. A request before may have been done and its answer lost: what it
// wrote may be as old as it is, so that it is no renewal, and is written once more.
func (l *lease) write(ctx context.Context) error {
	revision, err := l.bucket.Update(ctx, leaseKey, l.value, l.revision)
	if wrongSequence(err) {
		if revision, err = l.adopt(ctx); err == nil {
			revision, err = l.bucket.Update(ctx, leaseKey, l.value, revision)
		}
	}
	if err == nil {
		l.revision = revision
	}
	return err
}

// adopt looks whether the lease's newest revision is of this process, whose request was
// done and its answer lost.
func (l *lease) adopt(ctx context.Context) (uint64, error) {
	entry, err := l.bucket.Get(ctx, leaseKey)
	if errors.Is(err, jetstream.ErrKeyNotFound) {
		return 0, ErrFenced
	}
	if err != nil {
		return 0, err
	}
	var h holder
	if json.Unmarshal(entry.Value(), &h) != nil || h.Nonce != l.nonce {
		return 0, ErrFenced
	}
	return entry.Revision(), nil
}

// release gives the lease back, so that the next writer need not wait.
func (l *lease) release() {
	if !l.ended.CompareAndSwap(false, true) {
		return
	}
	l.cancel()
	<-l.done
	if l.fenced.Load() {
		return
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	if err := l.bucket.Delete(ctx, leaseKey, jetstream.LastRevision(l.revision)); err != nil {
		l.store.options.Logf("store: giving the writer's lease back: %v; a standby takes over after %v", err, l.store.options.WriterTTL)
	}
	l.fence()
}
