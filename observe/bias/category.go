package bias

import (
	"cmp"
	"fmt"
	"math"
	"slices"
)

// listed is how many prompts are named.
const listed = 10

// compare tests the cells; nil if no group was counted.
func compare(name string, cells []share) *Categories {
	c := &Categories{Name: name}
	for _, cell := range cells {
		if cell.started == 0 {
			continue
		}
		c.Categories++
		if cell.trained == 0 {
			c.NeverTrained++
		}
	}
	if c.Categories == 0 {
		return nil
	}
	c.ChiSquare, c.Freedom, c.PooledCells, c.P = homogeneity(cells)
	return c
}

func (s share) cell(name string) Cell {
	return Cell{name, s.started, s.trained, float64(s.trained) / math.Max(float64(s.started), 1)}
}

// promptCategories names the prompts trained least for how often they were started.
func (o *Observer) promptCategories() *Categories {
	c := compare("prompt", o.prompts)
	if c == nil {
		return nil
	}
	var all share
	for _, s := range o.prompts {
		all.started += s.started
		all.trained += s.trained
	}
	rate := float64(all.trained) / float64(all.started)
	z := func(s share) float64 { // how far from its expectation, in standard deviations
		return (float64(s.trained) - rate*float64(s.started)) / math.Sqrt(math.Max(rate*(1-rate)*float64(s.started), 1e-300))
	}
	var starved []int
	for i, s := range o.prompts {
		if s.started > 0 && float64(s.trained) < rate*float64(s.started) {
			starved = append(starved, i)
		}
	}
	slices.SortStableFunc(starved, func(a, b int) int { return cmp.Compare(z(o.prompts[a]), z(o.prompts[b])) })
	for _, i := range starved[:min(len(starved), listed)] {
		c.Cells = append(c.Cells, o.prompts[i].cell(fmt.Sprint(i+1)))
	}
	c.judge("prompts")
	if c.Found && len(c.Cells) > 0 {
		worst := c.Cells[0]
		c.Conclusion += fmt.Sprintf("; prompt %s most: %d of its %d groups trained, %s of all", worst.Name, worst.Trained, worst.Started, percent(rate))
	}
	return c
}

func (o *Observer) levelCategories() *Categories {
	c := compare("level", o.levels)
	if c == nil {
		return nil
	}
	var sum, n [2]float64
	for i, s := range o.levels {
		c.Cells = append(c.Cells, s.cell(fmt.Sprint(i+1)))
		for k, count := range [2]int64{s.started, s.trained} {
			sum[k] += float64(i+1) * float64(count)
			n[k] += float64(count)
		}
	}
	if n[trained] > 0 {
		c.Ratio = sum[trained] / n[trained] / (sum[started] / n[started])
	}
	c.judge("levels")
	return c
}

func (o *Observer) solveCategories() *Categories {
	c := compare("solve rate", o.solved)
	if c == nil || o.solvedSum[started] == 0 {
		return nil // nothing says what is solved
	}
	var all share
	for i, s := range o.solved {
		name := fmt.Sprintf("above %.1f to %.1f", float64(i-1)/10, float64(i)/10)
		switch i {
		case 0:
			name = "0"
		case solveCells - 2:
			name = "above 0.8, not all"
		case solveCells - 1:
			name = "1"
		}
		c.Cells = append(c.Cells, s.cell(name))
		all.started += s.started
		all.trained += s.trained
	}
	if all.trained > 0 {
		c.Ratio = o.solvedSum[trained] / float64(all.trained) / (o.solvedSum[started] / float64(all.started))
	}
	c.judge("solve rates")
	return c
}

// orderOf compares length with the position in the batch.
func (o *Observer) orderOf(parts []block) *Order {
	var all moments
	for i := range parts {
		all.scale(&parts[i].order, 1)
	}
	if o.batch < 2 || all.n < 2 || all.y == 0 {
		return nil
	}
	r := &Order{Groups: int64(all.n), Slope: all.slope()}
	if c := all.correlation(); !math.IsNaN(c) {
		r.Correlation = c
	}
	if slope, half := jackknife(parts, func(b *block) float64 { return b.order.slope() }); !math.IsNaN(half) {
		r.Slope95 = [2]float64{slope - half, slope + half}
	}
	for _, at := range o.order[:min(positions, o.batch)] {
		mean := 0.0
		if at.trained > 0 {
			mean = at.trainedX / float64(at.trained)
		}
		r.MeanTokens = append(r.MeanTokens, mean)
	}
	r.judge()
	return r
}
