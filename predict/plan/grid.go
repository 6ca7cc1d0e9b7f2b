package plan

import (
	"cmp"
	"fmt"
	"math"
	"slices"

	"github.com/headway-rl/headway/predict/theory"
)

// PointsMax bounds the settings that one search ranks. Where the plan's own lists
// make more, every other value is left out of them, splits last: [Searched.Thinned]
// says so. A document's own lists are not touched: too many are refused.
const PointsMax = 250_000

// split is how many GPUs each side gets.
type split struct{ rollout, train int }

// grid lists what a search tries, dimension by dimension.
type grid struct {
	splits  []split
	batches []int
	queues  []float64
	slots   []int // per replica
	syncs   []int // train steps per sync
	// thinned names the lists from which values were left out.
	thinned []string
}

// size is the number of its points.
func (g *grid) size() int {
	return len(g.splits) * len(g.batches) * len(g.queues) * len(g.slots) * len(g.syncs)
}

// limits are what a search must keep; relaxing one shows what it costs.
type limits struct {
	gpus, trainMin, trainUnit, replica int
	slotsMax, batchMin                 int
}

// limitsOf are those of a problem.
func limitsOf(p *Problem) limits {
	m := &p.Machine
	return limits{gpus: m.GPUs, trainMin: m.TrainGPUsMin, trainUnit: m.TrainGPUsUnit, replica: m.GPUsPerReplica,
		slotsMax: m.SlotsMax, batchMin: p.Document.Search.BatchMin}
}

// newGrid lists the values to try within limits: the document's lists where it
// has any, with its own value, else the plan's choice.
func newGrid(p *Problem, l limits) (grid, error) {
	g := grid{splits: splitsOf(p, l), batches: batchesOf(p, l), queues: queuesOf(p), slots: slotsOf(p, l), syncs: syncsOf(p)}
	if len(g.splits) == 0 {
		return g, p.Document.Refuse("search.rollout_gpus", fmt.Sprintf("leaves no split that works: the trainer needs at least %d GPUs in units of %d, a replica is %d, and there are %d",
			l.trainMin, l.trainUnit, l.replica, l.gpus), "")
	}
	g.thin(p, PointsMax)
	return g, nil
}

// thin leaves out every other value of the plan's own lists until the grid has at
// most so many points. The first and the last of a list stay, and short lists stay whole.
func (g *grid) thin(p *Problem, most int) {
	s := p.Document.Search
	for g.size() > most {
		before := g.size()
		if len(s.Batch) == 0 && len(g.batches) > 5 {
			g.batches = everyOther(g.batches)
			g.note("batches")
		} else if len(s.SlotsPerGPU) == 0 && len(g.slots) > 5 {
			g.slots = everyOther(g.slots)
			g.note("slots")
		} else if len(s.RolloutGPUs) == 0 && len(g.splits) > 50 {
			g.splits = everyOther(g.splits)
			g.note("splits")
		}
		if g.size() == before {
			return
		}
	}
}

// note remembers that a list was thinned.
func (g *grid) note(list string) {
	if !slices.Contains(g.thinned, list) {
		g.thinned = append(g.thinned, list)
	}
}

// everyOther keeps the even places of a list, and the last.
func everyOther[T any](list []T) []T {
	var kept []T
	for i := range list {
		if i%2 == 0 || i == len(list)-1 {
			kept = append(kept, list[i])
		}
	}
	return kept
}

// lattice lists multiples of a unit up to a limit: every one up to sixteen, then
// eight to a doubling. A larger limit has all the values of a smaller one.
func lattice(unit, limit int) []int {
	var list []int
	for n := 1; n*unit <= limit; n += max(1, 1<<(log2(n)-3+1)/2) {
		list = append(list, n*unit)
	}
	return list
}

// log2 of a positive number, rounded down, at least 3.
func log2(n int) int { return max(int(math.Log2(float64(n))), 3) }

// splitsOf lists the splits: whole replicas beside whole units of the trainer,
// with all GPUs in use or fewer.
func splitsOf(p *Problem, l limits) []split {
	d := p.Document
	trains := lattice(l.trainUnit, l.gpus-l.replica)
	if rest := (l.gpus - l.replica) / l.trainUnit * l.trainUnit; rest > 0 {
		trains = append(trains, rest)
	}
	if n := d.Hardware.TrainGPUs; n > 0 {
		trains = []int{n}
	}
	var splits []split
	for _, train := range trains {
		if train < l.trainMin {
			continue
		}
		most := (l.gpus - train) / l.replica * l.replica
		rollouts := append(lattice(l.replica, most), most)
		if len(d.Search.RolloutGPUs) > 0 {
			rollouts = nil
			for _, n := range d.Search.RolloutGPUs {
				rollouts = append(rollouts, n/l.replica*l.replica)
			}
		}
		if n := d.Hardware.RolloutGPUs; n > 0 {
			rollouts = []int{n / l.replica * l.replica}
		}
		for _, rollout := range rollouts {
			if rollout >= l.replica && rollout+train <= l.gpus {
				splits = append(splits, split{rollout, train})
			}
		}
	}
	slices.SortFunc(splits, func(a, b split) int {
		if a.train != b.train {
			return a.train - b.train
		}
		return a.rollout - b.rollout
	})
	return slices.Compact(splits)
}

// batchDoublings is how many times the smallest useful batch is doubled at least;
// more, until the largest is batchPerGPU rollouts for every GPU.
const (
	batchDoublings = 6
	batchPerGPU    = 8
)

// batchesOf lists batches in rollouts, whole groups of them.
func batchesOf(p *Problem, l limits) []int {
	d := p.Document
	group := d.Rollout.GroupSize
	list := slices.Clone(d.Search.Batch)
	if len(list) == 0 {
		least := up(max(l.batchMin, group), group)
		doublings := batchDoublings
		for least<<doublings < batchPerGPU*l.gpus {
			doublings++
		}
		for i := range doublings + 1 {
			list = append(list, least<<i)
			if i < doublings {
				list = append(list, up(least<<i*3/2, group))
			}
		}
	}
	if d.Given("train.batch") {
		list = append(list, d.Train.Batch)
	}
	list = slices.DeleteFunc(list, func(b int) bool { return b < l.batchMin || b > 1<<24 })
	slices.Sort(list)
	return slices.Compact(list)
}

// queuesOf lists queue factors.
func queuesOf(p *Problem) []float64 {
	list := slices.Clone(p.Document.Search.QueueFactor)
	if len(list) == 0 {
		list = []float64{1, 1.5, 2, 3}
	}
	if p.Document.Given("queue.factor") {
		list = append(list, p.Document.Queue.Factor)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// slotsOf lists rollouts at once on a replica: powers of two up to what the
// cache holds, and all of that.
func slotsOf(p *Problem, l limits) []int {
	if p.Machine.SlotsFixed > 0 {
		return []int{p.Machine.SlotsFixed}
	}
	most := cmp.Or(l.slotsMax, 512)
	var list []int
	for _, perGPU := range p.Document.Search.SlotsPerGPU {
		list = append(list, min(max(int(math.Round(perGPU*float64(l.replica))), 1), most))
	}
	if len(list) == 0 {
		for n := 4; n < most; n *= 2 {
			list = append(list, n)
		}
		list = append(list, most)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// syncsOf lists the train steps per sync. Where engines generate on and the
// trainer does not wait, a rarer sync only adds staleness.
func syncsOf(p *Problem) []int {
	d := p.Document
	list := slices.Clone(d.Search.SyncEvery)
	if len(list) == 0 {
		list = []int{1}
		if d.Sync.Mode != theory.SyncInFlight || d.Sync.Trainer == theory.TrainerBlocked {
			list = []int{1, 2, 4}
		}
	}
	if d.Given("sync.every") {
		list = append(list, d.Sync.Every)
	}
	slices.Sort(list)
	return slices.Compact(list)
}

// usefulRho bounds the utilizations worth a closer look: beyond them one side
// stands still most of the time.
const usefulRho = 8

// candidates lists the points of a grid, those left out that no budget would
// choose. The order is that of the grid.
func (g *grid) candidates(e *evaluator) []Candidate {
	list := make([]Candidate, 0, min(g.size(), PointsMax))
	for _, s := range g.splits {
		for _, slots := range g.slots {
			c := Candidate{Setting: Setting{RolloutGPUs: s.rollout, TrainGPUs: s.train, Replicas: s.rollout / e.problem.Machine.GPUsPerReplica,
				SlotsPerReplica: slots, Policy: theory.PolicyDrop, Select: theory.SelectOldest}}
			if !e.useful(&c, g.batches) {
				continue
			}
			for _, c.BatchRollouts = range g.batches {
				if e.absurd(&c) {
					continue
				}
				for _, c.QueueFactor = range g.queues {
					for _, c.SyncEvery = range g.syncs {
						list = append(list, c)
					}
				}
			}
		}
	}
	return list
}

// useful reports whether the two sides of a split are of the same order at some batch. A rollout of a small batch takes
// the trainer longer, for its launches: the largest batch decides whether the trainer can keep up, a single group
// whether the engines can.
func (e *evaluator) useful(c *Candidate, batches []int) bool {
	rho := func(batch int) float64 {
		c.BatchRollouts = batch
		e.rates(c)
		return e.balance(c)
	}
	return len(batches) > 0 && rho(slices.Max(batches)) < usefulRho && rho(e.problem.Document.Rollout.GroupSize) > 1.0/usefulRho
}

// balance is ρ with every slot at work, by the candidate's rates.
func (e *evaluator) balance(c *Candidate) float64 {
	produced := float64(c.ConcurrencyRollouts) * c.DecodeTokensPerS / (1 + e.meanS*c.DecodeTokensPerS/e.tokens)
	return e.problem.Document.Modelled.Filter.Acceptance * produced * c.StepS / (float64(c.BatchRollouts) * e.tokens)
}

// loadMax is the concurrency over the batch beyond which staleness has no use.
const loadMax = 64

// absurd reports settings with far too much in flight for their batch, or too
// little for a group.
func (e *evaluator) absurd(c *Candidate) bool {
	slots := c.Concurrency()
	return slots > loadMax*c.BatchRollouts || slots < e.problem.Document.Rollout.GroupSize
}
