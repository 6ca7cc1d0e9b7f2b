package plan

import (
	"math/rand/v2"
	"slices"
)

// aimedFrom is the first of the seeds that aim. Each of their worlds has one kind of fault strike one role in the middle of
// one call. As many seeds as there are pairs, one behind the other, aim at every pair once.
const aimedFrom = 1 << 20

// pairCount is how many pairs of a call, and a kind of fault and its role, there are.
func pairCount() uint64 { return uint64(len(aims)) }

// aim is a call, and a fault with its role.
type aim struct {
	call made
	blow blow
}

// aims are all of them.
var aims = func() (all []aim) {
	for _, b := range slices.Concat(struck, cellBlows) {
		for _, m := range called {
			all = append(all, aim{m, b})
		}
	}
	return all
}()

// aimed is the plan of a seed that aims: that of another seed, in which the call is made and the fault can come.
func aimed(seed uint64) Plan {
	d := drawer{rand.New(rand.NewPCG(seed, 0x61696d6564))}
	at := aims[(seed-aimedFrom)%pairCount()]
	call, kind := at.call, at.blow
	for {
		p := drawn(d.Uint64N(aimedFrom))
		if !call.of(&p) || !p.meets(kind) || kind.kind == Flip && p.Store.NoTrace {
			continue
		}
		p.Seed = seed
		for n := range 3 {
			f := d.deal(&p, kind)
			f.AtMS = int64(1500 + n*p.span()/6)
			d.within(&p, call, f)
		}
		return p
	}
}

// meets reports whether faults of a kind can come over hosts of a role.
func (p *Plan) meets(b blow) bool {
	hosts := p.hosts()[b.role]
	return len(hosts) > 0 && p.bears(Fault{Kind: b.kind, Host: hosts[0]}) && (b.kind != Deaf || p.Planes == 1 && len(p.Cells()) == 0)
}
