package collective

import (
	"context"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

func trainer(name string) protocol.RendezvousRequest {
	return protocol.RendezvousRequest{Member: name, Role: roleTrainer, Address: "10.0.0.7:29500", Backend: "gloo", WaitS: 60}
}

func engine(name string, ranks int) protocol.RendezvousRequest {
	return protocol.RendezvousRequest{Member: name, Role: roleEngine, Ranks: ranks, Backend: "gloo", WaitS: 60}
}

// call is a call to Join that may wait.
type call struct {
	reply protocol.RendezvousReply
	err   error
	done  bool
}

// join calls in the background, and returns when the call waits or has ended.
func join(ctx context.Context, r *Rendezvous, req protocol.RendezvousRequest) *call {
	c := &call{}
	go func() {
		c.reply, c.err = r.Join(ctx, "weights", req)
		c.done = true
	}()
	synctest.Wait()
	return c
}

// at checks where a member was told to stand.
func (c *call) at(t *testing.T, epoch int64, offset, world int) {
	t.Helper()
	want := protocol.RendezvousReply{Epoch: epoch, MasterAddress: "10.0.0.7", MasterPort: 29500, WorldSize: world, RankOffset: offset, Backend: "gloo", Members: c.reply.Members}
	if !c.done || c.err != nil || fmt.Sprint(c.reply) != fmt.Sprint(want) {
		t.Errorf("got %+v, %v (answered %v): want epoch %d, offset %d of %d", c.reply, c.err, c.done, epoch, offset, world)
	}
}

func (c *call) refused(t *testing.T, code protocol.Code, word string) {
	t.Helper()
	refusal, ok := errors.AsType[*protocol.Refusal](c.err)
	if !c.done || !ok || refusal.Code != code || !strings.Contains(refusal.Message, word) {
		t.Errorf("got %+v, %v (answered %v): want %s with %q", c.reply, c.err, c.done, code, word)
	}
}

// TestArrivalOrder: whoever comes first, everybody is answered at the same moment, and
// the ranks go by role and name alone.
func TestArrivalOrder(t *testing.T) {
	members := []protocol.RendezvousRequest{trainer("z"), engine("a", 2), engine("b", 1), engine("c", 4)}
	offsets := []int{0, 1, 3, 4}
	for _, order := range [][]int{{0, 1, 2, 3}, {3, 2, 1, 0}, {1, 3, 0, 2}, {2, 0, 3, 1}} {
		synctest.Test(t, func(t *testing.T) {
			r := NewRendezvous(RendezvousOptions{Engines: 3})
			calls := make([]*call, len(members))
			for i, k := range order {
				for _, k := range order[:i] {
					if calls[k].done {
						t.Errorf("order %v: member %d was answered before all were there", order, k)
					}
				}
				calls[k] = join(t.Context(), r, members[k])
			}
			for k, c := range calls {
				c.at(t, 1, offsets[k], 8)
				if !slices.Equal(c.reply.Members, []string{"z", "a", "b", "c"}) {
					t.Errorf("members %v", c.reply.Members)
				}
			}
		})
	}
}

// TestMembershipChange: an epoch stands until somebody joins anew; the others learn it by
// their next call, and meet again under the next.
func TestMembershipChange(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := NewRendezvous(RendezvousOptions{}), t.Context()
		first := trainer("t")
		first.Engines = 2
		join(ctx, r, first)
		join(ctx, r, engine("a", 1))
		join(ctx, r, engine("b", 1)).at(t, 1, 2, 3)

		// A member that names the epoch that stands is answered at once.
		first.Epoch = 1
		join(ctx, r, first).at(t, 1, 0, 3)
		ask := engine("a", 1)
		ask.Epoch, ask.WaitS = 1, 0
		join(ctx, r, ask).at(t, 1, 1, 3)

		// b restarts: nobody hears of it until it calls.
		again := join(ctx, r, engine("b", 1))
		join(ctx, r, ask).refused(t, protocol.CodeExpired, "engine b has joined anew")
		ask.WaitS = 60
		join(ctx, r, ask)
		if again.done {
			t.Errorf("b was answered before the trainer came: %+v", again)
		}
		join(ctx, r, first).at(t, 2, 0, 3)
		again.at(t, 2, 2, 3)

		// b is replaced by c, under another name and with more ranks.
		first.Epoch, ask.Epoch = 2, 2
		c := join(ctx, r, engine("c", 3))
		join(ctx, r, ask)
		join(ctx, r, first).at(t, 3, 0, 5)
		c.at(t, 3, 2, 5)
		late := engine("b", 1)
		late.Epoch, late.WaitS = 2, 0
		join(ctx, r, late).refused(t, protocol.CodeExpired, "met again since")

		// c comes with fewer ranks than it had in the epoch that it names.
		shrunk := engine("c", 2)
		shrunk.Epoch, shrunk.WaitS = 3, 0
		join(ctx, r, shrunk).refused(t, protocol.CodeExpired, "not in it as it is now")

		// The trainer wants one engine more.
		first.Epoch, ask.Epoch, first.Engines = 3, 3, 3
		grown := join(ctx, r, first)
		join(ctx, r, ask)
		join(ctx, r, engine("b", 1))
		stays := engine("c", 3)
		stays.Epoch = 3
		join(ctx, r, stays).at(t, 4, 3, 6)
		grown.at(t, 4, 0, 6)
	})
}

// TestEpochsRise: a control plane that has forgotten its epochs gives out higher ones.
func TestEpochsRise(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRendezvous(RendezvousOptions{Engines: 1})
		knows := engine("a", 1)
		knows.Epoch, knows.WaitS = 41, 0
		join(t.Context(), r, knows).refused(t, protocol.CodeExpired, "never met here")
		knows.WaitS = 60
		join(t.Context(), r, knows)
		join(t.Context(), r, trainer("t")).at(t, 42, 0, 2)
	})
}

// TestMissing: who waits in vain is told who is not there, and is not counted on.
func TestMissing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := NewRendezvous(RendezvousOptions{}), t.Context()
		wait := func(c *call, word string) {
			t.Helper()
			time.Sleep(time.Minute)
			synctest.Wait()
			c.refused(t, protocol.CodeUnavailable, "after 60 s: "+word+"; ask again")
		}
		wait(join(ctx, r, engine("a", 1)), "the trainer, engines, of which the trainer says how many")
		if len(r.rounds) != 0 {
			t.Errorf("%d collectives are kept that never met", len(r.rounds))
		}
		first := trainer("t")
		first.Engines = 2
		wait(join(ctx, r, first), "2 of 2 engines")
		r.Expect("weights", 2)
		join(ctx, r, engine("a", 1))
		join(ctx, r, engine("b", 1))
		join(ctx, r, first).at(t, 1, 0, 3)
		wait(join(ctx, r, engine("b", 1)), "trainer t, engine a")
		unlucky := join(ctx, r, first)
		time.Sleep(time.Second)
		join(ctx, r, engine("c", 1))
		wait(unlucky, "1 of 2 engines") // a or b: either completes it
		gone, leave := context.WithCancel(ctx)
		left := join(gone, r, engine("a", 1))
		leave()
		synctest.Wait()
		if !errors.Is(left.err, context.Canceled) {
			t.Errorf("a call that nobody listens to ended by %v", left.err)
		}
		join(ctx, r, engine("b", 1))
		late := join(ctx, r, first)
		if late.done {
			t.Errorf("met with an engine that had left: %+v", late)
		}
		join(ctx, r, engine("a", 1)).at(t, 2, 1, 3)
	})
}

// TestConflicts: members that cannot be in one collective, and requests that cannot be.
func TestConflicts(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, ctx := NewRendezvous(RendezvousOptions{Engines: 2}), t.Context()
		waits := join(ctx, r, engine("a", 1))
		other := engine("b", 1)
		other.Backend = "nccl"
		join(ctx, r, other).refused(t, protocol.CodeConflict, "engine a waits with gloo")
		join(ctx, r, engine("b", 1))
		join(ctx, r, engine("c", 1)).refused(t, protocol.CodeConflict, "3 engines are there, and 2 are expected")
		fewer := trainer("t")
		fewer.Engines = 1
		join(ctx, r, fewer).refused(t, protocol.CodeConflict, "2 engines are there, and 1 are expected")
		twice := join(ctx, r, engine("a", 1))
		waits.refused(t, protocol.CodeConflict, "has taken this one's place")
		join(ctx, r, trainer("t")).at(t, 1, 0, 3)
		twice.at(t, 1, 1, 3)
		join(ctx, r, trainer("t"))
		join(ctx, r, trainer("u")).refused(t, protocol.CodeConflict, "trainer t waits already")

		unsaid := NewRendezvous(RendezvousOptions{})
		join(ctx, unsaid, trainer("t")).refused(t, protocol.CodeInvalid, "how many engines")
		for word, change := range map[string]func(*protocol.RendezvousRequest){
			`member "a b"`:            func(q *protocol.RendezvousRequest) { q.Member = "a b" },
			`role is "viewer"`:        func(q *protocol.RendezvousRequest) { q.Role = "viewer" },
			`backend is "mpi"`:        func(q *protocol.RendezvousRequest) { q.Backend = "mpi" },
			"ranks is 2":              func(q *protocol.RendezvousRequest) { q.Ranks = 2 },
			"ranks is -1":             func(q *protocol.RendezvousRequest) { q.Ranks = -1 },
			"epoch is -1":             func(q *protocol.RendezvousRequest) { q.Epoch = -1 },
			"epoch is 9223":           func(q *protocol.RendezvousRequest) { q.Epoch = math.MaxInt64 },
			"wait_s is 61":            func(q *protocol.RendezvousRequest) { q.WaitS = 61 },
			"wait_s is NaN":           func(q *protocol.RendezvousRequest) { q.WaitS = math.NaN() },
			"engines is -1":           func(q *protocol.RendezvousRequest) { q.Engines = -1 },
			"trainer's to say":        func(q *protocol.RendezvousRequest) { q.Role = roleEngine },
			"no host and port":        func(q *protocol.RendezvousRequest) { q.Address = "10.0.0.7" },
			"between 1 and 65535":     func(q *protocol.RendezvousRequest) { q.Address = "10.0.0.7:0" },
			"unspecified":             func(q *protocol.RendezvousRequest) { q.Address = "0.0.0.0:29500" },
			"unspecified address: wa": func(q *protocol.RendezvousRequest) { q.Address = "[::]:29500" },
			"neither an IP":           func(q *protocol.RendezvousRequest) { q.Address = "a b:29500" },
			"neither an IP address":   func(q *protocol.RendezvousRequest) { q.Address = ":29500" },
		} {
			req := trainer("v")
			change(&req)
			join(ctx, r, req).refused(t, protocol.CodeInvalid, word)
		}
		if _, err := r.Join(ctx, "../x", trainer("v")); !strings.Contains(fmt.Sprint(err), "rendezvous") {
			t.Errorf("a name with separators: %v", err)
		}
	})
}

// TestBounds: collectives are bounded in number, and all calls end when the process stops.
func TestBounds(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRendezvous(RendezvousOptions{})
		for i := range MeetingsMax {
			r.Expect(fmt.Sprint("m", i), 1)
		}
		join(t.Context(), r, engine("a", 1)).refused(t, protocol.CodeBusy, fmt.Sprint(MeetingsMax, " collectives"))
		r = NewRendezvous(RendezvousOptions{Engines: 1})
		waits := join(t.Context(), r, engine("a", 1))
		r.Close()
		r.Close()
		synctest.Wait()
		waits.refused(t, protocol.CodeUnavailable, "stopping")
	})
}

// TestForget: who waits where nobody comes any more is told so, and what comes under the name is another
// collective.
func TestForget(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRendezvous(RendezvousOptions{Engines: 1})
		r.Forget("weights")
		waits := join(t.Context(), r, engine("a", 1))
		r.Forget("weights")
		synctest.Wait()
		waits.refused(t, protocol.CodeExpired, "given up")
		again := join(t.Context(), r, engine("a", 1))
		join(t.Context(), r, trainer("t")).at(t, 1, 0, 2)
		again.at(t, 1, 1, 2)
		r.Forget("weights")
		if len(r.rounds) != 0 {
			t.Errorf("%d collectives are kept", len(r.rounds))
		}
	})
}

// TestAnyHistory: whatever members do, epochs rise, and the ranks of an epoch are all
// there once.
func TestAnyHistory(t *testing.T) {
	met := 0
	for seed := range uint64(200) {
		rng := rand.New(rand.NewPCG(seed, 1))
		m := newRound(0)
		epoch := int64(0)
		for range 200 {
			req := engine(string(rune('a'+rng.IntN(5))), 1+rng.IntN(3))
			if rng.IntN(3) == 0 {
				req = trainer("t")
				req.Ranks, req.Engines = 1, rng.IntN(4)
			}
			req.Epoch = m.epoch * int64(rng.IntN(2))
			if rng.IntN(8) == 0 {
				m.leave(req.Member)
				continue
			}
			if reply, ok := m.ask(&req); ok {
				if reply.Epoch != m.epoch || m.standing == nil {
					t.Fatalf("seed %d: told epoch %d, at %d", seed, reply.Epoch, m.epoch)
				}
				continue
			}
			if m.join(&req) != nil || !m.complete() {
				continue
			}
			places := m.meet()
			met++
			if m.epoch <= epoch || len(places) != m.engines+1 || len(m.waiting) != 0 {
				t.Fatalf("seed %d: epoch %d after %d, %d members of %d engines", seed, m.epoch, epoch, len(places), m.engines)
			}
			epoch = m.epoch
			checkRanks(t, places)
		}
	}
	if met < 400 {
		t.Errorf("members met %d times: the test needs more", met)
	}
}

// checkRanks checks that the members' ranks are 0 to the world's size, each once.
func checkRanks(t *testing.T, places map[string]place) {
	t.Helper()
	taken := map[int]string{}
	for name, p := range places {
		for rank := range p.member.Ranks {
			at := p.reply.RankOffset + rank
			if other, twice := taken[at]; twice {
				t.Fatalf("rank %d is of %s and of %s", at, other, name)
			}
			taken[at] = name
		}
		if p.member.Role == roleTrainer && p.reply.RankOffset != 0 {
			t.Fatalf("the trainer is rank %d", p.reply.RankOffset)
		}
	}
	for _, p := range places {
		if p.reply.WorldSize != len(taken) {
			t.Fatalf("world size %d, %d ranks", p.reply.WorldSize, len(taken))
		}
	}
	for rank := range len(taken) {
		if taken[rank] == "" {
			t.Fatalf("rank %d is nobody's", rank)
		}
	}
}

// TestForgottenAndBegunAgain: a call at a meeting that was given up takes nothing from the one that has begun
// under the same name since, however late it ends.
func TestForgottenAndBegunAgain(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := NewRendezvous(RendezvousOptions{Engines: 1})
		given := join(t.Context(), r, engine("e0", 1))
		old := r.rounds["weights"]
		r.Forget("weights")
		waiting := join(t.Context(), r, engine("e1", 1))
		given.refused(t, protocol.CodeExpired, "it has been given up")
		r.mu.Lock()
		r.forget("weights", old) // as the call of e0 does when it is the last to run
		r.mu.Unlock()
		join(t.Context(), r, trainer("t")).at(t, 1, 0, 2)
		waiting.at(t, 1, 1, 2)
	})
}
