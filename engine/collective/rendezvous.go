package collective

import (
	"cmp"
	"context"
	"net"
	"strconv"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
)

// Bounds of what a request may ask for.
const (
	// MeetingsMax is how many collectives there may be at once. Each engine whose weights are
	// distributed meets the sender in a meeting of its own. After a restart of the sender all of them
	// do so at the same time.
	MeetingsMax = 1 << 12
	ranksMax    = 1 << 16
	enginesMax  = 1 << 12
	epochMax    = 1 << 53
)

// RendezvousOptions of a rendezvous.
type RendezvousOptions struct {
	// Engines is how many engines a collective waits for; 0 means that its trainer says so.
	Engines int
}

// Rendezvous brings the members of collectives together. It implements api.Meetings
// and is safe for concurrent use.
type Rendezvous struct {
	opt RendezvousOptions

	mu     sync.Mutex
	rounds map[string]*openRound
	closed chan struct{}
	once   sync.Once
}

// openRound is a round with the calls that wait for it.
type openRound struct {
	round   *round
	waiters map[string]*waiter
	// caller began it.
	caller protocol.Caller
	// kept: it was expected, and is not forgotten when nobody is there.
	kept bool
}

// waiter is one call that waits.
type waiter struct {
	// ready is closed when reply or err is set.
	ready chan struct{}
	reply protocol.RendezvousReply
	err   error
	// token is the caller's.
	token string
}

// NewRendezvous returns a rendezvous without any round.
func NewRendezvous(opt RendezvousOptions) *Rendezvous {
	return &Rendezvous{opt: opt, rounds: make(map[string]*openRound), closed: make(chan struct{})}
}

// Expect sets how many engines the collective of that name waits for. It counts from the
// next time that the members meet; a trainer that says otherwise is heeded.
func (r *Rendezvous) Expect(name string, engines int) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.rounds[name]
	if t == nil {
		t = newTable(engines)
		r.rounds[name] = t
	}
	t.round.engines, t.kept = engines, true
	r.settle(t)
}

func newTable(engines int) *openRound {
	return &openRound{round: newRound(engines), waiters: make(map[string]*waiter)}
}

// Forget ends a collective that no member is to join any more: waiting members are refused.
func (r *Rendezvous) Forget(name string) {
	r.mu.Lock()
	defer r.mu.Unlock()
	t := r.rounds[name]
	if t == nil {
		return
	}
	delete(r.rounds, name)
	for member, s := range t.waiters {
		s.err = protocol.Refuse(protocol.CodeExpired, "rendezvous %s: it has been given up", name)
		close(s.ready)
		delete(t.waiters, member)
	}
}

// Close answers everybody who waits, and everybody who comes, with CodeUnavailable.
func (r *Rendezvous) Close() { r.once.Do(func() { close(r.closed) }) }

// Join implements api.Meetings: it returns when all members are there, or, for a member
// of the epoch that stands, at once.
func (r *Rendezvous) Join(ctx context.Context, name string, req protocol.RendezvousRequest) (protocol.RendezvousReply, error) {
	if err := checkJoin(name, &req); err != nil {
		return protocol.RendezvousReply{}, err
	}
	if err := checkCaller(name, &req); err != nil {
		return protocol.RendezvousReply{}, err
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	t, err := r.table(name, &req)
	if err != nil {
		return protocol.RendezvousReply{}, err
	}
	defer r.forget(name, t)
	if reply, ok := t.round.ask(&req); ok {
		return reply, nil
	}
	if req.WaitS == 0 {
		return protocol.RendezvousReply{}, t.over(name, &req)
	}
	if err := t.taken(name, &req); err != nil {
		return protocol.RendezvousReply{}, err
	}
	if err := t.round.join(&req); err != nil {
		return protocol.RendezvousReply{}, err
	}
	s := t.enter(name, &req)
	r.settle(t)
	r.mu.Unlock()
	stopped := s.wait(ctx, r.closed, time.Duration(req.WaitS*float64(time.Second)))
	r.mu.Lock()
	if s.err != nil || s.reply.Epoch > 0 {
		return s.reply, s.err
	}
	missing := t.round.missing()
	delete(t.waiters, req.Member)
	t.round.leave(req.Member)
	if stopped != nil {
		return protocol.RendezvousReply{}, stopped
	}
	return protocol.RendezvousReply{}, protocol.Refuse(protocol.CodeUnavailable, "rendezvous %s: missing after %g s: %s; ask again until all are there at once",
		name, req.WaitS, strings.Join(missing, ", ")).With("missing", missing)
}

// table finds a collective, or begins one.
func (r *Rendezvous) table(name string, req *protocol.RendezvousRequest) (*openRound, error) {
	t := r.rounds[name]
	if t == nil {
		if len(r.rounds) >= MeetingsMax {
			return nil, protocol.Refuse(protocol.CodeBusy, "there are %d collectives, the most there may be: use one of their names", MeetingsMax)
		}
		if err := r.roomFor(req); err != nil {
			return nil, err
		}
		t = newTable(r.opt.Engines)
		t.caller = req.Caller
		r.rounds[name] = t
	}
	return t, nil
}

// forget drops a collective whose members have never met and of whom none is there.
func (r *Rendezvous) forget(name string, t *openRound) {
	if len(t.waiters) == 0 && t.round.epoch == 0 && !t.kept && r.rounds[name] == t {
		delete(r.rounds, name)
	}
}

// enter notes that a call waits. A call of the same member that still waits is told to stop.
func (t *openRound) enter(name string, req *protocol.RendezvousRequest) *waiter {
	member := req.Member
	if old := t.waiters[member]; old != nil {
		old.err = protocol.Refuse(protocol.CodeConflict, "rendezvous %s: another call of member %s has taken this one's place: each process needs a name of its own", name, member)
		close(old.ready)
	}
	s := &waiter{ready: make(chan struct{}), token: req.Caller.Token}
	t.waiters[member] = s
	return s
}

// settle answers everybody once all are there.
func (r *Rendezvous) settle(t *openRound) {
	if !t.round.complete() {
		return
	}
	for member, p := range t.round.meet() {
		s := t.waiters[member]
		s.reply = p.reply
		close(s.ready)
		delete(t.waiters, member)
	}
}

// wait waits for an answer; an error says why it stopped before the time was over.
func (s *waiter) wait(ctx context.Context, closed <-chan struct{}, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-s.ready:
	case <-timer.C:
	case <-closed:
		return protocol.Refuse(protocol.CodeUnavailable, "the control plane is stopping: join again, elsewhere or later")
	case <-ctx.Done():
		return ctx.Err()
	}
	return nil
}

// over tells a member that only asked that its epoch does not stand.
func (t *openRound) over(name string, req *protocol.RendezvousRequest) error {
	m := t.round
	why := "it never met here"
	switch {
	case req.Epoch == m.epoch && m.why != "":
		why = m.why
	case req.Epoch == m.epoch && req.Epoch > 0:
		why = "member " + req.Member + " was not in it as it is now"
	case req.Epoch < m.epoch:
		why = "its members have met again since"
	}
	return protocol.Refuse(protocol.CodeExpired, "rendezvous %s: epoch %d does not stand: %s; leave its group and join with wait_s above 0", name, req.Epoch, why).With("epoch", m.epoch)
}

// checkJoin refuses a request that cannot be meant, and fills in what was left out.
func checkJoin(name string, req *protocol.RendezvousRequest) error {
	if err := protocol.CheckName(name); err != nil {
		return protocol.Refuse(protocol.CodeInvalid, "rendezvous %.140q: %v", name, err)
	}
	if err := protocol.CheckName(req.Member); err != nil {
		return protocol.Refuse(protocol.CodeInvalid, "member %.140q: %v", req.Member, err)
	}
	req.Ranks = cmp.Or(req.Ranks, 1)
	switch {
	case req.Role != roleTrainer && req.Role != roleEngine:
		return protocol.Refuse(protocol.CodeInvalid, "role is %.40q: want trainer or engine", req.Role)
	case req.Backend != "nccl" && req.Backend != "gloo":
		return protocol.Refuse(protocol.CodeInvalid, "backend is %.40q: want nccl or gloo", req.Backend)
	case req.Ranks < 1 || req.Ranks > ranksMax:
		return protocol.Refuse(protocol.CodeInvalid, "ranks is %d: want 1 to %d", req.Ranks, ranksMax)
	case req.Epoch < 0 || req.Epoch >= epochMax:
		return protocol.Refuse(protocol.CodeInvalid, "epoch is %d: want the one this member was told, or 0", req.Epoch)
	case !(req.WaitS >= 0 && req.WaitS <= waitMaxS):
		return protocol.Refuse(protocol.CodeInvalid, "wait_s is %g: want 0 to %d seconds", req.WaitS, waitMaxS)
	case req.Engines < 0 || req.Engines > enginesMax:
		return protocol.Refuse(protocol.CodeInvalid, "engines is %d: want 1 to %d, or 0 for the run's number", req.Engines, enginesMax)
	case req.Role == roleEngine && (req.Engines != 0 || req.Address != ""):
		return protocol.Refuse(protocol.CodeInvalid, "engines and address are the trainer's to say: leave them out for an engine")
	case req.Role == roleTrainer && req.Ranks != 1:
		return protocol.Refuse(protocol.CodeInvalid, "ranks is %d for the trainer: it is rank 0 and no other", req.Ranks)
	case req.Role == roleTrainer:
		return checkAddress(req.Address)
	}
	return nil
}

// checkAddress refuses an address that the engines could not reach.
func checkAddress(address string) error {
	bad := func(why string) error {
		return protocol.Refuse(protocol.CodeInvalid, "address %.280q: %s: want the host and port that the trainer listens on, as engines reach it", address, why)
	}
	host, text, err := net.SplitHostPort(address)
	if err != nil {
		return bad("it is no host and port")
	}
	if port, err := strconv.Atoi(text); err != nil || port < 1 || port > 65535 {
		return bad("the port is not between 1 and 65535")
	}
	if ip := net.ParseIP(host); ip != nil {
		if ip.IsUnspecified() {
			return bad("engines cannot connect to an unspecified address")
		}
		return nil
	}
	if protocol.CheckName(host) != nil { // letters, digits, '.', '_' and '-', as host names have
		return bad("the host is neither an IP address nor a name")
	}
	return nil
}
