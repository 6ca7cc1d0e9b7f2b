package transfer

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/headway-rl/headway/api/protocol"
	"github.com/headway-rl/headway/loop"
)

// States of a receiver.
const (
	// StateServing: it serves a version, and may hold another beside it.
	StateServing = "serving"
	// StateLoading and StateSwitching: a command is under way.
	StateLoading   = "loading"
	StateSwitching = "switching"
	// StateQuarantined: a command failed, so the version that it serves is unknown; its next load is
	// a full one.
	StateQuarantined = "quarantined"
	// StateLost: it has not been heard of for longer than Options.Silence.
	StateLost = "lost"
)

// stagesMax is how many stages an engine may have, and receiversMax how many receivers there may be.
const stagesMax, receiversMax = 64, 4096

// Options of a coordinator.
type Options struct {
	// Origin is the path at the control plane from where a published version can be fetched, the prefix
	// included. A receiver reaches it under an address that only it knows, and passes versions on below
	// the same path.
	Origin string
	// Digest is the hash of what is offered there of a version in a form, empty where it is not offered. Nil names none.
	Digest func(version loop.Version, form string) string
	// Lookup resolves the host of a receiver's address; nil means the system's resolver.
	Lookup func(ctx context.Context, host string) ([]netip.Addr, error)
	// Engines are the names that receivers may belong to, each with the number of its stages. An engine of 0
	// stages takes its weights without receivers. Nil takes any name, and 64 stages of each.
	Engines map[string]int
	// Silence after which a receiver is lost; 0 means 30 s.
	Silence time.Duration
	// Clock returns the time since some start, never falling; nil means the process's.
	Clock func() time.Duration
}

// receiver is one stage of one engine on another node.
type receiver struct {
	name, engine  string
	instance      string
	open          int // polls under way
	stage         int
	address, form string
	dial, secret  string     // of address
	peer          netip.Addr // from which it announced address
	token         string     // that it called with, told from others
	served        loop.Version
	loaded        loop.Version
	state         string
	heard         time.Duration
	command       protocol.ReceiverReply // outstanding, Seq 0 if none
	failed        error                  // of the last command
	reload        bool
	told          chan struct{} // closed when there is another command
}

// staged is an engine with stages on other nodes.
type staged struct {
	stages []*receiver   // in their order
	moved  chan struct{} // closed when one of them is another, or in another state
	calls  int           // of Load and Switch; the last one alone commands its stages
}

// Coordinator takes the stages of engines on other nodes through loads and switches. Every stage of
// an engine holds a version before any of them serves it. It decides nothing about when: the loop
// does, through the engine's port.
type Coordinator struct {
	opt     Options
	mu      sync.Mutex
	all     map[string]*receiver
	engines map[string]*staged    // by name, those that have receivers or are waited for
	chain   map[offerKey][]string // receivers in the order in which they were told to load it
	// seq numbers commands, from a start that no process before this one has reached: a report of
	// its commands is not taken for one of ours.
	seq int64
}

// NewCoordinator returns a coordinator without receivers.
func NewCoordinator(opt Options) *Coordinator {
	opt.Silence = cmp.Or(opt.Silence, 30*time.Second)
	if opt.Clock == nil {
		began := time.Now()
		opt.Clock = func() time.Duration { return time.Since(began) }
	}
	if opt.Lookup == nil {
		opt.Lookup = lookup
	}
	return &Coordinator{opt: opt, all: make(map[string]*receiver), engines: make(map[string]*staged), chain: make(map[offerKey][]string), seq: time.Now().UnixNano()}
}

// engine finds an engine by name, or begins it. c.mu must be held.
func (c *Coordinator) engine(name string) *staged {
	e := c.engines[name]
	if e == nil {
		e = &staged{moved: make(chan struct{})}
		c.engines[name] = e
	}
	return e
}

// change wakes those who wait for the stages of an engine. c.mu must be held.
func (c *Coordinator) change(engine string) {
	e := c.engine(engine)
	close(e.moved)
	e.moved = make(chan struct{})
}

// Next takes a receiver's word and answers with what it is to do.
func (c *Coordinator) Next(ctx context.Context, name string, req protocol.ReceiverRequest) (protocol.ReceiverReply, error) {
	if err := protocol.CheckName(name); err != nil {
		return protocol.ReceiverReply{}, protocol.Refuse(protocol.CodeInvalid, "the receiver's name is %q: %v", name, err)
	}
	if err := c.placed(name, &req); err != nil {
		return protocol.ReceiverReply{}, err
	}
	dial, err := c.announced(ctx, name, &req)
	if err != nil {
		return protocol.ReceiverReply{}, err
	}
	r, err := c.hear(name, dial, req)
	if err != nil {
		return protocol.ReceiverReply{}, err
	}
	defer c.leave(r)
	if req.Leaving {
		c.forget(r)
		return protocol.ReceiverReply{Version: loop.NoVersion}, nil
	}
	wait := time.NewTimer(time.Duration(min(max(req.WaitS, 0), 60) * float64(time.Second)))
	defer wait.Stop()
	for {
		command, told := c.due(r)
		if command.Seq != 0 {
			return command, nil
		}
		select {
		case <-told:
		case <-wait.C:
			return protocol.ReceiverReply{Version: loop.NoVersion}, nil
		case <-ctx.Done():
			return protocol.ReceiverReply{}, context.Cause(ctx)
		}
	}
}

// placed refuses a receiver of an engine or a stage that the run has not. One that is taken in costs the
// engine its work until it has loaded a version.
func (c *Coordinator) placed(name string, req *protocol.ReceiverRequest) error {
	stages := stagesMax
	if len(c.opt.Engines) > 0 {
		var known bool
		if stages, known = c.opt.Engines[req.Engine]; !known {
			return protocol.Refuse(protocol.CodeInvalid, "receiver %s names engine %.80q: the run has %s", name, req.Engine, strings.Join(slices.Sorted(maps.Keys(c.opt.Engines)), ", "))
		}
	}
	if stages == 0 {
		return protocol.Refuse(protocol.CodeConflict, "receiver %s names engine %s, which takes its weights without receivers: the document gives it no stages (engines.*.stages)", name, req.Engine)
	}
	if req.Engine == "" || req.Stage < 0 || req.Stage >= stages {
		return protocol.Refuse(protocol.CodeInvalid, "receiver %s names engine %.80q and stage %d: want an engine of the run and one of its stages, from 0 to %d. The document says how many it has: engines.*.stages", name, req.Engine, req.Stage, stages-1)
	}
	return nil
}

// due returns a receiver's command, and what is closed when there may be another.
func (c *Coordinator) due(r *receiver) (protocol.ReceiverReply, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	return r.command, r.told
}

// leave ends a poll.
func (c *Coordinator) leave(r *receiver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	r.open--
	r.heard = c.opt.Clock()
}

// forget takes a receiver away that has ended in order.
func (c *Coordinator) forget(r *receiver) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.all[r.name] == r {
		c.remove(r)
	}
}

// remove takes a receiver away. c.mu must be held.
func (c *Coordinator) remove(r *receiver) {
	delete(c.all, r.name)
	e := c.engine(r.engine)
	e.stages = slices.DeleteFunc(e.stages, func(other *receiver) bool { return other == r })
	c.change(r.engine)
}

// add makes room for a receiver that has come. c.mu must be held.
func (c *Coordinator) add(name string, req *protocol.ReceiverRequest) (*receiver, error) {
	e := c.engine(req.Engine)
	for _, other := range e.stages {
		if other.stage != req.Stage {
			continue
		}
		if !c.silent(other) {
			return nil, protocol.Refuse(protocol.CodeConflict, "stage %d of engine %s is receiver %s already: stop it, or name another stage", req.Stage, req.Engine, other.name)
		}
		c.remove(other)
		break
	}
	if len(c.all) >= receiversMax {
		return nil, protocol.Refuse(protocol.CodeBusy, "there are %d receivers, the most there may be: stop some of them", receiversMax)
	}
	r := &receiver{name: name, instance: req.Instance, engine: req.Engine, stage: req.Stage, state: StateServing, served: loop.NoVersion, loaded: loop.NoVersion, told: make(chan struct{})}
	c.all[name] = r
	e.stages = append(e.stages, r)
	slices.SortFunc(e.stages, func(a, b *receiver) int { return cmp.Compare(a.stage, b.stage) })
	c.change(r.engine)
	return r, nil
}

// hear notes what a receiver says of itself, and counts its poll. Others connect to dial.
func (c *Coordinator) hear(name, dial string, req protocol.ReceiverRequest) (r *receiver, err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if r = c.all[name]; r == nil {
		if r, err = c.add(name, &req); err != nil {
			return nil, err
		}
	}
	if r.engine != req.Engine || r.stage != req.Stage {
		return nil, protocol.Refuse(protocol.CodeConflict, "receiver %s is stage %d of engine %s already, and now says stage %d of %s: choose another name", name, r.stage, r.engine, req.Stage, req.Engine)
	}
	if r.instance != req.Instance {
		if r.open > 0 {
			return nil, protocol.Refuse(protocol.CodeConflict, "another process is receiver %s at this moment: stop it, or choose another --name", name)
		}
		if r.token != req.Caller.Token && !c.silent(r) {
			return nil, protocol.Refuse(protocol.CodeConflict, "receiver %s was heard of %.0f s ago with another token: start this process with that one, or wait for %.0f s of silence", name, (c.opt.Clock() - r.heard).Seconds(), c.opt.Silence.Seconds())
		}
		c.renew(r, req.Instance)
	}
	r.open++
	r.heard, r.form = c.opt.Clock(), req.Form
	r.address, r.dial, r.secret, r.peer = req.Address, dial, req.Secret, req.Caller.Peer
	r.token = req.Caller.Token
	if r.state == StateLost {
		r.state, r.reload = StateQuarantined, true
		c.change(r.engine)
	}
	if req.Done != 0 && req.Done == r.command.Seq {
		c.carriedOut(r, req)
		c.change(r.engine)
	}
	return r, nil
}

// renew begins anew with another process under a receiver's name: it serves nothing yet,
// whatever the one before did. c.mu must be held.
func (c *Coordinator) renew(r *receiver, instance string) {
	if r.command.Seq != 0 {
		r.failed = errors.New("its process ended")
	}
	r.instance, r.command = instance, protocol.ReceiverReply{}
	r.state, r.served, r.loaded = StateQuarantined, loop.NoVersion, loop.NoVersion
	c.change(r.engine)
}

// carriedOut ends a receiver's command. c.mu must be held.
func (c *Coordinator) carriedOut(r *receiver, req protocol.ReceiverRequest) {
	command := r.command
	r.command = protocol.ReceiverReply{}
	switch {
	case req.Error != "" || !done(command, req):
		r.failed = errors.New(cmp.Or(cut(req.Error), fmt.Sprintf("it says that version %d is loaded and %d served", req.Loaded, req.Served)))
		r.state, r.served, r.loaded, r.reload = StateQuarantined, loop.NoVersion, loop.NoVersion, true
	case command.Kind == protocol.ReceiveLoad:
		r.failed, r.state, r.loaded, r.reload = nil, StateServing, command.Version, false
	default:
		r.failed, r.state, r.served, r.loaded = nil, StateServing, command.Version, loop.NoVersion
	}
}

// errorBytesMax is how much of a receiver's error is kept.
const errorBytesMax = 1 << 10

// cut is the beginning of a receiver's words.
func cut(words string) string {
	return strings.ToValidUTF8(words[:min(len(words), errorBytesMax)], "")
}

// done reports whether a receiver holds or serves what the command was for.
func done(command protocol.ReceiverReply, req protocol.ReceiverRequest) bool {
	if command.Kind == protocol.ReceiveLoad {
		return req.Loaded == command.Version
	}
	return req.Served == command.Version
}

// silent reports whether a receiver has not been heard of for too long. One that waits for
// a command is not silent.
func (c *Coordinator) silent(r *receiver) bool {
	return r.open == 0 && c.opt.Clock()-r.heard > c.opt.Silence
}

// stages are the receivers of an engine, in the order of their stages. c.mu must be held.
func (c *Coordinator) stages(engine string) []*receiver {
	if e := c.engines[engine]; e != nil {
		return e.stages
	}
	return nil
}

// ErrNotOffered is wrapped by the error of a load for which another receiver came. It wants the version in a form that
// is not on offer. The version is to be offered in it, and loaded again.
var ErrNotOffered = errors.New("the version is not on offer in the form that a receiver wants")

// Load has every stage of an engine fetch a version beside what it serves, and returns
// when all of them hold it. An engine without receivers needs none. A Load or Switch that comes later ends it with an error: the
// engine was lost meanwhile, and goes on with another version.
func (c *Coordinator) Load(ctx context.Context, engine string, version loop.Version) error {
	c.mu.Lock()
	call := c.begin(engine)
	for _, r := range c.stages(engine) {
		if r.loaded == version && r.state == StateServing {
			continue
		}
		if err := c.load(r, version); err != nil {
			c.mu.Unlock()
			return err
		}
	}
	c.mu.Unlock()
	return c.await(ctx, engine, call, version, func(r *receiver) bool { return r.loaded == version }, func(r *receiver) error {
		return c.load(r, version)
	})
}

// begin begins a call of an engine, which ends those before. c.mu must be held.
func (c *Coordinator) begin(engine string) (call int) {
	e := c.engine(engine)
	e.calls++
	c.change(engine)
	return e.calls
}

// errLater is the error of a call that another one has ended.
var errLater = errors.New("the engine was told of another version meanwhile")

// load has a receiver fetch a version. What the receiver held counts as held no more: this command takes its place, or the one
// before, which may still be under way, has used it. c.mu must be held.
func (c *Coordinator) load(r *receiver, version loop.Version) error {
	offer := ""
	if c.opt.Digest != nil {
		if offer = c.opt.Digest(version, r.form); offer == "" {
			return ErrNotOffered
		}
	}
	c.command(r, protocol.ReceiverReply{Kind: protocol.ReceiveLoad, Version: version, Offer: offer, Parents: c.parents(r, version), Reload: r.reload})
	r.state, r.loaded = StateLoading, loop.NoVersion
	return nil
}

// Switch has every stage of an engine serve a version that all of them hold. When one
// cannot, all of them are quarantined: nothing may be sampled from a mix of stages.
func (c *Coordinator) Switch(ctx context.Context, engine string, version loop.Version) error {
	c.mu.Lock()
	stages := c.stages(engine)
	for _, r := range stages {
		if r.loaded != version {
			c.mu.Unlock()
			return fmt.Errorf("transfer: stage %d of engine %s does not hold version %d, so none of its stages switches", r.stage, engine, version)
		}
	}
	call := c.begin(engine)
	for _, r := range stages {
		c.command(r, protocol.ReceiverReply{Kind: protocol.ReceiveSwitch, Version: version})
		r.state = StateSwitching
	}
	c.mu.Unlock()
	err := c.await(ctx, engine, call, version, func(r *receiver) bool { return r.served == version && r.state == StateServing }, func(*receiver) error {
		return errors.New("it joined meanwhile, and does not hold the version")
	})
	if err != nil && !errors.Is(err, errLater) {
		c.quarantine(engine)
	}
	return err
}

// command gives a receiver something to do. c.mu must be held.
func (c *Coordinator) command(r *receiver, command protocol.ReceiverReply) {
	c.seq++
	command.Seq = c.seq
	r.command, r.failed = command, nil
	close(r.told)
	r.told = make(chan struct{})
}

// parentsMax bounds how many a receiver may try before the origin.
const parentsMax = 3

// parents are whom a receiver fetches from: those before it in the chain, nearest first, then
// the origin. c.mu must be held.
func (c *Coordinator) parents(r *receiver, version loop.Version) []protocol.ReceiverParent {
	key := offerKey{version, r.form}
	chain := slices.DeleteFunc(c.chain[key], func(name string) bool { return name == r.name })
	c.chain[key] = append(chain, r.name)
	for old := range c.chain {
		if old.version < version-1 {
			delete(c.chain, old)
		}
	}
	var out []protocol.ReceiverParent
	for i := len(chain) - 1; i >= 0 && len(out) < parentsMax; i-- {
		if other := c.all[chain[i]]; other != nil && other.address != "" && other.state != StateQuarantined && !c.silent(other) {
			out = append(out, protocol.ReceiverParent{URL: other.address, Dial: other.dial, Key: SignKey(other.secret, version, r.form, time.Now().Add(keyLife))})
		}
	}
	return append(out, protocol.ReceiverParent{URL: c.opt.Origin})
}

// await waits until every stage of an engine is as wanted, one of them failed or is silent. idle is called,
// with c.mu held, for a stage that is not as wanted and has nothing to do: it joined after the commands were given.
func (c *Coordinator) await(ctx context.Context, engine string, call int, version loop.Version, wanted func(*receiver) bool, idle func(*receiver) error) error {
	look := time.NewTicker(c.opt.Silence / 10)
	defer look.Stop()
	for {
		c.mu.Lock()
		if c.engine(engine).calls != call {
			c.mu.Unlock()
			return fmt.Errorf("transfer: version %d at engine %s: %w", version, engine, errLater)
		}
		open, err := 0, error(nil)
		because := func(r *receiver, why error) {
			err = errors.Join(err, fmt.Errorf("transfer: version %d: stage %d of engine %s (receiver %s): %w", version, r.stage, engine, r.name, why))
		}
		for _, r := range c.stages(engine) {
			switch {
			case r.failed != nil:
				because(r, r.failed)
			case c.silent(r):
				r.state, r.served, r.loaded = StateLost, loop.NoVersion, loop.NoVersion
				err = errors.Join(err, fmt.Errorf("transfer: version %d: stage %d of engine %s (receiver %s) was last heard of %.0f s ago", version, r.stage, engine, r.name, (c.opt.Clock()-r.heard).Seconds()))
			case !wanted(r):
				open++
				if r.command.Seq == 0 {
					if why := idle(r); why != nil {
						because(r, why)
					}
				}
			}
		}
		moved := c.engine(engine).moved
		c.mu.Unlock()
		if err != nil || open == 0 {
			return err
		}
		select {
		case <-moved:
		case <-look.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// quarantine forgets what the stages of an engine serve.
func (c *Coordinator) quarantine(engine string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, r := range c.stages(engine) {
		r.command = protocol.ReceiverReply{}
		r.served, r.loaded, r.reload = loop.NoVersion, loop.NoVersion, true
		if r.state != StateLost {
			r.state = StateQuarantined
		}
	}
	c.change(engine)
}

// Forms are the types that the receivers of an engine want weights in, in order.
func (c *Coordinator) Forms(engine string) []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, r := range c.stages(engine) {
		out = append(out, r.form)
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Unsound returns the engines, in order, that must not be given work. A stage of theirs is
// quarantined or silent, or joined and serves nothing yet. The loop counts them as lost and has them
// load in full.
func (c *Coordinator) Unsound() []string {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []string
	for _, r := range c.all {
		if r.state == StateQuarantined || c.silent(r) || r.served == loop.NoVersion && r.command.Seq == 0 && r.loaded == loop.NoVersion {
			out = append(out, r.engine)
		}
	}
	slices.Sort(out)
	return slices.Compact(out)
}

// Versions says what every stage of every engine serves, in the order of their names.
func (c *Coordinator) Versions() []protocol.EngineVersion {
	c.mu.Lock()
	defer c.mu.Unlock()
	var out []protocol.EngineVersion
	for _, r := range c.all {
		state := r.state
		if c.silent(r) {
			state = StateLost
		}
		out = append(out, protocol.EngineVersion{Engine: r.engine, Stage: r.stage, Version: r.served, Loaded: r.loaded, State: state})
	}
	slices.SortFunc(out, func(a, b protocol.EngineVersion) int {
		return cmp.Or(strings.Compare(a.Engine, b.Engine), cmp.Compare(a.Stage, b.Stage))
	})
	return out
}
