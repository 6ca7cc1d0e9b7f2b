package collective_test

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/engine/upstream"
	"github.com/headway-rl/headway/loop"
)

// server is what an engine's side of a collective is: the group that it joined last, and what it was sent.
type server struct {
	name  string
	group upstream.Group
	has   loop.Version
}

// load takes a version as an engine does: it has it held, meets the sender where no group stands, and is sent it.
func (s *server) load(ctx context.Context, p *plane, version loop.Version) error {
	held, err := p.Hold(ctx, s.name, version)
	if err != nil {
		return err
	}
	if held.Digest != fmt.Sprint("digest ", version) {
		p.t.Errorf("%s asked for version %d and was told of %s", s.name, version, held.Digest)
	}
	if !p.Stands(s.name, s.group) {
		p.Part(s.name, s.group)
		calls := 0
		g, err := p.Meet(ctx, s.name, 1, func(ctx context.Context, g upstream.Group) error {
			calls++
			s.group = g
			return ctx.Err()
		})
		if calls > 1 || err == nil && (calls != 1 || g != s.group) {
			p.t.Errorf("%s joined %d times and met in %+v: %v", s.name, calls, g, err)
		}
		if err != nil {
			p.Part(s.name, s.group)
			return err
		}
	}
	if err := p.Send(ctx, s.name, s.group, version); err != nil {
		if p.Stands(s.name, s.group) {
			p.t.Errorf("a send failed by %v, and its group stands", err)
		}
		return err
	}
	s.has = version
	return nil
}

// TestAnyFaults: whatever befalls senders and engines, a sender is never told to send in a group that it has not
// joined or two things of one engine at once, every call ends, and engines get their weights once all is well.
func TestAnyFaults(t *testing.T) {
	loads, failures := 0, 0
	for seed := range uint64(60) {
		synctest.Test(t, func(t *testing.T) {
			rng := rand.New(rand.NewPCG(seed, 7))
			p := newPlane(t)
			ctx, end := context.WithCancel(t.Context())
			var engines sync.WaitGroup
			var mu sync.Mutex
			servers := make([]*server, 1+rng.IntN(4))
			for i := range servers {
				servers[i] = &server{name: fmt.Sprint("e", i), has: loop.NoVersion}
				own := rand.New(rand.NewPCG(seed, uint64(100+i)))
				engines.Go(func() {
					for v := loop.Version(0); ctx.Err() == nil; v++ {
						once, stop := context.WithTimeoutCause(ctx, time.Duration(1+own.IntN(200))*time.Second, errors.New("it took too long"))
						err := servers[i].load(once, p, v)
						stop()
						mu.Lock()
						if loads++; err != nil {
							failures++
						}
						mu.Unlock()
						time.Sleep(time.Duration(own.IntN(20)) * time.Second)
					}
				})
			}
			var all []*script
			for step := range 30 {
				s := p.script([]string{"a", "b"}[rng.IntN(2)], fmt.Sprint("process ", step))
				for _, kind := range []string{protocol.SenderHold, protocol.SenderJoin, protocol.SenderSend} {
					switch rng.IntN(8) {
					case 0:
						s.hang = append(s.hang, kind)
					case 1:
						s.fail = append(s.fail, kind)
					}
				}
				s.twice = rng.IntN(2) == 0
				all = append(all, s.start())
				time.Sleep(time.Duration(rng.IntN(90)) * time.Second)
				if rng.IntN(3) > 0 {
					s.kill()
				}
				if rng.IntN(4) == 0 {
					_, err := p.Next(t.Context(), s.name, protocol.SenderRequest{Instance: s.instance, Backend: s.backend, Leaving: true})
					if err != nil {
						t.Errorf("leaving: %v", err)
					}
				}
			}
			end()
			engines.Wait()
			for _, s := range all {
				s.kill()
			}
			time.Sleep(time.Minute)
			last := p.script("c", "the last").start()
			for _, s := range servers {
				if err := s.load(t.Context(), p, 1000); err != nil || s.has != 1000 {
					t.Errorf("seed %d: all is well, and %s has version %d: %v", seed, s.name, s.has, err)
				}
				p.Part(s.name, s.group)
			}
			synctest.Wait()
			if status := p.Status(); len(status.Groups) != 0 || len(status.Joining) != 0 || len(status.Waiting) != 0 || len(last.standing()) != 0 {
				t.Errorf("seed %d: left are %+v", seed, status)
			}
			last.kill()
			for _, s := range append(all, last) {
				s.check(t)
			}
		})
	}
	if failures < loads/20 || failures > loads*9/10 {
		t.Errorf("%d of %d loads failed: the test says little", failures, loads)
	}
}

// check fails where a sender was told what it could not do.
func (s *script) check(t *testing.T) {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, c := range s.told {
		joined := slices.ContainsFunc(s.told[:i], func(j protocol.SenderCommand) bool {
			return j.Kind == protocol.SenderJoin && j.Group == c.Group && j.Engine == c.Engine
		})
		if c.Kind == protocol.SenderSend && !joined {
			t.Errorf("%s of %s is to send in %s, which it has not joined", s.instance, s.name, c.Group)
		}
	}
	if s.crowded {
		t.Errorf("%s of %s had two commands of one engine at once", s.instance, s.name)
	}
}
