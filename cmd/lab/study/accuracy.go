package study

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/drive/sim"
	"github.com/headway-rl/headway/loop"
	"github.com/headway-rl/headway/predict/theory"
)

// AccuracyOptions choose how much of the grid is simulated, and for how long.
type AccuracyOptions struct {
	// Small is every regime once or twice, in seconds.
	Small bool
	// Steps is how many train steps are measured of a cell whose queue does not wander. Where it
	// wanders there are more: a mean is worth as many samples as the queue has forgotten itself. 0
	// means 3000, 1500 of a small grid.
	Steps int
	// Seed of every simulation; 0 means 1.
	Seed uint64
}

// withDefaults returns a copy with what was left at zero filled in.
func (o AccuracyOptions) withDefaults() AccuracyOptions {
	if o.Steps == 0 {
		o.Steps = 3000
		if o.Small {
			o.Steps = 1500
		}
	}
	if o.Seed == 0 {
		o.Seed = 1
	}
	return o
}

// AccuracyCell is a setting of the grid.
type AccuracyCell struct {
	// Rho is ρ, QueueFactor is q, Load is C/B, GroupSize is S.
	Rho         float64 `json:"rho"`
	QueueFactor float64 `json:"queue_factor"`
	Tailness    float64 `json:"tailness"`
	Load        float64 `json:"load"`
	GroupSize   int     `json:"group_size"`
	// Batch is B in rollouts.
	Batch int `json:"batch_rollouts"`
	// HeldOut cells are of values that the grid does not have and nothing was fitted
	// to; no total but their own counts them.
	HeldOut bool `json:"held_out,omitempty"`
}

// accuracyBatch is B of the grid: G is 128, 32, 16 and 8 at S 1, 4, 8 and 16.
const accuracyBatch = 128

// near reports whether the queue is neither empty nor full.
func (c AccuracyCell) near() bool { return c.Rho > 0.899 && c.Rho < 1.101 }

// smooth reports whether the published tolerance is for this cell: at tailness
// 0 staleness is a staircase.
func (c AccuracyCell) smooth() bool { return c.Tailness >= 30 }

// counted reports whether the cell is in the totals of the grid.
func (c AccuracyCell) counted() bool { return c.smooth() && !c.HeldOut }

// name writes a cell.
func (c AccuracyCell) name() string {
	text := fmt.Sprintf("ρ %g, q %g, tailness %g, C/B %g, S %d", c.Rho, c.QueueFactor, c.Tailness, c.Load, c.GroupSize)
	if c.Batch != accuracyBatch {
		text += fmt.Sprintf(", B %d", c.Batch)
	}
	return text
}

// point is the cell as a setting to estimate.
func (c AccuracyCell) point() theory.Point {
	return theory.Point{ConcurrencyRollouts: c.Load * float64(c.Batch), BatchRollouts: float64(c.Batch), QueueFactor: c.QueueFactor, Utilization: c.Rho}
}

// The grid.
var (
	accuracyRho      = []float64{0.3, 0.5, 0.7, 0.8, 0.9, 0.95, 1, 1.05, 1.1, 1.2, 1.5, 2, 3}
	accuracyQueue    = []float64{1, 2, 5}
	accuracyTailness = []float64{0, 30, 50, 70, 90}
	accuracyLoad     = []float64{0.5, 1, 2, 4}
	accuracyGroup    = []int{1, 4, 8, 16}
)

// accuracyCells are the grid's, in order. The small one has every value of every
// axis, and leaves out q = 5 where its queue wanders for long.
func accuracyCells(small bool) []AccuracyCell {
	var cells []AccuracyCell
	all := 0
	for _, s := range accuracyGroup {
		for _, tailness := range accuracyTailness {
			for _, load := range accuracyLoad {
				for _, q := range accuracyQueue {
					for _, rho := range accuracyRho {
						c := AccuracyCell{Rho: rho, QueueFactor: q, Tailness: tailness, Load: load, GroupSize: s, Batch: accuracyBatch}
						all++
						if small && (all%56 != 0 || !c.smooth() || q == 5 && math.Abs(rho-1) < 0.06) {
							continue
						}
						cells = append(cells, c)
					}
				}
			}
		}
	}
	return cells
}

// heldOutCells are of other values on every axis, larger and smaller batches
// included.
func heldOutCells() []AccuracyCell {
	var cells []AccuracyCell
	all := 0
	for _, groups := range [][2]int{{64, 2}, {64, 8}, {512, 2}, {512, 32}} {
		for _, tailness := range []float64{40, 60, 80} {
			for _, load := range []float64{0.75, 1.5, 3} {
				for _, q := range []float64{1, 1.5, 3} {
					for _, rho := range []float64{0.4, 0.6, 0.85, 0.97, 1.03, 1.15, 1.8} {
						if all++; all%8 == 0 {
							cells = append(cells, AccuracyCell{Rho: rho, QueueFactor: q, Tailness: tailness, Load: load, GroupSize: groups[1], Batch: groups[0], HeldOut: true})
						}
					}
				}
			}
		}
	}
	return cells
}

// AccuracyFigures are what a form or a simulation says of a cell.
type AccuracyFigures struct {
	Mean    float64 `json:"mean"`
	P50     int     `json:"p50"`
	P95     int     `json:"p95"`
	P99     int     `json:"p99"`
	Period  float64 `json:"period_over_step"`
	Dropped float64 `json:"dropped_share"`
	// Token is the mean staleness of trained tokens; 0 where a form gives none.
	Token float64 `json:"token_mean"`
}

// AccuracyRow is a cell: the simulation and, in the order of [AccuracySteps], the predictions of the
// forms.
type AccuracyRow struct {
	AccuracyCell
	// Simulated, Half the half-width of the mean's 95 % interval, Steps measured.
	Simulated AccuracyFigures `json:"simulated"`
	Half      float64         `json:"half_95"`
	Steps     int             `json:"steps"`
	// Forms are the published form and then with one correction more each.
	Forms []AccuracyFigures `json:"forms"`
	// Covered is what the theory says of itself.
	Covered bool   `json:"covered"`
	Reason  string `json:"reason,omitempty"`
}

// AccuracyStep is a correction in the order in which they are added.
type AccuracyStep struct {
	// Name of the column; Corrects says what changes.
	Name     string `json:"name"`
	Corrects string `json:"corrects"`
	with     theory.Corrections
}

// AccuracySteps are the forms of [AccuracyRow]: the first is the published one,
// the last what commands print.
var AccuracySteps = []AccuracyStep{
	{"published", "C·M/(B·max(1, ρ)) + IQS, T = max(1, 1/ρ); no quantiles", 0},
	{"whole versions", "staleness counts whole updates within D + W, by their distributions", 0},
	{"finite queue", "the stock above a batch follows its stationary law", theory.CorrectQueue},
	{"late batches", "the trainer waits for batches that are late by chance", theory.CorrectQueue | theory.CorrectLate},
	{"selection on arrival", "a trainer that waits takes the batch when its last group arrives", theory.CorrectQueue | theory.CorrectLate | theory.CorrectSelection},
	{"staggered starts", "siblings start one after another, as slots free up", theory.CorrectAll &^ theory.CorrectUpdates},
	{"irregular updates", "updates that wait for arrivals are as irregular as these", theory.CorrectAll},
}

// Accuracy is the study: theory against simulation over a grid.
type Accuracy struct {
	Options AccuracyOptions `json:"-"`
	Forms   []AccuracyStep  `json:"forms"`
	Rows    []AccuracyRow   `json:"rows"`
}

// RunAccuracy simulates every cell of the grid on all cores and sets the forms
// beside it. Progress, if not nil, is called after every cell by one goroutine at
// a time. It ends early with the context's error.
func RunAccuracy(ctx context.Context, opt AccuracyOptions, progress func(done, all int)) (Accuracy, error) {
	opt = opt.withDefaults()
	cells := accuracyCells(opt.Small)
	if !opt.Small {
		cells = append(cells, heldOutCells()...)
	}
	estimators, err := accuracyEstimators(cells)
	if err != nil {
		return Accuracy{}, err
	}
	rows, err := inParallel(ctx, len(cells), progress, func(i int) (AccuracyRow, error) {
		return accuracyRow(cells[i], estimators[keyOf(cells[i])], opt)
	})
	if err != nil {
		return Accuracy{}, err
	}
	return Accuracy{Options: opt, Forms: AccuracySteps, Rows: rows}, nil
}

// workloadKey is what an estimator is prepared for.
type workloadKey struct {
	tailness  float64
	groupSize int
}

func keyOf(c AccuracyCell) workloadKey { return workloadKey{c.Tailness, c.GroupSize} }

// accuracyEstimators prepares one for every workload of the grid.
func accuracyEstimators(cells []AccuracyCell) (map[workloadKey]*theory.Estimator, error) {
	all := map[workloadKey]*theory.Estimator{}
	for _, c := range cells {
		if all[keyOf(c)] != nil {
			continue
		}
		lengths, err := lengthsOf(c.Tailness)
		if err != nil {
			return nil, err
		}
		e, err := theory.NewEstimator(theory.Input{Lengths: lengths, GroupSize: c.GroupSize})
		if err != nil {
			return nil, err
		}
		all[keyOf(c)] = e
	}
	return all, nil
}

// What a cell is simulated for, in times that its queue takes to settle.
const (
	accuracyWarmup   = 2
	accuracyMeasured = 30
	// accuracyLongest bounds both, for cells that never settle.
	accuracyLongest = 600_000
)

// accuracyRow simulates one cell and sets the forms beside it.
func accuracyRow(c AccuracyCell, e *theory.Estimator, opt AccuracyOptions) (AccuracyRow, error) {
	best := e.Estimate(c.point())
	row := AccuracyRow{AccuracyCell: c, Covered: best.Covered, Reason: best.Reason.String()}
	settling := best.SettlingSteps
	if !c.smooth() {
		settling = 50 // it never forgets: see the staircase, do not average it
	}
	measured := min(max(float64(opt.Steps), accuracyMeasured*settling), accuracyLongest)
	trial := Trial{Seed: opt.Seed, Warmup: int(min(accuracyWarmup*settling, accuracyLongest)) + 50, Measured: int(measured),
		Cell: Cell{Rho: c.Rho, Tailness: c.Tailness, Load: c.Load, GroupSize: c.GroupSize, Concurrency: int(c.Load * float64(c.Batch))},
		Rule: Rule{"drop", func(l *loop.Config, _ Cell) { l.QueueGroups = int(c.QueueFactor * float64(l.BatchGroups)) }}}
	cfg, stepS, err := trial.config()
	if err != nil {
		return row, err
	}
	result, err := sim.Run(cfg)
	if err != nil {
		return row, fmt.Errorf("study: %s: %w", c.name(), err)
	}
	s := result.Summary
	row.Simulated = AccuracyFigures{Mean: s.Staleness.Mean, P50: int(s.Staleness.P50), P95: int(s.Staleness.P95), P99: int(s.Staleness.P99),
		Period: s.PeriodS.Mean / stepS, Dropped: max(0, 1-float64(s.Steps)*float64(cfg.Loop.BatchGroups)/float64(max(s.GroupsReady, 1))),
		Token: s.TokenStaleness.Mean}
	row.Half = (s.Confidence.StalenessMean95[1] - s.Confidence.StalenessMean95[0]) / 2
	row.Steps = int(s.Steps)
	row.Forms = accuracyForms(c, e, best)
	return row, nil
}

// accuracyForms are what the theory says, with more and more corrections.
func accuracyForms(c AccuracyCell, e *theory.Estimator, best theory.Estimate) []AccuracyFigures {
	published := best.Published
	forms := []AccuracyFigures{{Mean: published.Mean, P50: -1, P95: -1, P99: -1, Period: published.PeriodRelative, Dropped: max(0, 1-1/c.Rho)}}
	for _, step := range AccuracySteps[1:] {
		f := e.With(step.with).Estimate(c.point())
		forms = append(forms, AccuracyFigures{f.Mean, f.P50, f.P95, f.P99, f.PeriodRelative, f.DroppedShare, f.TokenStaleness})
	}
	return forms
}
