package study

import (
	"encoding/csv"
	"fmt"
	"io"
	"math"
	"slices"
	"strconv"
	"strings"
)

// Provenance says where figures come from: the command that makes them again, the
// program, the class of machine and the day.
type Provenance struct {
	Command string `json:"command"`
	Program string `json:"program"`
	Machine string `json:"machine"`
	Date    string `json:"date"`
}

// line is the provenance as a sentence.
func (p Provenance) line() string {
	return fmt.Sprintf("Made by `%s` (%s) on %s, %s.", p.Command, p.Program, p.Machine, p.Date)
}

// HoldMarkdown prints the study as a document.
func HoldMarkdown(w io.Writer, r HoldResult, from Provenance) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# Hold and newest first against queue-drop\n\n%s\n\n", from.line())
	if r.Options.Quick {
		b.WriteString("**This is a corner of the study, to show that it works: no result.**\n\n")
	}
	fmt.Fprintf(&b, "%s simulations in virtual time: %d seeds, %d train steps each (at B = %d; fewer of larger batches, more of smaller ones) after a warm-up of %d; S = %d and C = %d where nothing else is said, so that C/S = 16. "+
		"Group n has the same lengths under every rule; ratios are taken seed by seed, and ± is half of Student's 95 %% interval over the seeds. "+
		"Lengths are lognormal with a nominal mean of %d tokens; the train step follows from ρ. Staleness is in versions.\n\n",
		count(r.Simulations), r.Seeds, r.MeasuredSteps, batchPlain, r.WarmupSteps, groupSize, concurrency, meanTokens)
	if r.Seeds < 2 {
		b.WriteString("**One seed is no result: no interval can be given.**\n\n")
	}
	writeClaims(&b, r)
	writeHeadline(&b, r)
	writeTheta(&b, r)
	writeBias(&b, r)
	writeIdeas(&b, r)
	_, err := io.WriteString(w, b.String())
	return err
}

func count(n int) string {
	text := strconv.Itoa(n)
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + " " + text[i:]
	}
	return text
}

// table writes a table of Markdown.
func table(b *strings.Builder, header []string, rows [][]string) {
	line := func(cells []string) { b.WriteString("| " + strings.Join(cells, " | ") + " |\n") }
	line(header)
	b.WriteString(strings.Repeat("|---", len(header)) + "|\n")
	for _, row := range rows {
		line(row)
	}
	b.WriteString("\n")
}

func writeClaims(b *strings.Builder, r HoldResult) {
	b.WriteString("## The printed numbers\n\nA number is confirmed if the whole interval lies within the tolerance that its rounding and its unnamed settings allow, refuted if none of it does, and open otherwise.\n\n")
	var rows [][]string
	for _, c := range r.Claims {
		decimals := 1
		switch c.Unit {
		case "":
			decimals = 4
		case "versions":
			decimals = 3
		}
		printed := fmt.Sprintf("%g", math.Round(c.Printed*1e4)/1e4)
		if c.AtMost {
			printed = "within " + printed
		}
		rows = append(rows, []string{c.Claim, c.Where, strings.TrimSpace(printed + " " + c.Unit), c.Measured.print(decimals), c.Verdict})
	}
	table(b, []string{"claim of theory.md §5", "where", "printed", "measured", "verdict"}, rows)
}

// writeHeadline is the table over ρ, tailness and C/B of the proposed rule.
func writeHeadline(b *strings.Builder, r HoldResult) {
	for _, sync := range gridSync {
		var rows [][]string
		for _, row := range r.Grid {
			if row.Rule != best().Name || row.Cell.SyncShare != sync {
				continue
			}
			rows = append(rows, []string{fmt.Sprint(row.Cell.Load), fmt.Sprint(row.Cell.Tailness), fmt.Sprint(row.Cell.Rho), row.Staleness.print(2),
				row.VersusQ2.Staleness.change(), row.VersusQ1.Staleness.change(), row.VersusQ2.Period.change(), row.VersusQ1.Period.change(), row.Length.print(4), share(row.Wasted)})
		}
		if len(rows) == 0 {
			continue
		}
		fmt.Fprintf(b, "## Newest first, q = 2, θ = 0.3, with a sync of %g of a train step\n\nBeside queue-drop with q = 2 and with q = 1.\n\n", sync)
		table(b, []string{"C/B", "tailness", "ρ", "staleness", "to q 2", "to q 1", "period to q 2", "period to q 1", "trained/sampled length", "tokens wasted"}, rows)
	}
}

func share(e Estimate) string {
	if math.IsNaN(e.Mean) {
		return "–"
	}
	return fmt.Sprintf("%.1f %%", 100*e.Mean)
}

// writeTheta has every rule of the grid, over ρ, at C/B = 2 and tailness 50.
func writeTheta(b *strings.Builder, r HoldResult) {
	b.WriteString("## Every hold, order and capacity\n\nAt C/B 2, tailness 50, no sync: change of staleness to queue-drop q 2, and of the period. The rest of the grid is in hold.csv, which the command writes.\n\n")
	var rhos []float64
	cells := map[string]map[float64]Row{}
	var order []string
	for _, row := range r.Grid {
		if row.Cell.Load != 2 || row.Cell.Tailness != 50 || row.Cell.SyncShare != 0 {
			continue
		}
		if cells[row.Rule] == nil {
			cells[row.Rule] = map[float64]Row{}
			order = append(order, row.Rule)
		}
		cells[row.Rule][row.Cell.Rho] = row
		if !slices.Contains(rhos, row.Cell.Rho) {
			rhos = append(rhos, row.Cell.Rho)
		}
	}
	header := []string{"rule"}
	for _, rho := range rhos {
		header = append(header, fmt.Sprintf("ρ %g", rho))
	}
	var rows [][]string
	for _, rule := range order {
		line := []string{rule}
		for _, rho := range rhos {
			row := cells[rule][rho]
			line = append(line, fmt.Sprintf("%s, T %s", short(row.VersusQ2.Staleness), short(row.VersusQ2.Period)))
		}
		rows = append(rows, line)
	}
	table(b, header, rows)
}

// short is a change without its interval.
func short(e Estimate) string {
	if math.IsNaN(e.Mean) {
		return "–"
	}
	return fmt.Sprintf("%+.1f %%", 100*(e.Mean-1))
}

func writeBias(b *strings.Builder, r HoldResult) {
	b.WriteString("## The limit C/S ≥ 16\n\nTrained over sampled mean length as fewer groups are in flight; C/B 2, tailness 50, S 8.\n\n")
	var rows [][]string
	for _, row := range r.Bias {
		rows = append(rows, []string{fmt.Sprint(row.Cell.Concurrency / row.Cell.GroupSize), fmt.Sprint(row.Cell.Rho), row.Rule, row.Staleness.print(2), row.VersusQ2.Staleness.change(), row.VersusQ2.Period.change(), row.Length.print(4)})
	}
	table(b, []string{"C/S", "ρ", "rule", "staleness", "to q 2", "period to q 2", "trained/sampled length"}, rows)
}

func writeIdeas(b *strings.Builder, r HoldResult) {
	b.WriteString("## What else was tried\n\n")
	var rows [][]string
	for _, idea := range r.Ideas {
		rows = append(rows, []string{idea.Name, idea.Hope, strings.Join(idea.Rules, "; ")})
	}
	table(b, []string{"idea", "what was hoped for", "variants"}, rows)
	fmt.Fprintf(b, "Each as a point in the same cells. * marks the frontier of its cell: none with lengths within %g %% of unbiased is both less stale and as fast.\n\n", 100*biasTolerance)
	for i := 0; i < len(r.IdeaRows); {
		cell := r.IdeaRows[i].Cell
		crowded := ""
		if cell.Crowding > 0 {
			crowded = fmt.Sprintf(", decode speed %g-fold in an empty engine", 1+cell.Crowding)
		}
		fmt.Fprintf(b, "### %s%s\n\n", cell.name(), crowded)
		var rows [][]string
		for ; i < len(r.IdeaRows) && r.IdeaRows[i].Cell == cell; i++ {
			rows = append(rows, ideaRow(r.IdeaRows[i]))
		}
		table(b, []string{"", "rule", "staleness", "to q 2", "to q 1", "p95", "period to q 2", "period to q 1", "tokens wasted", "rollout idle", "trained/sampled length"}, rows)
	}
}

func ideaRow(row Row) []string {
	mark := ""
	if row.Frontier {
		mark = "*"
	}
	if row.Failed != "" {
		return []string{"", row.Rule, "stalls"}
	}
	return []string{mark, row.Rule, row.Staleness.print(2), row.VersusQ2.Staleness.change(), short(row.VersusQ1.Staleness), fmt.Sprintf("%.1f", row.P95.Mean), row.VersusQ2.Period.change(),
		short(row.VersusQ1.Period), share(row.Wasted), share(row.RolloutIdle), row.Length.print(4)}
}

// HoldCSV writes every row of the study, a line each, with the ends of the intervals.
func HoldCSV(w io.Writer, r HoldResult) error {
	out := csv.NewWriter(w)
	header := []string{"part", "rule", "rho", "tailness", "load", "sync_share", "group_size", "concurrency", "crowding", "frontier", "failed"}
	for _, name := range []string{"staleness", "staleness_ratio_q2", "staleness_ratio_q1", "period", "period_ratio_q2", "period_ratio_q1", "length_ratio", "wasted_share", "rollout_idle_ratio", "trainer_idle_ratio", "token_staleness", "p95"} {
		header = append(header, name, name+"_half_95")
	}
	if err := out.Write(header); err != nil {
		return err
	}
	for _, part := range []struct {
		name string
		rows []Row
	}{{"grid", r.Grid}, {"bias", r.Bias}, {"idea", r.IdeaRows}} {
		for _, row := range part.rows {
			c := row.Cell
			line := []string{part.name, row.Rule}
			for _, v := range []float64{c.Rho, c.Tailness, c.Load, c.SyncShare, float64(c.GroupSize), float64(c.Concurrency), c.Crowding} {
				line = append(line, fmt.Sprintf("%g", v))
			}
			line = append(line, fmt.Sprint(row.Frontier), row.Failed)
			for _, e := range []Estimate{row.Staleness, row.VersusQ2.Staleness, row.VersusQ1.Staleness, row.Period, row.VersusQ2.Period, row.VersusQ1.Period,
				row.Length, row.Wasted, row.RolloutIdle, row.TrainerIdle, row.TokenStaleness, row.P95} {
				line = append(line, number(e.Mean), number(e.Half))
			}
			if err := out.Write(line); err != nil {
				return err
			}
		}
	}
	out.Flush()
	return out.Error()
}

// number leaves out what is not known.
func number(v float64) string {
	if math.IsNaN(v) || math.IsInf(v, 0) {
		return ""
	}
	return strconv.FormatFloat(v, 'f', 5, 64)
}
