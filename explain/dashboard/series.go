package dashboard

import (
	"math"
	"sort"
)

// pointsMax bounds the points of a series; beyond it neighbours are merged in pairs.
const pointsMax = 1 << 14

// column of a series.
type column struct {
	name string
	// most: a merged point has the larger value, not the mean.
	most bool
}

// The columns that a step always has, in the order of stepColumns.
var baseColumns = []column{{"reward", false}, {"staleness", false}, {"pqs", false}, {"iqs", false}, {"staleness_max", true},
	{"token_staleness", false}, {"period_s", false}, {"train_s", false}, {"trainer_idle", false}, {"rollout_idle", false},
	{"queue_groups", false}, {"tokens_per_s", false}, {"response_tokens", false}, {"production", false}, {"effective", false},
	{"consumption", false}, {"acceptance", false}}

// series are figures by step. Points stand for one step each until there are too many.
type series struct {
	steps  []int64
	times  []float64
	weight []int32
	// columns by name in the order of names; a value that is not known is NaN.
	names   []column
	index   map[string]int
	columns [][]float32
}

func newSeries() *series {
	s := &series{index: map[string]int{}}
	for _, c := range baseColumns {
		s.column(c)
	}
	return s
}

// column returns the place of a column, which is made if there is none.
func (s *series) column(c column) int {
	if at, there := s.index[c.name]; there {
		return at
	}
	s.index[c.name] = len(s.names)
	s.names = append(s.names, c)
	values := make([]float32, len(s.steps))
	for i := range values {
		values[i] = float32(math.NaN())
	}
	s.columns = append(s.columns, values)
	return len(s.names) - 1
}

// add appends a step with the values of the base columns.
func (s *series) add(step int64, timeS float64, values []float64) {
	if len(s.steps) >= pointsMax {
		s.halve()
	}
	s.steps, s.times, s.weight = append(s.steps, step), append(s.times, timeS), append(s.weight, 1)
	for i := range s.columns {
		v := math.NaN()
		if i < len(values) {
			v = values[i]
		}
		s.columns[i] = append(s.columns[i], float32(v))
	}
}

// set puts a value to the point that a step is in; one that it has already is kept as the newest. A step that
// has no point yet is not known.
func (s *series) set(step int64, name string, value float64) {
	at := sort.Search(len(s.steps), func(i int) bool { return s.steps[i] >= step })
	if at == len(s.steps) {
		return
	}
	s.columns[s.column(column{name: name})][at] = float32(value)
}

// mean is the mean of a column over what is known of it, NaN where nothing is.
func (s *series) mean(name string) float64 {
	at, there := s.index[name]
	if !there {
		return math.NaN()
	}
	return float64(merged(s.columns[at], s.weight, false))
}

// halve merges the points in pairs.
func (s *series) halve() {
	n := len(s.steps) / 2
	for c := range s.columns {
		for i := range n {
			s.columns[c][i] = merged(s.columns[c][2*i:2*i+2], s.weight[2*i:2*i+2], s.names[c].most)
		}
		s.columns[c] = s.columns[c][:n]
	}
	for i := range n {
		s.steps[i], s.times[i], s.weight[i] = s.steps[2*i+1], s.times[2*i+1], s.weight[2*i]+s.weight[2*i+1]
	}
	s.steps, s.times, s.weight = s.steps[:n], s.times[:n], s.weight[:n]
}

// merged is the value of several points, NaN where none is known.
func merged(values []float32, weight []int32, most bool) float32 {
	sum, n, top := 0.0, 0.0, math.Inf(-1)
	for i, v := range values {
		if x := float64(v); x == x {
			sum += x * float64(weight[i])
			n += float64(weight[i])
			top = math.Max(top, x)
		}
	}
	switch {
	case n == 0:
		return float32(math.NaN())
	case most:
		return float32(top)
	}
	return float32(sum / n)
}

// between returns the steps from one to another, both included, in at most so many points.
func (s *series) between(from, to int64, points int) *Series {
	first := sort.Search(len(s.steps), func(i int) bool { return s.steps[i] >= from })
	end := sort.Search(len(s.steps), func(i int) bool { return s.steps[i] > to })
	out := &Series{Step: []int64{}, TimeS: []float64{}, Columns: map[string][]*float64{}}
	n := max(end-first, 0)
	stride := 1
	if points > 0 {
		stride = max((n+points-1)/points, 1)
	}
	for i := first; i < end; i += stride {
		last := min(i+stride, end) - 1
		out.Step, out.TimeS = append(out.Step, s.steps[last]), append(out.TimeS, s.times[last])
	}
	for c, values := range s.columns {
		column := make([]*float64, 0, len(out.Step))
		known := false
		for i := first; i < end; i += stride {
			stop := min(i+stride, end)
			var p *float64
			if v := float64(merged(values[i:stop], s.weight[i:stop], s.names[c].most)); v == v && !math.IsInf(v, 0) {
				p, known = &v, true
			}
			column = append(column, p)
		}
		if known || c < len(baseColumns) {
			out.Columns[s.names[c].name] = column
		}
	}
	return out
}
