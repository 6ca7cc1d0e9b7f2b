package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// The figures' set-up: that of the article's simulations, with what it leaves open
// assumed. Every caption says what is held fixed.
const (
	figureBatch = 128
	figureGroup = 8
	figureSlots = 128
	figureMean  = 1400
)

// figureCap is the cap of the article's lengths at a tailness.
func figureCap(mean, tailness float64) int { return int(math.Round(2.2*mean + 100*tailness)) }

// figureLengths are the article's lengths at a tailness.
func figureLengths(tailness float64) (*workload.Lengths, error) {
	return lognormal(figureMean, tailness, figureCap(figureMean, tailness))
}

// figures draws what the article draws: staleness against utilization, the frontier
// along every lever, what staleness does not depend on, and the neighbourhood of balance.
func figures(ctx context.Context, o Options) ([]Figure, error) {
	var pictures []picture
	for _, make := range []func(Options) ([]picture, error){tailPictures, queuePictures, lengthPictures, balancePictures, frontierPictures} {
		more, err := make(o)
		if err != nil {
			return nil, err
		}
		pictures = append(pictures, more...)
	}
	return o.draw(ctx, "figures", pictures)
}

// rhoPoints are the utilizations that are simulated.
func (o Options) rhoPoints() []float64 {
	if o.Quick {
		return []float64{0.5, 1, 2}
	}
	return []float64{0.3, 0.5, 0.7, 0.85, 0.95, 1.05, 1.2, 1.5, 2, 2.5, 3}
}

// alongRho is staleness over utilization, the rest of the setting fixed.
func (o Options) alongRho(name string, s setting, line, points []float64) sweep {
	w := sweep{name: name, x: line, value: func(_ int, m metrics.Summary) float64 { return m.Staleness.Mean }}
	w.y = mapped(line, func(rho float64) float64 { s := s; s.rho = rho; return closedStaleness(s) })
	for _, rho := range points {
		s.rho = rho
		w.at, w.place = append(w.at, s), append(w.place, rho)
	}
	return w
}

const rhoLabel = "utilization ρ, rollout over train throughput"

// tailPictures are staleness against utilization for several tails.
func tailPictures(o Options) ([]picture, error) {
	p := picture{figure: Figure{Name: "staleness-tail", Title: "Staleness against utilization, by tailness", XRange: [2]float64{0, 3}, XLabel: rhoLabel, YLabel: "mean staleness, policy versions",
		Caption: fmt.Sprintf("Held fixed: C %d, B %d, S %d, q 1; lognormal lengths of mean %d, capped at 2.2·mean + 100·tailness.", figureSlots, figureBatch, figureGroup, figureMean)}}
	for _, tailness := range []float64{30, 50, 70, 90} {
		lengths, err := figureLengths(tailness)
		if err != nil {
			return nil, err
		}
		s := setting{slots: figureSlots, batch: figureBatch, group: figureGroup, queue: 1, lengths: lengths, budget: -1}
		name := fmt.Sprintf("tailness %g (M %.2f)", tailness, lengths.TailMultiplier(figureGroup))
		p.sweeps = append(p.sweeps, o.alongRho(name, s, between(0.3, 3, 136), o.rhoPoints()))
	}
	return []picture{p}, nil
}

// queuePictures are staleness against utilization for several queue factors.
func queuePictures(o Options) ([]picture, error) {
	lengths, err := figureLengths(50)
	if err != nil {
		return nil, err
	}
	p := picture{figure: Figure{Name: "staleness-queue", Title: "Staleness against utilization, by queue factor", XRange: [2]float64{0, 3}, XLabel: rhoLabel, YLabel: "mean staleness, policy versions",
		Caption: fmt.Sprintf("Held fixed: C %d, B %d, S %d, tailness 50. The published form jumps at ρ = 1 where q is above 1; the simulation does not.", figureSlots, figureBatch, figureGroup)}}
	// Two values that enclose the jump, so that it is drawn upright.
	line := append(between(0.3, 0.9999, 60), between(1, 3, 120)...)
	for _, q := range []float64{1, 2, 4} {
		s := setting{slots: figureSlots, batch: figureBatch, group: figureGroup, queue: q, lengths: lengths, budget: -1}
		p.sweeps = append(p.sweeps, o.alongRho(fmt.Sprintf("q %g", q), s, line, o.rhoPoints()))
	}
	return []picture{p}, nil
}

// lengthPictures are what staleness depends on and what not: mean length and tail.
func lengthPictures(o Options) ([]picture, error) {
	factors, tails := []int{1, 2, 4, 8, 16}, []float64{20, 30, 40, 50, 60, 70, 80, 90, 100}
	if o.Quick {
		factors, tails = []int{1, 10}, []float64{30, 90}
	}
	byLength := picture{figure: Figure{Name: "sensitivity-length", Title: "Staleness does not depend on the mean length", XRange: [2]float64{0, 6000}, XLabel: "mean length, tokens", YLabel: "mean staleness, policy versions",
		Caption: fmt.Sprintf("Held fixed: C %d, B %d, S %d, q 1, ρ and the lengths' shape (tailness 50). Lengths and train step are multiplied together: the simulated figures are the same to the last digit.", figureSlots, figureBatch, figureGroup)}}
	byTail := picture{figure: Figure{Name: "sensitivity-tail", Title: "Staleness depends on the tail", XRange: [2]float64{0, 100}, XLabel: "tailness", YLabel: "mean staleness, policy versions",
		Caption: fmt.Sprintf("Held fixed: C %d, B %d, S %d, q 1, ρ and the mean length.", figureSlots, figureBatch, figureGroup)}}
	plain, err := figureLengths(50)
	if err != nil {
		return nil, err
	}
	short, err := lognormal(figureMean/4, 50, figureCap(figureMean, 50)/4)
	if err != nil {
		return nil, err
	}
	value := func(_ int, m metrics.Summary) float64 { return m.Staleness.Mean }
	for _, rho := range []float64{0.7, 1.5} {
		base := setting{slots: figureSlots, batch: figureBatch, group: figureGroup, queue: 1, rho: rho, lengths: plain, budget: -1}
		name := fmt.Sprintf("ρ %g", rho)
		lines, marks := sweep{name: name, value: value}, sweep{name: name, value: value}
		for _, f := range factors {
			s, mean := base, float64(f)*short.Mean()
			s.lengths, s.times = short, f
			lines.x, lines.y = append(lines.x, mean), append(lines.y, closedStaleness(s))
			lines.at, lines.place = append(lines.at, s), append(lines.place, mean)
		}
		byLength.sweeps = append(byLength.sweeps, lines)
		for _, tailness := range tails {
			s := base
			if s.lengths, err = figureLengths(tailness); err != nil {
				return nil, err
			}
			marks.x, marks.y = append(marks.x, tailness), append(marks.y, closedStaleness(s))
			marks.at, marks.place = append(marks.at, s), append(marks.place, tailness)
		}
		byTail.sweeps = append(byTail.sweeps, marks)
	}
	return []picture{byLength, byTail}, nil
}

// balancePictures look closely at ρ = 1, where a finite queue makes the published form
// wrong: staleness and period with and without corrections.
func balancePictures(o Options) ([]picture, error) {
	lengths, err := figureLengths(50)
	if err != nil {
		return nil, err
	}
	points := []float64{0.7, 0.8, 0.85, 0.9, 0.95, 1, 1.05, 1.1, 1.15, 1.2, 1.3}
	if o.Quick {
		points = []float64{0.8, 1, 1.2}
	}
	fixed := fmt.Sprintf("Held fixed: C %d, B %d, S %d, tailness 50.", 2*figureSlots, figureBatch, figureGroup)
	stale := picture{figure: Figure{Name: "balance-staleness", Title: "Staleness near balance, with and without corrections", YRange: [2]float64{3, 9}, XLabel: rhoLabel, YLabel: "mean staleness, policy versions",
		Caption: fixed + " Lines named published are the closed form alone; the others have its corrections for a finite queue."}}
	period := picture{figure: Figure{Name: "balance-period", Title: "Train period near balance", YRange: [2]float64{0.9, 1.5}, XLabel: rhoLabel, YLabel: "train period over train step",
		Caption: fixed + " With q = 1 a late group delays the step, so that the period is above max(1, 1/ρ); larger queues make up for it with staleness."}}
	line := append(between(0.7, 0.9999, 61), between(1, 1.3, 61)...)
	period.sweeps = append(period.sweeps, sweep{name: "published: max(1, 1/ρ)", x: line, y: mapped(line, theory.Period)})
	for _, q := range []float64{1, 2, 4} {
		s := setting{slots: 2 * figureSlots, batch: figureBatch, group: figureGroup, queue: q, rho: 1, lengths: lengths, budget: -1}
		estimator, err := theory.NewEstimator(s.input())
		if err != nil {
			return nil, err
		}
		estimate := func(rho float64) theory.Estimate {
			return estimator.Estimate(theory.Point{ConcurrencyRollouts: float64(s.slots), BatchRollouts: float64(s.batch), QueueFactor: q, Utilization: rho})
		}
		name := fmt.Sprintf("q %g", q)
		of := o.alongRho(name, s, line, points)
		stale.sweeps = append(stale.sweeps, sweep{name: name + ", published", x: line, y: of.y})
		of.y = mapped(line, func(rho float64) float64 { return estimate(rho).Mean })
		stale.sweeps = append(stale.sweeps, of)
		of.y = mapped(line, func(rho float64) float64 { return estimate(rho).PeriodRelative })
		of.value = func(_ int, m metrics.Summary) float64 { return relativePeriod(m) }
		period.sweeps = append(period.sweeps, of)
	}
	return []picture{stale, period}, nil
}
