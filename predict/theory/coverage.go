package theory

import "fmt"

// quiet is the effective ρ below which a queue of one batch is so rarely full
// that a rule for full queues changes little.
const quiet = 0.8

// harmless is the share of groups over the budget of policy max up to which
// discarding them changes nothing that the closed form says.
const harmless = 0.005

// lockedSpread is the coefficient of variation of rollout times below which
// groups fall in step with the trainer. Against the simulator corrected means
// are off by up to 70 % at 0, by at most 4 % at 0.026 (tailness 2).
const lockedSpread = 0.02

// Least settings that the forms are for, found by simulation: below them means are
// 2 to 10 % off and more, as slots no longer make a smooth stream of groups, a
// batch is no longer many arrivals, or a few groups in many are trained.
const (
	leastSlots      = 32
	slotsPerSibling = 2 // C/S
	leastGroups     = 4
	leastAcceptance = 0.25
)

// reasonOf decides what holds. Everything holds for drop with oldest-first
// selection. Where the queue is drained in every period (ρ well below 1) order
// and overflow rules hardly act, so the other policies share its figures.
func (t *tail) reasonOf(p *Point, e *effective, d *Distribution) Reason {
	switch {
	case p.Policy == PolicyBlock && e.rho >= quiet:
		return ReasonBlock
	case p.Policy == PolicyMax && (p.Select != SelectOldest || d.ShareAbove(p.MaxStaleness) >= harmless):
		return ReasonDiscards
	case p.Select != SelectOldest && e.rho >= quiet && !(p.QueueFactor == 1 && p.Select == SelectOldestVersion):
		return ReasonOrder
	case t.spread < lockedSpread:
		return ReasonLocked
	case p.ConcurrencyRollouts < max(leastSlots, slotsPerSibling*float64(e.shape.size)):
		return ReasonFewSlots
	case e.groups < leastGroups:
		return ReasonFewGroups
	case p.Acceptance < leastAcceptance:
		return ReasonFilter
	}
	return ReasonNone
}

// reasonText says why a setting is not covered, with its figures.
func reasonText(p *Point, t *tail, out *Estimate) string {
	r := out.Reason
	switch r {
	case ReasonOrder:
		return fmt.Sprintf("no closed form for the wait of %s-first selection at effective ρ = %.2f; simulate", p.Select, out.Utilization)
	case ReasonBlock:
		load := p.ConcurrencyRollouts / p.BatchRollouts
		return fmt.Sprintf(
			"policy block holds slots at effective ρ = %.2f and the closed form is for drop: nothing is predicted (nothing is dropped, so mean staleness is the groups open or queued just after an update over G, between q + C/B = %.2f and q + C·M/B = %.2f); simulate",
			out.Utilization, p.QueueFactor+load, p.QueueFactor+load*t.multiplier)
	case ReasonLocked:
		return "not smooth: " + r.Sentence() + " in the settings; read the mean as ± ½ and simulate"
	case ReasonSyncMode:
		if p.SyncMode == SyncDrain {
			return "a drained sync empties the engines in every period: no closed form; simulate"
		}
		return fmt.Sprintf("sync mode %s changes how long rollouts take: no closed form; simulate", p.SyncMode)
	case ReasonPausedNear:
		return fmt.Sprintf("paused engines leave the trainer now waiting and now not (effective ρ = %.2f): no closed form near there; simulate", out.Utilization)
	case ReasonDiscards:
		return fmt.Sprintf("policy max would discard: under drop %.1f %% of groups exceed the budget of %d; the closed form does not cover what discarding does to lengths, staleness and period; simulate",
			100*out.ShareAboveBudget, p.MaxStaleness)
	case ReasonLongSync, ReasonUnevenSync, ReasonGang, ReasonThreshold:
		return r.Sentence() + ": no closed form; simulate"
	case ReasonFewSlots, ReasonFewGroups, ReasonFilter:
		return r.Sentence() + "; the figures are rough: simulate"
	}
	return r.Sentence() + "; simulate"
}
