package cell

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/loop/port"
	"github.com/headway-rl/headway/loop/trace"
)

// Options are what a cell is made of. All fields are needed unless they say otherwise.
type Options struct {
	// Name is the cell's in the log, empty for the one in the writer's process. Incarnation is higher in each process that
	// the cell is.
	Name        string
	Incarnation int64
	// Engines are those of the cell, by the index that actions name. Nil stands for an engine of another cell.
	Engines []port.Engine
	// Rules are those of the run, of the log's header.
	Rules loop.Config
	// Followed is the number of the newest event that the cell in the writer's process has no part in: it executes those
	// behind it. Another cell executes what is behind the answer to its Hello.
	Followed int64
	// Environment plays the rollouts. It is told of starts and logged ends where it is a port.Starter or a
	// port.Acknowledger.
	Environment port.Environment
	// Scorer scores rollouts before they end, which keep their slots meanwhile. Payloads then has to keep side channels
	// (port.Blobs). Nil scores none.
	Scorer port.Scorer
	// Payloads keeps what rollouts have made, side channels and media too where it is a port.Blobs. Space is where a
	// payload waits that finds no room.
	Payloads Payloads
	Space    *Space
	// Clock is the run's time in nanoseconds, never falling.
	Clock func() int64
	// Post takes an event, which is lent. It must not block. It is called by any goroutine, by the one that follows too. With a
	// name it is called by one at a time, in the order of the events. Events that are to be repeated come again.
	Post func(*Event)
	// Joined is called once when the log has answered the hello, behind the rollouts that are taken up from a process before.
	// It must not block. Nil tells no one.
	Joined func()
	// Load describes in JSON how much this process has taken of what it has, for [Event.Load]. Nil says nothing.
	Load func() json.RawMessage
	// Logf is told of failures that the cell survives, by any goroutine.
	Logf func(format string, args ...any)
}

// Payloads keeps payloads of rollouts; its methods mean what those of port.Store do.
type Payloads interface {
	PutSample(s port.Sample) error
	Discard(id port.RolloutID) error
	Forget(group loop.GroupID) error
}

// Cell executes what the log says (Follow). Rollouts, loads and switches run beside it.
type Cell struct {
	opt Options
	// ctx ends everything that runs, running waits for it.
	ctx     context.Context
	running sync.WaitGroup
	// groups have the attempts that were started here, of groups that have not ended. followed is the newest event that was
	// executed, syncs has the load or switch of each engine that the log has no answer to. They belong to the goroutine that
	// follows.
	// joined: the log has answered the hello. joining: it has no engine join by that yet.
	groups   map[loop.GroupID]liveGroup
	followed int64
	joined   bool
	joining  bool
	syncs    []underWay
	// gone says of each engine that the loop has lost it. In a process of its own that holds until it joins.
	gone   []bool
	outbox outbox
	// acks is the environment if it wants word of logged ends, blobs the store if it keeps side channels, referring the store
	// if its writer is another process.
	acks      port.Acknowledger
	blobs     port.Blobs
	referring port.Referring
	media     keptMedia
	// rowsRefused says once that rows are left out.
	rowsRefused sync.Once

	mu sync.Mutex
	// ended are attempts whose end is on its way to the log, err why the cell can go on with no rollout.
	ended map[port.RolloutID]*rollout
	err   error
}

// liveGroup has the last attempt that was started at each sample of a group that has not ended.
type liveGroup map[int32]*rollout

// nameLetters are those of names of cells, which stand in the log as they are.
const nameLetters = "abcdefghijklmnopqrstuvwxyz0123456789.-"

// New returns a cell that has not been told anything. All that it runs ends with ctx, whose cause its rollouts see.
func New(ctx context.Context, opt Options) (*Cell, error) {
	c := &Cell{opt: opt, ctx: ctx, groups: make(map[loop.GroupID]liveGroup), followed: opt.Followed, joined: opt.Name == "", syncs: make([]underWay, len(opt.Engines)), gone: slices.Repeat([]bool{opt.Name != ""}, len(opt.Engines)),
		ended: make(map[port.RolloutID]*rollout)}
	c.outbox = outbox{post: opt.Post, eventsMost: outboxEventsMost, bytesMost: outboxBytesMost,
		last: trace.Origin{Cell: opt.Name, Incarnation: opt.Incarnation}}
	c.acks, _ = port.As[port.Acknowledger](opt.Environment)
	c.blobs, _ = port.As[port.Blobs](opt.Payloads)
	c.referring, _ = port.As[port.Referring](opt.Payloads)
	if strings.Trim(opt.Name, nameLetters) != "" {
		return nil, fmt.Errorf("cell: %q is no name of a cell: use lower-case letters, digits, dots and dashes", opt.Name)
	}
	if opt.Scorer != nil && c.blobs == nil {
		return nil, errors.New("cell: there is a Scorer, and a Store that does not keep what it says")
	}
	return c, nil
}

// Wait returns when all has ended that runs in the cell. Its context is to have ended before.
func (c *Cell) Wait() { c.running.Wait() }

// Unlogged returns copies of at most so many events behind a sequence that the log does not show, with their ages. Any
// goroutine may call it.
func (c *Cell) Unlogged(behind int64, most int) []Event {
	return c.outbox.behind(behind, most, c.opt.Clock())
}

// Err is why the cell can go on with no rollout, nil while it can. An event with Fatal says that there is one.
func (c *Cell) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.err
}

// start starts an attempt at a rollout, if it is to play on an engine of the cell. An earlier attempt at the same rollout
// is aborted: the loop gave it up without a word, as it does with its engine.
func (c *Cell) start(a *loop.Action) {
	if old := c.groups[a.Group][a.Sample]; old != nil {
		old.abort()
	}
	if !c.owns(a.Engine) {
		return
	}
	p := c.newRollout(a)
	p.engine, p.at, p.slot = c.opt.Engines[a.Engine], a.Engine, a.Slot
	if e, ok := port.As[port.Starter](c.opt.Environment); ok {
		e.Starting(p.task)
	}
	c.running.Go(func() { c.play(p) })
}

// newRollout is the attempt of an action that starts one, as the last at its sample. Its slot is to be set.
func (c *Cell) newRollout(a *loop.Action) *rollout {
	id := port.RolloutID{Group: a.Group, Sample: a.Sample, Attempt: a.Attempt}
	p := newRollout(c.ctx, port.RolloutRequest{ID: id, Prompt: a.Prompt, Level: a.Level, Version: a.StartVersion}, c.opt.Clock, &c.outbox)
	p.resumesLost, p.isScored = c.opt.Rules.ResumeLost, c.opt.Scorer != nil
	if c.blobs != nil {
		p.side.put = func(number int32, data []byte) error { return c.blobs.PutBlob(id, number, data) }
		p.side.refused = func(err error) {
			c.rowsRefused.Do(func() { c.opt.Logf("rows of %v are left out, and are absent from batches (said once): %v", id, err) })
		}
	}
	g := c.groups[a.Group]
	if g == nil {
		g = make(liveGroup)
		c.groups[a.Group] = g
	}
	g[a.Sample] = p
	return p
}

// resume goes on with an interrupted attempt in a slot of an engine of the cell. One that does not stand interrupted here
// fails. An attempt that goes on in another cell is no longer this one's.
func (c *Cell) resume(a *loop.Action) {
	p := c.attempt(a)
	if !c.owns(a.Engine) {
		if p != nil {
			p.abort()
		}
		return
	}
	if p != nil {
		if p.resumeIn(c.opt.Engines[a.Engine], a.Engine, a.Slot, a.Version) {
			return
		}
		p.abort() // the loop takes it as failed
	}
	ev := loop.Event{Time: c.opt.Clock(), Kind: loop.RolloutFailed, Slot: a.Slot, Group: a.Group, Sample: a.Sample, Attempt: a.Attempt, Reason: loop.ReasonEngine}
	why := "cell: it does not stand interrupted, so it cannot be resumed"
	if p == nil && c.opt.Rules.ResumeRestart {
		ev.Reason, why = loop.ReasonRestart, "no turn of it was kept over the restart: it begins anew as the next attempt"
	}
	c.outbox.say(&Event{Event: ev, Error: why})
}

// attempt returns the attempt that an action names, nil if it is not the last of its sample that was started here.
func (c *Cell) attempt(a *loop.Action) *rollout {
	if p := c.groups[a.Group][a.Sample]; p != nil && p.task.ID.Attempt == a.Attempt {
		return p
	}
	return nil
}

// logged takes that the end of an attempt is in the log, which the cell has posted. It is counted if the loop took it as a
// score that counts. The environment is told, and the attempt's context ends. The payload of one that does not count is
// dropped: it had been aborted or given up before its score arrived. So is all that one of a group that has ended has
// left: the abort had not reached it.
func (c *Cell) logged(id port.RolloutID, counted bool) {
	p := c.takeEnded(id)
	if p == nil {
		return
	}
	if c.acks != nil {
		c.acks.Logged(id, counted)
	}
	p.cancel()
	if p.stored && !counted {
		c.discard(id)
	}
	if _, lives := c.groups[id.Group]; !lives {
		c.forget(id.Group)
	}
}

// discard drops the payload of an attempt that does not count.
func (c *Cell) discard(id port.RolloutID) {
	if err := c.opt.Payloads.Discard(id); err != nil {
		c.opt.Logf("discarding the payload of %v: %v", id, err)
	}
}

// endGroup takes that a group has ended. Its payloads are dropped, and the attempts of it that stand interrupted end.
func (c *Cell) endGroup(group loop.GroupID) {
	for _, p := range c.groups[group] {
		p.abort()
	}
	delete(c.groups, group)
	c.forget(group)
}

func (c *Cell) forget(group loop.GroupID) {
	c.media.forget(group)
	if err := c.opt.Payloads.Forget(group); err != nil {
		c.opt.Logf("forgetting the payloads of group %d: %v", group, err)
	}
}

// trainerBusy tells engines that measure their decode steps whether a train step runs from now on.
func (c *Cell) trainerBusy(busy bool) {
	for _, e := range c.opt.Engines {
		if timed, ok := port.As[port.Timed](e); ok {
			timed.SetTrainerBusy(busy)
		}
	}
}

// DecodeTimes returns what engines have measured of their decode steps since the last call, of those that measure.
func (c *Cell) DecodeTimes() (all []trace.Service) {
	for i, e := range c.opt.Engines {
		if timed, ok := port.As[port.Timed](e); ok {
			if cells := timed.TakeDecodeTimes(); len(cells) > 0 {
				all = append(all, trace.Service{Engine: i, Cells: cells})
			}
		}
	}
	return all
}
