package plan

import (
	"cmp"
	"math"
	"runtime"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/predict/theory"
)

// rankChunk is how many candidates a worker takes at a time.
const rankChunk = 512

// evaluateAll predicts every candidate, on all cores. What comes of it does not
// depend on their number.
func (e *evaluator) evaluateAll(list []Candidate) {
	var next atomic.Int64
	var wait sync.WaitGroup
	for range runtime.GOMAXPROCS(0) {
		wait.Go(func() {
			for {
				to := int(next.Add(rankChunk))
				from := to - rankChunk
				if from >= len(list) {
					return
				}
				for i := from; i < min(to, len(list)); i++ {
					e.evaluate(&list[i])
				}
			}
		})
	}
	wait.Wait()
}

// objective is what a plan makes small.
func (p *Problem) objective(f *Figures) float64 {
	if p.Document.Search.Prefer == "cost" {
		return f.CostPerUpdate
	}
	return f.UpdateS
}

// kept is by what share a bound may be exceeded and still count as kept: what a
// simulation cannot tell.
const kept = 0.001

// excess is by how much figures exceed the budget's bound that they exceed most,
// as a share of the bound; 0 where all are kept. Key names that bound.
func (p *Problem) excess(f *Figures) (over float64, key string) {
	return excess(&p.Document.Budget, f)
}

// excess of figures over a budget; see [Problem.excess].
func excess(b *config.Budget, f *Figures) (over float64, key string) {
	check := func(name string, bound, value float64) {
		if share := value/bound - 1; bound > 0 && share > kept && share > over {
			over, key = share, name
		}
	}
	check("staleness_mean", b.StalenessMean, f.StalenessMean)
	check("staleness_p95", float64(b.StalenessP95), float64(f.StalenessP95))
	check("step_s", b.StepS, f.PeriodS)
	check("cost_per_step", b.CostPerStep, f.CostPerStep)
	check("waste_share", b.WasteShare, f.WasteShare)
	check("length_bias", b.LengthBias, math.Abs(f.LengthBias))
	return over, key
}

// tie is how near two objectives are to be decided by price and staleness.
const tie = 0.005

// better orders candidates that keep the budget: by objective, and where those
// are within half a percent, by price, then staleness. It is not transitive over
// many, so that callers scan in a fixed order.
func (p *Problem) better(a, b *Figures) bool {
	x, y := p.objective(a), p.objective(b)
	if x < y*(1-tie) || y < x*(1-tie) {
		return x < y
	}
	if c := cmp.Compare(round(a.CostPerUpdate), round(b.CostPerUpdate)); c != 0 && p.priced() {
		return c < 0
	}
	if c := cmp.Compare(round(a.StalenessMean), round(b.StalenessMean)); c != 0 {
		return c < 0
	}
	return x < y
}

// round keeps three significant digits, so that what is equal for people is.
func round(x float64) float64 {
	if x == 0 {
		return 0
	}
	scale := math.Pow(10, 2-math.Floor(math.Log10(math.Abs(x))))
	return math.Round(x*scale) / scale
}

// best returns the candidate to choose, -1 if none keeps the budget: of those
// within a tie of the smallest objective, the cheapest, then the freshest.
func (p *Problem) best(list []Candidate) int {
	least := math.Inf(1)
	for i := range list {
		if f := list[i].figures(); f != nil {
			if over, _ := p.excess(f); over == 0 {
				least = min(least, p.objective(f))
			}
		}
	}
	chosen := -1
	for i := range list {
		f := list[i].figures()
		if f == nil {
			continue
		}
		if over, _ := p.excess(f); over > 0 || p.objective(f) > least*(1+tie) {
			continue
		}
		if chosen < 0 || p.better(f, list[chosen].figures()) {
			chosen = i
		}
	}
	return chosen
}

// closest returns the candidate nearest to keeping the budget, -1 for none at all.
func (p *Problem) closest(list []Candidate) int {
	chosen, least := -1, math.Inf(1)
	for i := range list {
		f := list[i].figures()
		if f == nil {
			continue
		}
		if over, _ := p.excess(f); over < least || over == least && chosen >= 0 && p.objective(f) < p.objective(list[chosen].figures()) {
			chosen, least = i, over
		}
	}
	return chosen
}

// figures are those to go by, nil where nothing is known.
func (c *Candidate) figures() *Figures {
	if c.Simulated != nil {
		return &c.Simulated.Figures
	}
	return c.Predicted
}

// frontier returns the candidates that no other beats in both staleness and
// objective, freshest first.
func (p *Problem) frontier(list []Candidate) []int {
	order := make([]int, 0, len(list))
	for i := range list {
		if list[i].figures() != nil {
			order = append(order, i)
		}
	}
	slices.SortStableFunc(order, func(a, b int) int {
		x, y := list[a].figures(), list[b].figures()
		if c := cmp.Compare(x.StalenessMean, y.StalenessMean); c != 0 {
			return c
		}
		return cmp.Compare(p.objective(x), p.objective(y))
	})
	var front []int
	least := math.Inf(1)
	for _, i := range order {
		if o := p.objective(list[i].figures()); o < least*(1-1e-9) {
			front, least = append(front, i), o
		}
	}
	return front
}

// Searched says what was ranked.
type Searched struct {
	// Settings were ranked, Predicted of them by closed forms.
	Settings  int `json:"settings"`
	Predicted int `json:"predicted"`
	// Simulated are those that were simulated, to screen rules and as finalists.
	Simulated int `json:"simulated"`
	// Splits, Batches, QueueFactors, Slots and SyncEvery are the values tried.
	Splits       int       `json:"splits"`
	Batches      []int     `json:"batches_rollouts"`
	QueueFactors []float64 `json:"queue_factors"`
	Slots        []int     `json:"slots_per_replica"`
	SyncEvery    []int     `json:"sync_every"`
	// Thinned names the plan's own lists from which values were left out, to keep the search short.
	Thinned []string `json:"thinned,omitempty"`
	// Uncovered counts by reason the settings that no closed form covers.
	Uncovered []Reason `json:"uncovered"`
}

// Reason is why settings were left to the simulator, and how many.
type Reason struct {
	Reason   string `json:"reason"`
	Settings int    `json:"settings"`
}

// searched counts what a search ranked.
func searched(g grid, list []Candidate) Searched {
	s := Searched{Settings: len(list), Splits: len(g.splits), Batches: g.batches, QueueFactors: g.queues, Slots: g.slots, SyncEvery: g.syncs, Thinned: g.thinned}
	counts := map[string]int{}
	for i := range list {
		if list[i].Predicted != nil {
			s.Predicted++
		} else {
			counts[list[i].Uncovered]++
		}
	}
	s.Uncovered = []Reason{}
	for reason, n := range counts {
		s.Uncovered = append(s.Uncovered, Reason{reason, n})
	}
	slices.SortFunc(s.Uncovered, func(a, b Reason) int {
		return cmp.Or(b.Settings-a.Settings, cmp.Compare(a.Reason, b.Reason))
	})
	return s
}

// synchronous is the candidate of the synchronous schedule on a split.
func synchronous(c Candidate) Candidate {
	c.Policy, c.Select, c.QueueFactor, c.Hold, c.SyncEvery = theory.PolicySynchronous, "", 1, 0, 1
	c.Predicted, c.Simulated, c.Uncovered = nil, nil, ""
	return c
}
