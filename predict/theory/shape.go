package theory

import (
	"math"
	"sync"

	"github.com/headway-rl/headway/loop/workload"
)

// groupTimes tabulates the distribution of a group's time D from its first
// token to its last sibling, as the area under its distribution function,
// A(x) = ∫₀ˣ F = E[(x − D)⁺]: averages of F over an interval, which is what a
// uniform wait asks for, are then differences of two look-ups, and the mean is
// what is missing from A(x) → x − E[D].
type groupTimes struct {
	grid grid
	area []float64
	mean float64
	// share is F itself, on the grid; nil where nothing asks for it.
	share []float64
}

// grid is a set of points in two uniform parts, fine up to where nearly all
// groups are done and coarser from there to the longest.
type grid struct {
	middle, last float64
	fine, coarse float64 // reciprocal steps
}

// Points of the two parts.
const (
	fineCells   = 1024
	coarseCells = 512
	gridPoints  = fineCells + coarseCells + 1
)

// newGrid covers [0, last].
func newGrid(middle, last float64) grid {
	last = max(last, 1e-9)
	middle = min(max(middle, last/64), last*0.999)
	return grid{middle, last, fineCells / middle, coarseCells / (last - middle)}
}

// point is the i-th.
func (g grid) point(i int) float64 {
	if i <= fineCells {
		return float64(i) / g.fine
	}
	return g.middle + float64(i-fineCells)/g.coarse
}

// find returns the cell of x in (0, last) and how far into it x lies.
func (g grid) find(x float64) (cell int, share float64) {
	if x < g.middle {
		x *= g.fine
		cell = min(int(x), fineCells-1)
		return cell, x - float64(cell)
	}
	x = (x - g.middle) * g.coarse
	cell = min(int(x), coarseCells-1)
	return fineCells + cell, x - float64(cell)
}

// below returns A(x).
func (g *groupTimes) below(x float64) float64 {
	switch {
	case x <= 0:
		return 0
	case x >= g.grid.last:
		return g.area[gridPoints-1] + x - g.grid.last
	}
	i, share := g.grid.find(x)
	return g.area[i] + share*(g.area[i+1]-g.area[i])
}

// staggers is how many staggers are tabulated, evenly over [0, 1]. A stagger is by
// how much the last sibling of a group starts after the first: siblings take slots
// one by one as these free up, C a mean rollout time, so the i-th starts i/C
// later. It is counted in mean rollout times, (S−1)/C; beyond 1 there are fewer
// slots than siblings.
const staggers = 9

// shape is what estimates need of a workload, in mean rollout times.
type shape struct {
	size       int // S
	grid       grid
	single     []float64 // distribution function of one rollout, on grid
	rollout    []float64 // distribution function of one rollout to the power size/blocks, on grid
	group      []float64 // of the longest sibling, on grid
	blocks     int       // siblings that start together count as one block
	dispersion Dispersion
	once       [staggers]sync.Once
	times      [staggers]*groupTimes
	tokenOnce  [staggers]sync.Once
	tokens     [staggers]*groupTimes
}

// maxBlocks bounds how finely the siblings' starts are resolved.
const maxBlocks = 32

// newShape tabulates rollout and group times of mean 1 and M. Group may be of
// correlated siblings, whose distribution function is not a power.
func newShape(rollout, group workload.Distribution, size int) *shape {
	longest, _ := group.At(group.Len() - 1)
	s := &shape{size: size, blocks: min(size, maxBlocks), dispersion: NewDispersion(rollout, size)}
	s.grid = newGrid(group.Quantile(0.995), longest+1)
	s.group = onGrid(group, s.grid)
	s.single = onGrid(rollout, s.grid)
	s.rollout = make([]float64, gridPoints)
	for i, f := range s.group {
		// From the group's own law, so that correlated siblings keep their M.
		s.rollout[i] = math.Pow(f, 1/float64(s.blocks))
	}
	return s
}

// onGrid is a distribution function on a grid.
func onGrid(d workload.Distribution, g grid) []float64 {
	f := make([]float64, gridPoints)
	sum, next := 0.0, 0
	for i := range f {
		x := g.point(i)
		for next < d.Len() {
			v, p := d.At(next)
			if v > x+1e-12 {
				break
			}
			sum += p
			next++
		}
		f[i] = min(sum, 1)
	}
	f[gridPoints-1] = 1
	return f
}

// at returns the group times of the i-th stagger, made when first asked for.
func (s *shape) at(i int) *groupTimes {
	s.once[i].Do(func() { s.times[i] = s.staggered(float64(i) / (staggers - 1)) })
	return s.times[i]
}

// staggered is the product of the blocks' distribution functions, each started
// later than the one before.
func (s *shape) staggered(stagger float64) *groupTimes {
	t := &groupTimes{grid: s.grid, area: make([]float64, gridPoints), share: make([]float64, gridPoints)}
	last, lastPoint := 0.0, 0.0
	for i := range gridPoints {
		x := s.grid.point(i)
		f := 1.0
		switch {
		case stagger == 0 || s.blocks == 1:
			f = s.group[i]
		default:
			for b := range s.blocks {
				f *= s.rolloutAt(x - stagger*float64(b)/float64(s.blocks-1))
				if f == 0 {
					break
				}
			}
		}
		if i > 0 {
			t.area[i] = t.area[i-1] + (f+last)/2*(x-lastPoint)
		}
		t.share[i] = f
		last, lastPoint = f, x
	}
	t.mean = s.grid.last - t.area[gridPoints-1]
	return t
}

// rolloutAt interpolates a block's distribution function.
func (s *shape) rolloutAt(x float64) float64 { return s.grid.value(s.rollout, x) }

// value interpolates a distribution function.
func (g grid) value(f []float64, x float64) float64 {
	if x <= 0 {
		return 0
	}
	if x >= g.last {
		return 1
	}
	i, share := g.find(x)
	return f[i] + share*(f[i+1]-f[i])
}

// spread is the group-time law of one setting: that of the nearest tabulated
// stagger, shifted to the mean of its own.
type spread struct {
	times *groupTimes
	later float64 // mean rollout times
}

// of returns the law for a stagger in mean rollout times.
func (s *shape) of(stagger float64) spread {
	return s.pick(stagger, s.at)
}

// pick is the law of a stagger among tables of neighbouring ones.
func (s *shape) pick(stagger float64, table func(int) *groupTimes) spread {
	if s.size == 1 {
		return spread{times: table(0)}
	}
	at := min(max(stagger, 0), 1) * (staggers - 1)
	i := min(int(at), staggers-2)
	share := at - float64(i)
	low, high := table(i), table(i+1)
	mean := low.mean + share*(high.mean-low.mean)
	if share > 0.5 {
		low = high
	}
	return spread{low, mean - low.mean}
}

// below returns A(x).
func (s *spread) below(x float64) float64 { return s.times.below(x - s.later) }

// mean returns E[D].
func (s *spread) mean() float64 { return s.times.mean + s.later }

// longest bounds D.
func (s *spread) longest() float64 { return s.times.grid.last + max(s.later, 0) }
