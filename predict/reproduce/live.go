package reproduce

import (
	"context"
	"fmt"
	"math"

	"github.com/headway-rl/headway/observe/metrics"
	"github.com/headway-rl/headway/observe/report"
	"github.com/headway-rl/headway/predict/theory"
)

// liveGroup is the group size of the live runs, which is not published: the largest
// that divides every printed batch (60, 120, 128 and 240).
const liveGroup = 4

// liveRow is one live run of the article: what is printed of its settings.
type liveRow struct {
	name         string
	slots, batch int
	queue, rho   float64
	tail         float64 // the printed tail multiplier, or a borrowed one
}

// setting of the row with groups of that size, and prompts of that spread.
func (r liveRow) setting(group int, promptSigma float64) (setting, error) {
	lengths, err := matched(r.tail, group)
	return setting{slots: r.slots, batch: r.batch, group: group, queue: r.queue, rho: r.rho, lengths: lengths, promptSigma: promptSigma, budget: -1}, err
}

// parts are the closed form of a row, with corrections beside it.
type parts struct{ pqs, iqs, mean, correctedPQS, correctedIQS, corrected theory.Figure }

// expected is the closed form from the row's own figures.
func (r liveRow) expected() (parts, error) {
	pqs := theory.PreQueue(float64(r.slots), float64(r.batch), r.tail, r.rho)
	iqs := theory.InQueue(r.queue, r.rho)
	s, err := r.setting(liveGroup, 0)
	if err != nil {
		return parts{}, err
	}
	p, err := theory.Predict(s.input())
	return parts{theory.Known(pqs), theory.Known(iqs), theory.Known(pqs + iqs), p.Corrected.PQS, p.Corrected.IQS, p.Corrected.Mean}, err
}

// liveSetup are the assumptions of every table of live runs.
func liveSetup() []string {
	return []string{
		"Inputs as printed: concurrency, batch, queue factor, utilization, tail multiplier. Compared: predicted and measured staleness.",
		fmt.Sprintf("Assumed for the corrected and simulated figures, since none is published: groups of %d, the largest size that divides every printed batch; "+
			"independent lognormal lengths whose tail multiplier is the printed one; constant decode speed; no sync time, no filter. The published closed form needs none of these.", liveGroup),
	}
}

// compare are the quantities of rows: staleness with its two parts.
func compareLive(ctx context.Context, o Options, name string, rows []liveRow) ([]parts, [][]metrics.Summary, error) {
	var settings []setting
	var all []parts
	for _, r := range rows {
		s, err := r.setting(liveGroup, 0)
		if err != nil {
			return nil, nil, err
		}
		p, err := r.expected()
		if err != nil {
			return nil, nil, err
		}
		settings, all = append(settings, s), append(all, p)
	}
	summaries, err := o.simulateAll(ctx, name, settings)
	return all, summaries, err
}

// validationRuns are the four runs by which the article validates its closed form.
func validationRuns(ctx context.Context, o Options) (Case, error) {
	const name = "validation_runs"
	table, err := readTable(name)
	if err != nil {
		return Case{}, err
	}
	c := Case{Title: "Live runs against the closed form", Source: table.source, Setup: liveSetup()}
	var rows []liveRow
	for i := range table.rows {
		v, err := table.values(i, "concurrency", "batch", "queue_factor", "utilization", "tail_multiplier")
		if err != nil {
			return c, err
		}
		rows = append(rows, liveRow{name: fmt.Sprintf("C %g, B %g, q %g, ρ %g, M %g", v[0], v[1], v[2], v[3], v[4]),
			slots: int(v[0]), batch: int(v[1]), queue: v[2], rho: v[3], tail: v[4]})
	}
	expected, summaries, err := compareLive(ctx, o, name, rows)
	if err != nil {
		return c, err
	}
	for i, r := range rows {
		c.Quantities = append(c.Quantities,
			Quantity{Row: r.name, Name: "staleness", Printed: table.number(i, "predicted_staleness"), Measured: table.number(i, "measured_staleness"),
				Closed: expected[i].mean, Corrected: expected[i].corrected, Simulated: over(summaries[i], staleness)},
			Quantity{Row: r.name, Name: "pqs", Closed: expected[i].pqs, Corrected: expected[i].correctedPQS, Simulated: over(summaries[i], pqs)},
			Quantity{Row: r.name, Name: "iqs", Closed: expected[i].iqs, Corrected: expected[i].correctedIQS, Simulated: over(summaries[i], iqs)})
		printed, err := table.value(i, "predicted_staleness")
		if err != nil {
			return c, err
		}
		sum, _ := expected[i].mean.Value()
		// The printed multiplier was rounded: its half digit moves PQS by C/(B·max(1, ρ)) as much.
		slack := table.rounding(i, "tail_multiplier")*float64(r.slots)/(float64(r.batch)*max(1, r.rho)) +
			table.rounding(i, "utilization") + table.rounding(i, "predicted_staleness")
		c.Checks = append(c.Checks, Check{Row: r.name, Name: "predicted_staleness", How: "C·M/(B·max(1, ρ)) + IQS(q, ρ), from the row's own figures",
			Printed: printed, Redone: sum, Rounding: slack})
	}
	c.Findings = append(c.Findings, checkFindings(c.Checks)...)
	c.Findings = append(c.Findings, worst(c.Quantities, "staleness")...)
	grid, err := assumptionScan(ctx, o, name, rows)
	c.Grids = append(c.Grids, grid)
	return c, err
}

// assumptionScan simulates the rows with other group sizes and correlated siblings at
// the same tail multiplier: what is not published could move a figure by that much.
func assumptionScan(ctx context.Context, o Options, name string, rows []liveRow) (Grid, error) {
	type assumption struct {
		group int
		sigma float64
	}
	assumptions := []assumption{{2, 0}, {4, 0}, {8, 0}, {4, 0.4}, {4, 0.8}}
	grid := Grid{Title: "Simulated staleness under other assumptions, the tail multiplier being as printed", Header: []string{"row"}}
	for _, a := range assumptions {
		title := fmt.Sprintf("S %d", a.group)
		if a.sigma > 0 {
			title += fmt.Sprintf(", prompts' own length σ %g", a.sigma)
		}
		grid.Header = append(grid.Header, title)
	}
	var settings []setting
	var place [][2]int
	for i, r := range rows {
		grid.Rows = append(grid.Rows, append([]string{r.name}, make([]string, len(assumptions))...))
		for k, a := range assumptions {
			if r.batch%a.group != 0 {
				grid.Rows[i][k+1] = "–"
				continue
			}
			s, err := r.setting(a.group, a.sigma)
			if err != nil {
				return grid, err
			}
			settings, place = append(settings, s), append(place, [2]int{i, k + 1})
		}
	}
	summaries, err := o.scanAll(ctx, name+": assumptions", settings)
	if err != nil {
		return grid, err
	}
	for n, at := range place {
		grid.Rows[at[0]][at[1]] = printInterval(over(summaries[n], staleness), 2)
	}
	return grid, nil
}

// checkFindings say which printed figures do not follow from the printed inputs.
func checkFindings(checks []Check) []string {
	var findings []string
	agree := 0
	for _, c := range checks {
		if c.Agrees() {
			agree++
			continue
		}
		findings = append(findings, fmt.Sprintf("%s: the printed %s is %s; %s gives %s. The difference of %s is more than the printed digits' rounding (%s): it was made from other inputs than the printed ones.",
			c.Row, c.Name, trim(c.Printed), c.How, trim(c.Redone), signed(c.Redone-c.Printed, 3), trim(c.Rounding)))
	}
	if agree > 0 {
		findings = append([]string{fmt.Sprintf("%d of %d printed figures follow from the printed inputs within their rounding.", agree, len(checks))}, findings...)
	}
	return findings
}

// worst says how far our best figure is from the measured ones, at most and beside
// the printed predictions.
func worst(quantities []Quantity, name string) []string {
	var row string
	ours, printed, closed := 0.0, 0.0, 0.0
	n, both := 0, true
	for _, q := range quantities {
		if q.Name != name {
			continue
		}
		_, relative := q.Residual()
		r, ok := relative.Value()
		if !ok {
			continue
		}
		n++
		if math.Abs(r) >= ours {
			ours, row = math.Abs(r), q.Row
		}
		_, p := residual(q.Printed, q.Measured)
		_, k := residual(q.Closed, q.Measured)
		if v, ok := p.Value(); ok {
			printed = max(printed, math.Abs(v))
		} else {
			both = false
		}
		if v, ok := k.Value(); ok {
			closed = max(closed, math.Abs(v))
		}
	}
	if n == 0 {
		return nil
	}
	text := fmt.Sprintf("Measured %s: our simulation is within %s (%s), the closed form from the printed inputs within %s", name, report.Share(ours), row, report.Share(closed))
	if both {
		text += fmt.Sprintf(", the printed predictions within %s", report.Share(printed))
	}
	return []string{text + "."}
}

func pqs(s metrics.Summary) float64 { return s.PQS.Mean }
func iqs(s metrics.Summary) float64 { return s.IQS.Mean }
