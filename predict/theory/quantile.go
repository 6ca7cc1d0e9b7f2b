package theory

import (
	"math"
	"sort"
)

// Distribution is the predicted distribution of staleness in versions: S = ⌊(x +
// t_step + t_publish)/T⌋ with x = D + W. D is the group's generation time and W
// its wait, taken independent (docs/theory-corrections.md, "The distribution"). The last
// update before a selection was T − t_step earlier, hence the t_step.
//
// D is the time from a group's first token to its last sibling. W is the time in
// which the queue's stock and the group's place in its batch arrived. It is
// uniform on (0, T) for ρ < 1, and on ((q−1)T/ρ, qT/ρ) for a full queue. Between,
// it is the mixture over the stock's law. With K steps a sync the served version
// is behind by a uniform 0 … K−1 more.
//
// Valid for the drop policy with oldest-first selection, to the errors of
// docs/theory-accuracy.md. The zero Distribution is not usable.
type Distribution struct {
	law    spread          // of D, in mean rollout times
	unit   float64         // a mean rollout's time/T
	count  int             // of waits
	waits  [levels]float64 // least W/T, by the stock found at selection
	shares [levels]float64 // their probabilities
	width  float64         // of W's uniform part, in T
	step   float64         // t_step/T
	offset float64         // (t_step + t_publish)/T
	every  int             // train steps a sync
	noise  float64         // variance of the updates counted, over c² and their number
	steps  float64         // T/step
	from   arrivals
}

// distribution fills it for effective settings.
func (e *effective) distribution(d *Distribution) {
	*d = Distribution{
		law:    e.shape.of(float64(e.shape.size-1) / e.slots),
		unit:   e.unit / e.period,
		count:  e.stock.count,
		width:  1 / (e.rho * e.period),
		step:   1 / e.period,
		offset: (1 + e.publish) / e.period,
		every:  int(e.every),
		shares: e.stock.weight,
		noise:  e.stock.starved * e.stock.starved * e.rho * e.period / e.groups,
		steps:  e.period,
		from:   e.arriving,
	}
	for i := range d.count {
		d.waits[i] = d.width * e.stock.value[i]
	}
	if e.with.has(CorrectSelection) {
		// A starved selection falls on the arrival of the batch's last group, whose
		// wait is 0: the G waits then span G−1 arrivals, not G.
		d.width *= 1 - e.stock.starved/e.groups
	}
	if !e.with.has(CorrectStagger) {
		d.law = e.shape.of(0)
	}
	if !e.with.has(CorrectUpdates) {
		d.noise = 0
	}
}

// cdf is P(staleness <= versions) with one step a sync. Where the trainer starves
// updates come with arrivals and are as irregular as these: the count of updates
// within a time is then normal with the variance of arrivals, here by three
// points.
func (d *Distribution) cdf(versions int) float64 {
	if versions < 0 {
		return 0
	}
	limit := float64(versions+1) - d.offset
	spread := 0.0
	if d.noise > 0 && limit > 0 {
		spread = math.Sqrt(d.noise * d.from.index(limit*d.steps) * limit)
	}
	if spread < regular {
		return d.within(limit)
	}
	// Gauss–Hermite: 0 and ±√3 deviations.
	return d.within(limit)*2/3 + (d.within(limit-spread*1.7320508)+d.within(limit+spread*1.7320508))/6
}

// regular is the deviation, in versions, below which updates count as regular.
const regular = 0.05

// within is P(x <= limit), x and limit in T.
func (d *Distribution) within(limit float64) float64 {
	// Averaged over W's uniform part: a difference of areas over its width.
	width := max(d.width/d.unit, 1e-6)
	sum := 0.0
	for i, wait := range d.waits[:d.count] {
		x := (limit - wait) / d.unit
		if x <= 0 {
			break // later waits are longer
		}
		sum += d.shares[i] * (d.law.below(x) - d.law.below(x-width))
	}
	return min(sum/width, 1)
}

// CDF returns P(staleness <= versions).
func (d *Distribution) CDF(versions int) float64 {
	sum := 0.0
	for behind := range d.every {
		if behind > versions {
			break
		}
		sum += d.cdf(versions - behind)
	}
	return sum / float64(d.every)
}

// ShareAbove returns the share of trained groups staler than a budget.
func (d *Distribution) ShareAbove(versions int) float64 { return 1 - d.CDF(versions) }

// most bounds staleness in versions.
func (d *Distribution) most() float64 {
	longest := d.law.longest()*d.unit + d.waits[d.count-1] + d.width + d.offset
	return longest + 2*math.Sqrt(d.noise*max(d.from.index(longest*d.steps), 1)*longest) + float64(d.every)
}

// Quantile returns the least staleness that a share p of groups does not
// exceed, p in (0,1).
func (d *Distribution) Quantile(p float64) int {
	// The 1e-9 absorbs rounding where the CDF is exactly p.
	return sort.Search(int(min(math.Ceil(d.most()), 1<<40)), func(k int) bool { return d.CDF(k) >= p-1e-9 })
}

// sweepVersions is up to which staleness the distribution is summed version by
// version; far beyond, counting whole versions costs exactly half of one.
const sweepVersions = 256

// sum fills an estimate's mean and quantiles in one pass.
func (d *Distribution) sum(e *Estimate) {
	if d.most() > sweepVersions {
		e.Mean = d.halfBelow() + float64(d.every-1)/2
		e.P50, e.P95, e.P99 = d.Quantile(0.50), d.Quantile(0.95), d.Quantile(0.99)
		return
	}
	var single [sweepVersions + 1]float64
	e.P50, e.P95, e.P99 = -1, -1, -1
	window := 0.0
	for k := 0; ; k++ {
		single[k] = d.cdf(k)
		window += single[k]
		if k >= d.every {
			window -= single[k-d.every]
		}
		share := window / float64(d.every)
		if e.P50 < 0 && share >= 0.50-1e-9 {
			e.P50 = k
		}
		if e.P95 < 0 && share >= 0.95-1e-9 {
			e.P95 = k
		}
		if e.P99 < 0 && share >= 0.99-1e-9 {
			e.P99 = k
		}
		if share > 1-1e-7 || k == sweepVersions {
			return
		}
		e.Mean += 1 - share
	}
}

// halfBelow is E⌊x⌋ of times whose bulk is many versions long. It is not below 0 where a few are that long alone.
func (d *Distribution) halfBelow() float64 { return max(d.meanTime()-0.5, 0) }

// meanTime is E[x + t_step + t_publish]/T.
func (d *Distribution) meanTime() float64 {
	sum := 0.0
	for i, wait := range d.waits[:d.count] {
		sum += wait * d.shares[i]
	}
	return d.law.mean()*d.unit + sum + d.width/2 + d.offset
}

// inQueue is E⌊(W + t_step)/T⌋, the updates between the last sibling and the
// selection.
func (d *Distribution) inQueue() float64 {
	sum := 0.0
	for i, wait := range d.waits[:d.count] {
		sum += d.shares[i] * meanFloor(wait+d.step, d.width)
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
