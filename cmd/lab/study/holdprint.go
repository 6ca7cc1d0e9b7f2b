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
	writeFresh(&b, r)
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
	b.WriteString("## The printed numbers\n\nA number is confirmed if the whole interval lies within the tolerance that its rounding and its unnamed settings allow, refuted if none of it does, and open otherwise.\n\n" +
		"Newest first, q = 2, θ = 0.3 against queue-drop, q = 2, at C/B 2, S 8. The theory names no tailness.\n\n")
	for _, name := range []string{claimStaleness, claimPeriod, claimLength} {
		writePivot(b, r, name)
	}
	var rows [][]string
	for _, c := range r.Claims {
		if c.Claim == claimStaleness || c.Claim == claimPeriod || c.Claim == claimLength {
			continue
		}
		decimals := 1
		if c.Unit == "versions" {
			decimals = 3
		}
		rows = append(rows, []string{c.Claim, c.Where, strings.TrimSpace(c.printed() + " " + c.Unit), c.Measured.print(decimals), c.Verdict})
	}
	table(b, []string{"reference figure", "where", "printed", "measured", "verdict"}, rows)
}

// printed is the reference.
func (c Claim) printed() string {
	text := fmt.Sprintf("%g", math.Round(c.Printed*1e4)/1e4)
	if c.AtMost {
		return "within " + text
	}
	return text
}

// writePivot prints a claim of the first sentence, over ρ and tailness.
func writePivot(b *strings.Builder, r HoldResult, name string) {
	header := []string{"ρ", name + ", printed"}
	for _, tailness := range gridTailness {
		header = append(header, fmt.Sprintf("tailness %g", tailness))
	}
	decimals := 1
	if name == claimLength {
		decimals = 4
	}
	var rows [][]string
	for _, rho := range gridRho {
		row := []string{fmt.Sprint(rho), ""}
		sum, n := 0.0, 0
		for _, tailness := range gridTailness {
			cell := "–"
			for _, c := range r.Claims {
				if c.Claim == name && c.Cell.Rho == rho && c.Cell.Tailness == tailness {
					row[1] = strings.TrimSpace(c.printed() + " " + c.Unit)
					cell = c.Measured.print(decimals) + ", " + c.Verdict
					sum += c.Measured.Mean
					n++
				}
			}
			row = append(row, cell)
		}
		if n > 0 {
			rows = append(rows, append(row, fmt.Sprintf("%.*f", decimals, sum/float64(n))))
		}
	}
	table(b, append(header, "mean"), rows)
}

// writeHeadline is the table over ρ, tailness and C/B of the proposed rule, and of
// the best of what was tried besides.
func writeHeadline(b *strings.Builder, r HoldResult) {
	for _, rule := range []struct{ name, title string }{{best().Name, "Newest first, q = 2, θ = 0.3"}, {paused().Name, "The same, opening nothing while 1.25 batches wait"}} {
		for _, sync := range gridSync {
			var rows [][]string
			for _, row := range r.Grid {
				if row.Rule != rule.name || row.Cell.SyncShare != sync {
					continue
				}
				rows = append(rows, []string{fmt.Sprint(row.Cell.Load), fmt.Sprint(row.Cell.Tailness), fmt.Sprint(row.Cell.Rho), row.Staleness.print(2),
					row.VersusQ2.Staleness.change(), row.VersusQ1.Staleness.change(), row.VersusQ2.Period.change(), row.VersusQ1.Period.change(), row.Length.print(4), share(row.Wasted)})
			}
			if len(rows) == 0 {
				continue
			}
			fmt.Fprintf(b, "## %s, with a sync of %g of a train step\n\nBeside queue-drop with q = 2 and with q = 1.\n\n", rule.title, sync)
			table(b, []string{"C/B", "tailness", "ρ", "staleness", "to q 2", "to q 1", "period to q 2", "period to q 1", "trained/started length", "tokens wasted"}, rows)
		}
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
	b.WriteString("## The limit C/S ≥ 16\n\nTrained over started mean length as fewer groups are in flight; C/B 2, tailness 50, S 8.\n\n")
	var rows [][]string
	for _, row := range r.Bias {
		rows = append(rows, []string{fmt.Sprint(row.Cell.Concurrency / row.Cell.GroupSize), fmt.Sprint(row.Cell.Rho), row.Rule, row.Staleness.print(2), row.VersusQ2.Staleness.change(), row.VersusQ2.Period.change(), row.Length.print(4)})
	}
	table(b, []string{"C/S", "ρ", "rule", "staleness", "to q 2", "period to q 2", "trained/started length"}, rows)
}

func writeFresh(b *strings.Builder, r HoldResult) {
	b.WriteString("## Newest first selects lengths; a random choice among fresh groups does not\n\n" +
		"Groups that open at a switch become ready after a time that is their generation time modulo the period: whoever takes the newest then selects by it. " +
		"`select: fresh` draws the batch at random among the groups ready since the batch before: " +
		"all of them are trained from the same version, so that their order within the period buys little. Queue-drop with q 2 throughout; staleness is a change to oldest first without a hold.\n\n")
	var rows [][]string
	for _, row := range r.Fresh {
		rows = append(rows, []string{fmt.Sprint(row.Cell.SyncShare), fmt.Sprint(row.Cell.Load), fmt.Sprint(row.Cell.Tailness), fmt.Sprint(row.Cell.Rho), fmt.Sprint(row.Hold),
			row.Newest.change(), row.NewestLength.print(4), row.Fresh.change(), row.FreshLength.print(4), row.Period.change(), row.Wasted.print(2)})
	}
	table(b, []string{"sync", "C/B", "tailness", "ρ", "hold", "newest: staleness", "length ratio", "fresh: staleness", "length ratio", "period", "wasted"}, rows)
}

func writeIdeas(b *strings.Builder, r HoldResult) {
	b.WriteString("## What else was tried\n\n")
	var rows [][]string
	for _, idea := range r.Ideas {
		rows = append(rows, []string{idea.Name, idea.Hope, strings.Join(idea.Rules, "; "), fmt.Sprint(idea.Better)})
	}
	table(b, []string{"idea", "what was hoped for", "variants", "cells on the frontier"}, rows)
	fmt.Fprintf(b, "Every variant as a point: change of staleness and of the period to queue-drop q 2, and the share of tokens wasted. "+
		"* marks the frontier of its column: none with lengths within %g %% of unbiased is as fresh and as fast and clearly better in one of them. † marks lengths further than that from unbiased. "+
		"hold-ideas.md has each with its intervals, beside queue-drop q 1 too, with lengths and idle slots.\n\n", 100*biasTolerance)
	for _, view := range ideaViews(r) {
		writeIdeaMatrix(b, r, view)
	}
}

// ideaView is a table of ideas: all cells that differ in ρ alone.
type ideaView struct {
	cell Cell // its ρ does not count
	rhos []float64
}

// ideaViews are in the order of the rows.
func ideaViews(r HoldResult) []ideaView {
	var views []ideaView
	for _, row := range r.IdeaRows {
		cell := row.Cell
		cell.Rho = 0
		i := slices.IndexFunc(views, func(v ideaView) bool { return v.cell == cell })
		if i < 0 {
			views = append(views, ideaView{cell: cell})
			i = len(views) - 1
		}
		if !slices.Contains(views[i].rhos, row.Cell.Rho) {
			views[i].rhos = append(views[i].rhos, row.Cell.Rho)
		}
	}
	return views
}

// crowded says what is special about a cell's engines.
func (c Cell) crowded() string {
	if c.Crowding == 0 {
		return ""
	}
	return fmt.Sprintf(", an engine's slots up to %g times as fast when few generate", 1+c.Crowding)
}

func writeIdeaMatrix(b *strings.Builder, r HoldResult, v ideaView) {
	fmt.Fprintf(b, "### Tailness %g, C/B %g, S %d%s\n\n", v.cell.Tailness, v.cell.Load, v.cell.GroupSize, v.cell.crowded())
	header := []string{"rule"}
	var order []string
	text := map[string][]string{}
	for k, rho := range v.rhos {
		header = append(header, fmt.Sprintf("ρ %g", rho))
		for _, row := range r.IdeaRows {
			cell := row.Cell
			cell.Rho = 0
			if cell != v.cell || row.Cell.Rho != rho {
				continue
			}
			if text[row.Rule] == nil {
				order = append(order, row.Rule)
				text[row.Rule] = make([]string, len(v.rhos))
			}
			text[row.Rule][k] = row.brief()
		}
	}
	var rows [][]string
	for _, rule := range order {
		rows = append(rows, append([]string{rule}, text[rule]...))
	}
	table(b, header, rows)
}

// brief is an idea's point in a cell of a table.
func (row Row) brief() string {
	if row.Failed != "" {
		return "stalls"
	}
	mark := ""
	if math.Abs(row.Length.Mean-1) > biasTolerance {
		mark = "†"
	}
	if row.Frontier {
		mark = "*"
	}
	return fmt.Sprintf("%s, T %s, w %.0f %%%s", short(row.VersusQ2.Staleness), short(row.VersusQ2.Period), 100*row.Wasted.Mean, mark)
}

// IdeasMarkdown prints every idea in every cell with intervals.
func IdeasMarkdown(w io.Writer, r HoldResult, from Provenance) error {
	var b strings.Builder
	fmt.Fprintf(&b, "# What was tried besides hold and newest first\n\n%s See hold.md for what the rules are. * marks the frontier of its cell.\n\n", from.line())
	for i := 0; i < len(r.IdeaRows); {
		cell := r.IdeaRows[i].Cell
		fmt.Fprintf(&b, "## %s%s\n\n", cell.name(), cell.crowded())
		var rows [][]string
		for ; i < len(r.IdeaRows) && r.IdeaRows[i].Cell == cell; i++ {
			rows = append(rows, ideaRow(r.IdeaRows[i]))
		}
		table(&b, []string{"", "rule", "staleness", "to q 2", "to q 1", "p95", "period to q 2", "period to q 1", "tokens wasted", "rollout idle", "trained/started length"}, rows)
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func ideaRow(row Row) []string {
	mark := ""
	if row.Frontier {
		mark = "*"
	}
	if row.Failed != "" {
		return []string{"", row.Rule, "stalls"}
	}
	return []string{mark, row.Rule, row.Staleness.print(2), row.VersusQ2.Staleness.change(), row.VersusQ1.Staleness.change(), fmt.Sprintf("%.1f", row.P95.Mean), row.VersusQ2.Period.change(),
		row.VersusQ1.Period.change(), share(row.Wasted), share(row.RolloutIdle), row.Length.print(4)}
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
