package report

import (
	"fmt"

	"github.com/headway-rl/headway/observe/bias"
)

// biasTables are the comparisons of a bias report: properties of rollouts, then
// shares of categories.
func biasTables(r *bias.Report) []Table {
	if r == nil {
		return nil
	}
	properties := Table{Title: "Trained against started", Header: []string{"", "started", "trained", "ratio", "95 %", "p of the distributions", "found"}}
	for _, p := range []*bias.Property{r.Length, r.Environment} {
		if p == nil {
			continue
		}
		properties.Rows = append(properties.Rows, []string{p.Name + ", mean " + p.Unit, Figure(p.StartedMean, decimals(p.StartedMean)), Figure(p.TrainedMean, decimals(p.StartedMean)),
			Figure(p.Ratio, 3), interval(p.Ratio95, 3), probability(p.P), found(p.Found)})
	}
	if o := r.Order; o != nil {
		ends, trend := "–", "none"
		if o.Slope95 != [2]float64{} {
			ends = signed(o.Slope95[0]) + " to " + signed(o.Slope95[1])
		}
		if o.Found {
			trend = "trend"
		}
		properties.Rows = append(properties.Rows, []string{"length, from first to last of a batch", "", "", signed(o.Slope), ends, "", trend})
	}
	tables := []Table{properties}
	for _, c := range []*bias.Categories{r.Level, r.SolveRate, r.Prompt} {
		if c == nil || len(c.Cells) == 0 || c == r.Prompt && !c.Found {
			continue
		}
		t := Table{Title: "Groups by " + c.Name, Header: []string{c.Name, "started", "trained", "share trained"}}
		if c.Freedom > 0 {
			t.Title += fmt.Sprintf(": chi-square %s, degrees of freedom %d, p %s", Figure(c.ChiSquare, 1), c.Freedom, probability(c.P))
		}
		if c == r.Prompt {
			t.Title += "; those trained least"
		}
		for _, cell := range c.Cells {
			if cell.Started == 0 && cell.Trained == 0 {
				continue
			}
			t.Rows = append(t.Rows, []string{cell.Name, Count(cell.Started), Count(cell.Trained), Share(cell.TrainedShare)})
		}
		tables = append(tables, t)
	}
	return tables
}

// decimals that a mean of this size deserves.
func decimals(mean float64) int {
	switch {
	case mean >= 100:
		return 1
	case mean >= 1:
		return 2
	}
	return 4
}

func interval(ends [2]float64, digits int) string {
	if ends == [2]float64{} {
		return "–"
	}
	return Figure(ends[0], digits) + " to " + Figure(ends[1], digits)
}

func probability(p float64) string {
	if p < 0.001 {
		return "<0.001"
	}
	return Figure(p, 3)
}

func found(yes bool) string {
	if yes {
		return "bias"
	}
	return "none"
}

func signed(share float64) string {
	if share > 0 {
		return "+" + Share(share)
	}
	return Share(share)
}

// biasPlots are the pictures of a bias report.
func biasPlots(r *bias.Report) []Plot {
	if r == nil {
		return nil
	}
	var plots []Plot
	for _, p := range []*bias.Property{r.Length, r.Environment} {
		if p == nil || len(p.Histogram) < 2 {
			continue
		}
		id := "bias-length"
		if p == r.Environment {
			id = "bias-environment"
		}
		start, train := Series{Name: "started"}, Series{Name: "trained"}
		below, belowTrained := 0.0, 0.0
		for _, bin := range p.Histogram { // what is below a bin's low
			start.X, start.Y = append(start.X, bin.Low), append(start.Y, below)
			train.X, train.Y = append(train.X, bin.Low), append(train.Y, belowTrained)
			below += bin.Started
			belowTrained += bin.Trained
		}
		end := p.Histogram[len(p.Histogram)-1].Low*2 - p.Histogram[len(p.Histogram)-2].Low
		start.X, start.Y = append(start.X, end), append(start.Y, below)
		train.X, train.Y = append(train.X, end), append(train.Y, belowTrained)
		plots = append(plots, Plot{ID: id, Title: "Started and trained, by " + p.Name, XLabel: p.Name + " in " + p.Unit, YLabel: "share of rollouts below", YMax: 1.02,
			Series: []Series{start, train}, Description: p.Conclusion + "."})
	}
	if o := r.Order; o != nil {
		s := Series{Name: "mean length"}
		for i, mean := range o.MeanTokens {
			s.X, s.Y = append(s.X, (float64(i)+0.5)/float64(len(o.MeanTokens))), append(s.Y, mean)
		}
		plots = append(plots, Plot{ID: "bias-order", Title: "Length by place in the batch", XLabel: "place in the batch: 0 is selected first", YLabel: "tokens",
			Series: []Series{s}, Description: o.Conclusion + "."})
	}
	return plots
}
