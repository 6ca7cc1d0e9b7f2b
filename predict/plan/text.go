package plan

import (
	"fmt"
	"io"
	"strings"
	"unicode"
	"unicode/utf8"

	"github.com/headway-rl/headway/observe/report"
)

// columns is how wide a plan is printed.
const columns = 98

// frontierRows is how many of the frontier's settings a terminal shows.
const frontierRows = 10

// Text prints the plan for a terminal of 100 columns.
func (p *Plan) Text(w io.Writer) error {
	var b strings.Builder
	p.head(&b)
	p.chosen(&b)
	for _, why := range p.Why {
		paragraph(&b, "  ", why)
	}
	for _, short := range p.Shortfall {
		paragraph(&b, "  ! ", short.Text)
	}
	b.WriteString("\n")
	p.sides(&b)
	p.bindingTable(&b)
	p.leverTable(&b)
	p.frontierTable(&b)
	p.advice(&b)
	p.foundations(&b)
	_, err := io.WriteString(w, b.String())
	return err
}

// head says what was understood.
func (p *Plan) head(b *strings.Builder) {
	m, l := &p.Machine, &p.Workload
	what := []string{fmt.Sprintf("%d GPUs", m.GPUs)}
	if m.GPU != "" {
		what[0] = fmt.Sprintf("%d × %s", m.GPUs, m.GPU)
	}
	if m.Model != "" {
		what = append([]string{m.Model}, what...)
	}
	what = append(what, fmt.Sprintf("mean %.0f tokens, longest %d, M %.2f", l.MeanTokens, l.CapTokens, l.TailMultiplier), fmt.Sprintf("groups of %d", l.GroupSize))
	paragraph(b, "", strings.Join(what, " · "))
	paragraph(b, "", "budget: "+p.budgetText())
	if p.Assumed != "" {
		paragraph(b, "! ", capital(p.Assumed)+".")
	}
	b.WriteString("\n")
}

// budgetText lists the bounds.
func (p *Plan) budgetText() string {
	var parts []string
	add := func(set bool, text string, value any) {
		if set {
			parts = append(parts, fmt.Sprintf(text, value))
		}
	}
	add(p.Budget.StalenessMean > 0, "mean staleness ≤ %v", plain(p.Budget.StalenessMean))
	add(p.Budget.StalenessP95 > 0, "p95 of staleness ≤ %v", p.Budget.StalenessP95)
	add(p.Budget.StepS > 0, "an update every %v s", plain(p.Budget.StepS))
	add(p.Budget.CostPerStep > 0, "cost of a step ≤ %v", plain(p.Budget.CostPerStep))
	add(p.Budget.WasteShare > 0, "waste ≤ %v", report.Share(p.Budget.WasteShare))
	add(p.Budget.LengthBias > 0, "length bias ≤ %v", report.Share(p.Budget.LengthBias))
	if len(parts) == 0 {
		parts = append(parts, "none: everything is allowed")
	}
	return strings.Join(parts, ", ")
}

// chosen prints the recommended setting with both answers.
func (p *Plan) chosen(b *strings.Builder) {
	c := &p.Recommended
	title := "Recommended"
	if !p.Met {
		title = "NO SETTING KEEPS THE BUDGET; the closest"
	}
	fmt.Fprintf(b, "%s: %d rollout + %d train GPUs, batch %d, %s\n", title, c.RolloutGPUs, c.TrainGPUs, c.BatchRollouts, c.Rule())
	line := fmt.Sprintf("C %d (%d replicas × %d slots)", c.ConcurrencyRollouts, c.Replicas, c.SlotsPerReplica)
	if c.QueueFactor > 0 {
		line += fmt.Sprintf(" · q %s", plain(c.QueueFactor))
	}
	line += fmt.Sprintf(" · sync every %d (%s s)", c.SyncEvery, number(c.SyncS))
	paragraph(b, "  ", line)
	table := p.figuresTable()
	table.Title = ""
	for i := range table.Rows {
		table.Rows[i][0] = "  " + table.Rows[i][0]
	}
	b.WriteString(table.String() + "\n")
}

// priced reports whether anything has a price.
func (p *Plan) priced() bool { return p.Recommended.Best().CostPerStep > 0 }

// span prints an interval.
func span(i [2]float64, decimals int) string {
	return report.Figure(i[0], decimals) + " to " + report.Figure(i[1], decimals)
}

// sides prints the alternatives.
func (p *Plan) sides(b *strings.Builder) {
	if len(p.Alternatives) == 0 {
		return
	}
	b.WriteString("Alternatives\n")
	for _, a := range p.Alternatives {
		paragraph(b, "  ", fmt.Sprintf("%s: %s, by %d + %d GPUs, batch %d, %s slots a replica, q %s, %s.", a.Name, a.Text, a.RolloutGPUs, a.TrainGPUs, a.BatchRollouts,
			fmt.Sprint(a.SlotsPerReplica), a.queueText(), a.Rule()))
	}
	b.WriteString("\n")
}

// bindingTable prints what each constraint costs.
func (p *Plan) bindingTable(b *strings.Builder) {
	table := report.Table{Title: p.bindingTitle(), Header: []string{"constraint", "relaxed", "update", "then"}}
	for _, c := range p.Binding {
		effect := "–"
		if c.Binds {
			effect = fmt.Sprintf("-%.1f %%", 100*(1-c.ObjectiveRatio))
		}
		table.Rows = append(table.Rows, []string{"  " + shorten(c.Bound, 32), shorten(c.Relaxed, 16), effect, shorten(c.To, 34)})
	}
	if len(table.Rows) > 0 {
		b.WriteString(table.String() + "\n")
	}
}

// leverTable prints what single changes would do.
func (p *Plan) leverTable(b *strings.Builder) {
	if len(p.Levers) == 0 {
		return
	}
	header := []string{"lever", "staleness", "p95", "period ×", "update ×"}
	if p.priced() {
		header = append(header, "cost ×")
	}
	table := report.Table{Title: "Levers from there, " + p.Levers[0].Basis, Header: append(header, "budget")}
	for _, l := range p.Levers {
		row := []string{"  " + shorten(l.Change, 36), report.Figure(l.StalenessMean, 2), fmt.Sprint(l.StalenessP95), report.Figure(l.PeriodRatio, 2), report.Figure(l.UpdateRatio, 2)}
		if p.priced() {
			row = append(row, report.Figure(l.CostRatio, 2))
		}
		table.Rows = append(table.Rows, append(row, l.keeping()))
	}
	b.WriteString(table.String())
	for _, text := range p.leversHold() {
		paragraph(b, "  ", text)
	}
	b.WriteString("\n")
}

// frontierTable prints settings that no other beats in both staleness and time.
func (p *Plan) frontierTable(b *strings.Builder) {
	table := report.Table{Title: "Frontier (closed form): nothing ranked is both fresher and faster",
		Header: []string{"GPUs", "batch", "q", "slots", "sync", "ρ", "staleness", "p95", "t, s", "update, s", "dropped"}}
	if p.priced() {
		table.Header = append(table.Header, "cost/step")
	}
	indices := make([]int, len(p.Frontier))
	for i := range indices {
		indices[i] = i
	}
	for _, i := range spread(indices, frontierRows) {
		c := &p.Frontier[i]
		f := c.Predicted
		row := []string{fmt.Sprintf("  %d+%d", c.RolloutGPUs, c.TrainGPUs), fmt.Sprint(c.BatchRollouts), plain(c.QueueFactor), fmt.Sprint(c.SlotsPerReplica), fmt.Sprint(c.SyncEvery),
			report.Figure(f.Utilization, 2), report.Figure(f.StalenessMean, 2), fmt.Sprint(f.StalenessP95), report.Figure(f.PeriodS, 1), report.Figure(f.UpdateS, 3), report.Share(f.WasteShare)}
		if p.priced() {
			row = append(row, report.Figure(f.CostPerStep, 2))
		}
		table.Rows = append(table.Rows, row)
	}
	if len(table.Rows) > 0 {
		b.WriteString(table.String() + "\n")
	}
}

// advice prints the verdicts and the rules of thumb.
func (p *Plan) advice(b *strings.Builder) {
	for _, text := range p.adviceText() {
		paragraph(b, "", text)
	}
	b.WriteString("\nRules of thumb\n")
	for _, text := range p.findingsText() {
		paragraph(b, "  ", text)
	}
	b.WriteString("\n")
}

// foundations prints what the figures rest on.
func (p *Plan) foundations(b *strings.Builder) {
	for _, text := range p.foundationsText() {
		paragraph(b, "", text)
	}
	for _, n := range p.Machine.Notes {
		paragraph(b, "  - ", n+".")
	}
	for _, n := range p.Warnings {
		paragraph(b, "  ! ", n+".")
	}
}

// paragraph prints text wrapped, its later lines indented like the first.
func paragraph(b *strings.Builder, indent, text string) {
	blank := strings.Repeat(" ", utf8.RuneCountInString(indent))
	line, used := indent, utf8.RuneCountInString(indent)
	for _, word := range strings.Fields(text) {
		n := utf8.RuneCountInString(word)
		if used+n > columns && strings.TrimSpace(line) != "" {
			b.WriteString(strings.TrimRight(line, " ") + "\n")
			line, used = blank, len(blank)
		}
		line += word + " "
		used += n + 1
	}
	b.WriteString(strings.TrimRight(line, " ") + "\n")
}

// shorten cuts a cell to so many characters.
func shorten(text string, most int) string {
	if utf8.RuneCountInString(text) <= most {
		return text
	}
	return string([]rune(text)[:most-1]) + "…"
}

// capital begins a sentence.
func capital(text string) string {
	first, size := utf8.DecodeRuneInString(text)
	if !unicode.IsLower(first) || unicode.Is(unicode.Greek, first) { // β is a name
		return text
	}
	return string(unicode.ToUpper(first)) + text[size:]
}
