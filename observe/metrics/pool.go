package metrics

import "github.com/headway-rl/headway/loop"

// pool says which engines are the pool's that starts and stops them: they are no capacity, so that nobody counts
// their slots as idle. One that is lost is the run's, and idle.
type pool struct {
	size []int64 // slots, by engine
	away []bool
	// slots of engines that are away.
	slots int64
}

// newPool has the engines away that the loop does not begin with.
func newPool(cfg *loop.Config) pool {
	p := pool{away: make([]bool, len(cfg.EngineSlots))}
	for i, n := range cfg.EngineSlots {
		p.size = append(p.size, int64(n))
		p.gone(int32(i), cfg.EnginesStart > 0 && i >= cfg.EnginesStart)
	}
	return p
}

// gone takes an engine that was given back (loop.ReleaseEngine), or that has come: it loads weights at once.
func (p *pool) gone(engine int32, gone bool) {
	if p.away[engine] == gone {
		return
	}
	p.away[engine] = gone
	sign := int64(1)
	if !gone {
		sign = -1
	}
	p.slots += sign * p.size[engine]
}

// fields takes what newPool does not know.
func (p *pool) fields(c *codec) {
	for i := range p.away {
		c.truths(&p.away[i])
	}
	whole(c, &p.slots)
}

// slotsIdle is the share of slot time without a rollout, of slots whose engine was there; slotNS is that of all slots.
func (w *window) slotsIdle(slotNS int64) float64 {
	if slotNS <= w.awayNS {
		return 0
	}
	return 1 - ratio(w.activeNS, slotNS-w.awayNS)
}
