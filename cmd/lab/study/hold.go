package study

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/loop"
)

// HoldOptions say how much of the study of hold is done.
type HoldOptions struct {
	// Seeds of every simulation, from 1 on.
	Seeds int
	// Warmup and Measured are train steps of a simulation at a batch of [batchPlain] rollouts. Larger
	// batches are measured for fewer, smaller ones for more steps, so that every figure rests on
	// about as many rollouts.
	Warmup, Measured int
	// Quick does a corner of the grid and few ideas: it shows that the study works, and is no result.
	Quick bool
}

// Cells and rules of the grid.
var (
	gridRho      = []float64{0.7, 0.9, 1.0, 1.1, 1.3, 1.5, 2}
	gridTailness = []float64{30, 50, 70, 90}
	gridLoad     = []float64{0.5, 1, 2, 4}
	gridSync     = []float64{0, DelayShare}
	gridTheta    = []float64{0, 0.1, 0.2, 0.3, 0.5}
)

// The grid's plain sizes; C/S = 16 is the least at which hold was claimed to be unbiased.
const (
	groupSize   = 8
	concurrency = 128
)

// batchPlain is B at C/B = 2.
const batchPlain = 64

// measured is how many steps of a cell are measured.
func (o HoldOptions) measured(cell Cell) int {
	return max(o.Measured*batchPlain/(cell.batchGroups()*cell.GroupSize), min(o.Measured, 300))
}

// cellAt is a cell of the grid.
func cellAt(rho, tailness, load, sync float64) Cell {
	return Cell{Rho: rho, Tailness: tailness, Load: load, SyncShare: sync, GroupSize: groupSize, Concurrency: concurrency}
}

// gridRules are queue-drop with every hold, order and capacity, and the best of
// what was tried besides. With one batch of
// capacity the order decides nothing, so that only one stands there.
func gridRules() []Rule {
	var rules []Rule
	for q := 1; q <= 3; q++ {
		for _, order := range []loop.Selection{loop.SelectOldest, loop.SelectNewest} {
			if q == 1 && order == loop.SelectNewest {
				continue
			}
			for _, theta := range gridTheta {
				rules = append(rules, Held(theta, order, q))
			}
		}
	}
	for _, theta := range gridTheta {
		rules = append(rules, fresh(theta))
	}
	return append(rules, paused())
}

// Row is one rule in one cell, over the seeds.
type Row struct {
	Cell Cell   `json:"cell"`
	Rule string `json:"rule"`
	// Failed says why a simulation did not end, "" if all did.
	Failed string `json:"failed,omitempty"`
	// Staleness is in versions, Period over the train step. The ratios of both are over those of
	// queue-drop with q = 2 and q = 1 in the same cell, seed by seed.
	Staleness Estimate `json:"staleness"`
	Period    Estimate `json:"period"`
	VersusQ2  Versus   `json:"versus_drop_q2"`
	VersusQ1  Versus   `json:"versus_drop_q1"`
	// TokenStaleness in versions, P95 the mean of the seeds' 95th percentiles.
	TokenStaleness Estimate `json:"token_staleness"`
	P95            Estimate `json:"p95"`
	// Length is trained over started mean length, Wasted the share of tokens not trained,
	// RolloutIdle and TrainerIdle shares of time.
	Length      Estimate `json:"length_ratio"`
	Wasted      Estimate `json:"wasted_share"`
	RolloutIdle Estimate `json:"rollout_idle_ratio"`
	TrainerIdle Estimate `json:"trainer_idle_ratio"`
	// Frontier: no other row of the cell is both less stale and as fast with lengths within
	// [lengthTolerance] of 1. Set among ideas only.
	Frontier bool `json:"frontier,omitempty"`
}

// Versus sets a rule beside another, as ratios.
type Versus struct {
	Staleness Estimate `json:"staleness_ratio"`
	Period    Estimate `json:"period_ratio"`
}

// HoldResult is the whole study.
type HoldResult struct {
	Options HoldOptions `json:"-"`
	Seeds   int         `json:"seeds"`
	// WarmupSteps of every simulation; MeasuredSteps of one with a batch of 64 rollouts.
	WarmupSteps   int `json:"warmup_steps"`
	MeasuredSteps int `json:"measured_steps"`
	// Simulations is how many there are.
	Simulations int     `json:"simulations"`
	Claims      []Claim `json:"claims"`
	Grid        []Row   `json:"grid"`
	Bias        []Row   `json:"bias"`
	Ideas       []Idea  `json:"ideas"`
	IdeaRows    []Row   `json:"idea_rows"`
	// Fresh sets newest first beside a random choice among the groups ready since the last batch.
	Fresh []FreshRow `json:"fresh"`
	// Bounds is how far rules are above the least staleness of a rule that does not choose by length.
	Bounds []BoundRow `json:"bounds"`
}

// FreshRow is one hold in one cell, with newest first and with select fresh.
type FreshRow struct {
	Cell Cell    `json:"cell"`
	Hold float64 `json:"hold"`
	// Period is that of select fresh over that of queue-drop with q = 2.
	Period Estimate `json:"period_ratio"`
	// Newest and Fresh are staleness over that of queue-drop with q = 2. The lengths are those
	// trained over those started, as a mean. Wasted is the share of tokens that select fresh makes
	// and does not train.
	Newest       Estimate `json:"newest_staleness_ratio"`
	NewestLength Estimate `json:"newest_length_ratio"`
	Fresh        Estimate `json:"fresh_staleness_ratio"`
	FreshLength  Estimate `json:"fresh_length_ratio"`
	Wasted       Estimate `json:"fresh_wasted"`
}

// Hold studies the rule hold and selection newest first against queue-drop. It has the table of its
// reference figures, its numbers one by one, and other candidates that might be better.
func Hold(ctx context.Context, opt HoldOptions, sims Simulator) (HoldResult, error) {
	p := newPlan(opt)
	p.addClaims()
	ideas := p.addIdeas()
	p.addFresh()
	p.addBound()
	p.addBias()
	p.addGrid()
	if err := p.run(ctx, sims); err != nil {
		return HoldResult{}, err
	}
	r := HoldResult{Options: opt, Seeds: opt.Seeds, WarmupSteps: opt.Warmup, MeasuredSteps: opt.Measured, Simulations: len(p.trials)}
	r.Grid, r.Bias, r.IdeaRows, r.Ideas = p.rows(partGrid), p.rows(partBias), p.rows(partIdeas), ideas
	markFrontier(r.IdeaRows)
	countFrontier(r.Ideas, r.IdeaRows)
	r.Claims, r.Fresh, r.Bounds = p.claims(), p.freshRows(), p.boundRows()
	return r, nil
}

// part is what a point of the plan belongs to; one may belong to several.
type part int

const (
	partGrid part = iota
	partBias
	partClaims
	partIdeas
	partFresh
	partBound
	partCount
)

// place is one rule in one cell.
type place struct {
	cell   Cell
	rule   string
	follow bool
}

// plan collects which simulations are needed, each once, and holds their figures.
type plan struct {
	opt    HoldOptions
	trials []Trial
	at     map[place]int // of a place's first trial; the seeds follow
	parts  [partCount][]place
	done   []Figures
}

func newPlan(opt HoldOptions) *plan { return &plan{opt: opt, at: map[place]int{}} }

func (p *plan) add(to part, cell Cell, rule Rule, follow bool) {
	at := place{cell, rule.Name, follow}
	p.parts[to] = append(p.parts[to], at)
	if _, known := p.at[at]; known {
		return
	}
	p.at[at] = len(p.trials)
	for seed := 1; seed <= p.opt.Seeds; seed++ {
		p.trials = append(p.trials, Trial{Cell: cell, Rule: rule, Seed: uint64(seed), Warmup: p.opt.Warmup, Measured: p.opt.measured(cell), Follow: follow})
	}
}

func (p *plan) run(ctx context.Context, sims Simulator) error {
	done, err := sims.Run(ctx, p.trials)
	p.done = done
	return err
}

// of returns the point of a place, nil if it was not planned.
func (p *plan) of(cell Cell, rule Rule, follow bool) point {
	at, ok := p.at[place{cell, rule.Name, follow}]
	if !ok {
		return nil
	}
	return point(p.done[at : at+p.opt.Seeds])
}

// rows are a part's, each beside queue-drop in the same cell.
func (p *plan) rows(of part) []Row {
	var rows []Row
	for _, at := range p.parts[of] {
		first := p.at[at]
		this := point(p.done[first : first+p.opt.Seeds])
		rows = append(rows, Row{
			Cell: at.cell, Rule: at.rule, Failed: this.failed(),
			Staleness: this.mean(staleness), Period: this.mean(period),
			VersusQ2: versus(this, p.of(at.cell, Drop(2), at.follow)), VersusQ1: versus(this, p.of(at.cell, Drop(1), at.follow)),
			TokenStaleness: this.mean(tokenStaleness), P95: this.mean(p95), Length: this.mean(length), Wasted: this.mean(wasted),
			RolloutIdle: this.mean(rolloutIdle), TrainerIdle: this.mean(trainerIdle),
		})
	}
	return rows
}

func versus(this, base point) Versus {
	return Versus{Staleness: this.ratio(base, staleness), Period: this.ratio(base, period)}
}

func (p *plan) addGrid() {
	rhos, tails, loads, syncs := gridRho, gridTailness, gridLoad, gridSync
	if p.opt.Quick {
		rhos, tails, loads, syncs = []float64{0.7, 1.5}, []float64{50}, []float64{2}, []float64{0}
	}
	for _, sync := range syncs {
		for _, load := range loads {
			for _, tailness := range tails {
				for _, rho := range rhos {
					for _, rule := range gridRules() {
						p.add(partGrid, cellAt(rho, tailness, load, sync), rule, false)
					}
				}
			}
		}
	}
}

// addBias goes below the limits: few groups in flight.
func (p *plan) addBias() {
	for _, slotsPerGroup := range []int{2, 4, 8, 16, 32} {
		for _, rho := range []float64{0.9, 1.5} {
			cell := Cell{Rho: rho, Tailness: 50, Load: 2, GroupSize: groupSize, Concurrency: slotsPerGroup * groupSize}
			for _, rule := range []Rule{Drop(1), Drop(2), Held(0.3, loop.SelectNewest, 2), Held(0.5, loop.SelectNewest, 2)} {
				p.add(partBias, cell, rule, false)
			}
		}
		if p.opt.Quick {
			break
		}
	}
}

// freshTheta are the holds under which newest first and select fresh stand side by side.
var freshTheta = []float64{0, 0.3, 0.5, 0.7}

// fresh is queue-drop with two batches of capacity, a random choice among fresh groups, held by theta.
func fresh(theta float64) Rule { return Held(theta, loop.SelectFresh, 2) }

// learned is the same with a hold that learns what it costs, and may cost so much beyond what is free.
func learned(cost float64) Rule {
	return fresh(0.9).with(fmt.Sprintf("learned at cost %g", cost), func(c *loop.Config, _ Cell) { c.HoldAdaptive, c.HoldCost = true, cost })
}

// addFresh tries a random choice among fresh groups where newest first selects lengths.
func (p *plan) addFresh() {
	loads, tails, rhos, syncs := gridLoad, []float64{50, 90}, []float64{0.7, 0.9, 1.1, 1.5, 2}, gridSync
	if p.opt.Quick {
		loads, tails, rhos, syncs = []float64{0.5}, []float64{70}, []float64{2}, []float64{0}
	}
	for _, sync := range syncs {
		for _, load := range loads {
			for _, tailness := range tails {
				for _, rho := range rhos {
					cell := cellAt(rho, tailness, load, sync)
					p.add(partFresh, cell, Drop(2), false)
					for _, theta := range freshTheta {
						p.add(partFresh, cell, newest(theta), false)
						p.add(partFresh, cell, fresh(theta), false)
					}
				}
			}
		}
	}
}

// freshRows are the choices side by side.
func (p *plan) freshRows() []FreshRow {
	var rows []FreshRow
	for _, at := range p.parts[partFresh] {
		if at.rule != Drop(2).Name {
			continue
		}
		base := p.of(at.cell, Drop(2), false)
		for _, theta := range freshTheta {
			old, chosen := p.of(at.cell, newest(theta), false), p.of(at.cell, fresh(theta), false)
			rows = append(rows, FreshRow{
				Cell: at.cell, Hold: theta, Period: chosen.ratio(base, period),
				Newest: old.ratio(base, staleness), NewestLength: old.mean(length),
				Fresh: chosen.ratio(base, staleness), FreshLength: chosen.mean(length),
				Wasted: chosen.mean(func(f Figures) float64 { return f.Wasted }),
			})
		}
	}
	return rows
}

// name writes a cell.
func (c Cell) name() string {
	return fmt.Sprintf("ρ %g, tailness %g, C/B %g, S %d", c.Rho, c.Tailness, c.Load, c.GroupSize)
}
