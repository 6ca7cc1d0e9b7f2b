package reproduce

import (
	"fmt"
	"math"

	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/predict/theory"
)

// The fixed budget of the frontiers: 8 GPUs as in the article. Its speeds are not
// published; a rollout GPU of so many slots and a train GPU of the same throughput
// put the balance at an equal split.
const (
	frontierGPUs   = 8
	frontierSlots  = 32 // of a rollout GPU
	slotTokensPerS = 50
	gpuTokensPerS  = frontierSlots * slotTokensPerS
)

// lever is one curve of a frontier: what is turned away from the usual.
type lever struct {
	name         string
	batch        int
	queue        float64
	slotsPerGPU  int
	constantGPU  bool // a rollout GPU's throughput does not depend on its slots
	squareRootOf bool // the period over √B instead of the period
}

// usual is the lever that turns nothing.
func usual(name string) lever {
	return lever{name: name, batch: figureBatch, queue: 1, slotsPerGPU: frontierSlots}
}

// budget is the lever's fixed GPUs as the theory takes them.
func (l lever) budget(lengths *workload.Lengths) theory.Budget {
	speed := float64(l.slotsPerGPU) * slotTokensPerS
	if l.constantGPU {
		speed = gpuTokensPerS
	}
	return theory.Budget{GPUs: frontierGPUs, RolloutTokensPerS: speed, TrainTokensPerS: gpuTokensPerS,
		BatchRollouts: float64(l.batch), MeanTokens: lengths.Mean(), SlotsPerRolloutGPU: float64(l.slotsPerGPU)}
}

// setting of the lever with so many rollout GPUs.
func (l lever) setting(rolloutGPUs float64, lengths *workload.Lengths) setting {
	b := l.budget(lengths)
	rho := b.RolloutTokensPerS * rolloutGPUs / (b.TrainTokensPerS * (frontierGPUs - rolloutGPUs))
	return setting{slots: int(math.Round(float64(l.slotsPerGPU) * rolloutGPUs)), batch: l.batch, group: figureGroup, queue: l.queue, rho: rho, lengths: lengths, budget: -1}
}

// cost of a period: the time of an update, or that over √B.
func (l lever) cost(periodS float64) float64 {
	if l.squareRootOf {
		return periodS / math.Sqrt(float64(l.batch))
	}
	return periodS
}

// sweep is the lever's curve over the splits.
func (l lever) sweep(lengths *workload.Lengths, splits []int) sweep {
	b := l.budget(lengths)
	s := sweep{name: l.name, value: func(_ int, m metrics.Summary) float64 { return m.Staleness.Mean }}
	for _, gpus := range between(0.9, frontierGPUs-1, 123) {
		at := l.setting(gpus, lengths)
		// The line is of real splits: no slot and no GPU is rounded.
		stale := theory.PreQueue(b.Concurrency(at.rho), b.BatchRollouts, lengths.TailMultiplier(figureGroup), at.rho) + theory.InQueue(l.queue, at.rho)
		s.x, s.y = append(s.x, l.cost(b.PeriodS(at.rho))), append(s.y, stale)
	}
	var at []setting
	for _, gpus := range splits {
		at = append(at, l.setting(float64(gpus), lengths))
	}
	s.at = at
	s.of = func(i int, m metrics.Summary) float64 {
		// Simulations have a time unit of their own: what counts is the period over the step.
		trainGPUs := float64(frontierGPUs - splits[i])
		step := float64(l.batch) * lengths.Mean() / (b.TrainTokensPerS * trainGPUs)
		return l.cost(relativePeriod(m) * step)
	}
	return s
}

// frontierPictures are staleness against the time of an update for a fixed number of
// GPUs: along the split, and how batch, queue and concurrency move the curve.
func frontierPictures(o Options) ([]picture, error) {
	lengths, err := figureLengths(50)
	if err != nil {
		return nil, err
	}
	splits := []int{1, 2, 3, 4, 5, 6, 7}
	if o.Quick {
		splits = []int{2, 4, 6}
	}
	fixed := fmt.Sprintf("%d GPUs, every split from 1 to %d rollout GPUs; tailness 50, mean length %d, S %d, %d tokens/s a train GPU", frontierGPUs, frontierGPUs-1, figureMean, figureGroup, gpuTokensPerS)
	const stale = "mean staleness, policy versions"
	draw := func(name, title, x, caption string, levers ...lever) picture {
		p := picture{figure: Figure{Name: name, Title: title, XLabel: x, YLabel: stale, Caption: caption}}
		for _, l := range levers {
			p.sweeps = append(p.sweeps, l.sweep(lengths, splits))
		}
		return p
	}
	with := func(name string, change func(*lever)) lever { l := usual(name); change(&l); return l }
	batch := func(b int) lever {
		return with(fmt.Sprintf("B %d", b), func(l *lever) { l.batch, l.squareRootOf = b, true })
	}
	slots := func(n int, constant bool) lever {
		return with(fmt.Sprintf("%d slots a GPU", n), func(l *lever) { l.slotsPerGPU, l.constantGPU = n, constant })
	}
	return []picture{
		draw("frontier-split", "The frontier along the split, by queue factor", "time between updates, s",
			fixed+fmt.Sprintf(". Held fixed: B %d, %d slots of %d tokens/s a rollout GPU, so that concurrency moves with the split. The left end is balance; from there one branch is rollout-bound and falls, the other train-bound.", figureBatch, frontierSlots, slotTokensPerS),
			usual("q 1"), with("q 2", func(l *lever) { l.queue = 2 }), with("q 4", func(l *lever) { l.queue = 4 })),
		draw("frontier-batch", "The frontier by batch, noise-adjusted", "time between updates over √B, s",
			fixed+fmt.Sprintf(". Held fixed: q 1, %d slots of %d tokens/s a rollout GPU. Larger batches reach lower staleness at a slower noise-adjusted update.", frontierSlots, slotTokensPerS),
			batch(64), batch(128), batch(256), batch(512)),
		draw("frontier-concurrency", "The frontier by concurrency, slot speed held fixed", "time between updates, s",
			fixed+fmt.Sprintf(". Held fixed: B %d, q 1, %d tokens/s a slot: more slots generate faster, and the same split is at a higher utilization.", figureBatch, slotTokensPerS),
			slots(16, false), slots(32, false), slots(64, false)),
		draw("frontier-concurrency-saturated", "The frontier by concurrency, GPU throughput held fixed", "time between updates, s",
			fixed+fmt.Sprintf(". Held fixed: B %d, q 1, %d tokens/s a rollout GPU however many slots share it: more slots buy nothing and cost staleness.", figureBatch, gpuTokensPerS),
			slots(16, true), slots(32, true), slots(64, true)),
	}, nil
}
