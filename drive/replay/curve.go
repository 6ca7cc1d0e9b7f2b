package replay

import (
	"cmp"
	"slices"
)

// point is a measured decode step time at a number of active slots.
type point struct {
	active int
	ns     float64
	weight float64
}

// curve is a step time that never falls with the number of active slots: more
// rollouts at once never make a step faster, what looks so is noise.
type curve struct{ points []point }

// fitCurve pools adjacent violators (isotonic regression, weighted by steps).
func fitCurve(points []point) curve {
	slices.SortFunc(points, func(a, b point) int { return cmp.Compare(a.active, b.active) })
	type block struct {
		sum, weight float64
		n           int
	}
	var blocks []block
	for _, p := range points {
		blocks = append(blocks, block{p.ns * p.weight, p.weight, 1})
		for len(blocks) > 1 {
			a, b := &blocks[len(blocks)-2], blocks[len(blocks)-1]
			if a.sum/a.weight <= b.sum/b.weight {
				break
			}
			*a = block{a.sum + b.sum, a.weight + b.weight, a.n + b.n}
			blocks = blocks[:len(blocks)-1]
		}
	}
	fitted := slices.Clone(points)
	i := 0
	for _, b := range blocks {
		for range b.n {
			fitted[i].ns = b.sum / b.weight
			i++
		}
	}
	return curve{fitted}
}

// at returns the step time with so many active slots: between measured points
// by a straight line, below them as at the first, above them by the trend.
func (c curve) at(active int) float64 {
	n := len(c.points)
	first, last := c.points[0], c.points[n-1]
	switch {
	case active <= first.active:
		return first.ns
	case active > last.active:
		return last.ns + c.slope()*float64(active-last.active)
	}
	i, _ := slices.BinarySearchFunc(c.points, active, func(p point, a int) int { return cmp.Compare(p.active, a) })
	if c.points[i].active == active {
		return c.points[i].ns
	}
	a, b := c.points[i-1], c.points[i]
	return a.ns + (b.ns-a.ns)*float64(active-a.active)/float64(b.active-a.active)
}

// slope is the weighted least-squares slope over all points, at least 0.
func (c curve) slope() float64 {
	var w, x, y float64
	for _, p := range c.points {
		w += p.weight
		x += p.weight * float64(p.active)
		y += p.weight * p.ns
	}
	x, y = x/w, y/w
	var xx, xy float64
	for _, p := range c.points {
		d := float64(p.active) - x
		xx += p.weight * d * d
		xy += p.weight * d * (p.ns - y)
	}
	if xx == 0 {
		return 0
	}
	return max(xy/xx, 0)
}

// stepsEnough is how many decode steps a state of the trainer needs to have a
// curve of its own; with fewer it shares the other's.
const stepsEnough = 50

// speeds tabulates the decode speed relative to nsPerToken, for 0 to c active
// slots: without and with a train step running. Nil where nothing was measured.
func (r *Recording) speeds(c int, nsPerToken float64) speedTable {
	var points [2][]point
	var steps [2]int64
	for key, m := range r.cells {
		if m.steps == 0 || m.ns == 0 {
			continue
		}
		i := 0
		if key.busy {
			i = 1
		}
		steps[i] += m.steps
		points[i] = append(points[i], point{key.active, float64(m.ns) / float64(m.steps), float64(m.steps)})
	}
	if steps[0]+steps[1] == 0 {
		return nil
	}
	var table [2][]float64
	for i := range table {
		from := i
		if steps[i] < stepsEnough && steps[1-i] > steps[i] {
			from = 1 - i
		}
		fitted := fitCurve(points[from])
		table[i] = make([]float64, c+1)
		for active := range table[i] {
			table[i][active] = nsPerToken / fitted.at(max(active, 1))
		}
	}
	return &table
}
