package collective

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// waitMaxS is the longest that a call of the sender or of a member waits for its answer, in seconds.
const waitMaxS = 60

// outlivedMax is how many processes are remembered that are not to come back.
const outlivedMax = 64

// Meetings is where sender and engines meet to make a group.
type Meetings interface {
	// Join returns when all members are there, or an error that names who is missing.
	Join(ctx context.Context, name string, req protocol.RendezvousRequest) (protocol.RendezvousReply, error)
	// Forget ends a meeting that no member is to join any more.
	Forget(name string)
}

// Options of a coordinator. Meetings must be given.
type Options struct {
	// Meetings is where sender and engines meet to make a group.
	Meetings Meetings
	// Silence after which the sender is lost; 0 means 30 s.
	Silence time.Duration
	// Clock returns the time since some start, never falling; nil means the process's.
	Clock func() time.Duration
	// Logf, if not nil, is told what an operator may want to know. Several goroutines call it.
	Logf func(format string, args ...any)
}

// sender is the process that has the trainer's weights.
type sender struct {
	name, instance, backend string
	holds                   []loop.Version
	open                    int           // polls under way
	heard                   time.Duration // when its last poll ended
	// told are the groups of the last answer, nil before the first.
	told []string
}

// order is a command with what became of it.
type order struct {
	protocol.SenderCommand
	over bool
	done protocol.SenderDone
	err  error
}

// Coordinator passes what engines need on to the sender, and its word back. It decides nothing about
// when: the loop does, through the engines. It is safe for concurrent use.
type Coordinator struct {
	opt    Options
	mu     sync.Mutex
	sender *sender // nil where none was heard of, or the last one has left
	orders map[int64]*order
	// groups are those that stand, or are being made, by engine.
	groups map[string]*group
	// waiting are the engines that have found no sender.
	waiting map[string]bool
	// outlived are the instances whose place another process of the same name has taken, and those that have
	// left: one that still runs is not to take it back.
	outlived []string
	// sends are those that have ended, failedSends those of them that failed; sent is the newest version that an
	// engine was sent.
	sends, failedSends int64
	sent               loop.Version
	// seq numbers commands, from a start that no process before this one has reached: a report of
	// its commands is not taken for one of ours.
	seq   int64
	moved chan struct{} // closed at every change
}

// NewCoordinator returns a coordinator that has heard of no sender.
func NewCoordinator(opt Options) *Coordinator {
	opt.Silence = cmp.Or(opt.Silence, 30*time.Second)
	if opt.Clock == nil {
		began := time.Now()
		opt.Clock = func() time.Duration { return time.Since(began) }
	}
	if opt.Logf == nil {
		opt.Logf = func(string, ...any) {}
	}
	return &Coordinator{opt: opt, orders: make(map[int64]*order), groups: make(map[string]*group), waiting: make(map[string]bool),
		sent: loop.NoVersion, seq: time.Now().UnixNano(), moved: make(chan struct{})}
}

// change tells everyone who waits. c.mu must be held.
func (c *Coordinator) change() {
	close(c.moved)
	c.moved = make(chan struct{})
}

// Next takes the sender's word and answers with what it is to do, as soon as that is something else
// than it knows.
func (c *Coordinator) Next(ctx context.Context, name string, req protocol.SenderRequest) (protocol.SenderReply, error) {
	if err := check(name, &req); err != nil {
		return protocol.SenderReply{}, err
	}
	if req.Leaving {
		c.forget(name, req.Instance)
		return protocol.SenderReply{Commands: []protocol.SenderCommand{}, Groups: []string{}}, nil
	}
	s, told, err := c.hear(name, &req)
	if err != nil {
		return protocol.SenderReply{}, err
	}
	defer c.leave(s)
	wait := time.NewTimer(time.Duration(min(max(req.WaitS, 0), waitMaxS) * float64(time.Second)))
	defer wait.Stop()
	for waited := false; ; {
		reply, moved, err := c.due(s, req.Knows, told, waited)
		if err != nil || moved == nil {
			return reply, err
		}
		select {
		case <-moved:
		case <-wait.C:
			waited = true
		case <-ctx.Done():
			return protocol.SenderReply{}, context.Cause(ctx)
		}
	}
}

// due returns what the sender is to be told, or what is closed when there may be something else than the
// commands and groups that it knows. waited: it is to be told in any case.
func (c *Coordinator) due(s *sender, knows []int64, told []string, waited bool) (protocol.SenderReply, <-chan struct{}, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.sender != s {
		return protocol.SenderReply{}, nil, protocol.Refuse(protocol.CodeExpired, "sender %s: another process is the run's sender now, or this one has left: it is to end", s.name)
	}
	reply := protocol.SenderReply{Commands: []protocol.SenderCommand{}, Groups: c.groupNames(false)}
	news := told == nil || !slices.Equal(told, reply.Groups)
	known := make(map[int64]bool, len(knows))
	for _, seq := range knows {
		known[seq] = true
		news = news || c.orders[seq] == nil
	}
	for _, seq := range slices.Sorted(maps.Keys(c.orders)) {
		reply.Commands = append(reply.Commands, c.orders[seq].SenderCommand)
		news = news || !known[seq]
	}
	if !news && !waited {
		return protocol.SenderReply{}, c.moved, nil
	}
	s.told = reply.Groups
	return reply, nil, nil
}

// hear notes what a sender says of itself and of its commands, and counts its poll. told are the groups
// that it knows of.
func (c *Coordinator) hear(name string, req *protocol.SenderRequest) (s *sender, told []string, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s = c.sender
	switch {
	case s != nil && s.name != name && !c.silent(s):
		return nil, nil, protocol.Refuse(protocol.CodeConflict, "sender %s is this run's, and was heard of %.1f s ago: a run has one. Stop it, or wait for %.0f s of silence",
			s.name, c.since(s).Seconds(), c.opt.Silence.Seconds()).With("sender", s.name)
	case slices.Contains(c.outlived, req.Instance):
		return nil, nil, protocol.Refuse(protocol.CodeExpired, "sender %s: another process has come under this name since, or this one has left: it is to end", name)
	case s != nil && s.name == name && s.instance != req.Instance && s.open > 0:
		return nil, nil, protocol.Refuse(protocol.CodeConflict, "another process is sender %s at this moment: stop it, or take another name", name).With("sender", name)
	case s != nil && s.name == name && s.instance == req.Instance && s.backend != req.Backend:
		return nil, nil, protocol.Refuse(protocol.CodeConflict, "sender %s has said that its collectives are of %s, and says %s now: start it anew to change that", name, s.backend, req.Backend)
	case s == nil || s.name != name || s.instance != req.Instance:
		s = c.replace(name, req)
	}
	s.open++
	clear(c.waiting)
	s.holds = slices.Compact(slices.Sorted(slices.Values(req.Holds)))
	for _, done := range req.Done {
		if o := c.orders[done.Seq]; o != nil {
			o.done = done
			c.end(o, sendersWord(name, done.Error))
		}
	}
	c.change()
	return s, s.told, nil
}

// sendersWord is the error that a sender has said, nil for none.
func sendersWord(name, text string) error {
	if text == "" {
		return nil
	}
	return fmt.Errorf("sender %s: %.*s", name, errorMax, text)
}

// replace has another process be the sender. c.mu must be held.
func (c *Coordinator) replace(name string, req *protocol.SenderRequest) *sender {
	old := c.sender
	why := "a process has come that is in none of the groups"
	if old != nil {
		why = fmt.Sprintf("another process has taken the place of sender %s", old.name)
	}
	if old != nil && old.name == name {
		c.outlive(old)
	}
	c.scatter(errors.New(why))
	c.sender = &sender{name: name, instance: req.Instance, backend: req.Backend}
	switch {
	case old == nil:
		c.opt.Logf("sender %s is there (%s)", name, req.Backend)
	case old.name == name:
		c.opt.Logf("sender %s is there again (%s), as another process: engines join it anew", name, req.Backend)
	default:
		c.opt.Logf("sender %s is there (%s) in the place of %s, which is silent: engines join it anew", name, req.Backend, old.name)
	}
	return c.sender
}

// outlive refuses a process from now on. c.mu must be held.
func (c *Coordinator) outlive(s *sender) {
	c.outlived = append(c.outlived, s.instance)
	c.outlived = c.outlived[max(0, len(c.outlived)-outlivedMax):]
}

// scatter breaks all groups and what is done in them. What is to be held is asked of whoever comes
// next, under another number: the word of the process before is not taken for its. c.mu must be held.
func (c *Coordinator) scatter(why error) {
	clear(c.groups)
	for _, seq := range slices.Sorted(maps.Keys(c.orders)) {
		o := c.orders[seq]
		if o.Kind != protocol.SenderHold {
			c.end(o, why)
			continue
		}
		delete(c.orders, seq)
		c.number(o)
	}
	c.change()
}

// leave ends a poll.
func (c *Coordinator) leave(s *sender) {
	c.mu.Lock()
	defer c.mu.Unlock()
	s.open--
	s.heard = c.opt.Clock()
}

// forget takes the sender away that has ended in order. One that was not the sender any more takes
// nothing with it.
func (c *Coordinator) forget(name, instance string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if s := c.sender; s != nil && s.name == name && s.instance == instance {
		c.sender = nil
		c.outlive(s) // a poll of it may still be on its way, and would have it seem to be there
		c.scatter(fmt.Errorf("sender %s has ended in order", name))
		c.opt.Logf("sender %s has ended in order", name)
	}
}

// since is how long ago a sender was heard of. One that waits for a command is heard. c.mu must be held.
func (c *Coordinator) since(s *sender) time.Duration {
	if s.open > 0 {
		return 0
	}
	return c.opt.Clock() - s.heard
}

func (c *Coordinator) silent(s *sender) bool { return c.since(s) > c.opt.Silence }

// there reports whether a sender is there. c.mu must be held.
func (c *Coordinator) there() bool { return c.sender != nil && !c.silent(c.sender) }

// number gives an order a number of its own. c.mu must be held.
func (c *Coordinator) number(o *order) {
	c.seq++
	o.Seq = c.seq
	c.orders[o.Seq] = o
}

// end says how an order ended. c.mu must be held.
func (c *Coordinator) end(o *order, err error) {
	if o.over {
		return
	}
	o.over, o.err = true, err
	delete(c.orders, o.Seq)
	c.change()
}
