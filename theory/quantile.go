package theory

import (
	"math"
	"sort"

	"github.com/headway-rl/headway/workload"
)

// Distribution is the predicted distribution of staleness in versions:
// S = ⌊(x + t_step + t_publish)/T⌋ with x = D + W, the group's generation time
// and its wait, taken independent (theory.md §2). The last update before a
// selection was T − t_step earlier, hence the t_step.
//
// D has the distribution of the longest sibling. W is the time in which the
// queue's stock and the group's place in its batch arrived: uniform on (0, T)
// for ρ < 1, on ((q−1)T/ρ, qT/ρ) for a full queue, and the mixture over the
// stock's density between. Total variation against simulation is up to 3 %.
//
// Valid for the drop policy with oldest-first selection. The zero Distribution
// is not usable.
type Distribution struct {
	group  workload.Distribution // D/T, thinned
	waits  []float64             // least W/T, by the stock found at selection
	shares []float64             // their probabilities
	width  float64               // of W's uniform part, in T
	offset float64               // (t_step + t_publish)/T
}

// groupCells is the resolution of D.
const groupCells = 256

// newDistribution builds it for effective settings.
func newDistribution(e effective) *Distribution {
	width := 1 / (e.rho * e.period)
	d := &Distribution{
		group:  coarse(e.tail.group).Scale(e.groupTime / (e.period * e.tail.multiplier)),
		width:  width,
		offset: 1/e.period + e.publish/e.period,
		shares: e.stock.weights,
	}
	for _, level := range e.stock.levels {
		d.waits = append(d.waits, width*level)
	}
	return d
}

// coarse merges a distribution into cells of equal probability, keeping its
// mean; the top hundredth is cut ten times finer.
func coarse(d workload.Distribution) workload.Distribution {
	if d.Len() <= groupCells {
		return d
	}
	var values, weights []float64
	weight, moment, total := 0.0, 0.0, 0.0
	for i := range d.Len() {
		v, p := d.At(i)
		weight, moment, total = weight+p, moment+p*v, total+p
		cell := 1.0 / groupCells
		if total > 0.99 {
			cell /= 10
		}
		if weight >= cell || (i == d.Len()-1 && weight > 0) {
			values, weights = append(values, moment/weight), append(weights, weight)
			weight, moment = 0, 0
		}
	}
	merged, err := workload.NewDistribution(values, weights)
	if err != nil {
		panic("theory: coarse distribution: " + err.Error())
	}
	return merged
}

// CDF returns P(staleness <= versions).
func (d *Distribution) CDF(versions int) float64 {
	if versions < 0 {
		return 0
	}
	limit := float64(versions+1) - d.offset
	sum := 0.0
	for i := range d.group.Len() {
		time, p := d.group.At(i)
		for j, wait := range d.waits {
			sum += p * d.shares[j] * min(max((limit-time-wait)/d.width, 0), 1)
		}
	}
	return min(sum, 1)
}

// ShareAbove returns the share of trained groups staler than a budget.
func (d *Distribution) ShareAbove(versions int) float64 { return 1 - d.CDF(versions) }

// Quantile returns the least staleness that a share p of groups does not
// exceed, p in (0,1).
func (d *Distribution) Quantile(p float64) int {
	longest, _ := d.group.At(d.group.Len() - 1)
	most := int(math.Ceil(longest + d.waits[len(d.waits)-1] + d.width + d.offset))
	// The 1e-9 absorbs rounding where the CDF is exactly p.
	return sort.Search(most, func(k int) bool { return d.CDF(k) >= p-1e-9 })
}

// Mean returns E[staleness], whose floor replaces the smooth-arrival ½ of
// [InQueue]: at ρ = 3 the error of the mean falls from 3.6 % to 0.7 %.
func (d *Distribution) Mean() float64 {
	sum := 0.0
	for i := range d.group.Len() {
		time, p := d.group.At(i)
		for j, wait := range d.waits {
			sum += p * d.shares[j] * meanFloor(time+wait+d.offset, d.width)
		}
	}
	return sum
}

// meanFloor is E⌊from + U⌋ for U uniform on (0, width).
func meanFloor(from, width float64) float64 {
	if width < 1e-9 {
		return math.Floor(from)
	}
	base := math.Floor(from)
	from -= base // the integral below only needs the fraction
	end := from + width
	n := math.Floor(end)
	// ∫₀^end ⌊u⌋ du, and ⌊u⌋ = 0 up to from < 1.
	return base + (n*(n-1)/2+n*(end-n))/width
}
