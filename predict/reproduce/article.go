package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// batchTail is the tail multiplier that the article prints for its other runs of the
// same concurrency, 120; the rows of batch_size print none.
const batchTail = 1.42

// batchSize are two runs that differ in the batch alone.
func batchSize(ctx context.Context, o Options) (Case, error) {
	const name = "batch_size"
	table, err := readTable(name)
	if err != nil {
		return Case{}, err
	}
	c := Case{Title: "The batch as a lever: staleness against the noise-adjusted update", Source: table.source, Setup: append(liveSetup(),
		fmt.Sprintf("Not printed for these rows: the tail multiplier. It could only be had from the printed PQS, which is to be compared; instead %g is borrowed from the validation runs of the same concurrency, of which the row of batch 240 is one.", batchTail),
		"Not printed at all: decode speed and mean length, without which no step time in seconds can be computed; the ratio of the two step times can.")}
	var rows []liveRow
	for i := range table.rows {
		v, err := table.values(i, "batch", "utilization")
		if err != nil {
			return c, err
		}
		rows = append(rows, liveRow{name: fmt.Sprintf("C 120, B %g, ρ %g", v[0], v[1]), slots: 120, batch: int(v[0]), queue: 1, rho: v[1], tail: batchTail})
	}
	expected, summaries, err := compareLive(ctx, o, name, rows)
	if err != nil {
		return c, err
	}
	borrowed := fmt.Sprintf("tail multiplier borrowed: M %g", batchTail)
	for i, r := range rows {
		c.Quantities = append(c.Quantities,
			Quantity{Row: r.name, Name: "staleness", Printed: table.number(i, "predicted_staleness"), Measured: table.number(i, "measured_staleness"),
				Closed: expected[i].mean, Corrected: expected[i].corrected, Simulated: over(summaries[i], staleness), Note: borrowed},
			Quantity{Row: r.name, Name: "pqs", Printed: table.number(i, "predicted_pqs"), Closed: expected[i].pqs, Corrected: expected[i].correctedPQS,
				Simulated: over(summaries[i], pqs), Note: borrowed},
			Quantity{Row: r.name, Name: "iqs", Printed: table.number(i, "predicted_iqs"), Closed: expected[i].iqs, Corrected: expected[i].correctedIQS, Simulated: over(summaries[i], iqs)},
			Quantity{Row: r.name, Name: "step_s", Measured: table.number(i, "step_s"), Missing: "decode speed and mean length are not published", Decimals: 1})
		if err := c.batchChecks(table, i, r); err != nil {
			return c, err
		}
	}
	if len(rows) == 2 {
		c.stepRatio(table, rows, summaries)
	}
	c.Findings = append(checkFindings(c.Checks), worst(c.Quantities, "staleness")...)
	c.Findings = append(c.Findings, impliedTails(table)...)
	return c, nil
}

// batchChecks redo the sums and quotients that a row prints.
func (c *Case) batchChecks(table published, i int, r liveRow) error {
	v, err := table.values(i, "predicted_pqs", "predicted_iqs", "predicted_staleness", "step_s", "step_s_per_rollout", "step_s_per_sqrt_batch")
	if err != nil {
		return err
	}
	batch := float64(r.batch)
	c.Checks = append(c.Checks,
		Check{Row: r.name, Name: "predicted_staleness", How: "printed PQS + printed IQS", Printed: v[2], Redone: v[0] + v[1],
			Rounding: table.rounding(i, "predicted_pqs") + table.rounding(i, "predicted_iqs") + table.rounding(i, "predicted_staleness")},
		Check{Row: r.name, Name: "predicted_iqs", How: "IQS(q, ρ)", Printed: v[1], Redone: theory.InQueue(r.queue, r.rho),
			Rounding: table.rounding(i, "predicted_iqs") + table.rounding(i, "utilization")},
		Check{Row: r.name, Name: "step_s_per_rollout", How: "printed step_s/B", Printed: v[4], Redone: v[3] / batch,
			Rounding: table.rounding(i, "step_s_per_rollout") + table.rounding(i, "step_s")/batch},
		Check{Row: r.name, Name: "step_s_per_sqrt_batch", How: "printed step_s/√B", Printed: v[5], Redone: v[3] / math.Sqrt(batch),
			Rounding: table.rounding(i, "step_s_per_sqrt_batch") + table.rounding(i, "step_s")/math.Sqrt(batch)})
	return nil
}

// stepRatio compares the ratio of the two rows' train periods, from which the unpublished
// speed and length cancel while both are rollout-bound.
func (c *Case) stepRatio(table published, rows []liveRow, summaries [][]metrics.Summary) {
	a, _ := table.number(0, "step_s").Value()
	b, _ := table.number(1, "step_s").Value()
	// T = B·E[L]/v_R below ρ = 1; both rows have the same concurrency, so the same v_R.
	closed := theory.Period(rows[1].rho) * rows[1].rho * float64(rows[1].batch) / (theory.Period(rows[0].rho) * rows[0].rho * float64(rows[0].batch))
	periods := make([]float64, len(summaries[0]))
	for k := range periods {
		periods[k] = summaries[1][k].PeriodS.Mean / summaries[0][k].PeriodS.Mean
	}
	c.Quantities = append(c.Quantities, Quantity{Row: fmt.Sprintf("B %d over B %d", rows[1].batch, rows[0].batch), Name: "step_s ratio",
		Measured: theory.Known(b / a), Closed: theory.Known(closed), Simulated: interval(periods),
		Note: "the measured one is smaller than the batches' ratio: per rollout the larger batch was faster"})
}

// impliedTails are the multipliers that the printed PQS were made with.
func impliedTails(table published) []string {
	var findings []string
	for i := range table.rows {
		v, err := table.values(i, "batch", "predicted_pqs")
		if err != nil {
			continue
		}
		findings = append(findings, fmt.Sprintf("B %g: the printed PQS of %g implies a tail multiplier of %.2f at C 120, where its other tables print %g; which one went in is not said.", v[0], v[1], v[1]*v[0]/120, batchTail))
	}
	return findings
}

// queueFactor is a run with a larger queue.
func queueFactor(ctx context.Context, o Options) (Case, error) {
	const name = "queue_factor"
	table, err := readTable(name)
	if err != nil {
		return Case{}, err
	}
	const tail = 1.44
	c := Case{Title: "The queue factor", Source: table.source, Setup: append(liveSetup(),
		fmt.Sprintf("Not printed for this row: the tail multiplier; %g is borrowed from the validation run of the same concurrency, batch, queue factor and utilization, whose figures are the same.", tail))}
	var rows []liveRow
	for i := range table.rows {
		v, err := table.values(i, "queue_factor", "utilization")
		if err != nil {
			return c, err
		}
		rows = append(rows, liveRow{name: fmt.Sprintf("C 128, B 128, q %g, ρ %g", v[0], v[1]), slots: 128, batch: 128, queue: v[0], rho: v[1], tail: tail})
	}
	expected, summaries, err := compareLive(ctx, o, name, rows)
	if err != nil {
		return c, err
	}
	for i, r := range rows {
		c.Quantities = append(c.Quantities,
			Quantity{Row: r.name, Name: "staleness", Printed: table.number(i, "predicted_staleness"), Measured: table.number(i, "measured_staleness"),
				Closed: expected[i].mean, Corrected: expected[i].corrected, Simulated: over(summaries[i], staleness)},
			Quantity{Row: r.name, Name: "pqs", Printed: table.number(i, "predicted_pqs"), Closed: expected[i].pqs, Corrected: expected[i].correctedPQS, Simulated: over(summaries[i], pqs)},
			Quantity{Row: r.name, Name: "iqs", Printed: table.number(i, "predicted_iqs"), Closed: expected[i].iqs, Corrected: expected[i].correctedIQS, Simulated: over(summaries[i], iqs)},
			Quantity{Row: r.name, Name: "step_s", Measured: table.number(i, "step_s"), Missing: "decode speed and mean length are not published", Decimals: 1})
		v, err := table.values(i, "predicted_pqs", "predicted_iqs", "predicted_staleness")
		if err != nil {
			return c, err
		}
		// The utilization was rounded; the formula falls in ρ by (2q−1)/(2ρ²).
		slope := (2*r.queue - 1) / (2 * r.rho * r.rho)
		c.Checks = append(c.Checks,
			Check{Row: r.name, Name: "predicted_staleness", How: "printed PQS + printed IQS", Printed: v[2], Redone: v[0] + v[1],
				Rounding: table.rounding(i, "predicted_pqs") + table.rounding(i, "predicted_iqs") + table.rounding(i, "predicted_staleness")},
			Check{Row: r.name, Name: "predicted_iqs", How: "(2q+ρ−1)/(2ρ)", Printed: v[1], Redone: theory.InQueue(r.queue, r.rho),
				Rounding: table.rounding(i, "predicted_iqs") + slope*table.rounding(i, "utilization")},
			Check{Row: r.name, Name: "predicted_pqs", How: fmt.Sprintf("C·M/(B·ρ), M %g", tail), Printed: v[0], Redone: theory.PreQueue(128, 128, tail, r.rho),
				Rounding: table.rounding(i, "predicted_pqs") + 0.005/r.rho + tail*table.rounding(i, "utilization")/(r.rho*r.rho)})
	}
	c.Findings = append(checkFindings(c.Checks), worst(c.Quantities, "staleness")...)
	return c, nil
}

// tailSubsets are runs on prompts chosen by length and tail. Their settings are not
// printed, so that no staleness can be computed; what can be tested is its form.
func tailSubsets(context.Context, Options) (Case, error) {
	const name = "tail_subsets"
	table, err := readTable(name)
	if err != nil {
		return Case{}, err
	}
	c := Case{Title: "Staleness depends on the tail, not on the length", Source: table.source, Setup: []string{
		"Printed: mean length, tail multiplier, measured staleness. Not printed: concurrency, batch, queue factor and utilization, so that no row's staleness is computable.",
		"What is tested instead is the form of the closed form: below ρ = 1, staleness = (C/B)·M + ρ, whatever the mean length.",
	}}
	value := map[string][3]float64{}
	for i := range table.rows {
		v, err := table.values(i, "mean_length_tokens", "tail_multiplier", "measured_staleness")
		if err != nil {
			return c, err
		}
		subset := table.text(i, "subset")
		value[subset] = [3]float64{v[0], v[1], v[2]}
		c.Quantities = append(c.Quantities, Quantity{Row: fmt.Sprintf("%s, E[L] %g, M %g", subset, v[0], v[1]), Name: "staleness", Measured: theory.Known(v[2]),
			Missing: "concurrency, batch, queue factor, utilization"})
		c.Grids = appendImplied(c.Grids, subset, v[1], v[2])
	}
	low, high := slope(value["short_low_tail"], value["short_high_tail"]), slope(value["long_low_tail"], value["long_high_tail"])
	short, long := value["short_high_tail"], value["long_high_tail"]
	c.Findings = append(c.Findings,
		fmt.Sprintf("Tail: per unit of M staleness rises by %.2f among short prompts and by %.2f among long ones. (C/B)·M has a slope of C/B: 1 in the article's runs of C 120 and B 120.", low, high),
		fmt.Sprintf("Length: at the same M of %g, %s longer responses leave staleness at %g against %g (%s): none of the rise in length is seen in it, as the closed form has it.",
			short[1], report.Share(long[0]/short[0]-1), long[2], short[2], report.Share(long[2]/short[2]-1)),
		"If C/B is 1 and the runs are rollout-bound, the rows imply the utilizations in the table below, all of them below 1 and near the 0.67 printed for C 120, B 120. That is consistent and no prediction.")
	return c, nil
}

// appendImplied adds a row to the table of implied utilizations.
func appendImplied(grids []Grid, subset string, tail, measured float64) []Grid {
	if len(grids) == 0 {
		grids = []Grid{{Title: "Utilization implied by staleness − M, if C/B = 1 and ρ < 1", Header: []string{"subset", "measured staleness", "M", "implied ρ"}}}
	}
	grids[0].Rows = append(grids[0].Rows, []string{subset, report.Figure(measured, 2), report.Figure(tail, 2), report.Figure(measured-tail, 2)})
	return grids
}

// slope is staleness per unit of tail multiplier between two subsets.
func slope(a, b [3]float64) float64 { return (b[2] - a[2]) / (b[1] - a[1]) }
