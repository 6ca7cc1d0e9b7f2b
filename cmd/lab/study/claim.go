package study

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop"
)

// Claim is a number of the reference figures for hold (measured on another simulator) beside ours.
type Claim struct {
	// Claim says what, Where in which cell and under which rule.
	Claim string `json:"claim"`
	Where string `json:"where"`
	// Printed is the reference, Tolerance what its rounding and its missing settings allow,
	// Measured ours; all in Unit.
	Printed   float64  `json:"printed"`
	Tolerance float64  `json:"tolerance"`
	Measured  Estimate `json:"measured"`
	Unit      string   `json:"unit"`
	// AtMost: the printed number is a bound of the measured one's distance from 0.
	AtMost bool `json:"at_most,omitempty"`
	// Cell it was measured in.
	Cell Cell `json:"cell"`
	// Verdict is "confirmed", "refuted" or "open", where the interval reaches both sides.
	Verdict string `json:"conclusion"`
}

// judged fills in the verdict: confirmed if the whole interval is within the
// tolerance of the printed number, refuted if none of it is.
func (c Claim) judged() Claim {
	half := c.Measured.Half
	if math.IsNaN(half) {
		half = 0
	}
	off := math.Abs(c.Measured.Mean - c.Printed)
	if c.AtMost {
		off = math.Abs(c.Measured.Mean) - c.Printed
	}
	switch {
	case math.IsNaN(off):
		c.Verdict = "open"
	case off+half <= c.Tolerance:
		c.Verdict = "confirmed"
	case off-half > c.Tolerance:
		c.Verdict = "refuted"
	default:
		c.Verdict = "open"
	}
	return c
}

// Tolerances of claims: what printing to a whole per cent and unnamed settings allow.
const (
	percentTolerance = 1.5
	lengthTolerance  = 0.0015
	versionTolerance = 0.05
)

// best is the rule as it was proposed.
func best() Rule { return Held(0.3, loop.SelectNewest, 2) }

// paused is that, opening nothing either while one and a quarter batches wait.
func paused() Rule { return best().pausing(1.25) }

// unheld is that without a hold.
func unheld() Rule { return Held(0, loop.SelectNewest, 2) }

// The cells of single claims.
var (
	oneRollout     = Cell{Rho: 0.7, Tailness: 50, Load: 1, GroupSize: 1, Concurrency: concurrency}
	oneRolloutHalf = Cell{Rho: 0.7, Tailness: 50, Load: 0.5, GroupSize: 1, Concurrency: concurrency}
	boundCell      = cellAt(1.5, 50, 2, 0)
)

// eventRhos are where waiting for the wrong event is tried.
var eventRhos = []float64{0.7, 1.1, 1.5}

func (p *plan) addClaims() {
	for _, cell := range []Cell{oneRollout, oneRolloutHalf, cellAt(0.7, 50, 0.5, 0)} {
		for _, rule := range []Rule{Drop(2), best()} {
			p.add(partClaims, cell, rule, false)
		}
	}
	for _, rule := range []Rule{Drop(2), unheld(), best(), Held(0.5, loop.SelectNewest, 2)} {
		p.add(partClaims, boundCell, rule, true)
	}
	for _, rho := range eventRhos {
		for _, rule := range []Rule{unheld(), best()} {
			p.add(partClaims, cellAt(rho, 50, 2, 0), rule, true)
			p.add(partClaims, cellAt(rho, 50, 2, DelayShare), rule, true)
		}
	}
	if p.opt.Quick {
		return
	}
	for _, tailness := range gridTailness { // of the grid
		for _, rho := range gridRho {
			for _, rule := range []Rule{Drop(2), best()} {
				p.add(partClaims, cellAt(rho, tailness, 2, 0), rule, false)
			}
		}
	}
}

// claims are the printed numbers beside what was measured.
func (p *plan) claims() []Claim {
	var claims []Claim
	claims = append(claims, p.headline()...)
	claims = append(claims, p.price()...)
	claims = append(claims, p.bounds()...)
	claims = append(claims, p.events()...)
	for i := range claims {
		claims[i] = claims[i].judged()
	}
	return claims
}

// percent turns a ratio into a change in per cent.
func percent(e Estimate) Estimate { return Estimate{100 * (e.Mean - 1), 100 * e.Half} }

// The claims of the sentence on q = 2 and θ = 0.3, which names no tailness.
const (
	claimStaleness = "change of staleness"
	claimPeriod    = "change of the period"
	claimLength    = "trained over started mean length"
)

// headline is the sentence on q = 2, θ = 0.3, for every tailness, which it does not name.
func (p *plan) headline() []Claim {
	var claims []Claim
	for _, s := range []struct{ rho, printed float64 }{{0.7, -6}, {0.9, -6}, {1.1, -13}, {1.5, -17}, {2, -18}} {
		for _, tailness := range gridTailness {
			cell := cellAt(s.rho, tailness, 2, 0)
			this, base := p.of(cell, best(), false), p.of(cell, Drop(2), false)
			if this == nil {
				continue
			}
			where := cell.name() + ": newest, q 2, hold 0.3 against queue-drop q 2"
			change, price := percent(this.ratio(base, staleness)), percent(this.ratio(base, period))
			claims = append(claims,
				Claim{Claim: claimStaleness, Cell: cell, Where: where, Printed: s.printed, Tolerance: percentTolerance, Measured: change, Unit: "%"},
				Claim{Claim: claimPeriod, Cell: cell, Where: where, Printed: 2, AtMost: true, Tolerance: 0.1, Measured: price, Unit: "%"},
				Claim{Claim: claimLength, Cell: cell, Where: where, Printed: 0.999, Tolerance: lengthTolerance, Measured: this.mean(length), Unit: ""})
		}
	}
	return claims
}

// price is T ratio = 1 + θ²B/(2C) below ρ = 1, and the prices printed for single cells.
func (p *plan) price() []Claim {
	var claims []Claim
	for _, load := range gridLoad {
		for _, theta := range []float64{0.3, 0.5} {
			cell, rule := cellAt(0.7, 50, load, 0), Held(theta, loop.SelectNewest, 2)
			if this := p.of(cell, rule, false); this != nil {
				claims = append(claims, Claim{Claim: "T ratio = 1 + θ²B/(2C)", Where: fmt.Sprintf("%s, θ %g", cell.name(), theta),
					Printed: 100 * theta * theta / (2 * load), Tolerance: 0.15 * 100 * theta * theta / (2 * load), Measured: percent(this.ratio(p.of(cell, Drop(2), false), period)), Unit: "%"})
			}
		}
	}
	if this := p.of(oneRollout, best(), false); this != nil {
		base := p.of(oneRollout, Drop(2), false)
		claims = append(claims,
			Claim{Claim: "C/B 1, S 1: gain", Where: oneRollout.name() + ", θ 0.3", Printed: -18, Tolerance: percentTolerance, Measured: percent(this.ratio(base, staleness)), Unit: "%"},
			Claim{Claim: "C/B 1, S 1: price", Where: oneRollout.name() + ", θ 0.3", Printed: 4.8, Tolerance: 0.5, Measured: percent(this.ratio(base, period)), Unit: "%"})
	}
	for _, cell := range []Cell{oneRolloutHalf, cellAt(0.7, 50, 0.5, 0)} {
		if this := p.of(cell, best(), false); this != nil {
			claims = append(claims, Claim{Claim: "C/B 0.5: price 8 to 9.5 %", Where: cell.name() + ", θ 0.3", Printed: 8.75, Tolerance: 0.75, Measured: percent(this.ratio(p.of(cell, Drop(2), false), period)), Unit: "%"})
		}
	}
	return claims
}

// bounds are E⌈D/T⌉ and how near to it the rules come.
func (p *plan) bounds() []Claim {
	var claims []Claim
	add := func(what string, rule Rule, printed float64, of func(Figures) float64) {
		if this := p.of(boundCell, rule, true); this != nil {
			claims = append(claims, Claim{Claim: what, Where: boundCell.name(), Printed: printed, Tolerance: versionTolerance, Measured: this.mean(of), Unit: "versions"})
		}
	}
	add("bound E⌈D/T⌉", Held(0, loop.SelectNewest, 2), 3.46, bound)
	add("newest, hold 0.3 reaches", best(), 3.56, staleness)
	add("newest, hold 0.5 reaches", Held(0.5, loop.SelectNewest, 2), 3.45, staleness)
	return claims
}

// events is the share of the gain that is lost by waiting for the step's end
// instead of the switch, with a sync of a tenth of a step. The starts of a hold
// without a sync are those of one that waits for the step's end: only the
// versions served at them differ.
func (p *plan) events() []Claim {
	var claims []Claim
	for _, rho := range eventRhos {
		none, sync := cellAt(rho, 50, 2, 0), cellAt(rho, 50, 2, DelayShare)
		wrong, right, free := p.of(none, best(), true), p.of(sync, best(), true), p.of(sync, unheld(), true)
		if wrong == nil || right == nil {
			continue
		}
		var lost []float64
		for i := range wrong {
			if wrong[i].Failed == "" && right[i].Failed == "" && free[i].Failed == "" {
				lost = append(lost, 100*(wrong[i].Delayed-right[i].Staleness)/(free[i].Staleness-right[i].Staleness))
			}
		}
		claims = append(claims, Claim{Claim: "share of the gain lost by waiting for the step's end", Where: none.name() + ", sync a tenth of a step",
			Printed: 80, Tolerance: 10, Measured: estimateOf(lost), Unit: "%"})
	}
	return claims
}
