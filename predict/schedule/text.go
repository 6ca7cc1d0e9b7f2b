package schedule

import (
	"fmt"
	"io"
	"strings"

	"github.com/headway-rl/headway/observe/report"
)

// Text prints the comparison for a terminal of that many columns; 0 means 100.
func Text(w io.Writer, c Comparison, columns int) error {
	if columns <= 0 {
		columns = 100
	}
	parts := []string{report.Indented("", c.Conclusion.Text, columns), stepsTable(c).Fit(columns), partsTable(c).Fit(columns), gainTable(c).Fit(columns), ganttText(c, min(columns, 160))}
	var findings strings.Builder
	for _, text := range c.Findings {
		findings.WriteString(report.Indented("", text, columns))
	}
	if findings.Len() > 0 {
		parts = append(parts, findings.String())
	}
	_, err := io.WriteString(w, strings.Join(parts, "\n"))
	return err
}

// stepsTable sets the schedules side by side.
func stepsTable(c Comparison) report.Table {
	t := report.Table{
		Title:  "Schedules, simulated through the loop; staleness in batches, clipped: predicted share of tokens, idle: the trainer",
		Header: []string{"schedule", "GPUs", "s a batch", "closed form", "speed-up", "tokens/s", "staleness", "p95", "clipped", "slots busy", "idle", "dropped"},
	}
	for _, r := range c.Rows {
		if r.Refused != "" {
			t.Rows = append(t.Rows, []string{string(r.Name), gpus(r), "–"})
			continue
		}
		clip := "–"
		if v, ok := r.ClipFraction.Value(); ok {
			clip = percent(v)
		}
		t.Rows = append(t.Rows, []string{string(r.Name), gpus(r), seconds(r.Parts.StepS), seconds(r.ClosedS), ratio(r.Speedup),
			report.Count(int64(r.TokensPerS)), overBudget(r), report.Figure(r.StalenessP95, 2), clip,
			percent(r.SlotsBusy), percent(r.TrainerIdle), percent(r.WasteShare)})
	}
	return t
}

// overBudget is the mean staleness, marked where it is more than the budget.
func overBudget(r Row) string {
	if r.OverBudget {
		return "over budget " + report.Figure(r.StalenessMean, 2)
	}
	return report.Figure(r.StalenessMean, 2)
}

// gpus is where a schedule runs.
func gpus(r Row) string {
	if r.Shared {
		return fmt.Sprintf("%d shared", r.RolloutGPUs)
	}
	return fmt.Sprintf("%d:%d", r.RolloutGPUs, r.TrainGPUs)
}

// partsTable says what each step is made of.
func partsTable(c Comparison) report.Table {
	t := report.Table{
		Title:  "What a batch's time is made of, in seconds: the parts less the overlaps are the step",
		Header: []string{"schedule", "work", "dropped", "tail", "log-probs", "update", "sync", "idle", "overlap", "of syncs", "step"},
	}
	for _, r := range c.Rows {
		if r.Refused != "" {
			continue
		}
		p := r.Parts
		row := []string{string(r.Name)}
		for _, v := range []float64{p.WorkS, p.WasteS, p.TailS, p.LogProbS, p.TrainS, p.SyncS, p.IdleS, -p.OverlapS, -p.SyncOverlapS} {
			row = append(row, partly(v))
		}
		t.Rows = append(t.Rows, append(row, seconds(p.StepS)))
	}
	return t
}

// partly prints a part, a dash for none of it.
func partly(s float64) string {
	if s < 0.005 && s > -0.005 {
		return "–"
	}
	return seconds(s)
}

// gainTable says which effect gives the gain.
func gainTable(c Comparison) report.Table {
	t := report.Table{Title: "What is gained over the synchronous schedule on shared GPUs, in seconds a batch", Header: []string{"effect"}}
	for _, e := range c.Rows[0].Gain {
		t.Rows = append(t.Rows, []string{e.Name})
	}
	all := []string{"in all"}
	for _, r := range c.Rows[1:] {
		if r.Refused != "" {
			continue
		}
		t.Header = append(t.Header, string(r.Name))
		sum := 0.0
		for i, e := range r.Gain {
			text := partly(e.S)
			if e.S >= 0.005 {
				text = "+" + text
			}
			t.Rows[i] = append(t.Rows[i], text)
			sum += e.S
		}
		all = append(all, signed(sum))
	}
	t.Rows = append(t.Rows, all)
	return t
}

// levels draw a share of a cell, from nothing to all of it.
var levels = []rune(" ▁▂▃▄▅▆▇█")

// ganttText draws what was busy in characters, every schedule on the same scale of time.
func ganttText(c Comparison, columns int) string {
	const label = 24
	width := max(columns-label, 20)
	longest := 0.0
	for _, r := range c.Rows {
		longest = max(longest, float64(r.Gantt.Cells)*r.Gantt.CellS)
	}
	if longest == 0 {
		return ""
	}
	var text strings.Builder
	fmt.Fprintf(&text, "As many batches of each, %s s a column: the shorter, the faster\nengines: the share of slots busy\n", seconds(longest/float64(width)))
	for _, r := range c.Rows {
		g := r.Gantt
		if g.Cells == 0 || g.CellS == 0 {
			continue
		}
		for i, lane := range []struct {
			name  string
			share []float64
		}{{"engines", g.Engines}, {"trainer", g.Trainer}, {"sync", g.Sync}} {
			name := ""
			if i == 0 {
				name = string(r.Name)
			}
			fmt.Fprintf(&text, "%s\n", strings.TrimRight(fmt.Sprintf("%-14s%-9s|%s", name, lane.name, bar(lane.share, g.CellS, longest/float64(width))), " "))
		}
	}
	return text.String()
}

// bar draws the shares of cells of one width in columns of another.
func bar(share []float64, cellS, columnS float64) string {
	n := int(float64(len(share)) * cellS / columnS)
	var text strings.Builder
	for k := range n {
		a, b := float64(k)*columnS/cellS, float64(k+1)*columnS/cellS
		sum, weight := 0.0, 0.0
		for i := int(a); i < len(share) && float64(i) < b; i++ {
			part := min(b, float64(i+1)) - max(a, float64(i))
			sum, weight = sum+part*share[i], weight+part
		}
		level := 0
		if weight > 0 && sum > 0 {
			level = min(max(int(sum/weight*float64(len(levels)-1)+0.5), 1), len(levels)-1)
		}
		text.WriteRune(levels[level])
	}
	return text.String()
}
