package plan

import (
	"slices"
	"strings"
)

// made is a call that a role makes in a world.
type made struct {
	by, call string
	// again: only a trainer that begins anew makes it often.
	again bool
	of    func(p *Plan) bool
	// able makes a world one in which the call is made; nil where every world is, or where enough of them are.
	able func(d drawer, p *Plan)
}

// called are calls that are under way for a millisecond: a fault meets one only by waiting for it. Others last, and are met
// without.
var called = []made{
	{"trainer", "batches renew", false, func(p *Plan) bool { return 3*p.Trainer.StepMS > p.Rules.LeaseMS }, func(_ drawer, p *Plan) { p.Trainer.StepMS = p.Rules.LeaseMS / 2 }},
	{"trainer", "batches ack", false, func(p *Plan) bool { return p.Trainer.Acks }, drawer.acks},
	{"trainer", "batches nack", false, func(p *Plan) bool { return p.Trainer.Back > 0 }, func(d drawer, p *Plan) { p.Trainer.Back = d.of(1, 2, 5) }},
	{"trainer", "batches channels", false, func(p *Plan) bool { return p.Rows }, func(_ drawer, p *Plan) { p.rows() }},
	{"trainer", "weights", false, always, nil},
	{"trainer", "weights latest", true, always, nil},
	{"trainer", "weights files", true, always, nil},
	{"trainer", "weights version", false, func(p *Plan) bool { return p.Trainer.Ranks > 1 }, drawer.ranks},
	{"trainer", "trainers connect", true, always, nil},
	{"worker", "rollouts touch", false, func(p *Plan) bool { return p.ThinkMS > p.Rules.ClaimMS/3 || p.Engines[0].TokenUS >= 50_000 }, func(_ drawer, p *Plan) { p.ThinkMS = p.Rules.ClaimMS / 2 }},
	{"worker", "v1 completions", false, func(p *Plan) bool { return p.Chat != nil }, nil},
	{"receiver", "transfer", false, func(p *Plan) bool { return p.Receivers > 0 }, drawer.receivers},
	{"receiver", "transfer chunks", false, func(p *Plan) bool { return p.Receivers > 0 }, drawer.receivers},
	{"observer", "status", false, always, nil},
	{"worker", "rollouts finish", false, always, nil},
}

func always(*Plan) bool { return true }

// pairs draws faults that strike while a call is under way, so that every pair of the two is met.
// Most worlds have none of them.
func (d drawer) pairs(p *Plan) {
	if !d.chance(3) {
		return
	}
	most := called[d.IntN(len(called))] // half of the faults wait for it
	if !most.of(p) && most.able != nil {
		most.able(d, p)
	}
	calls := slices.DeleteFunc(slices.Clone(called), func(m made) bool { return !m.of(p) })
	for n := d.between(4, 8); n > 0; {
		kind := struck[d.IntN(len(struck))]
		if !p.meets(kind) {
			continue
		}
		n--
		m := calls[d.IntN(len(calls))]
		if most.of(p) && d.chance(2) {
			m = most
		}
		f := d.deal(p, kind)
		f.AtMS = d.when(p)
		d.within(p, m, f)
	}
}

// within has a fault strike while a call is under way.
func (d drawer) within(p *Plan, m made, f Fault) {
	if m.again {
		p.Faults = append(p.Faults, Fault{AtMS: f.AtMS, Kind: Kill, Host: "trainer", ForMS: 50, N: 1})
	}
	f.Await = Await{By: m.by, Asks: m.call, N: uint64(d.of(1, 1, 2))}
	p.Faults = append(p.Faults, f)
}

// deal is a fault of a kind, over a host of a role that the world has.
func (d drawer) deal(p *Plan, b blow) Fault {
	hosts := p.hosts()
	f := Fault{Kind: b.kind, Host: d.one(hosts, b.role), ForMS: int64(d.of(50, 300, 1000))}
	switch f.Kind {
	case Kill:
		f.N = uint64(d.of(1, 1, 3, 10))
	case Drop, Lag:
		for f.Other == "" {
			f.Other = d.other(hosts, f.Host)
		}
		f.N = uint64(d.of(1, 2, 4))
	case Abort, Rot:
		f.ForMS = 50
	}
	d.detail(&f, hosts)
	return f
}

// blow is a kind of fault, and a role that it comes over.
type blow struct{ kind, role string }

// struck are all of them but those of cells.
var struck = func() (all []blow) {
	add := func(kind, roles string) {
		for role := range strings.FieldsSeq(roles) {
			all = append(all, blow{kind, role})
		}
	}
	for _, r := range reach {
		roles := slices.Compact(slices.Sorted(slices.Values(r.roles)))
		add(r.kind, strings.Join(roles, " "))
	}
	add(Abort, "engine")
	add(Deaf, "engine")
	add(Stop, "plane")
	for _, kind := range []string{Drop, Lag} {
		add(kind, "engine plane trainer worker")
	}
	return all
}()
