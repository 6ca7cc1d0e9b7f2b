package scenario

import (
	"fmt"
	"time"

	"github.com/headway-rl/headway/cmd/lab/world/machine"
	"github.com/headway-rl/headway/cmd/lab/world/plan"
)

// slack is how long a kill waits for the scheduler to come to its n-th pick.
const slack = 3 * time.Second

func (w *World) meet(f plan.Fault) {
	defer w.pending.Done()
	time.Sleep(time.Duration(f.AtMS)*time.Millisecond - time.Since(w.began))
	w.awaits(f.Await)
	a := w.actors[f.Host]
	if a == nil {
		return
	}
	if a.down.Load() && strikesProgram(f.Kind) { // there is no program that it could meet
		w.note(f.Host, "spared", f.Kind)
		return
	}
	lasts := time.Duration(f.ForMS) * time.Millisecond
	w.count(f)
	w.note(f.Host, "fault", fmt.Sprintf("%s %s for %d ms, by %d ms, n %d %s", f.Kind, f.Other, f.ForMS, f.ByMS, f.N, f.Path))
	switch f.Kind {
	case plan.Kill, plan.Power, plan.Flip:
		w.kill(a, f, lasts)
		return
	case plan.Stop:
		w.stop(a, lasts)
		return
	case plan.Reset:
		for _, b := range w.others(f) {
			w.machine.Reset(a.host.Load().IP, b.IP)
		}
		return
	case plan.Abort:
		w.mu.Lock()
		server := w.servers[f.Host]
		w.mu.Unlock()
		if server != nil {
			server.AbortAll()
		}
		return
	case plan.Twin:
		w.twin(a, f.Both, lasts)
		return
	case plan.Clock:
		a.host.Load().Step(time.Duration(f.ByMS) * time.Millisecond)
		return
	}
	for _, set := range w.switches(a, f) {
		set(true)
		defer set(false)
	}
	time.Sleep(lasts)
	w.note(f.Host, "healed", f.Kind)
	if f.Kind == plan.Full && roleOf(f.Host) == "broker" && !a.down.Load() { // NATS turns JetStream off when its disk is full, until it is started again
		a.host.Load().Full(false)
		w.kill(a, plan.Fault{Kind: plan.Kill, Host: f.Host, N: 1}, time.Second)
	}
}

// strikesProgram reports whether a fault is one of a host's program, and no fault of its links, disk or clock.
func strikesProgram(kind string) bool {
	switch kind {
	case plan.Kill, plan.Power, plan.Flip, plan.Freeze, plan.Abort, plan.Stop:
		return true
	}
	return false
}

// kill ends a host's program, does to its disk what the fault says, and starts it again.
func (w *World) kill(a *actor, f plan.Fault, lasts time.Duration) {
	a.down.Store(true)
	defer a.down.Store(false)
	a.host.Load().Thaw()
	switch f.Kind {
	case plan.Power:
		a.host.Load().LosePower()
	case plan.Stop:
		a.host.Load().Kill()
	default:
		a.host.Load().KillAfter(f.N, slack)
	}
	w.unheard(f.Host, "the caller was killed")
	w.note(f.Host, "dead", f.Kind)
	if f.Kind == plan.Flip {
		if path := a.host.Load().Flip(a.dir, f.Path); path != "" {
			w.note(f.Host, "fault", "a bit of "+path)
		}
	}
	time.Sleep(lasts)
	a.host.Store(a.host.Load().Next())
	w.begin(a)
}

// stop has a plane stop in order, and starts it again after its end.
func (w *World) stop(a *actor, lasts time.Duration) {
	h := a.host.Load()
	w.mu.Lock()
	drain := w.drains[h]
	w.mu.Unlock()
	if drain == nil {
		return // it has not begun to serve
	}
	leaving := &leaving{h, make(chan struct{})}
	a.leaving.Store(leaving)
	h.Go(drain)
	select {
	case <-leaving.ended:
	case <-time.After(stopsWithin):
	}
	if a.down.Load() || a.host.Load() != h {
		return // another fault has ended it
	}
	w.kill(a, plan.Fault{Kind: plan.Stop, Host: a.name}, lasts)
}

// leaving is a program on a host that was told to stop; ended is closed when it has.
type leaving struct {
	host  *machine.Host
	ended chan struct{}
}

// stopsWithin is longer than server.drain_s.
const stopsWithin = time.Minute

// nested has a switch of a host go off when the last of the faults that overlap is over.
func (w *World) nested(key string, set func(on bool)) func(on bool) {
	return func(on bool) {
		w.mu.Lock()
		w.lasting[key] += chosen(on, 1, -1)
		still := w.lasting[key] > 0
		w.mu.Unlock()
		if on || !still {
			set(on)
		}
	}
}

// switches turn a fault on and off.
func (w *World) switches(a *actor, f plan.Fault) []func(on bool) {
	h := a.host.Load()
	var all []func(bool)
	switch f.Kind {
	case plan.Freeze:
		all = append(all, w.nested(fmt.Sprint(f.Kind, h.ID), func(on bool) {
			if on {
				h.Freeze()
			} else {
				h.Thaw()
			}
		}))
	case plan.Full:
		all = append(all, w.nested(f.Kind+a.name, func(on bool) { a.host.Load().Full(on) }))
	case plan.Rot:
		all = append(all, w.nested(f.Kind+a.name, func(on bool) { a.host.Load().Rot(on) }))
	case plan.Drag:
		all = append(all, w.nested(f.Kind+a.name, func(on bool) { a.host.Load().Drag(chosen(on, time.Duration(f.N)*time.Millisecond, 0)) }))
	case plan.Double:
		all = append(all, w.nested(f.Kind+a.name, w.turn(w.twice, a.name)))
	case plan.Mute:
		all = append(all, w.nested(f.Kind+a.name, w.turn(w.mute, a.name)))
	case plan.Deaf:
		all = append(all, w.nested(f.Kind+a.name, w.turn(w.deaf, a.name)))
	case plan.Drop, plan.Lag:
		for _, other := range w.others(f) {
			all = append(all, w.troubled(f, h.IP, other.IP))
		}
	case plan.Cut, plan.Slow:
		for _, other := range w.others(f) {
			all = append(all, w.link(f, h.IP, other.IP))
			if f.Both {
				all = append(all, w.link(f, other.IP, h.IP))
			}
		}
	}
	return all
}

// troubled turns a trouble of a link on and off.
func (w *World) troubled(f plan.Fault, from, to string) func(bool) {
	end := func() {}
	return func(on bool) {
		if end(); on {
			end = w.machine.Trouble(from, to, machine.Trouble{Drop: f.Kind == plan.Drop, One: int(f.N), Path: f.Path})
		}
	}
}

func (w *World) link(f plan.Fault, from, to string) func(bool) {
	return w.nested(fmt.Sprint(f.Kind, from, to), func(on bool) {
		switch {
		case f.Kind == plan.Slow:
			w.machine.Slow(from, to, chosen(on, int(f.N), 1))
		case on:
			w.machine.Cut(from, to)
		default:
			w.machine.Heal(from, to)
		}
	})
}

func chosen[T any](on bool, yes, no T) T {
	if on {
		return yes
	}
	return no
}

// others are the hosts at the other end of a fault's links: one, or all.
func (w *World) others(f plan.Fault) []*machine.Host {
	var found []*machine.Host
	for _, a := range w.order {
		if a.name != f.Host && a.name != "scribe" && (f.Other == "" || a.name == f.Other) {
			found = append(found, a.host.Load())
		}
	}
	return found
}

// count counts a fault, and the calls that are under way when it comes.
func (w *World) count(f plan.Fault) {
	w.mu.Lock()
	defer w.mu.Unlock()
	w.Faults[f.Kind]++
	role := roleOf(f.Host)
	busy := false
	for _, call := range sorted(w.open) {
		if w.open[call] > 0 {
			busy = true
			w.Pairs[call+"/"+f.Kind+" "+role]++
		}
	}
	if !busy {
		w.Pairs["nothing/"+f.Kind+" "+role]++
	}
}
