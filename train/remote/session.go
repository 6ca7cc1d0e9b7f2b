package remote

import (
	"context"
	"fmt"
	"strings"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// WorldSizeMax bounds the ranks of a trainer.
const WorldSizeMax = 1 << 16

// session is the trainer that the run has.
type session struct {
	name  string
	world int // 0 until it is known
	// word is when it was last heard of, whatever rank spoke.
	word int64
	// open counts its calls that wait or transfer.
	open  int
	ranks map[int]*rank
	// republish: what it holds is of no committed version, and nothing is leased to it until it has
	// published that as one.
	republish bool
}

// rank is one process of a trainer.
type rank struct {
	word int64
	open int
}

func (r *rank) silent(now int64) time.Duration {
	if r.open > 0 {
		return 0
	}
	return time.Duration(now - r.word)
}

func (s *session) silent(now int64) time.Duration {
	if s.open > 0 || s.name == "" {
		return 0
	}
	return time.Duration(now - s.word)
}

func (s *session) rank(number int) *rank {
	r := s.ranks[number]
	if r == nil {
		r = &rank{word: s.word}
		s.ranks[number] = r
	}
	return r
}

// alive reports whether the session's trainer was heard of within a lease.
func (t *Trainer) alive(now int64) bool { return t.session.silent(now) <= t.opt.Lease }

// admit takes a call as a word of the run's trainer, or refuses it because there is another
// one. It is called with mu held.
func (t *Trainer) admit(trainer string) error {
	now, s := t.opt.Clock(), &t.session
	if s.name != trainer {
		if s.name != "" && t.alive(now) {
			return protocol.Refuse(protocol.CodeConflict, "trainer %s has this run, and was heard of %.1f s ago: stop it, or wait until it has been silent for %.1f s",
				s.name, s.silent(now).Seconds(), t.opt.Lease.Seconds()).With("trainer", s.name)
		}
		if s.name != "" {
			t.opt.Logf("trainer: %s takes the run over from %s, which is silent", trainer, s.name)
		}
		*s = session{name: trainer, ranks: make(map[int]*rank)}
	}
	s.word = now
	return nil
}

// touch takes a call as a word of one rank. It is called with mu held.
func (t *Trainer) touch(number int) { t.session.rank(number).word = t.opt.Clock() }

// touchAll takes progress of a publish as a word of all ranks: they wait for it.
func (t *Trainer) touchAll() {
	now := t.opt.Clock()
	t.session.word = now
	for _, r := range t.session.ranks {
		r.word = now
	}
}

// serving refuses calls that come before the run stands or after this process gave it up. It is called with mu held.
func (t *Trainer) serving() error {
	switch {
	case t.phase == closed:
		return protocol.Refuse(protocol.CodeUnavailable, "the control plane is stopping: go on when it is back; the lease stays yours until then")
	case t.phase == starting, t.phase == draining && t.version < 0: // it drains before the run stood
		return protocol.Refuse(protocol.CodeUnavailable, "the run is starting: try again in a moment")
	}
	return nil
}

// checkCaller refuses what no trainer can be called.
func checkCaller(trainer string, number, world int) error {
	if err := protocol.CheckName(trainer); err != nil {
		return protocol.Refuse(protocol.CodeInvalid, "trainer %.140q: %v", trainer, err)
	}
	if world < 0 || world > WorldSizeMax || number < 0 || number >= max(world, 1) {
		return protocol.Refuse(protocol.CodeInvalid, "rank %d of a world of %d: want a world from 1 to %d, or 0 for 1, and a rank below it", number, world, WorldSizeMax)
	}
	return nil
}

// Connect implements api.Trainers.
func (t *Trainer) Connect(_ context.Context, req protocol.ConnectRequest) (protocol.ConnectReply, error) {
	if err := checkCaller(req.Trainer, req.Rank, req.WorldSize); err != nil {
		return protocol.ConnectReply{}, err
	}
	if req.Version < loop.NoVersion {
		return protocol.ConnectReply{}, protocol.Refuse(protocol.CodeInvalid, "version %d, want the one that the trainer holds, or %d for none", req.Version, loop.NoVersion)
	}
	t.tell()
	t.commits.Lock() // a version that is being committed counts
	defer t.commits.Unlock()
	t.mu.Lock()
	defer t.mu.Unlock()
	if err := t.serving(); err != nil {
		return protocol.ConnectReply{}, err
	}
	t.expire()
	if err := t.admit(req.Trainer); err != nil {
		return protocol.ConnectReply{}, err
	}
	world, s := max(req.WorldSize, 1), &t.session
	if r, now := s.ranks[req.Rank], t.opt.Clock(); r != nil && r.silent(now) <= t.opt.Lease {
		t.opt.Logf("trainer: warning: %s connected again, %.1f s after its last word: where two processes have that name, stop one",
			callerText(req), r.silent(now).Seconds())
	}
	if o := t.offer; o != nil && !o.withdrawn {
		if _, lost := o.taken[req.Rank]; lost || len(o.taken) > 0 && o.world != world {
			t.giveBack(o, "another process connected as %s; where both still run, stop one", callerText(req))
		}
	}
	s.world = world
	t.touch(req.Rank)
	return t.stand(req.Version)
}

// callerText names the process that connects.
func callerText(req protocol.ConnectRequest) string {
	text := fmt.Sprintf("rank %d of trainer %q", req.Rank, req.Trainer)
	if req.Caller.Peer.IsValid() {
		text += " from " + req.Caller.Peer.String()
	}
	return text
}

// stand says where the run stands to a trainer that holds a version. It is called with mu held.
func (t *Trainer) stand(holds loop.Version) (protocol.ConnectReply, error) {
	reply := protocol.ConnectReply{Action: protocol.ActionInitialize, Version: t.version, Next: t.version + 1, Load: t.opt.Weights.Newest(),
		SyncEvery: t.opt.SyncEvery, LeaseS: t.opt.Lease.Seconds(), Steps: t.opt.Steps, Run: t.opt.Run, Config: t.opt.Config}
	t.session.republish = false
	if t.version < 0 {
		return reply, nil
	}
	if reply.Load >= 0 {
		m, err := t.opt.Weights.Manifest(reply.Load)
		if err != nil {
			return protocol.ConnectReply{}, err
		}
		for _, f := range m.Files {
			reply.Optimizer = reply.Optimizer || strings.HasPrefix(f.Name, "optimizer")
		}
	}
	lost := reply.Load < t.version // the newest version is in nobody's hands but its trainer's
	switch {
	case holds == t.version:
		reply.Action = protocol.ActionTrain
	case lost || holds >= 0 && holds < t.version:
		reply.Action = protocol.ActionRepublish
		t.session.republish = lost
	default:
		reply.Action = protocol.ActionLoad
	}
	return reply, nil
}
