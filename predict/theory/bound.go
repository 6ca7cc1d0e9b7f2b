package theory

import (
	"math"

	"github.com/headway-rl/headway/loop/workload"
)

// Rhythm is when the versions of a steady run come and go, all times in one unit.
type Rhythm struct {
	// Period is T, the time from one update to the next. Above 0.
	Period float64
	// Step is t_step, the part of the period in which the trainer trains; the rest of it waits for a
	// batch. In (0, Period].
	Step float64
	// Publish is the time from an update until engines serve it; 0 where they do at once.
	Publish float64
}

// ahead is what of a group's time is for nothing, in periods: an update is
// served Publish after it was made, and the next batch is taken Period − Step after it.
func (r Rhythm) ahead() float64 { return (r.Publish + r.Step - r.Period) / r.Period }

// LeastStaleness returns the least mean staleness, in versions, of a rule that
// does not choose groups by how long they take,
//
//	E[max(0, ⌈(D + t_s + t_step − T)/T⌉)],   E⌈D/T⌉ where the trainer is never idle and t_s is 0
//
// for the times from groups' first token to their last sibling, in the unit of the rhythm. The bound holds group by
// group: nothing is trained before it is ready. At its own period, only a rule that prefers short groups is below it.
// Derived in docs/queue-bound.md. A period that is not above 0 has no bound, NaN.
func LeastStaleness(times workload.Distribution, r Rhythm) float64 {
	return HeldStaleness(times, r, 1)
}

// HeldStaleness returns the mean staleness under a hold. Groups that would have started within theta of a period before
// a switch of weights start right after it, the others at any moment between. A batch is chosen among fresh groups
// regardless of when they started:
//
//	E[max(0, ⌈φ + (D + t_s + t_step − T)/T⌉)],   φ = 0 with probability θ, else uniform on (0, 1−θ)
//
// theta in [0, 1]: at 0 the phase is uniform and the trainer-bound mean is E[D]/T + 1 without a sync, at 1 it is
// [LeastStaleness]. For smooth D the difference between the two is (1−θ)²/2. Valid for `select: fresh` where
// production suffices (effective ρ·(1 − θ²B/(2C)) above 1.1 or so). Nearer to 1, batches are filled up with groups
// that are not fresh. Derived in docs/queue-bound.md.
func HeldStaleness(times workload.Distribution, r Rhythm, theta float64) float64 {
	if !(r.Period > 0) {
		return math.NaN()
	}
	ahead, sum := r.ahead(), 0.0
	for i := range times.Len() {
		d, p := times.At(i)
		x := d/r.Period + ahead
		sum += p * (theta*math.Max(0, math.Ceil(x)) + (1-theta)*meanCeil(x, 1-theta))
	}
	return sum
}

// meanCeil is E[max(0, ⌈x + φ⌉)] for φ uniform on (0, width).
func meanCeil(x, width float64) float64 {
	if width <= 0 {
		return math.Max(0, math.Ceil(x))
	}
	return (ceilArea(x+width) - ceilArea(x)) / width
}

// ceilArea is ∫₀^y max(0, ⌈u⌉) du.
func ceilArea(y float64) float64 {
	if y <= 0 {
		return 0
	}
	n := math.Ceil(y)
	return n*(n-1)/2 + n*(y-n+1)
}
