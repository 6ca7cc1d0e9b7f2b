package study

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/headway-rl/headway/predict/theory"
)

// BoundRow is one rule in one cell. Beside it stands the least staleness there of a rule that does
// not choose groups by how long they take.
type BoundRow struct {
	Cell Cell   `json:"cell"`
	Rule string `json:"rule"`
	// Failed says why a simulation did not end, "" if all did.
	Failed string `json:"failed,omitempty"`
	// Staleness and Bound are in versions: the bound is at the rule's own period, over the groups
	// that it generated. Above is their difference, seed by seed.
	Staleness Estimate `json:"staleness"`
	Bound     Estimate `json:"bound"`
	Above     Estimate `json:"above_bound"`
	// Change is the staleness over that of queue-drop with q = 2.
	Change Estimate `json:"staleness_ratio"`
	// Computed is the bound from the lengths' distribution and that period, without a simulation's groups.
	Computed float64 `json:"computed_bound"`
	// Period over that of queue-drop with q = 2, Length trained over started mean length, Wasted the
	// share of tokens not trained.
	Period Estimate `json:"period_ratio"`
	Length Estimate `json:"length_ratio"`
	Wasted Estimate `json:"wasted_share"`
}

// boundRhos are the regimes of the table.
var boundRhos = []float64{0.5, 0.7, 0.9, 1, 1.1, 1.3, 1.5, 2, 3}

// boundRules are the rules that there are.
func boundRules() []Rule {
	return []Rule{Drop(2), Drop(1), newest(0.3), fresh(0), fresh(0.3), fresh(0.5), fresh(0.7), learned(0), learned(0.02)}
}

// addBound plans every rule in every regime.
func (p *plan) addBound() {
	rhos, tails, loads, syncs := boundRhos, gridTailness, gridLoad, gridSync
	if p.opt.Quick {
		rhos, tails, loads, syncs = []float64{0.7, 1.5}, []float64{50}, []float64{2}, []float64{0}
	}
	for _, sync := range syncs {
		for _, load := range loads {
			for _, tailness := range tails {
				if sync > 0 && tailness != 50 {
					continue // what a sync changes does not hang on the tail
				}
				for _, rho := range rhos {
					for _, rule := range boundRules() {
						p.add(partBound, cellAt(rho, tailness, load, sync), rule, true)
					}
				}
			}
		}
	}
}

// Bound is the part of [Hold] that sets the rules beside the bound, alone.
func Bound(ctx context.Context, opt HoldOptions, sims Simulator) (HoldResult, error) {
	p := newPlan(opt)
	p.addBound()
	if err := p.run(ctx, sims); err != nil {
		return HoldResult{}, err
	}
	return HoldResult{Options: opt, Seeds: opt.Seeds, WarmupSteps: opt.Warmup, MeasuredSteps: opt.Measured, Simulations: len(p.trials), Bounds: p.boundRows()}, nil
}

func (p *plan) boundRows() []BoundRow {
	var rows []BoundRow
	for _, at := range p.parts[partBound] {
		first := p.at[at]
		this := point(p.done[first : first+p.opt.Seeds])
		rows = append(rows, BoundRow{
			Cell: at.cell, Rule: at.rule, Failed: this.failed(), Staleness: this.mean(staleness), Bound: this.mean(bound),
			Above:    this.mean(func(f Figures) float64 { return f.Staleness - f.Bound }),
			Change:   this.ratio(p.of(at.cell, Drop(2), true), staleness),
			Computed: at.cell.bound(this.mean(period).Mean),
			Period:   this.ratio(p.of(at.cell, Drop(2), true), period), Length: this.mean(length), Wasted: this.mean(wasted),
		})
	}
	return rows
}

// bound computes the bound for a period, in train steps, from the distribution of
// lengths. Siblings start one after another as slots become free, so that the longest starts
// half their number of starts later than the first on average.
func (c Cell) bound(period float64) float64 {
	lengths, err := lengthsOf(c.Tailness)
	if err != nil {
		panic(err) // the studies' own tailness
	}
	unit := float64(c.Concurrency) / (float64(c.batchGroups()*c.GroupSize) * c.Rho) // a mean rollout, in train steps
	times := lengths.MaxDistribution(c.GroupSize).Scale(unit / lengths.Mean())
	stagger := unit * float64(c.GroupSize-1) / (2 * float64(c.Concurrency))
	return theory.LeastStaleness(times, theory.Rhythm{Period: period, Step: 1, Publish: c.SyncShare + stagger})
}

// BoundMarkdown prints how far rules are above the bound.
func BoundMarkdown(w io.Writer, r HoldResult, from Provenance) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# How far queue rules are above the least staleness\n\n%s\n\n", from.line())
	if r.Options.Quick {
		b.WriteString("**This is a corner of the study, to show that it works: no result.**\n\n")
	}
	b.WriteString("The bound is E[max(0, ⌈(D + t_s + t_step − T)/T⌉)], derived in [queue-bound.md](../queue-bound.md): no rule is below it, at the period T it has itself, that does not train short groups rather than long ones. " +
		"It is taken over the groups each simulation generated and its mean period; where the trainer waits, periods differ from one another, and a mean over them can lie a few hundredths below. " +
		"A rule with a longer period has a lower bound: T is its period over that of queue-drop q 2, where it is not the same. Staleness is in versions.\n\n")
	fmt.Fprintf(&b, "%s simulations: %d seeds, %d train steps each (at B = %d) after a warm-up of %d; S = %d and C = %d; ± is half of Student's 95 %% interval over the seeds. "+
		"*Learned* is the hold that follows what it costs (`queue.hold_adaptive`, at most 0.9), *at cost* 0.02 one that may cost 2 %% of slot time beyond what is free.\n\n",
		count(r.Simulations), r.Seeds, r.MeasuredSteps, batchPlain, r.WarmupSteps, groupSize, concurrency)
	fmt.Fprintf(&b, "The same bound computed from the distribution of lengths alone differs from it by %.3f versions on average and at most %.3f.\n\n", r.boundError().mean, r.boundError().most)
	for _, sync := range gridSync {
		writeBoundMeans(&b, r, sync)
	}
	for _, sync := range gridSync {
		writeBoundCells(&b, r, sync)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

// spreadOf is a mean and the most of absolute differences.
type spreadOf struct{ mean, most float64 }

// boundError is how far the computed bound is from the simulated groups'.
func (r HoldResult) boundError() spreadOf {
	var s spreadOf
	for _, row := range r.Bounds {
		off := max(row.Computed-row.Bound.Mean, row.Bound.Mean-row.Computed)
		s.mean += off / float64(len(r.Bounds))
		s.most = max(s.most, off)
	}
	return s
}

// rulesOf are the rules in the rows, in their order.
func rulesOf(rows []BoundRow) []string {
	var rules []string
	for _, row := range rows {
		if !slices.Contains(rules, row.Rule) {
			rules = append(rules, row.Rule)
		}
	}
	return rules
}

// shortRules names rules for the head of a table: all are queue-drop.
func shortRules(rules []string) []string {
	shorter := strings.NewReplacer("drop q=2 oldest hold 0", "q 2", "drop q=1 oldest hold 0", "q 1", "drop q=2 fresh hold 0.9 learned", "learned", "drop q=2 ", "")
	short := make([]string, len(rules))
	for i, rule := range rules {
		short[i] = shorter.Replace(rule)
	}
	return short
}

// writeBoundMeans has a line for each ρ and C/B, over tailness.
func writeBoundMeans(b *strings.Builder, r HoldResult, sync float64) {
	rules := rulesOf(r.Bounds)
	type key struct{ load, rho float64 }
	var order []key
	sums := map[key]map[string]*boundMean{}
	for _, row := range r.Bounds {
		if row.Cell.SyncShare != sync || row.Failed != "" {
			continue
		}
		k := key{row.Cell.Load, row.Cell.Rho}
		if sums[k] == nil {
			order, sums[k] = append(order, k), map[string]*boundMean{}
		}
		if sums[k][row.Rule] == nil {
			sums[k][row.Rule] = &boundMean{}
		}
		sums[k][row.Rule].add(row)
	}
	if len(order) == 0 {
		return
	}
	fmt.Fprintf(b, "## Above the bound, with a sync of %g of a train step: means over tailness\n\n", sync)
	var rows [][]string
	for _, k := range order {
		line := []string{fmt.Sprint(k.load), fmt.Sprint(k.rho)}
		for _, rule := range rules {
			line = append(line, sums[k][rule].text())
		}
		rows = append(rows, line)
	}
	table(b, append([]string{"C/B", "ρ"}, shortRules(rules)...), rows)
}

// boundMean is a rule over several cells.
type boundMean struct{ above, period, n float64 }

func (m *boundMean) add(row BoundRow) {
	m.above += row.Above.Mean
	m.period += row.Period.Mean
	m.n++
}

func (m *boundMean) text() string {
	if m == nil {
		return "–"
	}
	return aboveText(m.above/m.n, m.period/m.n, 0)
}

// aboveText writes a distance, and the period where it is another.
func aboveText(above, period, half float64) string {
	text := fmt.Sprintf("%+.2f", above)
	if half > 0 {
		text += fmt.Sprintf(" ± %.2f", half)
	}
	if change := 100 * (period - 1); change >= 0.05 || change <= -0.05 {
		text += fmt.Sprintf(", T %+.1f %%", change)
	}
	return text
}

// writeBoundCells has a line for every cell.
func writeBoundCells(b *strings.Builder, r HoldResult, sync float64) {
	rules := rulesOf(r.Bounds)
	var rows [][]string
	for i := 0; i < len(r.Bounds); {
		cell := r.Bounds[i].Cell
		line := []string{fmt.Sprint(cell.Load), fmt.Sprint(cell.Tailness), fmt.Sprint(cell.Rho), r.Bounds[i].Bound.print(2)}
		for ; i < len(r.Bounds) && r.Bounds[i].Cell == cell; i++ {
			row := r.Bounds[i]
			if row.Failed != "" {
				line = append(line, "stalls")
				continue
			}
			line = append(line, aboveText(row.Above.Mean, row.Period.Mean, row.Above.Half))
		}
		if cell.SyncShare == sync {
			rows = append(rows, line)
		}
	}
	if len(rows) == 0 {
		return
	}
	fmt.Fprintf(b, "## Every cell, with a sync of %g of a train step\n\nThe bound is that of queue-drop q 2.\n\n", sync)
	table(b, append([]string{"C/B", "tailness", "ρ", "bound"}, shortRules(rules)...), rows)
}
