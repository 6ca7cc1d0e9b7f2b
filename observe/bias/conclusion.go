package bias

import (
	"fmt"
	"math"
	"strconv"
)

// Confidence of every test, and below which a difference that is there is called negligible.
const (
	significance = 0.05
	negligible   = 0.005
)

// judge says in words what the comparison found.
func (p *Property) judge() {
	interval := fmt.Sprintf("ratio %.3f, 95 %% interval [%.3f, %.3f]", p.Ratio, p.Ratio95[0], p.Ratio95[1])
	differs := p.Ratio95 != [2]float64{} && (p.Ratio95[0] > 1 || p.Ratio95[1] < 1)
	shape := p.P < significance
	p.Found = differs || shape
	switch {
	case p.Trained == 0:
		p.Conclusion = fmt.Sprintf("%s: nothing was trained", p.Name)
	case p.Ratio95 == [2]float64{}:
		p.Conclusion = fmt.Sprintf("%s: ratio %.3f over too few train steps for an interval", p.Name, p.Ratio)
		if shape {
			p.Conclusion += fmt.Sprintf("; the distributions differ (p = %.2g)", p.P)
		}
	case !differs && !shape:
		p.Conclusion = fmt.Sprintf("no %s bias found: %s", p.Name, interval)
	case !differs:
		p.Conclusion = fmt.Sprintf("%s: the means agree (%s), the distributions differ (p = %.2g, largest difference %s)", p.Name, interval, p.P, percent(p.Distance))
	case math.Abs(p.Ratio-1) < negligible:
		p.Conclusion = fmt.Sprintf("%s: a bias below %s, %s", p.Name, percent(negligible), interval)
	default:
		p.Conclusion = p.difference()
	}
}

// difference says how much trained and started differ.
func (p *Property) difference() string {
	what, more, less := "trained responses are", "longer", "shorter"
	if p.Unit != "tokens" {
		what = "the " + p.Name + " of trained rollouts is"
	}
	low, high := math.Abs(p.Ratio95[0]-1), math.Abs(p.Ratio95[1]-1)
	word := more
	if p.Ratio < 1 {
		word, low, high = less, high, low
	}
	return fmt.Sprintf("%s %s %s than started (95 %%: %s to %s)", what, percent(math.Abs(p.Ratio-1)), word, percent(low), percent(high))
}

// judge says in words what the comparison of categories found.
func (c *Categories) judge(plural string) {
	c.Found = c.P < significance
	switch {
	case c.Freedom == 0:
		c.Conclusion = fmt.Sprintf("%s: no test, too few groups of each or all alike", c.Name)
	case !c.Found:
		c.Conclusion = fmt.Sprintf("no %s bias found: chi-square %.1f with %d degrees of freedom, p = %.2g", c.Name, c.ChiSquare, c.Freedom, c.P)
	default:
		c.Conclusion = fmt.Sprintf("some %s are trained more than others (chi-square %.1f with %d degrees of freedom, p = %.2g)", plural, c.ChiSquare, c.Freedom, c.P)
		if c.Ratio != 0 {
			c.Conclusion += fmt.Sprintf(": the trained mean is %.3f of the started", c.Ratio)
		}
	}
}

// judge says in words whether length goes with order.
func (r *Order) judge() {
	known := r.Slope95 != [2]float64{}
	r.Found = known && (r.Slope95[0] > 0 || r.Slope95[1] < 0)
	interval := fmt.Sprintf("%s, 95 %% interval [%s, %s]", percent(r.Slope), percent(r.Slope95[0]), percent(r.Slope95[1]))
	switch {
	case !known:
		r.Conclusion = fmt.Sprintf("order: %s from first to last of a batch, over too few train steps for an interval", percent(r.Slope))
	case !r.Found:
		r.Conclusion = "no length trend within batches found: from first to last " + interval
	default:
		r.Conclusion = "length goes with the order in a batch: from first to last " + interval
	}
}

// verdicts collects those of all parts.
func (r *Report) verdicts() []string {
	var all []string
	for _, p := range []*Property{r.Length, r.Environment} {
		if p != nil {
			all = append(all, p.Conclusion)
		}
	}
	for _, c := range []*Categories{r.Prompt, r.Level, r.SolveRate} {
		if c != nil {
			all = append(all, c.Conclusion)
		}
	}
	if r.Order != nil {
		all = append(all, r.Order.Conclusion)
	}
	if r.CensoredShare > 0 {
		all = append(all, fmt.Sprintf("%s of started rollouts never had a length: a bias among them is not seen", percent(r.CensoredShare)))
	}
	return all
}

// percent prints a share with as many digits as it takes to tell it from 0.
func percent(share float64) string {
	v := 100 * share
	digits := 1
	if a := math.Abs(v); a >= 10 {
		digits = 0
	} else if a > 0 && a < 0.1 {
		digits = 2
	}
	return strconv.FormatFloat(v, 'f', digits, 64) + " %"
}
