package plan

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/headway-rl/headway/config"
	"github.com/headway-rl/headway/loop/workload"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/hardware"
)

// sizingPoints bounds the settings that are ranked for each size of a replica: the
// grid of the chosen one is ranked again, whole.
const sizingPoints = 6000

// ReplicaSize is one size of a replica with the best setting that closed forms find for it.
type ReplicaSize struct {
	// GPUs are those of a replica, SlotsMax the rollouts whose caches it holds.
	GPUs     int `json:"gpus_per_replica"`
	SlotsMax int `json:"slots_max_per_replica"`
	// Met is false where no setting with a closed form keeps the budget.
	Met bool `json:"met"`
	// UpdateRatio and CostRatio are the noise-adjusted update's time and price over the first size's; CostRatio is 0 without prices.
	UpdateRatio float64 `json:"update_ratio"`
	CostRatio   float64 `json:"cost_ratio,omitempty"`
	// Best is the setting, by closed form.
	Best Candidate `json:"best"`

	machine Machine
	over    float64
}

// LargerMachines are the same GPUs with larger replicas, where the document leaves
// their size open. They are powers of two up to a node, and whole nodes for a model that
// needs more than one. A roofline knows no network latency, so that no replica that fits a node
// leaves it. A dense model's heads are to divide by the size. Speeds that were measured are of one size, and nothing is
// larger then.
func LargerMachines(d config.Config, lengths *workload.Lengths, least Machine) []Machine {
	h := d.Hardware
	gpu, err := hardware.GPUNamed(h.GPU)
	if err != nil || least.Model == "" && h.Shape == (config.ModelShape{}) || h.GPUsPerReplica > 0 || h.RolloutTokensPerSPerGPU > 0 || len(d.Modelled.DecodeCurve) > 0 {
		return nil
	}
	var larger []Machine
	for _, gpus := range hardware.ReplicaSizes(gpu, least.GPUsPerReplica)[1:] {
		if h.RolloutGPUs%gpus != 0 || gpus+least.TrainGPUsMin > least.GPUs {
			continue
		}
		sized := d
		sized.Hardware.GPUsPerReplica = gpus
		if m, err := NewMachine(sized, lengths); err == nil && m.unsplit == "" {
			larger = append(larger, m)
		}
	}
	return larger
}

// size chooses the machine with the replicas of which closed forms find the best
// setting, and compares the sizes. Where no closed form covers any, the smallest stays.
func (p *Problem) size() ([]ReplicaSize, error) {
	if len(p.Larger) == 0 {
		return nil, nil
	}
	var sizes []ReplicaSize
	for _, m := range append([]Machine{p.Machine}, p.Larger...) {
		size, err := p.sized(m)
		if err != nil {
			return nil, err
		}
		if size != nil {
			sizes = append(sizes, *size)
		}
	}
	if len(sizes) == 0 {
		return nil, nil
	}
	slices.SortStableFunc(sizes, func(a, b ReplicaSize) int {
		x, y := p.objective(a.Best.Predicted), p.objective(b.Best.Predicted)
		if a.over == b.over && x >= y*(1-tie) && y >= x*(1-tie) { // the smaller: it rests on less
			return 0
		}
		return cmp.Or(cmp.Compare(a.over, b.over), cmp.Compare(x, y))
	})
	first := sizes[0].Best.Predicted
	for i := range sizes {
		f := sizes[i].Best.Predicted
		sizes[i].UpdateRatio = f.UpdateS / first.UpdateS
		if p.priced() {
			sizes[i].CostRatio = f.CostPerUpdate / first.CostPerUpdate
		}
	}
	p.Machine, p.Larger = sizes[0].machine, nil
	return sizes, nil
}

// sized finds the best setting of one machine by closed forms, nil where there is none.
func (p *Problem) sized(m Machine) (*ReplicaSize, error) {
	one := *p
	one.Machine, one.Larger, one.Progress = m, nil, nil
	eval, err := newEvaluator(&one)
	if err != nil {
		return nil, fmt.Errorf("plan: %w", err)
	}
	g, err := newGrid(&one, limitsOf(&one))
	if err != nil {
		return nil, nil // too large for the splits that are to be tried
	}
	g.thin(&one, sizingPoints)
	list := g.candidates(eval)
	if len(list) > PointsMax { // the search refuses it with a remedy
		return nil, nil
	}
	eval.evaluateAll(list)
	at := one.best(list)
	if at < 0 {
		at = one.closest(list)
	}
	if at < 0 {
		return nil, nil
	}
	over, _ := one.excess(list[at].Predicted)
	return &ReplicaSize{GPUs: m.GPUsPerReplica, SlotsMax: m.SlotsMax, Met: over == 0, Best: list[at], machine: m, over: over}, nil
}

// sizeText says which size of a replica was chosen and what the next best costs; "" where none was searched.
func (p *Plan) sizeText() string {
	if len(p.ReplicaSizes) == 0 {
		return ""
	}
	text := fmt.Sprintf("Replicas of %s", report.Counted(p.ReplicaSizes[0].GPUs, "GPU"))
	if len(p.ReplicaSizes) == 1 {
		return text + ": no other size has a setting with a closed form"
	}
	next := &p.ReplicaSizes[1]
	text += fmt.Sprintf("; the next best size, %d, makes an update %s", next.GPUs, change(next.UpdateRatio, "slower", "faster"))
	if next.CostRatio > 0 {
		text += " and " + change(next.CostRatio, "more expensive", "cheaper")
	}
	if next.over > p.ReplicaSizes[0].over {
		text += fmt.Sprintf(" and misses the budget by %s", percent(next.over))
	}
	return text + ", by closed form"
}
