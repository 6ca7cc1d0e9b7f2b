package remote

import (
	"context"
	"errors"
	"math/rand/v2"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
)

// lineage is what a loop over a trainer keeps of it: which lease made which version.
type lineage struct {
	mu      sync.Mutex
	version loop.Version
	made    map[loop.Version]loop.LeaseID
	// acknowledged are the versions that a trainer was told of.
	acknowledged map[loop.Version]loop.LeaseID
	returned     int
	failed       int
	restored     int
}

// Trainers that do everything at the wrong time: whatever they do, a version is made of one
// lease, of the one that Train returned for, and a refused publish leaves nothing.
func TestRandomTrainers(t *testing.T) {
	steps, returned, failed, restored := 0, 0, 0, 0
	for seed := range uint64(9) {
		synctest.Test(t, func(t *testing.T) {
			l := &lineage{made: map[loop.Version]loop.LeaseID{}, acknowledged: map[loop.Version]loop.LeaseID{}}
			r := started(t, func(o *Options) {
				o.SyncEvery = 1 + int(seed%3)
				o.OnRestored = func(v loop.Version) {
					l.mu.Lock()
					defer l.mu.Unlock()
					if v != l.version+1 {
						t.Errorf("seed %d: version %d is restored after %d", seed, v, l.version)
					}
					l.version, l.made[v] = v, 0
					l.restored++
				}
			})
			ctx, stop := context.WithTimeout(t.Context(), 20*time.Minute)
			var all sync.WaitGroup
			all.Go(func() { r.loop(ctx, seed, l) })
			for i, name := range []string{"a", "a", "b"} {
				all.Go(func() { r.wild(ctx, rand.New(rand.NewPCG(seed, uint64(i)+1)), name, l) })
			}
			<-ctx.Done()
			r.must(r.Close())
			all.Wait()
			stop()
			for v, lease := range l.acknowledged {
				if l.made[v] != lease {
					t.Errorf("seed %d: a trainer was told that lease %d made version %d; the loop has lease %d", seed, lease, v, l.made[v])
				}
			}
			versions, err := r.store.Versions()
			r.must(err)
			if newest := versions[len(versions)-1]; newest > l.version {
				t.Errorf("seed %d: version %d is there, the loop is at %d", seed, newest, l.version)
			}
			for _, v := range versions[1:] {
				r.manifest(v, l.made[v])
			}
			steps, returned, failed, restored = steps+len(l.made), returned+l.returned, failed+l.failed, restored+l.restored
		})
	}
	t.Logf("%d versions, %d of them restored; %d leases returned, %d attempts failed", steps, restored, returned, failed)
	if steps < 100 || returned < 50 || failed < 5 || restored < 20 {
		t.Errorf("%d versions, %d restored, %d leases returned, %d attempts failed: the trainers do not do everything", steps, restored, returned, failed)
	}
}

// loop is a loop's part: one batch at a time, a new lease after one went back, a new attempt after a failure.
func (r *rig) loop(ctx context.Context, seed uint64, l *lineage) {
	lease, attempt := loop.LeaseID(1), int32(1)
	used := map[loop.LeaseID]bool{}
	for ctx.Err() == nil {
		l.mu.Lock()
		version := l.version
		l.mu.Unlock()
		_, err := r.Train(ctx, groups(lease, attempt, version, 2))
		l.mu.Lock()
		switch {
		case ctx.Err() != nil && err != nil:
		case err == nil:
			if used[lease] {
				r.t.Errorf("seed %d: lease %d is trained twice", seed, lease)
			}
			used[lease] = true
			if l.version != version {
				r.t.Errorf("seed %d: lease %d of version %d ended after version %d was restored", seed, lease, version, l.version)
			}
			l.version, l.made[version+1] = version+1, lease
			lease, attempt = lease+1, 1
		case errors.Is(err, port.ErrLeaseReturned):
			l.returned++
			lease, attempt = lease+1, 1
		default:
			l.failed++
			attempt++
		}
		l.mu.Unlock()
		synctest.Wait()
	}
}

// wild is a trainer's process: it leases, dawdles, and ends the step in some way, or a step of before.
func (r *rig) wild(ctx context.Context, rng *rand.Rand, name string, l *lineage) {
	var known []protocol.Lease
	for ctx.Err() == nil {
		time.Sleep(time.Duration(rng.IntN(20_000)) * time.Millisecond)
		if rng.IntN(8) == 0 {
			_, _ = r.Connect(ctx, protocol.ConnectRequest{Trainer: name, Version: loop.Version(rng.IntN(20)) - 1})
		}
		body, err := r.Lease(ctx, protocol.LeaseRequest{Trainer: name, WaitS: float64(rng.IntN(5))})
		if err == nil && body != nil {
			known = append(known, body.(*share).Lease())
		}
		if len(known) == 0 {
			continue
		}
		time.Sleep(time.Duration(rng.IntN(30_000)) * time.Millisecond)
		at := known[len(known)-1]
		if rng.IntN(5) == 0 {
			at = known[rng.IntN(len(known))]
		}
		switch rng.IntN(9) {
		case 0:
			_ = r.Nack(ctx, at.Lease, protocol.NackRequest{Trainer: name, Attempt: at.Attempt, Failed: rng.IntN(2) == 0})
		case 1:
			time.Sleep(70 * time.Second)
		case 2:
			from := loop.Version(rng.IntN(5))
			l.mu.Lock()
			next := l.version + 1
			l.mu.Unlock()
			_, _ = r.Publish(ctx, protocol.PublishRequest{Trainer: name, Version: next, RestoredFrom: &from}, nil)
		case 3, 4:
			reply, err := r.Ack(ctx, at.Lease, protocol.AckRequest{Trainer: name, Attempt: at.Attempt, ForwardVersion: -1, StepVersion: -1})
			if err == nil {
				l.told(reply.Version, at.Lease)
			}
		default:
			reply, err := r.Publish(ctx, ofLease(name, at), files(model(float32(at.Lease), float32(rng.IntN(3)))))
			if err == nil {
				l.told(reply.Version, at.Lease)
			}
		}
	}
}

func (l *lineage) told(v loop.Version, lease loop.LeaseID) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.acknowledged[v] = lease
}
