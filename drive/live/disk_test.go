package live_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/drive/live"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/channel"
	"github.com/headway-rl/headway/loop/port"
)

// crampedStore has no room now and then.
type crampedStore struct {
	*memoryStore
	mu            sync.Mutex
	log, payloads bool // full
	refused       map[string]int
}

func (s *crampedStore) set(log, payloads bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.log, s.payloads = log, payloads
}

func (s *crampedStore) refuses(what string, full *bool) bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	if *full {
		s.refused[what]++
	}
	return *full
}

func (s *crampedStore) Append(lines [][]byte) error {
	if s.refuses("log", &s.log) {
		return fmt.Errorf("the log's stream holds all it may: %w", port.ErrNoSpace)
	}
	return s.memoryStore.Append(lines)
}

func (s *crampedStore) PutSample(p port.Sample) error {
	if s.refuses("payloads", &s.payloads) {
		return fmt.Errorf("payloads: %w", syscall.ENOSPC)
	}
	return s.memoryStore.PutSample(p)
}

// TestFullDisk: a store without room, for payloads, for the log, for both, or for the
// trainer's weights, stops a run without ending it. It goes on when there is room again,
// and nothing is lost.
func TestFullDisk(t *testing.T) {
	for name, full := range map[string]func(s *crampedStore, w *world){
		"payloads": func(s *crampedStore, _ *world) { s.set(false, true) },
		"log":      func(s *crampedStore, _ *world) { s.set(true, false) },
		"both":     func(s *crampedStore, _ *world) { s.set(true, true) },
		"weights":  nil,
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(asyncConfig())
				s := &crampedStore{memoryStore: w.store, refused: map[string]int{}}
				var mu sync.Mutex
				var told []bool
				w.change = func(o *live.Options) {
					o.Store = s
					o.OnDiskFull = func(cause error) {
						mu.Lock()
						defer mu.Unlock()
						told = append(told, cause != nil)
					}
				}
				r := w.runtime(t, nil)
				const from, to = 1500 * time.Millisecond, 3 * time.Minute
				if full == nil {
					began := time.Now()
					w.trainer.fail = func(port.Batch) error {
						if at := time.Since(began); at > from && at < to {
							return fmt.Errorf("weights: %w", syscall.ENOSPC)
						}
						return nil
					}
				} else {
					time.AfterFunc(from, func() { full(s, w) })
					time.AfterFunc(to, func() { s.set(false, false) })
				}
				seen := lookAt(to-time.Second, r.View)
				res, err := r.Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v, ledger %+v", res.Reason, err, res.Status.Ledger)
				}
				if at := time.Duration(res.Status.TimeNS); at < to {
					t.Errorf("the run was over at %v, before there was room again", at)
				}
				during := <-seen
				mu.Lock()
				defer mu.Unlock()
				if len(told) == 0 || len(told)%2 != 0 || !told[0] || told[len(told)-1] {
					t.Errorf("told of a full disk: %v", told)
				}
				if !during.DiskFull || time.Duration(during.DiskFullNS) < from || r.View().DiskFull {
					t.Errorf("the view says disk full: %v since %v, and at the end %v", during.DiskFull, time.Duration(during.DiskFullNS), r.View().DiskFull)
				}
				l, _ := replay(t, w)
				if l.Ledger() != res.Status.Ledger {
					t.Errorf("replayed ledger %+v, live %+v", l.Ledger(), res.Status.Ledger)
				}
			})
		})
	}
}

// TestFullDiskStops: while the log has no room the run can be stopped at once, and goes
// on from what the log has.
func TestFullDiskStops(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		s := &crampedStore{memoryStore: w.store, refused: map[string]int{}}
		w.change = func(o *live.Options) { o.Store = s }
		ctx, cancel := context.WithCancel(t.Context())
		time.AfterFunc(time.Second, func() { s.set(true, true) })
		time.AfterFunc(time.Minute, cancel)
		_, err := w.runtime(t, nil).Run(ctx)
		if !errors.Is(err, port.ErrNoSpace) || !errors.Is(err, context.Canceled) {
			t.Fatalf("got %v, want the full store and the end of the context", err)
		}
		s.set(false, false)
		res, err := w.runtime(t, w.resume(t)).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
			t.Fatalf("ended by %v: %v", res.Reason, err)
		}
		replay(t, w)
	})
}

// TestFullDiskStopsInOrder: a Stop ends a run that waits for room, for its log or for the
// trainer's weights, with the cause, and the run goes on when there is room again.
func TestFullDiskStopsInOrder(t *testing.T) {
	for _, full := range []string{"log", "weights", "weights, then room"} {
		t.Run(full, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				w := newWorld(asyncConfig())
				s := &crampedStore{memoryStore: w.store, refused: map[string]int{}}
				var mu sync.Mutex
				var cause error
				w.change = func(o *live.Options) {
					o.Store = s
					o.OnDiskFull = func(why error) {
						mu.Lock()
						defer mu.Unlock()
						if why != nil {
							cause = why
						}
					}
				}
				began := time.Now()
				const stopped = time.Minute
				if full == "log" {
					time.AfterFunc(time.Second, func() { s.set(true, true) })
				} else {
					w.trainer.fail = func(port.Batch) error {
						if at := time.Since(began); at > time.Second && (at < stopped-time.Second || full == "weights") {
							return fmt.Errorf("weights: %w", syscall.EDQUOT)
						}
						return nil
					}
				}
				r := w.runtime(t, nil)
				time.AfterFunc(stopped, r.Stop)
				res, err := r.Run(t.Context())
				if full == "weights, then room" {
					if err != nil || res.Reason != loop.ReasonStopped {
						t.Errorf("ended by %v: %v, want the stop: there was room at the last try", res.Reason, err)
					}
					return
				}
				if took := time.Since(began) - stopped; !noRoom(err) || took > time.Second {
					t.Fatalf("ended %v after the stop by %v, want soon after, by the full store", took, err)
				}
				if !noRoom(cause) {
					t.Errorf("told of %v", cause)
				}
				s.set(false, false)
				w.trainer.fail = nil
				res, err = w.runtime(t, w.resume(t)).Run(t.Context())
				if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
					t.Fatalf("ended by %v: %v, ledger %+v", res.Reason, err, res.Status.Ledger)
				}
				replay(t, w)
			})
		})
	}
}

func noRoom(err error) bool {
	return errors.Is(err, port.ErrNoSpace) || errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// TestGivenUpWhileTheDiskIsFull: a rollout that waits for room for its payload and is
// not wanted any more gives its slot back.
func TestGivenUpWhileTheDiskIsFull(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cfg := asyncConfig()
		cfg.Redundancy, cfg.EngineSlots = 1, []int{6}
		w := newWorld(cfg)
		s := &hungryStore{memoryStore: w.store}
		w.change = func(o *live.Options) { o.Store = s }
		res, err := w.runtime(t, nil).Run(t.Context())
		if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
			t.Fatalf("ended by %v: %v", res.Reason, err)
		}
		var aborted []port.RolloutID
		for _, rec := range w.records(t) {
			if ev := rec.Event; ev != nil && ev.Kind == loop.RolloutAborted && ev.Sample == 0 {
				aborted = append(aborted, port.RolloutID{Group: ev.Group, Sample: ev.Sample, Attempt: ev.Attempt})
			}
		}
		if s.refused == 0 || len(aborted) < 10 || slices.Contains(s.put, aborted[0]) {
			t.Errorf("%d payloads had no room, given up meanwhile: %v", s.refused, aborted)
		}
	})
}

// hungryStore never has room for the first sample of a group.
type hungryStore struct {
	*memoryStore
	mu      sync.Mutex
	refused int
	put     []port.RolloutID
}

func (s *hungryStore) PutSample(p port.Sample) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if p.ID.Sample == 0 {
		s.refused++
		return port.ErrNoSpace
	}
	s.put = append(s.put, p.ID)
	return s.memoryStore.PutSample(p)
}

// blobless has no room for any blob.
type blobless struct {
	*memoryStore
	refused atomic.Int32
}

func (s *blobless) PutBlob(port.RolloutID, int32, []byte) error {
	s.refused.Add(1)
	return port.ErrNoSpace
}

func (s *blobless) ReadBlob(port.RolloutID, int32, int64, []byte) error { return port.ErrNoBlob }

// saying is an engine that says a row of every pass.
type saying struct{ port.Engine }

func (e saying) Generate(ctx context.Context, r port.GenerateRequest) (port.Generation, error) {
	g, err := e.Engine.Generate(ctx, r)
	if n := len(r.Prompt) + len(g.Tokens) - 1; err == nil && n > 0 {
		h := channel.Header{Name: channel.RoutedExperts, DType: channel.U8, Align: channel.Passes}
		r.Keep(port.Rows{Header: h, Count: n, First: len(r.Prompt) + len(r.Prefix.Tokens), Data: make([]byte, n)})
	}
	return g, err
}

// TestNoRoomForBlobs: a run goes on without rows that the store has no room for. Rollouts that waited for it could hold
// all of it between them, and none would ever end.
func TestNoRoomForBlobs(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		w := newWorld(asyncConfig())
		s := &blobless{memoryStore: w.store}
		w.change = func(o *live.Options) {
			o.Store = s
			for i, e := range o.Engines {
				o.Engines[i] = saying{e}
			}
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		res, err := w.runtime(t, nil).Run(ctx)
		if err != nil || res.Reason != loop.ReasonSteps || !res.Status.Ledger.Balanced() {
			t.Fatalf("ended by %v: %v", res.Reason, err)
		}
		if s.refused.Load() < 10 || !slices.ContainsFunc(w.logged, func(text string) bool { return strings.Contains(text, "are left out") }) {
			t.Errorf("%d blobs had no room, and it is said: %q", s.refused.Load(), w.logged)
		}
	})
}
