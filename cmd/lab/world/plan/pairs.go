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
	// weight is how likely it is chosen: a call of few worlds weighs more there.
	weight int
	of     func(p *Plan) bool
}

// called are calls that are under way for a millisecond: a fault meets one only by waiting for it. Others last, and are met
// without.
var called = []made{
	{"trainer", "batches renew", false, 2, func(p *Plan) bool { return 3*p.Trainer.StepMS > p.Rules.LeaseMS }},
	{"trainer", "batches ack", false, 4, func(p *Plan) bool { return p.Trainer.Acks }},
	{"trainer", "batches nack", false, 4, func(p *Plan) bool { return p.Trainer.Back > 0 }},
	{"trainer", "batches channels", false, 4, func(p *Plan) bool { return p.Rows }},
	{"trainer", "weights", false, 1, always},
	{"trainer", "weights latest", true, 2, always},
	{"trainer", "weights files", true, 2, always},
	{"trainer", "weights version", false, 4, func(p *Plan) bool { return p.Trainer.Ranks > 1 }},
	{"trainer", "trainers connect", true, 1, always},
	{"worker", "rollouts touch", false, 1, func(p *Plan) bool { return p.ThinkMS > p.Rules.ClaimMS/3 || p.Engines[0].TokenUS >= 50_000 }},
	{"worker", "v1 completions", false, 1, func(p *Plan) bool { return p.Chat != nil }},
	{"receiver", "transfer", false, 2, func(p *Plan) bool { return p.Receivers > 0 }},
	{"receiver", "transfer chunks", false, 3, func(p *Plan) bool { return p.Receivers > 0 }},
	{"observer", "status", false, 1, always},
}

func always(*Plan) bool { return true }

// pairs draws faults that strike while a call is under way, so that every pair of the two is met.
// Most worlds have none of them.
func (d drawer) pairs(p *Plan) {
	if !d.chance(3) {
		return
	}
	hosts := p.hosts()
	var calls []made
	for _, m := range called {
		if m.of(p) {
			calls = append(calls, slices.Repeat([]made{m}, m.weight)...)
		}
	}
	for n := d.between(4, 8); n > 0; {
		f := d.any(p, hosts)
		if f.Host == "" || !p.bears(f) {
			continue
		}
		n--
		f.AtMS = d.when(p)
		m := calls[d.IntN(len(calls))]
		if m.again {
			p.Faults = append(p.Faults, Fault{AtMS: f.AtMS, Kind: Kill, Host: "trainer", ForMS: 50, N: 1})
		}
		f.Await = Await{By: m.by, Asks: m.call, N: uint64(d.of(1, 1, 2))}
		p.Faults = append(p.Faults, f)
	}
}

// any is a fault of a kind and a role, each as likely as any other. Its host is empty where the world has none of the role.
func (d drawer) any(p *Plan, hosts map[string][]string) Fault {
	r := struck[d.IntN(len(struck))]
	f := Fault{Kind: r.kind, Host: d.one(hosts, r.role), ForMS: int64(d.of(50, 300, 1000))}
	if f.Kind == Deaf && p.Planes > 1 || f.Host == "" {
		return Fault{}
	}
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

// struck are all kinds of faults with the roles that they come over.
var struck = func() (all []struct{ kind, role string }) {
	add := func(kind, roles string) {
		for role := range strings.FieldsSeq(roles) {
			all = append(all, struct{ kind, role string }{kind, role})
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
