package reproduce

import (
	"context"
	"fmt"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// biasBase is the set-up that is assumed for the article's length bias: only lengths
// and rules are published. The multiplier of 8 siblings at tailness 50 is near 2.2.
var biasBase = setting{slots: 160, batch: 128, group: 8, queue: 1, rho: 0.8, budget: -1}

// biasMean, biasTailness and biasCap are the article's lengths.
const (
	biasMean     = 1400
	biasTailness = 50
	biasCap      = 8080
)

// biasRow is one row of the table: queue-drop with q, or queue-max with a budget.
type biasRow struct {
	name   string
	queue  float64
	budget int
}

func (r biasRow) apply(s setting) setting {
	s.queue, s.budget = r.queue, r.budget
	return s
}

// biasRows reads the settings of the table.
func biasRows(table published) ([]biasRow, error) {
	var rows []biasRow
	for i := range table.rows {
		policy, text := table.text(i, "policy"), table.text(i, "setting")
		r := biasRow{name: policy + ", " + text, queue: biasBase.queue, budget: -1}
		var err error
		switch policy {
		case "drop":
			_, err = fmt.Sscanf(text, "q=%g", &r.queue)
		case "max":
			_, err = fmt.Sscanf(text, "budget=%d", &r.budget)
		default:
			err = fmt.Errorf("unknown policy %q", policy)
		}
		if err != nil {
			return nil, fmt.Errorf("reproduce: cases/%s.csv: row %d: %w", table.name, i+1, err)
		}
		rows = append(rows, r)
	}
	return rows, nil
}

// lengthRatio is trained over started mean length.
func lengthRatio(s metrics.Summary) float64 {
	return s.Length.TrainedMeanTokens / s.Length.SampledMeanTokens
}

// lengthBias is the article's simulated bias of queue-max towards short rollouts.
func lengthBias(ctx context.Context, o Options) (Case, error) {
	const name = "length_bias_tailness50"
	table, err := readTable(name)
	if err != nil {
		return Case{}, err
	}
	base := biasBase
	if base.lengths, err = lognormal(biasMean, biasTailness, biasCap); err != nil {
		return Case{}, err
	}
	c := Case{Title: "Queue-max trains on short rollouts, queue-drop does not", Source: table.source, Setup: []string{
		fmt.Sprintf("Inputs: lognormal lengths of nominal mean %d and tailness %d, capped at %d (inferred from the source's figures), policy and its setting.", biasMean, biasTailness, biasCap),
		fmt.Sprintf("Assumed, since not published: C %d, B %d, S %d, ρ %g, and q %g for queue-max. The scan below shows how much each matters. "+
			"The concurrency was picked from that scan for lying near the printed ratios, so that their level is no evidence; how they rise with the budget is.", base.slots, base.batch, base.group, base.rho, base.queue),
		"How long the source simulated is not published either, and the longest rollout of a run grows with it.",
		"Budget b is taken as printed: a group is discarded at selection when its staleness at the step's start exceeds b. The second table takes b+1, as where the threshold counts one less.",
	}}
	rows, err := biasRows(table)
	if err != nil {
		return c, err
	}
	var settings []setting
	for _, r := range rows {
		settings = append(settings, r.apply(base))
	}
	summaries, err := o.simulateAll(ctx, name, settings)
	if err != nil {
		return c, err
	}
	for i, r := range rows {
		c.Quantities = append(c.Quantities, biasQuantities(table, i, r, base, summaries[i])...)
	}
	c.Findings = biasFindings(c.Quantities)
	shifted, err := budgetScan(ctx, o, table, rows, base)
	if err != nil {
		return c, err
	}
	scan, err := biasScan(ctx, o, table, rows, base)
	c.Grids = append(c.Grids, shifted, scan)
	return c, err
}

// biasQuantities are the figures of one row.
func biasQuantities(table published, i int, r biasRow, base setting, runs []metrics.Summary) []Quantity {
	sampled, _ := table.number(i, "sampled_mean").Value()
	trained, _ := table.number(i, "trained_mean").Value()
	mean := func(s metrics.Summary) float64 { return s.Length.SampledMeanTokens }
	trainedMean := func(s metrics.Summary) float64 { return s.Length.TrainedMeanTokens }
	longest := func(s metrics.Summary) float64 { return float64(s.Length.TrainedMaxTokens) }
	// Dropping the oldest looks at no length, whatever the set-up; what a budget
	// discards depends on the set-up, and that was picked.
	closed, basis := theory.Known(1), FollowsFromInputs
	if r.budget >= 0 {
		closed, basis = theory.Figure{}, AssumedToMatch
	}
	return []Quantity{
		{Row: r.name, Name: "trained/sampled mean", Measured: theory.Known(trained / sampled), Closed: closed, Simulated: over(runs, lengthRatio), Decimals: 3, Basis: basis},
		{Row: r.name, Name: "sampled mean_tokens", Measured: theory.Known(sampled), Closed: theory.Known(base.lengths.Mean()), Simulated: over(runs, mean), Decimals: whole, Basis: FollowsFromInputs},
		{Row: r.name, Name: "trained mean_tokens", Measured: theory.Known(trained), Simulated: over(runs, trainedMean), Decimals: whole, Basis: basis},
		{Row: r.name, Name: "trained max_tokens", Measured: table.number(i, "trained_max"), Simulated: over(runs, longest), Decimals: whole},
	}
}

// biasFindings say what of the printed table is seen.
func biasFindings(quantities []Quantity) []string {
	worstRatio, lower := 0.0, 0
	var where string
	for _, q := range quantities {
		a, _ := q.Residual()
		v, _ := a.Value()
		switch q.Name {
		case "trained/sampled mean":
			if v < 0 {
				v = -v
			}
			if v >= worstRatio {
				worstRatio, where = v, q.Row
			}
		case "trained max_tokens":
			if v < -1 {
				lower++
			}
		}
	}
	return []string{
		fmt.Sprintf("Queue-drop trains what it samples; queue-max with a small budget trains on shorter rollouts. Trained over sampled length is within %.3f of the printed one in every row (%s is the farthest), under a set-up that was picked for it: the level is no evidence, the order of the rows is.", worstRatio, where),
		fmt.Sprintf("The longest rollout trained is lower than printed in %d rows: which lengths a budget excludes altogether depends on C/B and ρ, which are not published.", lower),
	}
}

// budgetScan takes the printed budget as one more.
func budgetScan(ctx context.Context, o Options, table published, rows []biasRow, base setting) (Grid, error) {
	g := Grid{Title: "Queue-max when the printed budget b means staleness up to b, and up to b+1", Header: []string{"row", "printed ratio", "up to b", "up to b+1", "printed max", "up to b", "up to b+1"}}
	var settings []setting
	var kept []int
	for i, r := range rows {
		if r.budget < 0 {
			continue
		}
		kept = append(kept, i)
		for more := range 2 {
			s := r.apply(base)
			s.budget += more
			settings = append(settings, s)
		}
	}
	summaries, err := o.simulateAll(ctx, table.name+": budgets", settings)
	if err != nil {
		return g, err
	}
	longest := func(s metrics.Summary) float64 { return float64(s.Length.TrainedMaxTokens) }
	for k, i := range kept {
		v, err := table.values(i, "sampled_mean", "trained_mean", "trained_max")
		if err != nil {
			return g, err
		}
		one, two := summaries[2*k], summaries[2*k+1]
		g.Rows = append(g.Rows, []string{rows[i].name, report.Figure(v[1]/v[0], 3), report.Figure(over(one, lengthRatio).Mean, 3), report.Figure(over(two, lengthRatio).Mean, 3),
			report.Figure(v[2], 0), report.Figure(over(one, longest).Mean, 0), report.Figure(over(two, longest).Mean, 0)})
	}
	return g, nil
}

// biasScan varies what is not published, one at a time.
func biasScan(ctx context.Context, o Options, table published, rows []biasRow, base setting) (Grid, error) {
	with := func(name string, change func(*setting)) (string, setting) {
		s := base
		change(&s)
		return name, s
	}
	var names []string
	var bases []setting
	add := func(name string, s setting) { names, bases = append(names, name), append(bases, s) }
	add(with(fmt.Sprintf("as assumed: C %d, B %d, S %d, ρ %g, q %g", base.slots, base.batch, base.group, base.rho, base.queue), func(*setting) {}))
	for _, c := range []int{96, 128, 192, 256} {
		add(with(fmt.Sprintf("C %d", c), func(s *setting) { s.slots = c }))
	}
	for _, rho := range []float64{0.5, 0.65, 1, 1.3} {
		add(with(fmt.Sprintf("ρ %g", rho), func(s *setting) { s.rho = rho }))
	}
	for _, group := range []int{1, 4, 16} {
		add(with(fmt.Sprintf("S %d", group), func(s *setting) { s.group = group }))
	}
	add(with("q 2", func(s *setting) { s.queue = 2 }))
	add(with("prompts' own length σ 0.5", func(s *setting) { s.promptSigma = 0.5 }))
	g := Grid{Title: "Queue-max: trained over sampled mean length when one assumption changes (budget as printed; – where nothing can be trained)", Header: []string{"set-up"}}
	printed := []string{"printed"}
	var maxes []biasRow
	for i, r := range rows {
		if r.budget < 0 {
			continue
		}
		v, err := table.values(i, "sampled_mean", "trained_mean")
		if err != nil {
			return g, err
		}
		maxes = append(maxes, r)
		g.Header, printed = append(g.Header, r.name), append(printed, report.Figure(v[1]/v[0], 3))
	}
	var settings []setting
	for _, b := range bases {
		for _, r := range maxes {
			b.budget = r.budget
			settings = append(settings, b)
		}
	}
	summaries, err := o.scanAll(ctx, table.name+": set-ups", settings)
	if err != nil {
		return g, err
	}
	g.Rows = append(g.Rows, printed)
	for i, name := range names {
		row := []string{name}
		for k := range maxes {
			row = append(row, printInterval(over(summaries[i*len(maxes)+k], lengthRatio), 3))
		}
		g.Rows = append(g.Rows, row)
	}
	return g, nil
}
