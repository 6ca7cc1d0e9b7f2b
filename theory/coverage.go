package theory

import "fmt"

// coverage says which figures the closed form gives for a policy.
type coverage struct {
	period    bool // T
	preQueue  bool // PQS
	staleness bool // IQS, the sum and its distribution
	warnings  []string
}

// quiet is the effective ρ below which a queue of one batch is so rarely full
// that a rule for full queues changes little.
const quiet = 0.8

// coverageOf decides what holds. Everything holds for drop with oldest-first
// selection. Where the queue is drained in every period (ρ well below 1) order
// and overflow rules hardly act, so the other policies share its figures.
func coverageOf(in Input, e effective) coverage {
	if e.simulate != "" {
		return coverage{warnings: []string{e.simulate}}
	}
	all := coverage{period: true, preQueue: true, staleness: true}
	switch in.Policy {
	case PolicyBlock:
		return coverageOfBlock(in, e, all)
	case PolicyMax:
		return coverageOfMax(in, e, all)
	}
	if in.Select == SelectOldest || e.rho < quiet || in.QueueFactor == 1 && in.Select == SelectOldestVersion {
		return all
	}
	return coverage{period: true, preQueue: true, warnings: []string{
		fmt.Sprintf("no closed form for the wait of %s-first selection at effective ρ = %.2f; simulate", in.Select, e.rho)}}
}

// coverageOfBlock: blocked slots make generation longer than M says.
func coverageOfBlock(in Input, e effective, all coverage) coverage {
	if e.rho < quiet {
		all.warnings = []string{"policy block rarely acts at this ρ: figures are those of drop"}
		return all
	}
	load := in.ConcurrencyRollouts / in.BatchRollouts
	return coverage{warnings: []string{fmt.Sprintf(
		"policy block holds slots at effective ρ = %.2f and the closed form is for drop: nothing is predicted (nothing is dropped, so mean staleness is the groups open or queued just after an update over G, between q + C/B = %.2f and q + C·M/B = %.2f); simulate",
		e.rho, in.QueueFactor+load, in.QueueFactor+load*e.tail.multiplier)}}
}

// coverageOfMax: discarding matters unless hardly any group exceeds the budget.
func coverageOfMax(in Input, e effective, all coverage) coverage {
	over := newDistribution(e).ShareAbove(in.MaxStaleness)
	if over < 0.005 && in.Select == SelectOldest {
		all.warnings = []string{fmt.Sprintf("policy max hardly acts: drop would exceed the budget of %d in %.2g %% of groups", in.MaxStaleness, 100*over)}
		return all
	}
	return coverage{warnings: []string{fmt.Sprintf(
		"policy max would discard: under drop %.1f %% of groups exceed the budget of %d; the closed form does not cover what discarding does to lengths, staleness and period; simulate",
		100*over, in.MaxStaleness)}}
}
